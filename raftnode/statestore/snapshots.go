package statestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/snapshots"
)

// ErrOtherCluster refuses the state of another cluster.
var ErrOtherCluster = errors.New("state and data folder name different clusters")

// KeyInstalled is where the stable store keeps the index of the newest snapshot
// that replaced the state: it explains a raft log that ends before the state.
const KeyInstalled = "InstalledSnapshot"

// Snapshots is raft's snapshot store without a snapshot in it: the state is
// durable by itself, so List describes the state, Open streams a checkpoint made
// at that moment, and only a snapshot received from a leader takes disk space,
// until Restore swaps it in.
//
// raft.RecoverCluster would hand a new configuration to Create alone and lose it
// here; Recover does that work in its place.
type Snapshots struct {
	machine *fsm.Machine     // the state
	views   Views            // what is folded beside it
	stable  raft.StableStore // has KeyInstalled
	dir     string           // for snapshots being received and for checkpoints being sent
	nodeID  string           // who made a snapshot
	logger  hclog.Logger

	number  atomic.Uint64            // of the newest folder in dir
	making  chan struct{}            // semaphore of one: held while a checkpoint is made or its failure waited out
	durable atomic.Uint64            // an index up to which the state is surely on disk
	base    atomic.Pointer[raft.Log] // the last entry of the state as it was opened or installed: index and term only

	mu       sync.Mutex        // guards received
	received *receivedSnapshot // complete and not yet swapped in; nil if there is none
}

var _ raft.SnapshotStore = (*Snapshots)(nil)

// OpenSnapshots empties dir, which holds only what an earlier run left unfinished,
// and makes the state durable.
func OpenSnapshots(
	m *fsm.Machine, v Views, stable raft.StableStore, dir, nodeID string, logger hclog.Logger,
) (*Snapshots, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("empty %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make %s: %w", dir, err)
	}
	s := &Snapshots{machine: m, views: v, stable: stable, dir: dir, nodeID: nodeID, logger: logger,
		making: make(chan struct{}, 1)}
	// The log may begin after this entry, so its term is kept here.
	p := m.Position()
	s.base.Store(&raft.Log{Index: p.Index, Term: p.Term, Type: raft.LogNoop})
	return s, s.persist()
}

// Durable is an index up to which the state is surely on disk.
func (s *Snapshots) Durable() uint64 { return s.durable.Load() }

// Base is the last entry of the state as it was opened or installed: index and term only.
func (s *Snapshots) Base() *raft.Log { return s.base.Load() }

// Covers implements rafttransport.Options.Covers. It does not block.
func (s *Snapshots) Covers(index uint64) (applied uint64, covered bool) {
	applied = s.machine.Applied()
	return applied, index < applied || index == s.Base().Index
}

// Folders is how many checkpoints were made and snapshots received since the node was opened.
func (s *Snapshots) Folders() uint64 { return s.number.Load() }

// persist makes all that is applied by now durable. The index is read before the sync: entries applied
// meanwhile may not be in it.
func (s *Snapshots) persist() error {
	index := s.machine.Applied()
	if err := s.machine.Sync(); err != nil {
		return fmt.Errorf("sync state at %d: %w", index, err)
	}
	s.durable.Store(index)
	return nil
}

// List implements raft.SnapshotStore: it returns the state itself, or nothing while the state is empty.
func (s *Snapshots) List() ([]*raft.SnapshotMeta, error) {
	// An empty state is nothing that raft could begin with.
	p := s.machine.Position()
	if p.Index == 0 {
		return nil, nil
	}
	return []*raft.SnapshotMeta{metaOf(p, 0)}, nil
}

// stateID is the id by which raft opens the state itself.
func stateID(index, term uint64) string {
	return "state-" + strconv.FormatUint(term, 10) + "-" + strconv.FormatUint(index, 10)
}

