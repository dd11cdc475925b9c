// Package calls brings one call to a cluster: it chooses the node to ask, repeats what may
// be repeated, and says what an error means.
//
// It promises:
//
//   - A call is repeated only if repeating it is safe, see Repeat. What it cannot know
//     is reported: the error then wraps ErrOutcomeUnknown.
//   - A call ends with its context, and after Config.Timeout plus at most one attempt.
//   - All calls go to one cluster: that of Config.ClusterID, else that of the first node
//     that answers.
//
// Every error of a call is an *Error.
package calls

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// Config says which cluster is called and how. All fields but the tokens' and ClusterID are required.
type Config struct {
	Endpoints []string // validated by BaseURL
	Token     string
	TokenFile string // that Token was read from; "" is none
	ClusterID string

	HTTP           *http.Client
	Timeout        time.Duration // how long a call is repeated
	AttemptTimeout time.Duration // how long one node may take to answer, or a silent one to show life
	Logger         *slog.Logger
	OnWarning      func(event.Warning)
	// Observe sees each request; nil sees none. What it returns is called with the request's error when it has ended.
	Observe func(ctx context.Context, op Op, node string, attempt int) (context.Context, func(error))
}

// Op is what a call asks for.
type Op struct {
	Name    string // one of a few dozen, such as get or commit cursor
	Subject string // what it is asked about, "" for nothing
	Events  int    // how many are published, 0 if that is not what the call is for
	Aside   bool   // any node serves it as well as the leader, which has more work than the others
}

// String is how errors name the call.
func (o Op) String() string {
	if o.Subject == "" {
		return o.Name
	}
	if strings.ContainsFunc(o.Subject, unicode.IsControl) { // errors are one line
		return o.Name + " " + strconv.Quote(o.Subject)
	}
	return o.Name + " " + o.Subject
}

// observe reports the beginning of a request to Config.Observe.
func (c *Cluster) observe(ctx context.Context, op Op, n *Node, attempt int) (context.Context, func(error)) {
	if c.cfg.Observe == nil {
		return ctx, func(error) {}
	}
	observed, end := c.cfg.Observe(ctx, op, n.URL, attempt)
	return observed, func(err error) {
		// What a node answered is an *api.Error, as in the error of the call.
		if answer, _ := answerOf(err); answer != nil {
			err = answer
		}
		end(err)
	}
}

// Cluster is the cluster that is called. It is safe for concurrent use.
type Cluster struct {
	cfg   Config
	http  *http.Client
	pin   *clusterPin // the transport of all requests
	token *clusterToken
	nodes *nodes
}

// New returns the cluster at cfg.Endpoints. It connects to no node.
func New(cfg Config) *Cluster {
	c := &Cluster{cfg: cfg, pin: newClusterPin(cfg.HTTP.Transport, cfg.ClusterID),
		token: newClusterToken(cfg.Token, cfg.TokenFile)}
	// A copy: the caller's client keeps its transport.
	pinned := *cfg.HTTP
	// An answer passes cfg.HTTP's transport first, then the pin, then the warnings.
	pinned.Transport = &warningsTransport{next: c.pin, report: cfg.OnWarning}
	c.http = &pinned
	c.nodes = newNodes(cfg.Endpoints, c.dialNode)
	return c
}

// CloseIdle closes the connections that no call uses.
func (c *Cluster) CloseIdle() { c.http.CloseIdleConnections() }

// AttemptFunc makes one attempt at one node. The header is that of the answer, nil without one.
type AttemptFunc func(ctx context.Context, n *Node) (http.Header, error)

// Call makes attempts of at most Config.AttemptTimeout each.
func (c *Cluster) Call(ctx context.Context, op Op, r Repeat, attempt AttemptFunc) error {
	return c.repeatAttempts(ctx, op, r, func(ctx context.Context, n *Node) (context.Context, func()) {
		return context.WithTimeout(ctx, c.cfg.AttemptTimeout)
	}, attempt)
}

