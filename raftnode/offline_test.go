package raftnode

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/view/engine"
	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/raftstore"
	"github.com/ringrift/ringlog/raftnode/rafttransport"
	"github.com/ringrift/ringlog/snapshots"
)

// offlineOf opens a crashed node's folder for a test.
func (c *cluster) offlineOf(id string) *offline {
	c.t.Helper()
	o, err := openOffline(c.config[id].Dir, id, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return o
}

func TestASurvivorOfALostQuorumIsRecoveredWithAllItHas(t *testing.T) {
	t.Parallel()
	c := voters(t, 3, nil)
	for i := range 10 {
		publish(t, c.leader(), i)
	}
	c.settle()
	survivor := c.leader()
	id, cluster, term := survivor.cfg.ID, survivor.machine.ClusterID(), survivor.raft.Load().CurrentTerm()
	for _, n := range c.all() {
		c.crash(n.cfg.ID)
	}
	// An entry that only the survivor has: nobody knows that it was committed.
	o := c.offlineOf(id)
	last, err := o.stores.Log().LastIndex()
	var b frame.Builder
	r := numbered(99)
	b.Add(r.Command, r.Batch)
	data := b.Encode(frame.Seal{Time: noon, Proposer: id})
	err = errors.Join(err,
		o.stores.Log().StoreLog(&raft.Log{Index: last + 1, Term: term, Type: raft.LogCommand, Data: data}), o.close())
	if err != nil {
		t.Fatal(err)
	}
	members := []fsm.ConfigMember{{ID: id, Addr: c.config[id].RaftBind, Voter: true}}
	for range 2 { // it may be repeated
		done, err := Recover(t.Context(), c.config[id].Dir, members, nil)
		if err != nil || done.ClusterID == "" || done.ClusterID == cluster || done.Term <= term {
			t.Fatalf("%+v, %v", done, err)
		}
		cluster, term = done.ClusterID, done.Term
	}
	c.start(id)
	n := c.leader()
	if id := n.machine.ClusterID(); id != cluster || n.dir.Marker().ClusterID != cluster {
		t.Errorf("it serves as %s, its marker says %s, want %s", id, n.dir.Marker().ClusterID, cluster)
	}
	if n.raft.Load().CurrentTerm() <= term {
		t.Errorf("term %d after %d", n.raft.Load().CurrentTerm(), term)
	}
	if got := publish(t, n, 99); len(got.Duplicates) == 0 {
		if e, err := n.machine.Log().Get(got.First - 1); err == nil && string(e.Payload) != `{"n": 99}` {
			t.Error("the entry that only the survivor had is gone")
		}
	}
	// The others come back empty, once the leader has forgotten their old folders.
	other := "n1"
	if id == other {
		other = "n2"
	}
	if err := os.RemoveAll(c.config[other].Dir); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lost members are forgotten", func() bool { return len(n.machine.Members()) == 1 })
	c.start(other)
	eventually(t, "it has a vote again", func() bool { return slices.Contains(n.roster.Voters(), other) })
	c.settle()
}

// Whoever recovers a node while the others were only out of reach has two clusters. Each goes
// on by itself, whatever is restarted: nothing that either has acknowledged is taken from it.
func TestARecoveredNodeIsNoMemberOfItsOldCluster(t *testing.T) {
	t.Parallel()
	c := voters(t, 3, nil)
	publish(t, c.leader(), 1)
	c.settle()
	for _, id := range []string{"n1", "n2", "n3"} {
		c.crash(id)
	}
	cfg := c.config["n1"]
	cfg.Join, cfg.BootstrapExpect = nil, 0
	c.config["n1"] = cfg
	alone := []fsm.ConfigMember{{ID: "n1", Addr: cfg.RaftBind, Voter: true}}
	if _, err := Recover(t.Context(), cfg.Dir, alone, nil); err != nil {
		t.Fatal(err)
	}
	n1 := c.start("n1")
	eventually(t, "the recovered node leads", func() bool { return n1.proposer.OpenTerm() != 0 })
	kept := publish(t, n1, 100).First
	c.start("n2")
	c.start("n3")
	old := c.leaderBut(n1)
	for i := range 20 { // the old cluster gets ahead
		publish(t, old, 200+i)
	}
	ahead := old.machine.Applied()
	for _, restarted := range []bool{false, true} {
		if restarted {
			c.crash("n1")
			n1 = c.start("n1")
		}
		eventually(t, "the old members' connections are refused", func() bool {
			refusals := append(old.transport.Refusals(), n1.transport.Refusals()...)
			return slices.ContainsFunc(refusals, func(r rafttransport.Refusal) bool {
				return r.Reason == "other_cluster"
			})
		})
		eventually(t, "the recovered node leads", func() bool { return n1.proposer.OpenTerm() != 0 })
		if e, err := n1.machine.Log().Get(kept); err != nil || string(e.Payload) != `{"n": 100}` ||
			n1.machine.Applied() >= ahead {
			t.Fatalf("restarted %v: the recovered node is at %d with %s at %d, %v", restarted, n1.machine.Applied(),
				e.Payload, kept, err)
		}
		kept = publish(t, n1, 101).First - 1
	}
	publish(t, old, 300)
}

// Of a cluster that was recovered from one node, the others end once they have no leader: also
// one that ran all the time, and one that is started where the recovered cluster is. The recovered
// node continues, though its seeds and most places of its members are theirs.
func TestNodesOfAClusterThatWasRecoveredWithoutThemEnd(t *testing.T) {
	inBubble(t, func(s *simulation) {
		t := s.t
		var mu sync.Mutex
		ended := map[string]error{}
		fatal := func(id string) func(error) {
			return func(err error) {
				mu.Lock()
				defer mu.Unlock()
				ended[id] = errors.Join(ended[id], err)
			}
		}
		end := func(id string) error {
			mu.Lock()
			defer mu.Unlock()
			return ended[id]
		}
		for _, id := range s.ids {
			cfg := s.config[id]
			cfg.Fatal = fatal(id)
			s.config[id] = cfg
			s.crash(id)
			s.start(id)
		}
		s.write(0)()
		s.settle()
		time.Sleep(5 * time.Second) // all are certain that they belong
		s.crash("n1")
		s.crash("n2")
		time.Sleep(30 * time.Second)
		var members []fsm.ConfigMember
		for _, id := range s.ids {
			members = append(members, fsm.ConfigMember{ID: id, Addr: s.config[id].RaftBind, Voter: true})
		}
		old := s.nodes["n3"].machine.ClusterID()
		done, err := Recover(t.Context(), s.config["n1"].Dir, members, nil)
		if err != nil {
			t.Fatal(err)
		}

		// The old majority is there: both continue, and nobody has to end.
		s.start("n2")
		s.start("n1")
		time.Sleep(time.Minute)
		if end("n1") != nil || end("n2") != nil || end("n3") != nil {
			t.Fatalf("ended beside a quorum of the old cluster: %v", ended)
		}
		if got := s.nodes["n1"].Report(Question{}); !slices.Equal(got.Predecessors, []string{old}) ||
			got.ClusterID != done.ClusterID {
			t.Errorf("n1 is of %s, after %v, want %s after %s", got.ClusterID, got.Predecessors, done.ClusterID, old)
		}

		s.crash("n2")
		time.Sleep(time.Minute)
		for range 2 {
			if err := end("n3"); !errors.Is(err, ErrRecoveredWithout) || !strings.Contains(err.Error(), done.ClusterID) {
				t.Errorf("n3 of the old cluster, without a leader: %v", err)
			}
			if err := end("n1"); err != nil {
				t.Errorf("the recovered node ended: %v", err)
			}
			mu.Lock()
			delete(ended, "n3")
			mu.Unlock()
			s.crash("n3")
			s.start("n3") // it comes back once more
			time.Sleep(time.Minute)
		}
		err = s.nodes["n1"].changes.Admissible(s.nodes["n3"].roster.Self(), MemberOptions{ClusterID: old}, true)
		if !errors.Is(err, ErrForeignFolder) || !strings.Contains(err.Error(), "recovered without it") {
			t.Errorf("n3 may be added with its old folder: %v", err)
		}
	})
}

func TestRecoverRefusesWhatCanNotBeACluster(t *testing.T) {
	t.Parallel()
	c := voters(t, 1, nil)
	dir := c.config["n1"].Dir
	self := fsm.ConfigMember{ID: "n1", Addr: "a:1", Voter: true}
	if _, err := Recover(t.Context(), dir, []fsm.ConfigMember{self}, nil); !errors.Is(err, datadir.ErrInUse) {
		t.Errorf("on a running node: %v", err)
	}
	c.crash("n1")
	for name, members := range map[string][]fsm.ConfigMember{
		"nobody":          nil,
		"no voter":        {{ID: "n1", Addr: "a:1"}},
		"others":          {{ID: "n2", Addr: "b:1", Voter: true}, {ID: "n3", Addr: "c:1", Voter: true}},
		"without a vote":  {{ID: "n1", Addr: "a:1"}, {ID: "n2", Addr: "b:1", Voter: true}},
		"an id twice":     {self, {ID: "n1", Addr: "b:1", Voter: true}},
		"one address":     {self, {ID: "n2", Addr: "a:1", Voter: true}},
		"without address": {{ID: "n1", Voter: true}},
	} {
		if _, err := Recover(t.Context(), dir, members, nil); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := Recover(t.Context(), t.TempDir(), []fsm.ConfigMember{self}, nil); !errors.Is(err, datadir.ErrNoFolder) {
		t.Errorf("an empty folder: %v", err)
	}
}

// dump is the canonical dump without what names cluster and members.
func dump(t *testing.T, m *fsm.Machine) string {
	t.Helper()
	var b bytes.Buffer
	if err := m.Dump(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestABackupRestoresAsANewClusterThatOthersJoin(t *testing.T) {
	t.Parallel()
	c := voters(t, 3, nil)
	for i := range 20 {
		publish(t, c.leader(), i)
	}
	// The same again is answered as the first time, so it may be repeated where the leader changes.
	eventually(t, "the cursor is there", func() bool {
		_, err := c.leader().Propose(t.Context(), frame.Request{Command: frame.CursorCreate{Name: "trainer"}})
		return err == nil
	})
	c.settle()
	var file bytes.Buffer
	by := c.followers()[0]
	meta, err := by.Backup(t.Context(), &file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := snapshots.Verify(bytes.NewReader(file.Bytes())); err != nil {
		t.Fatal(err)
	}
	// The node that made it knows when, and its folder does.
	if at := by.Status().LastBackup; at.IsZero() || !by.dir.LastBackup().Equal(at) {
		t.Errorf("the last backup was at %s, in the folder at %s", at, by.dir.LastBackup())
	}
	old := c.leader().machine.ClusterID()

	d := newCluster(t, nil)
	cfg := d.member("r1")
	d.config["r1"] = cfg
	done, err := Restore(t.Context(), bytes.NewReader(file.Bytes()), Target{Dir: cfg.Dir, NodeID: "r1"})
	if err != nil {
		t.Fatal(err)
	}
	if done.ClusterID == old || done.Term <= meta.Term || done.Offset != meta.LastOffset {
		t.Errorf("%+v out of %+v", done, meta)
	}
	again := Target{Dir: cfg.Dir, NodeID: "r1"}
	if _, err := Restore(t.Context(), bytes.NewReader(file.Bytes()), again); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("over an existing folder: %v", err)
	}
	r1 := d.start("r1")
	d.leader()
	if got := publish(t, r1, 3); len(got.Duplicates) != 1 {
		t.Error("an event of the backup's dedup window was appended again")
	}
	if _, known := r1.machine.Cursor("trainer"); !known || r1.machine.Term() <= meta.Term {
		t.Errorf("cursor %v, term %d after %d", known, r1.machine.Term(), meta.Term)
	}
	for offset := uint64(1); offset <= meta.LastOffset; offset++ {
		want, err1 := c.leader().machine.Log().Get(offset)
		got, err2 := r1.machine.Log().Get(offset)
		if err1 != nil || err2 != nil || string(want.AppendJSON(nil)) != string(got.AppendJSON(nil)) {
			t.Fatalf("offset %d: %v %v, want %v %v", offset, got, err2, want, err1)
		}
	}
	r2 := d.joins("r2", func(cfg *Config) { cfg.Join = []string{"http://r1"} })
	eventually(t, "r2 has a vote", func() bool { return slices.Contains(r2.roster.Voters(), "r2") })
	d.settle()
	if dump(t, r1.machine) != dump(t, r2.machine) {
		t.Error("the dumps differ")
	}
	if s, _ := r1.roster.Server("r1"); string(s.Address) != r1.roster.Address() {
		t.Errorf("r1 is still listed at %s", s.Address)
	}
}

func TestARestoreThatFailsLeavesAnEmptyFolder(t *testing.T) {
	t.Parallel()
	c := voters(t, 1, nil)
	var file bytes.Buffer
	if _, err := c.leader().Backup(t.Context(), &file); err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(file.Bytes())
	damaged[len(damaged)/2] ^= 1
	dir := filepath.Join(t.TempDir(), "to")
	_, err := Restore(t.Context(), bytes.NewReader(damaged), Target{Dir: dir, NodeID: "r1"})
	if !errors.Is(err, snapshots.ErrCorrupt) {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestALogThatContradictsTheStateIsDroppedOnStart(t *testing.T) {
	t.Parallel()
	c := voters(t, 3, nil)
	for i := range 5 {
		publish(t, c.leader(), i)
	}
	c.settle()
	id := c.followers()[0].cfg.ID
	c.crash(id)
	// What a crash between a snapshot's arrival and the log's clean-up leaves: a
	// log of a deposed leader in an old term, where the state has a newer one.
	o := c.offlineOf(id)
	p := o.machine.Position()
	err := errors.Join(emptyLog(o.stores.Log()))
	for index := p.Index - 2; index <= p.Index+2; index++ {
		err = errors.Join(err, o.stores.Log().StoreLog(&raft.Log{Index: index, Term: p.Term - 1, Type: raft.LogCommand,
			Data: []byte("of a deposed leader")}))
	}
	if err = errors.Join(err, o.close()); err != nil {
		t.Fatal(err)
	}
	c.start(id)
	publish(t, c.leader(), 6)
	publish(t, c.leader(), 7)
	c.settle()

	// The log begins after the state now. Whatever the leader sends again, because it
	// had no answer, has to be taken, or the leader steps back and never comes forward.
	leader := c.leader()
	servers, log, last := leader.roster.Servers(), leader.stores.Log(), leader.raft.Load().LastIndex()
	to := servers[slices.IndexFunc(servers, func(s raft.Server) bool { return string(s.ID) == id })]
	entries := make([]*raft.Log, last+1)
	for i := uint64(1); i <= last; i++ {
		entries[i] = &raft.Log{}
		if err := log.GetLog(i, entries[i]); err != nil {
			t.Fatal(err)
		}
	}
	entries[0] = &raft.Log{}
	for before := range last {
		for through := before; through <= last; through++ {
			req := raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax,
				ID: []byte(leader.cfg.ID), Addr: []byte(leader.roster.Address())},
				Term: leader.machine.Term(), PrevLogEntry: before, PrevLogTerm: entries[before].Term,
				Entries: entries[before+1 : through+1], LeaderCommitIndex: last}
			var resp raft.AppendEntriesResponse
			if err := leader.transport.AppendEntries(to.ID, to.Address, &req, &resp); err != nil || !resp.Success {
				t.Errorf("%d to %d of %d, state from %d: %+v, %v", before+1, through, last, p.Index, resp, err)
			}
		}
	}
	c.settle()
}

func TestALogThatLostWhatTheStateStandsOnRefusesToStart(t *testing.T) {
	t.Parallel()
	c := voters(t, 1, nil)
	for i := range 5 {
		publish(t, c.leader(), i)
	}
	c.crash("n1")
	o := c.offlineOf("n1")
	last, err := o.stores.Log().LastIndex()
	if err = errors.Join(err, o.stores.Log().DeleteRange(last-2, last), o.close()); err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), c.config["n1"])
	if !errors.Is(err, raftstore.ErrBehindState) || !strings.Contains(fmt.Sprint(err), datadir.Rejoin) {
		t.Errorf("opened, or without a remedy: %v", err)
	}
}

// A recovery trims no events that the views of the node have not folded.
func TestARecoveryFoldsWhatItTrims(t *testing.T) {
	t.Parallel()
	c := voters(t, 1, nil)
	id := c.leader().cfg.ID
	declaration := `{"name": "v", "types": ["NUMBERED"], "key": "'all'", "fields": {"n": {"kind": "count"}}}`
	if _, err := c.leader().Propose(t.Context(), frame.Request{Command: frame.ViewDefine{Name: "v",
		Declaration: declaration}}); err != nil {
		t.Fatal(err)
	}
	term := c.leader().raft.Load().CurrentTerm()
	c.crash(id)
	// Entries that the node has not applied: events, and a trim of the first of them.
	o := c.offlineOf(id)
	last, err := o.stores.Log().LastIndex()
	for i := range 20 {
		e := event.New("NUMBERED", map[string]any{"i": i})
		var batch frame.Batch
		batch.Add(&e, e.Hash())
		var b frame.Builder
		b.Add(frame.Publish{Count: 1}, &batch)
		if i == 19 {
			b.Add(frame.Trim{Before: 15, Force: true}, nil)
		}
		last++
		data := b.Encode(frame.Seal{Time: noon, Proposer: id})
		err = errors.Join(err,
			o.stores.Log().StoreLog(&raft.Log{Index: last, Term: term, Type: raft.LogCommand, Data: data}))
	}
	if err := errors.Join(err, o.close()); err != nil {
		t.Fatal(err)
	}
	members := []fsm.ConfigMember{{ID: id, Addr: c.config[id].RaftBind, Voter: true}}
	if _, err := Recover(t.Context(), c.config[id].Dir, members, nil); err != nil {
		t.Fatal(err)
	}
	c.start(id)
	n := c.leader()
	first, end := n.machine.Log().Bounds()
	if first != 15 {
		t.Fatalf("the log begins at %d: nothing was trimmed", first)
	}
	if err := n.views.Wait(t.Context(), "v", end); err != nil {
		t.Fatal(err)
	}
	err = n.views.Read("v", func(r *engine.Reader) error {
		row, found, err := r.Show("all")
		if !found || r.Incomplete() || !strings.Contains(string(row), `"n":20`) {
			t.Errorf("%+v: %s", r.Status, row)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