// metaOf describes the state at p to raft; size is in bytes, 0 before a checkpoint is made.
func metaOf(p fsm.Position, size int64) *raft.SnapshotMeta {
	m := &raft.SnapshotMeta{Version: raft.SnapshotVersionMax, ID: stateID(p.Index, p.Term), Index: p.Index, Term: p.Term,
		ConfigurationIndex: p.ConfigurationIndex, Size: size}
	if len(p.Configuration) > 0 {
		m.Configuration = raft.DecodeConfiguration(p.Configuration)
	}
	return m
}

// Open implements raft.SnapshotStore: the snapshot that was just received, by
// its id, else a checkpoint of the state as it is now.
func (s *Snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	// What a leader has just sent: raft hands it to Restore, which takes the folder.
	s.mu.Lock()
	received := s.received
	s.mu.Unlock()
	if received != nil && received.id == id {
		return received.raftMeta(), received, nil
	}
	// A follower needs the state. It gets the newest, whose index may be past the one that id names.
	out, err := s.checkpoint()
	if err != nil {
		return nil, nil, err
	}
	return metaOf(out.position, out.size), out, nil
}

// outgoing streams a checkpoint and removes it when closed.
type outgoing struct {
	*io.PipeReader
	dir      string             // of the checkpoint
	position fsm.Position       // of the checkpoint
	size     int64              // bytes of the stream
	cancel   context.CancelFunc // ends the writer
	done     sync.WaitGroup     // the writer
}

// NewFolder returns the path of a folder that nobody else makes. What is left in it is removed when the node is opened.
func (s *Snapshots) NewFolder() string { return s.folder("incident-") }

// folder returns the path of a new folder in dir, which is not made yet. kind begins its name: "in-" for what is
// received, "out-" for what is sent, "kept-" for the history and "incident-" for an incident.
func (s *Snapshots) folder(kind string) string {
	return filepath.Join(s.dir, kind+strconv.FormatUint(s.number.Add(1), 10))
}

// Freeze makes a checkpoint in a folder of its own, which the caller removes. After an error there is none.
func (s *Snapshots) Freeze() (dir string, p fsm.Position, meta snapshots.Meta, err error) {
	dir = s.folder("out-")
	folded := viewsOf(dir)
	// The views first, as they may have less than the state and never less than it has trimmed.
	made, err := s.views.Checkpoint(folded, func() error {
		p, err = s.machine.Checkpoint(dir)
		return err
	})
	if err == nil && made {
		err = joinViews(dir)
	}
	if err != nil {
		return "", p, meta, errors.Join(fmt.Errorf("checkpoint: %w", err), os.RemoveAll(dir), os.RemoveAll(folded))
	}
	return dir, p, MetaOf(p, s.nodeID), nil
}

// checkpointAgain is how long no checkpoint is tried after one that failed. Raft asks for the
// next one some 20 times a second, and each attempt may write to a disk that is full.
const checkpointAgain = time.Second

// checkpoint makes a checkpoint and streams it. It waits while another one is made, or its failure is
// waited out.
func (s *Snapshots) checkpoint() (*outgoing, error) {
	s.making <- struct{}{}
	defer func() { <-s.making }()
	out, err := s.tryCheckpoint()
	if err != nil {
		// The sleep holds the semaphore, so the senders to other followers wait as well.
		time.Sleep(checkpointAgain)
	}
	return out, err
}

// tryCheckpoint makes a checkpoint without waiting. After an error nothing of it is left on disk.
func (s *Snapshots) tryCheckpoint() (*outgoing, error) {
	dir, p, meta, err := s.Freeze()
	if err != nil {
		return nil, err
	}
	// Raft announces the size before the first byte.
	size, err := snapshots.Size(dir, meta)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return stream(dir, p, meta, size), nil
}

// MetaOf is what a snapshot of the state at p, made by a node, says of itself.
func MetaOf(p fsm.Position, nodeID string) snapshots.Meta {
	return snapshots.Meta{ClusterID: p.ClusterID, NodeID: nodeID, Index: p.Index, Term: p.Term,
		ConfigurationIndex: p.ConfigurationIndex, Configuration: p.Configuration, LastOffset: p.Last,
		Digest: p.Digest.String(), FeatureLevel: p.FeatureLevel, Created: time.Now().UTC()}
}

