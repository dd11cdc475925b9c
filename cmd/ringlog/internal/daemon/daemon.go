// Package daemon runs a command, and restarts it; with a role or amounts of resources, while this process holds them.
// It promises:
//
//   - The command is started only while both are held, with the fence of the role in the environment.
//   - The process group of the command is killed before another process can have what it holds, as far as this process
//     runs. A command may outlive its lease if this process was paused or killed: then its fence has the log refuse
//     what it publishes. Amounts that a CRITICAL request takes away are another's before the command ends.
//   - What becomes of the command is published in order, under the fence if there is one, or not at all.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/internal/procgroup"
)

// Restart says after which end a command is restarted.
type Restart string

// The values of Restart.
const (
	Always    Restart = "always"
	OnFailure Restart = "on-failure" // after another exit code than 0
	Never     Restart = "never"
)

// Options say what to run, and when. All fields without a remark are required.
type Options struct {
	Name   string        // of the daemon, in its events
	Role   string        // "" runs the command without a role: then what is about the lease does not count
	Holder string        // the name of this process, which is the source of its events, too
	TTL    time.Duration // of the lease of the role and of that of the amounts
	NoWait bool          // fail with client.ErrRoleHeld or ErrNotGranted instead of waiting

	Allocation Allocation // none if it has no amounts

	Path string   // of the program, as procgroup.Find returns it
	Args []string // the first one is the name that the program sees
	Dir  string   // "" is that of this process
	Env  []string // to which the role and its fence are added

	Restart     Restart
	Backoff     time.Duration // before the first restart; it doubles with each, up to MaxBackoff
	MaxRestarts int           // without a run as long as MaxBackoff between them; 0 is no limit
	StopTimeout time.Duration // between SIGTERM and SIGKILL, at most client.MaxReserve(TTL)

	Health         string        // a shell command or a URL, "" is none
	HealthInterval time.Duration // between two checks, and the time limit of each

	// AwaitReady waits until the command that was started is ready for what depends on it; nil is at once. If it fails,
	// or takes longer than ReadyTimeout, the command has failed. Its health is checked once it is ready.
	AwaitReady   func(ctx context.Context, p Process) error
	ReadyTimeout time.Duration // counts only with AwaitReady
	// Changed is called with each new state, one call after the other; it must not block. It may be nil.
	Changed func(State)

	Stdout, Stderr io.Writer                        // of the command; checks of health write to Stderr
	Say            func(format string, args ...any) // prints a notice
}

// Process is a command that was started.
type Process struct {
	PID int // also the number of its process group
	// Check runs a shell command in the environment of the process, or asks a URL. nil is success.
	Check func(ctx context.Context, check string) error
}

// State is what becomes of a daemon.
type State struct {
	Status   Status
	PID      int    // 0 while the command does not run
	Restarts int    // in a row
	Why      string // it changed; "" if there is nothing to say
}

// MaxBackoff is the longest wait before a restart. A run that lasts as long ends a series of restarts.
const MaxBackoff = 5 * time.Minute

// Run acquires the role and the amounts, again after each loss unless Restart is Never, and runs the command while it
// holds them. It returns once the command is not restarted any more, with its exit code, or once ctx is done, with 0.
func Run(ctx context.Context, c *client.Client, o Options) (code int, err error) {
	for {
		// Each round is one lease: after a loss all of it is acquired again, with a higher fence.
		held, err := o.take(ctx, c)
		switch {
		case ctx.Err() != nil && held == nil:
			return 0, nil
		case errors.Is(err, client.ErrRoleLost) && o.Restart != Never:
			continue // while it waited for the amounts
		case err != nil:
			return 0, err
		}
		// The restarts and the crash loop of an earlier lease do not count any more.
		d := &daemon{Options: o, role: held, status: Stopped}
		code, err := d.hold(ctx)
		if !isLost(err) || o.Restart == Never {
			return code, err
		}
	}
}

// acquire waits for the role.
func (o *Options) acquire(ctx context.Context, c *client.Client) (*client.Role, error) {
	o.changed(State{Status: acquiring})
	// The first attempt does not wait in the cluster's queue, so that its error can name the holder.
	ask := client.RoleOptions{Holder: o.Holder, TTL: o.TTL, Reserve: o.StopTimeout, NoWait: true}
	role, err := c.AcquireRole(ctx, o.Role, ask)
	// Who waits should know for whom, which nobody can say during an outage.
	for said := false; shell.ExitCode(err) == shell.ExitUnreachable && !o.NoWait && ctx.Err() == nil; said = true {
		if !said {
			o.Say("%s is not acquired: %v: waiting", o.Role, err)
		}
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
		}
		role, err = c.AcquireRole(ctx, o.Role, ask)
	}
	if err == nil || o.NoWait {
		return role, err
	}
	// Any other error is one of the call that waits, too.
	if errors.Is(err, client.ErrRoleHeld) {
		o.Say("%v: waiting", err)
		o.changed(State{Status: StandingBy, Why: err.Error()})
	}
	// This call returns when the role is this process's, or ctx is done.
	ask.NoWait = false
	return c.AcquireRole(ctx, o.Role, ask)
}

