// Raft logs each request that fails, several a second, and warns of what its protocol expects. There is
// no issue. Delete this file when raft logs changes only.

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

// QuietLogger is the logger for hashicorp/raft and its transport.
func QuietLogger(l hclog.Logger) *quietlog.Logger {
	return quietlog.New(l, levelOfRaft)
}

// peerLog reports when raft cannot reach a member any more and when it does again, and why
// requests to it fail. Raft itself logs each request that fails, several a second.
type peerLog struct {
	logger hclog.Logger
	lost   atomic.Int32 // members with requests that fail

	mu      sync.Mutex
	members map[raft.ServerID]*failures
	lines   quietlog.Repeats
}

// failures are the requests to a member that failed in a row. Those that bring entries or
// state may fail while heartbeats are answered.
type failures struct{ contact, replication int }

func (f *failures) of(replication bool) *int {
	if replication {
		return &f.replication
	}
	return &f.contact
}

// reportedError is an error that peerLog has taken in.
type reportedError struct{ error }

func (e reportedError) Unwrap() error { return e.error }

// ended takes in the outcome of a request, and returns it.
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

func (l *peerLog) failed(id raft.ServerID, addr raft.ServerAddress, replication bool, err error, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.members == nil {
		l.members = map[raft.ServerID]*failures{}
	}
	if l.members[id] == nil {
		l.members[id] = &failures{}
		l.lost.Add(1)
	}
	inARow := l.members[id].of(replication)
	*inARow++

	key := string(id)
	var refusal *rafttransport.RefusedError
	switch {
	case errors.As(err, &refusal): // the transport logs it
		return
	case !isConnectionError(err):
		key += " " + quietlog.WithoutPorts(err.Error())
	case *inARow == 1 && hasConnectionEnded(err): // most likely an old one, and the next will do
		return
	}
	state, show := l.lines.See(key, now)
	switch {
	case !show:
	case state.Count == 1:
		l.logger.Warn("raft cannot reach a member", "member", id, "addr", addr, "error", err)
	default:
		l.logger.Warn("raft still cannot reach a member", "member", id, "addr", addr, "error", err,
			"for", now.Sub(state.Began).Round(time.Second), "failures", state.Count)
	}
}

func (l *peerLog) answered(id raft.ServerID, replication bool, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.members[id]
	if f == nil {
		return
	}
	*f.of(replication) = 0
	if *f != (failures{}) {
		return
	}
	if state, reported := l.forget(id); reported && now.Sub(state.Last) < quietlog.RepeatAfter {
		l.logger.Info("raft reaches a member again",
			"member", id,
			"after", now.Sub(state.Began).Round(time.Millisecond),
			"failures", state.Count)
	}
}

// left forgets a member that is none any more.
func (l *peerLog) left(id raft.ServerID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(id)
}

// forget is called with mu held. It returns the run of connection errors.
func (l *peerLog) forget(id raft.ServerID) (state quietlog.Run, reported bool) {
	if l.members[id] != nil {
		delete(l.members, id)
		l.lost.Add(-1)
	}
	return l.lines.End(string(id))
}

// levelOfRaft lowers the level of what raft warns of though it is a part of its protocol, and
// of what peerLog reports.
func levelOfRaft(level hclog.Level, msg string, args []any) hclog.Level {
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
	case msg == "appendEntries rejected, sending older logs",
		msg == "no known peers, aborting election",         // it waits for a cluster
		msg == "peer has newer term, stopping replication", // this leader has a successor
		msg == "failed to get previous log" && errors.Is(reason, raft.ErrLogNotFound),
		msg == "heartbeat timeout reached, starting election" && leader == "", // the cluster forms, or has started
		strings.HasPrefix(msg, "rejecting vote request"), strings.HasPrefix(msg, "rejecting pre-vote request"):
		return hclog.Info
	}
	return level
}

// isConnectionError reports that a connection could not be made, ended or timed out.
func isConnectionError(err error) bool {
	var network net.Error
	return hasConnectionEnded(err) || errors.As(err, &network) ||
		errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.ECONNREFUSED)
}

func hasConnectionEnded(err error) bool {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}
