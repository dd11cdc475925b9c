package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/ringrift/ringlog/internal/frame"
)

// A machine whose unsynced writes are lost at any moment comes back at some entry
// it had applied, in exactly the state of that entry, and never before one it had
// synced; replaying the rest leads to the same dump.
func TestPowerLossLeavesAPrefix(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 40 {
		fs := vfs.NewCrashableMem()
		m := open(t, fs)
		log, digests := []entry{}, map[uint64]Sum{}
		synced, lost := uint64(0), vfs.FS(nil)
		last := uint64(20 + rng.IntN(60))
		crashAt := 1 + rng.Uint64N(last)
		for index := uint64(1); index <= last; index++ {
			e := entryOf(index, 1+index/30, "n1", epoch.Add(time.Duration(index)*time.Second), someRequests(rng)...)
			log = append(log, e)
			applyTo(t, m, e)
			_, digests[index] = m.Digest()
			if index <= crashAt && rng.IntN(10) == 0 {
				if err := m.Sync(); err != nil {
					t.Fatal(err)
				}
				synced = index
			}
			if index == crashAt {
				lost = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
			}
		}
		want := dump(t, m)
		m.Close()
		back := open(t, lost)
		at := back.Applied()
		if at < synced || at > crashAt {
			t.Fatalf("round %d: back at %d, synced was %d, applied %d", round, at, synced, crashAt)
		}
		if _, sum := back.Digest(); at > 0 && sum != digests[at] {
			t.Fatalf("round %d: back at %d with another digest", round, at)
		}
		for _, e := range log {
			applyTo(t, back, e) // what was applied is skipped
		}
		if got := dump(t, back); !bytes.Equal(got, want) {
			t.Fatalf("round %d: after the replay:\n%s\nwant\n%s", round, got, want)
		}
		back.Close()
	}
}

func someRequests(rng *rand.Rand) []request {
	requests := []request{
		publish(ev(rng.IntN(50)), ev(rng.IntN(50))),
		do(frame.MemberPut{Member: frame.Member{ID: "n1", FeatureLevel: FeatureLevel}}),
	}
	name, offset, failed := fmt.Sprint(rng.IntN(3)), rng.Uint64N(60), ev(rng.IntN(50))
	switch rng.IntN(8) {
	case 0:
		requests = append(requests, do(frame.CursorCreate{Name: name}))
	case 1:
		requests = append(requests, do(frame.CursorOpen{Name: name}))
	case 2, 3:
		requests = append(requests, do(frame.DeadLetter{
			Cursor: name,
			Offset: offset,
			Error:  "e",
			Event:  frame.EncodeCopy(&failed),
		}))
	case 4:
		requests = append(requests, do(frame.Redrive{Letters: []uint64{1, 2, 3}}))
	case 5:
		requests = append(requests, do(frame.CursorCommit{Name: name, Offset: offset}))
	case 6:
		requests = append(requests, do(frame.Trim{Before: 1, Retention: true}))
	}
	return requests
}

// plainLock locks by making the file. MemFS.Lock takes its clone lock twice, and
// waits for ever where a CrashClone comes in between.
type plainLock struct{ vfs.FS }

func (f plainLock) Lock(name string) (io.Closer, error) {
	return f.Create(name, vfs.WriteCategoryUnspecified)
}

// A crash in the middle of a swap leaves the old state or the new one whole.
func TestPowerLossDuringSwap(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 30 {
		fs := vfs.NewCrashableMem()
		m := open(t, plainLock{fs})
		applyTo(t, m, entryOf(1, 1, "n1", epoch, publish(ev(1))))
		if err := m.Sync(); err != nil {
			t.Fatal(err)
		}
		before := dump(t, m)
		source := open(t, vfs.NewMem())
		for i := range uint64(9) {
			applyTo(t, source, entryOf(i+1, 1, "n1", epoch, publish(ev(int(i)))))
		}
		after := dump(t, source)
		if _, err := source.Checkpoint("out"); err != nil {
			t.Fatal(err)
		}
		if ok, err := vfs.Clone(source.opts.FS, fs, "out", "incoming", vfs.CloneSync); err != nil || !ok {
			t.Fatal(ok, err)
		}
		done := make(chan error, 1)
		go func() { done <- m.Swap("incoming") }()
		crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(dump(t, m), after) {
			t.Fatal("the swapped state is another one")
		}
		back := open(t, crashed)
		if got := dump(t, back); !bytes.Equal(got, before) && !bytes.Equal(got, after) {
			t.Fatalf("neither the old state nor the new one:\n%s", got)
		}
		for _, m := range []*Machine{back, m, source} {
			m.Close()
		}
	}
}

