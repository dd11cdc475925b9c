package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/access"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/group"
	"github.com/ringrift/ringlog/internal/group/engine"
	"github.com/ringrift/ringlog/raftnode"
)

// Bounds of an exchange.
const (
	// MaxWant bounds the events that a member may ask for, in one exchange.
	MaxWant = 10_000
	// MaxExchangeWait bounds how long an exchange waits for events.
	MaxExchangeWait  = 30 * time.Second
	maxExchangeParts = 10_000 // ranges of each kind, and nacks
	maxNackDelay     = 24 * time.Hour
)

// Groups holds the operations on groups of members that share a cursor. Definitions and positions are in the state; who
// holds what is known to the leader's engine alone.
type Groups struct {
	*core
	cursors *Cursors       // a group is a cursor
	engine  *engine.Engine // delivers on the node that leads
}

// Exchange does what a member asks of its group, which this node must lead; it returns once what the
// member settled is in the log.
func (gs *Groups) Exchange(ctx context.Context, r engine.Request) (engine.Answer, error) {
	if err := gs.checkExchange(ctx, &r); err != nil {
		return engine.Answer{}, err
	}
	// The engine refuses where this node does not lead.
	return gs.engine.Exchange(ctx, r)
}

// GroupOf returns what a cursor's view says of its group; nil for a cursor that is not a group.
func (cs *Cursors) GroupOf(c *fsm.Cursor) *api.GroupInfo {
	if c.Group == nil {
		return nil
	}
	// What the group leaves open has the value of the settings.
	p := cs.engine.Policy(c.Group.Policy)
	v := &api.GroupInfo{
		AckWait:     p.AckWait.String(),
		MaxDeliver:  p.MaxDeliver,
		MaxPending:  p.MaxPending,
		Coordinator: cs.node.Status().LeaderID,
	}
	// The node that delivers the group knows more than the log.
	live := cs.engine.Inspect(c.Name, func(c *group.Coordinator) {
		counts := c.Counts()
		v.Pending, v.Redelivering, v.Members = uint64(counts.Held), uint64(counts.Redelivering), counts.Members
	})
	if !live {
		cs.countFromState(v, c.Name)
	}
	return v
}

// countFromState counts the open events that the state has, for a node that does not deliver the group. Those that
// failed are redelivered; the others may be with members.
func (cs *Cursors) countFromState(v *api.GroupInfo, name string) {
	c, there := cs.Machine().Group(name)
	if !there {
		return
	}
	// Only what failed is recorded one by one.
	v.Redelivering = uint64(len(c.Group.Retries))
	v.Pending = c.Group.Open - min(c.Group.Open, v.Redelivering)
}

// GroupSpec is what a group is made with.
type GroupSpec struct {
	CursorSpec
	// Group says how the group delivers; zero fields take the cluster's settings.
	Group frame.GroupPolicy
}

// Create makes a group, or answers with the one there is when it is the same.
func (gs *Groups) Create(ctx context.Context, c GroupSpec) (api.Cursor, error) {
	if err := gs.checkKind(ctx, "group", c.Name); err != nil {
		return api.Cursor{}, err
	}
	if err := gs.checkFilter(ctx, c.Filter); err != nil {
		return api.Cursor{}, err
	}
	// Where end is, is decided when the command is applied; other positions are resolved here.
	at, err := gs.commandPosition(ctx, "from", c.From)
	if err != nil {
		return api.Cursor{}, err
	}
	// A group is a cursor with a policy of its own for deliveries.
	made, err := gs.cursors.proposeFilter(ctx, frame.GroupCreate{
		Name:   c.Name,
		Start:  at,
		Filter: c.Filter,
		Policy: c.Policy,
		Group:  c.Group,
	}, c.Filter)
	return made, gs.cursors.nameDifferences(ctx, err, c.CursorSpec, &c.Group)
}

// Get returns a cursor that is a group.
func (gs *Groups) Get(ctx context.Context, name string) (api.Cursor, error) {
	if err := gs.checkKind(ctx, "group", name); err != nil {
		return api.Cursor{}, err
	}
	c, there := gs.Machine().Cursor(name)
	if !there || c.Group == nil {
		return api.Cursor{}, engine.NoGroup(gs.Machine(), name)
	}
	return gs.cursors.view(ctx, c), nil
}

// List lists the groups, by name.
func (gs *Groups) List(ctx context.Context) []api.Cursor {
	// One meter bounds what is read of the log for all groups.
	list, m := []api.Cursor{}, gs.cursors.Lags()
	for _, c := range gs.Machine().Cursors() {
		if c.Group != nil && access.Of(ctx).Cursor(c.Name) {
			list = append(list, gs.mine(ctx, m.view(c)))
		}
	}
	return list
}

// Delete removes a group, and no cursor of another kind.
func (gs *Groups) Delete(ctx context.Context, name string) (api.Cursor, error) {
	// Without this check a cursor of the name that is not a group would be removed.
	if _, err := gs.Get(ctx, name); err != nil {
		// It may have been made on another node a moment ago.
		if err := gs.node.ReadBarrier(ctx); err != nil {
			return api.Cursor{}, err
		}
		if _, err := gs.Get(ctx, name); err != nil {
			if answer, ok := errors.AsType[*api.Error](err); ok && answer.Code == api.NotFound {
				answer.Remedy = "nothing was removed; to list them: GET /v1/groups, or ringlog group ls"
			}
			return api.Cursor{}, err
		}
	}
	return gs.cursors.Delete(ctx, name)
}

