package router

import (
	"context"
	"sync"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/platform/stages"
)

// task is one event on its way through a handler.
type task struct {
	ev     event.Event
	lane   string
	origin origin
	entry  *entry // its entry in the tracker, nil if it was not read from the log
	// what it is of a group, to be settled once, nil if it came otherwise
	delivery *client.Delivery
	result   chan<- error // gets how it ended; nil if nobody waits; has room
	letter   *DeadLetter  // of an abandoned one whose subscription has no cursor; set before result gets the error
	run      *runSeen     // where the subscription has a flow, nil if it belongs to no run
	chain    stages.Chain // its run so far, where the subscription has a flow
}

// identity is equal for all tasks of one event of the log, for the breaker.
func (t *task) identity() any {
	if t.ev.Offset == 0 { // a local one is in no log
		return t
	}
	return t.ev.Offset
}

// origin says how an event came to a subscription.
type origin byte

const (
	fromLog  origin = iota
	direct          // published by this router, and in the log
	local           // published by this router, and nowhere else
	replayed        // from the log, once more
	redriven        // a letter of a subscription without a cursor of its own
)

// lanes runs tasks, at most workers at once, and those of one lane one after the other,
// in the order they came.
//
// A lane is in ready or with a worker while it has tasks, never both, so no two of
// its tasks run at once. Workers exist only while there is something to do.
type lanes struct {
	workers int
	run     func(*task) (proceed bool) // false: the rest of the lane must not run
	drop    func(*task)                // what does not run
	counts  [2]*busy                   // of the subscription and of the router
	room    chan struct{}              // one token a task that waits or runs

	mu     sync.Mutex
	named  map[string]*lane // with tasks, or stopped
	ready  []*lane          // whose first task may run, the one that waits longest first
	active int              // workers that exist, at most workers
}

// lane is the tasks of one key, in order. A stopped one drops what it gets.
// The first task stays in tasks while it runs, so a lane is empty only when nothing of its key is under way.
type lane struct {
	name    string
	tasks   []*task // the first stays here while it runs
	stopped bool
}

// newLanes returns lanes that hold at most limit tasks. run is called for each task, and drop for each that
// does not run.
func newLanes(workers, limit int, run func(*task) bool, drop func(*task), counts ...*busy) *lanes {
	return &lanes{workers: workers, run: run, drop: drop, counts: [2]*busy(counts), room: make(chan struct{}, limit),
		named: map[string]*lane{}}
}

// push hands a task over. It waits for room until ctx is done, and at most for maxWait; 0 is
// without end, and a negative one does not wait.
func (l *lanes) push(ctx context.Context, t *task, maxWait time.Duration) error {
	select {
	// Most often there is room, and no timer is needed.
	case l.room <- struct{}{}:
	default:
		if err := l.waitForRoom(ctx, maxWait); err != nil {
			return err
		}
	}
	if l.workers == 1 {
		t.lane = "all" // one lane keeps all in order, also those without a key
	}

	// Its room is returned by endTask, or by dropAll if it does not run.
	l.addTask(t)
	return nil
}

// waitForRoom takes a token of room once there is one, as push does.
func (l *lanes) waitForRoom(ctx context.Context, maxWait time.Duration) error {
	if maxWait < 0 {
		return ErrOverloaded
	}

	// Without a bound the channel is nil and never ready.
	var late <-chan time.Time
	if maxWait > 0 {
		timer := time.NewTimer(maxWait)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case l.room <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-late:
		return ErrOverloaded
	}
}

// addTask puts a task at the end of its lane, and starts a worker if there may be one more.
func (l *lanes) addTask(t *task) {
	l.mu.Lock()
	defer l.mu.Unlock()

	// A task without a lane gets one of its own. A lane with tasks is in ready, or with a worker
	// that puts it there again.
	in := l.named[t.lane]
	switch {
	case t.lane == "":
		l.ready = append(l.ready, &lane{tasks: []*task{t}})
	case in == nil:
		in = &lane{name: t.lane, tasks: []*task{t}}
		l.named[t.lane] = in
		l.ready = append(l.ready, in)
	default:
		in.tasks = append(in.tasks, t)
		if in.stopped {
			l.dropAll(in)
		}
		return
	}
	if l.active < l.workers {
		l.spawn()
	}
}

// spawn starts a worker. mu is held.
func (l *lanes) spawn() {
	l.active++
	// The worker counts as in flight before it exists, so nobody takes its router for idle meanwhile.
	for _, b := range l.counts {
		b.begin()
	}
	go l.work()
}

// work runs tasks until there are none. A handler that ends its goroutine ends only this
// worker.
func (l *lanes) work() {
	// Goexit of a handler ends this goroutine: another worker takes its place.
	var in *lane
	defer func() {
		l.mu.Lock()
		if in != nil {
			l.endTask(in, true)
		}
		l.active--
		if len(l.ready) > 0 && l.active < l.workers {
			l.spawn()
		}
		l.mu.Unlock()
		for _, b := range l.counts {
			b.end()
		}
	}()
	var t *task
	for in, t = l.next(nil, true); in != nil; {
		proceed := l.run(t)
		in, t = l.next(in, proceed)
	}
}

// next ends the task that was run and returns a lane, and its first task, to run.
func (l *lanes) next(before *lane, proceed bool) (*lane, *task) {
	l.mu.Lock()
	defer l.mu.Unlock()

	// A lane returns to the end of ready, so a busy one does not keep the others waiting.
	if before != nil {
		l.endTask(before, proceed)
	}
	if len(l.ready) == 0 {
		return nil, nil
	}
	in := l.ready[0]
	l.ready[0] = nil
	l.ready = l.ready[1:]
	return in, in.tasks[0]
}

// endTask takes a lane back from its worker. mu is held.
func (l *lanes) endTask(in *lane, proceed bool) {
	// The first task is the one that was run: it stays in its lane meanwhile.
	in.tasks[0] = nil
	in.tasks = in.tasks[1:]
	<-l.room

	// A stopped lane stays known, so later tasks of it are dropped too.
	switch {
	case !proceed:
		in.stopped = true
		l.dropAll(in)
	case len(in.tasks) > 0:
		l.ready = append(l.ready, in)
	case in.name != "":
		delete(l.named, in.name)
	}
}

// dropAll drops the tasks of a lane and returns their room. mu is held.
func (l *lanes) dropAll(in *lane) {
	for _, t := range in.tasks {
		l.drop(t)
		<-l.room
	}
	in.tasks = nil
}

// load returns how many tasks run, and how many wait.
func (l *lanes) load() (running, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()

	// Each task that runs or waits has a token of room. A worker whose task has just ended has none, so there may be
	// more workers than tokens.
	return l.active, max(0, len(l.room)-l.active)
}
