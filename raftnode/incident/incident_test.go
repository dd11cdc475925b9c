package incident

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/statestore"
	"github.com/ringrift/ringlog/snapshots"
)

var noon = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// entry is an entry of one event, or of the first term if number is 0; one is appended in each second.
func entry(index uint64, number int) *raft.Log {
	var b frame.Builder
	if number == 0 {
		b.Add(frame.TermStart{ClusterID: "c"}, nil)
	} else {
		var batch frame.Batch
		e := event.New(event.TrainingCompleted, fmt.Appendf(nil, `{"n": %d}`, number))
		batch.Add(&e, e.Hash())
		b.Add(frame.Publish{Count: 1}, &batch)
	}
	return &raft.Log{Index: index, Term: 2, Type: raft.LogCommand,
		Data: b.Encode(frame.Seal{Time: noon.Add(time.Duration(number) * time.Second), Proposer: "n1"})}
}

// node is a source of 20 events, with a checkpoint after the tenth, and a log that begins with first.
func node(t testing.TB, first uint64) Source {
	t.Helper()
	m, err := fsm.Open(fsm.Options{Dir: filepath.Join(t.TempDir(), "state")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	s := Source{NodeID: "n1", Machine: m, First: first}
	var entries []*raft.Log
	for i := range 21 {
		l := entry(uint64(i+1), i)
		entries = append(entries, l)
		if _, err := statestore.ApplyEntry(m, l); err != nil {
			t.Fatal(err)
		}
		if i == 10 {
			dir := filepath.Join(t.TempDir(), "kept")
			if _, err := m.Checkpoint(dir); err != nil {
				t.Fatal(err)
			}
			s.Kept = []statestore.Kept{{Dir: dir, Index: l.Index}}
		}
	}
	s.Entry = func(index uint64, l *raft.Log) error {
		if index < first || index > uint64(len(entries)) {
			return raft.ErrLogNotFound
		}
		*l = *entries[index-1]
		return nil
	}
	return s
}

// taken is the incident of a node between two times.
func taken(t testing.TB, s Source, from, to time.Time) []byte {
	t.Helper()
	g, err := Gather(t.Context(), filepath.Join(t.TempDir(), "scratch"), s, from, to)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	var b bytes.Buffer
	if err := g.Write(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func opened(t testing.TB, stream []byte) (*Replay, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "in")
	p, err := Open(t.Context(), bytes.NewReader(stream), dir, Options{})
	if err != nil {
		if _, left := os.Stat(dir); !errors.Is(left, os.ErrNotExist) {
			t.Errorf("after %v the folder is there", err)
		}
		return nil, err
	}
	t.Cleanup(func() { p.Close() })
	return p, nil
}

func TestASliceHasTheStateBeforeItAndWhatFollows(t *testing.T) {
	second := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }
	for _, c := range []struct {
		name        string
		first       uint64 // of the log
		from, to    time.Time
		base, until uint64 // the last offset of the state before it, and the last event
	}{
		{"everything", 1, time.Time{}, time.Time{}, 0, 20},
		{"all that a compacted log reaches", 11, time.Time{}, time.Time{}, 11, 20},
		{"the newest state before it", 1, second(11), time.Time{}, 11, 20},
		{"not a state of the same time", 1, second(10), time.Time{}, 0, 20},
		{"up to a time", 1, second(12), second(15), 11, 15},
		{"nothing but a state", 12, second(30), time.Time{}, 11, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := node(t, c.first)
			p, err := opened(t, taken(t, s, c.from, c.to))
			if err != nil {
				t.Fatal(err)
			}
			if got := p.Meta().Slice.FirstOffset; got != c.base {
				t.Errorf("the state is after offset %d, want %d", got, c.base)
			}
			if err := p.ToEnd(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, last := p.Machine().Log().Bounds()
			e, err := p.Machine().Log().Get(last)
			if want := fmt.Sprintf(`{"n": %d}`, c.until); err != nil || string(e.Payload) != want {
				t.Errorf("it ends with %s, %v; want %s", e.Payload, err, want)
			}
			if p.Left() != 0 {
				t.Errorf("%d entries are left", p.Left())
			}
		})
	}
}

func TestWhatIsNotKeptIsNamedWithTheOldestThatIs(t *testing.T) {
	var gone *NotKeptError
	_, err := Gather(t.Context(), filepath.Join(t.TempDir(), "s"), node(t, 12), noon.Add(2*time.Second), time.Time{})
	if !errors.As(err, &gone) || !gone.Oldest.Equal(noon.Add(10*time.Second)) {
		t.Errorf("%v, %+v", err, gone)
	}
	// A log that begins after the only checkpoint leads from nowhere.
	_, err = Gather(t.Context(), filepath.Join(t.TempDir(), "s"), node(t, 13), time.Time{}, time.Time{})
	if !errors.As(err, &gone) || !gone.Oldest.IsZero() {
		t.Errorf("%v, %+v", err, gone)
	}
	var refused *api.Error
	_, err = Gather(t.Context(), filepath.Join(t.TempDir(), "s"), node(t, 1), noon.Add(2), noon.Add(1))
	if !errors.As(err, &refused) || refused.Field != "to" {
		t.Errorf("it ends before it begins: %v", err)
	}
}

func TestStepsGoOnAndNotBack(t *testing.T) {
	p, err := opened(t, taken(t, node(t, 1), time.Time{}, time.Time{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.To(t.Context(), 5); err != nil || p.Machine().Position().Last != 5 {
		t.Fatalf("at %d, %v", p.Machine().Position().Last, err)
	}
	if l, err := p.Step(); err != nil || l == nil || p.Machine().Position().Last != 6 {
		t.Fatalf("a step leads to %d, %v", p.Machine().Position().Last, err)
	}
	for _, offset := range []uint64{0, 5, 1000} {
		if err := p.To(t.Context(), offset); !errors.Is(err, ErrOutside) {
			t.Errorf("to offset %d: %v", offset, err)
		}
	}
	for _, index := range []uint64{0, 1, 1000} {
		if err := p.ToIndex(t.Context(), index); !errors.Is(err, ErrOutside) {
			t.Errorf("to index %d: %v", index, err)
		}
	}
	if l, err := p.Step(); l != nil || err != nil {
		t.Errorf("a step after the last: %v, %v", l, err)
	}
}

func TestABrokenIncidentIsRefused(t *testing.T) {
	s := node(t, 1)
	stream := taken(t, s, noon.Add(12*time.Second), time.Time{})
	if _, err := opened(t, stream); err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(stream); at += max(1, len(stream)/40) {
		if _, err := opened(t, stream[:at]); !errors.Is(err, snapshots.ErrCorrupt) {
			t.Errorf("cut at %d of %d: %v", at, len(stream), err)
		}
		flipped := bytes.Clone(stream)
		flipped[at] ^= 4
		_, err := opened(t, flipped)
		if !errors.Is(err, snapshots.ErrCorrupt) && !errors.Is(err, snapshots.ErrUnsupported) {
			t.Errorf("a flipped bit at %d of %d: %v", at, len(stream), err)
		}
	}
}

// What no checksum shows: a file that was written whole, and says what this program would not.
func TestAnIncidentThatContradictsItselfIsRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(m *snapshots.Meta, entries []byte) []byte
		want   error
	}{
		{"a backup", func(m *snapshots.Meta, b []byte) []byte { m.Slice = nil; return b }, snapshots.ErrNoIncident},
		{"of another version", func(m *snapshots.Meta, b []byte) []byte { m.Slice.Version = 2; return b },
			snapshots.ErrUnsupported},
		{"without its last entry", func(m *snapshots.Meta, b []byte) []byte { m.Slice.LastIndex++; return b },
			snapshots.ErrCorrupt},
		{"with a hole", func(m *snapshots.Meta, b []byte) []byte { b[0]++; return b }, snapshots.ErrCorrupt},
		{"with an entry that claims too much", func(m *snapshots.Meta, b []byte) []byte { b[20] = 0x7f; return b },
			snapshots.ErrCorrupt},
		{"cut in a head", func(m *snapshots.Meta, b []byte) []byte { return b[:10] }, snapshots.ErrCorrupt},
		{"without entries", func(m *snapshots.Meta, b []byte) []byte { return nil }, snapshots.ErrCorrupt},
		{"of another state", func(m *snapshots.Meta, b []byte) []byte { m.Digest = "00"; return b }, snapshots.ErrCorrupt},
		{"with an entry of no form", func(m *snapshots.Meta, b []byte) []byte { b[entryHead] = 0; return b },
			frame.ErrCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := Gather(t.Context(), filepath.Join(t.TempDir(), "s"), node(t, 1), noon.Add(12*time.Second), time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			file := filepath.Join(g.dir, snapshots.EntriesFile)
			entries, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if changed := c.change(&g.meta, entries); changed == nil {
				err = os.Remove(file)
			} else {
				err = os.WriteFile(file, changed, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := g.Write(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
			p, err := opened(t, b.Bytes())
			if err == nil {
				err = p.ToEnd(t.Context())
			}
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// A replay that leads elsewhere, as with another version of the state machine, is no picture of what was.
func TestAReplayThatLeadsElsewhereIsRefused(t *testing.T) {
	s := node(t, 1)
	g, err := Gather(t.Context(), filepath.Join(t.TempDir(), "s"), s, time.Time{}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	// The next entry carries the digest of one before, as a leader's does; here it is not the one of this state.
	var b frame.Builder
	b.Add(frame.Tick{}, nil)
	forged := appendEntry(nil, &raft.Log{Index: 22, Term: 2, Type: raft.LogCommand,
		Data: b.Encode(frame.Seal{Time: noon.Add(time.Minute), Proposer: "n1", DigestIndex: 21, Digest: [32]byte{1}})})
	f, err := os.OpenFile(filepath.Join(g.dir, snapshots.EntriesFile), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.Write(forged)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	g.meta.Slice.Entries, g.meta.Slice.LastIndex = g.meta.Slice.Entries+1, 22
	var out bytes.Buffer
	if err := g.Write(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	p, err := opened(t, out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.ToEnd(t.Context()); !errors.Is(err, ErrDiverged) {
		t.Errorf("it was taken for what was: %v", err)
	}
}

// What snapshot inspect prints is the slice, too.
func TestTheHeaderNamesTheSlice(t *testing.T) {
	info, err := snapshots.Inspect(bytes.NewReader(
		taken(t, node(t, 1), noon.Add(12*time.Second), noon.Add(13*time.Second))))
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(info.Meta.Slice)
	want := `{"version":1,"from":"2026-01-05T12:00:12Z","to":"2026-01-05T12:00:13Z",` +
		`"entries":3,"last_index":14,"first_offset":11}`
	if string(text) != want {
		t.Errorf("%s, want %s", text, want)
	}
}
