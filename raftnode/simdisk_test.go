package raftnode

import (
	"math"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// part is what of a node's disk a fault is about. The state's part never hangs: an entry may wait for
// it while it holds the machine's mutex, and whoever waits for a mutex stops simulated time.
// TestANodeWhoseStateDiskHangsAnswersPings takes real time for it.
type part string

const (
	journalDisk part = "journal of outages"
	logDisk     part = "raft log"
	fullDisk    part = "full disk"
)

// simDisk is one node's disk.
type simDisk map[part]*hangingDisk

func newSimDisk() simDisk {
	d := simDisk{}
	for _, p := range []part{journalDisk, logDisk, fullDisk} {
		d[p] = newHangingDisk()
	}
	return d
}

// attach makes a node that is opened with cfg use d.
func (d simDisk) attach(cfg *Config) {
	cfg.journalFS = d[journalDisk]
	cfg.OnStore = func(int, int, time.Duration) { d[logDisk].pass() }
	cfg.Disk = Disk{MinFree: 1 << 30, Reserve: -1, Space: d.space}
}

func (d simDisk) space() (free, size uint64, err error) {
	if d[fullDisk].hangs() {
		return 1 << 20, 1 << 40, nil
	}
	return math.MaxInt64, math.MaxInt64, nil
}

// thaw ends all that is wrong with the disk.
func (d simDisk) thaw() {
	for _, part := range d {
		part.thaw()
	}
}

// hangingDisk is a file system whose syncs hang from a call of hang until one of thaw.
type hangingDisk struct {
	vfs.FS
	mu   sync.Mutex
	gate chan struct{} // closed by thaw; nil: syncs pass

	writes bool // hang, too
}

func newHangingDisk() *hangingDisk { return &hangingDisk{FS: vfs.Default} }

func (d *hangingDisk) hang() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gate == nil {
		d.gate = make(chan struct{})
	}
}

func (d *hangingDisk) thaw() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gate != nil {
		close(d.gate)
		d.gate = nil
	}
}

func (d *hangingDisk) hangs() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gate != nil
}

func (d *hangingDisk) pass() {
	d.mu.Lock()
	gate := d.gate
	d.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

type hangingFile struct {
	vfs.File
	disk *hangingDisk
}

func (f hangingFile) Sync() error     { f.disk.pass(); return f.File.Sync() }
func (f hangingFile) SyncData() error { f.disk.pass(); return f.File.SyncData() }

func (f hangingFile) Write(p []byte) (int, error) {
	if f.disk.writes {
		f.disk.pass()
	}
	return f.File.Write(p)
}

func (f hangingFile) SyncTo(length int64) (bool, error) {
	f.disk.pass()
	return f.File.SyncTo(length)
}

func (d *hangingDisk) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return hangingFile{f, d}, nil
}

func (d *hangingDisk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return d.wrap(d.FS.Create(name, c))
}

func (d *hangingDisk) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	return d.wrap(d.FS.OpenReadWrite(name, c, o...))
}

func (d *hangingDisk) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return d.wrap(d.FS.ReuseForWrite(from, to, c))
}
