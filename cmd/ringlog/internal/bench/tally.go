package bench

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// tally is what is counted while a benchmark runs. Its size does not depend on how
// much is counted.
// A round has two of them: one of the warm-up, which nobody reads, and its own.
type tally struct {
	// Events, bytes and latencies may be counted concurrently; began and took may not be set so.
	began     time.Time
	took      time.Duration
	events    atomic.Int64
	bytes     atomic.Int64 // of payloads
	latencies samples
}

// start begins to count; what came before was warm-up.
// took is 0 while the tally counts, and before.
func (t *tally) start() { t.began, t.took = time.Now(), 0 }

// stop ends the counting, the first time after each start.
func (t *tally) stop() {
	if !t.began.IsZero() && t.took == 0 {
		t.took = time.Since(t.began)
	}
}

// count takes in events that are done.
func (t *tally) count(events, bytes int) {
	// Callers count without a lock.
	t.events.Add(int64(events))
	t.bytes.Add(int64(bytes))
}

// Bounds of the latencies that are distinguished; the greatest is where longer ones are
// counted.
const (
	maxLatency = time.Hour
	digits     = 3 // of a quantile
)

// Bounds of the histogram, in milliseconds: 1/16, 1.5/16, 2/16, 3/16, 4/16 and so on.
const (
	lowestBound = time.Millisecond / 16
	bounds      = 53 // the last is above maxLatency
)

// bound returns the upper bound of bucket i.
func bound(i int) time.Duration { return lowestBound << (i / 2) * time.Duration(2+i%2) / 2 }

// samples gathers latencies of many callers: quantiles to three digits, and how many
// came up to each bound.
type samples struct {
	mu sync.Mutex
	// mu guards what follows.
	hdr     *hdrhistogram.Histogram // nanoseconds
	buckets [bounds]int64
}

// add takes in a latency.
func (s *samples) add(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Made at the first use, so the zero tally is ready.
	if s.hdr == nil {
		// From 1 µs: what is shorter is counted as that.
		s.hdr = hdrhistogram.New(1000, int64(maxLatency), digits)
	}
	d = min(max(d, 0), maxLatency)
	// Quantiles and buckets count the same latencies.
	if s.hdr.RecordValue(int64(d)) == nil {
		s.buckets[bucketOf(d)]++
	}
}

// bucketOf returns the first bucket whose bound is not below d.
func bucketOf(d time.Duration) int {
	// add limits d to maxLatency, which is below the last bound: the loop ends.
	i := 0
	for d > bound(i) {
		i++
	}
	return i
}

// quantiles are in milliseconds, as exact as they are printed.
type quantiles struct {
	P50ms  float64 `json:"p50_ms"`
	P90ms  float64 `json:"p90_ms"`
	P99ms  float64 `json:"p99_ms"`
	P999ms float64 `json:"p999_ms"`
	MaxMs  float64 `json:"max_ms"`
}

// quantiles summarizes the latencies.
func (s *samples) quantiles() quantiles {
	s.mu.Lock()
	defer s.mu.Unlock()
	// No latency was measured.
	if s.hdr == nil {
		return quantiles{}
	}
	// The histogram is exact to three digits.
	at := func(percent float64) float64 { return shell.Millis(time.Duration(s.hdr.ValueAtPercentile(percent))) }
	return quantiles{P50ms: at(50), P90ms: at(90), P99ms: at(99), P999ms: at(99.9), MaxMs: at(100)}
}

// latencyBucket counts the latencies up to AtMost and above the bucket before.
type latencyBucket struct {
	AtMostMs float64 `json:"le_ms"`
	Count    int64   `json:"count"`
}

// histogram returns the buckets from the first to the last that counts a latency.
func (s *samples) histogram() []latencyBucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, filled := []latencyBucket{}, 0
	for i, n := range s.buckets {
		// Buckets before the first latency are left out.
		if n == 0 && filled == 0 {
			continue
		}
		// Empty buckets in between stay, so the bounds form a scale.
		list = append(list, latencyBucket{AtMostMs: float64(bound(i)) / float64(time.Millisecond), Count: n})
		if n > 0 {
			// Those after the last one are cut off below.
			filled = len(list)
		}
	}
	return list[:filled]
}
