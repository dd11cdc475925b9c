package raftnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/view/engine"
	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/raftstore"
	"github.com/ringrift/ringlog/raftnode/statestore"
	"github.com/ringrift/ringlog/snapshots"
)

// keyCurrentTerm is raft's own key in the stable store.
const keyCurrentTerm = "CurrentTerm"

// Recovered says from where a recovered or restored node continues.
type Recovered struct {
	NodeID    string             `json:"node_id"`
	ClusterID string             `json:"cluster_id"`
	Index     uint64             `json:"index"`    // of the new configuration
	Term      uint64             `json:"term"`     // of the new configuration
	Replayed  uint64             `json:"replayed"` // entries applied that were not before
	Offset    uint64             `json:"last_offset"`
	Servers   []fsm.ConfigMember `json:"members"`
	Snapshot  *snapshots.Meta    `json:"snapshot,omitempty"`
}

// Recover gives the stopped node in dir the configuration members, after most
// voters of its cluster are lost for good. Its whole raft log is applied, whether
// it was committed or not: that is known only to the voters that are lost.
//
// It is a new cluster with an id of its own, as after a restore. Should the others
// only have been out of reach, they keep the old one, and neither side mistakes the
// other's nodes for its members.
//
// What may be lost: entries that were acknowledged by a majority this node was
// not part of. What may appear: requests whose outcome was unknown, or that were
// refused with ErrOutcomeUnknown. So recover only the survivor whose last entry has the
// highest term, and among equal terms the highest index, and let the others join it with
// emptied folders. Never recover a node whose cluster still has a quorum. The first leader
// forgets members that are not named.
//
// It may be repeated after a crash.
func Recover(ctx context.Context, dir string, members []fsm.ConfigMember, logger hclog.Logger) (Recovered, error) {
	raw, err := encodeConfiguration(members)
	if err != nil {
		return Recovered{}, fmt.Errorf("recover %s: %w", dir, err)
	}
	// Before it is opened: the folder says whose it is, and is not changed by a wrong call.
	m, err := datadir.Inspect(dir)
	if err != nil {
		return Recovered{}, err
	}
	// The others come with empty folders: without its vote nobody could lead.
	if !slices.ContainsFunc(members, func(c fsm.ConfigMember) bool { return c.ID == m.NodeID && c.Voter }) {
		return Recovered{}, fmt.Errorf("recover %s: %w: %s", dir, ErrNoSurvivor, m.NodeID)
	}
	o, err := openOffline(dir, m.NodeID, logger)
	if err != nil {
		return Recovered{}, err
	}
	done, err := o.recover(ctx, raw, members)
	err = errors.Join(err, o.close())
	if err != nil {
		return Recovered{}, fmt.Errorf("recover %s: %w", dir, err)
	}
	return done, nil
}

// encodeConfiguration encodes members as raft does. It refuses a configuration without a voter, and one with an id or
// address twice.
func encodeConfiguration(members []fsm.ConfigMember) ([]byte, error) {
	var c raft.Configuration
	voters := 0
	// Nobody checks this later: the configuration is stored as if raft had accepted it.
	ids, addresses := map[string]bool{}, map[string]bool{}
	for _, m := range members {
		if m.ID == "" || m.Addr == "" || ids[m.ID] || addresses[m.Addr] {
			return nil, fmt.Errorf("member %q at %q: id and address must be set and differ: %w",
				m.ID, m.Addr, ErrDuplicateAddress)
		}
		ids[m.ID], addresses[m.Addr] = true, true
		suffrage := raft.Nonvoter
		if m.Voter {
			suffrage, voters = raft.Voter, voters+1
		}
		c.Servers = append(c.Servers, raft.Server{
			Suffrage: suffrage,
			ID:       raft.ServerID(m.ID),
			Address:  raft.ServerAddress(m.Addr),
		})
	}
	if voters == 0 {
		return nil, fmt.Errorf("%w: no member has a vote", ErrLastVoter)
	}
	return raft.EncodeConfiguration(c), nil
}

