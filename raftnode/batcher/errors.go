package batcher

import "errors"

// Errors of a proposal. All but ErrOutcomeUnknown promise that nothing was appended for the
// caller.
var (
	ErrNoLeader       = errors.New("no leader")
	ErrOutcomeUnknown = errors.New("outcome unknown: the request may have been appended")
	ErrOverloaded     = errors.New("too many requests are waiting")
	ErrFeatureLevel   = errors.New("some members run a version that does not know this yet")
	ErrTooLarge       = errors.New("request is too large")
	ErrClosed         = errors.New("node is closed")
)
