package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"
)

// The names of what is measured.
const (
	perSecond = "events_per_s"
	p50       = "p50_ms"
	p99       = "p99_ms"
	longest   = "max_ms"
	perByte   = "written_per_payload_byte"
)

// latencies gathers the latencies of many callers.
// The zero value is empty. sorted is called when all callers have ended.
type latencies struct {
	mu   sync.Mutex
	list []time.Duration
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, d)
}

// sorted returns the list itself, in order.
func (l *latencies) sorted() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.list)
	return l.list
}

// quantile returns the smallest value that at least q of them do not exceed; sorted must be.
func quantile[T any](sorted []T, q float64) (v T) {
	if len(sorted) == 0 {
		return v
	}
	// The rank counts from 1. A q outside of 0 to 1 is taken for the nearest.
	return sorted[min(max(0, int(math.Ceil(q*float64(len(sorted))))-1), len(sorted)-1)]
}

// millis is a duration in milliseconds.
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Spread is the middle and the ends of some values.
// N is how many values there were; a Spread of none prints as a dash.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	N      int     `json:"n"`
}

// spreadOf takes the mean of the two middle values where there is no middle one.
func spreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	// values stays in the order it has.
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	return Spread{Median: (s[(n-1)/2] + s[n/2]) / 2, Min: s[0], Max: s[n-1], N: n}
}

func (s Spread) String() string {
	switch s.N {
	case 0:
		return "–"
	case 1:
		return figure(s.Median)
	default:
		return fmt.Sprintf("%s (%s..%s)", figure(s.Median), figure(s.Min), figure(s.Max))
	}
}

// figure prints three significant digits or, from 1000 on, whole numbers in groups of three.
func figure(v float64) string {
	switch {
	case v < 0:
		return "-" + figure(-v)
	case v == 0:
		return "0"
	case v < 999.5: // what is more is printed as a whole number
		places := max(0, 2-int(math.Floor(math.Log10(v))))
		return strconv.FormatFloat(v, 'f', places, 64)
	}
	// From the right, a blank before each group.
	text := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + " " + text[i:]
	}
	return text
}
