package raftnode

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/raftnode/datadir"
)

// hurry is how many times as often a voter is asked that is urgently missed.
const hurry = 5

// stillStep is how many looks this process may miss before it counts as having stood still.
const stillStep = 3

// sighting is the newest word of another member.
type sighting struct {
	report Report
	at     time.Time     // when it came, by this machine's clock
	offset time.Duration // its wall clock minus this machine's
}

// watch pings the other members over their HTTP port, whoever leads, and keeps what
// they say of themselves. Each is asked once an interval, and never twice at a time.
type watch struct {
	peers   Peers
	self    string
	timing  Timing
	members func() []datadir.Peer // whom to ask
	onRound func(context.Context) // after each interval, in the goroutine of run
	urgent  func() bool           // members out of reach are asked more often

	asking sync.WaitGroup
	waking *election.Waking // what silences are measured in

	mu    sync.Mutex
	seen  map[string]*seen
	asked map[string]bool // members whose answer is awaited
	other map[string]bool // members in whose place another data folder has just answered
}

// seen is what is known of one member.
type seen struct {
	sighting
	detector *election.Detector
}

func newWatch(peers Peers, self string, t Timing, members func() []datadir.Peer) *watch {
	return &watch{peers: peers, self: self, timing: t, members: members, onRound: func(context.Context) {},
		urgent: func() bool { return false }, waking: election.NewWaking(time.Now(), stillStep*t.Ping/hurry), seen: map[string]*seen{}, asked: map[string]bool{}, other: map[string]bool{}}
}

// run asks until ctx ends.
func (w *watch) run(ctx context.Context) {
	tick := time.NewTicker(w.timing.Ping / hurry)
	defer tick.Stop()
	defer w.asking.Wait()
	for turn := 0; ; turn++ {
		w.waking.At(time.Now())
		if turn%hurry == 0 {
			w.round(ctx, false)
			w.onRound(ctx)
		} else if w.urgent() {
			w.round(ctx, true)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// round sends a ping to every other member, or only to those out of reach, and does
// not wait for the answers.
func (w *watch) round(ctx context.Context, missing bool) {
	members := w.members()
	for _, m := range members {
		if m.ID == w.self || m.HTTP == "" || w.peers == nil {
			continue
		}
		if _, healthy := w.last(m.ID); healthy && missing || !w.reserve(m.ID) {
			continue
		}
		w.asking.Go(func() {
			defer w.answered(m.ID)
			ctx, cancel := context.WithTimeout(ctx, max(2*w.timing.Ping, time.Second))
			defer cancel()
			_, _ = w.ask(ctx, m)
		})
	}
	w.forget(members)
}

func (w *watch) reserve(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked[id] {
		return false
	}
	w.asked[id] = true
	return true
}

func (w *watch) answered(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.asked, id)
}

// ask asks one member now and remembers its answer.
func (w *watch) ask(ctx context.Context, m datadir.Peer) (sighting, error) {
	if w.peers == nil || m.HTTP == "" {
		return sighting{}, fmt.Errorf("raftnode: ask %s: it has no HTTP address", m.ID)
	}
	start := time.Now()
	report, err := w.peers.Identify(ctx, URL(m.HTTP))
	took := time.Since(start)
	other := err == nil && report.ID == m.ID && m.Incarnation != "" && report.Incarnation != m.Incarnation
	w.mu.Lock()
	w.other[m.ID] = other
	w.mu.Unlock()
	if err != nil {
		return sighting{}, fmt.Errorf("raftnode: ask %s: %w", m.ID, err)
	}
	if report.ID != m.ID || other {
		return sighting{}, fmt.Errorf("raftnode: ask %s: %s of incarnation %s answered at %s", m.ID, report.ID, report.Incarnation, m.HTTP)
	}
	s := sighting{report: report, at: time.Now(), offset: report.Time.Sub(start.Add(took / 2).Round(0))}
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.seen[m.ID]
	if known == nil {
		known = &seen{detector: election.NewDetector(w.timing.Ping, w.timing.Misses)}
		w.seen[m.ID] = known
	}
	known.sighting = s
	known.detector.Answered(w.waking.At(s.at))
	return s, nil
}

// forget drops those who are no members any more.
func (w *watch) forget(members []datadir.Peer) {
	known := make(map[string]string, len(members))
	for _, m := range members {
		known[m.ID] = m.Incarnation
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, s := range w.seen {
		if incarnation, ok := known[id]; !ok || incarnation != "" && incarnation != s.report.Incarnation {
			delete(w.seen, id)
		}
	}
	maps.DeleteFunc(w.other, func(id string, _ bool) bool { _, member := known[id]; return !member })
}

// replaced reports whether a node with another data folder answers under a member's id.
func (w *watch) replaced(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.other[id]
}

// last is the newest word of a member; healthy means that it is fresh.
func (w *watch) last(id string) (s sighting, healthy bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known := w.seen[id]; known != nil {
		return known.sighting, known.detector.Reachable(w.waking.At(time.Now()))
	}
	return s, false
}

// silence is for how long a member has not answered while this process ran; negative: it
// never did.
func (w *watch) silence(id string, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known := w.seen[id]; known != nil {
		return max(0, w.waking.At(now).Sub(known.detector.Last()))
	}
	return -1
}

// steady reports whether a member has answered for a while without a silence.
func (w *watch) steady(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.seen[id]
	return known != nil && known.detector.Steady(w.waking.At(time.Now()))
}

// reports are the fresh words of all members that gave one.
func (w *watch) reports() []Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []Report
	for _, s := range w.seen {
		if s.detector.Reachable(w.waking.At(time.Now())) {
			list = append(list, s.report)
		}
	}
	return list
}
