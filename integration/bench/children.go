package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// child is a server of another system.
type child struct {
	// It is killed with this program; see childAttributes.
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // valid after done
}

// spawnSelf starts a server that is this program again, with a hidden command.
func spawnSelf(dir, name string, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return spawn(dir, name, self, args...)
}

// spawn starts a server whose output goes to NAME.log in dir.
func spawn(dir, name, program string, args ...string) (*child, error) {
	out, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer out.Close() // the process has its own
	c := &child{name: name, cmd: exec.Command(program, args...), done: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr, c.cmd.SysProcAttr = out, out, childAttributes()
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { // ends with the process, which stop ends
		c.err = c.cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

// pid is valid from the start on, also when the process has ended.
func (c *child) pid() int { return c.cmd.Process.Pid }

// children are the servers of one system.
type children []*child

// pids returns the ids in the order in which the servers were started.
func (cs children) pids() []int {
	pids := make([]int, len(cs))
	for i, c := range cs {
		pids[i] = c.pid()
	}
	return pids
}

// ended returns an error if one of them has ended.
func (cs children) ended() error {
	for _, c := range cs {
		select {
		// Its log has more; tailOfLogs adds the end of it to the report of the failure.
		case <-c.done:
			return fmt.Errorf("server %s ended: %v", c.name, c.err)
		default:
		}
	}
	return nil
}

// stopWithin is how long a server may take to end after SIGTERM.
const stopWithin = 10 * time.Second

// stop ends them all and waits until they are gone.
func (cs children) stop() error {
	var errs []error
	// All are signalled before any is waited for, so they end at the same time.
	for _, c := range cs {
		// A server that has ended by itself is no error here; the work that needed it has failed.
		if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, err)
		}
	}
	// Once the time is up, all that still run are killed.
	late := time.After(stopWithin)
	for _, c := range cs {
		select {
		case <-c.done:
			continue
		case <-late:
			// late fires once. After the kill each of the others ends without it.
		}
		for _, c := range cs {
			_ = c.cmd.Process.Kill() // fails where it has ended
		}
		<-c.done
	}
	return errors.Join(errs...)
}

// until polls ok until it answers without an error, ctx ends or a server does.
func (cs children) until(ctx context.Context, what string, ok func(context.Context) error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		// The first question is asked at once.
		err := ok(ctx)
		if err == nil {
			return nil
		}
		// A server that has ended will never answer, and its end explains more than a timeout.
		if gone := cs.ended(); gone != nil {
			return gone
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w, at last: %w", what, context.Cause(ctx), err)
		}
	}
}
