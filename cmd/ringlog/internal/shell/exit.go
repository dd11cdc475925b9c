package shell

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// The exit codes. ExitCodes says what they mean.
// Scripts compare them, so a number keeps its meaning.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitUnreachable = 3
	ExitNotFound    = 4
	ExitTimeout     = 5
	ExitRefused     = 6
	ExitDamaged     = 7
)

// ExitMeaning is an exit code and what it means to a script.
type ExitMeaning struct {
	Code    int
	Meaning string
}

// ExitCodes lists the exit codes. They are part of the interface: ringlog help exit-codes prints them, and docs/http.md
// has the same table.
func ExitCodes() []ExitMeaning {
	return []ExitMeaning{
		{ExitDone, "done"},
		{ExitFailed, "failed otherwise"},
		{ExitUsage, "the command line, the configuration, the token or the event is wrong"},
		{ExitUnreachable, "no endpoint answers, or the cluster has no leader or no quorum: try again later"},
		{ExitNotFound, "not found, trimmed, or past the tail"},
		{ExitTimeout, "timed out"},
		{ExitRefused, "refused in the current state: conflict, exists, fenced, reserved or unknown type, another " +
			"cluster"},
		{ExitDamaged, "damaged: a data folder or a backup, or a state that has diverged; starting the node again does not " +
			"help"},
	}
}

// UsageError is a command line or a configuration that cannot work.
// It is found before anything is changed.
// Its exit code is ExitUsage.
type UsageError struct{ Err error }

// Error implements error.
func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e UsageError) Unwrap() error { return e.Err }

// Usagef is a UsageError in words.
func Usagef(format string, args ...any) error {
	return UsageError{fmt.Errorf(format, args...)}
}

// NotFoundError is something asked for that is not there.
// Its exit code is ExitNotFound.
type NotFoundError struct{ Err error }

// Error implements error.
func (e NotFoundError) Error() string { return e.Err.Error() }

// Unwrap returns what is missing.
func (e NotFoundError) Unwrap() error { return e.Err }

// NotFoundf is a NotFoundError in words.
func NotFoundf(format string, args ...any) error {
	return NotFoundError{fmt.Errorf(format, args...)}
}

// RefusedError is something that the current state forbids.
// Its exit code is ExitRefused.
type RefusedError struct{ Err error }

// Error implements error.
func (e RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns what forbids it.
func (e RefusedError) Unwrap() error { return e.Err }

// DamagedError is a data folder, a backup or a state that a retry does not mend.
// Its exit code is ExitDamaged, for which a supervisor must not start a node again.
type DamagedError struct{ Err error }

// Error implements error.
func (e DamagedError) Error() string { return e.Err.Error() }

// Unwrap returns what is damaged.
func (e DamagedError) Unwrap() error { return e.Err }

// ErrUnreachable reports that no endpoint accepts a connection.
var ErrUnreachable = errors.New("no endpoint can be reached")

// ErrLeaderless reports that the cluster has no leader.
var ErrLeaderless = errors.New("the cluster has no leader")

// ErrNewcomerSilent reports that the cluster cannot connect to the node to be added.
var ErrNewcomerSilent = errors.New("the new node does not answer")

// CodeError ends the program with a code and no message: the verb has reported the reason
// already.
type CodeError int

// Error implements error; nobody sees the text.
func (e CodeError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// ExitCode is the code that an error ends the program with.
func ExitCode(err error) int {
	// The order below matters: an error may wrap several of these, and the first that is found decides.
	var code CodeError
	var usage UsageError
	var missing NotFoundError
	var refused RefusedError
	var damaged DamagedError
	var fromAPI *api.Error
	var bad *event.Error
	var unknownTopic cli.ExitCoder // of the help verb
	switch {
	case err == nil, errors.Is(err, syscall.EPIPE):
		// The reader of the output, such as head, has enough.
		return ExitDone
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage), errors.As(err, &unknownTopic):
		return ExitUsage
	case errors.As(err, &missing):
		return ExitNotFound
	case errors.As(err, &refused):
		return ExitRefused
	case errors.As(err, &damaged):
		return ExitDamaged
	// A node's answer says more than the error around it.
	case errors.As(err, &fromAPI):
		return apiExit(fromAPI.Code)
	case errors.As(err, &bad):
		return ExitUsage
	case errors.Is(err, client.ErrRoleHeld), errors.Is(err, client.ErrRoleLost),
		errors.Is(err, client.ErrNotGranted), errors.Is(err, client.ErrAllocationLost):
		return ExitRefused
	case errors.Is(err, ErrUnreachable), errors.Is(err, ErrLeaderless), errors.Is(err, ErrNewcomerSilent),
		errors.Is(err, client.ErrUnreachable):
		return ExitUnreachable
	// After the others: an endpoint that is unreachable may have been dialled until the deadline.
	case errors.Is(err, context.DeadlineExceeded):
		return ExitTimeout
	default:
		return ExitFailed
	}
}

// apiExit returns the exit code for a node's error.
func apiExit(c api.Code) int {
	switch c {
	// The request, or the token it is sent with, has to change.
	case api.InvalidArgument, api.InvalidJSON, api.TooLarge, api.UnsupportedMedia, api.Unauthenticated, api.Forbidden:
		return ExitUsage
	// The cluster cannot serve requests now; the same command may succeed later.
	case api.NoLeader, api.NoQuorum, api.Unavailable:
		return ExitUnreachable
	case api.NotFound, api.Trimmed, api.PastTail:
		return ExitNotFound
	case api.Timeout:
		return ExitTimeout
	// The request is well-formed, but does not fit the state of the cluster.
	case api.Conflict, api.Exists, api.Fenced, api.OutOfSequence, api.UnknownProducer, api.Reserved,
		api.UnknownType, api.OtherCluster:
		return ExitRefused
	default:
		// A code of a newer node, or one that no script needs to distinguish.
		return ExitFailed
	}
}
