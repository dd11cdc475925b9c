package groups

// ring is a queue whose elements keep their numbers, which count up from 1, for as
// long as they stand in it. It grows as needed and never shrinks.
type ring[T any] struct {
	buf   []T // a power of two long
	first uint64
	next  uint64 // first <= next; equal is empty
}

func newRing[T any]() ring[T] { return ring[T]{first: 1, next: 1} }

func (r *ring[T]) len() int { return int(r.next - r.first) }

// has reports whether the element of that number still stands in the ring.
func (r *ring[T]) has(n uint64) bool { return n >= r.first && n < r.next }

// at returns the element of a number that has reports.
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

func (r *ring[T]) grow() {
	larger := ring[T]{buf: make([]T, max(16, 2*len(r.buf))), first: r.first, next: r.next}
	for n := r.first; n < r.next; n++ {
		*larger.at(n) = *r.at(n)
	}
	*r = larger
}