// A state folder that lost what it held is refused and never taken for a new one.
func TestEmptiedStateIsRefused(t *testing.T) {
	begin := func() vfs.FS {
		fs := vfs.NewMem()
		m := open(t, fs)
		applyTo(t, m, entryOf(1, 1, "n1", epoch, publish(ev(1))))
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		return fs
	}
	losses := map[string]func(vfs.FS) error{
		"the database's files": func(fs vfs.FS) error {
			return errors.Join(fs.RemoveAll("state/000001"), fs.MkdirAll("state/000001", 0o755))
		},
		"the database":           func(fs vfs.FS) error { return fs.RemoveAll("state/000001") },
		"CURRENT":                func(fs vfs.FS) error { return fs.Remove("state/CURRENT") },
		"the content of CURRENT": func(fs vfs.FS) error { return overwrite(fs, "state/CURRENT", "") },
		"the end of CURRENT":     func(fs vfs.FS) error { return overwrite(fs, "state/CURRENT", "000") },
	}
	for what, lose := range losses {
		fs := begin()
		if err := lose(fs); err != nil {
			t.Fatal(err)
		}
		m, err := Open(Options{Dir: "state", FS: fs})
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "join again") {
			t.Errorf("without %s: %v", what, err)
		}
		if err == nil {
			m.Close()
		}
	}
}

// Whatever byte of the manifest is altered: the state is refused, or is all there.
// Pebble alone would open what the records before that byte describe, and delete
// the files of the others; so where records follow, no file is gone afterwards.
func TestNoManifestDamageLosesEvents(t *testing.T) {
	fs := vfs.NewCrashableMem()
	m := open(t, fs)
	for index := uint64(1); index <= 8; index++ {
		applyTo(t, m, entryOf(index, 1, "n1", epoch, publish(ev(int(index)))))
		if err := m.db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	want := dump(t, m)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	desc, err := pebble.Peek("state/000001", fs)
	if err != nil {
		t.Fatal(err)
	}
	size := fileSize(t, fs, desc.ManifestFilename)
	refused := 0
	for at := range size {
		copied := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, uint64(at)))})
		flipByte(t, copied, desc.ManifestFilename, at)
		back, err := Open(Options{Dir: "state", FS: copied})
		if err != nil {
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "join again") {
				t.Fatalf("byte %d: %v", at, err)
			}
			refused++
			if left := files(t, copied); at < size/2 && left < files(t, fs) {
				t.Fatalf("byte %d of %d: refused, and %d files are left of %d", at, size, left, files(t, fs))
			}
			continue
		}
		if got := dump(t, back); !bytes.Equal(got, want) {
			t.Fatalf("byte %d of %d: opened, and holds something else", at, size)
		}
		back.Close()
	}
	t.Logf("%d of %d altered manifests were refused, the others held everything", refused, size)
}

func overwrite(fs vfs.FS, path, text string) error {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(text))
	return errors.Join(err, f.Close())
}

func files(t *testing.T, fs vfs.FS) int {
	names, err := fs.List("state/000001")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

func fileSize(t *testing.T, fs vfs.FS, path string) int64 {
	info, err := fs.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func flipByte(t *testing.T, fs vfs.FS, path string, at int64) {
	f, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	one := make([]byte, 1)
	if _, err := f.ReadAt(one, at); err != nil {
		t.Fatal(err)
	}
	one[0] ^= 0x10
	if _, err := f.WriteAt(one, at); err != nil {
		t.Fatal(err)
	}
}

// A checkpoint that cannot be written fails alone: the node must continue, if only to make
// room.
func TestCheckpointOnAFullDisk(t *testing.T) {
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if strings.HasPrefix(op.Path, "cp/MANIFEST") && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return syscall.ENOSPC
		}
		return nil
	}))
	m, err := Open(Options{Dir: "state", FS: fs, Fatal: func(err error) { t.Errorf("the node ended: %v", err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	applyTo(t, m, entryOf(1, 1, "n1", epoch, publish(ev(1))))
	if _, err := m.Checkpoint("cp"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("checkpoint: %v", err)
	}
	applyTo(t, m, entryOf(2, 1, "n1", epoch, publish(ev(2))))
}

// A disk that fails under the state is one line that says so, before Pebble panics:
// the process that Fatal ends here is a goroutine that never returns.
func TestFailingDisk(t *testing.T) {
	var broken atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return syscall.EIO
		}
		return nil
	}))
	fatal := make(chan error, 16)
	m, err := Open(Options{Dir: "state", FS: fs, Fatal: func(err error) {
		fatal <- err
		select {}
	}})
	if err != nil {
		t.Fatal(err)
	}
	for index := uint64(1); index < 10; index++ {
		applyTo(t, m, entryOf(index, 1, "n1", epoch, publish(ev(int(index)))))
	}
	broken.Store(true)
	go func() { _ = m.Sync() }()
	err = <-fatal
	if !errors.Is(err, ErrDiskFailed) || strings.Contains(err.Error(), "\n") ||
		!strings.Contains(err.Error(), "input/output error") {
		t.Errorf("the node ended with %q", err)
	}
}
