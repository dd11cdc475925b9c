package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/event"
)

// The soak's checker finds what breaks a promise, and nothing in a history that keeps them all.
func TestTheCheckerFindsWhatIsWrong(t *testing.T) {
	const term = 5
	type part = []soakStored
	elected := func(offset, in uint64, leader string) soakStored {
		return soakStored{Offset: offset, Type: event.LeaderElected, Term: in, number: -1, elected: in, leader: leader}
	}
	stored := func(offset uint64, number int) soakStored {
		return soakStored{Offset: offset, Type: event.TrainingProgress, Term: term, number: number, sum: offset}
	}
	// Two events; the second is sent once the first is acknowledged at offset 2.
	acked := func(h *history) {
		for i, n := range h.create(2) {
			h.sending([]int{n})
			h.answered([]int{n}, acknowledged, []uint64{uint64(2 + i)}, 0)
		}
	}
	whole := func() part { return part{elected(1, term, "n1"), stored(2, 0), stored(3, 1)} }
	for _, c := range []struct {
		name   string
		before func(h *history)
		change func(part) part
		want   string // "" is no violation
	}{
		{"all is well", nil, nil, ""},
		{"lost", nil, func(p part) part { p[2].number = -1; return p }, "1 acknowledged events are missing"},
		{"at another offset", nil, func(p part) part { p[1].number, p[2].number = 1, 0; return p }, "are missing"},
		{"stored twice", nil, func(p part) part { return append(p, stored(4, 0)) }, "event 0 is stored at 2 and at 4"},
		{"stored twice, as its window ended", func(h *history) { h.jump(); h.jump() },
			func(p part) part { return append(p, stored(4, 0)) }, ""},
		{"a hole", nil, func(p part) part { p[2].Offset = 4; return p }, "offset 4 follows 2"},
		{"refused and stored", func(h *history) {
			n := h.create(1)
			h.sending(n)
			h.answered(n, refused, nil, 0)
		}, func(p part) part { return append(p, stored(4, 2)) }, "event 2 was refused and is stored"},
		{"append times fall", nil, func(p part) part { p[2].appendedAt -= 1; return p }, "1ns before the one before it"},
		{"append times follow one clock", func(h *history) { h.clocksWere(8*time.Second, 0) },
			func(p part) part { p[2].appendedAt += int64(time.Minute); return p }, "ahead of the real time"},
		{"append times follow a majority's clocks", func(h *history) { h.clocksWere(8*time.Second, time.Minute) },
			func(p part) part { p[2].appendedAt += int64(time.Minute); return p }, ""},
		{"a term falls", nil, func(p part) part { p[2].Term = term - 1; return p }, "is of term 4, the one before"},
		{"elected twice", nil, func(p part) part { return append(p, elected(4, term, "n1")) },
			"the last election was in term 5"},
		{"two leaders of a term", func(h *history) { h.noteLeader(term, "n2", "n2") }, nil,
			"the log says that n1 leads in term 5, in which n2 led"},
		{"another event than was delivered", func(h *history) { h.delivered("n3", &soakStored{Offset: 3, sum: 99}) }, nil,
			"stores another event at offset 3 than was delivered"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHistory()
			acked(h)
			if c.before != nil {
				c.before(h)
			}
			p := whole()
			for i := range p {
				p[i].appendedAt = h.began.UnixNano()
			}
			if c.change != nil {
				p = c.change(p)
				for i := range p { // what was added is as new as the last
					if p[i].appendedAt == 0 {
						p[i].appendedAt = p[i-1].appendedAt
					}
				}
			}
			h.check("n1", p, p[len(p)-1].Offset)
			found := strings.Join(h.violations, "\n")
			if (c.want == "" && found != "") || !strings.Contains(found, c.want) {
				t.Errorf("found %q, want %q", found, c.want)
			}
		})
	}
}

// The document's table shows how often a fault was made and how often not, the worst of few times as their 99 %,
// and what was not possible.
func TestTheTableSaysWhatWasDone(t *testing.T) {
	run := soakRun{
		Seconds: 3600,
		Faults: map[string][]soakTime{
			"kill leader":            {{Lasted: 1, NoAcks: 2, Recovery: 3}, {Lasted: 3, NoAcks: 4, Recovery: 5}},
			"recover from one voter": {{Lasted: 1, NoAcks: -1, Recovery: 2}},
		},
		NotDone: map[string]int{"kill leader": 1, "step down": 2},
		Never:   map[string]string{"isolate leader": "takes root"},
	}
	// Twice the same run: counts double, quantiles stay.
	table := soakTable([]soakRun{run, run})
	for _, line := range []string{
		"2 runs, 2.0 hours, 6 faults, 0 violations.",
		"| kill leader | 4 | 2 | 1.0 | 2.00 / 4.00 | 3.00 / 5.00 |",
		"| step down | 0 | 4 | – | – | – |",
		"| recover from one voter | 2 | 0 | 1.0 | – | 2.00 / 2.00 |",
		"Not possible in some of the runs: isolate leader (takes root).",
	} {
		if !strings.Contains(table, line+"\n") {
			t.Errorf("no line %q in\n%s", line, table)
		}
	}
	times := make([]soakTime, 200)
	for i := range times {
		times[i].Recovery = float64(i + 1)
	}
	if got := quantiles(times, 0, func(t soakTime) float64 { return t.Recovery }, 50, 99); got != "100 / 198" {
		t.Errorf("the median and the 99 %% of 1 to 200 are %s", got)
	}
}

// The table of docs/reliability.md is what the kept results amount to.
func TestReliabilityDocumentShowsTheKeptResults(t *testing.T) {
	runs, err := readResults("soak-results.ndjson")
	if err != nil || len(runs) == 0 {
		t.Fatalf("%d runs: %v", len(runs), err)
	}
	page, err := os.ReadFile("../docs/reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), tableBegins+"\n"+soakTable(runs)+"\n"+tableEnds) {
		t.Error("docs/reliability.md has another table: make soak writes it")
	}
}

// What a run leaves that found something is kept, and of earlier ones the newest.
func TestRunsThatFoundSomethingAreKept(t *testing.T) {
	// A node's folder and log, and four earlier runs.
	root := filepath.Join(t.TempDir(), "kept")
	data := t.TempDir()
	for name, text := range map[string]string{"n1.log": "said", "n1/raft/log": "entries", "n1/reserve": "nothing"} {
		if err := os.MkdirAll(filepath.Join(data, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(data, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, old := range []string{"20200101", "20200102", "20200103", "20200104"} {
		if err := os.MkdirAll(filepath.Join(root, old+"-000000-seed-1"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := &soak{h: newHistory(), figures: soakRun{Seed: 7, Voters: 3}, cluster: &cluster{t: t, nodes: []*process{
		{id: "n1", dir: filepath.Join(data, "n1"), log: filepath.Join(data, "n1.log")},
	}}}
	// The run that found something is kept with all that explains it; the reserve does not.
	s.h.create(1)
	s.h.violation("something is wrong")
	dir, err := s.keepRun(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"n1.log": "said", "n1/raft/log": "entries", "violations.txt": "is wrong"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s holds %q: %v", name, text, err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "history.gz")); err != nil || info.Size() == 0 {
		t.Errorf("the history: %v, %v", info, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "n1/reserve")); err == nil {
		t.Error("the reserve is kept, too")
	}
	// The oldest two are gone.
	entries, err := os.ReadDir(root)
	if err != nil || len(entries) != keptRuns || entries[0].Name() != "20200102-000000-seed-1" {
		t.Errorf("kept are %v: %v", entries, err)
	}
}
