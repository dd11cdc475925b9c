package raftnode

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

// missedRounds is how many rounds without an answer make a member unhealthy.
const missedRounds = 3

// sighting is the newest word of another member.
type sighting struct {
	report Report
	at     time.Time     // when it came, by this machine's clock
	offset time.Duration // its wall clock minus this machine's
}

// watch asks the other members, round by round, what they say of themselves.
type watch struct {
	peers   Peers
	self    string
	period  time.Duration
	members func() []datadir.Peer // whom to ask
	onRound func(context.Context) // after each round, in its goroutine

	mu   sync.Mutex
	seen map[string]sighting
}

func newWatch(peers Peers, self string, period time.Duration, members func() []datadir.Peer) *watch {
	return &watch{peers: peers, self: self, period: period, members: members,
		onRound: func(context.Context) {}, seen: make(map[string]sighting)}
}

// run asks until ctx ends.
func (w *watch) run(ctx context.Context) {
	tick := time.NewTicker(w.period)
	defer tick.Stop()
	for {
		w.round(ctx)
		w.onRound(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// round asks every other member once, at the same time, and waits for them.
func (w *watch) round(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, w.period)
	defer cancel()
	members := w.members()
	var asking sync.WaitGroup
	for _, m := range members {
		if m.ID != w.self && m.HTTP != "" && w.peers != nil {
			asking.Go(func() { _, _ = w.ask(ctx, m) })
		}
	}
	asking.Wait()
	w.forget(members)
}

// ask asks one member now and remembers its answer.
func (w *watch) ask(ctx context.Context, m datadir.Peer) (sighting, error) {
	if w.peers == nil || m.HTTP == "" {
		return sighting{}, fmt.Errorf("raftnode: ask %s: it has no HTTP address", m.ID)
	}
	start := time.Now()
	report, err := w.peers.Identify(ctx, URL(m.HTTP))
	took := time.Since(start)
	if err != nil {
		return sighting{}, fmt.Errorf("raftnode: ask %s: %w", m.ID, err)
	}
	if report.ID != m.ID || m.Incarnation != "" && report.Incarnation != m.Incarnation {
		return sighting{}, fmt.Errorf("raftnode: ask %s: %s of incarnation %s answered at %s", m.ID, report.ID, report.Incarnation, m.HTTP)
	}
	s := sighting{report: report, at: time.Now(), offset: report.Time.Sub(start.Add(took / 2).Round(0))}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[m.ID] = s
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
}

// last is the newest word of a member; healthy means that it is fresh.
func (w *watch) last(id string) (s sighting, healthy bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.seen[id]
	return s, ok && time.Since(s.at) < missedRounds*w.period
}

// reports are the fresh words of all members that gave one.
func (w *watch) reports() []Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []Report
	for _, s := range w.seen {
		if time.Since(s.at) < missedRounds*w.period {
			list = append(list, s.report)
		}
	}
	return list
}