// CallWhileAlive is Call for what may take a node long: an attempt ends when its node shows
// no life, not after a time.
func (c *Cluster) CallWhileAlive(ctx context.Context, op Op, r Repeat, attempt AttemptFunc) error {
	return c.repeatAttempts(ctx, op, r, func(ctx context.Context, n *Node) (context.Context, func()) {
		began := time.Now()
		// Silence counts from the beginning of the attempt.
		return c.guard(ctx, n, func() time.Duration { return time.Since(began) })
	}, attempt)
}

// repeatAttempts asks one node after the other until one answers for good. bound limits the
// context of each attempt.
func (c *Cluster) repeatAttempts(ctx context.Context, op Op, r Repeat,
	bound func(context.Context, *Node) (context.Context, func()), attempt AttemptFunc) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	a := c.newAttempts(op, r)
	for {
		n, err := a.nextNode(ctx)
		if err != nil {
			return err
		}
		if done, err := a.attemptAt(ctx, n, bound, attempt); done {
			return err
		}
	}
}

// attemptAt makes one attempt and reports whether the call is over.
func (a *attempts) attemptAt(ctx context.Context, n *Node,
	bound func(context.Context, *Node) (context.Context, func()), attempt AttemptFunc) (done bool, err error) {
	// release stops what limits the attempt.
	bounded, release := bound(ctx, n)
	// Attempts of a call are numbered from 1.
	a.asked++
	observed, ended := a.c.observe(bounded, a.op, n, a.asked)
	watched, sent := traceSent(observed)
	header, err := attempt(watched, n)
	ended(err)
	if err == nil {
		release()
		a.c.nodes.worked(n, header.Get(leaderHeader))
		return true, nil
	}
	f := classify(causeOf(bounded, err), sent.Load())
	release() // before judge, which may wait
	return a.judge(ctx, n, f)
}

// CallNode makes one call at one node, by its URL or host:port, and only once.
func (c *Cluster) CallNode(ctx context.Context, node string, op Op, r Repeat, attempt AttemptFunc) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	// It is none of the nodes that are chosen from, so its failures are not counted.
	n := &Node{URL: node}
	if err := c.learnCluster(ctx, n); err != nil {
		return &Error{Op: op.String(), Err: err, Ended: ErrUnreachable}
	}
	began := time.Now()
	guarded, stop := c.guard(ctx, n, func() time.Duration { return time.Since(began) })
	defer stop()
	observed, ended := c.observe(guarded, op, n, 1)
	watched, sent := traceSent(observed)

	// There is no other attempt, so its fault is the error of the call, unless it is that of a token which was replaced.
	token := c.token.current()
	_, err := attempt(watched, n)
	ended(err)
	if err != nil {
		f := classify(err, sent.Load())
		if f.code() == api.Unauthenticated && c.token.renew(token) {
			return c.CallNode(ctx, node, op, r, attempt)
		}
		failed := &Error{Op: op.String(), Err: f.err, Answer: f.final, Unknown: f.unknown && r != Reading}
		if f.answer == nil {
			failed.Ended = ErrUnreachable
			// Why the attempt was ended, such as errSilent, says more.
			if cause := context.Cause(guarded); cause != nil {
				failed.Ended = cause
			}
		}
		return failed
	}
	return nil
}

// NoteLeader takes in which leader an answer of n named.
func (c *Cluster) NoteLeader(n *Node, leader string) { c.nodes.named(n, leader) }

// LearnLeader prefers a leader that the cluster's status named.
func (c *Cluster) LearnLeader(leader string) { c.nodes.learn(leader) }

// Timeout is how long a call is repeated.
func (c *Cluster) Timeout() time.Duration { return c.cfg.Timeout }

// AttemptTimeout is how long one node may take to answer.
func (c *Cluster) AttemptTimeout() time.Duration { return c.cfg.AttemptTimeout }

// Logger is for what goes wrong and is repeated.
func (c *Cluster) Logger() *slog.Logger { return c.cfg.Logger }
