package fsm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"
)

// The state folder holds one database and a file that names it, so that another
// can be put in its place in one step:
//
//	CURRENT    "000001\n"
//	000001/    the database
const (
	currentFile = "CURRENT"
	firstName   = "000001"
)

// diskHangs is after how long a single file operation counts as hanging.
const diskHangs = 20 * time.Second

// ErrDamaged is wrapped when a state folder is not as this package left it.
var ErrDamaged = errors.New("the state folder is damaged")

// currentDir returns the path of the database in force, of a fresh one where there
// is none yet, and removes what an interrupted swap left behind.
func currentDir(fs vfs.FS, dir string, readOnly bool) (string, error) {
	name, err := readCurrent(fs, dir)
	if errors.Is(err, os.ErrNotExist) && !readOnly {
		return createCurrent(fs, dir)
	}
	if err != nil {
		return "", err
	}
	if _, err := fs.Stat(fs.PathJoin(dir, name)); err != nil {
		return "", fmt.Errorf("fsm: open %s: %w: CURRENT names %s, which is missing; remove the node from the cluster, empty its folder and join again: %v", dir, ErrDamaged, name, err)
	}
	if !readOnly {
		err = removeOthers(fs, dir, name)
	}
	return fs.PathJoin(dir, name), err
}

func readCurrent(fs vfs.FS, dir string) (string, error) {
	f, err := fs.Open(fs.PathJoin(dir, currentFile))
	if err != nil {
		return "", fmt.Errorf("fsm: open %s: %w", dir, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 64))
	if err != nil {
		return "", fmt.Errorf("fsm: open %s: %w", dir, err)
	}
	name, whole := strings.CutSuffix(string(text), "\n")
	if !whole || len(name) != len(firstName) || strings.Trim(name, "0123456789") != "" {
		return "", fmt.Errorf("fsm: open %s: %w: CURRENT holds %q; remove the node from the cluster, empty its folder and join again", dir, ErrDamaged, text)
	}
	return name, nil
}

// createCurrent makes the first database's folder. A folder that holds anything
// else without a CURRENT has lost it, and is not taken for a new one.
func createCurrent(fs vfs.FS, dir string) (string, error) {
	path := fs.PathJoin(dir, firstName)
	if err := fs.MkdirAll(path, 0o755); err != nil {
		return "", fmt.Errorf("fsm: create %s: %w", dir, err)
	}
	left, err := fs.List(path)
	others, err2 := fs.List(dir)
	if err := errors.Join(err, err2); err != nil {
		return "", fmt.Errorf("fsm: create %s: %w", dir, err)
	}
	others = slices.DeleteFunc(others, func(name string) bool { return name == firstName || name == currentFile+".tmp" })
	if len(left)+len(others) > 0 {
		return "", fmt.Errorf("fsm: open %s: %w: CURRENT is missing; remove the node from the cluster, empty its folder and join again", dir, ErrDamaged)
	}
	if err := syncDir(fs, fs.PathDir(dir)); err != nil {
		return "", err
	}
	return path, writeCurrent(fs, dir, firstName)
}

// writeCurrent makes name the database in force: a crash leaves the old or the new
// one, never neither.
func writeCurrent(fs vfs.FS, dir, name string) error {
	temporary := fs.PathJoin(dir, currentFile+".tmp")
	if err := writeSynced(fs, temporary, name+"\n"); err != nil {
		return fmt.Errorf("fsm: switch to %s: %w", name, err)
	}
	if err := fs.Rename(temporary, fs.PathJoin(dir, currentFile)); err != nil {
		return fmt.Errorf("fsm: switch to %s: %w", name, err)
	}
	return syncDir(fs, dir)
}

func writeSynced(fs vfs.FS, path, text string) error {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(text))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("fsm: sync %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("fsm: sync %s: %w", dir, err)
	}
	return nil
}

func removeOthers(fs vfs.FS, dir, keep string) error {
	names, err := fs.List(dir)
	if err != nil {
		return fmt.Errorf("fsm: open %s: %w", dir, err)
	}
	for _, name := range names {
		if name == keep || name == currentFile {
			continue
		}
		if err := fs.RemoveAll(fs.PathJoin(dir, name)); err != nil {
			return fmt.Errorf("fsm: remove what a swap left in %s: %w", dir, err)
		}
	}
	return nil
}

// openDB opens one Pebble database. Its write-ahead log stays on, so that what
// survives a crash is a prefix of whole entries.
func openDB(dir string, o *Options) (*pebble.DB, error) {
	cache := pebble.NewCache(64 << 20)
	defer cache.Unref()
	options := &pebble.Options{
		Cache:                       cache,
		MemTableSize:                64 << 20,
		MemTableStopWritesThreshold: 3,
		L0CompactionThreshold:       2,
		WALBytesPerSync:             512 << 10,
		FormatMajorVersion:          pebble.FormatValueSeparation,
		ReadOnly:                    o.ReadOnly,
		Logger:                      pebbleLogger{o.Logger.Named("pebble"), o.Fatal},
		EventListener:               &pebble.EventListener{DiskSlow: o.diskSlow},
	}
	if o.FS != vfs.Default { // left out, Pebble takes the disk with its health checks
		options.FS = o.FS
	}
	db, err := pebble.Open(dir, options)
	if err != nil {
		return nil, fmt.Errorf("fsm: open %s: %w", dir, err)
	}
	return db, nil
}

// diskSlow ends the node when a file operation hangs: a leader that can not write
// must not go on leading.
func (o *Options) diskSlow(info pebble.DiskSlowInfo) {
	if info.Duration > diskHangs {
		o.Fatal(fmt.Errorf("fsm: the disk hangs: %s on %s has taken %s", info.OpType, info.Path, info.Duration))
		return
	}
	o.Logger.Warn("slow disk", "operation", info.OpType, "path", info.Path, "took", info.Duration)
}

// pebbleLogger hands Pebble's messages to the diagnostics logger, and its fatal
// ones to whoever ends the process.
type pebbleLogger struct {
	logger hclog.Logger
	fatal  func(error)
}

func (l pebbleLogger) Infof(format string, args ...any) { l.logger.Trace(fmt.Sprintf(format, args...)) }
func (l pebbleLogger) Errorf(format string, args ...any) {
	l.logger.Error(fmt.Sprintf(format, args...))
}

func (l pebbleLogger) Fatalf(format string, args ...any) {
	err := fmt.Errorf("fsm: state: "+format, args...)
	l.fatal(err)
	panic(err)
}
