package raftnode

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// repeatAfter is how often a warning or an error is logged that keeps coming.
const repeatAfter = time.Minute

// maxRepeats bounds the lines that repeats tells apart.
const maxRepeats = 256

// repeats decides which lines are shown of those that come again and again: a new one at
// once, the same once in repeatAfter with the number of those held back in between. A line
// that has not come for repeatAfter is new. It reads no clock.
type repeats struct {
	runs map[string]run
}

// run is a line that keeps coming.
type run struct {
	began time.Time
	count int // since began
	shown time.Time
	held  int // since it was shown
	last  time.Time
}

// see takes in a line and reports whether it is to be shown. The run's count is 1 for a line
// that is new.
func (r *repeats) see(key string, now time.Time) (state run, show bool) {
	state, known := r.runs[key]
	if !known || now.Sub(state.last) >= repeatAfter {
		state = run{began: now, held: state.held}
	}
	state.count++
	state.last = now
	show = state.count == 1 || now.Sub(state.shown) >= repeatAfter

	next := state
	if show {
		next.shown, next.held = now, 0
	} else {
		next.held++
	}
	if r.runs == nil || (!known && len(r.runs) >= maxRepeats) {
		r.runs = map[string]run{}
	}
	r.runs[key] = next
	return state, show
}

// end forgets a line and returns its run, if one is known.
func (r *repeats) end(key string) (state run, known bool) {
	state, known = r.runs[key]
	delete(r.runs, key)
	return state, known
}

// quietLogger passes on what a node logs, but a warning or an error that repeats only as
// often as repeats says. Lines are the same if their message and arguments are, but for the
// ports in errors.
type quietLogger struct {
	hclog.Logger
	// level returns the level of a warning or an error, which may be a lower one.
	level func(level hclog.Level, msg string, args []any) hclog.Level
	lines *sharedRepeats
}

type sharedRepeats struct {
	sync.Mutex
	repeats
}

func newQuietLogger(l hclog.Logger) *quietLogger {
	asItIs := func(level hclog.Level, _ string, _ []any) hclog.Level { return level }
	return &quietLogger{Logger: l, level: asItIs, lines: &sharedRepeats{}}
}

// forRaft is the logger for hashicorp/raft and its transport.
func forRaft(l hclog.Logger) *quietLogger {
	q := newQuietLogger(l)
	q.level = levelOfRaft
	return q
}

// Named implements hclog.Logger.
func (q *quietLogger) Named(name string) hclog.Logger {
	return &quietLogger{Logger: q.Logger.Named(name), level: q.level, lines: q.lines}
}

// With implements hclog.Logger.
func (q *quietLogger) With(args ...any) hclog.Logger {
	return &quietLogger{Logger: q.Logger.With(args...), level: q.level, lines: q.lines}
}

// Error implements hclog.Logger.
func (q *quietLogger) Error(msg string, args ...any) { q.Log(hclog.Error, msg, args...) }

// Warn implements hclog.Logger.
func (q *quietLogger) Warn(msg string, args ...any) { q.Log(hclog.Warn, msg, args...) }

// Log implements hclog.Logger.
func (q *quietLogger) Log(level hclog.Level, msg string, args ...any) {
	if level >= hclog.Warn {
		level = q.level(level, msg, args)
		q.lines.Lock()
		state, show := q.lines.see(q.key(msg, args), time.Now())
		q.lines.Unlock()
		if !show && level > hclog.Debug {
			return
		}
		if state.held > 0 {
			args = append(args[:len(args):len(args)], "repeated", state.held)
		}
	}
	q.Logger.Log(level, msg, args...)
}

func (q *quietLogger) key(msg string, args []any) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", q.Name(), msg)
	for _, arg := range args {
		if err, ok := arg.(error); ok {
			b.WriteString(" " + withoutPorts(err.Error()))
		} else {
			fmt.Fprint(&b, " ", arg)
		}
	}
	return b.String()
}

var portOfError = regexp.MustCompile(`:[0-9]+\b`)

func withoutPorts(s string) string { return portOfError.ReplaceAllString(s, "") }

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
	return hasConnectionEnded(err) || errors.As(err, &network) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.ECONNREFUSED)
}

func hasConnectionEnded(err error) bool {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}
