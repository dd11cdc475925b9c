package integration

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ringrift/ringlog/event"
)

// history is everything the soak's clients did and were answered, and what has been checked of it.
//
// An event carries a number of its own. For each number the history keeps when it was first sent,
// when it was first acknowledged, at which offset, and whether every attempt was refused; when the
// log is read, also where it is stored. All times are nanoseconds since the history began.
type history struct {
	began time.Time

	mu         sync.Mutex
	events     []soakEvent // by number
	unchecked  []int       // acknowledged numbers that no reading of the log has confirmed yet
	highest    uint64      // acknowledged offset; what a later linearizable read must reach
	lastAck    int64
	longestGap int64 // without an acknowledgement, since the gap was last taken
	checkedTo  uint64
	sums       map[uint64]uint64 // checksums of delivered events by offset, until they are checked
	counts     soakCounts
	cursorOps  []porcupine.Operation
	during     string // the fault under way
	violations []string

	// What the log had last, up to checkedTo.
	term       uint64            // of the last entry
	elected    uint64            // the last term that LEADER_ELECTED named
	appendedAt int64             // of the last event
	leaders    map[uint64]string // by term: the node that claimed to lead, or that the log names

	// Replicated time may be ahead of the real one by as much as a majority's clocks were, and by a tenth of
	// the time during which a leader's clock was ahead: that is how fast the leader slews it.
	majorityAhead, stepped time.Duration
	jumps                  int // of replicated time, begun and ended: odd while one may happen
}

// soakEvent is one event's life; a million of them are kept in 48 MB.
type soakEvent struct {
	sent, acked int64 // 0 is never
	offset      uint64
	stored      uint64
	pending     int32 // attempts that are not answered
	possible    bool  // some attempt was acknowledged or its outcome is unknown
	outlived    bool  // the dedup window may have ended between two attempts, as replicated time jumped
}

// soakCounts are the figures of a run.
type soakCounts struct {
	Acked, Refused, Unknown, UnknownStored, Duplicates int // of events
	LinearizableReads, CursorOps, Deliveries, Acks     int
	CursorOpsUnchecked                                 int // their search took too long
	FencedSteps, TakeOvers                             int // events under a fence, and roles whose holder was silent
}

// newHistory returns an empty history.
func newHistory() *history {
	return &history{began: time.Now(), sums: map[uint64]uint64{}, leaders: map[uint64]string{}}
}

// now returns the time since the history began, never 0, which means no time.
func (h *history) now() int64 { return time.Since(h.began).Nanoseconds() + 1 }

// violation notes that a promise was broken.
func (h *history) violation(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.violationLocked(format, args...)
}

// violationLocked is violation with h.mu held.
func (h *history) violationLocked(format string, args ...any) {
	if len(h.violations) < 100 {
		at := fmt.Sprintf("VIOLATION at %.1f s, %s: ", float64(h.now())/1e9, cmp.Or(h.during, "before the first fault"))
		h.violations = append(h.violations, at+fmt.Sprintf(format, args...))
	}
}

// violated reports whether a promise was broken.
func (h *history) violated() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.violations) > 0
}

// beginFault notes which fault is under way from now on.
func (h *history) beginFault(fault string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.during = fault
}

// jump notes, called before and after, that replicated time may jump. What is sent meanwhile, and what
// was sent shortly before, may be sent again when its key has left the dedup window.
func (h *history) jump() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.jumps++
	recently := h.now() - time.Minute.Nanoseconds()
	for i := range h.events {
		if e := &h.events[i]; e.pending > 0 || e.sent > recently {
			e.outlived = true
		}
	}
}

// steadySince reports whether replicated time cannot have jumped since the number of jumps was taken.
func (h *history) steadySince(jumps int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return jumps%2 == 0 && jumps == h.jumps
}

// jumpsSoFar returns how often replicated time may have jumped.
func (h *history) jumpsSoFar() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.jumps
}

// clocksWere notes for how long clocks were wrong, and how far ahead a majority of them was. Both are kept as bounds
// of what append times may show from then on.
func (h *history) clocksWere(wrongFor, majorityAhead time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stepped += wrongFor
	h.majorityAhead = max(h.majorityAhead, majorityAhead)
}

// noteLeader notes that a node leads in a term, as it claims itself or as the log has it.
func (h *history) noteLeader(term uint64, id, who string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noteLeaderLocked(term, id, who)
}

// noteLeaderLocked is noteLeader with h.mu held.
func (h *history) noteLeaderLocked(term uint64, id, who string) {
	if other, there := h.leaders[term]; there && other != id {
		h.violationLocked("%s says that %s leads in term %d, in which %s led", who, id, term, other)
	}
	h.leaders[term] = id
}

// create returns the numbers of n new events.
func (h *history) create(n int) []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = len(h.events)
		h.events = append(h.events, soakEvent{outlived: h.jumps%2 == 1})
	}
	return numbers
}

