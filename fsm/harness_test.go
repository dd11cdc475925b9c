package fsm

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// tb is what a test and a property test share.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

func open(t tb, fs vfs.FS) *Machine {
	t.Helper()
	m, err := Open(Options{Dir: "state", FS: fs})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return m
}

// request is a command with the events it publishes.
type request struct {
	command frame.Command
	events  []event.Event
}

func publish(events ...event.Event) request {
	return request{frame.Publish{Count: len(events)}, events}
}

func produce(producer string, sequence uint64, events ...event.Event) request {
	return request{frame.Publish{Producer: producer, Sequence: sequence, Count: len(events)}, events}
}

func do(c frame.Command) request { return request{command: c} }

// ev makes an event whose content is n.
func ev(n int) event.Event {
	e := event.New(event.TrainingCompleted, fmt.Appendf(nil, `{"n": %d}`, n))
	e.Source = fmt.Sprintf("source-%d", n%3)
	return e
}

func withID(e event.Event, id string) event.Event {
	e.DedupID = id
	return e
}

func noDedup(e event.Event) event.Event {
	e.NoDedup = true
	return e
}

var epoch = time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)

// entry is a Raft entry as a leader would have made it.
type entry struct {
	index, term uint64
	data        []byte
}

func entryOf(index, term uint64, leader string, at time.Time, requests ...request) entry {
	return gated(nil, index, term, leader, at, requests...)
}

// gated is entryOf for a leader whose gate has dedup policies.
func gated(policies *event.DedupPolicies, index, term uint64, leader string, at time.Time, requests ...request) entry {
	var b frame.Builder
	for _, r := range requests {
		var batch *frame.Batch
		if r.events != nil {
			batch = &frame.Batch{Policies: policies}
			for i := range r.events {
				batch.Add(&r.events[i], r.events[i].Hash())
			}
		}
		b.Add(r.command, batch)
	}
	return entry{index, term, b.Encode(frame.Seal{Time: at, Proposer: leader, Compress: true})}
}

// node feeds a machine with entries of one leader.
type node struct {
	t     tb
	m     *Machine
	index uint64
	term  uint64
	at    time.Time
}

func newNode(t *testing.T) *node {
	m := open(t, vfs.NewMem())
	t.Cleanup(func() { m.Close() })
	return &node{t: t, m: m, term: 1, at: epoch}
}

func applyTo(t tb, m *Machine, e entry) []Result {
	t.Helper()
	out, err := m.Apply(e.index, e.term, e.data)
	if err != nil {
		t.Fatalf("apply %d: %v", e.index, err)
	}
	return out.Results
}

// all reads every retained event from the machine.
func all(t tb, m *Machine) []event.Event {
	t.Helper()
	first, last := m.Log().Bounds()
	matcher := event.Filter{}.Compile(event.Builtin())
	var events []event.Event
	for from := first; from <= last; {
		chunk, err := m.Log().Read(from, &matcher, 7)
		if err != nil {
			t.Fatalf("read %d: %v", from, err)
		}
		if chunk.Gap != nil || chunk.Next <= from {
			t.Fatalf("read %d of %d to %d: %+v", from, first, last, chunk)
		}
		events = append(events, chunk.Events...)
		from = chunk.Next
	}
	return events
}