// askAgain is the time between two attempts to acquire a role while the cluster cannot be reached.
const askAgain = 500 * time.Millisecond

// changed reports a state.
func (o *Options) changed(s State) {
	if o.Changed != nil {
		o.Changed(s)
	}
}

// daemon is a command under one lease.
type daemon struct {
	Options
	role    lease    // what is held, also amounts alone, or free
	reports *reports // since hold has begun

	status   Status    // the newest that was reported
	pid      int       // 0 while the command does not run
	restarts int       // in a row
	loop     crashLoop //
}

// hold runs the command, and restarts it, until the lease is lost, the command is not restarted any more, or ctx is
// done. The lease is released afterwards.
func (d *daemon) hold(ctx context.Context) (code int, err error) {
	if holding := d.holding(); holding != "" {
		d.Say("holding %s", holding)
	}
	// release closes the reports, so both are there for as long as anything is held.
	d.reports = newReports(d)
	defer d.release()
	for {
		// A run that was long enough is no part of a series of failures.
		e := d.runOnce(ctx)
		if e.took >= MaxBackoff {
			d.restarts = 0
		}
		if e.took >= loopWindow {
			d.loop = crashLoop{}
		}
		// final: the setting allows no restart after this end. exhausted: it allows one, but there were too many in
		// a row.
		final := d.Restart == Never || (d.Restart == OnFailure && e.cause == exited && e.code == 0)
		exhausted := d.MaxRestarts > 0 && d.restarts >= d.MaxRestarts
		switch {
		case e.cause == lost:
			// With the role lost, nothing can be published. If only the amounts are lost, the end is reported under
			// the role.
			if _, ok := d.lostAmounts(); ok {
				d.end(e, Stopped)
			}
			return 0, d.lost()
		case e.cause == interrupted, final && e.cause == exited && e.code == 0:
			d.end(e, Stopped)
			return 0, nil
		case final:
			d.end(e, Failed)
			return cmp.Or(e.code, shell.ExitFailed), nil
		case exhausted:
			d.end(e, Failed)
			d.Say("the command has failed for good, after %s", shell.Count(d.restarts, "restart"))
			return cmp.Or(e.code, shell.ExitFailed), nil
		}

		// The lease is kept while the command waits for its restart.
		d.end(e, Restarting)
		wait := time.After(d.wait())
		// end and wait have counted the restarts before this one.
		d.restarts++
		select {
		case <-wait:
		case <-d.role.Context().Done():
			if _, ok := d.lostAmounts(); ok {
				d.put(Stopped, lost, nil)
			}
			return 0, d.lost()
		case <-ctx.Done():
			// No run has ended here, so there is no DAEMON_STOPPED: the end of the last one has been reported.
			d.put(Stopped, interrupted, nil)
			d.changed(State{Status: Stopped, Restarts: d.restarts})
			return 0, nil
		}
	}
}

// A command that is restarted loopRestarts times within loopWindow is in a crash loop, until it has run that long.
const (
	loopRestarts = 3
	loopWindow   = time.Minute
)

// crashLoop finds a crash loop.
type crashLoop struct {
	began    [loopRestarts]time.Time // when the newest restarts became due, the oldest first
	reported bool                    // the present loop has been reported
}

// add notes a restart at a time and reports whether a loop begins with it, and how long its restarts took.
func (l *crashLoop) add(now time.Time) (took time.Duration, begins bool) {
	copy(l.began[:], l.began[1:])
	l.began[loopRestarts-1] = now
	took = now.Sub(l.began[0])
	// A zero time is fewer than loopRestarts restarts. A loop is reported once, until hold replaces the crashLoop.
	if l.reported || l.began[0].IsZero() || took > loopWindow {
		return took, false
	}
	l.reported = true
	return took, true
}

// wait returns how long the next restart is waited for. It is Backoff, doubled for each restart in a row, and
// MaxBackoff at most.
func (d *daemon) wait() time.Duration {
	wait := d.Backoff
	for range d.restarts {
		if wait >= MaxBackoff {
			break
		}
		wait *= 2
	}
	return min(wait, MaxBackoff)
}

// lost returns what is lost. Nothing is published under a role that is lost: its lease is over, and ROLE_LOST reports
// it.
func (d *daemon) lost() error {
	if a, ok := d.lostAmounts(); ok {
		d.Say("%s with fence %d is lost", d.Allocation.Text, a.amounts.Fence())
		return fmt.Errorf("run: %s: %w", d.Allocation.Text, client.ErrAllocationLost)
	}
	d.Say("%s with fence %d is lost", d.Role, d.role.Fence())
	return fmt.Errorf("run: %s: %w", d.Role, client.ErrRoleLost)
}

