// Package ringlog holds an event log inside the caller's process: a node that is
// alone in its cluster, with everything a cluster of them has, a client of it, and a
// router that gives events to handlers.
//
// It promises that what Publish acknowledged is on disk, that a folder is open in one
// process only, and that nobody else gets at the log: the client speaks to the node
// through memory, and no other node can join it.
//
//	n, err := ringlog.Open(ctx, ringlog.Config{Dir: dir})
//	res, err := n.Client().Publish(ctx, event.New(event.TrainingCompleted, payload))
//	_, err = n.Router().Subscribe(ctx, router.Subscription{Name: "promoter", Durable: true, Handler: handle})
//	err = n.Close(ctx)
package ringlog

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/internal/server"
	"github.com/ringrift/ringlog/raftnode"
	"github.com/ringrift/ringlog/router"
)

// Config says where a log is kept. Dir is required.
type Config struct {
	Dir string // the data folder, made when it is not there
	// Fatal is called when continuing would lose or falsify data: a damaged folder, a
	// disk that fails or hangs. It should end the process; nil panics.
	Fatal func(error)
	// Logger gets what the node, the client and the router log, each with its name in the attribute part. nil
	// disables logging, but for what RINGRIFT_DEBUG asks for.
	Logger *slog.Logger

	// Client's limits and times are those of the client; where to connect to is set
	// by Open.
	Client client.Config
	// Router's options are those of the router.
	Router router.Options
}

// Node is an open log. It is safe for concurrent use.
type Node struct {
	logger hclog.Logger // of raft and server
	raft   *raftnode.Node
	server *server.Server
	client *client.Client
	router *router.Router
	conns  *http.Transport
	wire   *wire
	served chan error // what serving the wire ended with

	closing sync.Once
	closed  error
}

// The node's name and the address that its client is given; nothing resolves it.
const (
	nodeID  = "embedded"
	address = "http://" + nodeID
)

// Open opens the log in cfg.Dir, or makes an empty one, and returns once it takes
// events. ctx bounds Open alone.
func Open(ctx context.Context, cfg Config) (_ *Node, err error) {
	if cfg.Fatal == nil {
		cfg.Fatal = func(err error) { panic(err) }
	}

	// What was opened before an error is closed.
	logger := cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	n := &Node{logger: nodeLogger(logger), wire: newWire(), served: make(chan error, 1)}
	defer func() {
		if err != nil {
			err = fmt.Errorf("ringlog: open %s: %w", cfg.Dir, errors.Join(err, n.Close(context.WithoutCancel(ctx))))
		}
	}()
	if err := n.openNode(ctx, cfg); err != nil {
		return nil, err
	}
	if err := n.openServer(cfg); err != nil {
		return nil, err
	}
	if err := n.openClient(cfg); err != nil {
		return nil, err
	}
	if err := n.openRouter(cfg); err != nil {
		return nil, err
	}
	if err := n.raft.WaitLeader(ctx); err != nil {
		return nil, err
	}
	return n, nil
}

func (n *Node) openNode(ctx context.Context, cfg Config) (err error) {
	// A voter that is alone elects itself: there is nobody to wait for.
	const alone = 50 * time.Millisecond
	secret := make([]byte, 32) // that nobody else has
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	n.raft, err = raftnode.Open(ctx, raftnode.Config{
		ID: nodeID, Dir: cfg.Dir, RaftBind: "127.0.0.1:0", HTTPAdvertise: address, BootstrapExpect: 1, Secret: secret,
		Timing: raftnode.Timing{Heartbeat: alone, Election: alone, Lease: alone, CommitTimeout: 5 * time.Millisecond},
		Fatal:  cfg.Fatal, Logger: n.logger.Named("raft"),
	})
	return err
}

func (n *Node) openServer(cfg Config) (err error) {
	n.server, err = server.New(server.Config{Node: n.raft, Logger: n.logger.Named("server")})
	if err != nil {
		return err
	}
	go func() { n.served <- n.server.Serve(n.wire) }()
	return nil
}

func (n *Node) openClient(cfg Config) (err error) {
	n.conns = &http.Transport{DialContext: n.wire.dial, DisableCompression: true, MaxIdleConnsPerHost: 64,
		ReadBufferSize: 64 << 10, WriteBufferSize: 64 << 10}
	cc := cfg.Client
	cc.Endpoints, cc.Token, cc.HTTPClient = []string{address}, "", &http.Client{Transport: n.conns}
	if cc.Logger == nil && cfg.Logger != nil {
		cc.Logger = cfg.Logger.With("part", "client")
	}
	n.client, err = client.New(cc)
	return err
}

func (n *Node) openRouter(cfg Config) (err error) {
	o := cfg.Router
	if o.Logger == nil && cfg.Logger != nil {
		o.Logger = cfg.Logger.With("part", "router")
	}
	n.router, err = router.New(router.OnClient(n.client), o)
	return err
}

// Client is the log's client. It is closed with the node.
func (n *Node) Client() *client.Client { return n.client }

// Router is the log's router. It is closed with the node.
func (n *Node) Router() *router.Router { return n.router }

// Close lets handlers finish, answers what was handed to the client, ends its readers and
// closes the log. What ctx leaves no time for is answered with an error, or left in the
// log for the next to subscribe. It may be called again.
func (n *Node) Close(ctx context.Context) error {
	n.closing.Do(func() { n.closed = n.close(ctx) })
	return n.closed
}

// close closes what is open, from the outside in.
func (n *Node) close(ctx context.Context) error {
	var errs []error
	if n.router != nil {
		errs = append(errs, n.router.Close(ctx))
	}
	if n.client != nil {
		errs = append(errs, n.client.Close(ctx))
	}
	if n.conns != nil {
		n.conns.CloseIdleConnections()
	}
	if n.server != nil {
		errs = append(errs, n.server.Close(ctx), <-n.served)
	}

	// The node is closed after everything that could still ask it.
	errs = append(errs, n.wire.Close())
	if n.raft != nil {
		errs = append(errs, n.raft.Close(ctx))
	}
	return errors.Join(errs...)
}
