package raftnode

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringrift/ringlog/raftnode/rafttransport"
)

func TestAFolderThatHoldsLessThanWasReportedIsAnOlderCopy(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1000+int64(s), 0) }
	start := func(run int, term, last uint64) Report { // of a process that has not applied anything yet
		return Report{Incarnation: "i", Started: at(run), Term: term, Start: &Standing{Incarnation: "i", Term: term, LastIndex: last}}
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
			var h holdings
			first := start(0, 3, 70)
			first.Term, first.Applied, first.LastIndex = 5, 100, 120
			if h.see(first, at(0), at(2)) {
				t.Fatal("the first report is an older copy")
			}
			if s := test.r.Start; s != nil && test.asked > 2 && !test.r.Started.Equal(first.Started) && h.exceeds(*s) != test.back {
				t.Errorf("asked as it starts: %v", h.exceeds(*s))
			}
			if got := h.see(test.r, at(test.asked), at(4)); got != test.back || h.fellBack("i") != test.back {
				t.Errorf("fell back: %v, %v", got, h.back())
			}
			// It has caught up before it is asked again.
			if test.asked <= 2 {
				test.r = first
			}
			test.r.Term, test.r.Applied = 9, 200
			if h.see(test.r, at(5), at(6)) || h.fellBack("i") != test.back {
				t.Error("reported twice, or forgotten")
			}
			h.keep(nil)
			if h.fellBack("i") || h.exceeds(Standing{Incarnation: "i"}) {
				t.Error("a folder that is no member's is remembered")
			}
		})
	}
}

// A voter's folder is put back to an older copy, as a snapshot of its machine may be. It ends
// before it votes if another member answers as it starts, and as soon as one has asked it
// otherwise. Whoever noticed takes no connection of it.
func TestANodeWhoseFolderWasRolledBackEnds(t *testing.T) {
	for name, silent := range map[string]bool{"as it starts": false, "others can be asked later only": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(s *simulation) {
				t := s.t
				for range 10 {
					s.write(0)()
				}
				s.settle()
				id := s.follower()
				dir, copied := s.config[id].Dir, s.config[id].Dir+"-copy"
				s.crash(id)
				if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
					t.Fatal(err)
				}
				s.start(id)
				s.settle()
				for range 10 {
					s.write(0)()
				}
				s.settle()
				time.Sleep(5 * time.Second) // the others have heard how far it is
				s.crash(id)
				if err := errors.Join(os.RemoveAll(dir), os.Rename(copied, dir)); err != nil {
					t.Fatal(err)
				}
				cfg := s.config[id]
				var mu sync.Mutex
				var ended []error
				cfg.Fatal = func(err error) {
					mu.Lock()
					defer mu.Unlock()
					ended = append(ended, err)
				}
				if silent {
					s.net.cut(reset, s.around(id, true, true)...)
				}
				n, err := Open(context.Background(), cfg)
				if !silent {
					if !errors.Is(err, ErrRolledBack) || !strings.Contains(err.Error(), "empty its data folder") {
						t.Fatalf("it started: %v", err)
					}
				} else {
					if err != nil {
						t.Fatal(err)
					}
					s.nodes[id] = n
					s.net.up(id, n)
					s.net.heal()
					time.Sleep(5 * time.Second)
					mu.Lock()
					if len(ended) == 0 || !errors.Is(ended[0], ErrRolledBack) {
						t.Errorf("it goes on: %v", ended)
					}
					mu.Unlock()
					leader := s.leads()
					if leader == nil || leader.cfg.ID == id {
						t.Fatal("the others have no leader")
					}
					if absent, _ := leader.watch.absence(id); absent == "" {
						t.Error("the leader counts it as there")
					}
					if !slices.ContainsFunc(n.transport.Refusals(), func(r rafttransport.Refusal) bool { return r.Reason == "rolled_back" }) {
						t.Errorf("nobody refused it: %+v", n.transport.Refusals())
					}
					s.crash(id)
				}

				// The remedy of the message: remove it, empty its folder, let it join.
				leader := s.leads()
				if _, err := leader.Remove(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
				cfg = s.config[id]
				cfg.BootstrapExpect = 0
				s.config[id] = cfg
				s.start(id)
				s.settle()
			})
		})
	}
}
