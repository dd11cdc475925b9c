package sinks

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/ringrift/ringlog/event"
)

// Result is what became of an attempt.
type Result string

// The results.
const (
	Handled  Result = "handled"
	Retried  Result = "retried"  // failed, and is made again in the same delivery
	Failed   Result = "failed"   // the delivery failed: the event is redelivered
	Dead     Result = "dead"     // the event is a dead letter
	Released Result = "released" // cut off by the end of this process, which does not count
)

// Outcome is one attempt.
type Outcome struct {
	Offset   uint64        `json:"offset"`
	Type     event.Type    `json:"type"`
	Key      string        `json:"key,omitempty"`
	Delivery uint64        `json:"delivery"` // of the event, from 1
	Attempt  int           `json:"attempt"`  // of the delivery, from 1
	Result   Result        `json:"outcome"`
	TimedOut bool          `json:"timed_out,omitempty"`
	Took     time.Duration `json:"-"` // from the call of the sink to its return
	Wait     time.Duration `json:"-"` // until the next attempt or delivery, at least
	Error    string        `json:"error,omitempty"`
	// Lost says that the group has given the event to another member meanwhile.
	Lost bool `json:"lost,omitempty"`
}

// Summary counts what a run did.
type Summary struct {
	Handled     uint64 `json:"handled"`     // events
	Filtered    uint64 `json:"filtered"`    // events passed by the condition
	Failed      uint64 `json:"failed"`      // deliveries that failed, and are redelivered
	Dead        uint64 `json:"dead"`        // events that became dead letters
	Retried     uint64 `json:"retried"`     // attempts that failed and were made again in their delivery
	TimedOut    uint64 `json:"timed_out"`   // attempts that ran out of time
	Released    uint64 `json:"released"`    // deliveries given back at the end, uncounted
	Lost        uint64 `json:"lost"`        // deliveries that the group had given to another member meanwhile
	Gaps        uint64 `json:"gaps"`        // stretches of the log that were gone before they were delivered
	Unpublished uint64 `json:"unpublished"` // events about failures or the breaker that were not published

	Attempts uint64        `json:"attempts"`
	Median   time.Duration `json:"-"` // of the attempts' durations
	P95      time.Duration `json:"-"`
	Longest  time.Duration `json:"-"`
}

// tally gathers the summary. Its size does not depend on how much there is.
type tally struct {
	mu     sync.Mutex
	sum    Summary
	took   *hdrhistogram.Histogram // microseconds
	report func(Outcome)           // called with mu held, so outcomes are reported one at a time
}

// maxDuration is what longer durations count as.
const maxDuration = 7 * 24 * time.Hour

// newTally returns a tally that calls report with each outcome, one at a time.
func newTally(report func(Outcome)) *tally {
	return &tally{took: hdrhistogram.New(1, maxDuration.Microseconds(), 3), report: report}
}

// countAttempt counts an attempt and reports it.
func (t *tally) countAttempt(o Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.Attempts++
	_ = t.took.RecordValue(max(1, min(o.Took, maxDuration).Microseconds())) // within its bounds
	if o.TimedOut {
		t.sum.TimedOut++
	}
	t.countResult(o)
}

// countDelivery counts a delivery that ended between two attempts and reports it.
func (t *tally) countDelivery(o Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.countResult(o)
}

// countResult counts a result. mu is held.
func (t *tally) countResult(o Outcome) {
	if o.Lost {
		t.sum.Lost++
	}
	// Each outcome has one result, and counts once.
	switch o.Result {
	case Handled:
		t.sum.Handled++
	case Retried:
		t.sum.Retried++
	case Failed:
		t.sum.Failed++
	case Dead:
		t.sum.Dead++
	case Released:
		t.sum.Released++
	}
	t.report(o)
}

// count changes the summary under the lock.
func (t *tally) count(do func(*Summary)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	do(&t.sum)
}

// summary returns what was counted so far, with the durations if there were attempts.
func (t *tally) summary() Summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sum
	at := func(percent float64) time.Duration {
		return time.Duration(t.took.ValueAtPercentile(percent)) * time.Microsecond
	}

	// An empty histogram has no percentiles.
	if s.Attempts > 0 {
		s.Median, s.P95, s.Longest = at(50), at(95), at(100)
	}
	return s
}
