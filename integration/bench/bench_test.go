package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/event"
)

// TestEventsAreCanonicalAndDistinct: a payload that is not in canonical form, or comes twice,
// would have every system do other work than it is said to do.
func TestEventsAreCanonicalAndDistinct(t *testing.T) {
	src := newSource()
	seen, ranges := map[event.Hash]bool{}, map[int]bool{}
	gate := event.Policy{Catalogue: event.Builtin()}
	// Three generators, each with a range of iterations of its own.
	for range 3 {
		g := src.generator()
		first := g.n
		if ranges[first] || first%iterations != 0 || g.to != first+iterations {
			t.Fatalf("a generator of the iterations %d to %d", first, g.to)
		}
		ranges[first] = true
		for n := range 5000 {
			ev := g.next()
			text := string(ev.Payload)
			iteration, run := fmt.Sprintf(`"iteration": %d, `, first+n), `"run": "`+g.run+`"`
			if !strings.Contains(text, iteration) || !strings.Contains(text, run) {
				t.Fatalf("event %d of run %s is %s: only by chance is it unlike another", n, g.run, ev.Payload)
			}
			canonical, err := event.Canonicalize(ev.Payload, event.DefaultLimits())
			if err != nil || string(canonical) != string(ev.Payload) {
				t.Fatalf("the payload %s is %s in canonical form (%v)", ev.Payload, canonical, err)
			}
			if n := len(ev.Payload); n < payloadSize-16 || n > payloadSize+16 {
				t.Fatalf("a payload of %d bytes: %s", n, ev.Payload)
			}
			before := ev
			hash, warnings, err := gate.Normalize(&ev)
			if err != nil || seen[hash] || hash != before.Hash() {
				t.Fatalf("%s: %v, %v, seen before: %v, hash before it was checked %s, after %s",
					ev.Payload, err, warnings, seen[hash], before.Hash(), hash)
			}
			seen[hash] = true
		}
	}
}

// TestDecimalsAsPythonPrintsThem asks Python, because a server takes other work with any other form.
func TestDecimalsAsPythonPrintsThem(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3")
	}
	// A program that prints the same quotients.
	var ours []string
	var asked strings.Builder
	asked.WriteString("for v, s in [")
	for v := 0; v <= 12_000; v += 7 {
		ours = append(ours, string(appendDecimal(nil, v, 4)))
		asked.WriteString("(" + string(appendDecimal(nil, v*10_000, 4)) + ", 10000),")
	}
	asked.WriteString("]: print(v / s)")
	out, err := exec.Command("python3", "-c", asked.String()).Output()
	if err != nil {
		t.Fatal(err)
	}
	if theirs := strings.Fields(string(out)); !slices.Equal(ours, theirs) {
		t.Errorf("printed %v, Python prints %v", ours, theirs)
	}
}

func TestSpreadAndQuantile(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   Spread
	}{
		{nil, Spread{}},
		{[]float64{3}, Spread{3, 3, 3, 1}},
		{[]float64{9, 1, 5}, Spread{5, 1, 9, 3}},
		{[]float64{4, 1, 2, 9}, Spread{3, 1, 9, 4}},
	} {
		if got := spreadOf(c.values); got != c.want {
			t.Errorf("the spread of %v is %+v, want %+v", c.values, got, c.want)
		}
	}
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	for q, want := range map[float64]int{0: 1, 0.5: 50, 0.99: 99, 1: 100} {
		if got := quantile(hundred, q); got != want {
			t.Errorf("the %v quantile of 1 to 100 is %d, want %d", q, got, want)
		}
	}
	printed := map[float64]string{
		0:       "0",
		0.1234:  "0.123",
		4.567:   "4.57",
		45.67:   "45.7",
		456.7:   "457",
		999.9:   "1 000",
		1234567: "1 234 567",
	}
	for v, want := range printed {
		if got := figure(v); got != want {
			t.Errorf("%v is printed as %q, want %q", v, got, want)
		}
	}
}

func TestQuotaGivesNoMoreThanItHas(t *testing.T) {
	q := counting(2500)
	got := []int{q.take(1024), q.take(1024), q.take(1024), q.take(1024)}
	if want := []int{1024, 1024, 452, 0}; !slices.Equal(got, want) {
		t.Errorf("of 2500 it gave %v, want %v", got, want)
	}
	if n := lasting(-time.Second).take(1); n != 0 {
		t.Errorf("past its end it gave %d", n)
	}
}

