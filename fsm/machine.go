package fsm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/fsm/store"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/kv"
	"github.com/ringrift/ringlog/log"
)

// ErrClosed is returned by a machine that was closed.
var ErrClosed = errors.New("the state machine is closed")

// The errors of package store that callers distinguish.
var (
	ErrDamaged     = store.ErrDamaged
	ErrNewerFormat = store.ErrNewerFormat
	ErrDiskFailed  = store.ErrDiskFailed
	ErrDiskHung    = store.ErrDiskHung
)

// Options say where a machine keeps its state. Dir is required. None of them takes part in a decision.
type Options struct {
	Dir        string       // holds CURRENT and the database it names
	FS         vfs.FS       // nil is the disk
	Logger     hclog.Logger // nil is silence
	CacheBytes int64        // decoded blocks kept for readers; 0 is 32 MiB
	ReadOnly   bool         // for offline tools: nothing is written, not even a recovery
	// BeforeTrim is called before an entry removes the events before an offset, which are all stored; nil does nothing.
	// It may wait, and must not read what waits for an entry. Its error leaves the entry undone, and stops the machine.
	BeforeTrim func(first uint64) error
	// Fatal is called with a failed or hanging write, after which the node must not continue.
	// It must not return in production; nil panics.
	Fatal func(error)
}

// defaults replaces what is zero by its default.
func (o *Options) defaults() {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 32 << 20
	}
	if o.BeforeTrim == nil {
		o.BeforeTrim = func(uint64) error { return nil }
	}
	if o.Fatal == nil {
		o.Fatal = func(err error) { panic(err) }
	}
}

// store returns the options for the folder of the state.
func (o *Options) store() *store.Options {
	return &store.Options{Dir: o.Dir, FS: o.FS, Logger: o.Logger, ReadOnly: o.ReadOnly, Fatal: o.Fatal}
}

// Machine is the state machine of one node. One goroutine applies, swaps and
// closes; any number may read. It changes what its views read, and holds their lock meanwhile.
type Machine struct {
	views
	progress

	opts    Options
	db      kv.DB        // what views.stored reads, to be written; mu guards it
	columns columnsCache // of blocks that decisions read; mu guards it

	serving atomic.Bool // open, and not by an offline tool
	watches watches     // of cursors

	roleWatches watches
	shareWatch  watches // of allocations

	stop    chan struct{}  // closed by Close, ends syncEverySecond
	stopped sync.WaitGroup // for syncEverySecond
}

// Open opens the state in o.Dir, or makes an empty one.
func Open(o Options) (*Machine, error) {
	o.defaults()
	m := &Machine{opts: o, progress: progress{moved: make(chan struct{})}, stop: make(chan struct{})}
	m.log = log.New(o.CacheBytes, m.damaged)
	m.letterReader = letterReader{m.log}
	dir, err := o.store().Current()
	if err != nil {
		return nil, err
	}

	// attach may fail after it has put the database in place: nobody else would close it.
	if err := m.attach(dir); err != nil {
		if m.db != nil {
			err = errors.Join(err, m.db.Close())
		}
		return nil, err
	}

	// An offline tool has nothing to sync, and gets damage as an error: see damaged.
	if !o.ReadOnly {
		m.serving.Store(true)
		m.stopped.Go(m.syncEverySecond)
	}
	return m, nil
}

// damaged ends the node over stored bytes that fail their checks: it must neither serve nor lead any
// longer. Until the machine is open, and in offline tools, the error is enough.
func (m *Machine) damaged(err error) {
	if m.serving.Load() {
		m.opts.Fatal(fmt.Errorf("%w: %w; %s", ErrDamaged, err, store.Remedy))
	}
}

// attach opens the database in dir and makes it the machine's.
func (m *Machine) attach(dir string) error {
	// Loading takes the longest, and does not hold readers of the present state up.
	db, err := m.opts.store().Open(dir)
	if err != nil {
		return err
	}
	s, err := loadState(db)
	if err != nil {
		return errors.Join(err, db.Close())
	}

	// Readers see the new database and bounds at once; the window is rebuilt from the new log.
	m.mu.Lock()
	m.catalogue.Store(s.catalogue)
	old := m.log.Attach(db, s.meta.First, s.meta.Last)
	m.s, m.stored, m.db, m.columns = s, db, db, columnsCache{}
	m.publish(m.s)
	m.publishViews(true)
	m.publishTokens(true)
	err = errors.Join(s.fillWindow(m.log), s.checkEnds(m.log))
	m.mu.Unlock()
	m.advance(s.meta.Applied)
	m.watches.notifyAll()
	m.roleWatches.notifyAll()
	m.shareWatch.notifyAll()

	// Attach has waited for the readers of the old one.
	if old != nil {
		err = errors.Join(err, old.Close())
	}
	return err
}

