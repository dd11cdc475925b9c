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

// liveGroup hands the events of one group out, in one term and generation. One goroutine
// feeds the coordinator from the log, one tells the log what it has to be told; the
// exchanges of members come from anywhere.
type liveGroup struct {
	name             string
	host             Host
	engine           *Engine
	logger           hclog.Logger
	term, generation uint64
	filter           *tail.LiveFilter
	began            time.Time // what now counts from

	ctx    context.Context // ends with the cause that members are told
	end    context.CancelCauseFunc
	kick   chan struct{} // there may be something for the log
	hungry chan struct{} // there may be something to feed
	loaded chan struct{} // closed once all is fed that was handed out before
	ended  chan struct{} // closed once both goroutines are done

	mu       sync.Mutex // guards what follows
	c        *group.Coordinator
	round    *round // the settle that takes in what is said now
	waiting  []*waiter
	wanted   int      // events that the exchanges under way want
	gap      *log.Gap // to be told to one member
	trimmed  uint64   // the first offset kept, as it was last seen
	seen     time.Time
	mourn    time.Time // dead letters are not tried before, since they met unburied
	unburied error
}

// round is one settle; done is closed once the log has it, or never will by it. The
// errors are set before: of all of it, and of its dead letters.
type round struct {
	done    chan struct{}
	err     error
	letters error
}

func newRound() *round { return &round{done: make(chan struct{})} }

// Bounds of a group's loop.
const (
	feedAtOnce = 4096
	groupCheck = time.Second            // how often it looks whether it still is to go on
	groupIdle  = 2 * time.Minute        // without a member, after which it ends
	mournPause = time.Second            // before a dead letter that was refused is tried again
	settlePace = 500 * time.Millisecond // before a settle that was refused is tried again
)

// now is the wall clock as it was when the loop began, and the time since: it never goes
// back.
func (g *liveGroup) now() time.Time { return g.began.Add(time.Since(g.began)) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// stir wakes whoever may have something to do. g.mu is held.
func (g *liveGroup) stir() {
	if g.feeds() > 0 {
		signal(g.hungry)
	}
	if g.reserves() > 0 && g.c.Unopened() > 0 {
		signal(g.kick)
	}
}

// reserves is how many events more are to be reserved for those who want some.
func (g *liveGroup) reserves() int { return max(0, g.wanted-g.c.Ready()) }

// feeds is how many events the coordinator is to be fed now.
func (g *liveGroup) feeds() int {
	if g.c.Loading() {
		return feedAtOnce
	}
	return max(0, min(2*g.wanted-g.c.Unopened()-g.c.Ready(), g.c.Room(), feedAtOnce))
}

// feedLoop reads the log ahead of what members want.
func (g *liveGroup) feedLoop() {
	l := g.host.Machine().Log()
	var fed []group.Event
	for g.ctx.Err() == nil {
		g.mu.Lock()
		if loading := g.c.Loading(); !loading {
			g.isLoaded()
		}
		next, limit := g.c.Next(), g.feeds()
		g.mu.Unlock()
		if limit == 0 {
			select {
			case <-g.hungry:
			case <-g.ctx.Done():
			}
			continue
		}
		if _, last := l.Bounds(); next > last {
			_ = l.Wait(g.ctx, next)
			continue
		}
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
			g.pass(chunk.Gap)
		} else {
			g.c.Feed(fed, chunk.Next)
		}
		g.share()
		g.mu.Unlock()
	}
}

// isLoaded lets exchanges begin, once.
func (g *liveGroup) isLoaded() {
	select {
	case <-g.loaded:
	default:
		close(g.loaded)
	}
}

// pass goes behind a gap, which one member is told. g.mu is held.
func (g *liveGroup) pass(gap *log.Gap) {
	g.c.Trim(gap.To)
	if c, ok := g.host.Machine().Cursor(g.name); ok && c.Gap != nil && gap.From <= c.Gap.To {
		gap = tail.FilterGap(c.Gap, g.filter.Matcher())
	}
	g.gap = gap
	signal(g.kick)
}

// trim settles what the log does not keep any more. g.mu is held.
func (g *liveGroup) trim() {
	first, _ := g.host.Machine().Log().Bounds()
	if first <= max(g.trimmed, 1) {
		return
	}
	from := max(g.trimmed, 1)
	g.trimmed = first
	if g.c.Trim(first-1) > 0 {
		g.pass(&log.Gap{From: from, To: first - 1, Reason: log.ReasonTrimmed})
	}
}

// commitLoop lets time pass and tells the log what there is to tell, one settle at a
// time while the next one gathers.
func (g *liveGroup) commitLoop() {
	check := time.NewTicker(groupCheck)
	defer check.Stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for g.ctx.Err() == nil {
		all := false
		select {
		case <-g.kick:
		case <-timer.C:
		case <-check.C:
			all = true
			g.check()
		case <-g.ctx.Done():
			return
		}
		g.tick(timer)
		for g.ctx.Err() == nil && g.settle(all) {
			all = false
		}
	}
}

// tick lets time pass and sets the timer to when it has something to do next.
func (g *liveGroup) tick(timer *time.Timer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	g.c.Tick(now)
	g.share()
	if due := g.c.Due(); !due.IsZero() {
		timer.Reset(max(time.Millisecond, due.Sub(now)))
	}
}

// check ends a coordinator that is not the group's any more, or that nobody needs, and
// takes in what has changed around it.
func (g *liveGroup) check() {
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
			_ = g.propose(group.AckBatch{}) // a group whose members wait does not expire
		}
	}
}

// inUse reports whether there is a member, and ends what nobody has used for long, unless
// it knows what the log does not: how often what is open was handed out.
func (g *liveGroup) inUse(policy frame.GroupPolicy, crowded bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.c.SetPolicy(g.engine.Policy(policy))
	g.trim()
	now := g.now()
	if g.c.Counts().Members > 0 || g.wanted > 0 {
		g.seen = now
		return true
	}
	if now.Sub(g.seen) > groupIdle && (crowded || g.c.Open() == 0) {
		g.end(errIdle)
	}
	return false
}

// cause is what an exchange that meets the group's end is told.
func (g *liveGroup) cause() error {
	if err := context.Cause(g.ctx); !errors.Is(err, errIdle) {
		return err
	}
	return errSessionsOver(g.name)
}
