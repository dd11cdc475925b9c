package bench

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
)

// stands is an event of a run at an offset.
func stands(offset uint64, n int, run string) event.Event {
	return event.Event{
		Type:    event.TrainingCompleted,
		Source:  benchSource,
		Offset:  offset,
		Payload: fmt.Appendf(nil, `{"iteration": %d, "run": "%s"}`, n, run),
	}
}

// Acknowledged events must be stored once, at their offsets; others may be stored.
func TestFailoverAuditFindsWhatWasBroken(t *testing.T) {
	acks := []ack{{n: 1, offset: 2}, {n: 2, offset: 3}, {n: 3, offset: 5}}
	elected := event.Event{Type: event.LeaderElected, Source: "ringlog", Offset: 1}
	whole := []event.Event{
		elected,
		stands(2, 1, "r"),
		stands(3, 2, "r"),
		{Type: event.LeaderElected, Offset: 4},
		stands(5, 3, "r"),
	}
	for name, c := range map[string]struct {
		log  []event.Event
		want failoverAudit
	}{
		"whole":                  {whole, failoverAudit{}},
		"one more, not answered": {append(whole[:5:5], stands(6, 4, "r")), failoverAudit{}},
		"another run's":          {append(whole[:5:5], stands(6, 3, "other")), failoverAudit{}},
		"lost":                   {whole[:4], failoverAudit{Lost: 1}},
		"twice":                  {append(whole[:5:5], stands(6, 2, "r")), failoverAudit{Twice: 1}},
		"unanswered and twice":   {append(whole[:5:5], stands(6, 4, "r"), stands(7, 4, "r")), failoverAudit{Twice: 1}},
		"elsewhere":              {append(whole[:4:4], stands(6, 3, "r")), failoverAudit{Misplaced: 1}},
		"an election nobody caused": {
			append(whole[:5:5], event.Event{Type: event.LeaderElected, Offset: 6}),
			failoverAudit{Unasked: 1},
		},
	} {
		a := newFailoverAudit(acks)
		for _, ev := range c.log {
			if err := a.stored(ev, "r"); err != nil {
				t.Fatal(err)
			}
		}
		a.finish(1)
		c.want.Acknowledged, c.want.Elections = 3, 2+c.want.Unasked
		if d := cmp.Diff(c.want, *a, cmpopts.IgnoreUnexported(failoverAudit{})); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if holds := c.want.Lost+c.want.Twice+c.want.Misplaced == 0; a.holds() != holds {
			t.Errorf("%s: it holds: %v", name, a.holds())
		}
	}
}

// The gap is the longest pause that ended after the act began, wherever it began.
func TestFailoverGapIsTheLongestPauseAroundTheAct(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	w := newWriter(nil)
	for _, ms := range []int{0, 900, 910, 920, 1000, 1300, 1310, 1350} { // 0 to 900 is of another act
		w.note(ack{at: at(ms)})
	}
	gap, ended := w.gapSince(at(1010))
	if gap != 300*time.Millisecond || !ended.Equal(at(1300)) {
		t.Errorf("the gap is %s and ended after %s", gap, ended.Sub(start))
	}
}

func TestFailoverSummaries(t *testing.T) {
	var acts []failoverAct
	for i := range 20 {
		acts = append(acts, failoverAct{Act: actKill, GapMs: float64(20 - i), DetectMs: 3, ElectMs: 2, ResumeMs: float64(i)})
	}
	acts = append(acts, failoverAct{Act: actStepDown, GapMs: 7})
	want := &gapSummary{Count: 20, MinMs: 1, MedianMs: 10.5, P95Ms: 19, MaxMs: 20, DetectMs: 3, ElectMs: 2, ResumeMs: 9.5}
	if d := cmp.Diff(want, summarize(acts, actKill)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(
		&gapSummary{Count: 1, MinMs: 7, MedianMs: 7, P95Ms: 7, MaxMs: 7},
		summarize(acts, actStepDown),
	); d != "" {
		t.Error(d)
	}
	if got := summarize(nil, actKill); got != nil {
		t.Errorf("no act is summarized as %+v", got)
	}
}

func TestFailoverReportIsPrinted(t *testing.T) {
	f := &failover{opts: failoverOptions{voters: 3}, acts: []failoverAct{
		{Act: actKill, From: "n1", To: "n2", Term: 3, GapMs: 612.4, DetectMs: 501, ElectMs: 42, ResumeMs: 69},
		{Act: actStepDown, From: "n2", To: "n3", Term: 4, GapMs: 25, DetectMs: 9, ElectMs: 4, ResumeMs: 12}}}
	var out, err bytes.Buffer
	r := f.result(false)
	r.Audit = &failoverAudit{Acknowledged: 9, Elections: 3}
	if failed := r.print(&shell.Shell{Out: &out, Err: &err}); failed != nil {
		t.Fatal(failed)
	}
	want := `   ACT        FROM  TO  TERM  GAP MS  DETECT  ELECT  RESUME
1  kill       n1    n2     3  612     501     42     69
2  step_down  n2    n3     4  25      9       4      12

ACT        TIMES  GAP MIN  MEDIAN  P95  MAX MS  DETECT MEDIAN  ELECT  RESUME
kill           1  612      612     612  612     501            42     69
step_down      1  25       25      25   25      9              4      12
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Error(d)
	}
	notice := "failover: 3 voters; 9 events were acknowledged; 0 are lost, 0 are stored twice, " +
		"0 at another offset; 3 elections, 0 unexpected\n"
	if d := cmp.Diff(notice, err.String()); d != "" {
		t.Error(d)
	}
}
