package election

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/event"
)

var update = flag.Bool("update", false, "write what the stories give into their files")

// The stories in testdata are transcripts: a line that begins with > is an observation,
// what follows until the next one is what was decided. Times are since the beginning.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.story")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".story"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := (&narrator{t: t}).run(string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got != string(text) {
				t.Errorf("the story differs now:\n%s", got)
			}
		})
	}
}

// narrator carries out a story's observations.
type narrator struct {
	t        *testing.T
	detector *Detector
	quorum   *QuorumTracker
	pace     *Pace
	keeps    uint64
	atRisk   bool // as the pace reported last
	health   Health
}

func (s *narrator) run(story string) string {
	var out strings.Builder
	for line := range strings.Lines(story) {
		switch {
		case strings.HasPrefix(line, "#"), strings.TrimSpace(line) == "":
			out.WriteString(line)
		case strings.HasPrefix(line, "> "):
			words := strings.Fields(line[2:])
			out.WriteString(line + s.observe(words[0], words[1:]))
		}
	}
	return out.String()
}

func (s *narrator) span(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// at reads a time; - is never.
func (s *narrator) at(text string) time.Time {
	if text == "-" {
		return time.Time{}
	}
	return start.Add(s.span(text))
}

func (s *narrator) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func since(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Sub(start).String()
}

func (s *narrator) observe(what string, w []string) string {
	switch what {
	case "detector": // interval misses
		s.detector = NewDetector(s.span(w[0]), s.number(w[1]))
	case "answer":
		s.detector.Answered(s.at(w[0]))
	case "look":
		at := s.at(w[0])
		return fmt.Sprintf("  reachable %v, steady %v, last answer %s\n",
			s.detector.Reachable(at), s.detector.Steady(at), since(s.detector.Last()))
	case "quorum": // reach leaderless grace hold
		s.quorum = NewQuorumTracker(start, QuorumConfig{
			Reach:      s.span(w[0]),
			Leaderless: s.span(w[1]),
			Grace:      s.span(w[2]),
			Hold:       s.span(w[3]),
		})
	case "resume": // since, and when a majority was in reach again
		var regained time.Time
		if len(w) > 1 {
			regained = s.at(w[1])
		}
		s.quorum.Resume(s.at(w[0]), regained)
	case "see", "sees":
		return s.see(w)
	case "pace": // entries that a compaction leaves
		s.pace, s.keeps, s.atRisk = NewPace(), uint64(s.number(w[0])), false
	case "member": // at applied last
		return s.follows(w)
	default:
		return s.shown(s.learn(what, w))
	}
	return ""
}

// see reads at, when each other voter answered, and leader where there is one, as in
// leader@5s with when raft heard of it last.
func (s *narrator) see(w []string) (text string) {
	seen := Observation{}
	for _, word := range w[1:] {
		if heard, ok := strings.CutPrefix(word, "leader"); ok {
			seen.Leader = true
			if heard != "" {
				seen.Heard = s.at(heard[1:])
			}
		} else {
			seen.Others = append(seen.Others, s.at(word))
		}
	}
	for _, change := range s.quorum.Observe(s.at(w[0]), seen) {
		kinds := [...]string{"stalled", "lost", "regained", "slipped", "restored"}
		text += fmt.Sprintf("  %s since %s", kinds[change.Kind], since(change.Since))
		if !change.Regained.IsZero() {
			text += ", regained " + since(change.Regained)
		}
		if !change.Until.IsZero() {
			text += ", until " + since(change.Until)
		}
		text += strings.TrimRight(" "+change.Cause, " ") + "\n"
	}
	return text
}

func (s *narrator) follows(w []string) string {
	trail, changed := s.pace.See(s.at(w[0]), uint64(s.number(w[1])), uint64(s.number(w[2])), s.keeps, s.atRisk)
	if !changed {
		return ""
	}
	s.atRisk = trail.AtRisk
	return fmt.Sprintf("  at risk %v, trailing %d, left %d, rate %d, log %d, truncated in %v\n",
		trail.AtRisk, trail.Trailing, trail.Left, trail.Rate, trail.LogRate, trail.TruncatedIn.Round(time.Millisecond))
}

// learn feeds the replicated half.
func (s *narrator) learn(what string, w []string) []event.Event {
	h := &s.health
	switch what {
	case "voters": // at ids
		reasons := map[string]string{"n4": "join", "n5": "dead_server"}
		return h.Configure(s.at(w[0]), w[1:], func(id string) string { return reasons[id] })
	case "other-cluster":
		h.Restart(w)
	case "online", "offline": // at id; hold-down 5s
		r := VoterReport{Voter: w[1], Online: what == "online", LastContactMs: 1500}
		if len(w) > 2 {
			r.Reason = w[2]
		}
		return h.Report(s.at(w[0]), r, 5*time.Second)
	case "claims", "watched-claims": // at term ids
		return h.Claimed(s.at(w[0]), uint64(s.number(w[1])), w[2:], what == "watched-claims")
	case "unsplit": // at term leader
		return h.Unsplit(s.at(w[0]), uint64(s.number(w[1])), w[2])
	case "term": // at term leader, and who led before, from, to, and decided where the log proves a majority
		before := Span{}
		if len(w) > 3 {
			before = Span{
				Term:    uint64(s.number(w[1]) - 1),
				Leader:  w[3],
				From:    s.at(w[4]),
				To:      s.at(w[5]),
				Decided: len(w) > 6,
			}
		}
		return h.NewTerm(uint64(s.number(w[1])), w[2], s.at(w[0]), before)
	case "trails", "follows": // id
		return h.Trails(Trail{
			Member:      w[0],
			AtRisk:      what == "trails",
			Trailing:    300,
			Left:        100,
			Rate:        5,
			LogRate:     30,
			TruncatedIn: 4 * time.Second,
		})
	case "forget":
		h.Forget(w[0])
	case "journals":
		return h.Reconcile(s.evidence(w))
	default:
		s.t.Fatalf("%s %v?", what, w)
	}
	return nil
}

// evidence reads
//
//   - views as n1:lost:7:60s:70s:69s: voter, kind, seq, began, ended, then when a majority was in reach again, or the
//     cause, or the term of a lease,
//   - starts as n2:up:60s:50s: since, and until when it ran before,
//   - leaderships as n2:led:3:60s:70s.
func (s *narrator) evidence(words []string) (e Evidence) {
	for _, word := range words {
		f := strings.Split(word, ":")
		switch f[1] {
		case "up":
			e.Up = append(e.Up, Up{Voter: f[0], Since: s.at(f[2]), Before: s.at(f[3])})
		case "led":
			e.Led = append(e.Led, Span{Leader: f[0], Term: uint64(s.number(f[2])), From: s.at(f[3]), To: s.at(f[4])})
		default:
			v := View{
				Voter:   f[0],
				Journal: "j" + f[0],
				Kind:    f[1],
				Seq:     uint64(s.number(f[2])),
				Began:   s.at(f[3]),
				Ended:   s.at(f[4]),
				Term:    2,
				Leader:  "n1",
				Cause:   CauseUnreachable,
			}
			switch {
			case len(f) > 5 && f[1] == ViewLease:
				v.Term = uint64(s.number(f[5]))
			case len(f) > 5 && f[5] == CauseNoLeader:
				v.Cause = CauseNoLeader
			case len(f) > 5:
				v.Regained = s.at(f[5])
			}
			e.Views = append(e.Views, v)
		}
	}
	return e
}

// shown is an event a line; of an outage what matters.
func (s *narrator) shown(events []event.Event) (text string) {
	for _, e := range events {
		if e.Type == event.QuorumRestored && strings.Contains(string(e.Payload), `"incident"`) {
			continue // its times are printed with its QUORUM_LOST
		}
		p := fields(e)
		if e.Type == event.QuorumLost {
			o := s.health.Outages[len(s.health.Outages)-1]
			for _, known := range s.health.Outages {
				if fmt.Sprint(known.ID) == fmt.Sprint(p["incident"]) {
					o = known
				}
			}
			text += fmt.Sprintf("  %s %d from %s to %s, seen by %v, down %v: %v\n",
				e.Type, o.ID, since(o.Began), since(o.Ended), o.SeenBy, p["down"], p["cause"])
			continue
		}
		if e.Type == event.QuorumOutageView {
			text += fmt.Sprintf("  %s %v, incident %v\n", e.Type, p["voter_id"], p["incident"])
			continue
		}
		text += fmt.Sprintf("  %s %s\n", e.Type, e.Payload)
	}
	return text
}
