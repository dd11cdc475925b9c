package client

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ringrift/ringlog/client/internal/calls"
)

const (
	renewalsGathered = 100 * time.Millisecond // from the first of a request until it is sent; the shortest TTL is 2 s
	mostRenewals     = 1000                   // in one request
)

// renewals sends the renewals of a client's leases of one kind: those that are due within a moment share a request, which
// costs the cluster little more than that of a single lease. It is safe for concurrent use.
type renewals[L comparable] struct {
	ctx     context.Context // ends the requests
	running *sync.WaitGroup // has them
	// send makes a request, and returns the leases that are over.
	send func(ctx context.Context, leases []L) (lost []L, err error)

	mu   sync.Mutex
	next *renewalRound[L] // is gathered; nil if nothing is
}

// renewalRound is one request, and its answer once done is closed.
type renewalRound[L comparable] struct {
	leases []L
	done   chan struct{}
	lost   []L
	err    error
}

// renew renews a lease, and reports whether it is over.
func (r *renewals[L]) renew(ctx context.Context, lease L) (lost bool, err error) {
	round := r.join(lease)
	select {
	case <-round.done:
		return slices.Contains(round.lost, lease), round.err
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// renewAlone is renew with a request of its own, which is sent at once.
func (r *renewals[L]) renewAlone(ctx context.Context, lease L) (lost bool, err error) {
	over, err := r.send(ctx, []L{lease})
	return len(over) > 0, err
}

// join adds a lease to the next request.
func (r *renewals[L]) join(lease L) *renewalRound[L] {
	r.mu.Lock()
	defer r.mu.Unlock()
	round := r.next
	if round == nil {
		round = &renewalRound[L]{done: make(chan struct{})}
		r.next = round
		r.running.Go(func() { r.run(round) })
	}
	round.leases = append(round.leases, lease)
	if len(round.leases) == mostRenewals {
		r.next = nil
	}
	return round
}

// run gathers a request and sends it.
func (r *renewals[L]) run(round *renewalRound[L]) {
	defer close(round.done)
	calls.Sleep(r.ctx, renewalsGathered)
	r.mu.Lock()
	if r.next == round {
		r.next = nil
	}
	r.mu.Unlock()
	round.lost, round.err = r.send(r.ctx, round.leases)
}