// offline is a stopped node's folder, open for a tool.
type offline struct {
	dir     *datadir.Dir // locked: no node can run in it
	stores  *raftstore.Stores
	views   *engine.Engine // folded as a node does, so nothing is trimmed that they lack
	machine *fsm.Machine
	failed  chan error // holds the first error that Fatal was called with
}

// fatal keeps an error that would end a node. A tool has none to end: close returns the first.
func (o *offline) fatal(err error) {
	select {
	case o.failed <- err:
	default:
	}
}

// openOffline opens the data folder of a stopped node without a transport or raft. It keeps the folder locked until
// close. On error nothing stays open.
func openOffline(path, nodeID string, logger hclog.Logger) (o *offline, err error) {
	if logger == nil {
		logger = hclog.NewNullLogger()
	}
	o = &offline{failed: make(chan error, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
		}
	}()
	// In the order in which a node opens them: the folder's lock first, then raft's log, and the state over it.
	o.dir, err = datadir.Open(path, datadir.Options{NodeID: nodeID})
	if err != nil {
		return o, err
	}
	o.stores, err = raftstore.Open(raftstore.Options{
		Dir:    o.dir.Path(datadir.RaftDir),
		Fatal:  o.fatal,
		Logger: logger,
	})
	if err != nil {
		return o, err
	}
	err = o.dir.MarkStoresCreated()
	if err != nil {
		return o, err
	}
	o.views, err = engine.Open(ViewOptions(o.dir.Path(datadir.ViewsDir), logger, o.fatal))
	if err != nil {
		return o, err
	}
	// The entries of the log that are applied may trim events that the views have not folded.
	o.machine, err = fsm.Open(fsm.Options{Dir: o.dir.Path(datadir.StateDir), Fatal: o.fatal, Logger: logger,
		BeforeTrim: o.views.BeforeTrim})
	if err != nil {
		return o, err
	}
	o.views.Start(o.machine)
	return o, reconcileLog(o.stores, o.machine.Position())
}

// close closes what is open, and returns with its own errors the one that Fatal was called with.
func (o *offline) close() error {
	var errs []error
	// Before what they are folded from.
	if o.views != nil {
		errs = append(errs, o.views.Close())
	}
	if o.machine != nil {
		errs = append(errs, o.machine.Close())
	}
	if o.stores != nil {
		errs = append(errs, o.stores.Close())
	}
	if o.dir != nil {
		errs = append(errs, o.dir.Close())
	}
	select {
	case err := <-o.failed:
		errs = append(errs, err)
	default:
	}
	return errors.Join(errs...)
}

// recover applies the log to its end and makes members, encoded in raw, the first configuration of a new cluster.
func (o *offline) recover(ctx context.Context, raw []byte, members []fsm.ConfigMember) (Recovered, error) {
	// A folder that never had an entry has nothing that could be lost, or recovered.
	if o.machine.Applied() == 0 {
		if last, err := o.stores.Log().LastIndex(); err != nil || last == 0 {
			return Recovered{}, errors.Join(err, errors.New("there is nothing to recover: the node never was in a cluster"))
		}
	}
	// Replayed counts what only the log had.
	before := o.machine.Applied()
	last, term, err := o.replay(ctx)
	if err != nil {
		return Recovered{}, err
	}
	// An id of its own: the members that come back later stay another cluster's.
	done, err := o.configure(last+1, term, raw, members, uuid.NewString())
	done.Replayed = last - min(last, before)
	return done, err
}

// replay applies the log to its end and returns the last index and the highest
// term that raft has known.
func (o *offline) replay(ctx context.Context) (last, term uint64, err error) {
	// Raft may have voted in a term of which it has no entry.
	term, err = o.stores.Stable().GetUint64([]byte(keyCurrentTerm))
	if err != nil {
		return 0, 0, err
	}
	end, err := o.stores.Log().LastIndex()
	if err != nil {
		return 0, 0, err
	}
	// If the log ends before the state, as after an installed snapshot, nothing is replayed.
	p := o.machine.Position()
	last, term = p.Index, max(term, p.Term)
	for index := p.Index + 1; index <= end; index++ {
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		// An entry that was stored and cannot be read must not be skipped: the state would be another.
		var l raft.Log
		if err := o.stores.Log().GetLog(index, &l); err != nil {
			return 0, 0, err
		}
		if _, err := statestore.ApplyEntry(o.machine, &l); err != nil {
			return 0, 0, err
		}
		last, term = index, max(term, l.Term)
	}
	return last, term, nil
}