// Close makes everything applied durable and releases the state. It may be called
// again.
func (m *Machine) Close() error {
	// From here on no entry is applied, and views that need the database leave out what is in it.
	m.mu.Lock()
	db := m.db
	m.db, m.stored = nil, nil
	m.mu.Unlock()
	if db == nil {
		return nil
	}

	// Readers are done once Attach returns.
	close(m.stop)
	m.stopped.Wait()
	first, last := m.log.Bounds()
	m.log.Attach(nil, first, last)
	if err := db.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

// Apply decides one entry. An error means that the node must stop: the entry cannot
// be read or stored, and no later one may be applied.
func (m *Machine) Apply(index, term uint64, data []byte) (Outcome, error) {
	// Decoding does not need the state, so it does not hold readers up.
	f, err := frame.Decode(data)
	if err != nil {
		return Outcome{}, fmt.Errorf("apply %d: %w", index, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.db == nil {
		return Outcome{}, ErrClosed
	}
	// After a restart Raft passes entries again that the state has already.
	if index <= m.s.meta.Applied {
		return Outcome{Index: index, Skipped: true}, nil
	}

	// Decide and store. A digest that differs is reported, and does not stop the decision.
	a := m.beginEntry(index, term)
	defer a.tx.batch.Close()
	a.frame = f
	diverged := m.diverged(f)
	if err := m.endEntry(a, a.decideFrame()); err != nil {
		return Outcome{}, fmt.Errorf("apply %d: %w", index, err)
	}
	return Outcome{Index: index, Time: time.Unix(0, a.now).UTC(), Results: a.answers, Diverged: diverged}, nil
}

// beginEntry returns what decides the entry at index. The caller closes its batch. The replicated time is that of the
// entry before until decideFrame has read the entry's own.
func (m *Machine) beginEntry(index, term uint64) *applier {
	meta := &m.s.meta
	a := newApplier(applying{
		s:          m.s,
		tx:         newTx(m.db, meta.Digest, index, term),
		db:         m.db,
		log:        m.log,
		columns:    &m.columns,
		index:      index,
		term:       term,
		began:      meta.Time,
		now:        meta.Time,
		beforeTrim: m.opts.BeforeTrim,
		firstNew:   meta.Last + 1, // nothing of this entry is stored yet
	})

	// This is never undone: an entry that fails stops the node.
	meta.Applied, meta.Term = index, term
	return a
}

// endEntry completes an entry whose content was decided, or returns why it was not. Every entry ends
// here, so stalls and trims see whatever was appended.
func (m *Machine) endEntry(a *applier, err error) error {
	if err == nil {
		err = a.complete()
	}
	// Readers see the entry from here on, so watches are woken after it.
	if err == nil {
		err = m.commitTx(a)
	}
	if err == nil {
		m.watches.notify(a.moved)
		m.roleWatches.notify(a.turned)
		m.shareWatch.notify(a.settled)
	}
	return err
}

// commitTx stores an entry's transaction. Readers see a trim before it is stored and new events after, so
// they never look for what is not there.
func (m *Machine) commitTx(a *applier) error {
	// Types that the entry registers are known before the log has events of them.
	_, last := m.log.Bounds()
	m.catalogue.Store(m.s.catalogue)
	m.log.Advance(m.s.meta.First, last)
	if err := a.tx.batch.Commit(kv.NoSync); err != nil {
		return err
	}
	// The entry is stored: show its events, and wake the callers that wait for it.
	m.log.Advance(m.s.meta.First, m.s.meta.Last)
	m.publish(m.s)
	m.publishViews(a.viewsChanged)
	m.publishTokens(a.tokensChanged)
	m.advance(m.s.meta.Applied)
	return nil
}

// ApplyConfiguration records a Raft configuration: raw as Raft encodes it, and
// the members in it.
func (m *Machine) ApplyConfiguration(index, term uint64, raw []byte, members []ConfigMember) error {
	return m.configure(index, term, raw, members, "")
}

// Refound is ApplyConfiguration as a new cluster: the recovery of a stopped node whose cluster
// lost its quorum for good, which becomes its predecessor. It must not be used on a running node.
func (m *Machine) Refound(index, term uint64, raw []byte, members []ConfigMember, clusterID string) error {
	return m.configure(index, term, raw, members, clusterID)
}

// configure records a configuration under an entry of its own, which a digest covers like any other. It
// keeps the cluster's id where clusterID is empty.
func (m *Machine) configure(index, term uint64, raw []byte, members []ConfigMember, clusterID string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.db == nil {
		return ErrClosed
	}
	if index <= m.s.meta.Applied {
		return nil
	}

	// A new cluster id makes the present one a predecessor.
	a := m.beginEntry(index, term)
	defer a.tx.batch.Close()
	before := m.s.membership.Predecessors
	if clusterID != "" {
		before = m.s.succeeded()
		m.s.meta.ClusterID = clusterID
	}
	m.s.membership = membership{Index: index, Raw: raw, Members: members, Predecessors: before}
	m.s.rosterPublished = false
	a.tx.setJSON([]byte{prefixMembership}, m.s.membership)
	if err := m.endEntry(a, a.reportConfiguration()); err != nil {
		return fmt.Errorf("apply configuration %d: %w", index, err)
	}
	return nil
}

// succeeded returns the predecessors of a cluster that replaces this one. Members of an older feature
// level would not keep them.
func (s *state) succeeded() []string {
	if s.meta.FeatureLevel < frame.LevelDelivery || s.meta.ClusterID == "" {
		return nil
	}
	// The list of the state is shared with readers.
	list := append(slices.Clone(s.membership.Predecessors), s.meta.ClusterID)
	return list[max(0, len(list)-predecessorsKept):]
}

// diverged compares the digest that a frame carries with this node's own. It is false if either is
// not known.
func (m *Machine) diverged(f *frame.Frame) bool {
	if f.DigestIndex == 0 {
		return false
	}
	// Only the last digests are kept: an older one cannot be compared.
	own, known := digestAt(m.db, f.DigestIndex)
	return known && own != Sum(f.Digest)
}

// progress is how far a machine has applied the log. It has a lock of its own, so nobody who
// asks waits for an entry that is being applied.
type progress struct {
	lock    sync.Mutex // guards the fields
	applied uint64
	moved   chan struct{} // closed when applied grows
}

// Applied returns the index of the last entry applied.
func (p *progress) Applied() uint64 {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.applied
}

// advance sets applied, and wakes the callers of WaitApplied where it grows.
func (p *progress) advance(applied uint64) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if applied > p.applied {
		close(p.moved)
		p.moved = make(chan struct{})
	}
	p.applied = applied
}

// WaitApplied returns when the entry at index is applied, or ctx is done.
func (p *progress) WaitApplied(ctx context.Context, index uint64) error {
	for {
		// moved belongs to applied: an entry that is applied between the check and the wait closes it.
		p.lock.Lock()
		applied, moved := p.applied, p.moved
		p.lock.Unlock()
		if applied >= index {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// syncEverySecond bounds how much a sync before a snapshot has to write at once. It
// writes nothing where nothing was applied.
func (m *Machine) syncEverySecond() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	// synced is the newest entry that is known to be durable.
	synced := uint64(0)
	for {
		select {
		case <-m.stop:
			return
		case <-tick.C:
			applied := m.Applied()
			// Everything applied is durable already.
			if applied == synced {
				continue
			}
			if err := m.Sync(); err != nil && !errors.Is(err, ErrClosed) {
				m.opts.Fatal(err)
			}
			synced = applied
		}
	}
}

// Sync makes everything applied so far durable. Entries may be applied meanwhile.
func (m *Machine) Sync() error {
	// An empty record, synced, makes all that was written before it durable.
	err := m.log.View(func(db kv.DB) error { return db.Sync() })
	if errors.Is(err, kv.ErrClosed) {
		return ErrClosed
	}
	if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return nil
}
