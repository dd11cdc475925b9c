package fsm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable/block"
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

// What ends a node. Options.Fatal gets errors that wrap them.
var (
	ErrDamaged    = errors.New("the state folder is damaged") // it is not as this package left it
	ErrDiskFailed = errors.New("disk failed")
	ErrDiskHung   = errors.New("disk hangs")
)

// currentDir returns the path of the database in force, of a fresh one where there
// is none yet, and removes what an interrupted swap left behind.
func currentDir(o *Options) (string, error) {
	fs, dir := o.FS, o.Dir
	name, err := readCurrent(fs, dir)
	if errors.Is(err, os.ErrNotExist) && !o.ReadOnly {
		return createCurrent(o)
	}
	if err != nil {
		return "", err
	}
	if _, err := fs.Stat(fs.PathJoin(dir, name)); err != nil {
		return "", fmt.Errorf("fsm: open %s: %w: CURRENT names %s, which is missing; %s: %w", dir, ErrDamaged, name, remedy, err)
	}
	if !o.ReadOnly {
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
		return "", fmt.Errorf("fsm: open %s: %w: CURRENT holds %q; %s", dir, ErrDamaged, text, remedy)
	}
	return name, nil
}

// createCurrent makes the first database. A folder without CURRENT that holds
// anything but the beginnings of that is not taken for a new one.
func createCurrent(o *Options) (string, error) {
	fs, path := o.FS, o.FS.PathJoin(o.Dir, firstName)
	if err := fs.MkdirAll(path, 0o755); err != nil {
		return "", fmt.Errorf("fsm: create %s: %w", o.Dir, err)
	}
	if err := onlyBeginnings(fs, o.Dir, path); err != nil {
		return "", err
	}
	if err := errors.Join(fs.RemoveAll(path), fs.MkdirAll(path, 0o755)); err != nil {
		return "", fmt.Errorf("fsm: create %s: %w", o.Dir, err)
	}
	db, err := openDB(path, o, false)
	if err != nil {
		return "", err
	}
	if err := db.Close(); err != nil {
		return "", fmt.Errorf("fsm: create %s: %w", o.Dir, err)
	}
	if err := syncDir(fs, fs.PathDir(o.Dir)); err != nil {
		return "", err
	}
	return path, writeCurrent(fs, o.Dir, firstName)
}

// onlyBeginnings refuses a folder that lost its CURRENT: one with other databases,
// or with one that has applied something.
func onlyBeginnings(fs vfs.FS, dir, path string) error {
	left, err := fs.List(path)
	others, err2 := fs.List(dir)
	if err := errors.Join(err, err2); err != nil {
		return fmt.Errorf("fsm: create %s: %w", dir, err)
	}
	others = slices.DeleteFunc(others, func(name string) bool { return name == firstName || name == currentFile+".tmp" })
	if len(others) == 0 && len(left) > 0 {
		p, err := ReadPosition(path, fs)
		if p.Index == 0 && (err == nil || errors.Is(err, pebble.ErrDBDoesNotExist)) {
			return nil
		}
	}
	if len(others)+len(left) > 0 {
		return fmt.Errorf("fsm: open %s: %w: CURRENT is missing; %s", dir, ErrDamaged, remedy)
	}
	return nil
}

// remedy is what to do with a damaged folder.
const remedy = "remove the node from the cluster, empty its folder and join again"

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
// survives a crash is a prefix of whole entries. Where it must exist already, an
// emptied folder is not taken for a new one.
func openDB(dir string, o *Options, exists bool) (*pebble.DB, error) {
	if exists {
		if err := checkManifest(o.FS, dir); err != nil {
			return nil, openError(dir, err)
		}
	}
	cache := pebble.NewCache(64 << 20)
	defer cache.Unref()
	options := &pebble.Options{
		Cache:                       cache,
		MemTableSize:                64 << 20,
		MemTableStopWritesThreshold: 3,
		L0CompactionThreshold:       2,
		LBaseMaxBytes:               1 << 40, // one level below: offsets grow, so what is flushed hardly overlaps it
		WALBytesPerSync:             512 << 10,
		FormatMajorVersion:          pebble.FormatValueSeparation,
		ReadOnly:                    o.ReadOnly,
		Logger:                      pebbleLogger{o.Logger.Named("pebble"), o.Fatal},
		EventListener:               &pebble.EventListener{DiskSlow: (&slowDisk{options: o}).report, DataCorruption: o.dataCorruption},
	}
	options.ApplyCompressionSettings(func() pebble.DBCompressionSettings {
		return pebble.UniformDBCompressionSettings(block.NoCompression) // events are compressed, keys are hashes
	})
	switch {
	case o.ReadOnly: // a stopped node's folder may stand on a medium that takes no lock
		options.FS = unlocked{o.FS}
	default:
		options.FS = watchedFS{o.FS, dir, o.Fatal}
	}
	if o.FS == vfs.Default && !o.ReadOnly {
		options.WithFSDefaults() // health checks
	}
	db, err := pebble.Open(dir, options)
	if err != nil {
		return nil, openError(dir, err)
	}
	return db, nil
}

// unlocked is a file system for reading alone: the data folder has a lock of its
// own.
type unlocked struct{ vfs.FS }

// Lock implements vfs.FS.
func (unlocked) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// openError tells damage from what the machine around it does not allow. Of
// Pebble's messages the first line is enough.
func openError(dir string, err error) error {
	for _, outside := range []error{os.ErrPermission, syscall.EROFS, syscall.ENOSPC, syscall.EIO, syscall.EAGAIN, syscall.EMFILE, ErrDamaged} {
		if errors.Is(err, outside) {
			return fmt.Errorf("fsm: open %s: %w", dir, err)
		}
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	if strings.Contains(line, "format major version") {
		return fmt.Errorf("fsm: open %s: %w: %s", dir, ErrNewerFormat, line)
	}
	return fmt.Errorf("fsm: open %s: %w: %s; %s", dir, ErrDamaged, line, remedy)
}

// dataCorruption ends the node over a file that Pebble found damaged.
func (o *Options) dataCorruption(info pebble.DataCorruptionInfo) {
	line, _, _ := strings.Cut(fmt.Sprint(info.Details), "\n")
	o.Fatal(fmt.Errorf("fsm: read %s: %w: %s; %s", info.Path, ErrDamaged, line, remedy))
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

// Fatalf is called where Pebble can not go on. Its texts may carry stacks: the first
// line is enough.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	line, _, _ := strings.Cut(fmt.Sprintf(format, args...), "\n")
	err := fmt.Errorf("fsm: write the state: %w: %s: check the disk, then start the node again", ErrDiskFailed, line)
	l.fatal(err)
	panic(err)
}
