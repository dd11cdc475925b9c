package client

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/ringrift/ringlog/event"
)

// pending is one caller's events on their way.
type pending struct {
	op      string
	alone   bool // never shares a request
	events  []event.Event
	bytes   int
	results []Result
	err     error
	done    chan struct{} // tells once that results or err are final: see finished
	again   bool          // its caller uses it again
	single  struct {
		events  [1]event.Event
		results [1]Result
	}

	// Guarded by queue.mu.
	before, behind *pending // of those who wait
	in             *batch   // taken into, nil before
	gone           bool     // its caller does not wait any more
	final          bool     // results or err are
}

// pendings are those that nobody else has seen since their callers were answered.
var pendings = sync.Pool{New: func() any { return &pending{again: true, done: make(chan struct{}, 1)} }}

// takePending returns one for a single event whose caller waits, to be given back once it is answered.
func takePending() *pending { return pendings.Get().(*pending) }

func (p *pending) giveBack() {
	*p = pending{again: true, done: p.done}
	pendings.Put(p)
}

// finished lets the caller go on.
func (p *pending) finished() {
	p.final = true
	if p.again {
		p.done <- struct{}{} // has room for it
		return
	}
	close(p.done)
}

// pendingLine is of pendings, one behind the other.
type pendingLine struct {
	first, last *pending
	n           int
}

func (l *pendingLine) push(p *pending) {
	if p.before = l.last; p.before == nil {
		l.first = p
	} else {
		p.before.behind = p
	}
	l.last = p
	l.n++
}

func (l *pendingLine) remove(p *pending) {
	if p.before == nil {
		l.first = p.behind
	} else {
		p.before.behind = p.behind
	}
	if p.behind == nil {
		l.last = p.before
	} else {
		p.behind.before = p.before
	}
	p.before, p.behind = nil, nil
	l.n--
}

// batch is what a lane takes at once.
type batch struct {
	ctx    context.Context // ends when nobody waits any more
	cancel context.CancelCauseFunc
	all    []*pending
	live   int // of all, not answered and not gone; guarded by queue.mu
}

// queue holds what callers have handed over until a lane is free. Lanes take it in
// the order it came, as much as fits one request.
type queue struct {
	room                *room
	maxEvents, maxBytes int

	mu      sync.Mutex
	work    sync.Cond
	waiting pendingLine
	closed  bool

	// Requests cost more than events, so callers that share them should share as few
	// as possible. One more goes out beside those under way when it has at least as
	// many events and they are no crowd, when it is full, when the first of its events
	// has waited for patientFor, or when one waits that is not to be shared. Callers who
	// were just answered most often come back at once: a lane that has work gathers
	// them first.
	flying    int // events under way in requests that may be shared
	lone      int // of waiting: not to be shared
	overdue   bool
	patience  *time.Timer // runs while events wait; then they are overdue
	gathers   bool        // callers wait for answers before they come again
	gathering bool
	expected  int       // answered and not back yet
	until     time.Time // then they are not expected any more
	back      sync.Cond // the lane that gathers waits for expected to be 0
}

const (
	crowd      = 16                     // with so many events under way the next request waits for their answers
	gatherFor  = 200 * time.Microsecond // after an answer, or another one who came back, its caller is expected for so long
	gatherMost = 2 * time.Millisecond   // and all of them for so long at most
	patientFor = 10 * time.Millisecond  // with a lane free, events wait for so long at most
)

func newQueue(cfg *Config) *queue {
	q := &queue{room: newRoom(cfg.MaxBuffered), maxEvents: cfg.MaxBatchEvents, maxBytes: cfg.MaxBatchBytes}
	q.work.L, q.back.L = &q.mu, &q.mu
	q.patience = time.AfterFunc(time.Hour, q.losePatience)
	q.patience.Stop()
	return q
}

// add waits for room and hands p over.
func (q *queue) add(ctx context.Context, p *pending) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := q.room.take(ctx, p.bytes); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		q.room.give(p.bytes)
		return ErrClosed
	}
	q.waiting.push(p)
	if p.alone {
		q.lone++
	}
	if q.waiting.n == 1 {
		q.patience.Reset(patientFor)
	}
	q.expected = max(q.expected-1, 0)
	if q.gathering {
		q.until = time.Now().Add(gatherFor)
		if q.expected == 0 {
			q.back.Signal()
		}
	}
	q.work.Signal()
	return nil
}

// close lets lanes take what is left and then end.
func (q *queue) close() {
	q.room.close()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.work.Broadcast()
	q.back.Broadcast()
}

// take waits for work. It returns nil once the queue is closed and empty.
func (q *queue) take(ctx context.Context, timeout time.Duration) *batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for q.gathering || !q.due() {
			if q.closed && q.waiting.n == 0 {
				return nil
			}
			q.work.Wait()
		}
		q.gather()
		if q.waiting.n > 0 {
			break
		}
	}
	b := &batch{}
	b.ctx, b.cancel = batchContext(ctx, timeout)
	events, bytes := 0, 0
	for p := q.waiting.first; p != nil; p = q.waiting.first {
		if events > 0 && (p.alone || events+len(p.events) > q.maxEvents || bytes+p.bytes > q.maxBytes) {
			break
		}
		q.remove(p)
		p.in = b
		b.all = append(b.all, p)
		if !p.alone {
			q.flying++
		}
		events, bytes = events+len(p.events), bytes+p.bytes
		if p.alone {
			break
		}
	}
	b.live = len(b.all)
	q.goOn()
	return b
}

