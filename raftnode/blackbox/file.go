package blackbox

import (
	"errors"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// readFile returns the whole content of a file.
func readFile(fs vfs.FS, path string) ([]byte, error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(f)
	return raw, errors.Join(err, f.Close())
}

// replaceFile replaces the content of a file durably, and returns the file open for
// appending. After an error the file is the old one or the new one. It owns content.
func replaceFile(fs vfs.FS, path string, content []byte) (vfs.File, error) {
	temporary := path + ".tmp"
	f, err := fs.Create(temporary, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	// The content must be on disk before the name points to it.
	if err := writeSynced(f, content); err != nil {
		return nil, errors.Join(err, f.Close(), fs.Remove(temporary))
	}
	if err := fs.Rename(temporary, path); err != nil {
		return nil, errors.Join(err, f.Close(), fs.Remove(temporary))
	}
	// After an error here the name may point to either file: the temporary name is gone.
	if err := syncDir(fs, fs.PathDir(path)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// writeSynced writes content to f and syncs f. It owns content: a vfs.File may change what it writes.
func writeSynced(f vfs.File, content []byte) error {
	if _, err := f.Write(content); err != nil {
		return err
	}
	return f.Sync()
}

// syncFile makes the present content of a file durable, and its name.
func syncFile(fs vfs.FS, path string) error {
	f, err := fs.Open(path)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return syncDir(fs, fs.PathDir(path))
}

// syncDir makes the names in a folder durable.
func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
