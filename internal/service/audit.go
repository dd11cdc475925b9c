package service

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/platform/audit"
	"github.com/ringrift/ringlog/internal/tail"
)

// Bounds of what an audit counts.
const (
	auditEvents = 1_000_000 // the newest, where the caller says nothing else
	auditPairs  = 4096      // pairs of a type and a source that are counted apart
)

// cursorSubscribers are the cursors, each with its filter. A cursor listens to what its filter passes, whether or not
// somebody reads it.
type cursorSubscribers struct{ machine *fsm.Machine }

// Subscriptions implements audit.Subscribers.
func (c cursorSubscribers) Subscriptions() (list []audit.Subscription) {
	for _, cursor := range c.machine.Cursors() {
		list = append(list, audit.Subscription{Name: cursor.Name, Basis: audit.ByCursor, Filter: cursor.Filter})
	}
	return list
}

// Evidence gathers what this node shows: who listens, and what is in its log from a
// position on.
func (rs *Reports) Evidence(ctx context.Context, from api.Position) (audit.Evidence, error) {
	// Without a position the newest events are enough to show who is active.
	if from.Kind == api.AtDefault {
		from = api.Position{Kind: api.AtLast, Last: auditEvents}
	}
	// The read ends at the tail of this moment.
	t, err := rs.log.OpenTail(ctx, TailRequest{From: from})
	if err != nil {
		return audit.Evidence{}, err
	}
	first, _ := rs.Machine().Log().Bounds()
	e := audit.Evidence{}
	// A read of nothing leaves the scope empty.
	if t.Next() <= t.End() {
		e.Scope = audit.Scope{FirstOffset: max(t.Next(), first), LastOffset: t.End(), KeptFrom: first}
	}
	// Who emits what is counted from the events themselves.
	count := emitterCount{pairs: map[emitted]uint64{}}
	if err := count.countAll(ctx, t); err != nil {
		return e, err
	}
	e.Seen, e.Scope.Events, e.Scope.Uncounted = count.seen(), count.events, count.uncounted
	// Who listens is what is registered now, whatever part of the log was read.
	e.Subscriptions, e.Scope.Unheard = rs.Listeners()
	e.Coordinators = map[string][]string{}
	_ = rs.eachClient("", func(one *fsm.Client) error { // it never fails
		if ids := e.Coordinators[one.Coordinator]; one.Coordinator != "" && len(ids) < auditClients {
			e.Coordinators[one.Coordinator] = append(ids, one.ID)
		}
		return nil
	})
	return e, nil
}

// Listeners returns who listens, by what cursors and registered clients say, and how many subscriptions of clients are
// left out because there are too many.
func (rs *Reports) Listeners() (list []audit.Subscription, leftOut int) {
	clients := &clientSubscribers{core: rs.core}
	for _, subscribers := range []audit.Subscribers{cursorSubscribers{rs.Machine()}, clients} {
		list = append(list, subscribers.Subscriptions()...)
	}
	// leftOut is counted while the subscriptions are listed.
	return list, clients.leftOut
}

// emitterCount counts events by type and source.
type emitterCount struct {
	// Events of types and sources beyond auditPairs count as uncounted.
	pairs     map[emitted]uint64 // at most auditPairs
	events    uint64
	uncounted uint64
}

// emitted is a type and a source that emits it.
type emitted struct {
	kind   event.Type
	source string
}

// countAll counts what a read of the log gives. It skips what is trimmed meanwhile.
func (c *emitterCount) countAll(ctx context.Context, t *tail.Tail) error {
	for {
		// A tail gives at most one batch at a time, so memory stays bounded.
		found, err := t.Read(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range found.Events {
			c.count(emitted{found.Events[i].Type, found.Events[i].Source})
		}
	}
}

// count counts an event, as uncounted where there are auditPairs other pairs already.
func (c *emitterCount) count(pair emitted) {
	if _, known := c.pairs[pair]; !known && len(c.pairs) >= auditPairs {
		c.uncounted++
		return
	}
	c.pairs[pair]++
	c.events++
}

// seen lists the counts by type and source.
func (c *emitterCount) seen() []audit.Seen {
	list := make([]audit.Seen, 0, len(c.pairs))
	for pair, n := range c.pairs {
		list = append(list, audit.Seen{Type: pair.kind, Source: pair.source, Events: n})
	}
	// A map has no order; the report has to be the same each time.
	slices.SortFunc(list, func(a, b audit.Seen) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Source, b.Source))
	})
	return list
}

// auditSubscriptions bounds the clients' subscriptions that an audit looks at; the same
// one of several clients counts once.
const auditSubscriptions = 10_000

// auditClients bounds how many clients of one coordinator are named.
const auditClients = 100

// clientSubscribers are the subscriptions that clients registered.
type clientSubscribers struct {
	core    *core
	leftOut int // subscriptions beyond auditSubscriptions
}

// Subscriptions implements audit.Subscribers.
func (c *clientSubscribers) Subscriptions() (list []audit.Subscription) {
	met := map[string]bool{}
	_ = c.core.eachClient("", func(one *fsm.Client) error { // it never fails
		for _, s := range one.Subscriptions {
			// Processes that run the same program register the same name and filter.
			same := string(frame.AppendFilter([]byte(one.Coordinator+"\x00"+s.Name+"\x00"), s.Filter))
			switch {
			case met[same]:
			case len(list) == auditSubscriptions:
				c.leftOut++
			default:
				met[same] = true
				list = append(list, audit.Subscription{
					Name: s.Name, Basis: audit.ByClient, Coordinator: one.Coordinator, Filter: s.Filter,
				})
			}
		}
		return nil
	})
	return list
}
