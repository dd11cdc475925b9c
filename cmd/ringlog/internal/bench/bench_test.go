package bench

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
)

// Quantiles are within three digits of those of the sorted latencies; each latency is
// in the one bucket whose bounds it lies between.
func TestLatenciesAgreeWithASortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scale := rapid.SampledFrom([]time.Duration{
			time.Microsecond,
			time.Millisecond,
			time.Second,
			2 * time.Hour,
		}).Draw(t, "scale")
		list := rapid.SliceOfN(rapid.Int64Range(0, int64(scale)), 1, 2000).Draw(t, "latencies")
		var s samples
		for _, d := range list {
			s.add(time.Duration(d))
		}
		for i := range list {
			list[i] = min(list[i], int64(maxLatency))
		}
		slices.Sort(list)
		q := s.quantiles()
		for _, c := range []struct {
			percent, got float64
		}{{50, q.P50ms}, {90, q.P90ms}, {99, q.P99ms}, {99.9, q.P999ms}, {100, q.MaxMs}} {
			rank := c.percent / 100 * float64(len(list))
			low, high := float64(list[max(int(rank), 1)-1])/1e6, float64(list[max(int(math.Ceil(rank)), 1)-1])/1e6
			if c.got < low-0.0011 || c.got > high*1.001+0.0011 {
				t.Fatalf("p%v of %d latencies is %v ms, sorted it is %v to %v", c.percent, len(list), c.got, low, high)
			}
		}
		below, counted := -1.0, int64(0)
		for _, b := range s.histogram() {
			within := 0
			for _, d := range list {
				if ms := float64(d) / 1e6; ms > below && ms <= b.AtMostMs {
					within++
				}
			}
			if int64(within) != b.Count {
				t.Fatalf("%d latencies up to %v ms and above %v, the histogram has %d", within, b.AtMostMs, below, b.Count)
			}
			below, counted = b.AtMostMs, counted+b.Count
		}
		if counted != int64(len(list)) {
			t.Fatalf("the histogram has %d of %d latencies", counted, len(list))
		}
	})
}

// A hundred thousand latencies or none take the same room.
func TestLatenciesTakeBoundedMemory(t *testing.T) {
	var s samples
	s.add(time.Millisecond)
	n := time.Duration(0)
	if got := testing.AllocsPerRun(100_000, func() { n += 997; s.add(n) }); got != 0 {
		t.Errorf("%v allocations for a latency", got)
	}
	if size := s.hdr.ByteSize(); size > 1<<20 {
		t.Errorf("%d bytes", size)
	}
}

// A payload is what was asked for in size, in canonical form, and never the same twice.
func TestBenchPayloadsAreCanonicalAndOfTheirSize(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	sizes := []int{minBenchSize, roomForLosses - 1, roomForLosses, 100, roomForAll - 1, roomForAll, 300, 1024, 65536}
	for _, size := range append(sizes, event.DefaultLimits().EventBytes) {
		seen := map[string]bool{}
		for n := range int64(20) {
			p := trainingPayload(random, size, n+maxBenchEvents-20, "hexagonal_4p", "18f3c2a1b2c3d4e5")
			canonical, err := event.Canonicalize(p, event.DefaultLimits())
			if err != nil || !bytes.Equal(p, canonical) {
				t.Fatalf("%d bytes: %v\n     %.300s\nnot %.300s", size, err, p, canonical)
			}
			if slack := size - len(p); slack < 0 || slack > max(8, roomForLosses-minBenchSize+16) ||
				(size >= roomForLosses && slack > 8) {
				t.Fatalf("%d bytes asked for, %d made: %.300s", size, len(p), p)
			}
			if seen[string(p)] {
				t.Fatalf("made twice: %.300s", p)
			}
			seen[string(p)] = true
		}
	}
}

// Callers that take batches side by side take every event once.
func TestCallersShareTheEvents(t *testing.T) {
	for _, c := range []struct{ events, batch int }{{1, 1}, {1, 256}, {256, 256}, {257, 256}, {1000, 7}} {
		var next atomic.Int64
		var sum atomic.Int64
		var callers sync.WaitGroup
		for range 5 {
			callers.Go(func() {
				for n := -1; n != 0; sum.Add(int64(n)) {
					n = amount{events: c.events}.take(&next, c.batch, time.Now())
				}
			})
		}
		callers.Wait()
		if got := sum.Load(); got != int64(c.events) {
			t.Errorf("%d events in batches of %d: %d were taken", c.events, c.batch, got)
		}
	}
	timed := amount{lasts: time.Minute}
	if n := timed.take(new(atomic.Int64), 9, time.Now()); n != 9 {
		t.Errorf("before its end a time gives %d", n)
	}
	if n := timed.take(new(atomic.Int64), 9, time.Now().Add(-time.Hour)); n != 0 {
		t.Errorf("after its end a time gives %d", n)
	}
}

