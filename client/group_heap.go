package client

// heap holds shares, the lowest offset first.
type heap []*share

func (h *heap) push(sh *share) {
	*h = append(*h, sh)
	q := *h
	for i := len(q) - 1; i > 0; {
		up := (i - 1) / 2
		if q[up].Offset <= q[i].Offset {
			return
		}
		q[up], q[i] = q[i], q[up]
		i = up
	}
}

func (h *heap) pop() *share {
	q := *h
	top, last := q[0], len(q)-1
	q[0], q[last] = q[last], nil
	q = q[:last]
	*h = q
	for i := 0; ; {
		least := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < last && q[down].Offset < q[least].Offset {
				least = down
			}
		}
		if least == i {
			return top
		}
		q[i], q[least] = q[least], q[i]
		i = least
	}
}