// stream begins to write the checkpoint in dir into a pipe; the reader's Close removes the folder.
func stream(dir string, p fsm.Position, meta snapshots.Meta, size int64) *outgoing {
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	out := &outgoing{PipeReader: r, dir: dir, position: p, size: size, cancel: cancel}
	// The reader learns of an error of the writer with its next read.
	out.done.Go(func() { w.CloseWithError(snapshots.Write(ctx, w, dir, meta)) })
	return out
}

// Close ends the stream and removes the checkpoint.
func (o *outgoing) Close() error {
	// The writer may be in a read of the disk or in the pipe: both end, and only then the folder may go.
	o.cancel()
	err := o.PipeReader.Close()
	o.done.Wait()
	return errors.Join(err, os.RemoveAll(o.dir))
}

// Create implements raft.SnapshotStore. Raft calls it to receive a leader's
// snapshot, and before it compacts; only the former writes into the sink.
func (s *Snapshots) Create(
	_ raft.SnapshotVersion, index, term uint64,
	configuration raft.Configuration, configurationIndex uint64, _ raft.Transport,
) (raft.SnapshotSink, error) {
	return &sink{
		store:              s,
		index:              index,
		term:               term,
		configuration:      configuration,
		configurationIndex: configurationIndex,
	}, nil
}

// receivedSnapshot is a snapshot that is complete and verified in its folder. As a
// reader it is empty: Restore takes the folder.
type receivedSnapshot struct {
	id, dir            string
	views              string // the folder of its views; "" if it has none
	meta               snapshots.Meta
	configuration      raft.Configuration
	configurationIndex uint64
}

func (r *receivedSnapshot) Read([]byte) (int, error) { return 0, io.EOF }
func (r *receivedSnapshot) Close() error             { return nil }

// remove removes what is left of its folders.
func (r *receivedSnapshot) remove() error {
	return errors.Join(os.RemoveAll(r.dir), os.RemoveAll(viewsOf(r.dir)))
}

// raftMeta describes it as the leader has announced it.
func (r *receivedSnapshot) raftMeta() *raft.SnapshotMeta {
	return &raft.SnapshotMeta{Version: raft.SnapshotVersionMax, ID: r.id, Index: r.meta.Index, Term: r.meta.Term,
		Configuration: r.configuration, ConfigurationIndex: r.configurationIndex}
}

// errNotAhead refuses a snapshot that would revert the state.
var errNotAhead = errors.New("the state has reached it already")

// swap makes a received snapshot the state, unless the state has reached it: entries may have
// been applied while it was received. In both cases the folder is released.
func (s *Snapshots) swap(r *receivedSnapshot) error {
	if applied := s.machine.Applied(); r.meta.Index <= applied {
		return errors.Join(fmt.Errorf("snapshot of %d, applied %d: %w", r.meta.Index, applied, errNotAhead), s.release(r))
	}
	// Written first: after a crash the raft log may end before the new state, and the next start must
	// know that a snapshot explains it.
	if err := s.stable.SetUint64([]byte(KeyInstalled), r.meta.Index); err != nil {
		return err
	}
	// The views come along: what the new state has trimmed can be folded nowhere else.
	if err := s.views.Swap(r.views, func() error { return s.machine.Swap(r.dir) }); err != nil {
		return err
	}
	// The new state is on disk, and the log may not lead to its last entry: Base is that entry for Covers
	// and compactions.
	s.durable.Store(r.meta.Index)
	s.base.Store(&raft.Log{Index: r.meta.Index, Term: r.meta.Term, Type: raft.LogNoop})
	s.logger.Info("snapshot installed", "index", r.meta.Index, "term", r.meta.Term, "from", r.meta.NodeID)
	return s.release(r)
}

