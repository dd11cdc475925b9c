package raftstore

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
	"pgregory.net/rapid"
)

// model is a dense log in memory.
type model struct{ logs []*raft.Log }

func (m *model) last() uint64 {
	if len(m.logs) == 0 {
		return 0
	}
	return m.logs[len(m.logs)-1].Index
}

// TestStoreBehavesAsADenseLog drives a store and a model with the same
// operations, restarts and crashes among them.
func TestStoreBehavesAsADenseLog(t *testing.T) {
	base := t.TempDir()
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		dir := filepath.Join(base, fmt.Sprint(runs))
		run := &contractRun{t: t, dir: dir, s: openUnmanaged(t, dir)}
		rt.Repeat(map[string]func(*rapid.T){
			"append":        run.append,
			"append few":    run.appendFew,
			"append gap":    run.appendGap,
			"crash":         run.crash,
			"delete prefix": run.deletePrefix,
			"delete suffix": run.deleteSuffix,
			"restart":       run.restart,
			"":              run.compare,
		})
		closeStores(t, run.s)
		os.RemoveAll(run.dir)
	})
}

func openUnmanaged(t testing.TB, dir string) *Stores {
	s, err := Open(Options{Dir: dir, Fatal: func(err error) { t.Errorf("fatal: %v", err) }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type contractRun struct {
	t   *testing.T
	dir string
	s   *Stores
	model
}

func (r *contractRun) store(first, count uint64, term uint64) {
	logs := entries(first, first+count-1, term)
	before := fmt.Sprintf("%+v", *logs[0])
	if err := r.s.Log().StoreLogs(logs); err != nil {
		r.t.Fatal(err)
	}
	if after := fmt.Sprintf("%+v", *logs[0]); after != before {
		r.t.Fatalf("the caller's entry changed: %s, was %s", after, before)
	}
	r.logs = append(r.logs, logs...)
}

func (r *contractRun) append(rt *rapid.T) {
	r.store(r.last()+1, rapid.Uint64Range(1, 600).Draw(rt, "count"), rapid.Uint64Range(1, 9).Draw(rt, "term"))
}

func (r *contractRun) appendFew(rt *rapid.T) {
	r.store(r.last()+1, rapid.Uint64Range(1, 9).Draw(rt, "count"), rapid.Uint64Range(1, 9).Draw(rt, "term"))
}

// appendGap is what raft does after it installed a snapshot.
func (r *contractRun) appendGap(rt *rapid.T) {
	first := r.last() + rapid.Uint64Range(2, 1000).Draw(rt, "gap")
	r.logs = nil
	r.store(first, rapid.Uint64Range(1, 5).Draw(rt, "count"), 9)
}

func (r *contractRun) deletePrefix(rt *rapid.T) {
	n := rapid.IntRange(0, len(r.logs)).Draw(rt, "n")
	if n == 0 {
		return
	}
	r.delete(r.logs[0].Index, r.logs[n-1].Index)
	r.logs = slices.Clone(r.logs[n:])
}

func (r *contractRun) deleteSuffix(rt *rapid.T) {
	n := rapid.IntRange(0, len(r.logs)).Draw(rt, "n")
	if n == len(r.logs) {
		return
	}
	r.delete(r.logs[n].Index, r.last())
	r.logs = slices.Clone(r.logs[:n])
}

func (r *contractRun) delete(low, high uint64) {
	if err := r.s.Log().DeleteRange(low, high); err != nil {
		r.t.Fatal(err)
	}
}

func (r *contractRun) restart(*rapid.T) {
	closeStores(r.t, r.s)
	r.s = openUnmanaged(r.t, r.dir)
}

// crash continues with what a killed process leaves.
func (r *contractRun) crash(*rapid.T) {
	dir := copyDir(r.t, r.dir)
	closeStores(r.t, r.s)
	os.RemoveAll(r.dir)
	r.dir, r.s = dir, openUnmanaged(r.t, dir)
}

func (r *contractRun) compare(*rapid.T) {
	first, last, err := r.s.log.span()
	if err != nil {
		r.t.Fatal(err)
	}
	want := uint64(0)
	if len(r.logs) > 0 {
		want = r.logs[0].Index
	}
	if first != want || last != r.last() {
		r.t.Fatalf("log is %d to %d, want %d to %d", first, last, want, r.last())
	}
	for _, l := range r.logs {
		wantEntry(r.t, r.s, l)
	}
	if err := r.s.Log().GetLog(last+1, new(raft.Log)); err != raft.ErrLogNotFound {
		r.t.Fatalf("entry %d after the end: %v", last+1, err)
	}
}

func TestEntriesThatDoNotFollowAreRefusedAndNotFatal(t *testing.T) {
	s := openStores(t, t.TempDir())
	store(t, s, 5, 10, 1)
	for _, logs := range [][]*raft.Log{
		entries(10, 11, 1),
		{entry(11, 1), entry(13, 1)},
		{entry(12, 1), entry(11, 1)},
		{entry(0, 1)},
	} {
		wantError(t, s.Log().StoreLogs(logs), ErrNotContiguous)
	}
	if err := s.Log().DeleteRange(6, 9); err == nil {
		t.Error("a hole was deleted")
	}
	wantSpan(t, s, 5, 10, 1)
}

// deletions records what reaches the store below.
type deletions struct {
	innerLog
	ranges [][2]uint64
	crash  func() // before each deletion
}

func (d *deletions) DeleteRange(low, high uint64) error {
	if d.crash != nil {
		d.crash()
	}
	d.ranges = append(d.ranges, [2]uint64{low, high})
	return d.innerLog.DeleteRange(low, high)
}

// TestBoltDeletesInChunksThatLeaveADenseLog crashes before each chunk.
func TestBoltDeletesInChunksThatLeaveADenseLog(t *testing.T) {
	for _, c := range []struct {
		name      string
		low, high uint64
		chunks    [][2]uint64
		crashed   [][2]uint64 // the log that a crash before each chunk leaves
	}{
		{"prefix", 1, 600, [][2]uint64{{1, 256}, {257, 512}, {513, 600}}, [][2]uint64{{1, 1000}, {257, 1000}, {513, 1000}}},
		{"suffix", 401, 1000, [][2]uint64{{745, 1000}, {489, 744}, {401, 488}}, [][2]uint64{{1, 1000}, {1, 744}, {1, 488}}},
		{
			"all",
			1,
			1000,
			[][2]uint64{{1, 256}, {257, 512}, {513, 768}, {769, 1000}},
			[][2]uint64{{1, 1000}, {257, 1000}, {513, 1000}, {769, 1000}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			below := &deletions{}
			dir := t.TempDir()
			s, err := open(Options{Dir: dir, Fatal: func(err error) { t.Error(err) }}, func(in innerLog) innerLog {
				below.innerLog = in
				return below
			})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			store(t, s, 1, 1000, 3)
			var crashed []string
			below.crash = func() { crashed = append(crashed, copyDir(t, dir)) }
			if err := s.Log().DeleteRange(c.low, c.high); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.chunks, below.ranges); diff != "" {
				t.Fatalf("chunks (-want +got):\n%s", diff)
			}
			for i, left := range crashed {
				wantSpan(t, openStores(t, left), c.crashed[i][0], c.crashed[i][1], 3)
			}
		})
	}
}

// countingFSM counts what raft applies.
type countingFSM struct{ raft.MockFSM }

// TestRaftGoesOnAfterASnapshotGap restores a snapshot of a later index into a
// running raft, below raft's own cache as in production.
func TestRaftGoesOnAfterASnapshotGap(t *testing.T) {
	dir := t.TempDir()
	s := openStores(t, dir)
	cache, err := raft.NewLogCache(8, s.Log())
	if err != nil {
		t.Fatal(err)
	}
	r := startRaft(t, cache, s.Stable())
	apply(t, r, 20)
	restoreSnapshot(t, r, 500)
	apply(t, r, 5)
	if err := r.Shutdown().Error(); err != nil {
		t.Fatal(err)
	}
	first, last, err := s.log.span()
	if err != nil || first <= 500 || last < 505 {
		t.Fatalf("log is %d to %d (%v), want it to begin after the snapshot", first, last, err)
	}
	term, err := s.Stable().GetUint64([]byte(keyVoteTerm))
	if err != nil || term == 0 {
		t.Fatalf("vote of term %d: %v", term, err)
	}
	closeStores(t, s)
	openStores(t, dir)
}

func startRaft(t *testing.T, logs raft.LogStore, stable raft.StableStore) *raft.Raft {
	t.Helper()
	conf := raft.DefaultConfig()
	conf.LocalID = "n1"
	conf.HeartbeatTimeout = 50 * time.Millisecond
	conf.ElectionTimeout = 50 * time.Millisecond
	conf.LeaderLeaseTimeout = 50 * time.Millisecond
	conf.LogLevel = "ERROR"
	addr, trans := raft.NewInmemTransport("n1")
	snaps := raft.NewInmemSnapshotStore()
	members := raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: addr}}}
	if err := raft.BootstrapCluster(conf, logs, stable, snaps, trans, members); err != nil {
		t.Fatal(err)
	}
	r, err := raft.NewRaft(conf, &countingFSM{}, logs, stable, snaps, trans)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.LeaderCh():
	case <-time.After(10 * time.Second):
		t.Fatal("no leader")
	}
	return r
}

