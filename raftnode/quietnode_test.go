package raftnode

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// A cluster that forms without a fault warns of nothing, and a member that is away is not
// reported with each attempt to reach it.
func TestTheLogIsQuietWhereThereIsNothingToDo(t *testing.T) {
	var out lineBuffer
	inBubbleWith(t, func(cfg *Config) {
		cfg.Logger = hclog.New(&hclog.LoggerOptions{Name: cfg.ID, Level: hclog.Info, Output: &out, DisableTime: true})
	}, func(s *simulation) {
		warnings := func() []string { return append(out.lines("[WARN]"), out.lines("[ERROR]")...) }
		expect := func(what string, most int, want ...string) {
			t.Helper()
			if got := warnings(); len(got) > most {
				t.Errorf("%s: %d warnings:\n%s", what, len(got), strings.Join(got, "\n"))
			}
			for _, line := range want {
				if got := out.lines(line); len(got) != 1 {
					t.Errorf("%s: %d times %q", what, len(got), line)
				}
			}
			out.reset()
		}
		time.Sleep(10 * time.Second)
		// The life of each node at info is a few lines, and none of them are raft's.
		leader := s.leaderID("")
		for _, id := range s.ids {
			lines := map[string]int{"cluster formed: cluster=": 1, "leading: term=": 0,
				"following: leader=" + leader + " term=": 1, "caught up: offset=": 1}
			if id == leader {
				lines = map[string]int{"cluster formed: cluster=": 1, "leading: term=": 1,
					"following: ": 0, "caught up: ": 0}
			}
			// Whom a node waits for is logged when that changes, which nodes that start at once see at most twice.
			waited := out.lines(id + ": waiting for other nodes to form a cluster with: expect=3 known=[")
			if len(waited) > 2 || (id == s.ids[0] && len(waited) == 0) {
				t.Errorf("%s logs whom it waits for: %q", id, waited)
			}
			sum := len(waited)
			for line, times := range lines {
				if got := out.lines(id + ": " + line); len(got) != times {
					t.Errorf("%s logs %d times %q, want %d: %q", id, len(got), line, times, out.lines(id+": "))
				}
				sum += times
			}
			if got := out.lines("  " + id); len(got) != sum {
				t.Errorf("%s logs besides: %q", id, got)
			}
		}
		expect("while the cluster formed", 0)

		away := s.follower()
		s.crash(away)
		time.Sleep(50 * time.Second)
		expect("a member is away", 1, "raft cannot reach a member: member="+away)
		time.Sleep(2 * time.Minute)
		if got := out.lines("raft still cannot reach a member"); len(got) < 1 {
			t.Error("it is not reported again")
		}
		expect("it is away for long", 2)
		s.start(away)
		s.settle()
		time.Sleep(10 * time.Second)
		expect("it is back", 0, "raft reaches a member again: member="+away)
		// Where all are stopped, one after the other, each but the last has a successor.
		first := s.leaderID("")
		s.stop(first)
		for _, id := range s.ids {
			if id != first {
				s.stop(id)
			}
		}
		for _, id := range s.ids {
			if got := out.lines(id + ": stopped"); len(got) != 1 {
				t.Errorf("%s logs %d times that it has stopped", id, len(got))
			}
		}
		expect("an orderly stop", 0, first+": leadership handed over: to=")
	})
}

// lineBuffer takes the lines of several loggers.
type lineBuffer struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (b *lineBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

func (b *lineBuffer) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.out.Reset()
}

func (b *lineBuffer) lines(with string) (found []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.out.String()) {
		if strings.Contains(line, with) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}
