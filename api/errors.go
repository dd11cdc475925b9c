package api

import (
	"fmt"
	"net/http"

	"connectrpc.com/connect"
)

// ClusterHeader carries a cluster's id. Every answer of a node that is in a cluster has it. A
// request that has it is refused with OtherCluster by nodes of another cluster.
const ClusterHeader = "Ringlog-Cluster"

// WarningsHeader is on the answer to a call that gives a filter which matches nothing known, or a token that the
// cluster does not have: a JSON array of event.Warning.
const WarningsHeader = "Ringlog-Warnings"

// ReasonTokenUnused is the reason of the warning about a token that protects nothing.
const ReasonTokenUnused = "token_unused"

// ReasonTLSRequired is the reason for refusing a request that came in clear.
const ReasonTLSRequired = "tls_required"

// Reasons for refusing a caller that has a token.
const (
	ReasonPermission = "permission"    // forbidden: none of the token's roles may do that
	ReasonScope      = "out_of_scope"  // forbidden: the token is not good for that type, cursor or group
	ReasonExpired    = "token_expired" // unauthenticated
	ReasonCutOff     = "cut_off"       // no_leader: the node has not heard a leader for too long to know
	ReasonRevoked    = "token_revoked" // unauthenticated: while the call was under way
)

// Code is the machine-readable reason in every error answer, over HTTP and
// Connect alike. Its HTTP status and Connect code follow from it.
type Code string

// The codes. Each is sent with the HTTP status beside it.
const (
	InvalidArgument  Code = "invalid_argument"   // 400: a value that no state would accept
	InvalidJSON      Code = "invalid_json"       // 400: not JSON, or not the JSON that was asked for
	UnknownType      Code = "unknown_type"       // 400: strict validation, and the type is not in the catalogue
	Unauthenticated  Code = "unauthenticated"    // 401: no token, or a wrong one
	Reserved         Code = "reserved"           // 403: a type that only the cluster emits
	Forbidden        Code = "forbidden"          // 403: from a web page of another origin, or for a foreign host name
	NotFound         Code = "not_found"          // 404
	MethodNotAllowed Code = "method_not_allowed" // 405
	Timeout          Code = "timeout"            // 408: the caller's time was up before anything was proposed
	Conflict         Code = "conflict"           // 409: used before with other content; Offset is the first event's
	Exists           Code = "exists"             // 409: there already, with other settings
	Fenced           Code = "fenced"             // 409: another holds the cursor or role; Offset: generation or fence
	OutOfSequence    Code = "out_of_sequence"    // 409: Offset is the sequence expected
	UnknownProducer  Code = "unknown_producer"   // 409: the producer's results have expired
	Trimmed          Code = "trimmed"            // 410: Offset is the first one kept
	TooLarge         Code = "too_large"          // 413: the message has the limit
	OtherCluster     Code = "other_cluster"      // 421: the request names another cluster; nothing has happened
	UnsupportedMedia Code = "unsupported_media"  // 415
	PastTail         Code = "past_tail"          // 416: Offset is the tail
	Overloaded       Code = "overloaded"         // 429: with Retry-After
	Internal         Code = "internal"           // 500: a fault of this node
	NotImplemented   Code = "not_implemented"    // 501: this node's version cannot do it
	NoLeader         Code = "no_leader"          // 503: nothing was proposed, a retry is safe
	NoQuorum         Code = "no_quorum"          // 503: nothing was proposed, a retry is safe
	OutcomeUnknown   Code = "outcome_unknown"    // 503: it may or may not have happened
	Unavailable      Code = "unavailable"        // 503: starting, stopping or diverged
	DiskFull         Code = "disk_full"          // 507
)

// mapping is what a code is over HTTP and over Connect.
type mapping struct {
	status  int
	connect connect.Code
}

