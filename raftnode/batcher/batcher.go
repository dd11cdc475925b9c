// Package batcher puts the requests of many callers into few raft entries: group commit.
//
// A request waits in a queue that is bounded in requests and bytes, goes into a frame with others,
// or alone if its batch is large, and is answered with what the state machine decided once the
// frame is committed. The Intake says whether requests are accepted: a leader opens it once the first entry
// of its term is applied, and pauses it while leadership is handed over. Frames carry the replicated time
// and, once a second, a digest of the state.
//
// It promises that a request is answered exactly once, that times never fall from one frame to the
// next, and that an error other than ErrOutcomeUnknown means that nothing was appended.
//
//	b := batcher.New(id, limits, clock, machine.Digest, machine.FeatureLevel, raft.Apply)
//	b.Shift(batcher.IntakeWaiting, term)
//	err := b.ProposeNow(term, frame.TermStart{…})
//	b.Shift(batcher.IntakeOpen, term)
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
	smallInFlight = 2                 // while this many are in flight only full frames go out: small requests share
	compressFrom  = 512               // smaller frames travel uncompressed
	spareRequests = 16                // requests other than publishes that may exceed the bound and its quarter

	enqueueTimeout = 5 * time.Second
	digestEvery    = time.Second // how often a frame carries a digest
)

// Limits bound what waits in memory. Requests other than publishes may take a quarter more:
// those that free room must not be the first that are refused. A zero field takes its default.
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
	Refused     uint64 `json:"refused"` // by this process since it started, because the queue was full
}

// Intake says what becomes of requests.
type Intake int

const (
	IntakeClosed  Intake = iota // not the leader: refused
	IntakeWaiting               // leader, but its term start is not applied yet: they wait
	IntakeOpen                  // they go into frames
	IntakePaused                // leadership is being handed over: refused
)

// Batcher puts the requests of many callers into few raft entries.
//
// One goroutine (fillFrames) takes requests off the queue and proposes frames, another (answerCallers)
// answers their callers in the order of the frames. Invariants, under mu:
// bytes is the sum over queue; held counts the requests in the queue and in flights;
// inFlight <= maxInFlight; a request is in the queue, in a flight, or answered.
type Batcher struct {
	id     string
	apply  func(data []byte, timeout time.Duration) raft.ApplyFuture
	clock  *clock.Clock
	digest func() (uint64, fsm.Sum)
	level  func() uint32 // the feature level that every member has reached
	limits Limits

	sending    sync.Mutex // held from the stamp of a frame until raft has its entry: times ascend with the log
	lastDigest time.Time  // the stamp of the newest frame with a digest; guarded by sending

	mu       sync.Mutex
	changed  *sync.Cond // on mu: intake, started, queue, inFlight or closed may have changed
	intake   Intake
	term     uint64 // of the intake
	started  uint64 // the newest term whose first frame, the term start, is applied
	closed   bool
	queue    []*proposal // accepted and not yet in a frame, oldest first
	bytes    int         // of the requests in queue
	rows     int         // events of the requests in queue
	inFlight int         // frames taken off the queue and not yet answered
	held     held        // in the queue and in flights
	peak     held        // the most that was held since Load was called
	refused  uint64      // requests refused because the limits were reached

	flights chan flight    // has room for maxInFlight, so fillFrames does not wait for answers
	done    sync.WaitGroup // fillFrames and answerCallers; Close waits for them
}

