package engine

import (
	"slices"
	"sync"

	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/group"
	"github.com/ringrift/ringlog/internal/tail"
	"github.com/ringrift/ringlog/log"
)

// dispatcher delivers the events of a group to the exchanges that wait for some. Whoever changes what may
// be delivered, or joins the waiting, calls serveWaiters or signals toCommit before it releases mu.
type dispatcher struct {
	groupTerm
	filter   *tail.LiveFilter // of the group's cursor, by the catalogue as it is
	toCommit chan struct{}    // holds an element where there may be something for the log
	toFeed   chan struct{}    // holds an element where there may be something to feed

	mu          sync.Mutex         // guards what follows, and the commits of a liveGroup
	coordinator *group.Coordinator // pure: it knows no clock, log or lock
	waiting     []*waiter          // in the order in which they began to wait
	wanted      int                // events that the exchanges under way want, waiting or not
	gap         *log.Gap           // to be reported to one member; nil is none
	firstKept   uint64             // the log's first offset, as it was last seen
}

// waiter is an exchange that waits for events. Its one answer goes into got.
type waiter struct {
	member  *group.Member
	session uint64        // the member's when the exchange began: it may have joined again since
	want    int           // events
	ahead   bool          // see group.Demand
	poll    bool          // it takes what is there now
	got     chan received // of capacity one, so serveWaiters never blocks
}

// received is what a waiter gets.
type received struct {
	deliveries []group.Delivery // those of each key in order
	revoked    []frame.Range    // what the member must not handle any more
	gap        *log.Gap         // nil is none
	err        error            // the session is over; nothing else is set then
}

// wakeLoops wakes feedLoop where events are missing, and commitLoop where fed ones have to be reserved before
// they can be delivered. g.mu is held.
func (g *dispatcher) wakeLoops() {
	if g.feedCount() > 0 {
		signal(g.toFeed)
	}
	if g.reserveCount() > 0 && g.coordinator.Unopened() > 0 {
		signal(g.toCommit)
	}
}

// reserveCount is how many more events are to be reserved for those who want some. g.mu is held.
func (g *dispatcher) reserveCount() int { return max(0, g.wanted-g.coordinator.Ready()) }

// feedCount is how many events the coordinator is to be fed now. g.mu is held.
func (g *dispatcher) feedCount() int {
	if g.coordinator.Loading() {
		return feedAtOnce
	}
	// Twice what is wanted, so there is something for the next exchange as well.
	missing := 2*g.wanted - g.coordinator.Unopened() - g.coordinator.Ready()
	return max(0, min(missing, g.coordinator.Room(), feedAtOnce))
}

// serveWaiters answers the exchanges that wait, as far as there is something for them: in turn, each with its
// part of what anyone may get. g.mu is held.
func (g *dispatcher) serveWaiters() {
	// Those that get nothing keep their places in the same array.
	rest := g.waiting[:0]
	for i, w := range g.waiting {
		if t, some := g.takeEvents(w, len(g.waiting)-i); some {
			w.got <- t
		} else {
			rest = append(rest, w)
		}
	}
	// The array must not keep the waiters that were answered.
	clear(g.waiting[len(rest):])
	g.waiting = rest
	g.wakeLoops()
}

// takeEvents takes from the coordinator what there is for the first of the waiters, of which there are waiting. It
// returns false if that one has to wait on. g.mu is held.
func (g *dispatcher) takeEvents(w *waiter, waiting int) (t received, some bool) {
	if !w.member.Live(w.session) {
		return received{err: errSessionOver(g.name, w.member.Name, w.session)}, true
	}
	demand := group.Demand{
		Events: w.want,
		Bytes:  tail.BatchBytes,
		Units:  (g.coordinator.Ready() + waiting - 1) / waiting, // an equal part, rounded up
		Ahead:  w.ahead,
	}
	t.revoked = w.member.Lost()
	t.deliveries = g.coordinator.Take(g.now(), w.member, demand, nil)
	// Whoever is answered first reports the gap, and nobody else.
	t.gap, g.gap = g.gap, nil
	// A gap alone, or what was revoked, is worth an answer: the member has to learn of it soon.
	some = len(t.deliveries)+len(t.revoked) > 0 || t.gap != nil
	return t, some || (w.poll && g.nothingLeft())
}

// nothingLeft reports whether there is nothing to deliver at the moment: nothing is to be reserved, and the whole
// log is fed, or as much as the group may have open. g.mu is held.
func (g *dispatcher) nothingLeft() bool {
	_, last := g.host.Machine().Log().Bounds()
	return g.coordinator.Unopened() == 0 && (g.coordinator.Next() > last || g.coordinator.Room() == 0)
}

// releaseUndelivered releases what a member never received in an exchange, and keeps what it has lost for its
// next one. Where the member has joined again it does nothing: the member has said itself what it holds. g.mu is
// held.
func (g *dispatcher) releaseUndelivered(e *exchange, t received) {
	// The gap goes to the call that is answered next.
	if g.gap == nil {
		g.gap = t.gap
	}
	if !e.member.Live(e.session) {
		return
	}
	// The session is the same: what it lost it still has to learn, and what it took is free again.
	e.member.RestoreLost(t.revoked)
	// From the last one on, so no later one of a key is revoked.
	for _, d := range slices.Backward(t.deliveries) {
		g.coordinator.Nack(g.now(), e.member, group.Nack{Offset: d.Offset, Released: true})
	}
	g.serveWaiters()
}

// passGap continues after a gap, which is reported to one member. g.mu is held.
func (g *dispatcher) passGap(gap *log.Gap) {
	g.coordinator.Trim(gap.To)
	// The cursor's own gap says how much of it the filter passes, where it is known.
	if c, ok := g.host.Machine().Cursor(g.name); ok && c.Gap != nil && gap.From <= c.Gap.To {
		gap = tail.FilterGap(c.Gap, g.filter.Matcher())
	}
	g.gap = gap
	signal(g.toCommit)
}

// skipTrimmed settles what the log does not keep any more, and reports a gap where that was not settled yet. g.mu
// is held.
func (g *dispatcher) skipTrimmed() {
	first, _ := g.host.Machine().Log().Bounds()
	// Nothing was trimmed since the last call.
	if first <= max(g.firstKept, 1) {
		return
	}
	from := max(g.firstKept, 1)
	g.firstKept = first
	if g.coordinator.Trim(first-1) > 0 {
		g.passGap(&log.Gap{From: from, To: first - 1, Reason: log.ReasonTrimmed})
	}
}
