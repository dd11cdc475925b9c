package store

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// watchedFS ends the node at the first failure of what Pebble cannot work without: its
// write-ahead log, its manifest, its folder. Pebble itself panics there, in some places beyond
// recovery. It retries failures of other files by itself, and those of a checkpoint are returned
// to the caller of the checkpoint.
type watchedFS struct {
	vfs.FS
	dir   string // of the database
	fatal func(error)
}

// check returns err, and ends the node over it.
func (w watchedFS) check(doing, path string, err error) error {
	if err != nil {
		w.fatal(fmt.Errorf("%s %s: %w: %w: check the disk, then start the node again",
			doing, path, ErrDiskFailed, err))
	}
	return err
}

// vital reports whether a file is the write-ahead log or the manifest of the database.
func (w watchedFS) vital(path string) bool {
	name := filepath.Base(path)
	inDatabase := filepath.Dir(path) == filepath.Clean(w.dir)
	return inDatabase && (filepath.Ext(name) == ".log" || strings.HasPrefix(name, "MANIFEST"))
}

// watch returns what a call for the file at path has to return.
func (w watchedFS) watch(path string, f vfs.File, err error) (vfs.File, error) {
	if !w.vital(path) {
		return f, err
	}
	if w.check("create", path, err) != nil {
		return nil, err
	}
	return watchedFile{f, w, path}, nil
}

// Unwrap implements vfs.FS.
func (w watchedFS) Unwrap() vfs.FS { return w.FS }

// Create implements vfs.FS.
func (w watchedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := w.FS.Create(name, c)
	return w.watch(name, f, err)
}

// ReuseForWrite implements vfs.FS.
func (w watchedFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := w.FS.ReuseForWrite(oldname, newname, c)
	return w.watch(newname, f, err)
}

// OpenDir implements vfs.FS.
func (w watchedFS) OpenDir(name string) (vfs.File, error) {
	f, err := w.FS.OpenDir(name)
	if err != nil || filepath.Clean(name) != filepath.Clean(w.dir) {
		return f, err
	}
	return watchedFile{f, w, name}, nil
}

// watchedFile ends the node where it cannot be written.
type watchedFile struct {
	vfs.File
	fs   watchedFS
	path string
}

// Write implements vfs.File.
func (f watchedFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.fs.check("write", f.path, err)
}

// Sync implements vfs.File.
func (f watchedFile) Sync() error { return f.fs.check("sync", f.path, f.File.Sync()) }

// SyncData implements vfs.File.
func (f watchedFile) SyncData() error { return f.fs.check("sync", f.path, f.File.SyncData()) }

// SyncTo implements vfs.File.
func (f watchedFile) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	return full, f.fs.check("sync", f.path, err)
}

// Preallocate implements vfs.File. It takes no room ahead of what is written: that would save a sync some metadata, and
// the log is not synced for each entry; but it is 70 MB of disk for each database that opens.
func (f watchedFile) Preallocate(_, _ int64) error { return nil }