// release forgets a received snapshot and removes what is left of its folder.
func (s *Snapshots) release(r *receivedSnapshot) error {
	s.mu.Lock()
	// Another one may have been received since.
	if s.received == r {
		s.received = nil
	}
	s.mu.Unlock()
	return r.remove()
}

// keep makes r the received snapshot, and removes one that was received before and never swapped in.
func (s *Snapshots) keep(r *receivedSnapshot) error {
	s.mu.Lock()
	old := s.received
	s.received = r
	s.mu.Unlock()
	if old != nil {
		return old.remove()
	}
	return nil
}

// sink receives a snapshot. Every byte is verified as it arrives; what is received
// stays invisible until Close has verified all of it.
type sink struct {
	store              *Snapshots
	index, term        uint64
	configuration      raft.Configuration
	configurationIndex uint64

	dir    string         // empty until the first Write
	pipe   *io.PipeWriter // nil until the first Write
	done   sync.WaitGroup // the goroutine that reads the pipe
	meta   snapshots.Meta // valid after done
	err    error          // valid after done
	closed bool           // Close or Cancel has ended what Write began
}

// ID implements raft.SnapshotSink.
func (k *sink) ID() string {
	if k.dir == "" {
		return stateID(k.index, k.term)
	}
	return filepath.Base(k.dir)
}

// Write implements raft.SnapshotSink.
func (k *sink) Write(p []byte) (int, error) {
	if k.pipe == nil {
		k.receive()
	}
	return k.pipe.Write(p)
}

// receive starts the goroutine that verifies what is written and unpacks it into the sink's folder.
func (k *sink) receive() {
	k.dir = k.store.folder("in-")
	var r *io.PipeReader
	r, k.pipe = io.Pipe()
	k.done.Go(func() {
		k.meta, k.err = snapshots.Read(context.Background(), r, k.dir)
		r.CloseWithError(k.err)
	})
}

// Close implements raft.SnapshotSink. Without a Write there is nothing to keep:
// Persist has made the state itself durable.
func (k *sink) Close() error {
	if k.closed || k.pipe == nil {
		return nil
	}
	k.closed = true
	// The end of the pipe lets Read check that nothing is missing; its result is valid after the wait.
	k.pipe.Close()
	k.done.Wait()
	if k.err != nil {
		return fmt.Errorf("receive snapshot: %w", k.err)
	}
	// What is well formed may still not be the state that raft was promised.
	views, err := SplitViews(k.dir)
	if err == nil {
		err = k.check()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("receive snapshot: %w", err), os.RemoveAll(k.dir), os.RemoveAll(viewsOf(k.dir)))
	}
	return k.store.keep(&receivedSnapshot{id: k.ID(), dir: k.dir, views: views, meta: k.meta,
		configuration: k.configuration, configurationIndex: k.configurationIndex})
}

// check refuses a snapshot that is not of the index and term that the leader announced, or not of this
// cluster. It reads both from the received state itself.
func (k *sink) check() error {
	p, err := fsm.ReadPosition(k.dir, nil)
	if err != nil {
		return err
	}
	if p.Index != k.index || p.Term != k.term || k.meta.Index != p.Index || k.meta.Term != p.Term {
		return fmt.Errorf("%w: announced as %d of term %d, holds %d of term %d",
			snapshots.ErrCorrupt, k.index, k.term, p.Index, p.Term)
	}
	// A node without a cluster takes that of its first snapshot.
	if own := k.store.machine.ClusterID(); own != "" && own != p.ClusterID {
		return fmt.Errorf("%w: it is of %s, this node of %s", ErrOtherCluster, p.ClusterID, own)
	}
	return nil
}

// Cancel implements raft.SnapshotSink.
func (k *sink) Cancel() error {
	if k.closed || k.pipe == nil {
		return nil
	}
	k.closed = true
	// What was unpacked so far is of no use.
	k.pipe.CloseWithError(errors.New("cancelled"))
	k.done.Wait()
	return os.RemoveAll(k.dir)
}
