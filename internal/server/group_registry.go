package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/group"
	"github.com/ringrift/ringlog/raftnode"
)

// coordinators are the groups whose events this node hands out while it leads. Each
// begins with its first exchange and ends with the term, with a seek or a removal of the
// group, or when nobody has been there for long.
type coordinators struct {
	ops    *service
	logger hclog.Logger
	ctx    context.Context // ends when the server closes
	loops  sync.WaitGroup

	mu   sync.Mutex
	live map[string]*liveGroup
}

func newCoordinators(ctx context.Context, ops *service, logger hclog.Logger) *coordinators {
	return &coordinators{ops: ops, logger: logger.Named("groups"), ctx: ctx, live: map[string]*liveGroup{}}
}

// wait returns when all have ended, which they do once the server closes.
func (k *coordinators) wait() { k.loops.Wait() }

// keptIdle coordinators without members are kept for the sake of what they know.
const keptIdle = 64

// errIdle ends a group's coordinator that nobody needs.
var errIdle = errors.New("server: nobody was there for long")

// crowded reports that there are so many that those without a member end early.
func (k *coordinators) crowded() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.live) > keptIdle
}

// get returns the coordinator of a group, a new one where there is none that goes on.
func (k *coordinators) get(ctx context.Context, name string) (*liveGroup, error) {
	for {
		term := k.ops.node.LeadingTerm()
		if term == 0 {
			return nil, fmt.Errorf("server: group %s: %w", name, raftnode.ErrNotLeader)
		}
		g, old, err := k.current(name, term)
		if err != nil || g != nil {
			return g, err
		}
		select {
		case <-old.ended:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// current returns the coordinator that goes on, or the one before, which has to end
// first.
func (k *coordinators) current(name string, term uint64) (g, old *liveGroup, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, there := k.ops.machine().Cursor(name)
	if !there || c.Group == nil {
		return nil, nil, k.ops.noGroup(name)
	}
	if g = k.live[name]; g != nil {
		if g.ctx.Err() == nil && g.term == term && g.generation == c.Generation {
			return g, nil, nil
		}
		g.end(errSessionsOver(name))
		return nil, g, nil
	}
	if k.ctx.Err() != nil {
		return nil, nil, errStopping
	}
	if c, there = k.ops.machine().Group(name); !there {
		return nil, nil, k.ops.noGroup(name)
	}
	return k.start(c, term), nil, nil
}

// start begins to hand a group out. k.mu is held.
func (k *coordinators) start(c fsm.Cursor, term uint64) *liveGroup {
	now := time.Now()
	g := &liveGroup{name: c.Name, ops: k.ops, logger: k.logger, term: term, generation: c.Generation, filter: newLiveFilter(k.ops.machine(), c.Filter),
		began: now, kick: make(chan struct{}, 1), hungry: make(chan struct{}, 1), loaded: make(chan struct{}), ended: make(chan struct{}), round: newRound(), seen: now}
	g.ctx, g.end = context.WithCancelCause(k.ctx)
	state := group.State{Committed: c.Committed, Reserved: c.Group.Reserved, Done: c.Group.Done, Retries: c.Group.Retries}
	g.c = group.New(now, state, k.ops.deliveryPolicy(c.Group.Policy), uint64(now.UnixMicro()))
	if c.Gap != nil {
		g.gap = filterGap(c.Gap, g.filter.matcher())
	}
	k.live[c.Name] = g
	k.loops.Go(func() {
		var both sync.WaitGroup
		both.Go(g.feedLoop)
		both.Go(g.settleLoop)
		both.Wait()
		k.mu.Lock()
		delete(k.live, g.name)
		k.mu.Unlock()
		close(g.ended)
	})
	return g
}

// look calls see with a group's coordinator, where this node has it; see must be short.
func (k *coordinators) look(name string, see func(*group.Coordinator)) bool {
	k.mu.Lock()
	g := k.live[name]
	k.mu.Unlock()
	if g == nil || g.ctx.Err() != nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	see(g.c)
	return true
}

// deliveryPolicy is a group's policy with the settings where it says nothing.
func (s *service) deliveryPolicy(p frame.GroupPolicy) group.Policy {
	set := s.machine().Settings()
	out := group.Policy{AckWait: p.AckWait, Session: set.GroupSession, MaxDeliver: p.MaxDeliver, MaxPending: p.MaxPending}
	orDefault(&out.AckWait, set.GroupAckWait)
	orDefault(&out.MaxDeliver, set.GroupMaxDeliver)
	orDefault(&out.MaxPending, set.GroupMaxPending)
	return out
}

func (s *service) noGroup(name string) *api.Error {
	if _, plain := s.machine().Cursor(name); plain {
		return &api.Error{Code: api.InvalidArgument, Field: "group", Message: fmt.Sprintf("%q is a cursor of one reader, not a group", name),
			Remedy: "open it: ringlog tail --cursor " + name + ", or use another name for the group"}
	}
	return &api.Error{Code: api.NotFound, Field: "group", Message: fmt.Sprintf("there is no group %q", name),
		Remedy: "list them: ringlog group ls; or create it: ringlog group create " + name}
}

// errSessionsOver ends every session of a group.
func errSessionsOver(name string) *api.Error {
	return &api.Error{Code: api.Fenced, Field: "session", Message: fmt.Sprintf("the sessions of group %q are over: it was moved, or has another leader", name),
		Remedy: "join again: session 0, with holding"}
}

func errSessionOver(name, member string, session uint64) *api.Error {
	return &api.Error{Code: api.Fenced, Field: "session", Message: fmt.Sprintf("session %d of member %q of group %q is over", session, member, name),
		Remedy: "join again: session 0, with holding"}
}
