package store

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/internal/kv"
)

// Open opens the database at path, which must be there: an emptied folder is not taken for a new
// one.
func (o *Options) Open(path string) (kv.DB, error) {
	if err := checkManifest(o.FS, path); err != nil {
		return nil, openError(path, err)
	}
	return o.open(path)
}

// open opens or creates the database at path. Its write-ahead log stays on, so what survives
// a crash is a prefix of whole entries.
func (o *Options) open(path string) (kv.DB, error) {
	memory := cmp.Or(o.Memory, 64<<20)
	cache := pebble.NewCache(int64(memory))
	defer cache.Unref() // the database has a reference of its own
	options := &pebble.Options{
		Cache:                       cache,
		MemTableSize:                memory,
		MemTableStopWritesThreshold: 3,
		L0CompactionThreshold:       cmp.Or(o.Tables, 2),
		LBaseMaxBytes:               1 << 40, // one level below: offsets grow, so what is flushed hardly overlaps it
		WALBytesPerSync:             512 << 10,
		FormatMajorVersion:          pebble.FormatValueSeparation,
		ReadOnly:                    o.ReadOnly,
		Logger:                      pebbleLogger{o.Logger.Named("pebble"), o.Fatal},
		EventListener: &pebble.EventListener{
			DiskSlow:       (&slowDisk{options: o}).report,
			DataCorruption: o.dataCorruption,
		},
	}
	options.ApplyCompressionSettings(func() pebble.DBCompressionSettings {
		return pebble.UniformDBCompressionSettings(block.NoCompression) // events are compressed, keys are hashes
	})
	if o.ReadOnly {
		options.FS = unlocked{o.FS} // a stopped node's folder may be on a medium that takes no lock
	} else {
		options.FS = watchedFS{o.FS, path, o.Fatal}
	}
	if o.FS == vfs.Default && !o.ReadOnly {
		options.WithFSDefaults() // health checks
	}
	db, err := pebble.Open(path, options)
	if err != nil {
		return nil, openError(path, err)
	}
	return database{db}, nil
}

// unlocked is a file system for reading alone: the data folder has a lock of its
// own.
type unlocked struct{ vfs.FS }

// Lock implements vfs.FS.
func (unlocked) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// openError distinguishes damage from what the machine around the folder does not allow.
func openError(path string, err error) error {
	// These are not damage: opening may succeed once the machine allows it. ErrDamaged is known already.
	outside := []error{
		os.ErrPermission, syscall.EROFS, syscall.ENOSPC, syscall.EIO, syscall.EAGAIN, syscall.EMFILE, ErrDamaged,
	}
	for _, one := range outside {
		if errors.Is(err, one) {
			return fmt.Errorf("open %s: %w", path, err)
		}
	}

	// Pebble has no error value for a format that is too new, only this text.
	line := firstLine(err.Error())
	if strings.Contains(line, "format major version") {
		return fmt.Errorf("open %s: %w: %s", path, ErrNewerFormat, line)
	}
	return fmt.Errorf("open %s: %w: %s; %s", path, ErrDamaged, line, Remedy)
}

// firstLine returns the line of a message of Pebble's that says what happened; stacks may follow.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// dataCorruption ends the node over a file that Pebble found damaged.
func (o *Options) dataCorruption(info pebble.DataCorruptionInfo) {
	what := firstLine(fmt.Sprint(info.Details))
	o.Fatal(fmt.Errorf("read %s: %w: %s; %s", info.Path, ErrDamaged, what, Remedy))
}

// pebbleLogger passes Pebble's messages to the diagnostics logger, and its fatal ones to whoever
// ends the process.
type pebbleLogger struct {
	logger hclog.Logger
	fatal  func(error)
}

// Infof implements pebble.Logger.
func (l pebbleLogger) Infof(format string, args ...any) { l.logger.Trace(fmt.Sprintf(format, args...)) }

// Errorf implements pebble.Logger.
func (l pebbleLogger) Errorf(format string, args ...any) {
	l.logger.Error(fmt.Sprintf(format, args...))
}

// Fatalf implements pebble.Logger. Pebble calls it where it cannot continue.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	err := fmt.Errorf("write the state: %w: %s: check the disk, then start the node again",
		ErrDiskFailed, firstLine(fmt.Sprintf(format, args...)))
	l.fatal(err)
	panic(err)
}
