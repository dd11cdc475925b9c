package raftnode

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/incident"
	"github.com/ringrift/ringlog/raftnode/statestore"
	"github.com/ringrift/ringlog/snapshots"
)

// remembered is the state of a node as it was.
type remembered struct {
	fsm.Position
	dump string
}

// remember returns a state of a node, whole.
func remember(t testing.TB, n *Node) remembered {
	t.Helper()
	for {
		before := n.machine.Position()
		dump := dumpOf(t, n.machine)
		if n.machine.Position().Index == before.Index {
			return remembered{before, dump}
		}
	}
}

func dumpOf(t testing.TB, m *fsm.Machine) string {
	t.Helper()
	var b bytes.Buffer
	if err := m.Dump(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A slice of the past replays to the very states that there were, through a compaction of raft's log and another
// leader; and what is not kept any more is refused with what is.
func TestAnIncidentReplaysToTheStatesThatThereWere(t *testing.T) {
	t.Parallel()
	c := voters(t, 3, func(cfg *Config) {
		cfg.Timing.TrailingLogs, cfg.Timing.SnapshotThreshold = 40, 50
	})
	var past []remembered
	write := func(from, to int) {
		for i := from; i < to; i++ {
			publish(t, c.leader(), i)
			if i%10 == 0 {
				name := fmt.Sprintf("cursor-%d", i)
				for _, command := range []frame.Command{
					frame.CursorCreate{Name: name, Start: frame.Position{Kind: frame.AtStart}},
					frame.SettingSet{Key: "cursor.hold_events", Value: fmt.Sprint(1000 + i)},
				} {
					if _, err := c.leader().Propose(t.Context(), frame.Request{Command: command}); err != nil {
						t.Fatal(err)
					}
				}
			}
			past = append(past, remember(t, c.leader()))
		}
	}
	look := func() {
		for _, n := range c.all() {
			if err := n.history.Look(); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(0, 60)
	look()
	write(60, 90)
	c.crash(c.leader().cfg.ID)
	write(90, 120)
	look()
	survivor := c.leader()
	if err := survivor.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	write(120, 130)
	first, err := survivor.stores.Log().FirstIndex()
	if err != nil || first < 3 {
		t.Fatalf("raft's log begins with %d, %v: it was not compacted", first, err)
	}

	var file bytes.Buffer
	meta, err := survivor.Incident(t.Context(), &file, api.Position{Kind: api.AtStart}, api.Position{Kind: api.AtEnd})
	if err != nil {
		t.Fatal(err)
	}
	if meta.Index == 0 || meta.Slice.LastIndex < past[len(past)-1].Index {
		t.Fatalf("the slice goes from %d to %d", meta.Index, meta.Slice.LastIndex)
	}
	replay, err := incident.Open(t.Context(), bytes.NewReader(file.Bytes()), filepath.Join(t.TempDir(), "in"),
		incident.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer replay.Close()
	compared := 0
	for _, want := range past {
		if want.Index < meta.Index {
			continue
		}
		if err := replay.ToIndex(t.Context(), want.Index); err != nil {
			t.Fatal(err)
		}
		if got := replay.Machine().Position().Digest; got != want.Digest {
			t.Fatalf("the digest at %d is %s, it was %s", want.Index, got, want.Digest)
		}
		if dumpOf(t, replay.Machine()) != want.dump {
			t.Fatalf("the state at %d is not what it was", want.Index)
		}
		compared++
	}
	if compared < 10 {
		t.Errorf("%d states of %d were compared", compared, len(past))
	}

	// Before all that is kept.
	_, err = survivor.Incident(t.Context(), &file, api.Position{Kind: api.AtTime, Time: past[0].Time},
		api.Position{Kind: api.AtEnd})
	var gone *incident.NotKeptError
	if !errors.As(err, &gone) || gone.Oldest.IsZero() || gone.Offset < past[0].Last {
		t.Errorf("the beginning is gone: %v", err)
	}
	// From an event on, the newest state before it.
	offset := past[len(past)-5].Last
	late, err := survivor.Incident(t.Context(), &file, api.Position{Kind: api.AtOffset, Offset: offset},
		api.Position{Kind: api.AtEnd})
	if err != nil || late.Slice.FirstOffset >= offset {
		t.Errorf("from %d on: the state of %d, %v", offset, late.Slice.FirstOffset, err)
	}
	// The history keeps only what raft's log reaches.
	look()
	err = survivor.history.With(func(kept []statestore.Kept) error {
		for _, k := range kept {
			if !statestore.Reaches(first, k.Index) {
				t.Errorf("a checkpoint of %d is kept, and the log begins with %d", k.Index, first)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	// It is no backup.
	_, err = Restore(t.Context(), bytes.NewReader(file.Bytes()), Target{
		Dir: filepath.Join(t.TempDir(), "r1"), NodeID: "r1"})
	if !errors.Is(err, snapshots.ErrIncident) {
		t.Errorf("restored as a cluster: %v", err)
	}
}
