package server

import (
	"context"
	"fmt"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/group"
)

// groupView is what a group adds to its cursor's view. What is under way only the leader
// knows exactly; elsewhere it is what the state tells.
type groupView struct {
	AckWait      string `json:"ack_wait"` // in force, as the two below
	MaxDeliver   uint64 `json:"max_deliver"`
	MaxPending   uint64 `json:"max_pending"`
	Pending      uint64 `json:"pending"`      // handed out, not settled
	Redelivering uint64 `json:"redelivering"` // to be handed out again
	Members      int    `json:"members"`
	Coordinator  string `json:"coordinator"` // the node that hands them out
}

// groupOf returns what a cursor's view says of its group; nil is none.
func (s *service) groupOf(c *fsm.Cursor) *groupView {
	if c.Group == nil {
		return nil
	}
	p := s.deliveryPolicy(c.Group.Policy)
	v := &groupView{AckWait: p.AckWait.String(), MaxDeliver: p.MaxDeliver, MaxPending: p.MaxPending, Coordinator: s.node.Status().LeaderID}
	live := s.groups.look(c.Name, func(c *group.Coordinator) {
		counts := c.Counts()
		v.Pending, v.Redelivering, v.Members = uint64(counts.Held), uint64(counts.Redelivering), counts.Members
	})
	if !live {
		v.fromState(s, c.Name)
	}
	return v
}

// fromState tells what the log has reserved and not heard of.
func (v *groupView) fromState(s *service, name string) {
	c, there := s.machine().Group(name)
	if !there {
		return
	}
	v.Redelivering = uint64(len(c.Group.Retries))
	v.Pending = c.Group.Open - min(c.Group.Open, v.Redelivering)
}

// groupSpec is what a group is made with.
type groupSpec struct {
	cursorSpec
	group frame.GroupPolicy
}

// createGroup makes a group, or answers with the one there is when it is the same.
func (s *service) createGroup(ctx context.Context, c groupSpec) (cursorView, error) {
	if err := s.checkCursorName(c.name); err != nil {
		return cursorView{}, err
	}
	if err := s.checkFilter(ctx, c.filter); err != nil {
		return cursorView{}, err
	}
	at, err := s.place(ctx, "from", c.from)
	if err != nil {
		return cursorView{}, err
	}
	return s.cursorCommand(ctx, frame.GroupCreate{Name: c.name, Start: at, Filter: c.filter, Policy: c.policy, Group: c.group})
}

// group returns a cursor that is a group.
func (s *service) group(name string) (cursorView, error) {
	if err := s.checkCursorName(name); err != nil {
		return cursorView{}, err
	}
	c, there := s.machine().Cursor(name)
	if !there || c.Group == nil {
		return cursorView{}, s.noGroup(name)
	}
	return s.view(c), nil
}

func (s *service) listGroups() []cursorView {
	list, m := []cursorView{}, s.lagMeter(lagBlocksListed)
	for _, c := range s.machine().Cursors() {
		if c.Group != nil {
			list = append(list, m.view(c))
		}
	}
	return list
}

// deleteGroup removes a group, and no cursor of another kind.
func (s *service) deleteGroup(ctx context.Context, name string) (cursorView, error) {
	if _, err := s.group(name); err != nil {
		if err := s.node.ReadBarrier(ctx); err != nil {
			return cursorView{}, err
		}
		if _, err := s.group(name); err != nil {
			return cursorView{}, err
		}
	}
	return s.deleteCursor(ctx, name)
}

// memberSession is a member as the leader knows it.
type memberSession struct {
	Member    string    `json:"member"`
	Session   uint64    `json:"session"`
	Since     time.Time `json:"since"`
	LastSeen  time.Time `json:"last_seen"`
	Pending   int       `json:"pending"`
	OldestMs  int64     `json:"oldest_pending_ms"`
	Delivered uint64    `json:"delivered"`
	Acked     uint64    `json:"acked"`
	Nacked    uint64    `json:"nacked"`
	Expired   uint64    `json:"expired"`
}

// sessions lists a group's members in the order they came.
func (s *service) sessions(name string) ([]memberSession, error) {
	if _, err := s.group(name); err != nil {
		return nil, err
	}
	list := []memberSession{}
	s.groups.look(name, func(c *group.Coordinator) {
		for _, m := range c.Sessions(time.Now()) {
			list = append(list, memberSession{Member: m.Name, Session: m.Session, Since: m.Since, LastSeen: m.Seen, Pending: m.Held,
				OldestMs: m.Oldest.Milliseconds(), Delivered: m.Delivered, Acked: m.Acked, Nacked: m.Nacked, Expired: m.Expired})
		}
	})
	return list, nil
}

// checkExchange refuses what no group could take, and puts ranges in order.
func (s *service) checkExchange(r *exchangeRequest) error {
	limit := s.machine().Settings().Limits.NameBytes
	if err := s.checkCursorName(r.group); err != nil {
		return err
	}
	if r.member == "" {
		return missing("member", "the member's name, one for each process")
	}
	if err := checkName("member", r.member, limit); err != nil {
		return err
	}
	for field, list := range map[string]*[]frame.Range{"holding": &r.holding, "acks": &r.acks, "progress": &r.progress} {
		if err := checkRanges(field, list); err != nil {
			return err
		}
	}
	return checkWishes(r)
}

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

func tooMany(field string, n int) *api.Error {
	return &api.Error{Code: api.TooLarge, Field: field, Message: fmt.Sprintf("%d of them, the limit for an exchange is %d", n, maxExchangeParts),
		Remedy: "join ranges that touch, or send several exchanges"}
}

func checkWishes(r *exchangeRequest) error {
	if len(r.nacks) > maxExchangeParts {
		return tooMany("nacks", len(r.nacks))
	}
	for i := range r.nacks {
		n := &r.nacks[i]
		switch field := fmt.Sprintf("nacks[%d].", i); {
		case n.Offset == 0:
			return badParam(field+"offset", "0", "an offset from 1")
		case n.Delay < 0 || n.Delay > maxNackDelay:
			return badParam(field+"delay_ms", fmt.Sprint(n.Delay.Milliseconds()), fmt.Sprintf("milliseconds up to %d", maxNackDelay.Milliseconds()))
		case n.Dead && n.Released:
			return &api.Error{Code: api.InvalidArgument, Field: field + "dead", Message: "dead and released say different things", Remedy: "send one of them"}
		}
	}
	switch {
	case len(r.holding) > 0 && r.session != 0:
		return &api.Error{Code: api.InvalidArgument, Field: "holding", Message: "holding is for joining, and a session is given", Remedy: "send it with session 0"}
	case r.want < 0 || r.want > maxWant:
		return &api.Error{Code: api.InvalidArgument, Field: "want", Message: fmt.Sprintf("more than %d events at once, or fewer than none", maxWant), Remedy: fmt.Sprintf("want 0 to %d", maxWant)}
	case r.wait < 0 || r.wait > maxExchangeWait:
		return badParam("wait_ms", fmt.Sprint(r.wait.Milliseconds()), fmt.Sprintf("milliseconds up to %d", maxExchangeWait.Milliseconds()))
	case r.leave && r.want > 0:
		return &api.Error{Code: api.InvalidArgument, Field: "want", Message: "a member that leaves wants nothing", Remedy: "leave it out"}
	}
	return nil
}
