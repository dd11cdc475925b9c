package health

import (
	"testing"
	"time"
)

func TestAFolderThatHoldsLessThanWasReportedIsAnOlderCopy(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1000+int64(s), 0) }
	start := func(run int, term, last uint64) Report { // of a process that has not applied anything yet
		return Report{Incarnation: "i", Started: at(run), Term: term,
			Start: &Standing{Incarnation: "i", Term: term, LastIndex: last}}
	}
	for _, test := range []struct {
		name  string
		r     Report // after one of run 0 in term 5, which had applied 100 of 120 entries, came at 2 s
		asked int
		back  bool
	}{
		{"the same again", start(0, 3, 70), 3, false},
		{"restarted: it applies its log again", start(1, 5, 120), 3, false},
		{"restarted in a newer term", start(1, 6, 120), 3, false},
		{"a new leader truncated what was not committed", start(1, 6, 100), 3, false},
		{"truncated by the leader of the same term, which it had voted for", start(1, 5, 101), 3, false},
		{"an older process's report, overtaken on the network", start(-1, 4, 90), 1, false},
		{"an older version, which does not say", Report{Incarnation: "i", Started: at(1), Term: 5}, 3, false},
		{"a term is gone", start(1, 4, 120), 3, true},
		{"an entry that it had applied is gone", start(1, 5, 99), 3, true},
		{"the same, with a vote in a newer term", start(1, 9, 99), 3, true},
		{"all is gone", start(1, 0, 0), 3, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var h Holdings
			first := start(0, 3, 70)
			first.Term, first.Applied, first.LastIndex = 5, 100, 120
			if h.See(first, at(0), at(2)) {
				t.Fatal("the first report is an older copy")
			}
			if s := test.r.Start; s != nil && test.asked > 2 && !test.r.Started.Equal(first.Started) &&
				h.Exceeds(*s) != test.back {
				t.Errorf("asked as it starts: %v", h.Exceeds(*s))
			}
			if got := h.See(test.r, at(test.asked), at(4)); got != test.back || h.FellBack("i") != test.back {
				t.Errorf("fell back: %v, %v", got, h.RolledBack())
			}
			// It has caught up before it is asked again.
			if test.asked <= 2 {
				test.r = first
			}
			test.r.Term, test.r.Applied = 9, 200
			if h.See(test.r, at(5), at(6)) || h.FellBack("i") != test.back {
				t.Error("reported twice, or forgotten")
			}
			h.Keep(nil)
			if h.FellBack("i") || h.Exceeds(Standing{Incarnation: "i"}) {
				t.Error("a folder that is no member's is remembered")
			}
		})
	}
}
