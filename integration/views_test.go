package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/longtest"
)

// light is a view whose rule publishes VIEW_TEST_ON when the last value of a row becomes 1, and VIEW_TEST_OFF when it
// is 1 no longer.
const light = `{"name": "light", "types": ["VIEW_TEST"], "fields": {"on": {"kind": "last", "of": "payload.on"},
	"n": {"kind": "count"}},
	"rules": [{"name": "on", "when": "on == 1", "emit": "VIEW_TEST_ON", "ended": "VIEW_TEST_OFF"}]}`

// A rule fires once for each event that makes its condition true, although leaders are killed while it fires. A node
// that had to install a snapshot, because the log was trimmed meanwhile, and a cluster that was restored from a backup
// have the same rows as the others.
func TestRulesFireOnceWhoeverLeads(t *testing.T) {
	t.Parallel()
	if !longtest.Enabled() {
		t.Skip("half a minute of many processes")
	}
	c := newCluster(t, t.TempDir(), 3,
		"--raft-compact-interval", "1s",
		"--raft-compact-entries", "64",
		"--raft-trailing-entries", "16",
		"--log-level", "debug", // at which raft's lines are logged
	).startAll()
	cl := c.client()
	if _, err := cl.Admin().DefineView(t.Context(), "light", []byte(light)); err != nil {
		t.Fatal(err)
	}
	// Each event after the first changes the light.
	sent := 0
	publish := func(events int) {
		for range events {
			sent++
			ev := event.New("VIEW_TEST", map[string]any{"on": sent % 2, "i": sent})
			ev.Key = "lamp"
			if _, err := cl.Publish(t.Context(), ev); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 {
		publish(100)
		leader := c.leader()
		leader.kill()
		publish(20)
		leader.start()
	}

	// All have fired: one for each event, in the order of the events.
	var log []event.Event
	c.eventually(30*time.Second, "all firings", func() error {
		log = readAll(t, c, c.leader(), c.converged().LastOffset)
		fired := 0
		for _, e := range log {
			if strings.HasPrefix(string(e.Type), "VIEW_TEST_O") {
				fired++
			}
		}
		if fired < sent {
			return fmt.Errorf("%d of %d", fired, sent)
		}
		return nil
	})
	var causes, fired []uint64
	for _, e := range log {
		switch e.Type {
		case "VIEW_TEST":
			causes = append(causes, e.Offset)
		case "VIEW_TEST_ON", "VIEW_TEST_OFF":
			var p struct{ Offset uint64 }
			if err := json.Unmarshal(e.Payload, &p); err != nil {
				t.Fatal(err)
			}
			fired = append(fired, p.Offset)
			if on := len(fired)%2 == 1; on != (e.Type == "VIEW_TEST_ON") {
				t.Errorf("firing %d, at %d, is %s", len(fired), e.Offset, e.Type)
			}
		}
	}
	if !slices.Equal(causes, fired) {
		t.Errorf("events at %d\nfired for %d", causes, fired)
	}

	// One lags while the log is trimmed past it.
	lagging := c.follower()
	lagging.kill()
	before, err := c.leader().status()
	if err != nil {
		t.Fatal(err)
	}
	publish(300)
	c.mustRun("compact", "--keep", "10", "--force", "--yes")
	c.eventually(30*time.Second, "a raft log that begins past the follower", func() error {
		if to := compactedTo(c.leader()); to <= before.CommitIndex+100 {
			publish(100)
			return fmt.Errorf("it is compacted to %d, the follower has at most %d", to, before.CommitIndex)
		}
		return nil
	})
	lagging.start()
	end := c.converged().LastOffset
	if text, err := os.ReadFile(lagging.log); err != nil || !bytes.Contains(text, []byte("snapshot installed")) {
		t.Errorf("%s caught up without a snapshot: %v", lagging.id, err)
	}
	rows := map[string]string{}
	for _, p := range c.nodes {
		row, at, err := c.client(p.url()).Admin().ViewRow(t.Context(), "light", "lamp", client.ViewRead{MinOffset: end})
		if err != nil {
			t.Fatal(p.id, err)
		}
		if at < end {
			t.Errorf("%s is at %d, before %d", p.id, at, end)
		}
		rows[string(row)] += p.id + " "
	}
	if want := fmt.Sprintf(`"n":%d`, sent); len(rows) != 1 || !strings.Contains(fmt.Sprint(rows), want) {
		t.Errorf("rows %v, want %s on all nodes", rows, want)
	}

	if out := c.mustRun("verify"); !strings.Contains(out, "1 view with the same rows on 3 nodes") {
		t.Errorf("%s", out)
	}

	// A backup has the rows of events that are gone.
	backup := filepath.Join(t.TempDir(), "backup")
	c.mustRun("snapshot", "save", backup)
	again := newCluster(t, t.TempDir(), 1)
	again.mustRun("snapshot", "restore", backup, "--data-dir", again.nodes[0].dir, "--id", "n1", "--yes")
	again.nodes[0].args = nil
	again.startAll()
	row, _, err := again.client().Admin().ViewRow(t.Context(), "light", "lamp", client.ViewRead{Linearizable: true})
	if _, same := rows[string(row)]; err != nil || !same {
		t.Errorf("the restored cluster has %s, %v; want one of %v", row, err, rows)
	}
}
