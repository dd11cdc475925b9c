package integration

import (
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

var upgradeFrom = flag.String("upgrade.from", "",
	"the ringlog binary whose cluster TestUpgradeByRollingRestart upgrades; empty skips it")

// A cluster of an earlier build is upgraded by restarting one voter after the other with
// the present one, while publishers publish and handlers handle: nothing acknowledged is
// lost or repeated, cursors, groups and dead letters resume from the kept folders, and
// voters of both builds have the same digest at every step. A backup that the earlier
// build saved restores.
func TestUpgradeByRollingRestart(t *testing.T) {
	t.Parallel()
	if *upgradeFrom == "" {
		t.Skip("needs the binary of an earlier build: make upgrade FROM=REVISION")
	}
	c := newCluster(t, t.TempDir(), 3)
	for _, p := range c.nodes {
		p.binary = *upgradeFrom
	}
	c.startAll()
	handlers, members := newListeners(t, c), newGroup(t, c)
	all := &listeners{t: t, list: append(handlers.list, members.list...)}
	for _, l := range all.list {
		l.start()
	}
	// Publishers and handlers work all the time.
	work := &load{events: 40_000, publishers: 4, batch: 100}
	published := make(chan struct{})
	go func() {
		defer close(published)
		work.publish(t.Context(), t, c)
	}()
	awaitHandled := func(n int64, what string) {
		c.eventually(2*time.Minute, "handled events", func() error {
			if handled := all.handled(); handled < n {
				return fmt.Errorf("%d handled, %s waits for %d", handled, what, n)
			}
			return nil
		})
	}
	step := int64(work.events) / 2 // an event is handled once to four times
	awaitHandled(step, "the backup")
	// The earlier build saves a backup.
	backup := filepath.Join(t.TempDir(), "backup")
	save := exec.Command(*upgradeFrom, "--endpoints", c.nodes[0].url(), "snapshot", "save", backup)
	if out, err := save.CombinedOutput(); err != nil {
		t.Fatalf("save a backup: %v\n%s", err, out)
	}
	savedIn, err := c.leader().status()
	if err != nil {
		t.Fatal(err)
	}
	// One voter after the other is restarted with the present build.
	for i, p := range c.nodes {
		awaitHandled(int64(i+2)*step, "the upgrade of "+p.id)
		p.stop()
		p.binary = binary
		p.start()
		c.converged()
	}
	<-published

	// Every event was handled as it should be, and the log is sound.
	events := loaded(t, c, work)
	for _, l := range handlers.list {
		l.awaitCommitted(c, events)
	}
	members.awaitGroup(c, work.last.Load())
	for _, l := range all.list {
		l.stop()
	}
	for _, l := range handlers.list {
		l.check(c, events, 0)
	}
	members.checkGroup(c, events, nil)
	log := readAll(t, c, c.nodes[0], c.converged().LastOffset)
	checkLeaders(t, log)

	// The backup restores, and holds what the log held when it was saved.
	restored := newCluster(t, t.TempDir(), 1)
	only := restored.nodes[0]
	restored.mustRun("snapshot", "restore", backup, "--data-dir", only.dir, "--id", only.id, "--yes")
	restored.startAll()
	stored := readAll(t, restored, only, restored.converged().LastOffset)
	if len(stored) < int(step)/4 {
		t.Fatalf("the backup holds %d events, each handled four times at most, of which %d had been", len(stored), step)
	}
	for i, got := range stored {
		if got.Term > savedIn.Term {
			break // the restored cluster's own
		}
		if want := log[i]; got.Offset != want.Offset || got.Type != want.Type || string(got.Payload) != string(want.Payload) {
			t.Fatalf("event %d of the backup is %+v, not %+v", want.Offset, got, want)
		}
	}
}
