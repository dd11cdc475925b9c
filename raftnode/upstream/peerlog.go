// Raft logs each request that fails, several a second, warns of what its protocol expects, and has several lines at
// info where the node has one. There is no issue. Delete this file when raft logs only changes.

package upstream

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/raftnode/quietlog"
	"github.com/ringrift/ringlog/raftnode/rafttransport"
)

// QuietLogger is the logger for hashicorp/raft and its transport. While the node closes, all of their lines are for
// debugging: what they fail at then is what closing ends.
func QuietLogger(l hclog.Logger, closing func() bool) *quietlog.Logger {
	return quietlog.New(l, func(level hclog.Level, msg string, args []any) hclog.Level {
		if closing() {
			return hclog.Debug
		}
		return levelOfRaft(level, msg, args)
	})
}

// peerLog reports when raft cannot reach a member any more and when it does again, and why
// requests to it fail. Raft itself logs each request that fails, several a second.
type peerLog struct {
	logger hclog.Logger
	lost   atomic.Int32 // length of members: while it is 0, a success takes no lock

	mu      sync.Mutex                  // guards members and lines
	members map[raft.ServerID]*failures // those to which the newest requests failed
	lines   quietlog.Repeats            // which errors were logged, and when
}

// failures counts the requests to a member that failed in a row: replication those that bring entries or
// state, contact all others. The former may fail while heartbeats are answered.
type failures struct {
	contact, replication int
	since                time.Time // the first of them
}

// awayAfter is how long requests to a member have to fail until it is reported: one that restarts is back by then.
const awayAfter = 2 * time.Second

// of returns the counter of a kind of requests.
func (f *failures) of(replication bool) *int {
	if replication {
		return &f.replication
	}
	return &f.contact
}

// reportedError marks an error that peerLog has handled: QuietLogger logs raft's own line at debug level.
type reportedError struct{ error }

func (e reportedError) Unwrap() error { return e.error }

// ended notes the outcome of a request, logs what is new, and returns err, wrapped in reportedError if it
// is a failure of the member or the network.
func (l *peerLog) ended(id raft.ServerID, addr raft.ServerAddress, replication bool, err error) error {
	switch {
	case err == nil && l.lost.Load() > 0:
		l.answered(id, replication, time.Now())
	case err == nil, errors.Is(err, errAbdicated), errors.Is(err, raft.ErrTransportShutdown):
		return err
	default:
		l.failed(id, addr, replication, err, time.Now())
		return reportedError{err}
	}
	return nil
}

// failed counts a failure and logs it, once in quietlog.RepeatAfter for each member and kind of error.
func (l *peerLog) failed(id raft.ServerID, addr raft.ServerAddress, replication bool, err error, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.members == nil {
		l.members = map[raft.ServerID]*failures{}
	}
	if l.members[id] == nil {
		l.members[id] = &failures{since: now}
		l.lost.Add(1)
	}
	f := l.members[id]
	inARow := f.of(replication)
	*inARow++

	// Connection errors of a member share one line, whatever their text; any other error has its own.
	key := string(id)
	var refusal *rafttransport.RefusedError
	switch {
	case errors.As(err, &refusal): // the transport logs it
		return
	case !isConnectionError(err):
		key += " " + quietlog.WithoutPorts(err.Error())
	case *inARow == 1 && hasConnectionEnded(err): // most likely an old one, and the next will do
		return
	case now.Sub(f.since) < awayAfter:
		return
	}
	state, show := l.lines.See(key, now)
	switch {
	case !show:
	case state.Count == 1:
		l.logger.Warn("raft cannot reach a member", "member", id, "addr", addr, "error", err)
	default:
		l.logger.Warn("raft still cannot reach a member", "member", id, "addr", addr, "error", err,
			"for", now.Sub(f.since).Round(time.Second), "failures", state.Count)
	}
}

// answered notes a success. The member is reachable again once neither kind of requests fails any more.
func (l *peerLog) answered(id raft.ServerID, replication bool, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.members[id]
	if f == nil {
		return
	}
	// Heartbeats may pass where large entries do not.
	*f.of(replication) = 0
	if f.contact+f.replication > 0 {
		return
	}
	if state, reported := l.forget(id); reported && now.Sub(state.Last) < quietlog.RepeatAfter {
		l.logger.Info("raft reaches a member again",
			"member", id,
			"after", now.Sub(f.since).Round(time.Millisecond),
			"failures", state.Count)
	}
}

// left forgets a member that was removed.
func (l *peerLog) left(id raft.ServerID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(id)
}

// forget drops the counters of a member, and returns its run of connection errors, if there was one. The
// caller holds mu.
func (l *peerLog) forget(id raft.ServerID) (state quietlog.Run, reported bool) {
	if l.members[id] != nil {
		delete(l.members, id)
		l.lost.Add(-1)
	}
	return l.lines.End(string(id))
}

// levelOfRaft lowers the level of what raft reports of its work, of its warnings about what its protocol expects, and
// of errors that peerLog reports.
func levelOfRaft(level hclog.Level, msg string, args []any) hclog.Level {
	if level == hclog.Info { // the node has lines of its own for what an operator follows
		return hclog.Debug
	}
	// The arguments are key and value in turn, as hclog takes them.
	var reason error
	leader := ""
	for i := 0; i+1 < len(args); i += 2 {
		if err, ok := args[i+1].(error); ok {
			reason = err
		}
		if args[i] == "last-leader-id" {
			leader = fmt.Sprint(args[i+1])
		}
	}
	var reported reportedError
	switch {
	case errors.As(reason, &reported), isConnectionError(reason), errors.Is(reason, raft.ErrTransportShutdown):
		return hclog.Debug
	case msg == "failed to contact": // a follower; no quorum of them is another message
		return hclog.Debug
	case msg == "heartbeat timeout reached, starting election" && leader != "": // the leader has stopped, or is lost
		return hclog.Info
	case msg == "appendEntries rejected, sending older logs",
		msg == "failed to contact quorum of nodes, stepping down", // also where all are stopped; LEADER_LEASE_EXPIRED
		msg == "skipping application of old log",                  // a snapshot that was installed has it
		msg == "clearing log suffix",                              // of an older leader, that were never committed
		msg == "no known peers, aborting election",                // it waits for a cluster
		msg == "peer has newer term, stopping replication",        // this leader has a successor
		msg == "failed to get previous log" && errors.Is(reason, raft.ErrLogNotFound),
		msg == "failed to get log" && errors.Is(reason, raft.ErrLogNotFound), // the follower gets a snapshot
		msg == "heartbeat timeout reached, starting election",                // the cluster forms, or has started
		strings.HasPrefix(msg, "rejecting vote request"), strings.HasPrefix(msg, "rejecting pre-vote request"):
		return hclog.Debug
	}
	return level
}

// isConnectionError reports whether a connection could not be made, had ended or timed out.
func isConnectionError(err error) bool {
	err = causeOf(err)
	var network net.Error
	return hasConnectionEnded(err) || errors.As(err, &network) ||
		errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.ECONNREFUSED)
}

// causeOf returns what ended the decoding of an answer: errors of go-msgpack have Cause, and no Unwrap.
func causeOf(err error) error {
	var decoding interface{ Cause() error }
	if errors.As(err, &decoding) && decoding.Cause() != nil {
		return decoding.Cause()
	}
	return err
}

// hasConnectionEnded reports whether a connection had ended, as one from the pool may have.
func hasConnectionEnded(err error) bool {
	err = causeOf(err)
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}