// remove takes p off the waiting ones; goOn follows.
func (q *queue) remove(p *pending) {
	q.waiting.remove(p)
	if p.alone {
		q.lone--
	}
}

// goOn looks at what waits once others were removed.
func (q *queue) goOn() {
	q.overdue = false
	q.patience.Stop()
	if q.waiting.n > 0 {
		q.patience.Reset(patientFor)
	}
	if q.due() {
		q.work.Signal()
	}
}

func (q *queue) losePatience() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.overdue = q.waiting.n > 0
	q.work.Signal()
}

// gather waits for callers who are expected back.
func (q *queue) gather() {
	if q.expected == 0 || q.lone > 0 || q.closed {
		return
	}
	q.gathering = true
	late := false // whoever is expected since then is not waited for
	last := time.Now().Add(gatherMost)
	var timer *time.Timer
	timer = time.AfterFunc(time.Until(q.until), func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if rest := min(time.Until(q.until), time.Until(last)); rest > 0 && !late {
			timer.Reset(rest)
			return
		}
		late = true
		q.back.Signal()
	})
	for q.expected > 0 && !late && !q.closed {
		q.back.Wait()
	}
	timer.Stop()
	if late {
		q.expected = 0
	}
	q.gathering = false
	q.work.Broadcast()
}

// due: what waits is worth a request of its own.
func (q *queue) due() bool {
	if q.waiting.n == 0 {
		return false
	}
	if q.closed || q.overdue || q.lone > 0 {
		return true
	}
	return q.waiting.n >= q.maxEvents || q.flying < crowd && q.waiting.n >= q.flying
}

func batchContext(ctx context.Context, timeout time.Duration) (context.Context, context.CancelCauseFunc) {
	ctx, release := context.WithTimeout(ctx, timeout)
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, func(cause error) {
		cancel(cause)
		release()
	}
}

// left says where a caller stood who stopped waiting.
type left int

const (
	wasQueued left = iota // nothing was sent
	leftOther             // the request goes on for other callers
	leftLast              // the request ends, p.done follows at once
)

// leave takes p out, because of why.
func (q *queue) leave(p *pending, why error) left {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.in == nil {
		q.remove(p)
		q.goOn()
		q.room.give(p.bytes)
		return wasQueued
	}
	if p.final {
		return leftLast
	}
	p.gone = true
	p.in.live--
	if p.in.live > 0 {
		return leftOther
	}
	p.in.cancel(why)
	return leftLast
}

// staying returns those of list that still wait and answers the others, who have
// been told that the outcome is unknown.
func (q *queue) staying(list []*pending) []*pending {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []*pending
	for _, p := range list {
		if !p.gone || p.in.live == 0 {
			out = append(out, p)
			continue
		}
		q.settle(p)
	}
	return out
}

// finish makes the answers of list final.
func (q *queue) finish(list []*pending) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range list {
		q.settle(p)
	}
}

func (q *queue) settle(p *pending) {
	if !p.gone {
		p.in.live--
	}
	if !p.alone {
		q.flying--
		if q.gathers {
			q.expected, q.until = q.expected+1, time.Now().Add(gatherFor)
		}
		q.work.Signal()
	}
	q.room.give(p.bytes)
	p.finished()
}

// room bounds the bytes that wait or are under way. Who finds none waits in line.
type room struct {
	mu     sync.Mutex
	size   int
	used   int
	line   list.List // of *roomWaiter
	closed bool
}

type roomWaiter struct {
	bytes int
	done  chan struct{} // closed when it has its bytes, or the room is closed
}

func newRoom(size int) *room { return &room{size: size} }

// fits lets an empty room take anything, or what is larger would never go.
func (r *room) fits(bytes int) bool { return r.used == 0 || r.used+bytes <= r.size }

// take waits until there is room for that many bytes.
func (r *room) take(ctx context.Context, bytes int) error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return ErrClosed
	}
	if r.line.Len() == 0 && r.fits(bytes) {
		r.used += bytes
		r.mu.Unlock()
		return nil
	}
	w := &roomWaiter{bytes, make(chan struct{})}
	at := r.line.PushBack(w)
	r.mu.Unlock()
	select {
	case <-w.done:
	case <-ctx.Done():
	}
	return r.settle(ctx, at, w)
}

// settle decides a wait that ended, in favour of the bytes when both came at once.
func (r *room) settle(ctx context.Context, at *list.Element, w *roomWaiter) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-w.done:
		if w.bytes < 0 {
			return ErrClosed
		}
		return nil
	default:
		r.line.Remove(at)
		r.admit()
		return context.Cause(ctx)
	}
}

// give returns bytes and lets in who waits for them.
func (r *room) give(bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= bytes
	r.admit()
}

func (r *room) admit() {
	for at := r.line.Front(); at != nil; at = r.line.Front() {
		w := at.Value.(*roomWaiter)
		if !r.fits(w.bytes) {
			return
		}
		r.used += w.bytes
		r.line.Remove(at)
		close(w.done)
	}
}

// close turns away who waits and who comes.
func (r *room) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for at := r.line.Front(); at != nil; at = r.line.Front() {
		w := at.Value.(*roomWaiter)
		w.bytes = -1
		r.line.Remove(at)
		close(w.done)
	}
}
