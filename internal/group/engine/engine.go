package engine

import (
	"cmp"
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
	"github.com/ringrift/ringlog/internal/tail"
	"github.com/ringrift/ringlog/raftnode"
)

// Host is the node that leads the groups, as the engine needs it. Its methods may be called at any time, from any
// goroutine.
type Host interface {
	// Machine is the node's state machine, the same one each time.
	Machine() *fsm.Machine
	// LeadingTerm is the term in which the node leads; 0 if it does not.
	LeadingTerm() uint64
	// Propose returns what the cluster decides about a command; a refusal is the error, a *fsm.Refusal.
	Propose(ctx context.Context, r frame.Request) (fsm.Result, error)
	// CompleteLetter adds the copy of the event to a dead letter and bounds its texts. The error is a
	// *log.TrimmedError for an event that is not there any more.
	CompleteLetter(ctx context.Context, l frame.DeadLetter) (frame.DeadLetter, error)
}

// Engine holds the groups whose events this node delivers while it leads. Each begins with its first exchange and
// ends with the term, with a seek or a removal of the group, or once no member has used it for groupIdle.
type Engine struct {
	host   Host
	logger hclog.Logger
	ctx    context.Context // ends when the server closes
	loops  sync.WaitGroup  // for the goroutines of all groups

	mu   sync.Mutex            // guards live; never taken while a group's lock is held
	live map[string]*liveGroup // by name, until both of a group's goroutines have ended
}

// New returns an engine without groups. It ends with ctx; Wait returns when all of it has ended.
func New(ctx context.Context, host Host, logger hclog.Logger) *Engine {
	return &Engine{host: host, logger: logger.Named("groups"), ctx: ctx, live: map[string]*liveGroup{}}
}

// Wait returns when all have ended, which they do once the server closes.
func (k *Engine) Wait() { k.loops.Wait() }

// maxIdleGroups is how many groups may be live before those without a member end although they have open
// events. Counts of deliveries that no failure has recorded are lost with them.
const maxIdleGroups = 64

// errIdle ends a group's coordinator that no member has used for groupIdle.
var errIdle = errors.New("the group was idle")

// crowded reports whether more groups are live than may be kept without a member.
func (k *Engine) crowded() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.live) > maxIdleGroups
}