// proposal is one caller's request.
type proposal struct {
	request frame.Request
	bytes   int         // what it counts against the limits
	rows    int         // its events
	answer  chan answer // has room for the one answer it gets: its sender never waits for the caller
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

// held counts the requests that are accepted and not yet answered, and their bytes.
type held struct{ requests, bytes int }

// New returns a batcher for the node id whose intake is closed, and starts its goroutines; Close ends them.
// digest returns the digest of the state and the index it belongs to, level the feature level that every
// member has reached, and apply hands an entry to raft.
func New(id string, limits Limits, c *clock.Clock, digest func() (uint64, fsm.Sum), level func() uint32,
	apply func([]byte, time.Duration) raft.ApplyFuture) *Batcher {
	p := &Batcher{id: id, apply: apply, clock: c, digest: digest, level: level, limits: limits,
		flights: make(chan flight, maxInFlight)}
	p.changed = sync.NewCond(&p.mu)
	p.done.Go(p.fillFrames)
	p.done.Go(p.answerCallers)
	return p
}

// Propose queues a request and waits for its answer or the end of ctx. What the state machine refuses
// comes as a result, not as an error.
func (p *Batcher) Propose(ctx context.Context, r frame.Request) (fsm.Result, error) {
	r, err := r.Prepare()
	if err != nil {
		return fsm.Result{}, fmt.Errorf("propose: %w: %w", ErrTooLarge, err)
	}
	q := &proposal{request: r, bytes: r.Bytes(), answer: make(chan answer, 1)}
	if r.Batch != nil {
		q.rows = r.Batch.Len()
	}
	if err := p.enqueue(q, p.checkLevel(r.Command)); err != nil {
		return fsm.Result{}, err
	}
	select {
	case a := <-q.answer:
		return a.result, a.err
	case <-ctx.Done():
		return p.abandon(ctx, q)
	}
}

// Decide proposes a command of the cluster's own and waits until it is applied. A refusal of the state machine is
// returned as the error.
func (p *Batcher) Decide(ctx context.Context, c frame.Command) error {
	result, err := p.Propose(ctx, frame.Request{Command: c})
	if err == nil && result.Refusal != nil {
		return result.Refusal
	}
	return err
}

// Reached reports whether every member knows a kind of command, so it may be proposed.
func (p *Batcher) Reached(k frame.Kind) bool { return k.Level() <= p.level() }

// checkLevel refuses a command of a feature level that not every member has reached: its entry
// would stop the members that do not know it, now and after each restart. Propose, ProposeNow and
// ProposeUnqueued all ask it.
func (p *Batcher) checkLevel(c frame.Command) error {
	needed := c.Kind().Level()
	if act, is := c.(frame.Act); is && act.Of != nil {
		needed = max(needed, act.Of.Kind().Level())
	}
	if needed <= frame.LevelBase {
		return nil // a publish does not wait for the state machine
	}
	if at := p.level(); at < needed {
		return fmt.Errorf("%w: it is of feature level %d, the cluster is at %d", ErrFeatureLevel, needed, at)
	}
	return nil
}

// enqueue queues a request. unknown, if not nil, is the error of checkLevel. Only a leader returns it: the
// state of another node may lag, and with it the feature level that this node knows.
func (p *Batcher) enqueue(q *proposal, unknown error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return ErrClosed
	case p.intake == IntakeClosed || p.intake == IntakePaused:
		return ErrNoLeader
	case unknown != nil:
		return unknown
	case !p.hasRoom(q):
		p.refused++
		return fmt.Errorf("propose: %w: %d requests, at most %d, of %d bytes, at most %d", ErrOverloaded,
			p.held.requests, p.limits.QueueRequests, p.held.bytes, p.limits.QueueBytes)
	}
	// It counts as held until it is answered or withdrawn, not only while it is in the queue.
	p.held.requests++
	p.held.bytes += q.bytes
	p.peak = held{max(p.peak.requests, p.held.requests), max(p.peak.bytes, p.held.bytes)}
	p.queue = append(p.queue, q)
	p.bytes += q.bytes
	p.rows += q.rows
	p.changed.Broadcast()
	return nil
}

// hasRoom reports whether the limits admit one more request. A request that would be the only one
// always fits, however large it is. The caller holds p.mu.
func (p *Batcher) hasRoom(q *proposal) bool {
	most := held{p.limits.QueueRequests, p.limits.QueueBytes}
	if !q.request.Command.Kind().Publishes() {
		most = held{most.requests + most.requests/4 + spareRequests, most.bytes + most.bytes/4}
	}
	fits := p.held.requests < most.requests && p.held.bytes+q.bytes <= most.bytes
	return p.held.requests == 0 || fits
}

// releaseHeld removes requests that are answered or withdrawn from what counts against the limits. The
// caller holds p.mu.
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
	// A request that no frame has taken is withdrawn: nothing of it was appended.
	for i, other := range p.queue {
		if other == q {
			p.queue = append(p.queue[:i], p.queue[i+1:]...)
			p.bytes, p.rows = p.bytes-q.bytes, p.rows-q.rows
			p.releaseHeld([]*proposal{q})
			return fsm.Result{}, ctx.Err()
		}
	}
	// Its answer may have arrived at the same moment as the end of ctx; then the outcome is known.
	select {
	case a := <-q.answer:
		return a.result, a.err
	default:
		return fsm.Result{}, fmt.Errorf("propose: %w: %w", ErrOutcomeUnknown, ctx.Err())
	}
}

