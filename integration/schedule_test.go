package integration

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/ringrift/ringlog/event"
)

// Scheduled events are published once each and not before their time, although leaders are killed while they are due.
func TestScheduledEventsArePublishedOnceWhoeverLeads(t *testing.T) {
	t.Parallel()
	c := newCluster(t, t.TempDir(), 3).startAll()
	cl := c.client()
	const events, apart = 150, 20 * time.Millisecond
	at := map[int]time.Time{}
	for n := range events {
		at[n] = time.Now().Add(time.Second + time.Duration(n%50)*apart)
		ev := event.New(event.TrainingProgress, map[string]any{"n": n})
		if _, err := cl.PublishAt(t.Context(), fmt.Sprint("s", n), at[n], ev); err != nil {
			t.Fatal(err)
		}
	}
	// Two leaders are killed, each after it has published some of them.
	published := func() (offsets map[string]uint64) {
		offsets = map[string]uint64{}
		for one, err := range cl.Admin().Scheduled(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if one.Offset != 0 {
				offsets[one.ID] = one.Offset
			}
		}
		return offsets
	}
	for _, some := range []int{1, events / 2} {
		c.eventually(30*time.Second, "some are published", func() error {
			if n := len(published()); n < some {
				return fmt.Errorf("%d are", n)
			}
			return nil
		})
		leader := c.leader()
		leader.kill()
		leader.start()
	}
	c.eventually(30*time.Second, "all are published", func() error {
		if n := len(published()); n < events {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})

	offsets, seen := published(), map[int]bool{}
	for _, e := range readAll(t, c, c.nodes[0], c.converged().LastOffset) {
		if e.Type != event.TrainingProgress {
			continue
		}
		var p struct{ N int }
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			t.Fatal(err)
		}
		if seen[p.N] || e.AppendedAt.Before(at[p.N]) || offsets[fmt.Sprint("s", p.N)] != e.Offset {
			t.Errorf("event %d, for %s: appended at %s as %d, before: %t; its schedule says %d", p.N, at[p.N], e.AppendedAt,
				e.Offset, seen[p.N], offsets[fmt.Sprint("s", p.N)])
		}
		seen[p.N] = true
	}
	if len(seen) != events {
		t.Errorf("%d events, want %d", len(seen), events)
	}
}
