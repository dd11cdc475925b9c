// Package batcher puts the requests of many callers into few raft entries: group commit.
//
// A request waits in a queue that is bounded in requests and bytes, goes into a frame with others,
// or alone where it is large, and is answered with what the state machine decided once the frame is
// committed. The Gate says whether requests are let in: a leader opens it once the first entry of its
// term is applied, and pauses it while leadership is handed over. Frames carry the replicated time and,
// once a second, a digest of the state.
//
// It promises that a request is answered exactly once, that times never fall from one frame to the
// next, and that an error other than ErrOutcomeUnknown means that nothing was appended.
//
//	b := batcher.New(id, limits, clock, machine.Digest, machine.FeatureLevel, raft.Apply)
//	b.Shift(batcher.GateWaiting, term)
//	err := b.ProposeNow(term, hello)
//	b.Shift(batcher.GateOpen, term)
//	result, err := b.Propose(ctx, request)
package batcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/clock"
)

const (
	frameTarget   = 1 << 20           // uncompressed bytes at which a frame is full
	frameRows     = frame.MaxRows / 2 // events at which a frame is full
	maxInFlight   = 16                // frames proposed and not yet answered
	smallInFlight = 2                 // past so many only full frames go out, so that small requests share one
	compressFrom  = 512               // smaller frames travel uncompressed
	spareRequests = 16                // that are no publishes, past the bound

	enqueueTimeout = 5 * time.Second
	digestEvery    = time.Second // how often a frame carries a digest
)

// Limits bound what waits in memory. Requests other than publishes may take a quarter
// more, so that what frees room is not refused first. A zero field takes its default.
type Limits struct {
	QueueRequests int // requests accepted and not answered; 32768
	QueueBytes    int // bytes of those; 64 MiB
	RequestBytes  int // one request; 32 MiB
}

// QueueStatus is how full this node's queue of requests is. Only a leader has any in it.
type QueueStatus struct {
	Requests    int    `json:"requests"` // accepted and not answered
	Bytes       int    `json:"bytes"`
	MaxRequests int    `json:"max_requests"`
	MaxBytes    int    `json:"max_bytes"`
	Refused     uint64 `json:"refused"` // by this process, for want of room
}

// Gate says what becomes of requests.
type Gate int

const (
	GateClosed  Gate = iota // not the leader: refused
	GateWaiting             // leader, but its hello is not applied yet: they wait
	GateOpen                // they go into frames
	GatePaused              // leadership is being handed over: refused
)

// Batcher puts the requests of many callers into few raft entries.
//
// One goroutine fills frames, one answers them in order. Invariants, under mu:
// bytes is the sum over queue; held counts the requests in the queue and in flights;
// inFlight <= maxInFlight; a request is in the queue, in a flight, or answered.
type Batcher struct {
	id     string
	apply  func(data []byte, timeout time.Duration) raft.ApplyFuture
	clock  *clock.Clock
	digest func() (uint64, fsm.Sum)
	level  func() uint32 // the feature level that every member has reached
	limits Limits

	sending    sync.Mutex // orders stamps and entries alike
	lastDigest time.Time  // under sending

	mu       sync.Mutex
	changed  *sync.Cond
	gate     Gate
	term     uint64 // of the gate
	started  uint64 // the term whose first frame, the hello, is applied
	closed   bool
	queue    []*proposal
	bytes    int
	rows     int
	inFlight int
	held     held
	peak     held   // the most since load was called
	refused  uint64 // for want of room

	flights chan flight
	done    sync.WaitGroup
}

// proposal is one caller's request; answer has room for the one answer it gets.
type proposal struct {
	request frame.Request
	bytes   int
	rows    int
	answer  chan answer
}

type answer struct {
	result fsm.Result
	err    error
}

// flight is a frame on its way through raft.
type flight struct {
	future    raft.ApplyFuture
	proposals []*proposal
}

// held is what memory is taken by.
type held struct{ requests, bytes int }

func New(id string, limits Limits, c *clock.Clock, digest func() (uint64, fsm.Sum), level func() uint32,
	apply func([]byte, time.Duration) raft.ApplyFuture) *Batcher {
	p := &Batcher{id: id, apply: apply, clock: c, digest: digest, level: level, limits: limits,
		flights: make(chan flight, maxInFlight)}
	p.changed = sync.NewCond(&p.mu)
	p.done.Go(p.fillFrames)
	p.done.Go(p.answerCallers)
	return p
}

