package election

import "time"

// Pace predicts whether a member keeps up with the leader's raft log. It is used by
// one goroutine.
//
// A member is at risk when it trails by a good part of what the log keeps and the
// log grows faster than the member follows; no longer once it trails by little.
type Pace struct {
	samples []sample
}

// sample is one observation of a member and the log.
type sample struct {
	at      time.Time
	applied uint64 // by the member
	last    uint64 // of the log
}

// What a Pace judges by.
const (
	paceWindow = 10 * time.Second // rates are over about this time
	paceLeast  = 2 * time.Second  // and over no less than this
	riskShare  = 4                // trailing by more than keeps/riskShare can be a risk
	calmShare  = 8                // trailing by less than keeps/calmShare is not a risk
)

// NewPace returns the Pace of one member.
func NewPace() *Pace { return &Pace{} }

// See takes an observation: the member has applied the log up to applied, and the log ends
// with last. keeps is how many entries a compaction leaves for members that lag, was whether
// the member was at risk before. changed reports that t.AtRisk differs from was, which is to
// be reported.
func (p *Pace) See(at time.Time, applied, last, keeps uint64, was bool) (t Trail, changed bool) {
	p.samples = append(p.samples, sample{at, applied, last})
	// The oldest sample is at least paceWindow old once there are enough, so rates are over that time.
	for len(p.samples) > 2 && at.Sub(p.samples[1].at) >= paceWindow {
		p.samples = p.samples[1:]
	}
	t = Trail{AtRisk: was, Trailing: last - min(applied, last)}
	t.Left = keeps - min(t.Trailing, keeps)
	first := p.samples[0]
	elapsed := at.Sub(first.at)
	// A member that trails by little is not at risk, whatever the rates.
	if t.Trailing < max(keeps/calmShare, 1) {
		t.AtRisk = false
		return t, was
	}
	if elapsed < paceLeast {
		return t, false
	}
	t.Rate, t.LogRate = rate(first.applied, applied, elapsed), rate(first.last, last, elapsed)
	// Between the two shares nothing changes, so the answer does not flap.
	if t.LogRate > t.Rate {
		t.TruncatedIn = time.Duration(float64(t.Left) / float64(t.LogRate-t.Rate) * float64(time.Second))
		t.AtRisk = was || t.Trailing >= max(keeps/riskShare, 2)
	}
	return t, t.AtRisk != was
}

// rate is in entries a second. A member that restored a snapshot jumps ahead, and one that
// lost its data folder falls back: its rate is 0.
func rate(from, to uint64, over time.Duration) uint64 {
	if to < from {
		return 0
	}
	return uint64(float64(to-from) / over.Seconds())
}