// sending notes an attempt to publish these events in one request.
func (h *history) sending(numbers []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.now()
	for _, n := range numbers {
		e := &h.events[n]
		e.pending++
		if e.sent == 0 {
			e.sent = at
		}
	}
}

// outcome is what a caller knows of a request after its answer.
type outcome int

const (
	acknowledged outcome = iota
	refused              // nothing of it has happened or will
	unknown              // it may have happened, or may still
)

// answered notes how an attempt ended; offsets are those of an acknowledgement.
func (h *history) answered(numbers []int, o outcome, offsets []uint64, duplicates int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// Each event of the request has the outcome of the request.
	at := h.now()
	for i, n := range numbers {
		e := &h.events[n]
		e.pending--
		switch o {
		case refused:
			h.counts.Refused++
			continue
		case unknown:
			h.counts.Unknown++
			e.possible = true
			continue
		}
		// The first acknowledgement says where the event is stored; later ones have to agree.
		e.possible = true
		switch {
		case e.acked == 0:
			e.acked, e.offset = at, offsets[i]
			h.unchecked = append(h.unchecked, n)
			h.counts.Acked++
		case e.offset != offsets[i] && !e.outlived:
			h.violationLocked("event %d was acknowledged at offset %d and again at %d", n, e.offset, offsets[i])
		}
		h.highest = max(h.highest, offsets[i])
	}
	if o == acknowledged {
		h.counts.Duplicates += duplicates
		h.longestGap = max(h.longestGap, at-h.lastAck)
		h.lastAck = at
	}
}

// gap returns the longest time without an acknowledgement since the last call.
func (h *history) gap() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	longest := max(h.longestGap, h.now()-h.lastAck)
	h.longestGap, h.lastAck = 0, h.now()
	return time.Duration(longest)
}

// newest returns the highest offset that was acknowledged or read: a linearizable read that begins now has to
// reach it.
func (h *history) newest() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.highest
}

// noteRead notes the answer of a linearizable read that began when newest returned before.
func (h *history) noteRead(before, tail uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts.LinearizableReads++
	if tail < before {
		h.violationLocked("a linearizable read ended at %d although %d was acknowledged or read before it began",
			tail, before)
	}
	h.highest = max(h.highest, tail)
}

// delivered notes an event that a node has delivered: every node delivers the same.
func (h *history) delivered(node string, e *soakStored) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts.Deliveries++
	if e.Offset <= h.checkedTo {
		return
	}
	if sum, there := h.sums[e.Offset]; there && sum != e.sum {
		h.violationLocked("%s delivered another event at offset %d than another node", node, e.Offset)
	}
	h.sums[e.Offset] = e.sum
}

// soakStored is an event as a node's log has it.
type soakStored struct {
	Offset     uint64
	Type       event.Type
	Term       uint64
	appendedAt int64  // nanoseconds since 1970
	number     int    // of the soak's own events; -1 for others
	elected    uint64 // by LEADER_ELECTED: the term
	leader     string // and its leader
	lease      soakLease
	sum        uint64
}

// storedOf returns what is checked of a stored event.
func storedOf(e *event.Event) soakStored {
	s := soakStored{Offset: e.Offset, Type: e.Type, Term: e.Term, appendedAt: e.AppendedAt.UnixNano(), number: -1,
		lease: leaseOf(e)}
	switch e.Type {
	case event.TrainingProgress:
		var payload struct{ Epoch *int }
		if json.Unmarshal(e.Payload, &payload) == nil && payload.Epoch != nil {
			s.number = *payload.Epoch
		}
	case event.LeaderElected:
		var payload struct {
			Term     uint64 `json:"term"`
			LeaderID string `json:"leader_id"`
		}
		if json.Unmarshal(e.Payload, &payload) == nil {
			s.elected, s.leader = payload.Term, payload.LeaderID
		}
	}
	// FNV-1a over the fields, each ended by a byte that UTF-8 does not have.
	const prime = 1099511628211
	s.sum = 14695981039346656037
	for _, text := range []string{string(e.Type), string(e.Payload), e.Source, e.Key, e.DedupID, e.AppendedAt.String()} {
		for _, b := range []byte(text) {
			s.sum = (s.sum ^ uint64(b)) * prime
		}
		s.sum = (s.sum ^ 0xff) * prime
	}
	return s
}

