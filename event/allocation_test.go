//go:build !race

package event

import (
	"encoding/json"
	"testing"
)

// The race detector has pools lose what they are given now and then, which costs allocations.
func TestCanonicalEventPassesTheGateWithoutAllocation(t *testing.T) {
	gate := Policy{Catalogue: Builtin()}
	large := typicalEvent()
	large.Payload = json.RawMessage(sized(100_000))
	for _, payload := range []json.RawMessage{typicalEvent().Payload, large.Payload} {
		var e Event
		if allocs := testing.AllocsPerRun(100, func() {
			e = Event{Type: CheckpointLoaded, Source: "s", Payload: payload}
			if _, _, err := gate.Normalize(&e); err != nil {
				t.Fatal(err)
			}
		}); allocs > 0 {
			t.Errorf("%d bytes: %v allocations", len(payload), allocs)
		}
	}
	e := typicalEvent()
	d, _ := Builtin().Definition(e.Type)
	m := Filter{
		Types:      []string{"checkpoint.*", "custom_*"},
		Sources:    []string{"trainer-3"},
		Categories: []string{d.Category},
	}.Compile(
		Builtin(),
	)
	if allocs := testing.AllocsPerRun(100, func() {
		if !m.Match(&e) {
			t.Fatal("no match")
		}
	}); allocs > 0 {
		t.Errorf("matching: %v allocations", allocs)
	}
}
