package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/group"
	"github.com/ringrift/ringlog/internal/tail"
	"github.com/ringrift/ringlog/log"
	"github.com/ringrift/ringlog/raftnode"
)

// liveGroup delivers the events of one group, in one term and generation. feedLoop and commitLoop are its
// goroutines; the exchanges of members come from any.
type liveGroup struct {
	name             string
	host             Host
	engine           *Engine
	logger           hclog.Logger
	term, generation uint64
	filter           *tail.LiveFilter
	began            time.Time // what now counts from

	ctx      context.Context // ends with the cause that members get as their error
	end      context.CancelCauseFunc
	toCommit chan struct{} // there may be something for the log
	toFeed   chan struct{} // there may be something to feed
	loaded   chan struct{} // closed once all is fed that may have been delivered before
	ended    chan struct{} // closed once both goroutines are done

	mu           sync.Mutex // guards what follows
	coordinator  *group.Coordinator
	gathering    *pendingBatch // what members report now goes into it
	waiting      []*waiter
	wanted       int      // events that the exchanges under way want
	gap          *log.Gap // to be reported to one member
	firstKept    uint64   // the first offset kept, as it was last seen
	lastUsed     time.Time
	lettersAfter time.Time // dead letters are not retried before
	lettersErr   error     // why they were not stored the last time
}

// pendingBatch is an ack batch that exchanges wait for. done is closed once the log has it, or never will by
// this group. err, of all of it, and lettersErr, of its dead letters, are set before that.
type pendingBatch struct {
	done       chan struct{}
	err        error
	lettersErr error
}

func newPendingBatch() *pendingBatch { return &pendingBatch{done: make(chan struct{})} }

// Bounds of a group's loop.
const (
	feedAtOnce       = 4096
	groupCheck       = time.Second            // how often it checks whether it is still needed
	groupIdle        = 2 * time.Minute        // without a member, after which it ends
	letterRetryPause = time.Second            // before a dead letter that was refused is retried
	batchRetryPause  = 500 * time.Millisecond // before an ack batch that was refused is retried
)

// now is the wall clock as it was when the loop began, plus the time since on the monotonic clock: it never goes
// back.
func (g *liveGroup) now() time.Time { return g.began.Add(time.Since(g.began)) }

// signal leaves a token in a channel of capacity one, unless there is one already. It never blocks.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// wakeLoops wakes whoever may have something to do. g.mu is held.
func (g *liveGroup) wakeLoops() {
	if g.feedCount() > 0 {
		signal(g.toFeed)
	}
	if g.reserveCount() > 0 && g.coordinator.Unopened() > 0 {
		signal(g.toCommit)
	}
}

// reserveCount is how many events more are to be reserved for those who want some.
func (g *liveGroup) reserveCount() int { return max(0, g.wanted-g.coordinator.Ready()) }

// feedCount is how many events the coordinator is to be fed now.
func (g *liveGroup) feedCount() int {
	if g.coordinator.Loading() {
		return feedAtOnce
	}
	return max(0, min(2*g.wanted-g.coordinator.Unopened()-g.coordinator.Ready(), g.coordinator.Room(), feedAtOnce))
}

// feedLoop reads the log ahead of what members want. What may have been delivered before this leadership is fed
// first, whatever anyone wants: no exchange begins before that.
func (g *liveGroup) feedLoop() {
	l := g.host.Machine().Log()
	var fed []group.Event
	for g.ctx.Err() == nil {
		g.mu.Lock()
		if !g.coordinator.Loading() {
			g.markLoaded()
		}
		next, limit := g.coordinator.Next(), g.feedCount()
		g.mu.Unlock()
		if limit == 0 {
			select {
			case <-g.toFeed:
			case <-g.ctx.Done():
			}
			continue
		}
		if _, last := l.Bounds(); next > last {
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
	select {
	case <-g.loaded:
	default:
		close(g.loaded)
	}
}

// passGap continues after a gap, which is reported to one member. g.mu is held.
func (g *liveGroup) passGap(gap *log.Gap) {
	g.coordinator.Trim(gap.To)
	if c, ok := g.host.Machine().Cursor(g.name); ok && c.Gap != nil && gap.From <= c.Gap.To {
		gap = tail.FilterGap(c.Gap, g.filter.Matcher())
	}
	g.gap = gap
	signal(g.toCommit)
}

// skipTrimmed settles what the log does not keep any more. g.mu is held.
func (g *liveGroup) skipTrimmed() {
	first, _ := g.host.Machine().Log().Bounds()
	if first <= max(g.firstKept, 1) {
		return
	}
	from := max(g.firstKept, 1)
	g.firstKept = first
	if g.coordinator.Trim(first-1) > 0 {
		g.passGap(&log.Gap{From: from, To: first - 1, Reason: log.ReasonTrimmed})
	}
}

// commitLoop lets time pass and commits what the coordinator reports, one batch at a time while the next one
// gathers.
func (g *liveGroup) commitLoop() {
	check := time.NewTicker(groupCheck)
	defer check.Stop()
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
	if due := g.coordinator.Due(); !due.IsZero() {
		timer.Reset(max(time.Millisecond, due.Sub(now)))
	}
}

// checkOwnership ends a coordinator that is not the group's any more, or that nobody needs, and
// takes in what has changed around it.
func (g *liveGroup) checkOwnership() {
	c, there := g.host.Machine().Cursor(g.name)
	switch {
	case !there:
		g.end(NoGroup(g.host.Machine(), g.name))
	case c.Group == nil || c.Generation != g.generation:
		g.end(errSessionsOver(g.name))
	case g.host.LeadingTerm() != g.term:
		g.end(fmt.Errorf("server: group %s: %w", g.name, raftnode.ErrNotLeader))
	case g.inUse(c.Group.Policy, g.engine.crowded()):
		if idle := g.host.Machine().Settings().CursorIdle; idle > 0 && time.Since(c.Touched) > idle/4 {
			_ = g.proposeBatch(group.AckBatch{}) // a group whose members wait does not expire
		}
	}
}

// inUse reports whether there is a member, and ends what nobody has used for long, unless
// it knows what the log does not: how often what is open was handed out.
func (g *liveGroup) inUse(policy frame.GroupPolicy, crowded bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	// What changed around the group: its policy or the settings, and what the log still keeps.
	g.coordinator.SetPolicy(g.engine.Policy(policy))
	g.skipTrimmed()
	now := g.now()
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

// endCause is the error of an exchange that meets the group's end.
func (g *liveGroup) endCause() error {
	if err := context.Cause(g.ctx); !errors.Is(err, errIdle) {
		return err
	}
	return errSessionsOver(g.name)
}