func apply(t *testing.T, r *raft.Raft, n int) {
	t.Helper()
	for range n {
		if err := r.Apply([]byte("x"), 10*time.Second).Error(); err != nil {
			t.Fatal(err)
		}
	}
}

func restoreSnapshot(t *testing.T, r *raft.Raft, index uint64) {
	t.Helper()
	snap := r.Snapshot()
	if err := snap.Error(); err != nil {
		t.Fatal(err)
	}
	meta, content, err := snap.Open()
	if err != nil {
		t.Fatal(err)
	}
	later := *meta
	later.Index = index
	if err := r.Restore(&later, content, 10*time.Second); err != nil {
		t.Fatal(err)
	}
}

// TestSealCoversEveryField changes each field of a stored entry.
func TestSealCoversEveryField(t *testing.T) {
	changes := map[string]func(*raft.Log){
		"index":      func(l *raft.Log) { l.Index++ },
		"term":       func(l *raft.Log) { l.Term ^= 1 },
		"type":       func(l *raft.Log) { l.Type ^= 1 },
		"time":       func(l *raft.Log) { l.AppendedAt = l.AppendedAt.Add(1) },
		"data":       func(l *raft.Log) { l.Data = append([]byte("E"), l.Data[1:]...) },
		"data cut":   func(l *raft.Log) { l.Data = l.Data[1:] },
		"extensions": func(l *raft.Log) { l.Extensions[0] ^= 1 },
		"moved":      func(l *raft.Log) { l.Data, l.Extensions = l.Data[1:], append([]byte{l.Data[0]}, l.Extensions...) },
		"format":     func(l *raft.Log) { l.Extensions[len(l.Extensions)-5] ^= 1 },
		"checksum":   func(l *raft.Log) { l.Extensions[len(l.Extensions)-1] ^= 1 },
		"no seal":    func(l *raft.Log) { l.Extensions = nil },
	}
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		l := seal(entry(3, 2))
		index := l.Index
		if name == "index" {
			index++
		}
		changes[name](&l)
		if err := unseal(&l, index); err == nil {
			t.Errorf("%s changed and the checksum did not notice", name)
		}
	}
	l := seal(entry(3, 2))
	if err := unseal(&l, 4); err == nil {
		t.Error("entry 3 passed as entry 4")
	}
	// The zone of the time is not covered, so it is not read either.
	l = seal(entry(3, 2))
	l.AppendedAt = l.AppendedAt.In(time.FixedZone("", 3600))
	if err := unseal(&l, 3); err != nil || !reflect.DeepEqual(&l, entry(3, 2)) {
		t.Errorf("in another zone: %v, read as %+v", err, l)
	}
}