// check compares the next part of the log, as one node has it, with what was sent and acknowledged.
// Nothing may be under way while it runs.
func (h *history) check(node string, part []soakStored, tail uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// Event by event: no hole, nothing else than was delivered, times and terms in order.
	next, sound := h.checkedTo+1, true
	for i := range part {
		e := &part[i]
		if e.Offset != next {
			h.violationLocked("%s: offset %d follows %d", node, e.Offset, next-1)
		}
		next = e.Offset + 1
		if sum, there := h.sums[e.Offset]; there && sum != e.sum {
			h.violationLocked("%s stores another event at offset %d than was delivered", node, e.Offset)
		}
		if sound { // a wrong time or term is one for all that follow
			sound = h.checkTime(node, e) && h.checkTerm(node, e)
		}
		if e.number >= 0 {
			h.noteStored(node, e)
		}
	}
	if next != tail+1 {
		h.violationLocked("%s: its log ends at %d, not at %d", node, next-1, tail)
	}
	// Then what was acknowledged, which may be anywhere in the part.
	h.confirm(node, tail)
	h.checkOrder(part)
	h.checkedTo = tail
	clear(h.sums)
}

// checkTime requires that append times never fall, and that they follow what a majority of the clocks
// said, not one of them.
func (h *history) checkTime(node string, e *soakStored) bool {
	found := len(h.violations)
	if e.appendedAt < h.appendedAt {
		h.violationLocked("%s: offset %d was appended %s before the one before it",
			node, e.Offset, time.Duration(h.appendedAt-e.appendedAt))
	}
	h.appendedAt = e.appendedAt
	latest := h.now() // it was appended before now, and before it was acknowledged
	if e.number >= 0 && e.number < len(h.events) && h.events[e.number].acked != 0 {
		latest = h.events[e.number].acked
	}
	const exactness = 2 * time.Second
	allowed := h.majorityAhead + h.stepped/8 + exactness // a tenth, of a duration that is measured from outside
	if ahead := time.Duration(e.appendedAt - h.began.Add(time.Duration(latest)).UnixNano()); ahead > allowed {
		h.violationLocked("%s: offset %d was appended %s ahead of the real time, "+
			"and no majority of the clocks was more than %s", node, e.Offset, ahead, h.majorityAhead)
	}
	return len(h.violations) == found
}

// checkTerm requires that terms never fall along the log, and that each is given one leader, once.
func (h *history) checkTerm(node string, e *soakStored) bool {
	found := len(h.violations)
	if e.Term < h.term {
		h.violationLocked("%s: offset %d is of term %d, the one before it of term %d", node, e.Offset, e.Term, h.term)
	}
	h.term = e.Term
	if e.Type != event.LeaderElected {
		return len(h.violations) == found
	}
	if e.elected <= h.elected || e.elected != e.Term {
		h.violationLocked("%s: offset %d, of term %d, has %s elected in term %d; the last election was in term %d",
			node, e.Offset, e.Term, e.leader, e.elected, h.elected)
	}
	h.elected = e.elected
	h.noteLeaderLocked(e.elected, e.leader, "the log")
	return len(h.violations) == found
}

// noteStored notes where the log has an event.
func (h *history) noteStored(node string, e *soakStored) {
	if e.number >= len(h.events) || h.events[e.number].sent == 0 {
		h.violationLocked("%s: offset %d holds event %d, which no client sent", node, e.Offset, e.number)
		return
	}
	of := &h.events[e.number]
	switch {
	case of.stored != 0 && of.outlived:
		if of.stored == of.offset {
			return // the other one was acknowledged
		}
	case of.stored != 0:
		h.violationLocked("%s: event %d is stored at %d and at %d", node, e.number, of.stored, e.Offset)
	case !of.possible && of.pending == 0:
		h.violationLocked("%s: event %d was refused and is stored at %d", node, e.number, e.Offset)
	case of.acked == 0:
		h.counts.UnknownStored++
	}
	of.stored = e.Offset
}

// confirm requires that what was acknowledged is stored where the answer said.
func (h *history) confirm(node string, tail uint64) {
	missing := 0
	var first string
	for _, n := range h.unchecked {
		if e := &h.events[n]; e.stored != e.offset || e.offset > tail {
			if missing == 0 {
				first = fmt.Sprintf("event %d was acknowledged at %d and is stored at %d", n, e.offset, e.stored)
			}
			missing++
		}
	}
	if missing > 0 {
		h.violationLocked("%s: %d acknowledged events are missing, of a log that ends at %d: %s", node, missing, tail, first)
	}
	h.unchecked = h.unchecked[:0]
}

// checkOrder requires that what was acknowledged before another event was first sent has the
// smaller offset.
func (h *history) checkOrder(part []soakStored) {
	earliest, of := int64(math.MaxInt64), 0 // acknowledgement of what follows in the log
	for _, e := range slices.Backward(part) {
		if e.number < 0 || e.number >= len(h.events) {
			continue
		}
		r := &h.events[e.number]
		if earliest < r.sent {
			h.violationLocked("event %d, sent after event %d was acknowledged, has the smaller offset", e.number, of)
			return
		}
		if r.acked != 0 && r.acked < earliest && !r.outlived {
			earliest, of = r.acked, e.number
		}
	}
}
