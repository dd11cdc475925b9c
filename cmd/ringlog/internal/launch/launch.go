// Package launch runs the daemons of one host as a file lists them. It promises:
//
//   - A daemon is started once all of lower layers, and those that it needs, are ready, stand by for a role that is
//     held elsewhere, have ended by themselves, or will not start any more. It is not started if one that it needs has
//     failed.
//   - Daemons are stopped in the reverse order: each once all that were to start after it have ended.
//   - One launcher at a time runs a file, of the launchers of one user on one host. It answers --status and --stop.
package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/daemon"
)

// Options are what a launcher has beside its file. All fields are required.
type Options struct {
	Client      *client.Client
	Control     *Control
	Holder      string                        // the name of this process
	Environment func(withToken bool) []string // of commands
	Output      *Output                       // of commands
	Say         func(format string, args ...any)
	Changed     func(Row)    // is called with each change, one call after the other
	Started     func(Status) // is called once no daemon waits or starts any more, unless the launcher stops before
}

// State is what a daemon does, for people and for --status.
type State string

// The states of a daemon.
const (
	Waiting    State = "waiting"  // for those that come before it
	Starting   State = "starting" // also: it waits for the cluster, to acquire its role
	Ready      State = "ready"
	StandingBy State = "standing by" // another process holds its role
	Unhealthy  State = "unhealthy"
	Restarting State = "restarting"
	Failed     State = "failed for good"
	NotStarted State = "not started" // one that it needs has failed
	Stopped    State = "stopped"
)

// Row is the state of one daemon.
type Row struct {
	Name        string    `json:"name"`
	Layer       int       `json:"layer"`
	Group       string    `json:"group,omitempty"`
	State       State     `json:"state"`
	PID         int       `json:"pid,omitempty"`
	Restarts    int       `json:"restarts"` // in a row
	Since       time.Time `json:"since"`    // of the state
	Why         string    `json:"why,omitempty"`
	Role        string    `json:"role,omitempty"`
	Coordinator string    `json:"coordinator,omitempty"`
	Critical    bool      `json:"critical,omitempty"`
}

// States returns all states.
func States() []State {
	return []State{Ready, StandingBy, Starting, Waiting, Unhealthy, Restarting, Stopped, NotStarted, Failed}
}

// Bad reports a daemon that needs attention.
func (r *Row) Bad() bool {
	return r.State == Failed || r.State == NotStarted || r.State == Unhealthy || r.State == Restarting
}

// Status is what a launcher does.
type Status struct {
	File     string    `json:"file"`
	PID      int       `json:"pid"`
	Began    time.Time `json:"began_at"`
	Stopping bool      `json:"stopping,omitempty"`
	Daemons  []Row     `json:"daemons"` // in the order in which they start
}

// Launcher runs the daemons of a file.
type Launcher struct {
	o       Options
	file    *File
	began   time.Time
	clients *registrations
	entries []*entry
	stop    context.CancelCauseFunc

	mu       sync.Mutex // guards the rows of entries, and stopping; it is held while Changed is called
	stopping bool
}

// entry is a daemon of the file.
type entry struct {
	*Daemon
	needs  []*entry
	before []*entry // those that it needs, and all of lower layers
	later  []*entry // those that have it in before
	row    Row

	settle  func()        // closes settled
	settled chan struct{} // closed once those after it may start
	ended   chan struct{} // closed once it has ended and will not start
}

// New returns a launcher of a file, which Run runs once.
func New(f *File, o Options) *Launcher {
	l := &Launcher{o: o, file: f, began: time.Now(), clients: newRegistrations(o.Client)}
	byName := map[string]*entry{}
	for _, d := range f.Daemons {
		e := &entry{Daemon: d, settled: make(chan struct{}), ended: make(chan struct{})}
		e.settle = sync.OnceFunc(func() { close(e.settled) })
		e.row = Row{Name: d.Name, Layer: d.Layer, Group: d.Group, State: Waiting, Since: l.began, Role: d.Role,
			Coordinator: d.Coordinator, Critical: d.Critical}
		for _, name := range d.After {
			e.needs = append(e.needs, byName[name])
		}
		for _, other := range l.entries {
			if other.Layer < e.Layer || slices.Contains(e.needs, other) {
				e.before = append(e.before, other)
				other.later = append(other.later, e)
			}
		}
		byName[d.Name] = e
		l.entries = append(l.entries, e)
	}
	return l
}

// errStopped is the cause of a stop that was asked for.
var errStopped = errors.New("stopped")

// Stop has Run stop all daemons.
func (l *Launcher) Stop() { l.stop(errStopped) }

// Run runs the daemons until all have ended by themselves, or until ctx is done or Stop is called, and then stops them.
// The error says which critical daemon has failed, or, where all have ended by themselves, which ones have failed.
func (l *Launcher) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	l.stop = stop
	l.o.Control.Serve(l)
	context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.stopping = true
	})
	var all sync.WaitGroup
	for _, e := range l.entries {
		all.Go(func() { l.supervise(ctx, e) })
	}
	all.Go(func() {
		for _, e := range l.entries {
			<-e.settled
		}
		if ctx.Err() == nil {
			l.o.Started(l.Status())
		}
	})
	all.Wait()
	var critical criticalError
	if errors.As(context.Cause(ctx), &critical) {
		return critical
	}
	if ctx.Err() != nil {
		return nil
	}
	return l.failures()
}

// criticalError is why a launcher stops by itself.
type criticalError struct{ row Row }

