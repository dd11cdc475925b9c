package service

import (
	"context"
	"time"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/joint"
	"github.com/ringrift/ringlog/raftnode"
)

// awaitTurn returns true once a claim may hold what it asks for, or has to be renewed, and false when the wait is over
// or the claim has ended. claims looks at its present state. ttl is that of the claim, which ends if nobody renews it.
// watch was made before the claim was, and waited receives when the caller's wait is over. An error is that of ctx, or
// that the node has diverged.
func (c *core) awaitTurn(
	ctx context.Context, ttl time.Duration, watch *fsm.Watch, waited <-chan time.Time, claims func() (holds, waits bool),
) (again bool, err error) {
	// The claim would otherwise end while its caller still waits within this call.
	renew := time.NewTimer(ttl / renewalsPerTTL)
	defer renew.Stop()
	alive := time.NewTicker(c.heartbeat)
	defer alive.Stop()
	for {
		// Renewing it is due.
		due := false
		select {
		case <-watch.Moved():
		case <-renew.C:
			due = true
		// Whether the node still serves.
		case <-alive.C:
			if c.node.Diverged() {
				return false, raftnode.ErrDiverged
			}
			continue
		case <-waited:
			return false, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
		// A claim that was released must not be put at the end of the queue by its renewal.
		holds, waits := claims()
		if holds || !waits || due {
			return holds || waits, nil
		}
	}
}

const (
	renewalsApart = 50 * time.Millisecond // the shortest lease is of 2 s
	renewalWithin = 10 * time.Second      // a cluster that decides nothing for longer has lost most leases
)

// joinRenewals returns how leases of one kind are renewed: those that callers renew within a moment are one entry of
// the log, which costs the cluster little more than the entry of one.
func joinRenewals[L comparable](
	ctx context.Context, s *Service, command func(leases []L) frame.Command,
) *joint.Calls[L] {
	renew := func(ctx context.Context, leases []L) (over []L, err error) {
		ctx, cancel := context.WithTimeout(ctx, renewalWithin)
		defer cancel()
		result, err := s.Propose(ctx, frame.Request{Command: command(leases)})
		// The state machine names those that are over by their place.
		for _, i := range result.LostLeases {
			over = append(over, leases[i])
		}
		return over, err
	}
	return &joint.Calls[L]{Context: ctx, Running: &s.duties, Apart: renewalsApart, Most: frame.MaxLeases, Call: renew}
}
