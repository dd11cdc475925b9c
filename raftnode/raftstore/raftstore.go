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

// DefaultSyncTimeout is how long one write may take by default.
const DefaultSyncTimeout = 10 * time.Second

// Options say how to open the stores.
type Options struct {
	Dir         string        // the raft folder of a data folder; created if missing
	SyncTimeout time.Duration // a write that takes longer is ErrDiskHung; 0 is DefaultSyncTimeout
	Logger      hclog.Logger  // nil logs nothing

	// Fatal is required. It is called at most once, when the node must not
	// continue, and ends the process. It must not call Close.
	Fatal func(error)

	// OnStore, if set, sees every batch that was stored: its entries, the bytes
	// of their data and how long the disk took. It must not block.
	OnStore func(entries, bytes int, took time.Duration)
}

// withDefaults returns the options with zero fields set to their defaults, or what is wrong with them.
func (o Options) withDefaults() (Options, error) {
	if o.SyncTimeout == 0 {
		o.SyncTimeout = DefaultSyncTimeout
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	switch {
	case o.Dir == "":
		return o, errors.New("open: a folder is required")
	// Without it a hung disk could not end the node.
	case o.Fatal == nil:
		return o, errors.New("open: Fatal is required")
	case o.SyncTimeout < 0:
		return o, fmt.Errorf("open: sync timeout %v is negative", o.SyncTimeout)
	}
	return o, nil
}

// Stores are the two raft stores of one node. They are safe for concurrent use.
type Stores struct {
	log    *checkedLog
	stable *stableStore
	guard  *guard

	closeOnce sync.Once
	closeErr  error // what the one close returned
}

// Open opens the stores below opts.Dir and creates them where none are. Damage
// is an error that wraps ErrDamaged and names the file and the remedy.
func Open(opts Options) (*Stores, error) {
	return open(opts, func(inner innerLog) innerLog { return inner })
}

// open is Open. below lets a test put a failing disk below the checks.
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

	inner, found, err := openLog(opts.Dir, false)
	if err != nil {
		return nil, err
	}
	logFile := filepath.Join(opts.Dir, datadir.BoltFile)
	s.log = &checkedLog{inner: below(inner), file: logFile, guard: s.guard, onStore: opts.OnStore, sizes: found}

	// A log that lost its end looks like one that never had it, but for the tail mark.
	s.log.mark, err = openTailMark(filepath.Join(opts.Dir, tailFile))
	if err != nil {
		return nil, err
	}
	last, err := s.log.LastIndex()
	if err != nil {
		return nil, err
	}
	if err := lostEnd(logFile, s.log.mark.last, last); err != nil {
		return nil, err
	}

	// The stable store is opened last: with it the folder is complete.
	stableFile := filepath.Join(opts.Dir, datadir.StableFile)
	// It is created last, too: without it there can be no entries yet.
	if fresh && last > 0 {
		return nil, damaged(stableFile, "it is missing, yet the log has entries")
	}
	// A mark that was lost, or is older than the last entries, is right again from here on.
	if err := s.log.mark.set(last); err != nil {
		return nil, err
	}
	s.stable, err = openStable(stableFile, s.guard)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// surveyFolder creates the folder if it is missing, and returns ErrDamaged if a file of the log is missing
// although the stable store exists, which is created last. fresh reports that there is no stable store yet.
func surveyFolder(dir string) (fresh bool, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, fmt.Errorf("open %s: %w", dir, err)
	}
	fresh = !exists(filepath.Join(dir, datadir.StableFile))
	for _, name := range []string{datadir.BoltFile, datadir.JournalFile} {
		if !fresh && !exists(filepath.Join(dir, name)) {
			return false, damaged(filepath.Join(dir, name), "it is missing")
		}
	}
	return fresh, nil
}

// exists reports whether there is anything at path, a dangling link included.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// createFile creates the file at path with create, unless it exists. A crash leaves
// no file or a whole one, so an empty or cut one is damage.
func createFile(path string, create func(path string) error) error {
	if exists(path) {
		return nil
	}
	// The file gets its name once it is whole. create syncs it.
	tmp := path + ".tmp"
	err := os.RemoveAll(tmp)
	if err == nil {
		err = create(tmp)
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err == nil {
		err = datadir.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return nil
}

// Log is the store for raft's entries.
func (s *Stores) Log() raft.LogStore { return s.log }

// LogBytes is the size of the log's entries in bytes, exact to about a megabyte.
func (s *Stores) LogBytes() int64 { return s.log.sizes.total() }

// Newest is how many of the last entries have at most that many bytes together, as exact
// as LogBytes; math.MaxUint64 if all entries have.
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

// close is Close, called once. Of stores that Open failed to open it closes those that are open.
func (s *Stores) close() error {
	defer s.guard.stop()
	failed, panicked := s.guard.close()
	if errors.Is(failed, ErrDiskHung) {
		return failed
	}

	// An Open that failed has only some of them.
	var errs []error
	if s.log != nil && !panicked {
		errs = append(errs, protect(s.log.inner.Close))
	}
	if s.log != nil && s.log.mark != nil {
		errs = append(errs, s.log.mark.close())
	}
	if s.stable != nil {
		errs = append(errs, protect(s.stable.file.close))
	}
	return errors.Join(errs...)
}