// Propose queues a request and waits for its answer. Refusals come as results.
func (p *Batcher) Propose(ctx context.Context, r frame.Request) (fsm.Result, error) {
	r, err := r.Prepare()
	if err != nil {
		return fsm.Result{}, fmt.Errorf("raftnode: propose: %w: %w", ErrTooLarge, err)
	}
	q := &proposal{request: r, bytes: r.Bytes(), answer: make(chan answer, 1)}
	if r.Batch != nil {
		q.rows = r.Batch.Len()
	}
	if err := p.enqueue(q, p.reached(r.Command)); err != nil {
		return fsm.Result{}, err
	}
	select {
	case a := <-q.answer:
		return a.result, a.err
	case <-ctx.Done():
		return p.abandon(ctx, q)
	}
}

// reached refuses a command of a feature level that not every member has reached: its entry
// would stop the members that do not know it, now and after each restart. Every way of
// proposing asks.
func (p *Batcher) reached(c frame.Command) error {
	needed := c.Kind().Level()
	if needed <= frame.LevelBase {
		return nil // a publish does not wait for the state machine
	}
	if at := p.level(); at < needed {
		return fmt.Errorf("raftnode: propose %T: %w: it is of feature level %d, the cluster is at %d",
			c, ErrFeatureLevel, needed, at)
	}
	return nil
}

// enqueue queues a request. An unknown one is refused with that error, by the leader alone: the
// state of another node may lag.
func (p *Batcher) enqueue(q *proposal, unknown error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return ErrClosed
	case p.gate == GateClosed || p.gate == GatePaused:
		return ErrNoLeader
	case unknown != nil:
		return unknown
	case !p.hasRoom(q):
		p.refused++
		return fmt.Errorf("raftnode: propose: %w: %d requests, at most %d, of %d bytes, at most %d", ErrOverloaded,
			p.held.requests, p.limits.QueueRequests, p.held.bytes, p.limits.QueueBytes)
	}
	p.held.requests++
	p.held.bytes += q.bytes
	p.peak = held{max(p.peak.requests, p.held.requests), max(p.peak.bytes, p.held.bytes)}
	p.queue = append(p.queue, q)
	p.bytes += q.bytes
	p.rows += q.rows
	p.changed.Broadcast()
	return nil
}

// hasRoom reports whether a request may be held, too; one that is alone always may.
func (p *Batcher) hasRoom(q *proposal) bool {
	most := held{p.limits.QueueRequests, p.limits.QueueBytes}
	if q.request.Command.Kind() != frame.KindPublish {
		most = held{most.requests + most.requests/4 + spareRequests, most.bytes + most.bytes/4}
	}
	fits := p.held.requests < most.requests && p.held.bytes+q.bytes <= most.bytes
	return p.held.requests == 0 || fits
}

// releaseHeld takes answered requests out of what counts against the queue's limits. The caller holds p.mu.
func (p *Batcher) releaseHeld(list []*proposal) {
	p.held.requests -= len(list)
	for _, q := range list {
		p.held.bytes -= q.bytes
	}
}

// abandon ends a caller's wait. A request that is still in the queue is withdrawn;
// the outcome of any other is unknown.
func (p *Batcher) abandon(ctx context.Context, q *proposal) (fsm.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.queue {
		if other == q {
			p.queue = append(p.queue[:i], p.queue[i+1:]...)
			p.bytes, p.rows = p.bytes-q.bytes, p.rows-q.rows
			p.releaseHeld([]*proposal{q})
			return fsm.Result{}, ctx.Err()
		}
	}
	select {
	case a := <-q.answer:
		return a.result, a.err
	default:
		return fsm.Result{}, fmt.Errorf("raftnode: propose: %w: %w", ErrOutcomeUnknown, ctx.Err())
	}
}

// fillFrames makes frames of what waits, until close.
func (p *Batcher) fillFrames() {
	defer close(p.flights)
	var b frame.Builder
	for {
		batch, term, ok := p.takeFrame()
		if !ok {
			return
		}
		for _, q := range batch {
			b.AddRequest(q.request)
		}
		p.flights <- flight{p.sendFrame(&b, term), batch}
	}
}

