// Package store keeps one Pebble database in a folder, where another one can take its place in
// one step. It knows no key and no decision of the state machine.
//
// It promises that a crash leaves the old database or the new one, never neither; that a folder
// which has lost something is refused and not taken for a new one; and that a disk that fails
// or hangs ends the node, because a leader that cannot write must not continue to lead.
//
//	o := store.Options{Dir: dir, FS: vfs.Default, Logger: logger, Fatal: fatal}
//	path, err := o.Current()
//	db, err := o.Open(path)
//
// # The folder
//
//	CURRENT    "000001\n"
//	000001/    the database that CURRENT names
package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"
)

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

// ErrNewerFormat is wrapped when a state was written by a newer build.
var ErrNewerFormat = errors.New("the state was written by a newer version of ringlog")

// Remedy is what to do about a damaged folder.
const Remedy = "remove the node from the cluster, empty its folder and join again"

// Options say how databases are opened, and in which folder they are. All but ReadOnly and Memory, and Dir
// for opening a database alone, are required.
type Options struct {
	Dir      string // holds CURRENT and the database that it names
	FS       vfs.FS
	Logger   hclog.Logger
	ReadOnly bool        // nothing is written, not even a recovery
	Fatal    func(error) // is called with what must end the node
	Memory   uint64      // bytes of the cache, and of a table in memory; 0 is 64 MiB
	Tables   int         // how many tables are written until they are merged; 0 is 2. More cost reads, and save merges
}

// Current returns the path of the database that CURRENT names, or of a new one where the folder has
// none yet. It removes what an interrupted Replace has left.
func (o *Options) Current() (string, error) {
	name, err := o.readCurrent()
	if errors.Is(err, os.ErrNotExist) && !o.ReadOnly {
		return o.create()
	}
	if err != nil {
		return "", err
	}
	path := o.FS.PathJoin(o.Dir, name)
	if _, err := o.FS.Stat(path); err != nil {
		return "", fmt.Errorf("open %s: %w: CURRENT names %s, which is missing; %s: %w",
			o.Dir, ErrDamaged, name, Remedy, err)
	}

	// Only now is it certain that nothing else in the folder is needed.
	if !o.ReadOnly {
		err = o.removeOthers(name)
	}
	return path, err
}

// readCurrent returns the name in CURRENT.
func (o *Options) readCurrent() (string, error) {
	f, err := o.FS.Open(o.FS.PathJoin(o.Dir, currentFile))
	if err != nil {
		return "", fmt.Errorf("open %s: %w", o.Dir, err)
	}
	defer f.Close()
	// A damaged file may be of any size: more than a name is not read.
	text, err := io.ReadAll(io.LimitReader(f, 64))
	if err != nil {
		return "", fmt.Errorf("open %s: %w", o.Dir, err)
	}

	// CURRENT is replaced as a whole: one without its end was cut afterwards.
	name, whole := strings.CutSuffix(string(text), "\n")
	if !whole || len(name) != len(firstName) || strings.Trim(name, "0123456789") != "" {
		return "", fmt.Errorf("open %s: %w: CURRENT holds %q; %s", o.Dir, ErrDamaged, text, Remedy)
	}
	return name, nil
}

// create makes the first database.
func (o *Options) create() (string, error) {
	path := o.FS.PathJoin(o.Dir, firstName)
	if err := o.FS.MkdirAll(path, 0o755); err != nil {
		return "", fmt.Errorf("create %s: %w", o.Dir, err)
	}
	if err := o.checkUnused(path); err != nil {
		return "", err
	}

	// What an interrupted creation left is made again from the start.
	if err := errors.Join(o.FS.RemoveAll(path), o.FS.MkdirAll(path, 0o755)); err != nil {
		return "", fmt.Errorf("create %s: %w", o.Dir, err)
	}
	db, err := o.open(path)
	if err != nil {
		return "", err
	}
	if err := db.Close(); err != nil {
		return "", fmt.Errorf("create %s: %w", o.Dir, err)
	}

	// The folder is durable before CURRENT, which is the last thing to appear in it.
	if err := o.syncDir(o.FS.PathDir(o.Dir)); err != nil {
		return "", err
	}
	return path, o.writeCurrent(firstName)
}

