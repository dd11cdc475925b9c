package blackbox

import (
	"errors"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func readFile(fs vfs.FS, path string) ([]byte, error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(f)
	return raw, errors.Join(err, f.Close())
}

// replaceFile puts content in the place of a file, durably, and returns it open for
// writing on. After an error the file is the old one or the new one.
func replaceFile(fs vfs.FS, path string, content []byte) (vfs.File, error) {
	temporary := path + ".tmp"
	f, err := fs.Create(temporary, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	if err := writeSynced(f, content); err != nil {
		return nil, errors.Join(err, f.Close(), fs.Remove(temporary))
	}
	if err := fs.Rename(temporary, path); err != nil {
		return nil, errors.Join(err, f.Close(), fs.Remove(temporary))
	}
	if err := syncDir(fs, fs.PathDir(path)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// writeSynced owns content.
func writeSynced(f vfs.File, content []byte) error {
	if _, err := f.Write(content); err != nil {
		return err
	}
	return f.Sync()
}

// syncFile makes durable what can be read of a file by now, its name included.
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

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
