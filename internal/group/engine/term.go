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
	name             string
	host             Host
	logger           hclog.Logger
	term, generation uint64
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
	// There was no room for it: the group is led from here nevertheless.
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

// sleep returns after d, or when the group ends.
func (g *groupTerm) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-g.ctx.Done():
	}
}

// readEvents returns the events of deliveries, whose offsets rise; those that were trimmed in
// the meantime are left out.
func (g *groupTerm) readEvents(list []group.Delivery) (events []event.Event, counts []uint64, err error) {
	l := g.host.Machine().Log()
	events, counts = make([]event.Event, 0, len(list)), make([]uint64, 0, len(list))
	for len(list) > 0 {
		// One read covers deliveries that are close together, so that at least each second event of it
		// is one of them. The filter may have changed since: it does not count.
		from, span := list[0].Offset, uint64(1)
		for i := 1; i < len(list) && list[i].Offset-from < 2*uint64(i+1); i++ {
			span = list[i].Offset - from + 1
		}
		chunk, err := l.ReadFor(g.name, from, &event.Matcher{}, int(span))
		if err != nil {
			return nil, nil, err
		}
		// Deliveries and events rise alike: take the events that were delivered.
		for i := range chunk.Events {
			e := &chunk.Events[i]
			for len(list) > 0 && list[0].Offset < e.Offset {
				list = list[1:]
			}
			if len(list) > 0 && list[0].Offset == e.Offset {
				events, counts = append(events, *e), append(counts, list[0].Count)
				list = list[1:]
			}
		}
		// Everything that was delivered is in the log: a read that gets no further is past its end.
		if chunk.Next <= from {
			return nil, nil, api.BeyondTail("offset", from, from-1, "join again: session 0, with holding")
		}
		for len(list) > 0 && list[0].Offset < chunk.Next {
			list = list[1:] // not in the log any more
		}
	}
	return events, counts, nil
}
