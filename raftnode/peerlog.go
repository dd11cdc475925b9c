package raftnode

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/raftnode/rafttransport"
)

// peerLog reports when raft cannot reach a member any more and when it does again, and why
// requests to it fail. Raft itself logs each request that fails, several a second.
type peerLog struct {
	logger hclog.Logger
	lost   atomic.Int32 // members with requests that fail

	mu      sync.Mutex
	members map[raft.ServerID]*failures
	lines   repeats
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
		key += " " + withoutPorts(err.Error())
	case *inARow == 1 && hasConnectionEnded(err): // most likely an old one, and the next will do
		return
	}
	state, show := l.lines.see(key, now)
	switch {
	case !show:
	case state.count == 1:
		l.logger.Warn("raft cannot reach a member", "member", id, "addr", addr, "error", err)
	default:
		l.logger.Warn("raft still cannot reach a member", "member", id, "addr", addr, "error", err,
			"for", now.Sub(state.began).Round(time.Second), "failures", state.count)
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
	if state, reported := l.forget(id); reported && now.Sub(state.last) < repeatAfter {
		l.logger.Info("raft reaches a member again", "member", id, "after", now.Sub(state.began).Round(time.Millisecond), "failures", state.count)
	}
}

// left forgets a member that is none any more.
func (l *peerLog) left(id raft.ServerID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(id)
}

// forget is called with mu held. It returns the run of connection errors.
func (l *peerLog) forget(id raft.ServerID) (state run, reported bool) {
	if l.members[id] != nil {
		delete(l.members, id)
		l.lost.Add(-1)
	}
	return l.lines.end(string(id))
}