// Sessions lists a group's members in the order they joined. On a node that does not deliver the group it lists none.
func (gs *Groups) Sessions(ctx context.Context, name string) ([]api.GroupMember, error) {
	if _, err := gs.Get(ctx, name); err != nil {
		return nil, err
	}
	list := []api.GroupMember{}
	// The coordinator is locked while it is inspected, so the list is of one moment.
	gs.engine.Inspect(name, func(c *group.Coordinator) {
		for _, m := range c.Sessions(time.Now()) {
			// Counts are those of the session, which ends when the member leaves or falls silent.
			list = append(list, api.GroupMember{
				Member:    m.Name,
				Session:   m.Session,
				Since:     m.Since,
				LastSeen:  m.Seen,
				Pending:   m.Held,
				OldestMs:  m.Oldest.Milliseconds(),
				Delivered: m.Delivered,
				Acked:     m.Acked,
				Nacked:    m.Nacked,
				Expired:   m.Expired,
			})
		}
	})
	return list, nil
}

// checkExchange refuses what no group could take, and puts ranges in order.
func (gs *Groups) checkExchange(ctx context.Context, r *engine.Request) error {
	limit := gs.Machine().Settings().Limits.NameBytes
	// First who asks, and for which group.
	if err := gs.checkKind(ctx, "group", r.Group); err != nil {
		return err
	}
	// A group hands each event to one of its members, so all of them have to be every member's.
	c, _ := gs.Machine().Cursor(r.Group)
	if !access.Of(ctx).Covers(gs.Machine().Catalogue(), c.Filter) {
		return outOfScope("group", fmt.Sprintf("all types of events that the group %q gets", r.Group))
	}
	if r.Member == "" {
		return api.Missing("member", "the member's name, one for each process")
	}
	// Names of members are bounded as those of cursors are: they become part of the state.
	if err := api.CheckName("member", r.Member, limit); err != nil {
		return err
	}
	// Then the offsets. The order of the fields does not matter: the first error is as good as another.
	for field, list := range map[string]*[]frame.Range{"holding": &r.Holding, "acks": &r.Acks, "progress": &r.Progress} {
		if err := checkRanges(field, list); err != nil {
			return err
		}
	}
	if err := checkLease(r.Lease); err != nil {
		return err
	}
	if level := gs.Machine().FeatureLevel(); r.Lease.Role != "" && level < frame.LevelFences {
		return fmt.Errorf("%w: the acks of a group that a role fences are of feature level %d, the cluster is at %d",
			raftnode.ErrFeatureLevel, frame.LevelFences, level)
	}
	return checkDemand(r)
}

// checkRanges refuses ranges that are too many or empty, and joins the others in order.
func checkRanges(field string, list *[]frame.Range) error {
	if len(*list) > maxExchangeParts {
		return tooMany(field, len(*list))
	}
	// An empty range would hide a mistake of the client's, so it is refused.
	for i, r := range *list {
		if r.From == 0 || r.From > r.To {
			return api.Refuse(api.InvalidArgument, fmt.Sprintf("%s[%d]", field, i),
				fmt.Sprintf("from %d to %d is not a range of offsets", r.From, r.To),
				"send from, from 1, and to, which is not below it")
		}
	}
	// The coordinator relies on ascending ranges that do not touch.
	*list = frame.JoinRanges(*list)
	return nil
}

// tooMany returns the error for a field of more than maxExchangeParts elements.
func tooMany(field string, n int) *api.Error {
	return api.Refuse(api.TooLarge, field,
		fmt.Sprintf("%d of them, the limit for an exchange is %d", n, maxExchangeParts),
		"join ranges that touch, or send several exchanges")
}

// checkDemand refuses nacks and demands that no group could take.
func checkDemand(r *engine.Request) error {
	if len(r.Nacks) > maxExchangeParts {
		return tooMany("nacks", len(r.Nacks))
	}
	// Each nack, by its index.
	for i := range r.Nacks {
		n := &r.Nacks[i]
		switch field := fmt.Sprintf("nacks[%d].", i); {
		case n.Offset == 0:
			return api.BadValue(field+"offset", "0", "an offset from 1")
		case n.Delay < 0 || n.Delay > maxNackDelay:
			return api.BadValue(
				field+"delay_ms", fmt.Sprint(n.Delay.Milliseconds()),
				fmt.Sprintf("milliseconds up to %d", maxNackDelay.Milliseconds()),
			)
		case n.Dead && n.Released:
			return api.Refuse(api.InvalidArgument, field+"dead",
				"dead and released contradict each other",
				"send one of them")
		}
	}
	switch {
	// What a member holds from an earlier session is claimed when it joins, and at no other time.
	case len(r.Holding) > 0 && r.Session != 0:
		return api.Refuse(api.InvalidArgument, "holding",
			"holding is for joining, and a session is given",
			"send it with session 0")
	case r.Want < 0 || r.Want > MaxWant:
		return api.Refuse(api.InvalidArgument, "want",
			fmt.Sprintf("more than %d events at once, or fewer than none", MaxWant),
			fmt.Sprintf("want 0 to %d", MaxWant))
	case r.Wait < 0 || r.Wait > MaxExchangeWait:
		return api.BadValue(
			"wait_ms", fmt.Sprint(r.Wait.Milliseconds()),
			fmt.Sprintf("milliseconds up to %d", MaxExchangeWait.Milliseconds()),
		)
	case r.Leave && r.Want > 0:
		return api.Refuse(api.InvalidArgument, "want", "a member that leaves wants nothing", "leave it out")
	}
	return nil
}
