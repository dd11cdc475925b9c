package statestore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/clock"
	"github.com/ringrift/ringlog/raftnode/rafttransport"
	"github.com/ringrift/ringlog/raftnode/upstream"
	"github.com/ringrift/ringlog/snapshots"
)

var noon = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// numbered publishes event i.
func numbered(i int) frame.Request {
	e := event.New(event.TrainingCompleted, fmt.Appendf(nil, `{"n": %d}`, i))
	var b frame.Batch
	b.Add(&e, e.Hash())
	return frame.Request{Command: frame.Publish{Count: 1}, Batch: &b}
}

func dump(t *testing.T, m *fsm.Machine) string {
	t.Helper()
	var b bytes.Buffer
	if err := m.Dump(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// entries are a raft log as one leader would write it: a configuration, a term start,
// then events, with gaps where raft keeps entries of its own.
func entries(count int) (list []*raft.Log) {
	conf := raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: "a:1"}}}
	list = append(list, &raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(conf)})
	for i := range count {
		var b frame.Builder
		r := numbered(i)
		if i == 0 {
			r = frame.Request{Command: frame.TermStart{ClusterID: "c"}}
		}
		b.Add(r.Command, r.Batch)
		list = append(list, &raft.Log{Index: uint64(3 + i + i/10), Term: 2, Type: raft.LogCommand,
			Data: b.Encode(frame.Seal{Time: noon, Proposer: "n1"})})
	}
	return list
}

