package health

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/internal/frame"
)

// In a rolling restart the second voter stops while the first, which is back, is still held down: its absence is
// reported once the log has the first as online, so no event counts two voters as absent.
func TestAnAbsenceWaitsForAVoterThatIsBack(t *testing.T) {
	const hold = 5 * time.Second
	start := time.Unix(1000, 0)
	var h election.Health
	h.Configure(start, []string{"n1", "n2", "n3"}, nil)
	report := func(after time.Duration, changes ...frame.VoterHealth) (voters []string) {
		t.Helper()
		for _, r := range dueReports(&h, start.Add(after), changes, hold) {
			voters = append(voters, r.Voter)
			h.Report(start.Add(after), election.VoterReport{Voter: r.Voter, Online: r.Online}, hold)
			if len(h.Offline()) > 1 {
				t.Errorf("after %s the log has %v as offline", after, h.Offline())
			}
		}
		return voters
	}
	away := func(id string) frame.VoterHealth { return frame.VoterHealth{Voter: id} }
	back := func(id string) frame.VoterHealth { return frame.VoterHealth{Voter: id, Online: true} }
	got := [][]string{
		report(0, away("n2")),
		report(2*time.Second, back("n2")),
		report(3*time.Second, away("n1"), back("n2")),
		report(5*time.Second, away("n1"), back("n2")),
	}
	if diff := cmp.Diff([][]string{{"n2"}, nil, nil, {"n2", "n1"}}, got); diff != "" {
		t.Error(diff)
	}
}

// With a hold-down of an hour an absence is not kept from the log for as long: it waits for absenceWait at most.
func TestAnAbsenceWaitsForABoundedTime(t *testing.T) {
	const hold = time.Hour
	start := time.Unix(1000, 0)
	var h election.Health
	h.Configure(start, []string{"n1", "n2", "n3"}, nil)
	h.Report(start, election.VoterReport{Voter: "n2"}, hold)
	changes := []frame.VoterHealth{{Voter: "n1"}, {Voter: "n2", Online: true}}
	for after, want := range map[time.Duration]string{
		time.Second:                      "n1",
		hold - absenceWait - time.Second: "n1",
		hold - absenceWait:               "",
		hold:                             "n2n1",
	} {
		got := ""
		for _, r := range dueReports(&h, start.Add(after), changes, hold) {
			got += r.Voter
		}
		if got != want {
			t.Errorf("after %s: %q, want %q", after, got, want)
		}
	}
}
