package store

import (
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/internal/kv"
)

// cut is the file system as it was before one operation of a creation: what a killed process
// leaves, which is everything, or what a power loss leaves of it at least. Names appear on a disk in
// the order in which they were made, which Pebble relies on, so no other mixture is tried.
type cut struct {
	before errorfs.Op
	kept   int // percent of what was not synced
	fs     *vfs.MemFS
}

// lockFile locks a database by making the file, as a disk does. MemFS.Lock makes none, and waits
// forever if a CrashClone comes in between.
type lockFile struct{ vfs.FS }

// Lock implements vfs.FS.
func (f lockFile) Lock(name string) (io.Closer, error) {
	return f.Create(name, vfs.WriteCategoryUnspecified)
}

// options are those of a folder on fs; whatever ends the node fails the test.
func options(t *testing.T, fs vfs.FS) *Options {
	return &Options{
		Dir:    "data/state",
		FS:     fs,
		Logger: hclog.NewNullLogger(),
		Fatal:  func(err error) { t.Errorf("the node ends: %v", err) },
	}
}

// create makes the folder on fs, or continues where an earlier creation was interrupted, and
// requires a database without a key.
func create(t *testing.T, fs vfs.FS) error {
	o := options(t, fs)
	path, err := o.Current()
	if err != nil {
		return err
	}
	db, err := o.Open(path)
	if err != nil {
		return err
	}
	defer db.Close()
	it, err := db.Iter(nil, nil)
	if err != nil {
		return err
	}
	if it.First() {
		t.Errorf("a new database holds %q", it.Key())
	}
	return it.Close()
}

// cutCreation creates a folder and returns what would be left of it if the process, or the
// machine, ended before each of the operations that write.
func cutCreation(t *testing.T) (cuts []cut) {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(1, 2)) // asked for, and without effect
	mem := vfs.NewCrashableMem()
	watched := errorfs.Wrap(lockFile{mem}, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		for _, kept := range []int{0, 100} {
			left := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rng})
			cuts = append(cuts, cut{op, kept, left})
		}
		return nil
	}))
	if err := create(t, watched); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	return cuts
}

// A creation that was interrupted, by a kill or by a power loss, at whatever operation, is done
// again at the next start: nobody has to empty the folder of a node that has never run.
func TestAnInterruptedCreationIsRepeated(t *testing.T) {
	cuts := cutCreation(t)
	interrupted := 0
	for i, c := range cuts {
		if _, err := c.fs.Stat("data/state/CURRENT"); err != nil {
			interrupted++
		}
		if err := create(t, c.fs); err != nil {
			t.Errorf("step %d, before %v %s, %d %% kept: %v", i/2, c.before.Kind, c.before.Path, c.kept, err)
		}
	}
	if interrupted < 40 {
		t.Errorf("only %d of %d folders had no CURRENT", interrupted, len(cuts))
	}
}

// A database that holds something is never taken for an interrupted creation, even if it lost
// its CURRENT, and the marker that names its manifest as well.
func TestALostMarkerIsNotAnInterruptedCreation(t *testing.T) {
	for _, flush := range []bool{false, true} {
		fs := vfs.NewMem()
		o := options(t, fs)
		path, err := o.Current()
		if err != nil {
			t.Fatal(err)
		}
		db, err := o.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		b := db.NewBatch()
		if err := errors.Join(b.Set([]byte("k"), []byte("v")), b.Commit(kv.Sync), b.Close()); err != nil {
			t.Fatal(err)
		}
		if flush {
			if err := db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		loseMarkers(t, fs, path)
		if err := create(t, fs); err == nil {
			t.Errorf("flushed %v: taken for an interrupted creation", flush)
		}
	}
}

// loseMarkers removes CURRENT and the marker of the manifest from a folder.
func loseMarkers(t *testing.T, fs vfs.FS, path string) {
	t.Helper()
	names, err := fs.List(path)
	if err != nil {
		t.Fatal(err)
	}
	lost := []string{"data/state/CURRENT"}
	for _, name := range names {
		if strings.HasPrefix(name, "marker.manifest.") {
			lost = append(lost, fs.PathJoin(path, name))
		}
	}
	if len(lost) != 2 {
		t.Fatalf("%d markers of a manifest in %v", len(lost)-1, names)
	}
	for _, name := range lost {
		if err := fs.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}
