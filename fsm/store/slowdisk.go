package store

import (
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// diskHangs is how long one file operation may take before the disk counts as hung.
	diskHangs = 20 * time.Second
	// hungReports is how often Pebble reports an operation within diskHangs: every two
	// seconds, once it has taken five.
	hungReports = 7
	// maxSlowOperations bounds what is remembered of operations that were slow once.
	maxSlowOperations = 64
)

// slowDisk distinguishes a slow disk from one that hangs. An operation is judged by the number of
// reports, and not only by the time that it took: when a process that was paused during a sync
// continues, the sync is reported once, and its disk does not hang.
type slowDisk struct {
	options *Options

	mu      sync.Mutex
	reports map[slowOperation]slowReports
}

// slowOperation identifies the operations on a file that are counted together.
type slowOperation struct {
	path string
	kind vfs.OpType
}

type slowReports struct {
	count    int
	duration time.Duration // at the latest report
}

// report is called by Pebble for each operation that is slow. It ends the node over an
// operation that hangs: a leader that cannot write must not lead on.
func (d *slowDisk) report(info pebble.DiskSlowInfo) {
	if d.count(info) > hungReports && info.Duration > diskHangs {
		d.options.Fatal(fmt.Errorf("%w: %s on %s has taken %s: check the disk, then start the node again",
			ErrDiskHung, info.OpType, info.Path, info.Duration))
		return
	}
	d.options.Logger.Warn("slow disk", "operation", info.OpType, "path", info.Path, "took", info.Duration)
}

// count returns how often the operation was reported, this time included.
func (d *slowDisk) count(info pebble.DiskSlowInfo) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	operation := slowOperation{info.Path, info.OpType}
	was, known := d.reports[operation]
	if info.Duration < was.duration {
		was.count = 0 // a later operation on the same file
	}
	if d.reports == nil || (!known && len(d.reports) == maxSlowOperations) {
		d.reports = map[slowOperation]slowReports{}
	}
	d.reports[operation] = slowReports{was.count + 1, info.Duration}
	return was.count + 1
}
