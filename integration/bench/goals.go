package main

import (
	"slices"
	"strings"
)

// goal is a figure that ringlog is to reach: by itself, or as a ratio to a peer's.
type goal struct {
	// The work, and the figure of it that the goal is about.
	work, metric string
	system       string // "" is each ringlog
	peer         string // "" is by itself
	than         string // a work of the same system, with Go's client, to relate to
	// They have no unit where they are ratios, else that of the metric.
	goal, least float64 // what is wanted, and what is the least to be accepted
	lower       bool    // lower is better
	absolute    float64 // what the median itself must reach as well for the goal; 0 is nothing
}

// goals are the figures that were set as goals, in the order of the report.
func goals() []goal {
	return []goal{
		{work: "publish", metric: perSecond, peer: "nats-always", goal: 8, least: 4},
		{work: "sync64", metric: perSecond, peer: "nats-always", goal: 5, least: 3},
		{work: "sync1", metric: p50, peer: "nats-always", goal: 1.0, least: 1.3, lower: true},
		{work: "read", metric: perSecond, peer: "nats-always", goal: 5, least: 3, absolute: 1_000_000},
		{work: "consume", metric: perSecond, peer: "nats-always", goal: 4, least: 2},
		{work: "group", metric: perSecond, peer: "nats-always", goal: 2, least: 1},
		{work: "written", metric: perByte, goal: 1.0, least: 1.5, lower: true},
		{work: "python", metric: perSecond, goal: 80_000, least: 50_000},
		{work: clientWork + "batch", metric: perSecond, peer: "nats-always", goal: 1, least: 0.8, absolute: 80_000},
		{work: clientWork + "soon", metric: perSecond, peer: "nats-always", goal: 1, least: 0.8, absolute: 25_000},
		{work: clientWork + "one", metric: p50, peer: "nats-always", goal: 1, least: 1.3, lower: true},
		{work: clientWork + "one", metric: p50, than: "sync1", goal: 1.5, least: 2, lower: true},
		{work: clientWork + "read", metric: perSecond, peer: "nats-always", goal: 1, least: 0.8, absolute: 100_000},
		{work: "fanout", metric: p99, goal: 250, least: 250, lower: true},
		{work: restartWork, metric: caughtUp, goal: 3, least: 6, lower: true},
		{work: restartWork, metric: memory, goal: 500, least: 500, lower: true},
		{work: restartWork, metric: pause, goal: 20, least: 50, lower: true},
		{work: growthWork, metric: caughtUp, goal: 1.3, least: 1.3, lower: true},
		{work: growthWork, metric: memory, goal: 1.3, least: 1.3, lower: true},
		{work: growthWork, metric: pause, goal: 1.3, least: 1.3, lower: true},
	}
}

// Verdicts.
const (
	reached    = "reached"
	leastOnly  = "least"
	notReached = "not reached"
)

// verdict judges a figure, and the median that it comes from.
func (g goal) verdict(figure, median float64) string {
	// figure is a ratio, or the median itself where there is no peer.
	attained := func(bound float64) bool {
		if g.lower {
			return figure <= bound
		}
		return figure >= bound
	}
	switch {
	case attained(g.goal) && median >= g.absolute:
		return reached
	case attained(g.least):
		// A ratio that reaches its goal is judged so too if the median is below the absolute bound.
		return leastOnly
	default:
		return notReached
	}
}

// Comparison is a figure of ringlog: in relation to a peer's, round by round, or by itself.
type Comparison struct {
	Work    string  `json:"work"`
	Metric  string  `json:"metric"`
	System  string  `json:"system"`
	Way     string  `json:"way"`
	Peer    string  `json:"peer,omitempty"`
	PeerWay string  `json:"peer_way,omitempty"`
	Figure  Spread  `json:"figure"` // ringlog's by the peer's of the same round, or ringlog's
	Goal    float64 `json:"goal,omitempty"`
	Least   float64 `json:"least,omitempty"`
	Lower   bool    `json:"lower_is_better"`
	Verdict string  `json:"verdict,omitempty"` // none where there is no goal
}

// isRinglog reports whether a system is ringlog, in whichever variant: the names of all begin with it.
func isRinglog(system string) bool { return strings.HasPrefix(system, "ringlog") }

