package raftnode

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// quietLogger passes on what raft logs of a peer that it cannot reach, the same once a
// minute: raft logs each attempt, several a second.
type quietLogger struct {
	hclog.Logger

	mu   sync.Mutex
	seen map[string]repeated // by message and peer
}

type repeated struct {
	logged time.Time
	held   int
}

// perAttempt are the messages of raft that each attempt to reach a peer brings.
var perAttempt = []string{
	"failed to appendEntries to", "failed to heartbeat to", "failed to install snapshot", "failed to make requestVote RPC",
	"failed to contact", "unable to get address", "appendEntries rejected, sending older logs", "failed to get previous log",
	"failed to decode incoming command", "failed to flush response",
}

const repeatedMax = 256 // peers and messages remembered

func newQuietLogger(l hclog.Logger) *quietLogger {
	return &quietLogger{Logger: l, seen: map[string]repeated{}}
}

// Error implements hclog.Logger.
func (q *quietLogger) Error(msg string, args ...any) {
	if args, due := q.due(msg, args, time.Now()); due {
		q.Logger.Error(msg, args...)
	}
}

// Warn implements hclog.Logger.
func (q *quietLogger) Warn(msg string, args ...any) {
	if args, due := q.due(msg, args, time.Now()); due {
		q.Logger.Warn(msg, args...)
	}
}

// due reports whether a line is to be logged, and adds how many like it were not.
func (q *quietLogger) due(msg string, args []any, now time.Time) ([]any, bool) {
	known := false
	for _, m := range perAttempt {
		known = known || strings.HasPrefix(msg, m)
	}
	if !known {
		return args, true
	}
	key := msg
	for i := 0; i+1 < len(args); i += 2 {
		if name := args[i]; name == "peer" || name == "target" || name == "server-id" {
			key += fmt.Sprint(" ", args[i+1])
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	r, before := q.seen[key]
	if before && now.Sub(r.logged) < repeatAfter {
		r.held++
		q.seen[key] = r
		return nil, false
	}
	if !before && len(q.seen) >= repeatedMax {
		clear(q.seen)
	}
	q.seen[key] = repeated{logged: now}
	if r.held > 0 {
		args = append(args[:len(args):len(args)], "not-logged-meanwhile", r.held)
	}
	return args, true
}
