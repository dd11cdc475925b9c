// Package raftstore holds what raft must never lose: the log of entries, and
// the term and vote. It wraps raft-boltdb so that damage is found before it is
// applied, served or voted with.
//
//	DIR/raft.db       the log
//	DIR/raft.journal  its newest entries, until raft.db has them
//	DIR/stable.db     term and vote, one checked record in a bolt file
//	DIR/tail          hint: the last index that was stored
//
// It promises:
//   - every entry is checked against a CRC-32C over all its fields when read;
//   - a cut, emptied, zeroed or bit-flipped file is a named error, never a
//     panic, a SIGBUS or an empty log;
//   - a vote's term and candidate are written as one (raft#661);
//   - after a write or sync that failed or hung nothing goes on: Options.Fatal
//     is called once and every later call fails (raft#503, raft#614);
//   - the log is dense: a crash at any point leaves first..last without holes.
//
// A snippet:
//
//	s, err := raftstore.Open(raftstore.Options{Dir: d.Path(datadir.RaftDir), Fatal: exit})
//	err = s.Check(stateIndex, installed) // before anything is dropped
//	dropped, err := s.DropContradicting(stateIndex, stateTerm)
//	raft.NewRaft(conf, fsm, s.Log(), s.Stable(), snaps, trans)
package raftstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

// DefaultSyncTimeout is how long one write may take.
const DefaultSyncTimeout = 10 * time.Second

// Options say how to open the stores.
type Options struct {
	Dir         string        // the raft folder of a data folder; created if missing
	SyncTimeout time.Duration // a write that takes longer is ErrDiskHung; 0 is DefaultSyncTimeout
	Fatal       func(error)   // required; called at most once, when going on would be wrong. It ends the process; it must not call Close
	Logger      hclog.Logger  // nil logs nothing

	// OnStore, if set, sees every batch that was stored: its entries, the bytes
	// of their data and how long the disk took. It must not block.
	OnStore func(entries, bytes int, took time.Duration)
}

func (o Options) withDefaults() (Options, error) {
	if o.SyncTimeout == 0 {
		o.SyncTimeout = DefaultSyncTimeout
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	switch {
	case o.Dir == "":
		return o, errors.New("raftstore: open: a folder is required")
	case o.Fatal == nil:
		return o, errors.New("raftstore: open: Fatal is required")
	case o.SyncTimeout < 0:
		return o, fmt.Errorf("raftstore: open: sync timeout %v is negative", o.SyncTimeout)
	}
	return o, nil
}

// innerLog is a log store below the checks.
type innerLog interface {
	raft.LogStore
	Close() error
}

// Stores are the two raft stores of one node. They are safe for concurrent use.
type Stores struct {
	log    *checkedLog
	stable *stableStore
	mark   *tailMark
	guard  *guard

	closeOnce sync.Once
	closeErr  error
}

// Open opens the stores below opts.Dir and creates them where none are. Damage
// is an error that wraps ErrDamaged and names the file and the remedy.
func Open(opts Options) (*Stores, error) {
	return open(opts, func(inner innerLog) innerLog { return inner })
}

// open lets a test put a failing disk below the checks.
func open(opts Options, below func(innerLog) innerLog) (_ *Stores, err error) {
	opts, err = opts.withDefaults()
	if err != nil {
		return nil, err
	}
	fresh, err := surveyFolder(opts.Dir)
	if err != nil {
		return nil, err
	}
	s := &Stores{guard: newGuard(opts)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	found := &sizes{}
	inner, file, err := openInner(opts, found)
	if err != nil {
		return nil, err
	}
	s.log = newCheckedLog(below(inner), file, opts, s.guard)
	s.log.sizes = found
	if s.mark, err = openTailMark(filepath.Join(opts.Dir, tailFile)); err != nil {
		return nil, err
	}
	s.log.mark = s.mark
	last, err := s.compareTail()
	if err != nil {
		return nil, err
	}
	if fresh && last > 0 {
		return nil, damaged(filepath.Join(opts.Dir, datadir.StableFile), "it is missing, yet the log has entries")
	}
	s.stable, err = openStable(filepath.Join(opts.Dir, datadir.StableFile), s.guard)
	return s, err
}

// surveyFolder reports files that can not stand alone; fresh means there is
// no stable store yet. It is created last, so with it the log must exist.
func surveyFolder(dir string) (fresh bool, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, fmt.Errorf("raftstore: open %s: %w", dir, err)
	}
	fresh = !exists(filepath.Join(dir, datadir.StableFile))
	for _, name := range []string{datadir.BoltFile, datadir.JournalFile} {
		if !fresh && !exists(filepath.Join(dir, name)) {
			return false, damaged(filepath.Join(dir, name), "it is missing")
		}
	}
	return fresh, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func openInner(opts Options, found *sizes) (_ innerLog, file string, err error) {
	file = filepath.Join(opts.Dir, datadir.BoltFile)
	store, err := openBolt(file, found)
	if err != nil {
		return nil, file, err
	}
	return openJournaled(opts, store, file, found)
}

// compareTail finds entries that were stored and are gone: a store that loses
// its end looks like one that never had it.
func (s *Stores) compareTail() (last uint64, err error) {
	last, err = s.log.LastIndex()
	if err != nil {
		return 0, err
	}
	if err := lostEnd(s.log.file, s.mark.last, last); err != nil {
		return 0, err
	}
	return last, s.mark.set(last)
}

// lostEnd compares the last entry that was stored, by the tail mark, with the last that is there.
func lostEnd(file string, stored, last uint64) error {
	if stored <= last {
		return nil
	}
	return damaged(file, fmt.Sprintf("entries %d to %d are gone", last+1, stored))
}

// Log is the store for raft's entries.
func (s *Stores) Log() raft.LogStore { return s.log }

// LogBytes is how many bytes the log's entries have, to about a megabyte.
func (s *Stores) LogBytes() int64 { return s.log.sizes.total() }

// Newest is how many of the last entries have no more than so many bytes together, with the
// same precision; math.MaxUint64 where all have.
func (s *Stores) Newest(bytes int64) uint64 { return s.log.sizes.newest(bytes) }

// Stable is the store for raft's term and vote.
func (s *Stores) Stable() raft.StableStore { return s.stable }

// Close closes both stores. It is idempotent. After a hung write, or a panic
// inside bbolt, it leaves the files to the end of the process: closing them
// would wait for a disk that does not answer, or for a lock nobody releases.
func (s *Stores) Close() error {
	s.closeOnce.Do(func() { s.closeErr = s.close() })
	return s.closeErr
}

func (s *Stores) close() error {
	defer s.guard.stop()
	failed, panicked := s.guard.close()
	if errors.Is(failed, ErrDiskHung) {
		return failed
	}
	var errs []error
	if s.log != nil && !panicked {
		errs = append(errs, protect(s.log.inner.Close))
	}
	if s.mark != nil {
		errs = append(errs, s.mark.close())
	}
	if s.stable != nil {
		errs = append(errs, protect(s.stable.record.close))
	}
	return errors.Join(errs...)
}