// takeFrame waits until a frame should go out and takes its requests off the queue.
func (p *Batcher) takeFrame() (batch []*proposal, term uint64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.frameDue() {
		if p.closed {
			return nil, 0, false
		}
		p.changed.Wait()
	}
	n, bytes, rows := p.nextFrame()
	batch = append(batch, p.queue[:n]...)
	clear(p.queue[:n])
	p.queue = p.queue[n:]
	p.bytes, p.rows = p.bytes-bytes, p.rows-rows
	p.inFlight++
	return batch, p.term, true
}

// nextFrame counts the requests at the head of the queue that go into one frame: one
// that travels alone, or as many of the others as fit.
func (p *Batcher) nextFrame() (n, bytes, rows int) {
	for _, q := range p.queue {
		if n > 0 && (q.unshareable() || bytes+q.bytes > frameTarget || rows+q.rows > frameRows) {
			break
		}
		n, bytes, rows = n+1, bytes+q.bytes, rows+q.rows
		if q.unshareable() {
			break
		}
	}
	return n, bytes, rows
}

func (q *proposal) unshareable() bool { return q.request.Batch != nil && q.request.Batch.Alone() }

// frameDue: a lone request goes out at once; while frames are under way more gather.
func (p *Batcher) frameDue() bool {
	if p.gate != GateOpen || p.started != p.term || len(p.queue) == 0 {
		return false
	}
	full := p.bytes >= frameTarget || p.rows >= frameRows || p.queue[0].unshareable()
	return p.inFlight < smallInFlight || (full && p.inFlight < maxInFlight)
}

// sendFrame seals what b holds and hands it to raft.
func (p *Batcher) sendFrame(b *frame.Builder, term uint64) raft.ApplyFuture {
	return p.sendWhile(b, term, func(g Gate) bool { return g != GateClosed })
}

// sendWhile is send while the gate stands as it should: nothing comes in between.
func (p *Batcher) sendWhile(b *frame.Builder, term uint64, right func(Gate) bool) raft.ApplyFuture {
	p.sending.Lock()
	defer p.sending.Unlock()
	if !p.gateHolds(term, right) {
		*b = frame.Builder{}
		return refusedFuture{raft.ErrNotLeader}
	}
	seal := frame.Seal{Time: p.clock.Stamp(), Proposer: p.id, Compress: b.Bytes() >= compressFrom}
	if seal.Time.Sub(p.lastDigest) >= digestEvery {
		p.lastDigest = seal.Time
		seal.DigestIndex, seal.Digest = p.digest()
	}
	return p.apply(b.Encode(seal), enqueueTimeout)
}

func (p *Batcher) gateHolds(term uint64, right func(Gate) bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.term == term && right(p.gate)
}

// ProposeNow proposes a frame of its own past the queue and waits for it. The first of a
// term is its hello, which all requests of that term wait for: the leadership's owner
// proposes it while the gate keeps others out.
func (p *Batcher) ProposeNow(term uint64, commands ...frame.Command) error {
	var b frame.Builder
	for _, c := range commands {
		if err := p.reached(c); err != nil {
			return err
		}
		b.Add(c, nil)
	}
	future := p.sendFrame(&b, term)
	if err := outcomeError(future.Error()); err != nil {
		return err
	}
	if _, err := outcomeOf(future); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = max(p.started, term)
	return nil
}

// ProposeUnqueued proposes a command past the queue and its bounds, while requests of the term are
// let in: not after an intent, which has to be the last entry of a leader.
func (p *Batcher) ProposeUnqueued(c frame.Command) error {
	term := p.OpenTerm()
	if term == 0 {
		return ErrNoLeader
	}
	if err := p.reached(c); err != nil {
		return err
	}
	var b frame.Builder
	b.Add(c, nil)
	future := p.sendWhile(&b, term, func(g Gate) bool { return g == GateOpen })
	if err := outcomeError(future.Error()); err != nil {
		return err
	}
	_, err := outcomeOf(future)
	return err
}

