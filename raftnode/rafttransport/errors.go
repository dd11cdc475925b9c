package rafttransport

import (
	"errors"
	"fmt"

	"github.com/ringrift/ringlog/internal/certs"
)

// Why a connection, or a vote, is refused. Each has a code on the wire, so
// errors.Is gives the same answer on the refused side.
var (
	ErrVersion          = errors.New("handshake version not spoken here")
	ErrMalformed        = errors.New("not a raft handshake of ringlog")
	ErrOtherCluster     = errors.New("member of another cluster")
	ErrWrongNode        = errors.New("another node than expected at this address")
	ErrSameNode         = errors.New("both sides bear the same node id")
	ErrOtherIncarnation = errors.New("another data folder is known under that node id: remove that member first, " +
		"or give this node another id")
	ErrRemoved      = errors.New("node was removed from the cluster")
	ErrNotAdmitted  = errors.New("not admitted by membership")
	ErrNoProof      = errors.New("only one side has a cluster token")
	ErrBadProof     = errors.New("cluster tokens differ")
	ErrBusy         = errors.New("too many connections")
	ErrSlow         = errors.New("handshake took too long")
	ErrRolledBack   = errors.New("the node's data folder was replaced by an older copy")
	ErrUnconfigured = errors.New("no vote: raft configuration is empty")

	// With TLS, see Options.TLS.
	ErrNoTLS        = errors.New("only one side has TLS on its raft port")
	ErrUnknownCA    = certs.ErrUnknownCA
	ErrExpired      = certs.ErrExpired
	ErrNotNode      = certs.ErrNotNode
	ErrOtherNode    = errors.New("certificate is of another node")
	ErrUnfitForNode = errors.New("certificate is not fit for a node")
)

// reasons gives each sentinel its code on the wire (never reused) and its name
// in Refusal.Reason.
var reasons = [...]struct {
	code byte
	name string
	err  error
}{
	{1, "version", ErrVersion},
	{2, "malformed", ErrMalformed},
	{3, "other_cluster", ErrOtherCluster},
	{4, "wrong_node", ErrWrongNode},
	{5, "same_node", ErrSameNode},
	{6, "other_incarnation", ErrOtherIncarnation},
	{7, "removed", ErrRemoved},
	{8, "not_admitted", ErrNotAdmitted},
	{9, "no_proof", ErrNoProof},
	{10, "bad_proof", ErrBadProof},
	{11, "busy", ErrBusy},
	{12, "slow", ErrSlow},
	{13, "unconfigured", ErrUnconfigured},
	{14, "rolled_back", ErrRolledBack},
	{15, "no_tls", ErrNoTLS},
	{16, "unknown_ca", ErrUnknownCA},
	{17, "expired", ErrExpired},
	{18, "not_node", ErrNotNode},
	{19, "other_node", ErrOtherNode},
	{20, "unfit", ErrUnfitForNode},
}

// sentinelOf is the sentinel that err wraps, ErrNotAdmitted if it wraps none.
func sentinelOf(err error) error {
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			return r.err
		}
	}
	return ErrNotAdmitted
}

// codeOf is the code of a sentinel, 0 for any other error.
func codeOf(sentinel error) byte {
	for _, r := range reasons {
		if r.err == sentinel {
			return r.code
		}
	}
	return 0
}

// sentinelFor is the sentinel of a code; a code of a later version is ErrNotAdmitted.
func sentinelFor(code byte) error {
	for _, r := range reasons {
		if r.code == code {
			return r.err
		}
	}
	return ErrNotAdmitted
}

// nameOf is the name of a sentinel, "other" for any other error.
func nameOf(sentinel error) string {
	for _, r := range reasons {
		if r.err == sentinel {
			return r.name
		}
	}
	return "other"
}

// RefusedError is the error of a handshake, or a vote request, that one side refused.
type RefusedError struct {
	Peer   string // the id that the peer stated, or was expected to have; "" if unknown
	Addr   string // dialled, or remote, address
	ByPeer bool   // the peer refused this node
	Reason error  // a sentinel of this package
	Detail string // the refuser's words, printable

	web bool // the peer is a client of HTTP, which gets an answer that it can read
}

func (e *RefusedError) Error() string {
	verb := "refused"
	if e.ByPeer {
		verb = "refused by"
	}
	return fmt.Sprintf("%s %s (%s): %v: %s", verb, orDefault(e.Peer, "unnamed peer"), e.Addr, e.Reason, e.Detail)
}

// Unwrap returns Reason.
func (e *RefusedError) Unwrap() error { return e.Reason }

// refusef returns a refusal by this side; the caller that knows the peer and its address sets them.
func refusef(reason error, format string, args ...any) *RefusedError {
	return &RefusedError{Reason: reason, Detail: fmt.Sprintf(format, args...)}
}
