package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/ringrift/ringlog/internal/procgroup"
)

// process is one run of a node.
// A node that is started again gets a new one.
type process struct {
	cmd  *exec.Cmd     // started
	done chan struct{} // closed when it has ended
	err  error         // valid after done

	mu sync.Mutex
	// mu guards asked.
	asked bool // this package ended it
}

// Restart starts a node that does not run.
func (c *Cluster) Restart(id string) error {
	n, err := c.Node(id)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Close sets closed under the same lock, so no process starts after it.
	if c.closed || c.processes[id] != nil {
		return fmt.Errorf("devcluster: start %s: it runs, or the cluster is closed", id)
	}
	p, err := c.launch(n)
	if err != nil {
		return fmt.Errorf("devcluster: start %s: %w", id, err)
	}
	c.processes[id] = p
	return nil
}

// launch starts the process of a node.
func (c *Cluster) launch(n Node) (*process, error) {
	// The log continues over restarts.
	out, err := os.OpenFile(n.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the process has its own
	// Every node gets the same arguments but for its id, its addresses and whom it joins.
	// Certificates that variables name are for the command line, not for these nodes.
	args := []string{"serve", "--tls-mode", "off", "--id", n.ID, "--data-dir", n.Dir, "--http", n.HTTP, "--raft", n.Raft,
		"--bootstrap-expect", strconv.Itoa(len(c.nodes))}
	if others := c.others(n.ID); others != "" {
		args = append(args, "--join", others)
	}
	cmd := exec.Command(c.opts.Program, append(args, c.opts.Args...)...)
	if c.opts.Name != "" {
		cmd.Args[0] = c.opts.Name
	}
	// Standard output and error go to one file, in the order in which they are written.
	cmd.Env, cmd.Stdout, cmd.Stderr = c.opts.Env, out, out
	// A group of its own, so that Ctrl-C reaches this process alone, which ends the nodes in order.
	g, err := procgroup.Start(cmd, true)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go c.reap(n, p, g) // ends with the process, which Close ends
	return p, nil
}

// reap waits for a process and reports an end that nobody asked for.
func (c *Cluster) reap(n Node, p *process, g *procgroup.Group) {
	p.err = g.Wait()
	c.mu.Lock()
	// The process is gone from the map before done is closed: whoever waited can start the node again.
	if c.processes[n.ID] == p {
		delete(c.processes, n.ID)
	}
	c.mu.Unlock()
	// signal sets asked before it sends, so an end that was asked for is seen here.
	p.mu.Lock()
	asked := p.asked
	p.mu.Unlock()
	close(p.done)
	if asked {
		return
	}
	select {
	case c.exits <- Exit{Node: n, Err: p.err, Tail: n.LogTail(15)}:
	default: // nobody listens
	}
}

// signal sends a signal to the process of a node. A process that has ended already is no error.
func (p *process) signal(s os.Signal) error {
	p.mu.Lock()
	// Set before the signal: reap may run at once.
	p.asked = true
	p.mu.Unlock()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Signal sends a node a signal that does not end it, such as SIGSTOP. If it ends the node nonetheless, Exits
// reports that.
func (c *Cluster) Signal(id string, s os.Signal) error {
	// The process that runs now: one that is started later gets no signal.
	p := c.running(id)
	if p == nil {
		return fmt.Errorf("devcluster: signal %s: it does not run: %w", id, ErrUnknownNode)
	}
	return p.cmd.Process.Signal(s)
}

// Kill ends a node with SIGKILL and waits until it is gone.
func (c *Cluster) Kill(id string) error { return c.end(context.Background(), id, syscall.SIGKILL) }

// Stop ends a node with SIGTERM and waits until it is gone; when ctx is done first,
// with SIGKILL.
func (c *Cluster) Stop(ctx context.Context, id string) error { return c.end(ctx, id, syscall.SIGTERM) }

// end ends a process, with SIGKILL if it takes too long.
func (c *Cluster) end(ctx context.Context, id string, s os.Signal) error {
	// A node that does not run is ended already.
	p := c.running(id)
	if p == nil {
		return nil
	}
	if err := p.signal(s); err != nil {
		return fmt.Errorf("devcluster: end %s: %w", id, err)
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	// SIGKILL cannot be ignored, so the process ends soon: nothing bounds this wait.
	err := p.signal(syscall.SIGKILL)
	<-p.done
	return errors.Join(fmt.Errorf("devcluster: end %s: it did not end in time and was killed", id), err)
}

// Close ends all nodes. It is idempotent.
func (c *Cluster) Close(ctx context.Context) error {
	// Nothing is started any more once closed is set.
	c.mu.Lock()
	again := c.closed
	c.closed = true
	c.mu.Unlock()
	if again {
		return nil
	}
	// All but the leader stop first, at the same time; then whoever is left.
	leading := c.leading(ctx)
	err := errors.Join(c.stopWhere(ctx, func(n Node) bool { return n.ID != leading }),
		c.stopWhere(ctx, func(Node) bool { return true }))
	return err
}

// leading returns the node that leads, "" if none says so. It has to end last: a hand-over to
// a node that is stopping as well takes long.
func (c *Cluster) leading(ctx context.Context) (id string) {
	// Two may say so around a change: the last one counts.
	for _, n := range c.nodes {
		if c.PID(n.ID) == 0 {
			continue
		}
		if s, err := c.Status(ctx, n); err == nil && s.Role == "leader" {
			id = n.ID
		}
	}
	return id
}

// stopWhere stops the chosen nodes at the same time.
func (c *Cluster) stopWhere(ctx context.Context, chosen func(Node) bool) error {
	// Each goroutine writes its own element.
	errs := make([]error, len(c.nodes))
	var ending sync.WaitGroup
	for i, n := range c.nodes {
		if chosen(n) {
			ending.Go(func() { errs[i] = c.Stop(ctx, n.ID) })
		}
	}
	ending.Wait()
	return errors.Join(errs...)
}

// LogTail is the end of a node's log, at most n lines. If it cannot be read, that is what it returns.
func (n Node) LogTail(lines int) string {
	const window = 64 << 10
	f, err := os.Open(n.Log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	// Only the end of a long log is read; its first line may be cut.
	if info, err := f.Stat(); err == nil && info.Size() > window {
		if _, err := f.Seek(-window, io.SeekEnd); err != nil {
			return err.Error()
		}
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