// sampled makes samples of one figure a round.
func sampled(work, system, way, metric string, rounds ...float64) (all []Sample) {
	for i, v := range rounds {
		all = append(all, Sample{Work: work, System: system, Way: way, Round: i + 1, Values: map[string]float64{metric: v}})
	}
	return all
}

// TestRatiosAreThoseOfARound: the median of ratios is not the ratio of medians, a round that one
// of both lacks has none, the best way counts, and one for information never does.
func TestRatiosAreThoseOfARound(t *testing.T) {
	samples := slices.Concat(
		sampled("publish", "ringlog", "small", perSecond, 10, 10, 10),
		sampled("publish", "ringlog", "large", perSecond, 80, 400, 90, 1000),
		sampled("publish", "nats-always", "async", perSecond, 10, 100, 9),
		sampled("publish", "nats-always", "slow", perSecond, 5, 6, 7),
		sampled("publish", "nats-always", "wild"+forInformation, perSecond, 500, 600, 700),
		sampled("publish", "etcd", "", perSecond, 1, 1, 1),
	)
	all := compareAll(resultsOf(samples), samples)
	if len(all) != 2 {
		t.Fatalf("%d comparisons, want one with each peer: %+v", len(all), all)
	}
	c := all[0]
	compared := c.Peer == "nats-always" && c.PeerWay == "async" && c.Way == "large"
	if !compared || c.Figure != (Spread{8, 4, 10, 3}) || c.Verdict != reached {
		t.Errorf("against JetStream: %+v", c)
	}
	if c := all[1]; c.Peer != "etcd" || c.Verdict != "" || c.Figure.Median != 90 {
		t.Errorf("against a peer without a goal: %+v", c)
	}
}

func TestVerdicts(t *testing.T) {
	faster := goal{goal: 5, least: 3, absolute: 1_000_000}
	slower := goal{goal: 0.6, least: 0.8, lower: true}
	for _, c := range []struct {
		goal           goal
		figure, median float64
		want           string
	}{
		{faster, 5, 1_000_000, reached},
		{faster, 9, 999_999, leastOnly},
		{faster, 3, 1, leastOnly},
		{faster, 2.99, 2_000_000, notReached},
		{slower, 0.6, 1, reached},
		{slower, 0.61, 1, leastOnly},
		{slower, 0.81, 1, notReached},
	} {
		if got := c.goal.verdict(c.figure, c.median); got != c.want {
			t.Errorf("%v with a median of %v is %q, want %q", c.figure, c.median, got, c.want)
		}
	}
}

// TestMarkdown reads a report as a person would.
func TestMarkdown(t *testing.T) {
	samples := slices.Concat(
		sampled("sync1", "ringlog", "", p50, 1.5, 1.2, 1.3),
		sampled("sync1", "nats-always", "", p50, 1.0, 1.0, 1.0),
		sampled("written", "ringlog", "a|b", perByte, 2),
	)
	samples[0].Attempts, samples[0].Stolen, samples[1].Attempts = 5, 0.2, 1
	r := &Report{Rounds: 3, Results: resultsOf(samples), Samples: samples, systems: []string{"ringlog", "nats-always"},
		Failures: []Failure{{Work: "read", System: "etcd", Round: 2, Error: "it broke\nand more"}}}
	r.Comparisons = compareAll(r.Results, r.Samples)
	text := r.markdown()
	for _, line := range []string{
		"| sync1 | ratio of p50, ms | ringlog | nats-always | 1.30 (1.20..1.50) | ≤ 1.00 | ≤ 1.30 | least |",
		`| written | bytes written per payload byte | ringlog, a\|b | – | 2.00 | ≤ 1.00 | ≤ 1.50 | not reached |`,
		"## sync1",
		"| nats-always | – | 1.00 (1.00..1.00) |",
		"| read | etcd | 2 | it broke |",
		"| disturbed | 1 of 2 measurements count with more than 5 % of the processors' working time " +
			"taken by the host, at most 20 % |",
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("there is no line %s in\n%s", line, text)
		}
	}
}

// TestEveryGoalIsOfAWork: a misspelt one would never be judged.
func TestEveryGoalIsOfAWork(t *testing.T) {
	known := append(workNames(), restartBaseWork, growthWork)
	for _, g := range goals() {
		if !slices.Contains(known, g.work) || metricName(g.metric) == g.metric {
			t.Errorf("a goal for %q, %q", g.work, g.metric)
		}
		known := append(systemNames(), "")
		if !slices.Contains(known, g.system) || !slices.Contains(known, g.peer) {
			t.Errorf("a goal of %q against %q", g.system, g.peer)
		}
	}
}
