package engine

import (
	"fmt"
	"time"

	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/group"
	"github.com/ringrift/ringlog/internal/tail"
	"github.com/ringrift/ringlog/raftnode"
)

// liveGroup delivers the events of one group and commits what becomes of them. feedLoop and commitLoop are
// its goroutines; the exchanges of members come from any.
type liveGroup struct {
	dispatcher
	commits            // guarded by mu
	lastUsed time.Time // guarded by mu: when a member was last there

	engine *Engine
	loaded chan struct{} // closed once all is fed that may have been delivered before
	ended  chan struct{} // closed once both goroutines are done
}

// Bounds of a group's loop.
const (
	feedAtOnce       = 4096                   // events that are read, and fed, at a time
	groupCheck       = time.Second            // how often it checks whether it is still needed
	groupIdle        = 2 * time.Minute        // without a member, after which it ends
	letterRetryPause = time.Second            // before a dead letter that was refused is retried
	batchRetryPause  = 500 * time.Millisecond // before an ack batch that was refused is retried
)

// signal leaves a token in a channel of capacity one, unless there is one already. It never blocks. Whoever
// receives the token looks at the state again, so none is missed.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// feedLoop reads the log ahead of what members want. What may have been delivered before this leadership is fed
// first, whatever anyone wants: no exchange begins before that.
func (g *liveGroup) feedLoop() {
	l := g.host.Machine().Log()
	var fed []group.Event
	for g.ctx.Err() == nil {
		// See what is to be read, under the lock.
		g.mu.Lock()
		if !g.coordinator.Loading() {
			g.markLoaded()
		}
		next, limit := g.coordinator.Next(), g.feedCount()
		g.mu.Unlock()
		// Nobody wants more: wait until an exchange does.
		if limit == 0 {
			select {
			case <-g.toFeed:
			case <-g.ctx.Done():
			}
			continue
		}
		// All that the log has is fed: wait for more of it.
		if _, last := l.Bounds(); next > last {
			// An error is the end of g.ctx, which the loop finds.
			_ = l.Wait(g.ctx, next)
			continue
		}
		// Read without the lock, then feed what was found or pass what was trimmed.
		chunk, err := g.filter.Read(g.name, next, limit)
		if err != nil {
			g.end(err)
			return
		}
		fed = fed[:0]
		for i := range chunk.Events {
			e := &chunk.Events[i]
			fed = append(fed, group.Event{Offset: e.Offset, Key: e.Key, Bytes: tail.EventBytes(e)})
		}
		g.mu.Lock()
		if chunk.Gap != nil {
			g.passGap(chunk.Gap)
		} else {
			g.coordinator.Feed(fed, chunk.Next)
		}
		g.serveWaiters()
		g.mu.Unlock()
	}
}

// markLoaded lets exchanges begin, once.
func (g *liveGroup) markLoaded() {
	// Only feedLoop closes it.
	select {
	case <-g.loaded:
	default:
		close(g.loaded)
	}
}

// commitLoop lets time pass and commits what the coordinator reports, one batch at a time while the next one
// gathers.
func (g *liveGroup) commitLoop() {
	check := time.NewTicker(groupCheck)
	defer check.Stop()
	// When the coordinator has something to do next; advanceClock sets it.
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for g.ctx.Err() == nil {
		all := false
		select {
		case <-g.toCommit:
		case <-timer.C:
		// Once in a groupCheck the committed offset also moves past events that no batch would report otherwise.
		case <-check.C:
			all = true
			g.checkOwnership()
		case <-g.ctx.Done():
			return
		}
		g.advanceClock(timer)
		// A batch may leave more to do: what gathered meanwhile, and the dead letters of the failures it reported.
		for g.ctx.Err() == nil && g.commitBatch(all) {
			all = false
		}
	}
}

// advanceClock lets time pass and sets the timer to when it has something to do next.
func (g *liveGroup) advanceClock(timer *time.Timer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	g.coordinator.Tick(now)
	g.serveWaiters()
	// Without anything due the timer stays as it is: a tick that comes too early changes nothing.
	if due := g.coordinator.Due(); !due.IsZero() {
		timer.Reset(max(time.Millisecond, due.Sub(now)))
	}
}

// checkOwnership ends a coordinator that is not the group's any more, or that nobody needs, and
// takes in what has changed around it.
func (g *liveGroup) checkOwnership() {
	c, there := g.host.Machine().Cursor(g.name)
	switch {
	// It was removed.
	case !there:
		g.end(NoGroup(g.host.Machine(), g.name))
	// A seek began another generation, or the name is that of a cursor of one reader by now.
	case c.Group == nil || c.Generation != g.generation:
		g.end(errSessionsOver(g.name))
	case g.host.LeadingTerm() != g.term:
		g.end(fmt.Errorf("group %s: %w", g.name, raftnode.ErrNotLeader))
	case g.inUse(c.Group.Policy, g.engine.crowded()):
		if idle := g.host.Machine().Settings().CursorIdle; idle > 0 && time.Since(c.Touched) > idle/4 {
			_ = g.proposeBatch(group.AckBatch{}, frame.RoleLease{}, func() {}) // a group whose members wait does not expire
		}
	}
}

// inUse reports whether there is a member, and ends what nobody has used for long, unless
// it knows what the log does not: how often open events were delivered.
func (g *liveGroup) inUse(policy frame.GroupPolicy, crowded bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	// What changed around the group: its policy or the settings, and what the log still keeps.
	g.coordinator.SetPolicy(g.engine.Policy(policy))
	g.skipTrimmed()
	now := g.now()
	// An exchange under way counts, also one whose member has left.
	if g.coordinator.Counts().Members > 0 || g.wanted > 0 {
		g.lastUsed = now
		return true
	}
	// A coordinator with open events knows how often each was delivered, so it stays unless there are too many.
	if now.Sub(g.lastUsed) > groupIdle && (crowded || g.coordinator.Open() == 0) {
		g.end(errIdle)
	}
	return false
}
