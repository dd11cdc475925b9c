package service

import (
	"context"
	"fmt"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/group"
	"github.com/ringrift/ringlog/internal/group/engine"
)

// Bounds of an exchange.
const (
	MaxWant          = 10_000
	MaxExchangeWait  = 30 * time.Second
	maxExchangeParts = 10_000 // ranges of each kind, and nacks
	maxNackDelay     = 24 * time.Hour
)

// Exchange does what a member asks of its group, which this node must lead; it returns once what the
// member settled is in the log.
func (s *Groups) Exchange(ctx context.Context, r engine.Request) (engine.Answer, error) {
	if err := s.checkExchange(&r); err != nil {
		return engine.Answer{}, err
	}
	return s.engine.Exchange(ctx, r)
}

// GroupOf returns what a cursor's view says of its group; nil is none.
func (s *Cursors) GroupOf(c *fsm.Cursor) *api.GroupInfo {
	if c.Group == nil {
		return nil
	}
	p := s.engine.Policy(c.Group.Policy)
	v := &api.GroupInfo{AckWait: p.AckWait.String(), MaxDeliver: p.MaxDeliver, MaxPending: p.MaxPending, Coordinator: s.node.Status().LeaderID}
	// The node that delivers the group knows more than the log.
	live := s.engine.Inspect(c.Name, func(c *group.Coordinator) {
		counts := c.Counts()
		v.Pending, v.Redelivering, v.Members = uint64(counts.Held), uint64(counts.Redelivering), counts.Members
	})
	if !live {
		s.countFromState(v, c.Name)
	}
	return v
}

// countFromState counts the open events that the state has, for a node that does not deliver the group. Those that
// failed are redelivered; the others may be with members.
func (s *Cursors) countFromState(v *api.GroupInfo, name string) {
	c, there := s.Machine().Group(name)
	if !there {
		return
	}
	v.Redelivering = uint64(len(c.Group.Retries))
	v.Pending = c.Group.Open - min(c.Group.Open, v.Redelivering)
}

// GroupSpec is what a group is made with.
type GroupSpec struct {
	CursorSpec
	Group frame.GroupPolicy
}

// Create makes a group, or answers with the one there is when it is the same.
func (s *Groups) Create(ctx context.Context, c GroupSpec) (api.Cursor, error) {
	if err := s.checkCursorName(c.Name); err != nil {
		return api.Cursor{}, err
	}
	if err := s.checkFilter(ctx, c.Filter); err != nil {
		return api.Cursor{}, err
	}
	at, err := s.place(ctx, "from", c.From)
	if err != nil {
		return api.Cursor{}, err
	}
	return s.cursors.propose(ctx, frame.GroupCreate{Name: c.Name, Start: at, Filter: c.Filter, Policy: c.Policy, Group: c.Group})
}

// Get returns a cursor that is a group.
func (s *Groups) Get(name string) (api.Cursor, error) {
	if err := s.checkCursorName(name); err != nil {
		return api.Cursor{}, err
	}
	c, there := s.Machine().Cursor(name)
	if !there || c.Group == nil {
		return api.Cursor{}, engine.NoGroup(s.Machine(), name)
	}
	return s.cursors.view(c), nil
}

// List lists the groups, by name.
func (s *Groups) List() []api.Cursor {
	list, m := []api.Cursor{}, s.cursors.Lags()
	for _, c := range s.Machine().Cursors() {
		if c.Group != nil {
			list = append(list, m.view(c))
		}
	}
	return list
}

// Delete removes a group, and no cursor of another kind.
func (s *Groups) Delete(ctx context.Context, name string) (api.Cursor, error) {
	if _, err := s.Get(name); err != nil {
		// It may have been made on another node a moment ago.
		if err := s.node.ReadBarrier(ctx); err != nil {
			return api.Cursor{}, err
		}
		if _, err := s.Get(name); err != nil {
			return api.Cursor{}, err
		}
	}
	return s.cursors.Delete(ctx, name)
}