func TestBenchFlagsAreReadAsWritten(t *testing.T) {
	for text, want := range map[string][]int{"64": {64}, "256, 1024,4096": {256, 1024, 4096}, "1048576": {1 << 20}} {
		if got, err := parseSizes(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("--size %q is %v, %v", text, got, err)
		}
	}
	tooMany := strings.Repeat("256,", maxBenchSizes) + "256"
	for _, text := range []string{"", ",", "63", "1048577", "-256", "1k", "256,", "0x100", tooMany} {
		if got, err := parseSizes(text); shell.ExitCode(err) != shell.ExitUsage {
			t.Errorf("--size %q is taken as %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]amount{
		"0":    {},
		"0s":   {},
		"5000": {events: 5000},
		"1.5s": {lasts: 1500 * time.Millisecond},
	} {
		if got, err := parseWarmup(text); err != nil || got != want {
			t.Errorf("--warmup %q is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-1", "-1s", "11m", "100000001", "1e3", "5 s"} {
		if got, err := parseWarmup(text); shell.ExitCode(err) != shell.ExitUsage {
			t.Errorf("--warmup %q is taken as %v, %v", text, got, err)
		}
	}
}

// results are one whole and one that was cut short before a latency was measured.
func results() []benchResult {
	return []benchResult{
		{
			Bench:           "publish",
			Size:            256,
			Events:          1000,
			Seconds:         0.5,
			EventsPerSecond: 2000,
			MBPerSecond:     0.5,
			EventBytes:      252,
			Voters:          3,
			Batch:           64,
			Callers:         8,
			Warmup:          10,
			LatencyOf:       "a request",
			quantiles:       quantiles{P50ms: 1.5, P90ms: 2, P99ms: 3, P999ms: 3.25, MaxMs: 12},
			Histogram:       []latencyBucket{{1, 1}, {1.5, 0}, {2, 1999}, {3, 500}},
		},
		{
			Bench:           "publish",
			Size:            4096,
			Events:          7,
			Seconds:         1,
			EventsPerSecond: 7,
			EventBytes:      4090,
			LatencyOf:       "a request",
			Partial:         true,
			Histogram:       []latencyBucket{},
		},
	}
}

func report(t *testing.T, sh *shell.Shell, asCSV bool) string {
	t.Helper()
	var out bytes.Buffer
	sh.Out, sh.Err = &out, new(bytes.Buffer)
	p := newBenchReport(sh, asCSV)
	for _, r := range results() {
		if err := p.add(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.finish(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestBenchReports(t *testing.T) {
	rows, err := csv.NewReader(strings.NewReader(report(t, &shell.Shell{}, true))).ReadAll()
	want := [][]string{
		csvHeader(),
		strings.Split("publish,256,64,8,3,10,1000,252,0.500,2000.000,0.500,1.500,2.000,3.000,3.250,12.000,false", ","),
		strings.Split("publish,4096,0,0,0,0,7,4090,1.000,7.000,0.000,0.000,0.000,0.000,0.000,0.000,true", ","),
	}
	if d := cmp.Diff(want, rows); err != nil || d != "" {
		t.Errorf("CSV: %v\n%s", err, d)
	}
	var back []benchResult
	for dec := json.NewDecoder(strings.NewReader(report(t, &shell.Shell{JSON: true}, false))); dec.More(); {
		var r benchResult
		if err := dec.Decode(&r); err != nil {
			t.Fatal(err)
		}
		back = append(back, r)
	}
	if d := cmp.Diff(results(), back, cmp.AllowUnexported(benchResult{})); d != "" {
		t.Errorf("JSON: %s", d)
	}
	text := `payloads of 252 bytes: milliseconds of a request
  <= 1                1   0.0 %  █
  <= 1.5              0   0.0 %
  <= 2             1999  80.0 %  ████████████████████████████████████████
  <= 3              500  20.0 %  ███████████

PAYLOAD  EVENTS  SECONDS  EVENTS/S  MB/S  P50 MS  P90 MS  P99 MS  P99.9 MS  MAX MS
    252    1000  0.50     2000      0.5   1.50    2.00    3.00    3.25      12.00
   4090       7  1.00     7         0.0   0.00    0.00    0.00    0.00      0.00    partial
`
	if d := cmp.Diff(text, report(t, &shell.Shell{}, false)); d != "" {
		t.Error(fmt.Errorf("text: %s", d))
	}
}