// answerCallers answers the callers, frame by frame.
func (p *Batcher) answerCallers() {
	for f := range p.flights {
		err := outcomeError(f.future.Error())
		var out fsm.Outcome
		if err == nil {
			out, err = outcomeOf(f.future)
		}
		if err == nil && len(out.Results) != len(f.proposals) {
			err = fmt.Errorf("raftnode: propose: %w: %d results for %d requests",
				ErrOutcomeUnknown, len(out.Results), len(f.proposals))
		}
		for i, q := range f.proposals {
			if err != nil {
				q.answer <- answer{err: err}
			} else {
				q.answer <- answer{result: out.Results[i]}
			}
		}
		p.mu.Lock()
		p.releaseHeld(f.proposals)
		p.inFlight--
		p.changed.Broadcast()
		p.mu.Unlock()
	}
}

// outcomeOf is what the state machine answered for a committed frame.
func outcomeOf(f raft.ApplyFuture) (fsm.Outcome, error) {
	switch answer := f.Response().(type) {
	case fsm.Outcome:
		return answer, nil
	case error:
		return fsm.Outcome{}, fmt.Errorf("raftnode: propose: %w: %w", ErrOutcomeUnknown, answer)
	default:
		return fsm.Outcome{}, fmt.Errorf("raftnode: propose: %w: no answer of the state machine", ErrOutcomeUnknown)
	}
}

// outcomeError sorts raft's errors into those that promise that the entry was
// not appended, and all others. ErrRaftShutdown is one of the others: raft also
// answers it for entries that are committed and not yet applied.
func outcomeError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress),
		errors.Is(err, raft.ErrEnqueueTimeout):
		return fmt.Errorf("raftnode: propose: %w: %w", ErrNoLeader, err)
	default:
		return fmt.Errorf("raftnode: propose: %w: %w", ErrOutcomeUnknown, err)
	}
}

// Shift sets the gate. Closing or pausing it refuses what waits in the queue.
func (p *Batcher) Shift(to Gate, term uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gate, p.term = to, term
	if to == GateClosed || to == GatePaused {
		p.refuseQueue(ErrNoLeader)
	}
	p.changed.Broadcast()
}

// Pause refuses what is and will be asked, while leadership of term is handed
// over; false if the gate was not open in it.
func (p *Batcher) Pause(term uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate != GateOpen || p.term != term {
		return false
	}
	p.gate = GatePaused
	p.refuseQueue(ErrNoLeader)
	p.changed.Broadcast()
	return true
}

// Resume takes pause back, unless the term is over.
func (p *Batcher) Resume(term uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate == GatePaused && p.term == term {
		p.gate = GateOpen
		p.changed.Broadcast()
	}
}

func (p *Batcher) refuseQueue(err error) {
	for _, q := range p.queue {
		q.answer <- answer{err: err}
	}
	p.releaseHeld(p.queue)
	p.queue, p.bytes, p.rows = nil, 0, 0
}

// OpenTerm is the term in which requests are let in now, 0 when they are not.
func (p *Batcher) OpenTerm() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate != GateOpen || p.started != p.term {
		return 0
	}
	return p.term
}

// Drain waits until no frame is under way.
func (p *Batcher) Drain(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.changed.Broadcast()
	})
	defer stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.inFlight > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		p.changed.Wait()
	}
	return nil
}

// Waiting is what the queue holds now.
func (p *Batcher) Waiting() (requests, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue), p.bytes
}

// Load is the most that was held since it was asked last, and how many requests were
// ever refused.
func (p *Batcher) Load() (peak election.Load, refused uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	peak = election.Load{Requests: uint64(p.peak.requests), Bytes: uint64(p.peak.bytes)}
	p.peak = p.held
	return peak, p.refused
}

func (p *Batcher) Status() QueueStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return QueueStatus{
		Requests:    p.held.requests,
		Bytes:       p.held.bytes,
		MaxRequests: p.limits.QueueRequests,
		MaxBytes:    p.limits.QueueBytes,
		Refused:     p.refused,
	}
}

// Close refuses what waits and returns when every frame under way is answered.
// Raft must run until then: it leaves futures unanswered once it is shut down.
func (p *Batcher) Close() {
	p.mu.Lock()
	p.closed, p.gate = true, GateClosed
	p.refuseQueue(ErrClosed)
	p.changed.Broadcast()
	p.mu.Unlock()
	p.done.Wait()
}

// refusedFuture is an entry that never reached raft.
type refusedFuture struct{ err error }

func (f refusedFuture) Error() error  { return f.err }
func (f refusedFuture) Response() any { return nil }
func (f refusedFuture) Index() uint64 { return 0 }
