package engine

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/group"
)

// groupTerm is a group as this node leads it, in one term and generation. It proposes the group's
// commands, and ends the group where an answer says that this node does not lead it any more. It needs no
// lock: its fields are set before the group's goroutines begin.
type groupTerm struct {
	name             string // of the group and of its cursor
	host             Host
	logger           hclog.Logger
	term, generation uint64    // a command with another one of either is refused
	began            time.Time // what now counts from

	ctx context.Context         // ends with the cause that members get as their error
	end context.CancelCauseFunc // the first call sets the cause
}

// now is the wall clock as it was when the loop began, plus the time since on the monotonic clock: it never goes
// back.
func (g *groupTerm) now() time.Time { return g.began.Add(time.Since(g.began)) }

// endCause is the error of an exchange that meets the group's end.
func (g *groupTerm) endCause() error {
	if err := context.Cause(g.ctx); !errors.Is(err, errIdle) {
		return err
	}
	return errSessionsOver(g.name)
}

// endIfOver ends the group if the error of a proposal says that this node can no longer lead it, and reports
// whether it has ended.
func (g *groupTerm) endIfOver(err error) bool {
	refusal, refused := errors.AsType[*fsm.Refusal](err)
	switch {
	case g.ctx.Err() != nil:
		// It has ended already.
	// There was no room for the command: the group is led from here nevertheless.
	case refused && refusal.Code == fsm.Overloaded:
		return false
	case refused && refusal.Code == fsm.NotFound:
		// No group has the name any more.
		g.end(NoGroup(g.host.Machine(), g.name))
	case refused && refusal.Code == fsm.Fenced:
		g.end(errSessionsOver(g.name))
	// The command itself is wrong: proposed again, it would be refused again.
	case refused:
		g.end(err)
	case g.host.LeadingTerm() == g.term:
		return false // the command may be repeated: it changes nothing where it was applied before
	default:
		g.end(err)
	}
	return true
}

// sleep returns after d, or when the group ends. It is for commitLoop, which has nothing else to do until then.
func (g *groupTerm) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-g.ctx.Done():
	}
}

// readEvents returns the events of deliveries, whose offsets ascend; those that were trimmed in
// the meantime are left out. Whether the filter passes them by now does not count.
func (g *groupTerm) readEvents(list []group.Delivery) (events []event.Event, counts []uint64, err error) {
	if len(list) == 0 {
		return nil, nil, nil
	}
	l := g.host.Machine().Log()
	// Everything that was delivered is in the log, unless a restore has replaced it.
	if _, last := l.Bounds(); list[len(list)-1].Offset > last {
		return nil, nil, api.BeyondTail("offset", list[len(list)-1].Offset, last, "join again: session 0, with holding")
	}
	offsets := make([]uint64, len(list))
	for i := range list {
		offsets[i] = list[i].Offset
	}
	// One read for all of them: members with few keys get events that are scattered over a block.
	events, err = l.Pick(offsets)
	if err != nil {
		return nil, nil, err
	}
	// Events and deliveries have one order, so the delivery of an event is the next with its offset.
	counts = make([]uint64, len(events))
	at := 0
	for i := range events {
		for list[at].Offset < events[i].Offset {
			at++
		}
		counts[i] = list[at].Count
	}
	return events, counts, nil
}
