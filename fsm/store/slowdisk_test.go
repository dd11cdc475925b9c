package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"
)

// A disk hangs when one operation was reported often and long enough, not when the process
// was paused during it, and not when many operations are slow one after the other.
func TestADiskIsHungByReportsNotByTheClock(t *testing.T) {
	for _, tc := range []struct {
		name      string
		durations []time.Duration // of the reports on one file
		hung      bool
	}{
		{"a sync that does not end", seconds(5, 7, 9, 11, 13, 15, 17, 19, 21), true},
		{"the last report comes just after the limit", seconds(6, 8, 10, 12, 14, 16, 18, 20), true},
		{"a process paused for a minute", seconds(60), false},
		{"a process paused while the disk was slow", seconds(5, 7, 60), false},
		{"a process paused again and again", seconds(8, 16, 24, 32), false},
		{"syncs that are slow one after the other", seconds(5, 7, 9, 11, 6, 8, 10, 12, 5, 7, 9, 21), false},
		{"a disk that hangs in the end", seconds(5, 9, 5, 7, 9, 11, 13, 15, 17, 19, 21), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var fatal error
			disk := slowDisk{options: &Options{Logger: hclog.NewNullLogger(), Fatal: func(err error) { fatal = err }}}
			for i, d := range tc.durations {
				disk.report(pebble.DiskSlowInfo{Path: "1.log", OpType: vfs.OpTypeSyncData, Duration: d})
				if fatal != nil && i < len(tc.durations)-1 {
					t.Fatalf("ended at report %d of %d: %v", i+1, len(tc.durations), fatal)
				}
			}
			if hung := errors.Is(fatal, ErrDiskHung); hung != tc.hung {
				t.Errorf("hung is %v, want %v: %v", hung, tc.hung, fatal)
			}
		})
	}
	var disk slowDisk
	for i := range 10 * maxSlowOperations {
		disk.count(pebble.DiskSlowInfo{Path: fmt.Sprint(i), Duration: 6 * time.Second})
	}
	if len(disk.reports) > maxSlowOperations {
		t.Errorf("%d operations are remembered, at most %d should be", len(disk.reports), maxSlowOperations)
	}
}

func seconds(list ...int) (out []time.Duration) {
	for _, n := range list {
		out = append(out, time.Duration(n)*time.Second+100*time.Millisecond)
	}
	return out
}