// configure records a configuration of a new cluster as if an entry at index had
// held it, in a term above all others, and empties the log. The order keeps a crash
// at any point harmless: the marker without a cluster, which takes the state's when the
// node starts; the term and why the log ends early; the state; then the log.
func (o *offline) configure(
	index, highest uint64, raw []byte, members []fsm.ConfigMember, cluster string,
) (Recovered, error) {
	// A marker with the old cluster and a state of the new one would not open.
	if err := o.dir.LeaveCluster(); err != nil {
		return Recovered{}, err
	}
	term := highest + 1
	if err := o.stores.Stable().SetUint64([]byte(keyCurrentTerm), term); err != nil {
		return Recovered{}, err
	}
	// Explains at the next start why the log ends before the state.
	if err := o.stores.Stable().SetUint64([]byte(statestore.KeyInstalled), index); err != nil {
		return Recovered{}, err
	}
	// The state is durable before the log goes that it could be replayed from.
	if err := o.machine.Refound(index, term, raw, members, cluster); err != nil {
		return Recovered{}, err
	}
	if err := o.machine.Sync(); err != nil {
		return Recovered{}, err
	}
	if err := emptyLog(o.stores.Log()); err != nil {
		return Recovered{}, err
	}
	// What was before is another cluster's.
	if err := os.RemoveAll(o.dir.Path(datadir.HistoryDir)); err != nil {
		return Recovered{}, err
	}
	// Last: what is missing until here is done by the next start, or by a repetition.
	if err := o.dir.SetCluster(cluster, nil); err != nil {
		return Recovered{}, err
	}
	p := o.machine.Position()
	return Recovered{
		NodeID:    o.dir.Marker().NodeID,
		ClusterID: p.ClusterID,
		Index:     p.Index,
		Term:      p.Term,
		Offset:    p.Last,
		Servers:   members,
	}, nil
}

// emptyLog deletes all entries of a log.
func emptyLog(log raft.LogStore) error {
	first, err := log.FirstIndex()
	if err != nil {
		return err
	}
	last, err := log.LastIndex()
	if err != nil || last == 0 {
		return err
	}
	return log.DeleteRange(first, last)
}

// Target says where a snapshot is restored to.
type Target struct {
	Dir      string // must not exist or be empty
	NodeID   string // of the one voter it will have
	RaftAddr string // of that voter; "" lets it name its own when it starts
	Logger   hclog.Logger
}

// unknownAddr is the address in a restored configuration until the node has started and records its own.
const unknownAddr = "unknown:0"

// Restore makes a new cluster of one voter out of a snapshot: a fresh cluster
// id, everything else as it was saved, terms above the snapshot's. Other nodes
// join it with empty folders. On error the folder is as it was.
func Restore(ctx context.Context, r io.Reader, to Target) (done Recovered, err error) {
	orDefault(&to.RaftAddr, unknownAddr)
	if err := requireEmpty(to.Dir); err != nil {
		return Recovered{}, err
	}
	// A restore that failed may be repeated: it must find the folder empty again.
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("restore into %s: %w", to.Dir, err), clearFolder(to.Dir))
		}
	}()
	o, err := openOffline(to.Dir, to.NodeID, to.Logger)
	if err != nil {
		return Recovered{}, err
	}
	done, err = o.restore(ctx, r, to)
	return done, errors.Join(err, o.close())
}