// view is a machine with raft's view on it.
func view(t testing.TB, fs vfs.FS, dir string) *FSM {
	t.Helper()
	m, err := fsm.Open(fsm.Options{Dir: filepath.Join(dir, "state"), FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	in := filepath.Join(t.TempDir(), "in")
	s, err := OpenSnapshots(m, noViews{}, raft.NewInmemStore(), in, "n1", hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	return NewFSM(m, s, Hooks{Clock: clock.New(clock.System()),
		OnApply: func() {}, OnDiverge: func(uint64) {}, Fatal: func(err error) { t.Error(err) }})
}

func (a *FSM) feed(t testing.TB, list []*raft.Log) {
	t.Helper()
	for _, out := range a.ApplyBatch(list) {
		if err, failed := out.(error); failed {
			t.Fatal(err)
		}
	}
}

// What raft deletes from its log after Persist must be in the state, whatever the
// power loss took; the rest of the log then leads to the very same state.
func TestThePowerLossOfAStateKeepsWhatRaftCompactsAgainst(t *testing.T) {
	list := entries(200)
	whole := view(t, vfs.NewMem(), "/")
	whole.feed(t, list)
	_, want := whole.machine.Digest()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, percent := range []int{0, 30, 70, 100} {
		fs := vfs.NewCrashableMem()
		a := view(t, fs, "/")
		persisted := 50 + rng.IntN(100)
		a.feed(t, list[:persisted])
		snap, err := a.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		sink, err := a.snapshots.Create(1, 0, 0, raft.Configuration{}, 0, nil)
		if err = errors.Join(err, snap.Persist(sink)); err != nil {
			t.Fatal(err)
		}
		compacted := a.snapshots.durable.Load()
		if compacted != list[persisted-1].Index {
			t.Fatalf("after Persist the log may go up to %d, want %d", compacted, list[persisted-1].Index)
		}
		a.feed(t, list[persisted:])

		after := view(t, fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}), "/")
		if got := after.machine.Applied(); got < compacted {
			t.Fatalf("%d%% of unsynced data survive: the state is at %d, raft has deleted up to %d", percent, got, compacted)
		}
		var rest []*raft.Log
		for _, l := range list {
			if l.Index > compacted {
				rest = append(rest, l)
			}
		}
		after.feed(t, rest)
		if _, got := after.machine.Digest(); got != want {
			t.Errorf("%d%%: the replay leads to another state", percent)
		}
	}
}

func TestAnEntryThatCanNotBeAppliedIsNeverSkipped(t *testing.T) {
	list := entries(10)
	a := view(t, nil, t.TempDir())
	var fatal atomic.Pointer[error]
	stopped := make(chan struct{})
	a.Fatal = func(err error) { fatal.Store(&err); close(stopped) }
	a.feed(t, list[:5])
	list[5].Data = bytes.Clone(list[5].Data)
	list[5].Data[len(list[5].Data)-1] ^= 1
	answers := make(chan []any)
	go func() { answers <- a.ApplyBatch(list[5:]) }()
	<-stopped
	if err := *fatal.Load(); !errors.Is(err, frame.ErrCorrupt) {
		t.Errorf("fatal: %v", err)
	}
	select {
	case <-answers:
		t.Fatal("raft was answered and counts the entry as applied")
	default:
	}
	a.Close()
	for _, out := range <-answers {
		if _, failed := out.(error); !failed {
			t.Error("an entry after it was applied")
		}
	}
	if a.machine.Applied() != list[4].Index {
		t.Errorf("applied %d, want %d", a.machine.Applied(), list[4].Index)
	}
}

// send pipes what one store opens into another's sink, as raft does.
func send(t *testing.T, from, to *FSM, change func([]byte) []byte) (raft.SnapshotSink, error) {
	t.Helper()
	metas, err := from.snapshots.List()
	if err != nil || len(metas) != 1 {
		t.Fatalf("List: %v, %v", metas, err)
	}
	meta, source, err := from.snapshots.Open(metas[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := io.ReadAll(source)
	if err = errors.Join(err, source.Close()); err != nil {
		t.Fatal(err)
	}
	if int64(len(stream)) != meta.Size {
		t.Fatalf("%d bytes, Size says %d", len(stream), meta.Size)
	}
	sink, err := to.snapshots.Create(meta.Version, meta.Index, meta.Term, meta.Configuration, meta.ConfigurationIndex, nil)
	if err != nil {
		t.Fatal(err)
	}
	for chunk := change(stream); len(chunk) > 0; {
		n, err := sink.Write(chunk[:min(len(chunk), 1000)])
		if err != nil {
			return sink, errors.Join(err, sink.Cancel())
		}
		chunk = chunk[n:]
	}
	return sink, sink.Close()
}

func restore(t *testing.T, a *FSM, id string) error {
	t.Helper()
	_, source, err := a.snapshots.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	return a.Restore(source)
}

func TestASnapshotIsInvisibleUntilRestoreSwapsItIn(t *testing.T) {
	leader, follower := view(t, nil, t.TempDir()), view(t, nil, t.TempDir())
	if metas, err := leader.snapshots.List(); err != nil || len(metas) != 0 {
		t.Errorf("an empty state lists %v, %v", metas, err)
	}
	list := entries(100)
	leader.feed(t, list)
	follower.feed(t, list[:20])
	before := follower.machine.Position()
	sink, err := send(t, leader, follower, func(b []byte) []byte { return b })
	if err != nil {
		t.Fatal(err)
	}
	if metas, _ := follower.snapshots.List(); metas[0].Index != before.Index ||
		follower.machine.Applied() != before.Index {
		t.Error("received, and visible before Restore")
	}
	if err := restore(t, follower, sink.ID()); err != nil {
		t.Fatal(err)
	}
	if dump(t, leader.machine) != dump(t, follower.machine) {
		t.Error("the dumps differ")
	}
	installed, _ := follower.snapshots.stable.GetUint64([]byte(KeyInstalled))
	if installed != leader.machine.Applied() || follower.snapshots.durable.Load() != installed {
		t.Errorf("installed %d, durable %d, want %d", installed, follower.snapshots.durable.Load(), leader.machine.Applied())
	}
	requireEmptyDirs(t, leader, follower)
}

// Entries may be applied between a snapshot's arrival and its turn.
func TestAStateIsReplacedOnlyByOneThatIsAhead(t *testing.T) {
	leader, follower := view(t, nil, t.TempDir()), view(t, nil, t.TempDir())
	list := entries(100)
	leader.feed(t, list[:50])
	follower.feed(t, list[:20])
	for _, applied := range []int{50, 60} {
		follower.feed(t, list[:20])
		sink, err := send(t, leader, follower, func(b []byte) []byte { return b })
		if err != nil {
			t.Fatal(err)
		}
		follower.feed(t, list[20:applied])
		before := dump(t, follower.machine)
		if err := restore(t, follower, sink.ID()); !errors.Is(err, errNotAhead) {
			t.Errorf("a snapshot of %d after %d was applied: %v", list[49].Index, list[applied-1].Index, err)
		}
		if dump(t, follower.machine) != before {
			t.Error("the state was replaced")
		}
		requireEmptyDirs(t, leader, follower)
	}
	follower.feed(t, list) // raft carries on
}

func requireEmptyDirs(t *testing.T, views ...*FSM) {
	t.Helper()
	for _, a := range views {
		if left, err := os.ReadDir(a.snapshots.dir); err != nil || len(left) > 0 {
			t.Errorf("left over in %s: %v %v", a.snapshots.dir, left, err)
		}
	}
}

func TestASnapshotThatIsDamagedOrAnothersIsNotTakenOver(t *testing.T) {
	leader, stranger := view(t, nil, t.TempDir()), view(t, nil, t.TempDir())
	leader.feed(t, entries(50))
	other := entries(3)
	var b frame.Builder
	b.Add(frame.TermStart{ClusterID: "another"}, nil)
	other[1].Data = b.Encode(frame.Seal{Time: noon, Proposer: "n1"})
	stranger.feed(t, other)
	same := func(b []byte) []byte { return b }
	if _, err := send(t, leader, stranger, same); !errors.Is(err, ErrOtherCluster) {
		t.Errorf("another cluster's: %v", err)
	}
	follower := view(t, nil, t.TempDir())
	for name, change := range map[string]func([]byte) []byte{
		"a flipped bit": func(b []byte) []byte { b[len(b)/2] ^= 4; return b },
		"a cut":         func(b []byte) []byte { return b[:len(b)-1] },
	} {
		if _, err := send(t, leader, follower, change); !errors.Is(err, snapshots.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := follower.Restore(io.NopCloser(strings.NewReader("anything"))); err == nil {
		t.Error("restored what the store has not received")
	}
	requireEmptyDirs(t, leader, stranger, follower)
}

// Raft would look for the entry that a state ends with in its log, which does not lead there,
// once another follows it: whenever a leader had no answer and sends that one again.
func TestTheFirstEntryBehindTheStateIsTakenTwice(t *testing.T) {
	list := entries(6)
	state, next := list[:5], list[5]
	for name, stand := range map[string]func(*testing.T) *FSM{
		"restarted": func(t *testing.T) *FSM {
			dir := t.TempDir()
			a := view(t, nil, dir)
			a.feed(t, state)
			if err := a.machine.Close(); err != nil {
				t.Fatal(err)
			}
			return view(t, nil, dir)
		},
		"installed": func(t *testing.T) *FSM {
			leader, a := view(t, nil, t.TempDir()), view(t, nil, t.TempDir())
			leader.feed(t, state)
			sink, err := send(t, leader, a, func(b []byte) []byte { return b })
			if err = errors.Join(err, restore(t, a, sink.ID())); err != nil {
				t.Fatal(err)
			}
			return a
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := stand(t)
			transport, from := rawTransport(t, "n1", a.snapshots.Covers), rawTransport(t, "n2", a.snapshots.Covers)
			log := upstream.GuardedLog{LogStore: raft.NewInmemStore(), Durable: a.snapshots.Durable, Base: a.snapshots.Base}
			conf := raft.DefaultConfig()
			conf.LocalID, conf.NoSnapshotRestoreOnStart, conf.Logger = "n1", true, hclog.NewNullLogger()
			r, err := raft.NewRaft(conf, a, log, raft.NewInmemStore(), a.snapshots, transport)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := r.Shutdown().Error(); err != nil {
					t.Error(err)
				}
			}()
			last := state[len(state)-1]
			for _, when := range []string{"first", "again"} {
				req := raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax,
					ID: []byte("n2"), Addr: []byte(from.LocalAddr())},
					Term: 2, PrevLogEntry: last.Index, PrevLogTerm: last.Term, Entries: []*raft.Log{next},
					LeaderCommitIndex: last.Index}
				var resp raft.AppendEntriesResponse
				if err := from.AppendEntries("n1", transport.LocalAddr(), &req, &resp); err != nil || !resp.Success {
					t.Errorf("%s: %+v, %v", when, resp, err)
				}
			}
		})
	}
}

// rawTransport is a node's transport without the node.
func rawTransport(t *testing.T, id string, covers func(uint64) (uint64, bool)) *rafttransport.Transport {
	t.Helper()
	transport, err := rafttransport.New(rafttransport.Options{Bind: "127.0.0.1:0", Covers: covers,
		Self: func() rafttransport.Identity {
			return rafttransport.Identity{ClusterID: "c", NodeID: id, Incarnation: id}
		},
		Admit:      func(rafttransport.Identity) error { return nil },
		Resolve:    func(raft.ServerAddress) (string, bool) { return "", false },
		Configured: func() bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { transport.Close() })
	return transport
}

// noViews is a node without views.
type noViews struct{}

func (noViews) Checkpoint(_ string, state func() error) (bool, error) { return false, state() }
func (noViews) Swap(_ string, state func() error) error               { return state() }
