package fsm

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// The clients against a map of them, over random histories. A second machine is
// reopened and replaced by a checkpoint on the way and stays equal to the first.
func TestClientsAgreeWithAMap(t *testing.T) {
	type word struct {
		until time.Time
		subs  int
	}
	const most = 3
	counts := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		plainFS, troubledFS := vfs.NewMem(), vfs.NewMem()
		plain, troubled := open(t, plainFS), open(t, troubledFS)
		defer func() { plain.Close(); troubled.Close() }()
		now, known := epoch, map[string]word{}
		apply := func(index uint64, r ...request) Result {
			e := entryOf(index, 1, "n1", now, r...)
			got := applyTo(t, plain, e)
			troubled = trouble(t, troubled, troubledFS, counts)
			applyTo(t, troubled, e)
			return got[len(got)-1]
		}
		apply(1, do(frame.TermStart{ClusterID: "c", Members: []frame.Member{{ID: "n1", FeatureLevel: FeatureLevel}}}),
			do(frame.SettingSet{Key: "clients.max", Value: fmt.Sprint(most)}))
		for index := range uint64(rapid.IntRange(1, 40).Draw(t, "entries")) {
			now = now.Add(rapid.SampledFrom([]time.Duration{
				0, 10 * time.Second, 30 * time.Second, 2 * time.Minute,
			}).Draw(t, "wait"))
			maps.DeleteFunc(known, func(_ string, w word) bool { return !w.until.After(now) })
			id := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "client")
			subs := make([]frame.ClientSubscription, rapid.IntRange(0, 3).Draw(t, "subscriptions"))
			for i := range subs {
				subs[i] = frame.ClientSubscription{
					Name:   fmt.Sprint(i),
					Filter: event.Filter{Types: []string{strings.Repeat("x", 100)}},
				}
			}
			ttl := rapid.SampledFrom([]time.Duration{MinClientTTL, time.Minute, 0}).Draw(t, "ttl")
			got := apply(index+2, do(frame.ClientPut{ID: id, TTL: ttl, Subscriptions: subs}))
			_, there := known[id]
			switch full := len(known) == most && !there && len(subs) > 0; {
			case full != (got.Refusal != nil):
				t.Fatalf("%d known, %s: %v", len(known), id, got.Refusal)
			case full:
				counts["refused"]++
			case len(subs) == 0:
				counts["taken away"]++
				delete(known, id)
			default:
				if ttl == 0 {
					ttl = DefaultClientTTL
				}
				known[id] = word{now.Add(ttl), len(subs)}
			}
			ids, bytes, due := []string{}, uint64(0), time.Time{}
			for _, c := range troubled.Clients("", 10) {
				ids = append(ids, c.ID)
				bytes += c.Bytes
				if w := known[c.ID]; len(c.Subscriptions) != w.subs || !c.Seen.Add(c.TTL).Equal(w.until) {
					t.Fatalf("%s: %+v, want %+v", c.ID, c, w)
				}
				if at := known[c.ID].until; due.IsZero() || at.Before(due) {
					due = at
				}
			}
			if !slices.Equal(ids, slices.Sorted(maps.Keys(known))) || troubled.ClientStats().Bytes != bytes {
				t.Fatalf("%v, want %v, %d bytes", ids, known, bytes)
			}
			if next := troubled.NextDeadline(); !due.IsZero() && (next.IsZero() || next.After(due)) {
				t.Fatalf("the next deadline is %s, a client expires at %s", next, due)
			}
		}
		if a, b := dump(t, plain), dump(t, troubled); !bytes.Equal(a, b) {
			t.Fatalf("dumps differ:\n%s\n%s", a, b)
		}
	})
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%s: %d", kind, counts[kind])
	}
}
