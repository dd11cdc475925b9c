package blackbox

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
)

const file = "blackbox.jsonl"

var noon = time.Date(2026, 3, 1, 12, 0, 0, 987654321, time.UTC)

// kinds of an outage as it may come, views the most.
var kinds = []Kind{Lost, View, View, View, Stalled, LeaseExpired, Restored}

// sample is the i-th record of a made-up outage.
func sample(i int) Record {
	at := noon.Add(time.Duration(i) * time.Second)
	r := Record{At: at, Kind: kinds[i%len(kinds)], Term: uint64(3 + i/10), Leader: "n1", Refused: uint64(i)}
	if r.Kind != View {
		r.Since, r.Cause = at.Add(-2*time.Second), "<n2> & \"n3\" – late\n"
	}
	for p := range i % 3 {
		r.Peers = append(r.Peers, Peer{ID: fmt.Sprintf("n%d", p+2), Reachable: p == 1, LastContactMs: int64(i*100 - 1)})
	}
	return r
}

// anyRecord is one of any kind and of very different size.
func anyRecord(rng *rand.Rand) Record {
	r := sample(rng.IntN(1000))
	r.Cause = strings.Repeat("x", rng.IntN(100))
	return r
}

func open(t testing.TB, fs vfs.FS, maxBytes int) *Journal {
	t.Helper()
	j, err := Open(file, Options{FS: fs, MaxBytes: maxBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func add(t testing.TB, j *Journal, r Record) Record {
	t.Helper()
	stored, err := j.Append(r)
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

func settle(t testing.TB, j *Journal, seq uint64) {
	t.Helper()
	if err := j.Settle(seq); err != nil {
		t.Fatal(err)
	}
}

func same(t testing.TB, what string, got, want []Record) {
	t.Helper()
	if !reflect.DeepEqual(got, want) && len(want)+len(got) > 0 {
		t.Fatalf("%s (-want +got):\n%s", what, cmp.Diff(want, got))
	}
}

// holding is a disk whose one journal has these bytes.
func holding(t testing.TB, raw []byte) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewMem()
	f, err := fs.Create(file, vfs.WriteCategoryUnspecified)
	if err == nil {
		err = writeSynced(f, append([]byte(nil), raw...))
	}
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

func content(t testing.TB, fs vfs.FS) []byte {
	t.Helper()
	raw, err := readFile(fs, file)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// disk is a real or a memory disk on which single steps go wrong. Which ones, fault
// says before each of them: "create", "write", "sync", "rename", "syncdir".
type disk struct {
	vfs.FS
	fault func(step string) error
}

func (d *disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := d.fault("create"); err != nil {
		return nil, err
	}
	f, err := d.FS.Create(name, c)
	return &diskFile{f, d, "sync"}, err
}

func (d *disk) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.Open(name, o...)
	if err != nil {
		return nil, err
	}
	return &diskFile{f, d, "sync"}, nil
}

func (d *disk) OpenDir(name string) (vfs.File, error) {
	f, err := d.FS.OpenDir(name)
	return &diskFile{f, d, "syncdir"}, err
}

func (d *disk) Rename(from, to string) error {
	if err := d.fault("rename"); err != nil {
		return err
	}
	return d.FS.Rename(from, to)
}

type diskFile struct {
	vfs.File
	disk *disk
	sync string
}

// Write that fails has written half: a torn write.
func (f *diskFile) Write(p []byte) (int, error) {
	if err := f.disk.fault("write"); err != nil {
		n, _ := f.File.Write(p[:len(p)/2])
		return n, err
	}
	return f.File.Write(p)
}

func (f *diskFile) Sync() error {
	if err := f.disk.fault(f.sync); err != nil {
		return err
	}
	return f.File.Sync()
}

// failing is a fault at the n-th of the steps of one kind, counted from 0.
func failing(step string, n int) func(string) error {
	return func(s string) error {
		if s != step {
			return nil
		}
		if n--; n == -1 {
			return syscall.EIO
		}
		return nil
	}
}

func healthy(string) error { return nil }