// groupFor returns the coordinator of a group, a new one if none is live. It waits for the end of an earlier one,
// or of ctx.
func (k *Engine) groupFor(ctx context.Context, name string) (*liveGroup, error) {
	for {
		// The term is read first: a group that begins in an older one ends at its next check.
		term := k.host.LeadingTerm()
		if term == 0 {
			return nil, fmt.Errorf("group %s: %w", name, raftnode.ErrNotLeader)
		}
		g, old, err := k.currentGroup(name, term)
		if err != nil || g != nil {
			return g, err
		}
		// The earlier coordinator may still be proposing: its successor starts once its loops have ended.
		select {
		case <-old.ended:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// currentGroup returns the live coordinator, or the earlier one, which has to end first.
func (k *Engine) currentGroup(name string, term uint64) (g, old *liveGroup, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, there := k.host.Machine().Cursor(name)
	if !there || c.Group == nil {
		return nil, nil, NoGroup(k.host.Machine(), name)
	}
	// A coordinator of another term or generation, or one that has ended, is not used again.
	g = k.live[name]
	if g != nil {
		if g.ctx.Err() == nil && g.term == term && g.generation == c.Generation {
			return g, nil, nil
		}
		// It may have ended by itself: then the first cause stays.
		g.end(errSessionsOver(name))
		return nil, g, nil
	}
	// No group begins once the server closes.
	if k.ctx.Err() != nil {
		return nil, nil, context.Cause(k.ctx)
	}
	// A new one begins with the settled ranges and retries, which Cursor leaves out.
	c, there = k.host.Machine().Group(name)
	if !there {
		return nil, nil, NoGroup(k.host.Machine(), name)
	}
	return k.startGroup(c, term), nil, nil
}

// startGroup begins to deliver the events of a group, with what the state has of it. k.mu is held.
func (k *Engine) startGroup(c fsm.Cursor, term uint64) *liveGroup {
	now := time.Now()
	g := &liveGroup{
		dispatcher: dispatcher{
			groupTerm: groupTerm{
				name:       c.Name,
				host:       k.host,
				logger:     k.logger,
				term:       term,
				generation: c.Generation,
				began:      now,
			},
			filter:   tail.NewLiveFilter(k.host.Machine(), c.Filter, nil),
			toCommit: make(chan struct{}, 1),
			toFeed:   make(chan struct{}, 1),
		},
		commits:  commits{gathering: newPendingBatch()},
		lastUsed: now,
		engine:   k,
		loaded:   make(chan struct{}),
		ended:    make(chan struct{}),
	}
	g.ctx, g.end = context.WithCancelCause(k.ctx)
	// What the log has of the group is all that its coordinator begins with.
	state := group.State{
		Committed: c.Committed,
		Reserved:  c.Group.Reserved,
		Done:      c.Group.Done,
		Retries:   c.Group.Retries,
	}
	// Numbered from the clock in microseconds, its sessions are above those of the coordinators before it.
	g.coordinator = group.New(now, state, k.Policy(c.Group.Policy), uint64(now.UnixMicro()))
	// An earlier leader may have reported the gap that the state has: a second report is better than none.
	if c.Gap != nil {
		g.gap = tail.FilterGap(c.Gap, g.filter.Matcher())
	}
	k.live[c.Name] = g
	// The group leaves live before ended is closed: groupFor, which waits for ended, then starts a new one.
	k.loops.Go(func() {
		var both sync.WaitGroup
		both.Go(g.feedLoop)
		both.Go(g.commitLoop)
		both.Wait()
		k.mu.Lock()
		delete(k.live, g.name)
		k.mu.Unlock()
		close(g.ended)
	})
	return g
}

// Inspect calls see with a group's coordinator and reports whether this node has one. The group's lock is held
// meanwhile: see must be short, and must not keep the coordinator.
func (k *Engine) Inspect(name string, see func(*group.Coordinator)) bool {
	k.mu.Lock()
	// The two locks are not held together, so see delays no other group.
	g := k.live[name]
	k.mu.Unlock()
	if g == nil || g.ctx.Err() != nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	see(g.coordinator)
	return true
}

// Policy is a group's policy with the replicated settings where it says nothing. The session's length is the
// same for all groups.
func (k *Engine) Policy(p frame.GroupPolicy) group.Policy {
	set := k.host.Machine().Settings()
	return group.Policy{
		AckWait:    cmp.Or(p.AckWait, set.GroupAckWait),
		Session:    set.GroupSession,
		MaxDeliver: cmp.Or(p.MaxDeliver, set.GroupMaxDeliver),
		MaxPending: cmp.Or(p.MaxPending, set.GroupMaxPending),
	}
}

// NoGroup returns the error for a name that no group has: there is nothing, or a cursor of one reader.
func NoGroup(m *fsm.Machine, name string) *api.Error {
	if _, plain := m.Cursor(name); plain {
		return &api.Error{
			Code:    api.InvalidArgument,
			Field:   "group",
			Message: fmt.Sprintf("%q is a cursor of one reader, not a group", name),
			Remedy: "open it: POST /v1/cursors/NAME/open, or ringlog tail --cursor " + name +
				"; or use another name for the group",
		}
	}
	return &api.Error{
		Code:    api.NotFound,
		Field:   "group",
		Message: fmt.Sprintf("there is no group %q", name),
		Remedy: "list them: GET /v1/groups, or ringlog group ls; or create it: PUT /v1/groups/NAME, " +
			"or ringlog group create " + name,
	}
}

// errSessionsOver ends every session of a group.
func errSessionsOver(name string) *api.Error {
	return &api.Error{
		Code:    api.Fenced,
		Field:   "session",
		Message: fmt.Sprintf("the sessions of group %q are over: it was moved, or has another leader", name),
		Remedy:  "join again: session 0, with holding",
	}
}

// errSessionOver ends one session of a member.
func errSessionOver(name, member string, session uint64) *api.Error {
	return &api.Error{
		Code:    api.Fenced,
		Field:   "session",
		Message: fmt.Sprintf("session %d of member %q of group %q is over", session, member, name),
		Remedy:  "join again: session 0, with holding",
	}
}
