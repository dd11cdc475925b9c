package offline

import (
	"errors"
	"fmt"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/log"
	"github.com/ringrift/ringlog/raftnode"
	"github.com/ringrift/ringlog/raftnode/blackbox"
	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/raftstore"
	"github.com/ringrift/ringlog/snapshots"
)

// Explain turns an error about a data folder, or about a node, into one that has the exit code and
// the name that people search for; it returns other errors as they are.
func Explain(err error) error {
	// Another folder, flag or version of this program helps: the command line is wrong, not the data.
	for _, configuration := range []error{datadir.ErrReadOnly, datadir.ErrOtherNode, datadir.ErrOtherCluster,
		datadir.ErrLogStoreGone,
		snapshots.ErrIncident, snapshots.ErrNoIncident, snapshots.ErrUnsupported,
		datadir.ErrNewerFormat, fsm.ErrNewerFormat, blackbox.ErrNewerFormat, raftnode.ErrNotEmpty} {
		if errors.Is(err, configuration) {
			return shell.UsageError{Err: err}
		}
	}
	// A folder that is none is a wrong path, most likely.
	if errors.Is(err, datadir.ErrNoFolder) {
		return shell.NotFoundError{Err: err}
	}
	// What has a name is damage, unless the name is one of the four that say something else.
	name := ProblemName(err)
	switch name {
	case "":
		return err
	case diskHung, diskFailed:
		// A disk may work again.
		return fmt.Errorf("%s: %w", name, err)
	case otherCluster, clusterRecovered:
		// The folder is whole.
		return shell.RefusedError{Err: fmt.Errorf("%s: %w", name, err)}
	}
	return shell.DamagedError{Err: fmt.Errorf("%s: %w", name, err)}
}

// The problems of a folder that is not damaged: of its disk, which may pass, and of which cluster it is.
const (
	diskHung         = "DISK_HUNG"
	diskFailed       = "DISK_FAILED"
	otherCluster     = "OTHER_CLUSTER"
	clusterRecovered = "CLUSTER_RECOVERED"
)

// ProblemName gives damage and failing disks a name that can be searched for, ""
// to other errors.
// The names are part of the interface: operators search logs and documents for them.
func ProblemName(err error) string {
	// The order matters: an error that wraps several is named by the first.
	names := []struct {
		err  error
		name string
	}{
		{raftstore.ErrDiskHung, diskHung}, {raftstore.ErrDiskFailed, diskFailed},
		{fsm.ErrDiskHung, diskHung}, {fsm.ErrDiskFailed, diskFailed},
		{raftstore.ErrCorruptEntry, "CORRUPT_ENTRY"}, {raftstore.ErrBehindState, "RAFT_LOG_BEHIND_STATE"},
		{frame.ErrUnsupported, "UNSUPPORTED_FRAME"}, {frame.ErrCorrupt, "CORRUPT_FRAME"}, {log.ErrCorrupt, "DAMAGED"},
		{raftnode.ErrForeignFolder, otherCluster}, {raftnode.ErrRolledBack, "ROLLED_BACK"},
		{raftnode.ErrRecoveredWithout, clusterRecovered},
		{raftnode.ErrDiverged, "DIVERGED"}, {datadir.ErrDamaged, "DAMAGED"}, {fsm.ErrDamaged, "DAMAGED"},
		{blackbox.ErrDamaged, "DAMAGED"},
		{snapshots.ErrCorrupt, "DAMAGED_SNAPSHOT"},
	}
	// An error without a name is no damage of a folder.
	for _, n := range names {
		if errors.Is(err, n.err) {
			return n.name
		}
	}
	return ""
}