// compareAll judges every goal that something was measured for, and relates ringlog to the
// peers that no goal names as well.
func compareAll(results []Result, samples []Sample) (all []Comparison) {
	systems := systemsOf(results)
	for _, g := range goals() {
		for _, name := range systems {
			if !isRinglog(name) || (g.system != "" && g.system != name) {
				continue
			}
			// A goal is a ratio to the same system at another work, a figure by itself, or a ratio to a peer.
			if g.than != "" {
				if c, ok := g.against(results, samples, name, name); ok {
					all = append(all, c)
				}
				continue
			}
			if g.peer == "" {
				all = append(all, g.byItself(results, name)...)
				continue
			}
			// Every peer is compared; the goal counts for the one that it names.
			for _, peer := range systems {
				// Ringlog is no peer of its own.
				if c, ok := g.against(results, samples, name, peer); ok && !isRinglog(peer) {
					all = append(all, c)
				}
			}
		}
	}
	return all
}

// systemsOf returns the systems that have results, in the order of their first.
func systemsOf(results []Result) (names []string) {
	for _, r := range results {
		if !slices.Contains(names, r.System) {
			names = append(names, r.System)
		}
	}
	return names
}

// byItself judges each way of a system by its own median.
func (g goal) byItself(results []Result, system string) (all []Comparison) {
	for _, r := range results {
		s, ok := r.Values[g.metric]
		if !ok || r.Work != g.work || r.System != system {
			continue
		}
		all = append(all, Comparison{Work: g.work, Metric: g.metric, System: system, Way: r.Way, Figure: s,
			Goal: g.goal, Least: g.least, Lower: g.lower, Verdict: g.verdict(s.Median, s.Median)})
	}
	return all
}

// against relates the best way of ringlog to the best of a peer, or of its own at another work. The goal
// counts for the peer that it names.
// The best way is that of all rounds together, so each ratio below divides the same two ways.
func (g goal) against(results []Result, samples []Sample, system, peer string) (Comparison, bool) {
	own, ok := g.best(results, system)
	// The other side: the same figure of the peer, or of the work that the goal relates to.
	theirs := g
	// g is a copy. Its peer is set so that the goal counts for this comparison.
	if g.than != "" {
		theirs.work, g.peer = g.than, peer
	}
	other, found := theirs.best(results, peer)
	if !ok || !found {
		return Comparison{}, false
	}
	ratios := ratiosByRound(g.metric, own, other, samples)
	c := Comparison{Work: g.work, Metric: g.metric, System: system, Way: own.Way, Peer: peer, PeerWay: other.Way,
		Figure: spreadOf(ratios), Lower: g.lower}
	// The report names the other work in place of a way.
	if g.than != "" {
		c.PeerWay = g.than
	}
	// For other peers the ratio is reported, and not judged.
	if peer == g.peer {
		c.Goal, c.Least, c.Verdict = g.goal, g.least, g.verdict(c.Figure.Median, own.Values[g.metric].Median)
	}
	// Without a round in which both were measured there is nothing to report.
	return c, len(ratios) > 0
}

// best is the result of the way with the best median.
func (g goal) best(results []Result, system string) (best Result, found bool) {
	for _, r := range results {
		s, ok := r.Values[g.metric]
		if !ok || r.Work != g.work || r.System != system || strings.HasSuffix(r.Way, forInformation) {
			continue
		}
		// The first is the best so far. Then the smaller median wins where lower is better, else the greater.
		if !found || (s.Median < best.Values[g.metric].Median) == g.lower {
			best, found = r, true
		}
	}
	return best, found
}

// ratiosByRound divides own by other in each round that has both.
// What changes from one round to the next, such as the speed of a shared disk, is in both and cancels out.
func ratiosByRound(metric string, own, other Result, samples []Sample) (ratios []float64) {
	byRound := func(r Result) map[int]float64 {
		values := map[int]float64{}
		for _, s := range samples {
			if s.Work == r.Work && s.System == r.System && s.Way == r.Way {
				values[s.Round] = s.Values[metric]
			}
		}
		return values
	}
	// A round that one of them failed in has no ratio.
	owns, others := byRound(own), byRound(other)
	for round, v := range owns {
		if o, ok := others[round]; ok && o != 0 {
			ratios = append(ratios, v/o)
		}
	}
	return ratios
}