// mapping returns the HTTP status and the Connect code of c, in the order of the statuses.
func (c Code) mapping() mapping {
	switch c {
	case InvalidArgument, InvalidJSON, UnknownType:
		return mapping{http.StatusBadRequest, connect.CodeInvalidArgument}
	case Unauthenticated:
		return mapping{http.StatusUnauthorized, connect.CodeUnauthenticated}
	case Reserved, Forbidden:
		return mapping{http.StatusForbidden, connect.CodePermissionDenied}
	case NotFound:
		return mapping{http.StatusNotFound, connect.CodeNotFound}
	case MethodNotAllowed:
		return mapping{http.StatusMethodNotAllowed, connect.CodeUnimplemented}
	case Timeout:
		return mapping{http.StatusRequestTimeout, connect.CodeDeadlineExceeded}
	case Conflict, Exists:
		return mapping{http.StatusConflict, connect.CodeAlreadyExists}
	case OtherCluster:
		return mapping{http.StatusMisdirectedRequest, connect.CodeFailedPrecondition}
	case Fenced, OutOfSequence, UnknownProducer:
		return mapping{http.StatusConflict, connect.CodeFailedPrecondition}
	case Trimmed:
		return mapping{http.StatusGone, connect.CodeOutOfRange}
	case TooLarge:
		return mapping{http.StatusRequestEntityTooLarge, connect.CodeInvalidArgument}
	case UnsupportedMedia:
		return mapping{http.StatusUnsupportedMediaType, connect.CodeInvalidArgument}
	case PastTail:
		return mapping{http.StatusRequestedRangeNotSatisfiable, connect.CodeOutOfRange}
	case Overloaded:
		return mapping{http.StatusTooManyRequests, connect.CodeResourceExhausted}
	case NotImplemented:
		return mapping{http.StatusNotImplemented, connect.CodeUnimplemented}
	case NoLeader, NoQuorum, OutcomeUnknown, Unavailable:
		return mapping{http.StatusServiceUnavailable, connect.CodeUnavailable}
	case DiskFull:
		return mapping{http.StatusInsufficientStorage, connect.CodeResourceExhausted}
	// An unknown code is a fault of this node, as Internal is.
	default:
		return mapping{http.StatusInternalServerError, connect.CodeInternal}
	}
}

// Status returns the HTTP status that goes with the code.
func (c Code) Status() int { return c.mapping().status }

// Connect returns the Connect code that goes with the code.
func (c Code) Connect() connect.Code { return c.mapping().connect }

// Retryable reports whether the same request may be sent again unchanged, because
// nothing of it has happened and later it may succeed.
func (c Code) Retryable() bool {
	switch c {
	case NoLeader, NoQuorum, Overloaded, Unavailable:
		return true
	}
	return false
}

// The reasons distinguish errors of one code, for programs. A refused event has the
// reason that package event gives it. Messages and remedies are for people and may change.
const (
	ReasonForeignFolder    = "foreign_folder"    // conflict: a data folder of another cluster
	ReasonOtherIncarnation = "other_incarnation" // conflict: a known id with another data folder
	ReasonDuplicateAddress = "duplicate_address" // conflict: another member has the address
	ReasonTooManyVoters    = "too_many_voters"   // conflict
	ReasonTooOld           = "too_old"           // conflict: a program that is older than the cluster's level
	ReasonLastVoter        = "last_voter"        // conflict
	ReasonBreaksQuorum     = "breaks_quorum"     // conflict: too few of the voters that stay answer
	ReasonNotVoter         = "not_voter"         // conflict
	ReasonNotCaughtUp      = "not_caught_up"     // conflict
	ReasonNoTarget         = "no_target"         // conflict: no voter that could take over
	ReasonUnreachable      = "unreachable"       // invalid_argument: nobody answers at the address
	ReasonFeatureLevel     = "feature_level"     // unavailable: until members are upgraded
	ReasonNotFormed        = "not_formed"        // no_leader: the node is not in a cluster yet
	ReasonRemoved          = "removed"           // no_leader: the node was removed from the cluster
	ReasonUnknownPath      = "unknown_path"      // not_found: the node has no such path, a newer one may
	ReasonSealed           = "sealed"            // forbidden: an incident was opened to be read, and nothing else
	ReasonNotKept          = "not_kept"          // trimmed: the node does not keep its state of then; Offset: the oldest
	ReasonNoIncident       = "no_incident"       // conflict: the node serves a cluster, not an incident

	// Of resources and allocations, as package fsm has them.
	ReasonUnknownResource = "unknown_resource" // not_found
	ReasonResourceInUse   = "resource_in_use"  // conflict: somebody has or wants an amount of it
	ReasonOverCapacity    = "over_capacity"    // conflict: more than the resource has
	ReasonOtherRequest    = "other_request"    // conflict: the id is that of an allocation with other amounts
)

// Error is an error as every surface reports it: what, where, and what to do.
type Error struct {
	Code       Code   `json:"code"`
	Message    string `json:"message"`
	Reason     string `json:"reason,omitempty"` // one of the Reason constants, or package event's
	Field      string `json:"field,omitempty"`
	Remedy     string `json:"remedy,omitempty"`
	Offset     uint64 `json:"offset,omitempty"`      // what the code says it is
	LeaderHTTP string `json:"leader_http,omitempty"` // who leads, where that helps
}

// Error implements error. The remedy is in words of the HTTP interface and the command line, so that it is left to
// those who show it there.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s", e.Code, e.Message)
	if e.Field != "" {
		s += fmt.Sprintf(" (field %s)", e.Field)
	}
	return s
}
