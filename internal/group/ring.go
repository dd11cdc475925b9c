package group

// ring is a queue whose elements keep their numbers, which count up from 1, for as long as
// they are in it. It grows as needed and never shrinks.
type ring[T any] struct {
	buf   []T // its length is a power of two
	first uint64
	next  uint64 // first <= next; equal means empty
}

func newRing[T any]() ring[T] { return ring[T]{first: 1, next: 1} }

func (r *ring[T]) len() int { return int(r.next - r.first) }

// has reports whether the element numbered n is still in the ring.
func (r *ring[T]) has(n uint64) bool { return n >= r.first && n < r.next }

// at returns the element numbered n, for which has must report true.
func (r *ring[T]) at(n uint64) *T { return &r.buf[n&uint64(len(r.buf)-1)] }

// push appends an element and returns its number.
func (r *ring[T]) push(v T) uint64 {
	if r.len() == len(r.buf) {
		r.grow()
	}
	n := r.next
	r.next++
	*r.at(n) = v
	return n
}

// pop removes the first element; the ring must not be empty.
func (r *ring[T]) pop() (v T) {
	var zero T
	place := r.at(r.first)
	v, *place = *place, zero
	r.first++
	return v
}

// grow doubles the length of buf.
func (r *ring[T]) grow() {
	larger := ring[T]{buf: make([]T, max(16, 2*len(r.buf))), first: r.first, next: r.next}
	// An element's place depends on the length of buf, so each one moves.
	for n := r.first; n < r.next; n++ {
		*larger.at(n) = *r.at(n)
	}
	*r = larger
}
