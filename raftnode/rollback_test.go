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
						t.Errorf("it continues: %v", ended)
					}
					mu.Unlock()
					leader := s.leads()
					if leader == nil || leader.cfg.ID == id {
						t.Fatal("the others have no leader")
					}
					if absent, _ := leader.watch.Absence(id); absent == "" {
						t.Error("the leader counts it as there")
					}
					asCopy := func(r rafttransport.Refusal) bool { return r.Reason == "rolled_back" }
					if !slices.ContainsFunc(n.transport.Refusals(), asCopy) {
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