// Why a run of the command ended. They are also the reasons in events.
const (
	exited      = "exited"
	sick        = "unhealthy"
	unready     = "not ready"
	interrupted = "interrupted" // by Ctrl-C or SIGTERM
	lost        = "lost"        // the lease
)

// end is how a run of the command ended.
type end struct {
	cause string        // one of the causes above
	pid   int           // 0 if it could not be started
	code  int           // as of a shell: 128 and the number of the signal
	err   error         // why it is unhealthy, not ready, or was not started
	took  time.Duration // from the start to the end of the command
}

// runOnce starts the command and waits until it ends, or has to be ended. None of its process group is left then.
func (d *daemon) runOnce(ctx context.Context) end {
	switch {
	case ctx.Err() != nil:
		return end{cause: interrupted}
	// A process that was paused since it acquired the role may have no time left to run the command in.
	case d.role.Context().Err() != nil || d.role.Left() <= d.StopTimeout:
		return end{cause: lost}
	}
	cmd := d.command(d.Path, d.Args...)
	cmd.Stdout = d.Stdout
	// The command leads a process group of its own. On Linux the kernel kills it if this process dies.
	began := time.Now()
	g, err := procgroup.Start(cmd, true)
	if err != nil {
		return end{cause: exited, code: shell.ExitFailed, err: fmt.Errorf("start %s: %w", d.Args[0], err)}
	}
	e := end{pid: g.PID()}
	d.begin(e.pid)
	// Both watches end with the run. The health is watched once the command is ready: a nil channel is never
	// received from.
	watch, stopWatching := context.WithCancel(ctx)
	ready, unwell := d.watchReady(watch), (<-chan error)(nil)
	for e.cause == "" {
		select {
		case <-g.Ended():
			e.cause = exited
		case <-d.role.Context().Done():
			e.cause = lost
		case <-ctx.Done():
			e.cause = interrupted
		case e.err = <-ready:
			ready = nil
			// A command that is not ready in time is ended like one that is unhealthy.
			if e.err != nil {
				e.cause = unready
				break
			}
			d.ready()
			unwell = d.watchHealth(watch)
		case e.err = <-unwell:
			e.cause = sick
			d.put(Unhealthy, sick, e.err)
			d.changed(State{Status: Unhealthy, PID: d.pid, Restarts: d.restarts, Why: e.err.Error()})
		}
	}
	stopWatching()
	if e.cause == exited {
		g.Kill() // what it has left in the background: the next holder must be alone
	} else {
		d.stop(g)
	}
	// Only here it is certain that the command has ended, and with it all of its process group.
	e.code, e.took = exitCode(g.Wait(), cmd), time.Since(began)
	return e
}

// command returns a command with the environment of the role. What it reports goes to the standard error.
func (d *daemon) command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args[1:]...)
	cmd.Args[0], cmd.Dir, cmd.Env = args[0], d.Dir, d.Env
	if d.Role != "" {
		// The capacity is cut, so that append copies: the checks of health have environments of their own at the
		// same time.
		cmd.Env = append(d.Env[:len(d.Env):len(d.Env)], "RINGLOG_ROLE="+d.Role,
			"RINGLOG_FENCE="+strconv.FormatUint(d.role.Fence(), 10))
	}
	cmd.Stderr = d.Stderr
	return cmd
}

// stop ends the process group of the command: SIGTERM, and SIGKILL after StopTimeout, but in any case while the lease
// can still be used.
func (d *daemon) stop(g *procgroup.Group) {
	grace, cancel := context.WithTimeout(context.Background(), d.StopTimeout)
	defer cancel()
	// While the role is renewed the command has all of StopTimeout, and then what is left of the lease.
	forget := context.AfterFunc(d.role.Context(), func() {
		select {
		case <-time.After(d.role.Left()):
			cancel()
		case <-grace.Done():
		}
	})
	defer forget()
	// It returns once the command has ended, at the latest by SIGKILL at the end of grace.
	g.Stop(grace)
}

// exitCode returns the code of a command that has ended, as a shell counts it.
func exitCode(err error, cmd *exec.Cmd) int {
	if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal())
	}
	// Output that a child in the background holds open is not a failure of the command.
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		return 0
	}
	return cmp.Or(max(cmd.ProcessState.ExitCode(), 0), shell.ExitFailed)
}

// releaseWithin bounds what is left to do for a role: publishing what waits, and the release.
const releaseWithin = 5 * time.Second

// release publishes what waits, and gives the role to the next process that waits for it.
func (d *daemon) release() {
	ctx, cancel := context.WithTimeout(context.Background(), releaseWithin)
	defer cancel()
	// After the release the log refuses what is published under this fence.
	d.reports.close(ctx)
	// The lease of a role that is lost may still count, where the cluster had no leader: it is released, too.
	wasLost := d.role.Context().Err() != nil
	if err := d.role.Release(ctx); err != nil && !wasLost {
		d.Say("%s is not released, and free once its lease of %s is over: %v", d.holding(), d.TTL, err)
	}
}