// fillFrames makes frames of the queued requests until Close, and then ends answerCallers.
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
	// Close empties the queue and closes the intake, so no frame is due any more.
	for !p.frameDue() {
		if p.closed {
			return nil, 0, false
		}
		p.changed.Wait()
	}
	n, bytes, rows := p.nextFrame()
	// The queue's array must not keep the requests reachable that have left it.
	batch = append(batch, p.queue[:n]...)
	clear(p.queue[:n])
	p.queue = p.queue[n:]
	p.bytes, p.rows = p.bytes-bytes, p.rows-rows
	p.inFlight++
	return batch, p.term, true
}

// nextFrame counts the requests at the head of the queue that go into one frame, with their bytes and
// events: one unshareable request, or as many of the others as fit. The first one is taken whatever its
// size. The caller holds p.mu.
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

// unshareable reports whether the request's batch is large enough for a frame of its own.
func (q *proposal) unshareable() bool { return q.request.Batch != nil && q.request.Batch.Alone() }

// frameDue reports whether the next frame should go out now. A single request goes out at once; while
// smallInFlight frames are in flight, requests gather until a frame is full. The caller holds p.mu.
func (p *Batcher) frameDue() bool {
	if p.intake != IntakeOpen || p.started != p.term || len(p.queue) == 0 {
		return false
	}
	// An unshareable request gains nothing from waiting for others.
	full := p.bytes >= frameTarget || p.rows >= frameRows || p.queue[0].unshareable()
	return p.inFlight < smallInFlight || (full && p.inFlight < maxInFlight)
}

// sendFrame seals what b holds and hands it to raft, unless the intake is closed or in another term. It
// leaves b empty.
func (p *Batcher) sendFrame(b *frame.Builder, term uint64) raft.ApplyFuture {
	return p.sendWhile(b, term, func(i Intake) bool { return i != IntakeClosed })
}

// sendWhile is sendFrame with another condition on the intake. No other frame gets between the check and
// the entry: what was checked before Pause is in raft's queue before any frame that follows Pause.
func (p *Batcher) sendWhile(b *frame.Builder, term uint64, right func(Intake) bool) raft.ApplyFuture {
	p.sending.Lock()
	defer p.sending.Unlock()
	if !p.intakeIs(term, right) {
		// Like Encode, the refusal leaves an empty builder for the next frame.
		*b = frame.Builder{}
		return refusedFuture{raft.ErrNotLeader}
	}
	seal := frame.Seal{Time: p.clock.Stamp(), Proposer: p.id, Compress: b.Bytes() >= compressFrom}
	// Each member compares the digest with its own at that index, and reports that it diverged.
	if seal.Time.Sub(p.lastDigest) >= digestEvery {
		p.lastDigest = seal.Time
		seal.DigestIndex, seal.Digest = p.digest()
	}
	return p.apply(b.Encode(seal), enqueueTimeout)
}

// intakeIs reports whether the intake is still in term and as right wants it.
func (p *Batcher) intakeIs(term uint64, right func(Intake) bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.term == term && right(p.intake)
}

