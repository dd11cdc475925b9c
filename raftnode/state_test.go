package raftnode

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/rafttransport"
	"github.com/ringrift/ringlog/snapshots"
)

// entries are a raft log as one leader would write it: a configuration, a hello,
// then events, with gaps where raft keeps entries of its own.
func entries(count int) (list []*raft.Log) {
	conf := raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: "a:1"}}}
	list = append(list, &raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(conf)})
	for i := range count {
		var b frame.Builder
		r := numbered(i)
		if i == 0 {
			r = frame.Request{Command: frame.Hello{ClusterID: "c"}}
		}
		b.Add(r.Command, r.Batch)
		list = append(list, &raft.Log{Index: uint64(3 + i + i/10), Term: 2, Type: raft.LogCommand,
			Data: b.Encode(frame.Seal{Time: noon, Proposer: "n1"})})
	}
	return list
}

// view is a machine with raft's view on it.
func view(t testing.TB, fs vfs.FS, dir string) *machineAdapter {
	t.Helper()
	m, err := fsm.Open(fsm.Options{Dir: filepath.Join(dir, "state"), FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	s, err := newSnapshotStore(m, raft.NewInmemStore(), filepath.Join(t.TempDir(), "in"), "n1", hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	return &machineAdapter{machine: m, clock: newClock(systemClock()), snapshots: s, released: make(chan struct{}),
		onApply: func() {}, onDiverge: func(uint64) {}, fatal: func(err error) { t.Error(err) }}
}

func (a *machineAdapter) feed(t testing.TB, list []*raft.Log) {
	t.Helper()
	for _, out := range a.ApplyBatch(list) {
		if err := out.(applied).err; err != nil {
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
	told := make(chan struct{})
	a.fatal = func(err error) { fatal.Store(&err); close(told) }
	a.feed(t, list[:5])
	list[5].Data = bytes.Clone(list[5].Data)
	list[5].Data[len(list[5].Data)-1] ^= 1
	answers := make(chan []any)
	go func() { answers <- a.ApplyBatch(list[5:]) }()
	<-told
	if err := *fatal.Load(); !errors.Is(err, frame.ErrCorrupt) {
		t.Errorf("fatal: %v", err)
	}
	select {
	case <-answers:
		t.Fatal("raft was answered and counts the entry as applied")
	default:
	}
	close(a.released)
	for _, out := range <-answers {
		if out.(applied).err == nil {
			t.Error("an entry behind it was applied")
		}
	}
	if a.machine.Applied() != list[4].Index {
		t.Errorf("applied %d, want %d", a.machine.Applied(), list[4].Index)
	}
}

// send pipes what one store opens into another's sink, as raft does.
func send(t *testing.T, from, to *machineAdapter, change func([]byte) []byte) (raft.SnapshotSink, error) {
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

func restore(t *testing.T, a *machineAdapter, id string) error {
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
	if metas, _ := follower.snapshots.List(); metas[0].Index != before.Index || follower.machine.Applied() != before.Index {
		t.Error("received, and visible before Restore")
	}
	if err := restore(t, follower, sink.ID()); err != nil {
		t.Fatal(err)
	}
	if dump(t, leader.machine) != dump(t, follower.machine) {
		t.Error("the dumps differ")
	}
	installed, _ := follower.snapshots.stable.GetUint64([]byte(keyInstalled))
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

func requireEmptyDirs(t *testing.T, views ...*machineAdapter) {
	t.Helper()
	for _, a := range views {
		if left, err := os.ReadDir(a.snapshots.dir); err != nil || len(left) > 0 {
			t.Errorf("left behind in %s: %v %v", a.snapshots.dir, left, err)
		}
	}
}

func TestASnapshotThatIsDamagedOrAnothersIsNotTakenOver(t *testing.T) {
	leader, stranger := view(t, nil, t.TempDir()), view(t, nil, t.TempDir())
	leader.feed(t, entries(50))
	other := entries(3)
	var b frame.Builder
	b.Add(frame.Hello{ClusterID: "another"}, nil)
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

func TestCompactionNeverPassesTheState(t *testing.T) {
	for _, test := range []struct {
		name      string
		durable   uint64
		base      raft.Log // the log has term 2
		keep      uint64   // the first that is to stay
		low, high uint64
		first     uint64 // of the log from 1 to 20, afterwards
		last      uint64
	}{
		{"below the state", 15, raft.Log{}, 20, 1, 10, 11, 20},
		{"past the state, whose end raft's no-ops follow", 8, raft.Log{}, 20, 1, 12, 8, 20},
		{"nothing durable", 0, raft.Log{}, 20, 1, 12, 1, 20},
		{"what is to stay", 15, raft.Log{}, 6, 1, 10, 6, 20},
		{"all is to stay", 15, raft.Log{}, 1, 1, 10, 1, 20},
		{"all but the state's last, as a suffix went meanwhile", 20, raft.Log{}, 20, 1, 20, 20, 20},
		{"all but the state's last, though no more is to stay", 15, raft.Log{}, 20, 1, 16, 15, 20},
		{"what follows the state, though raft would empty the log", 15, raft.Log{Index: 15, Term: 2}, 20, 1, 20, 15, 20},
		{"a replaced suffix", 3, raft.Log{}, 3, 15, 20, 1, 14},
		{"all that the state does not have", 3, raft.Log{Index: 3, Term: 2}, 3, 4, 20, 1, 3},
		{"after a snapshot that the log does not reach", 25, raft.Log{Index: 25, Term: 2}, 20, 1, 19, 0, 0},
		{"after a snapshot that the log leads to", 15, raft.Log{Index: 15, Term: 2}, 6, 1, 15, 6, 20},
		{"after a snapshot that the log contradicts", 15, raft.Log{Index: 15, Term: 3}, 6, 1, 15, 16, 20},
		{"after a snapshot whose last entry the log ends with, of another term", 20, raft.Log{Index: 20, Term: 3}, 6, 1, 19, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			store := raft.NewInmemStore()
			for i := range uint64(20) {
				if err := store.StoreLog(&raft.Log{Index: i + 1, Term: 2}); err != nil {
					t.Fatal(err)
				}
			}
			g := guardedLog{LogStore: store, durable: func() uint64 { return test.durable },
				keep: func(uint64) uint64 { return test.keep }, base: func() *raft.Log { return &test.base }}
			if err := g.DeleteRange(test.low, test.high); err != nil {
				t.Fatal(err)
			}
			first, _ := g.FirstIndex()
			last, _ := g.LastIndex()
			if first != test.first || last != test.last {
				t.Errorf("%d to %d are left, want %d to %d", first, last, test.first, test.last)
			}
		})
	}
}

func TestOnlyAnswersToNewQuestionsProveLeadership(t *testing.T) {
	servers := []raft.Server{{ID: "n1"}, {ID: "n2"}, {ID: "n3"}, {ID: "n4", Suffrage: raft.Nonvoter}}
	const term = 7
	for _, test := range []struct {
		name string
		note func(*contacts)
		want bool
	}{
		{"nobody answered", func(*contacts) {}, false},
		{"a voter, asked since", func(c *contacts) { c.note("n2", term, noon) }, true},
		{"a voter, asked before", func(c *contacts) { c.note("n2", term, noon.Add(-1)) }, false},
		{"a voter, in another term", func(c *contacts) { c.note("n2", term-1, noon) }, false},
		{"a non-voter", func(c *contacts) { c.note("n4", term, noon) }, false},
		{"a late answer behind a newer one", func(c *contacts) { c.note("n3", term, noon); c.note("n3", term, noon.Add(-1)) }, true},
	} {
		var c contacts
		test.note(&c)
		if got := c.quorum("n1", servers, term, noon); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

func TestAMemberThatConfirmsNoEntryIsStalled(t *testing.T) {
	began := time.Now()
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	var c contacts
	c.note("n2", 3, at(0))
	c.match("n2", 3, 10, at(1))
	c.note("n2", 3, at(8)) // a heartbeat confirms nothing
	for _, step := range []struct {
		term, last uint64
		now, want  int
	}{
		{3, 10, 9, 0}, // it lacks nothing
		{3, 11, 9, 8},
		{4, 11, 9, 0}, // nothing is known of it in this term
	} {
		if got := c.stalled("n2", step.term, step.last, at(step.now)); got != time.Duration(step.want)*time.Second {
			t.Errorf("%+v: %v", step, got)
		}
	}
	c.match("n2", 2, 11, at(9)) // an answer of an earlier term
	if got := c.stalled("n2", 3, 11, at(9)); got != 8*time.Second {
		t.Errorf("after an old answer: %v", got)
	}
}

// A node stops serving if a leader lacks what it had applied, and not for a report of a leader
// that was asked before, or of an earlier term.
func TestALeaderThatLacksWhatWasAppliedIsAContradiction(t *testing.T) {
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	moments := []moment{{at(0), 3, 10}, {at(1), 3, 20}, {at(2), 4, 30}}
	for _, test := range []struct {
		name   string
		asked  int
		report Report
		want   bool
	}{
		{"it has all", 2, Report{Role: RoleLeader, Term: 4, LastIndex: 30}, false},
		{"it lacks one", 2, Report{Role: RoleLeader, Term: 4, LastIndex: 29}, true},
		{"it was asked before that was applied", 1, Report{Role: RoleLeader, Term: 4, LastIndex: 29}, false},
		{"it lacked one of those before", 1, Report{Role: RoleLeader, Term: 4, LastIndex: 19}, true},
		{"it is deposed and does not know", 2, Report{Role: RoleLeader, Term: 3, LastIndex: 20}, false},
		{"it follows", 2, Report{Role: RoleFollower, Term: 4, LastIndex: 20}, false},
		{"it was asked before anything is known", -1, Report{Role: RoleLeader, Term: 4, LastIndex: 1}, false},
	} {
		if got := ahead(moments, at(test.asked), test.report); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

// The log and the state's last entry tell which entry was applied, as long as they have it.
func TestWhatWasAppliedIsToldFromAnotherEntry(t *testing.T) {
	t.Parallel()
	c := voters(t, 1, nil)
	for i := range 5 {
		publish(t, c.leader(), i)
	}
	for _, restarted := range []bool{false, true} {
		if restarted {
			c.crash("n1")
			c.start("n1")
			c.leader()
		}
		n := c.nodes["n1"]
		first, err := n.stores.Log().FirstIndex()
		if err != nil {
			t.Fatal(err)
		}
		term := n.raft.Load().CurrentTerm()
		for index := first; index <= n.machine.Applied(); index++ {
			l := entryOf(t, n, index)
			if n.contradicts(term, index, l.Term) || !n.contradicts(term, index, l.Term+1) {
				t.Errorf("restarted %v: entry %d of term %d is taken for another", restarted, index, l.Term)
			}
			if n.contradicts(term-1, index, l.Term+1) {
				t.Errorf("restarted %v: a late request of a deposed leader contradicts entry %d", restarted, index)
			}
		}
		if n.contradicts(term, n.machine.Applied()+100, 1) {
			t.Error("an entry that is not there contradicts")
		}
	}
}

func TestADigestIsComparedWhereBothSidesKnowOne(t *testing.T) {
	d := func(index uint64, sum byte) IndexDigest { return IndexDigest{index, fsm.Sum{sum}} }
	own := func(index uint64) (sum fsm.Sum, known bool) {
		sums := map[uint64]byte{64: 1, 128: 2, 130: 3}
		return fsm.Sum{sums[index]}, sums[index] != 0
	}
	for _, test := range []struct {
		name  string
		other []IndexDigest
		want  bool
	}{
		{"the same at the newest that both have", []IndexDigest{d(64, 9), d(128, 2), d(140, 9)}, false},
		{"another there", []IndexDigest{d(64, 1), d(128, 7)}, true},
		{"nothing to compare", []IndexDigest{d(192, 5)}, false},
		{"nothing at all", nil, false},
	} {
		if got := differs(own, test.other); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

// Two nodes compare at an index that one of them has just applied, wherever that is.
func TestADigestIsReportedWhereItIsAskedFor(t *testing.T) {
	t.Parallel()
	c := voters(t, 1, nil)
	n := c.leader()
	for i := range 2 * digestStride {
		publish(t, n, i)
	}
	last := n.machine.Applied()
	for _, index := range []uint64{last - digestStride - 1, last - digestStride - 2, last - 1, last, last + 1} {
		sum, known := n.machine.DigestAt(index)
		list := n.Report(Question{DigestAt: index}).Digests
		if slices.Contains(list, IndexDigest{index, sum}) != known || known != (index <= last) {
			t.Errorf("index %d of %d: known %v, in the report %v", index, last, known, slices.Contains(list, IndexDigest{index, sum}))
		}
		if !slices.IsSortedFunc(list, func(a, b IndexDigest) int { return cmp.Compare(a.Index, b.Index) }) || len(list) > 64 {
			t.Errorf("%d digests: %v", len(list), list)
		}
	}
}

func TestANodeWhoseStateDiffersFromTheMajorityStopsServing(t *testing.T) {
	t.Parallel()
	for _, leads := range []bool{false, true} {
		t.Run(fmt.Sprintf("as leader %v", leads), func(t *testing.T) {
			c := voters(t, 3, nil)
			publish(t, c.leader(), 1)
			c.settle()
			odd := c.followers()[0].cfg.ID
			c.crash(odd)
			// The state machine of a faulty node decides the next entry in its own way.
			publish(t, c.leader(), 2)
			o := c.offlineOf(odd)
			var b frame.Builder
			b.Add(frame.SettingSet{Key: "dedup.window", Value: "61s"}, nil)
			_, err := o.machine.Apply(o.machine.Applied()+1, o.machine.Term(), b.Encode(frame.Seal{Time: noon, Proposer: odd}))
			if err = errors.Join(err, o.stores.Stable().SetUint64([]byte(keyInstalled), o.machine.Applied()), o.close()); err != nil {
				t.Fatal(err)
			}
			n := c.start(odd)
			if leads {
				_ = c.leader().StepDown(context.Background(), odd)
			}
			publish(t, c.leaderBut(n), 3)
			eventually(t, "it says that it differs", func() bool { return n.Status().Diverged && n.Report(Question{}).Diverged })
			if _, err := n.Propose(t.Context(), numbered(4)); !errors.Is(err, ErrDiverged) {
				t.Errorf("it still takes requests: %v", err)
			}
			if err := n.ReadBarrier(t.Context()); !errors.Is(err, ErrDiverged) {
				t.Errorf("it still serves reads: %v", err)
			}
			leader := c.leaderBut(n)
			publish(t, leader, 5)
			// Voters that know nothing of it may elect it: it does not keep the cluster.
			term := n.Status().Term
			_ = leader.raft.Load().LeadershipTransferToServer(raft.ServerID(odd), raft.ServerAddress(n.raftAddr())).Error()
			eventually(t, "an election", func() bool { return n.Status().Term > term })
			publish(t, c.leaderBut(n), 6)
			for _, m := range c.all() {
				if m != n && m.Diverged() {
					t.Errorf("%s of the majority stopped serving", m.cfg.ID)
				}
			}
		})
	}
}

// leaderBut waits for a leader other than n.
func (c *cluster) leaderBut(n *Node) *Node {
	c.t.Helper()
	var leader *Node
	eventually(c.t, "another leader than "+n.cfg.ID, func() bool {
		leader = nil
		for _, m := range c.nodes {
			if m != n && m.proposer.openTerm() != 0 {
				leader = m
			}
		}
		return leader != nil
	})
	return leader
}

// Raft would look for the entry that a state ends with in its log, which does not lead there,
// once another follows it: whenever a leader had no answer and sends that one again.
func TestTheFirstEntryBehindTheStateIsTakenTwice(t *testing.T) {
	list := entries(6)
	state, next := list[:5], list[5]
	for name, stand := range map[string]func(*testing.T) *machineAdapter{
		"restarted": func(t *testing.T) *machineAdapter {
			dir := t.TempDir()
			a := view(t, nil, dir)
			a.feed(t, state)
			if err := a.machine.Close(); err != nil {
				t.Fatal(err)
			}
			return view(t, nil, dir)
		},
		"installed": func(t *testing.T) *machineAdapter {
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
			n := &Node{machine: a.machine, snapshots: a.snapshots}
			transport, from := rawTransport(t, "n1", n.covers), rawTransport(t, "n2", n.covers)
			log := guardedLog{LogStore: raft.NewInmemStore(), durable: a.snapshots.durable.Load, base: a.snapshots.base.Load}
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
				req := raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("n2"), Addr: []byte(from.LocalAddr())},
					Term: 2, PrevLogEntry: last.Index, PrevLogTerm: last.Term, Entries: []*raft.Log{next}, LeaderCommitIndex: last.Index}
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
