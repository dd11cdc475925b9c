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
	Client      *client.Client                // for roles, events and registrations; the caller closes it after Run
	Control     *Control                      // as Hold returned it; the caller closes it after Run
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
	PID         int       `json:"pid,omitempty"` // 0 while no command runs
	Restarts    int       `json:"restarts"`      // in a row
	Since       time.Time `json:"since"`         // of the state
	Why         string    `json:"why,omitempty"` // "" if there is nothing to say
	Role        string    `json:"role,omitempty"`
	Coordinator string    `json:"coordinator,omitempty"`
	Critical    bool      `json:"critical,omitempty"`
}

// States returns all states. The order, from what is well to what has failed, is the one in which they are counted
// for people.
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
	o       Options                 // as New got them
	file    *File                   // with at least one daemon that is to run
	began   time.Time               // when New was called
	clients *registrations          // what the daemons with ready = "registered" wait for
	entries []*entry                // in the order in which they start; it does not change after New
	stop    context.CancelCauseFunc // is set by Run before Control can call Stop

	mu       sync.Mutex // guards the rows of entries, and stopping; it is held while Changed is called
	stopping bool       // whether the context of Run is done
}

// entry is a daemon of the file.
type entry struct {
	*Daemon
	needs  []*entry // those in after; if one has failed, this one does not start
	before []*entry // those that it needs, and all of lower layers
	later  []*entry // those that have it in before
	row    Row      // guarded by Launcher.mu

	settle  func()        // closes settled
	settled chan struct{} // closed once those after it may start
	ended   chan struct{} // closed once it has ended and will not start
}

// New returns a launcher of a file, which Run runs once.
func New(f *File, o Options) *Launcher {
	l := &Launcher{o: o, file: f, began: time.Now(), clients: newRegistrations(o.Client)}
	byName := map[string]*entry{}
	// The file has what a daemon needs before it, so byName and entries have all that may come into needs and
	// before.
	for _, d := range f.Daemons {
		e := &entry{Daemon: d, settled: make(chan struct{}), ended: make(chan struct{})}
		e.settle = sync.OnceFunc(func() { close(e.settled) })
		e.row = Row{Name: d.Name, Layer: d.Layer, Group: d.Group, State: Waiting, Since: l.began, Role: d.Role,
			Coordinator: d.Coordinator, Critical: d.Critical}
		for _, name := range d.After {
			e.needs = append(e.needs, byName[name])
		}
		for _, other := range l.entries {
			// Both directions are noted: before orders the starts, later the stops.
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
	// From here on other processes may call Status and Stop.
	l.o.Control.Serve(l)
	context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.stopping = true
	})
	// Every daemon has a goroutine of its own, which waits for those before it.
	var all sync.WaitGroup
	for _, e := range l.entries {
		// Each entry is settled at the latest when its supervise returns, so this goroutine ends, too. Started is
		// not called for a launcher that stops.
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
	// Why it has ended decides the result: a critical daemon is an error, a stop that was asked for is none.
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
	// A daemon that has stopped by itself, with exit code 0, has done what it was to do.
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
		// The reason changes with every daemon that settles, so it is computed when it is asked for.
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
		// A closed channel is settled. This does not wait.
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
	// It is called under the lock, so that two changes are never reported in the wrong order.
	l.o.Changed(e.row)
	// Before others learn that they may start.
	if e.Critical && (s == Failed || s == NotStarted) {
		l.stop(criticalError{e.row})
	}
	// A daemon that restarts or is unhealthy before it was ever ready holds up those after it. Once it is settled
	// it stays so, whatever becomes of it.
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
	// A stop ends the wait, also for those before it that are not ready yet.
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
	// Settled is not ready: one of before may have failed. That keeps only those from starting that need it.
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
	// The output is opened once for all runs of the command.
	out, done, err := l.o.Output.Open(e.Name)
	if err != nil {
		l.set(e, Failed, daemon.State{Why: err.Error()})
		return
	}
	defer done()
	// The options are completed with what is of this process. The file's own environment comes last, so that it
	// wins.
	o := e.Options
	o.Holder, o.Stdout, o.Stderr = l.o.Holder, out, out
	o.Env = slices.Concat(l.o.Environment(e.PassToken), o.Env)
	o.AwaitReady = l.awaitReady(e.Daemon)
	o.Say = func(format string, args ...any) { l.o.Say("%s: %s", e.Name, fmt.Sprintf(format, args...)) }
	// daemon.Run reports each change of the command; set also stores it and starts those after it.
	o.Changed = func(s daemon.State) { l.set(e, stateOf(s.Status), s) }
	// Without a role, daemon.Run reports nothing before the command has started.
	l.set(e, Starting, daemon.State{})
	code, err := daemon.Run(own, l.o.Client, o)
	// An error is one of acquiring or losing the role. An exit code other than 0 has been reported as Failed.
	switch {
	case err != nil:
		l.set(e, Failed, daemon.State{Why: err.Error()})
	case code == 0 && l.state(e).State != Stopped: // it waited for its role
		l.set(e, Stopped, daemon.State{})
	}
}

// stateOf returns the state of a daemon whose command has a status. What is not listed is a command or an
// acquisition that has begun.
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
	// Unless it is one of the two forms below, Ready is a URL or a shell command, which daemon.Process can check.
	check := func(ctx context.Context, p daemon.Process) error { return p.Check(ctx, d.Ready) }
	// A duration is waited for without any check. If the command ends meanwhile, daemon ends ctx.
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
		// The check is repeated until its first success. Once the time is over, the last failure is returned.
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
