package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/log"
	"github.com/ringrift/ringlog/raftnode"
	"github.com/ringrift/ringlog/raftnode/blackbox"
	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/raftstore"
	"github.com/ringrift/ringlog/snapshots"
)

// The exit codes.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitNotFound    = 4
	exitTimeout     = 5
	exitRefused     = 6
)

// usageError is a command line or a configuration that can not work.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// notFoundError is something asked for that is not there.
type notFoundError struct{ error }

func notFoundf(format string, args ...any) error {
	return notFoundError{fmt.Errorf(format, args...)}
}

// errUnreachable is an endpoint list at which nobody takes a connection.
var errUnreachable = errors.New("no endpoint can be reached")

// errLeaderless is a cluster in which nobody leads.
var errLeaderless = errors.New("nobody leads the cluster")

// errNewcomerSilent is a node to let in that the cluster can not connect to.
var errNewcomerSilent = errors.New("the new node does not answer")

// codeError ends the program with a code and no message, because what there is to say was
// said.
type codeError int

func (e codeError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// exitCode is the code that an error ends the program with.
func exitCode(err error) int {
	var code codeError
	var usage usageError
	var missing notFoundError
	var fromAPI *api.Error
	var bad *event.Error
	var unknownTopic cli.ExitCoder // of the help verb
	switch {
	case err == nil, errors.Is(err, syscall.EPIPE):
		return exitDone
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage), errors.As(err, &unknownTopic):
		return exitUsage
	case errors.As(err, &missing):
		return exitNotFound
	case errors.As(err, &fromAPI):
		return apiExit(fromAPI.Code)
	case errors.As(err, &bad):
		return exitUsage
	case errors.Is(err, errUnreachable), errors.Is(err, errLeaderless), errors.Is(err, errNewcomerSilent), errors.Is(err, client.ErrUnreachable):
		return exitUnreachable
	case errors.Is(err, context.DeadlineExceeded):
		return exitTimeout
	default:
		return offlineExit(err)
	}
}

func apiExit(c api.Code) int {
	switch c {
	case api.InvalidArgument, api.InvalidJSON, api.TooLarge, api.UnsupportedMedia, api.Unauthenticated, api.Forbidden:
		return exitUsage
	case api.NoLeader, api.NoQuorum, api.Unavailable:
		return exitUnreachable
	case api.NotFound, api.Trimmed, api.PastTail:
		return exitNotFound
	case api.Timeout:
		return exitTimeout
	case api.Conflict, api.Exists, api.Fenced, api.OutOfSequence, api.UnknownProducer, api.Reserved, api.UnknownType, api.OtherCluster:
		return exitRefused
	default:
		return exitFailed
	}
}

// offlineExit is the code for what is wrong with a data folder.
func offlineExit(err error) int {
	for _, configuration := range []error{datadir.ErrReadOnly, datadir.ErrOtherNode, datadir.ErrOtherCluster, datadir.ErrLogStoreGone,
		datadir.ErrNewerFormat, fsm.ErrNewerFormat, blackbox.ErrNewerFormat, raftnode.ErrNotEmpty} {
		if errors.Is(err, configuration) {
			return exitUsage
		}
	}
	if errors.Is(err, datadir.ErrNoFolder) {
		return exitNotFound
	}
	return exitFailed
}

// problemName gives damage and failing disks a name that can be searched for, ""
// to other errors.
func problemName(err error) string {
	names := []struct {
		err  error
		name string
	}{
		{raftstore.ErrDiskHung, "DISK_HUNG"}, {raftstore.ErrDiskFailed, "DISK_FAILED"},
		{fsm.ErrDiskHung, "DISK_HUNG"}, {fsm.ErrDiskFailed, "DISK_FAILED"},
		{raftstore.ErrCorruptEntry, "CORRUPT_ENTRY"}, {raftstore.ErrBehindState, "RAFT_LOG_BEHIND_STATE"},
		{frame.ErrUnsupported, "UNSUPPORTED_FRAME"}, {frame.ErrCorrupt, "CORRUPT_FRAME"}, {log.ErrCorrupt, "DAMAGED"},
		{raftnode.ErrForeignFolder, "OTHER_CLUSTER"}, {raftnode.ErrRolledBack, "ROLLED_BACK"}, {raftnode.ErrRecoveredWithout, "CLUSTER_RECOVERED"},
		{raftnode.ErrDiverged, "DIVERGED"}, {datadir.ErrDamaged, "DAMAGED"}, {fsm.ErrDamaged, "DAMAGED"}, {blackbox.ErrDamaged, "DAMAGED"},
		{snapshots.ErrCorrupt, "DAMAGED_SNAPSHOT"},
	}
	for _, n := range names {
		if errors.Is(err, n.err) {
			return n.name
		}
	}
	return ""
}
