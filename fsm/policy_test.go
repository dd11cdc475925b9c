package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// The gate has no policies, not even the catalogue's, before all members can read what it makes of them.
func TestPoliciesBeginWithTheirLevel(t *testing.T) {
	m := open(t, vfs.NewMem())
	defer m.Close()
	for i, level := range []uint32{frame.LevelDelivery, frame.LevelDedup} {
		member := frame.Member{ID: "n1", FeatureLevel: level}
		applyTo(t, m, entryOf(uint64(i+1), 1, "n1", epoch, do(frame.MemberPut{Member: member})))
		for _, when := range []string{"running", "loaded again"} {
			rule := m.Policy().Dedup.Of(event.TaskHeartbeat)
			if known := level >= frame.LevelDedup; (rule != nil) != known || (m.Policy().Dedup != nil) != known {
				t.Errorf("level %d, %s: %+v", level, when, rule)
			}
			reload(t, m)
		}
	}
}

// The number of policies and the names of their types are bounded. A type that has a policy takes no further place.
func TestPoliciesAreBounded(t *testing.T) {
	m := open(t, vfs.NewMem())
	defer m.Close()
	member := frame.Member{ID: "n1", FeatureLevel: FeatureLevel}
	requests := []request{do(frame.MemberPut{Member: member})}
	set := func(name string) request {
		return do(frame.DedupPolicySet{Type: name, Policy: event.DedupPolicy{Mode: event.DedupOff}})
	}
	for i := range maxPolicies {
		requests = append(requests, set(fmt.Sprintf("T%d", i)))
	}
	for i, r := range applyTo(t, m, entryOf(1, 1, "n1", epoch, requests...)) {
		if r.Refusal != nil {
			t.Fatalf("request %d: %v", i, r.Refusal)
		}
	}
	results := applyTo(t, m, entryOf(2, 1, "n1", epoch,
		set("T0"), set("ONE_MORE"), set(""), set("A\x00B"), set(strings.Repeat("x", maxPolicyType+1))))
	for i, want := range []Code{"", Overloaded, Invalid, Invalid, Invalid} {
		var got Code
		if results[i].Refusal != nil {
			got = results[i].Refusal.Code
		}
		if got != want {
			t.Errorf("request %d: %q, want %q", i, got, want)
		}
	}
	if n := len(m.DedupPolicies()); n != maxPolicies {
		t.Errorf("%d policies, want %d", n, maxPolicies)
	}
}
