package fsm

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// What was reported of the queue is known after a restart: it is not reported again.
func TestPressureIsToldOnceOverARestart(t *testing.T) {
	fs := vfs.NewMem()
	m := open(t, fs)
	say := func(index uint64, c ...request) { applyTo(t, m, entryOf(index, 1, "n1", epoch, c...)) }
	say(1, do(frame.TermStart{ClusterID: "c", Members: []frame.Member{{ID: "n1", FeatureLevel: FeatureLevel}}}))
	say(2, do(frame.Pressure{Active: true, Requests: 9}))
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	m = open(t, fs)
	defer m.Close()
	if p := m.Pressure(); !p.Active || p.Leader != "n1" || !p.Since.Equal(epoch) {
		t.Errorf("%+v", p)
	}
	say(3, do(frame.Pressure{Active: true, Requests: 9}))
	said := 0
	for _, e := range all(t, m) {
		if e.Type == event.BackpressureActivated {
			said++
		}
	}
	if said != 1 {
		t.Errorf("told %d times", said)
	}
}
