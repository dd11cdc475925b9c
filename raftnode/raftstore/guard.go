// Raft continues after a write or a sync that failed or hung (hashicorp/raft#503, hashicorp/raft#614). Delete this
// file when raft ends itself on an error of its stores.

package raftstore

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

// ticksPerTimeout is how often the watchdog checks a write within its timeout. A
// write is judged by the number of checks, not by the clock: after a process was
// stopped for a minute there is one check, and its disk is not taken for hung.
const ticksPerTimeout = 4

// guard wraps every write of both stores. The first failure is final:
// failed is set once, Fatal is called once, and every later call gets failed.
type guard struct {
	timeout time.Duration // of one write
	fatal   func(error)   // see Options.Fatal
	logger  hclog.Logger

	mu       sync.Mutex // guards the fields below and the ticks of operations; never held during a write
	failed   error      // the first failure; set once
	closed   bool
	panicked bool // a store's locks may never be released
	inFlight map[*operation]struct{}

	quit chan struct{} // closed by stop; ends watch
	done chan struct{} // closed when watch has ended
}

// operation is one write: what it does, and how often the watchdog has checked it.
type operation struct {
	verb        string
	first, last uint64 // entries; 0, 0 if it concerns none
	ticks       int    // guarded by guard.mu
}

func (o operation) String() string {
	if o.last == 0 {
		return o.verb
	}
	return fmt.Sprintf("%s %d to %d", o.verb, o.first, o.last)
}

// newGuard returns a guard with its watchdog running; stop ends it.
func newGuard(opts Options) *guard {
	g := &guard{
		timeout:  opts.SyncTimeout,
		fatal:    opts.Fatal,
		logger:   opts.Logger,
		inFlight: map[*operation]struct{}{},
		quit:     make(chan struct{}),
		done:     make(chan struct{}),
	}
	go g.watch()
	return g
}

// watch is the watchdog, the one goroutine of the stores; stop waits for it. A write that hangs cannot be
// interrupted: Fatal ends the process.
func (g *guard) watch() {
	defer close(g.done)
	ticker := time.NewTicker(max(g.timeout/ticksPerTimeout, 1))
	defer ticker.Stop()
	for {
		select {
		case <-g.quit:
			return
		case <-ticker.C:
			// The first that hangs is enough: the process ends with it.
			if hung := g.tick(); hung != nil {
				g.fail(fmt.Errorf("%v: %w: no answer within %v: check the disk, then start the node again",
					hung, ErrDiskHung, g.timeout))
			}
		}
	}
}

// tick counts a check of each write in flight, and returns one that has used up its timeout, nil if none
// has.
func (g *guard) tick() *operation {
	g.mu.Lock()
	defer g.mu.Unlock()
	var hung *operation
	for op := range g.inFlight {
		// The first tick may come right after the operation began, so it does not count.
		op.ticks++
		if op.ticks > ticksPerTimeout {
			hung = op
		}
	}
	return hung
}

// run calls f, which calls into a store, and notes a panic: the store's locks may still be held.
func (g *guard) run(f func() error) error {
	err := protect(f)
	if errors.Is(err, errPanicked) {
		g.mu.Lock()
		g.panicked = true
		g.mu.Unlock()
	}
	return err
}

// write runs one write of a store. Any error of f is final: after a failed sync nobody knows what is on
// the disk.
func (g *guard) write(op operation, f func() error) error {
	if err := g.begin(&op); err != nil {
		return err
	}
	err := g.run(f)
	// A write that hung may succeed at last, but Fatal was called for it already.
	if failed := g.end(&op); failed != nil {
		return failed
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errPanicked):
		return g.fail(fmt.Errorf("%v: %w: %w: %s", op, ErrDamaged, err, datadir.Rejoin))
	}
	return g.fail(fmt.Errorf("%v: %w: %w: check the disk, then start the node again", op, ErrDiskFailed, err))
}

// begin puts op under the watchdog, unless the stores have failed or are closed.
func (g *guard) begin(op *operation) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.stateLocked(); err != nil {
		return err
	}
	g.inFlight[op] = struct{}{}
	return nil
}

// end returns the failure that happened while op ran: op may have succeeded in
// the meantime, but its caller must not continue.
func (g *guard) end(op *operation) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.inFlight, op)
	return g.failed
}

// state is nil while the stores may be used, otherwise the final failure or ErrClosed.
func (g *guard) state() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stateLocked()
}

// stateLocked is state for a caller that holds mu.
func (g *guard) stateLocked() error {
	if g.failed == nil && g.closed {
		return ErrClosed
	}
	return g.failed
}

// fail makes err final and returns the final error, which is an earlier one if
// there was one.
func (g *guard) fail(err error) error {
	g.mu.Lock()
	first := g.failed == nil
	if first {
		g.failed = err
	}
	err = g.failed
	g.mu.Unlock()
	// Fatal is called without the lock: it may not return.
	if first {
		g.logger.Error("raft store failed", "error", err)
		g.fatal(err)
	}
	return err
}

// close refuses every later call. It returns the failure, if there was one,
// and whether it was a panic.
func (g *guard) close() (failed error, panicked bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	return g.failed, g.panicked
}

// stop ends the watchdog and waits for it. It is called once.
func (g *guard) stop() {
	close(g.quit)
	<-g.done
}

// protect turns a panic inside f into errPanicked. bbolt panics on pages that it
// cannot decode, and a page of a mapped file that cannot be read is a memory
// fault, which ends the process unless the runtime is set to panic.
func protect(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errPanicked, r)
		}
	}()
	return f()
}