// checkUnused refuses a folder that lost its CURRENT: one with other databases, or with one that
// has something in it. What an interrupted creation left is neither.
func (o *Options) checkUnused(path string) error {
	left, err := o.FS.List(path)
	others, err2 := o.FS.List(o.Dir)
	if err := errors.Join(err, err2); err != nil {
		return fmt.Errorf("create %s: %w", o.Dir, err)
	}
	// An interrupted creation leaves no other names, and in the database none but those until
	// Pebble places the marker that names the manifest. A key is stored only after that.
	others = slices.DeleteFunc(others, func(name string) bool {
		return name == firstName || name == currentFile+".tmp"
	})
	left = slices.DeleteFunc(left, func(name string) bool {
		return name == "LOCK" || name == "MANIFEST-000001"
	})

	// With the marker it can be opened: a first database without a key has never been in use.
	if len(others) > 0 || (len(left) > 0 && !o.isEmpty(path)) {
		return fmt.Errorf("open %s: %w: CURRENT is missing; %s", o.Dir, ErrDamaged, Remedy)
	}
	return nil
}

// isEmpty reports whether the database at path can be opened and has no key.
func (o *Options) isEmpty(path string) bool {
	// Looking into the folder must not write to it: it may turn out to be a damaged one.
	reader := *o
	reader.ReadOnly = true
	db, err := reader.Open(path)
	if err != nil {
		return false
	}
	empty := false
	it, err := db.Iter(nil, nil)
	if err == nil {
		empty = !it.First()
		err = it.Close()
	}
	return errors.Join(err, db.Close()) == nil && empty
}

// Replace puts the database in the folder from, which is on the same file system, in the place
// of the current one, and returns the paths of both. The caller removes the old one once nobody
// uses it; else the next Current does.
func (o *Options) Replace(from string) (path, old string, err error) {
	name, err := o.readCurrent()
	if err != nil {
		return "", "", err
	}
	number, err := strconv.Atoi(name)
	if err != nil {
		return "", "", fmt.Errorf("replace %s: %w", name, err)
	}
	next := fmt.Sprintf("%06d", (number+1)%1_000_000)
	path, old = o.FS.PathJoin(o.Dir, next), o.FS.PathJoin(o.Dir, name)
	if err := o.FS.Rename(from, path); err != nil {
		return "", "", fmt.Errorf("replace %s by %s: %w", name, from, err)
	}

	// CURRENT must not name a folder that a crash may undo.
	if err := o.syncDir(o.Dir); err != nil {
		return "", "", err
	}
	return path, old, o.writeCurrent(next)
}

// writeCurrent makes name the current database: a crash leaves the old one or the new one.
func (o *Options) writeCurrent(name string) error {
	temporary := o.FS.PathJoin(o.Dir, currentFile+".tmp")
	if err := o.writeSynced(temporary, name+"\n"); err != nil {
		return fmt.Errorf("switch to %s: %w", name, err)
	}
	if err := o.FS.Rename(temporary, o.FS.PathJoin(o.Dir, currentFile)); err != nil {
		return fmt.Errorf("switch to %s: %w", name, err)
	}
	return o.syncDir(o.Dir)
}

// writeSynced writes a file whose content is durable once it returns; its name is not.
func (o *Options) writeSynced(path, text string) error {
	f, err := o.FS.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(text))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncDir makes the names in a folder durable.
func (o *Options) syncDir(dir string) error {
	d, err := o.FS.OpenDir(dir)
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}

// removeOthers removes all but CURRENT and the database that it names.
func (o *Options) removeOthers(keep string) error {
	names, err := o.FS.List(o.Dir)
	if err != nil {
		return fmt.Errorf("open %s: %w", o.Dir, err)
	}
	for _, name := range names {
		if name == keep || name == currentFile {
			continue
		}
		// It was replaced, or never got in place.
		if err := o.FS.RemoveAll(o.FS.PathJoin(o.Dir, name)); err != nil {
			return fmt.Errorf("remove what a swap left in %s: %w", o.Dir, err)
		}
	}
	return nil
}
