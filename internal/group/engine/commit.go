package engine

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/group"
	"github.com/ringrift/ringlog/log"
)

// Bounds of one command, so a request stays far below what one may take.
const (
	retriesAtOnce = 1000 // failed deliveries in one command
	lettersAtOnce = 16   // dead letters that are stored at the same time
)

// commits are what exchanges wait for the log to record.
type commits struct {
	gathering    *pendingBatch  // what members report now goes into it
	leased       []*leasedBatch // under leases, in the order of the calls; commitBatch takes all
	lettersAfter time.Time      // dead letters are not retried before
	lettersErr   error          // why they were not stored the last time
}

// pendingBatch is an ack batch that exchanges wait for. done is closed once the log has it, or never will by
// this group. err, of all of it, and lettersErr, of its dead letters, are set before that.
type pendingBatch struct {
	done       chan struct{}
	err        error // nil: the log has the batch
	lettersErr error // nil: the log has each dead letter of it
}

// newPendingBatch returns a batch that the log does not have yet.
func newPendingBatch() *pendingBatch { return &pendingBatch{done: make(chan struct{})} }

// commitBatch proposes what the coordinator reports, and then answers the exchanges that wait for it. all
// asks for what would otherwise be left for a later batch. It reports whether there was something to do. Only
// commitLoop calls it: one batch is under way at a time.
func (g *liveGroup) commitBatch(all bool) bool {
	g.mu.Lock()
	// What comes from here on gathers in the next batch.
	r := g.gathering
	s, some := g.coordinator.NextAckBatch(g.reserveCount(), all)
	// Dead letters that were refused wait, and the calls that depend on them get the refusal.
	var deaths []group.Death
	if g.now().Before(g.lettersAfter) {
		r.lettersErr = g.lettersErr
	} else {
		deaths = g.coordinator.Deaths()
	}
	g.gathering = newPendingBatch()
	leased := g.leased
	g.leased = nil
	g.mu.Unlock()
	// Without the lock: exchanges continue meanwhile, and what they report gathers.
	if some {
		r.err = g.proposeBatch(s, frame.RoleLease{}, func() {})
	}
	// One after the other: a role that two of them name has its commands in the order of the calls.
	for _, b := range leased {
		g.proposeLeased(b)
	}
	// A dead letter needs the log to know of the failures before it.
	// stored has, by the place in deaths, which of them the log has.
	stored := make([]bool, len(deaths))
	if r.err == nil && len(deaths) > 0 {
		r.lettersErr = g.storeLetters(deaths, stored)
		if g.ctx.Err() != nil {
			r.err = g.endCause()
		}
	}
	// The coordinator learns what the log has, and the waiting calls are answered.
	g.mu.Lock()
	defer g.mu.Unlock()
	if some {
		// Where the group has ended nobody knows what the log has: the next coordinator reads that from the state.
		g.coordinator.AckBatchDone(g.ctx.Err() == nil)
	}
	for i, d := range deaths {
		g.coordinator.LetterStored(d.Offset, stored[i])
		// It stays dying, and Deaths returns it again after the pause.
		if !stored[i] {
			g.lettersAfter, g.lettersErr = g.now().Add(letterRetryPause), r.lettersErr
		}
	}
	// r.err and r.lettersErr are set, and nobody writes them after this.
	close(r.done)
	for _, b := range leased {
		g.endLeased(b)
	}
	// What has failed may be delivered again from here on, and what was reserved for the first time.
	g.serveWaiters()
	return some || len(leased) > 0 || slices.Contains(stored, true)
}

// proposeBatch gets an ack batch into the log, however long it takes, in parts where it has many failed
// deliveries. stored is called once the log has the first part. With an error the group has ended on this node, or the
// lease is over.
func (g *groupTerm) proposeBatch(s group.AckBatch, lease frame.RoleLease, stored func()) error {
	// The first command has all ranges. What follows has retries alone, in ascending order.
	for {
		n := min(len(s.Retries), retriesAtOnce)
		_, err := g.host.Propose(g.ctx, frame.Request{Command: frame.GroupSettle{
			Name:       g.name,
			Generation: g.generation,
			Term:       g.term,
			Reserved:   s.Reserved,
			Open:       s.Open,
			Done:       s.Done,
			Retries:    s.Retries[:n],
			Lease:      lease,
		}})
		if err == nil {
			stored()
		}
		switch {
		case err == nil && n == len(s.Retries):
			return nil
		// The lease will not begin again: what is left is not settled.
		case leaseOver(err) != nil:
			return err
		// The log has this part; the retries that did not fit follow in the next command.
		case err == nil:
			s.Done, s.Retries = nil, s.Retries[n:]
		case g.endIfOver(err):
			return g.endCause()
		// The same command is proposed again: it changes nothing where it was applied before.
		default:
			g.logger.Warn("ack batch not committed yet, retrying", "group", g.name, "error", err)
			g.sleep(batchRetryPause)
		}
	}
}

// storeLetters stores events as dead letters, some at a time, and notes in stored which of them the log has.
func (g *groupTerm) storeLetters(deaths []group.Death, stored []bool) error {
	errs := make([]error, len(deaths))
	var stores sync.WaitGroup
	free := make(chan struct{}, lettersAtOnce)
	// Each store takes a place in free, and writes the elements of its own index only.
	for i := range deaths {
		free <- struct{}{}
		stores.Go(func() {
			errs[i] = g.storeLetter(&deaths[i], frame.RoleLease{})
			stored[i] = errs[i] == nil
			<-free
		})
	}
	stores.Wait()
	return errors.Join(errs...)
}

// storeLetter stores one event as a dead letter, unless that is settled already.
func (g *groupTerm) storeLetter(d *group.Death, lease frame.RoleLease) error {
	// The letter has a copy of the event, so it outlives the event in the log.
	l, err := g.host.CompleteLetter(g.ctx, frame.DeadLetter{
		Cursor:      g.name,
		Generation:  g.generation,
		Offset:      d.Offset,
		Handler:     d.Handler,
		Error:       d.Error,
		Attempts:    d.Attempts,
		FirstFailed: d.FirstFailed,
	})
	if trimmed := (*log.TrimmedError)(nil); errors.As(err, &trimmed) {
		return nil // there is nothing to store, and the trim has settled it
	}
	if err != nil {
		return err
	}
	// One entry stores the letter and settles the event.
	l.Lease = lease
	_, err = g.host.Propose(g.ctx, frame.Request{Command: frame.GroupDead{Term: g.term, Letter: l}})
	if refusal, ok := errors.AsType[*fsm.Refusal](err); ok && refusal.Code == fsm.Conflict {
		return nil // it is settled
	}
	if err == nil {
		return nil
	}

	// Any other refusal leaves the group running.
	refusal, refused := errors.AsType[*fsm.Refusal](err)
	// Only an error that is no refusal, and these two refusals, may mean that this node does not lead the group any
	// more.
	if leaseOver(err) == nil && (!refused || refusal.Code == fsm.Fenced || refusal.Code == fsm.NotFound) {
		g.endIfOver(err)
	}
	return err
}
