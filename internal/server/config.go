package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/certs"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/otlp"
	"github.com/ringrift/ringlog/internal/service"
	"github.com/ringrift/ringlog/raftnode"
	"github.com/ringrift/ringlog/snapshots"
)

// Observer shows what the node knows of itself and the cluster, and serves what other nodes ask of it.
type Observer interface {
	Report(q raftnode.Question) raftnode.Report
	// Autopilot returns the leader's verdict on the servers, and false if the node does not lead.
	Autopilot() (raftnode.AutopilotVerdict, bool)
	// BlackBox returns the node's journal of outages, and a channel that is closed when the journal grows.
	BlackBox() (b raftnode.BlackBox, grown <-chan struct{})
	// Backup writes a snapshot of the local state, in the format of package snapshots.
	Backup(ctx context.Context, w io.Writer) (snapshots.Meta, error)
	// Incident writes a slice of the log with the state before it, as package incident reads it, or nothing.
	Incident(ctx context.Context, w io.Writer, from, to api.Position) (snapshots.Meta, error)
	// ProposeForwarded is Propose for another node's request, which it never passes on.
	ProposeForwarded(ctx context.Context, request []byte) ([]byte, error)
	// ReadIndex returns the index that another node's read has to wait for.
	ReadIndex(ctx context.Context) (uint64, error)
	// LeaderHTTP is the URL at which the leader answers, "" if that is not known.
	LeaderHTTP() string
	// HeardLeader is when the node heard its leader last, itself if it leads.
	HeardLeader() time.Time
}

// Membership changes who belongs to the cluster and who leads it. Only the leader can: elsewhere the error is
// raftnode.ErrNotLeader. Warnings are for people, "" if there is none.
type Membership interface {
	AddMember(ctx context.Context, m frame.Member, opts raftnode.MemberOptions) (warning string, err error)
	Promote(ctx context.Context, id string, force bool) (warning string, err error)
	Demote(ctx context.Context, id string) (warning string, err error)
	Remove(ctx context.Context, id string) (warning string, err error)
	StepDown(ctx context.Context, target string) error
}

// Node is what a server serves; *raftnode.Node is one.
type Node interface {
	service.Node
	Observer
	Membership
}

// Config says what a server serves and within which bounds. Node is required; a
// zero bound takes its default.
type Config struct {
	// Node is whose log is served.
	Node Node
	// Peers reaches other nodes; nil for a node that runs alone.
	Peers raftnode.Peers
	// Transport reaches the leader for calls that are passed on to it; nil is one of
	// the server's own.
	Transport http.RoundTripper
	// Token is the bearer token that callers must have; "" lets everybody in.
	Token string
	// TLS has the node's certificate; nil is no TLS. Clients that show a certificate must have it of the same CA.
	TLS *certs.Store
	// TLSMode is certs.Allow or certs.Require where there is TLS.
	TLSMode certs.Mode
	// Hosts are names that callers may use besides addresses and localhost. They are checked where there is no Token.
	Hosts []string
	// Version is that of the program, for /status.
	Version string
	// Registry is what /metrics shows, for this server alone; nil is one of its own.
	Registry *prometheus.Registry
	// Spans is where spans of publishes and deliveries go to; nil is nowhere. Whoever made it closes it.
	Spans *otlp.Exporter
	// Logger gets errors of the node's own and panics; nil logs nothing.
	Logger hclog.Logger

	// RequestTimeout bounds the wait for an answer that is not a stream, where the caller does not; 30 s.
	RequestTimeout time.Duration
	// BodyTimeout is how long a request body may stall; 15 s.
	BodyTimeout time.Duration
	// WriteTimeout bounds one write to a slow reader; 30 s.
	WriteTimeout time.Duration
	// Heartbeat is how often a quiet stream shows that it is alive; 5 s.
	Heartbeat time.Duration
	// MaxStreams bounds reads that follow, waits, and publish streams at the same time; 4096.
	MaxStreams int
	// MaxBodies bounds the bytes that requests may take at a time, decoded, and again for those of peers; 256 MiB.
	MaxBodies int64
	// MaxConns bounds the connections of a listener, and half of it those from one address; 8192.
	MaxConns int
	// OnPanic, if set, is called with the value of a panic in a handler, once it is logged.
	OnPanic func(value any)
}

// validate requires a Node and replaces zero values by their defaults.
func (c *Config) validate() error {
	if c.Node == nil {
		return errors.New("config: Node is required")
	}
	// Nothing needs to ask afterwards whether there is a logger or a registry.
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	// Bounds of time, then bounds of number and memory.
	orDefault(&c.RequestTimeout, 30*time.Second)
	orDefault(&c.BodyTimeout, 15*time.Second)
	orDefault(&c.WriteTimeout, 30*time.Second)
	orDefault(&c.Heartbeat, 5*time.Second)
	orDefault(&c.MaxStreams, 4096)
	orDefault(&c.MaxBodies, 256<<20)
	orDefault(&c.MaxConns, 8192)
	return nil
}

// orDefault sets a zero value to its fallback.
func orDefault[T comparable](v *T, fallback T) {
	var zero T
	if *v == zero {
		*v = fallback
	}
}