func (e criticalError) Error() string {
	return fmt.Sprintf("launch: the critical daemon %s is %s: %s: all are stopped", e.row.Name, e.row.State, e.row.Why)
}

// failures returns which daemons have failed.
func (l *Launcher) failures() error {
	var names []string
	for _, row := range l.Status().Daemons {
		if row.Bad() {
			names = append(names, fmt.Sprintf("%s is %s", row.Name, row.State))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("launch: all daemons have ended: %s", strings.Join(names, ", "))
}

// Status returns what the launcher does.
func (l *Launcher) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Status{File: l.file.Path, PID: os.Getpid(), Began: l.began, Stopping: l.stopping}
	for _, e := range l.entries {
		row := e.row
		if row.State == Waiting {
			row.Why = "for " + some(e.unsettled())
		}
		s.Daemons = append(s.Daemons, row)
	}
	return s
}

// unsettled returns the names of those that the daemon still waits for.
func (e *entry) unsettled() (names []string) {
	for _, b := range e.before {
		select {
		case <-b.settled:
		default:
			names = append(names, b.Name)
		}
	}
	return names
}

// some prints the first few of many names.
func some(names []string) string {
	const few = 3
	if len(names) <= few+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d others", strings.Join(names[:few], ", "), len(names)-few)
}

// set notes and reports a state. It settles the daemon if those after it may start, and stops all if it is critical and
// has failed.
func (l *Launcher) set(e *entry, s State, from daemon.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s != e.row.State {
		e.row.Since = time.Now()
	}
	e.row.State, e.row.PID, e.row.Restarts, e.row.Why = s, from.PID, from.Restarts, from.Why
	l.o.Changed(e.row)
	// Before others learn that they may start.
	if e.Critical && (s == Failed || s == NotStarted) {
		l.stop(criticalError{e.row})
	}
	if s != Waiting && s != Starting && s != Unhealthy && s != Restarting {
		e.settle()
	}
}

// state returns the state of a daemon.
func (l *Launcher) state(e *entry) Row {
	l.mu.Lock()
	defer l.mu.Unlock()
	return e.row
}

// supervise runs one daemon from its start to its end. ctx is done when all are to stop.
func (l *Launcher) supervise(ctx context.Context, e *entry) {
	defer close(e.ended)
	for _, b := range e.before {
		select {
		case <-b.settled:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		l.set(e, Stopped, daemon.State{Why: "was not started"})
		return
	}
	for _, n := range e.needs {
		if row := l.state(n); row.State == Failed || row.State == NotStarted {
			l.set(e, NotStarted, daemon.State{Why: fmt.Sprintf("needs %s, which is %s", n.Name, row.State)})
			return
		}
	}

	// The daemon is stopped once those after it have ended.
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		for _, later := range e.later {
			<-later.ended
		}
		cancel()
	})()
	out, done, err := l.o.Output.Open(e.Name)
	if err != nil {
		l.set(e, Failed, daemon.State{Why: err.Error()})
		return
	}
	defer done()
	o := e.Options
	o.Holder, o.Stdout, o.Stderr = l.o.Holder, out, out
	o.Env = slices.Concat(l.o.Environment(e.PassToken), o.Env)
	o.AwaitReady = l.awaitReady(e.Daemon)
	o.Say = func(format string, args ...any) { l.o.Say("%s: %s", e.Name, fmt.Sprintf(format, args...)) }
	o.Changed = func(s daemon.State) { l.set(e, stateOf(s.Status), s) }
	l.set(e, Starting, daemon.State{})
	code, err := daemon.Run(own, l.o.Client, o)
	switch {
	case err != nil:
		l.set(e, Failed, daemon.State{Why: err.Error()})
	case code == 0 && l.state(e).State != Stopped: // it waited for its role
		l.set(e, Stopped, daemon.State{})
	}
}

// stateOf returns the state of a daemon whose command has a status.
func stateOf(s daemon.Status) State {
	switch s {
	case daemon.Running:
		return Ready
	case daemon.StandingBy:
		return StandingBy
	case daemon.Unhealthy:
		return Unhealthy
	case daemon.Restarting:
		return Restarting
	case daemon.Failed:
		return Failed
	case daemon.Stopped:
		return Stopped
	}
	return Starting
}

// readyEvery is the time between two checks whether a command is ready.
const readyEvery = 200 * time.Millisecond

// awaitReady returns how the start of a daemon is waited for, nil if it is ready at once.
func (l *Launcher) awaitReady(d *Daemon) func(ctx context.Context, p daemon.Process) error {
	check := func(ctx context.Context, p daemon.Process) error { return p.Check(ctx, d.Ready) }
	if wait, err := time.ParseDuration(d.Ready); err == nil {
		if wait == 0 {
			return nil
		}
		return func(ctx context.Context, _ daemon.Process) error {
			select {
			case <-time.After(wait):
				return nil
			case <-ctx.Done():
				return ctx.Err() // nobody waits: it is below the timeout
			}
		}
	} else if d.Ready == registered {
		check = func(ctx context.Context, p daemon.Process) error { return l.clients.check(ctx, p.PID) }
	}
	return func(ctx context.Context, p daemon.Process) error {
		tick := time.NewTicker(readyEvery)
		defer tick.Stop()
		for last := errors.New("its first check has not returned"); ; {
			// A check that does not return must not take the time of those after it.
			one, cancel := context.WithTimeout(ctx, d.HealthInterval)
			err := check(one, p)
			cancel()
			if err == nil {
				return nil
			}
			// The end of the time says nothing about the daemon.
			if ctx.Err() == nil {
				last = err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return last
			}
		}
	}
}
