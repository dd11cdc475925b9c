package daemon

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/ringrift/ringlog/event"
)

// Status is what DAEMON_STATUS_CHANGED says of the command.
type Status string

// The command is stopped until it is first started, running once it is ready, and failed once it is not restarted any
// more after a failure.
const (
	Stopped    Status = "stopped"
	Starting   Status = "starting"
	Running    Status = "running"
	Unhealthy  Status = "unhealthy"
	Restarting Status = "restarting"
	Failed     Status = "failed"
)

// Without the role there is no fence to publish these under: only Changed reports them.
const (
	acquiring  Status = "acquiring"
	StandingBy Status = "standing by" // another process holds the role
)

// begin reports that the command was started.
func (d *daemon) begin(pid int) {
	d.pid = pid
	to := Starting
	// Without a check there is no time between the start and being ready, so there is no state for it.
	if d.AwaitReady == nil {
		to = Running
	}
	d.put(to, "", nil, d.event(event.DaemonStarted, map[string]any{"daemon_type": d.Name, "pid": pid}))
	d.changed(State{Status: to, PID: pid, Restarts: d.restarts})
}

// ready reports that the command is ready. It does nothing if begin has reported that already.
func (d *daemon) ready() {
	if d.status != Running {
		d.put(Running, "", nil)
		d.changed(State{Status: Running, PID: d.pid, Restarts: d.restarts})
	}
}

// end reports how a run of the command ended, and what follows.
func (d *daemon) end(e end, to Status) {
	d.pid = 0
	// A command that could not be started has not ended.
	var events []event.Event
	if e.pid != 0 {
		events = append(events, d.event(event.DaemonStopped, map[string]any{"daemon_type": d.Name, "pid": e.pid,
			"exit_code": e.code, "reason": e.cause, "ran_seconds": e.took.Seconds()}))
	}
	if to == Failed {
		events = append(events, d.event(event.DaemonPermanentlyFailed, map[string]any{"daemon_type": d.Name,
			"exit_code": e.code, "reason": e.cause}))
	}
	if to == Restarting {
		if took, begins := d.loop.add(time.Now()); begins {
			events = append(events, d.event(event.DaemonCrashLoopDetected, map[string]any{"daemon_type": d.Name,
				"exit_code": e.code, "reason": e.cause, "crashes": loopRestarts, "window_seconds": took.Seconds()}))
		}
	}
	// How it ended, for people, completes the sentence "the command ...".
	how := fmt.Sprintf("has ended with exit code %d", e.code)
	switch {
	case e.cause == sick || e.cause == unready:
		how = fmt.Sprintf("is %s (%v)", e.cause, e.err)
	case e.err != nil:
		how = fmt.Sprintf("was not started (%v)", e.err)
	}
	d.put(to, e.cause, e.err, events...)
	// An end that was asked for needs no reason.
	if to == Stopped && e.cause == interrupted {
		how = ""
	}
	d.changed(State{Status: to, Restarts: d.restarts, Why: how})
	if to == Restarting {
		d.Say("the command %s: restart in %s", how, d.wait())
	}
}

// put publishes events together with a change of status. reason and err say why it changed, unless they are zero.
func (d *daemon) put(to Status, reason string, err error, events ...event.Event) {
	if to == d.status && len(events) == 0 {
		return
	}
	// The change of status comes last, after the events that explain it, in the same publish.
	payload := map[string]any{"daemon": d.Name, "old": d.status, "new": to}
	if reason != "" {
		payload["reason"] = reason
	}
	if err != nil {
		payload["error"] = err.Error()
	}
	d.status = to
	d.reports.put(append(events, d.event(event.DaemonStatusChanged, payload)))
}

// event returns an event about the command. Its key is the role, as that of the cluster's own events about it, and
// the daemon's name where it has none.
func (d *daemon) event(t event.Type, payload map[string]any) event.Event {
	host, _ := os.Hostname() // a name for people: it may be empty
	payload["host"], payload["restarts"] = host, d.restarts
	// The fence lets readers distinguish the commands of two holders.
	if d.Role != "" {
		payload["role"], payload["fence"] = d.Role, d.role.Fence()
	}
	ev := event.New(t, payload)
	ev.Source, ev.Key, ev.Time = d.Holder, cmp.Or(d.Role, d.Name), time.Now()
	ev.NoDedup = true // each happened
	return ev
}

// reports publishes what becomes of a command, in order and under its lease. It holds up nobody while the command runs.
type reports struct {
	role   lease                            // under whose fence it publishes
	say    func(format string, args ...any) // about reports that are lost
	queue  chan []event.Event               // closed by close; each element is published at once
	done   chan struct{}                    // closed when nothing is published any more
	cancel context.CancelFunc               // ends a publish that is under way
}

// maxReports is how many changes may wait to be published. What comes then is not published.
const maxReports = 256

// newReports starts to publish; close ends it.
func newReports(d *daemon) *reports {
	// The lease bounds it: after that nothing would be accepted.
	ctx, cancel := context.WithCancel(reportable(d.role))
	r := &reports{role: d.role, say: d.Say, queue: make(chan []event.Event, maxReports), done: make(chan struct{}),
		cancel: cancel}
	// One goroutine publishes, so the order is that of the queue. An error does not end it: later reports may
	// succeed.
	go func() {
		defer close(r.done)
		for events := range r.queue {
			if _, err := r.role.Publish(ctx, events...); err != nil && ctx.Err() == nil {
				r.say("%s is not published: %v", events[0].Type, err)
			}
		}
	}()
	return r
}

// put queues events that are published together. It is called from one goroutine only, which also calls close.
func (r *reports) put(events []event.Event) {
	select {
	case r.queue <- events:
	default:
		r.say("%s is not published: %d others wait", events[0].Type, maxReports)
	}
}

// close publishes what waits, until ctx is done.
func (r *reports) close(ctx context.Context) {
	// The goroutine ends once the queue is empty, or cancel has ended its publish and each that follows.
	close(r.queue)
	select {
	case <-r.done:
	case <-ctx.Done():
	}
	r.cancel()
	<-r.done
}