// restore receives a snapshot into the empty folder and makes it the state of a new cluster.
func (o *offline) restore(ctx context.Context, r io.Reader, to Target) (Recovered, error) {
	// Read checks what it receives: nothing that is damaged gets past this.
	incoming := o.dir.Path(datadir.SnapshotsDir)
	meta, err := snapshots.Read(ctx, r, incoming)
	if err != nil {
		return Recovered{}, err
	}
	// In the archive the files of the views are among those of the state.
	folded, err := statestore.SplitViews(incoming)
	if err != nil {
		return Recovered{}, err
	}
	// One voter leads without asking anybody, and admits the others.
	members := []fsm.ConfigMember{{ID: to.NodeID, Addr: to.RaftAddr, Voter: true}}
	raw, err := encodeConfiguration(members)
	if err != nil {
		return Recovered{}, err
	}
	// The state gets its new identity before it is put in place: this folder never is one of the old cluster.
	cluster := uuid.NewString()
	p, err := fsm.Reassign(incoming, nil, cluster, members, raw)
	if err != nil {
		return Recovered{}, err
	}
	// The archive says of itself where it was taken; the state in it has to agree.
	if p.Index != meta.Index || p.Term != meta.Term {
		return Recovered{}, fmt.Errorf("%w: announced as %d of term %d, holds %d of term %d",
			snapshots.ErrCorrupt, meta.Index, meta.Term, p.Index, p.Term)
	}
	// What was folded of events that are trimmed is in the backup alone. From here on the state is in place, with a
	// marker that knows no cluster.
	if err := o.views.Swap(folded, func() error { return o.machine.Swap(incoming) }); err != nil {
		return Recovered{}, err
	}
	done, err := o.configure(p.Index+1, p.Term, raw, members, cluster)
	done.Snapshot = &meta
	return done, err
}

// requireEmpty returns ErrNotEmpty if there is anything in dir. A folder that does not exist is empty.
func requireEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("restore into %s: %w", dir, err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("restore into %s: %w: name another folder", dir, ErrNotEmpty)
	}
	return nil
}

// clearFolder removes what a failed restore has left.
func clearFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		// The folder itself stays: it may have been there before.
		err = errors.Join(err, os.RemoveAll(dir+string(os.PathSeparator)+e.Name()))
	}
	return err
}

// halfTime returns a function for a long loop to call now and then: it sleeps for as long as the loop has worked
// since the last call, up to 50 ms. Without it, a backup would keep a processor for seconds, and what is published
// meanwhile would wait.
func halfTime(ctx context.Context) func() {
	const least, most = time.Millisecond, 50 * time.Millisecond
	began := time.Now()
	return func() {
		// As long as it worked it sleeps: half of the time is others'.
		worked := time.Since(began)
		// A shorter sleep costs more than it yields.
		if worked < least {
			return
		}
		select {
		case <-time.After(min(worked, most)):
		case <-ctx.Done():
		}
		began = time.Now()
	}
}

// Backup writes the state as it is now, in the snapshots format, from any node.
func (n *Node) Backup(ctx context.Context, w io.Writer) (snapshots.Meta, error) {
	if n.machine.Applied() == 0 {
		return snapshots.Meta{}, fmt.Errorf("backup: the node has no state yet: %w", n.NoLeaderError())
	}
	// A backup with a hole would be found out too late.
	if err := n.machine.VerifyLog(ctx, halfTime(ctx)); err != nil {
		return snapshots.Meta{}, fmt.Errorf("backup: %w", err)
	}
	// A checkpoint: what is applied from here on is not part of the backup.
	dir, p, meta, err := n.snapshots.Freeze()
	if err != nil {
		return snapshots.Meta{}, err
	}
	// The folder of the checkpoint is removed whether it could be sent or not.
	err = snapshots.Write(ctx, w, dir, meta)
	err = errors.Join(err, os.RemoveAll(dir))
	if err != nil {
		return snapshots.Meta{}, fmt.Errorf("backup at %d: %w", p.Index, err)
	}
	// A time that cannot be recorded makes the backup no worse.
	now := time.Now()
	n.backup.Store(&now)
	if err := n.dir.NoteBackup(now); err != nil {
		n.logger.Warn("could not record when the backup was made", "error", err)
	}
	return meta, nil
}
