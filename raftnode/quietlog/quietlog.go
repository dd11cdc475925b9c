// Package quietlog is a logger that shows a repeated warning or error only once a minute, with
// how often it was held back. Two lines are the same if their message and arguments are, but for
// ports in errors, so that no error that is new is held back.
package quietlog

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// RepeatAfter is how often a warning or an error is logged that keeps coming.
const RepeatAfter = time.Minute

// maxRepeats bounds the lines that Repeats keeps apart.
const maxRepeats = 256

// Repeats decides which lines are shown of those that are repeated: a new one at
// once, the same once in repeatAfter with the number of those held back in between. A line
// that has not come for repeatAfter is new. It reads no clock.
type Repeats struct {
	runs map[string]Run
}

// Run is a line that keeps coming.
type Run struct {
	Began time.Time
	Count int // since began
	shown time.Time
	held  int // since it was shown
	Last  time.Time
}

// See takes in a line and reports whether it is to be shown. The run's count is 1 for a line
// that is new.
func (r *Repeats) See(key string, now time.Time) (state Run, show bool) {
	state, known := r.runs[key]
	if !known || now.Sub(state.Last) >= RepeatAfter {
		state = Run{Began: now, held: state.held}
	}
	state.Count++
	state.Last = now
	show = state.Count == 1 || now.Sub(state.shown) >= RepeatAfter

	next := state
	if show {
		next.shown, next.held = now, 0
	} else {
		next.held++
	}
	if r.runs == nil || (!known && len(r.runs) >= maxRepeats) {
		r.runs = map[string]Run{}
	}
	r.runs[key] = next
	return state, show
}

// End forgets a line and returns its run, if one is known.
func (r *Repeats) End(key string) (state Run, known bool) {
	state, known = r.runs[key]
	delete(r.runs, key)
	return state, known
}

// Logger passes on what a node logs, but a warning or an error that repeats only as
// often as repeats says. Lines are the same if their message and arguments are, but for the
// ports in errors.
type Logger struct {
	hclog.Logger
	level LevelFunc
	lines *sharedRepeats
}

// LevelFunc returns the level at which a line of level info or more is logged.
type LevelFunc func(level hclog.Level, msg string, args []any) hclog.Level

type sharedRepeats struct {
	sync.Mutex
	Repeats
}

// New makes a logger that writes to l. level, unless it is nil, may lower the level of
// a line of level info or more.
func New(l hclog.Logger, level LevelFunc) *Logger {
	if level == nil {
		level = func(level hclog.Level, _ string, _ []any) hclog.Level { return level }
	}
	return &Logger{Logger: l, level: level, lines: &sharedRepeats{}}
}

// Named implements hclog.Logger.
func (q *Logger) Named(name string) hclog.Logger {
	return &Logger{Logger: q.Logger.Named(name), level: q.level, lines: q.lines}
}

// With implements hclog.Logger.
func (q *Logger) With(args ...any) hclog.Logger {
	return &Logger{Logger: q.Logger.With(args...), level: q.level, lines: q.lines}
}

// Error implements hclog.Logger.
func (q *Logger) Error(msg string, args ...any) { q.Log(hclog.Error, msg, args...) }

// Warn implements hclog.Logger.
func (q *Logger) Warn(msg string, args ...any) { q.Log(hclog.Warn, msg, args...) }

// Info implements hclog.Logger.
func (q *Logger) Info(msg string, args ...any) { q.Log(hclog.Info, msg, args...) }

// Log implements hclog.Logger.
func (q *Logger) Log(level hclog.Level, msg string, args ...any) {
	warns := level >= hclog.Warn
	if level >= hclog.Info {
		level = q.level(level, msg, args)
	}
	if warns {
		q.lines.Lock()
		state, show := q.lines.See(q.key(msg, args), time.Now())
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

func (q *Logger) key(msg string, args []any) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", q.Name(), msg)
	for _, arg := range args {
		if err, ok := arg.(error); ok {
			b.WriteString(" " + WithoutPorts(err.Error()))
		} else {
			fmt.Fprint(&b, " ", arg)
		}
	}
	return b.String()
}

var portOfError = regexp.MustCompile(`:[0-9]+\b`)

func WithoutPorts(s string) string { return portOfError.ReplaceAllString(s, "") }
