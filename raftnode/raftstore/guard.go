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

// ticksPerTimeout is how often the watchdog looks at a write within its
// timeout. A write is judged by looks, not by the clock: a process that was
// stopped for a minute is looked at once, and its disk is not taken for hung.
const ticksPerTimeout = 4

// guard wraps every write of both stores. The first failure is final:
// failed is set once, Fatal is called once, and every later call gets failed.
type guard struct {
	timeout time.Duration
	fatal   func(error)
	logger  hclog.Logger

	mu       sync.Mutex
	failed   error
	closed   bool
	panicked bool // a store's locks may never be released
	inFlight map[*operation]struct{}

	quit chan struct{}
	done chan struct{}
}

// operation is one write: what it does and how often the watchdog saw it.
type operation struct {
	verb        string
	first, last uint64
	ticks       int
}

func (o operation) String() string {
	if o.last == 0 {
		return o.verb
	}
	return fmt.Sprintf("%s %d to %d", o.verb, o.first, o.last)
}

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

// watch is the one goroutine of the stores; stop joins it.
func (g *guard) watch() {
	defer close(g.done)
	ticker := time.NewTicker(max(g.timeout/ticksPerTimeout, 1))
	defer ticker.Stop()
	for {
		select {
		case <-g.quit:
			return
		case <-ticker.C:
			if hung := g.tick(); hung != nil {
				g.fail(fmt.Errorf("raftstore: %v: %w: no answer within %v: check the disk, then start the node again",
					hung, ErrDiskHung, g.timeout))
			}
		}
	}
}

// tick looks at each write and returns one that used up its timeout.
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

// run calls into a store.
func (g *guard) run(f func() error) error {
	err := protect(f)
	if errors.Is(err, errPanicked) {
		g.mu.Lock()
		g.panicked = true
		g.mu.Unlock()
	}
	return err
}

// write runs one write of a store. Whatever it fails with is final.
func (g *guard) write(op operation, f func() error) error {
	if err := g.begin(&op); err != nil {
		return err
	}
	err := g.run(f)
	if failed := g.end(&op); failed != nil {
		return failed
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errPanicked):
		return g.fail(fmt.Errorf("raftstore: %v: %w: %w: %s", op, ErrDamaged, err, datadir.Rejoin))
	}
	return g.fail(fmt.Errorf("raftstore: %v: %w: %w: check the disk, then start the node again", op, ErrDiskFailed, err))
}

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

// state is nil while the stores may be used.
func (g *guard) state() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stateLocked()
}

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

// protect turns a panic inside f into an error. bbolt panics on pages it cannot
// make sense of, and a page of a mapped file that cannot be read is a
// memory fault, which ends the process unless it is asked to panic.
func protect(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errPanicked, r)
		}
	}()
	return f()
}