// Sessions lists a group's members in the order they joined. On a node that does not deliver the group it lists none.
func (s *Groups) Sessions(name string) ([]api.GroupMember, error) {
	if _, err := s.Get(name); err != nil {
		return nil, err
	}
	list := []api.GroupMember{}
	s.engine.Inspect(name, func(c *group.Coordinator) {
		for _, m := range c.Sessions(time.Now()) {
			list = append(list, api.GroupMember{Member: m.Name, Session: m.Session, Since: m.Since, LastSeen: m.Seen, Pending: m.Held,
				OldestMs: m.Oldest.Milliseconds(), Delivered: m.Delivered, Acked: m.Acked, Nacked: m.Nacked, Expired: m.Expired})
		}
	})
	return list, nil
}

// checkExchange refuses what no group could take, and puts ranges in order.
func (s *Groups) checkExchange(r *engine.Request) error {
	limit := s.Machine().Settings().Limits.NameBytes
	if err := s.checkCursorName(r.Group); err != nil {
		return err
	}
	if r.Member == "" {
		return api.Missing("member", "the member's name, one for each process")
	}
	if err := checkName("member", r.Member, limit); err != nil {
		return err
	}
	for field, list := range map[string]*[]frame.Range{"holding": &r.Holding, "acks": &r.Acks, "progress": &r.Progress} {
		if err := checkRanges(field, list); err != nil {
			return err
		}
	}
	return checkDemand(r)
}

// checkRanges refuses ranges that are too many or empty, and joins the others in order.
func checkRanges(field string, list *[]frame.Range) error {
	if len(*list) > maxExchangeParts {
		return tooMany(field, len(*list))
	}
	for i, r := range *list {
		if r.From == 0 || r.From > r.To {
			return &api.Error{Code: api.InvalidArgument, Field: fmt.Sprintf("%s[%d]", field, i), Message: fmt.Sprintf("from %d to %d is no range of offsets", r.From, r.To),
				Remedy: "send from, from 1, and to, which is not below it"}
		}
	}
	*list = frame.JoinRanges(*list)
	return nil
}

// tooMany returns the error for a field of more than maxExchangeParts elements.
func tooMany(field string, n int) *api.Error {
	return &api.Error{Code: api.TooLarge, Field: field, Message: fmt.Sprintf("%d of them, the limit for an exchange is %d", n, maxExchangeParts),
		Remedy: "join ranges that touch, or send several exchanges"}
}

// checkDemand refuses nacks and demands that no group could take.
func checkDemand(r *engine.Request) error {
	if len(r.Nacks) > maxExchangeParts {
		return tooMany("nacks", len(r.Nacks))
	}
	for i := range r.Nacks {
		n := &r.Nacks[i]
		switch field := fmt.Sprintf("nacks[%d].", i); {
		case n.Offset == 0:
			return api.BadValue(field+"offset", "0", "an offset from 1")
		case n.Delay < 0 || n.Delay > maxNackDelay:
			return api.BadValue(field+"delay_ms", fmt.Sprint(n.Delay.Milliseconds()), fmt.Sprintf("milliseconds up to %d", maxNackDelay.Milliseconds()))
		case n.Dead && n.Released:
			return &api.Error{Code: api.InvalidArgument, Field: field + "dead", Message: "dead and released contradict each other", Remedy: "send one of them"}
		}
	}
	switch {
	case len(r.Holding) > 0 && r.Session != 0:
		return &api.Error{Code: api.InvalidArgument, Field: "holding", Message: "holding is for joining, and a session is given", Remedy: "send it with session 0"}
	case r.Want < 0 || r.Want > MaxWant:
		return &api.Error{Code: api.InvalidArgument, Field: "want", Message: fmt.Sprintf("more than %d events at once, or fewer than none", MaxWant), Remedy: fmt.Sprintf("want 0 to %d", MaxWant)}
	case r.Wait < 0 || r.Wait > MaxExchangeWait:
		return api.BadValue("wait_ms", fmt.Sprint(r.Wait.Milliseconds()), fmt.Sprintf("milliseconds up to %d", MaxExchangeWait.Milliseconds()))
	case r.Leave && r.Want > 0:
		return &api.Error{Code: api.InvalidArgument, Field: "want", Message: "a member that leaves wants nothing", Remedy: "leave it out"}
	}
	return nil
}