// ProposeNow proposes a frame of its own past the queue and its limits, and waits until it is applied.
// The first one of a term is its term start, for which all requests of that term wait: the owner of the
// leadership proposes it while the intake makes the others wait. The intake may also be paused.
func (p *Batcher) ProposeNow(term uint64, commands ...frame.Command) error {
	var b frame.Builder
	for _, c := range commands {
		if err := p.checkLevel(c); err != nil {
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
	// No broadcast: Shift opens the intake after that, and wakes fillFrames.
	p.started = max(p.started, term)
	return nil
}

// ProposeUnqueued proposes a command past the queue and its limits, and waits until it is applied. It
// fails with ErrNoLeader unless the intake is open: the intent to hand leadership over has to be the last
// entry of a leader, and the intake is paused before it is proposed.
func (p *Batcher) ProposeUnqueued(c frame.Command) error {
	term := p.OpenTerm()
	if term == 0 {
		return ErrNoLeader
	}
	if err := p.checkLevel(c); err != nil {
		return err
	}
	var b frame.Builder
	b.Add(c, nil)
	future := p.sendWhile(&b, term, func(i Intake) bool { return i == IntakeOpen })
	if err := outcomeError(future.Error()); err != nil {
		return err
	}
	_, err := outcomeOf(future)
	return err
}

// answerCallers waits for each frame in the order they were proposed, and answers its callers. It ends
// once fillFrames has.
func (p *Batcher) answerCallers() {
	for f := range p.flights {
		err := outcomeError(f.future.Error())
		var out fsm.Outcome
		if err == nil {
			out, err = outcomeOf(f.future)
		}
		// Results are matched to requests by position; with another count nobody's result is known.
		if err == nil && len(out.Results) != len(f.proposals) {
			err = fmt.Errorf("propose: %w: %d results for %d requests",
				ErrOutcomeUnknown, len(out.Results), len(f.proposals))
		}
		for i, q := range f.proposals {
			if err != nil {
				q.answer <- answer{err: err}
			} else {
				q.answer <- answer{result: out.Results[i]}
			}
		}
		// Room in the limits and in flight: takeFrame and Drain wait for it.
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
		return fsm.Outcome{}, fmt.Errorf("propose: %w: %w", ErrOutcomeUnknown, answer)
	default:
		return fsm.Outcome{}, fmt.Errorf("propose: %w: no answer of the state machine", ErrOutcomeUnknown)
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
		return fmt.Errorf("propose: %w: %w", ErrNoLeader, err)
	default:
		return fmt.Errorf("propose: %w: %w", ErrOutcomeUnknown, err)
	}
}

// Shift sets the intake and its term. Closing or pausing it refuses what waits in the queue.
func (p *Batcher) Shift(to Intake, term uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.intake, p.term = to, term
	if to == IntakeClosed || to == IntakePaused {
		p.refuseQueue(ErrNoLeader)
	}
	p.changed.Broadcast()
}

// Pause refuses the queued requests and all later ones while leadership of term is handed over. It
// returns false, and changes nothing, if the intake was not open in that term.
func (p *Batcher) Pause(term uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.intake != IntakeOpen || p.term != term {
		return false
	}
	p.intake = IntakePaused
	p.refuseQueue(ErrNoLeader)
	p.changed.Broadcast()
	return true
}

// Resume opens the intake that Pause has paused, unless the term is over.
func (p *Batcher) Resume(term uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.intake == IntakePaused && p.term == term {
		p.intake = IntakeOpen
		p.changed.Broadcast()
	}
}

// refuseQueue answers all queued requests with err. The caller holds p.mu.
func (p *Batcher) refuseQueue(err error) {
	for _, q := range p.queue {
		q.answer <- answer{err: err}
	}
	p.releaseHeld(p.queue)
	p.queue, p.bytes, p.rows = nil, 0, 0
}

// OpenTerm is the term in which requests are accepted and proposed now, 0 if they are not.
func (p *Batcher) OpenTerm() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.intake != IntakeOpen || p.started != p.term {
		return 0
	}
	return p.term
}

// Drain waits until every frame of queued requests is answered, or ctx ends.
func (p *Batcher) Drain(ctx context.Context) error {
	// A Cond does not wake for a context: its end has to broadcast, under mu lest the wait miss it.
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

// Waiting is how many requests are queued and in no frame yet, and their bytes.
func (p *Batcher) Waiting() (requests, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue), p.bytes
}

// Load is the most that was held since Load was last called, and how many requests were refused since
// the start because the limits were reached.
func (p *Batcher) Load() (peak election.Load, refused uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	peak = election.Load{Requests: uint64(p.peak.requests), Bytes: uint64(p.peak.bytes)}
	p.peak = p.held
	return peak, p.refused
}

// Status is how full the queue is now.
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

// Close refuses the queued requests and all later ones, and returns once every frame in flight is answered.
// Raft must run until then: it leaves futures unanswered once it is shut down.
func (p *Batcher) Close() {
	p.mu.Lock()
	p.closed, p.intake = true, IntakeClosed
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
