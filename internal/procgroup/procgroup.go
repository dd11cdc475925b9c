// Package procgroup runs commands, each in a process group of its own, and ends the whole group: SIGTERM, a time to
// finish, SIGKILL. The processes that a command starts are in its group, unless they leave it, as some daemons do.
package procgroup

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
)

// Find returns the path of a program, which is looked up on the PATH if its name has no slash.
func Find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	// The name is said once.
	if lookup, ok := errors.AsType[*exec.Error](err); ok {
		err = lookup.Err
	}
	return "", fmt.Errorf("the command %q cannot be run: %w", name, err)
}

// Group is a command that was started, and the processes that it has started.
type Group struct {
	pid   int           // of the command, and the number of the group
	ended chan struct{} // closed when the command has ended
	err   error         // of cmd.Wait, valid after ended
}

// Start starts cmd in a process group of its own. With bound, on Linux, the kernel kills the command when this process
// ends, however it ends; the processes that the command has started are not killed.
func Start(cmd *exec.Cmd, bound bool) (*Group, error) {
	g := &Group{ended: make(chan struct{})}
	cmd.SysProcAttr = attributes(bound)
	started := make(chan error)
	// This goroutine ends with the command.
	go func() {
		// The kernel kills the command when the thread that has started it ends, so the thread waits for the command.
		if bound {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
		}
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		g.pid = cmd.Process.Pid
		started <- nil
		g.err = cmd.Wait()
		close(g.ended)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return g, nil
}

// PID returns the process id of the command.
func (g *Group) PID() int { return g.pid }

// Ended is closed when the command has ended. Processes that it has started may still run.
func (g *Group) Ended() <-chan struct{} { return g.ended }

// Wait waits until the command has ended, and returns the error of exec.Cmd.Wait.
func (g *Group) Wait() error {
	<-g.ended
	return g.err
}

// Stop sends SIGTERM to the group. Once the command has ended, or grace is done, it kills what is left of the group. It
// returns when the command has ended.
func (g *Group) Stop(grace context.Context) {
	_ = syscall.Kill(-g.pid, syscall.SIGTERM) // fails only if there is nobody left
	select {
	case <-g.ended:
	case <-grace.Done():
	}
	g.Kill()
}

// Kill sends SIGKILL to the group, and returns when the command has ended.
func (g *Group) Kill() {
	// A negative number is the process group.
	_ = syscall.Kill(-g.pid, syscall.SIGKILL) // fails only if there is nobody left
	<-g.ended
}
