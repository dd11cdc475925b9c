package prefetch

import (
	"slices"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/internal/frame"
)

// Bounds of one call. What is more is sent with the next.
const (
	maxRanges = 8192
	maxNacks  = 1024
)

// maxRefused bounds how many refused offsets are listed.
const maxRefused = 4096

// Acks is what a member has done with its events and the group has not confirmed.
type Acks struct {
	buffer *Buffer
	open   batch  // gathers
	sent   *batch // is in flight, or must be sent again: then resend is set
	resend bool

	stopped   []failure // nacks whose keys resume after the fetch in flight
	given     uint64    // acks and nacks so far
	confirmed uint64    // those of them that are answered
	refused   Refused
}

// batch is the acks and nacks of one call.
type batch struct {
	acks     []frame.Range
	nacks    []failure
	released []uint64 // released by the member itself; whether they are refused does not matter
	progress []frame.Range
	given    uint64 // acks and nacks up to this one are answered with it

	lost bool // it was sent, and the answer did not come
	away bool // and for a time after which the group may have abandoned the member
}

// failure is a nack, the key whose queue it stopped, and its number.
type failure struct {
	wire   *ringlogv1.Nack
	key    string
	number uint64
}

// Refused are the acks and nacks that came too late.
type Refused struct {
	Offsets []uint64
	More    uint64 // how many others
}

// NewAcks returns the acks of a buffer's events.
func NewAcks(b *Buffer) *Acks { return &Acks{buffer: b} }

// Ack takes out an event that is handled, and reports whether it was handed out.
func (a *Acks) Ack(offset uint64) bool {
	if !a.buffer.finish(offset) {
		return false
	}
	a.open.acks = addOffset(a.open.acks, offset)
	a.given++
	return true
}

// Nack takes out an event that failed, and reports whether it was handed out. Unless the event
// is dead, the others of its key wait until the group has answered.
func (a *Acks) Nack(n *ringlogv1.Nack) bool {
	var f failure
	var ok bool

	// A dead event is settled like an acknowledged one: nothing of its key waits for it.
	if n.Dead {
		ok = a.buffer.finish(n.Offset)
	} else {
		f, ok = a.buffer.fail(n.Offset)
	}
	if !ok {
		return false
	}

	// The nack is numbered, so its answer resumes the queue that it has stopped and not
	// one that a later nack stopped.
	f.wire = n
	a.open.nacks = append(a.open.nacks, f)
	a.given++
	return true
}

// ReleaseWaiting releases all events that are not handed out, and returns how many.
func (a *Acks) ReleaseWaiting() int {
	released := a.buffer.releaseWaiting()
	a.open.released = append(a.open.released, released...)
	return len(released)
}

// Given counts the acks and nacks so far, Confirmed those of them that the group has answered.
func (a *Acks) Given() uint64 { return a.given }

// Confirmed is documented at Given.
func (a *Acks) Confirmed() uint64 { return a.confirmed }

// Resending reports whether the last batch has to be sent again.
func (a *Acks) Resending() bool { return a.resend }

// Empty reports whether nothing waits to be sent, beside what is in flight.
func (a *Acks) Empty() bool {
	return !a.resend && len(a.open.acks)+len(a.open.nacks)+len(a.open.released) == 0
}

// Releasing reports whether events were released that the group does not know of yet. If it
// were asked for events now it would deliver what follows them in their keys.
func (a *Acks) Releasing() bool {
	return slices.ContainsFunc(a.unanswered(), func(b *batch) bool { return len(b.released) > 0 })
}

// TakeRefused returns the refusals since the last call of it.
func (a *Acks) TakeRefused() Refused {
	taken := a.refused
	a.refused = Refused{}
	return taken
}

// BeginSend writes the next batch into a request: the one that must be sent again, else what
// has gathered, which may be nothing.
func (a *Acks) BeginSend(req *ringlogv1.ExchangeRequest) {
	// A new batch. Once nothing is left after it, all that was given is answered with it;
	// before that the count stays, as acks are joined to ranges and no longer counted.
	if !a.resend {
		a.sent = a.open.cut()
		a.sent.given = a.confirmed
		if a.Empty() {
			a.sent.given = a.given
		}
	}

	// A batch that is sent again takes along what is to be extended now.
	a.sent.progress = a.buffer.takeProgress(a.sent.progress)
	a.sent.write(req)
	a.buffer.acksInFlight = true
}

// EndSend takes in the answer to a batch, after TakeRevoked has. joined says whether the member
// has a session still.
func (a *Acks) EndSend(resp *ringlogv1.ExchangeResponse, joined bool) {
	a.confirm(resp, joined)
	a.endAcksInFlight()
}

// FailSend notes that the call with the batch failed. lost says that the group may have
// the batch all the same.
func (a *Acks) FailSend(lost bool) {
	a.resend = true
	a.sent.lost = a.sent.lost || lost
	a.endAcksInFlight()
}

// endAcksInFlight forgets what was redelivered during the call: the next answer means the
// copies that are here.
func (a *Acks) endAcksInFlight() {
	a.buffer.acksInFlight = false
	clear(a.buffer.redelivered)
}

// BeginJoin writes into a request what a new session begins with: what the member holds, the
// last batch if the group perhaps has it, and what the member releases.
func (a *Acks) BeginJoin(req *ringlogv1.ExchangeRequest) {
	// An event that was redelivered since the last batch was nacked by it: once more would be a second
	// failure.
	if a.resend {
		again := func(offset uint64) bool { return a.buffer.Holds(offset) || a.open.mentions(offset) }
		a.sent.nacks = slices.DeleteFunc(a.sent.nacks, func(f failure) bool { return again(f.wire.Offset) })
		a.open.released = append(slices.DeleteFunc(a.sent.released, again), a.open.released...)
		a.sent.released = nil
	}
	a.releaseAfterNacks()
	if a.inDoubt() {
		a.sent.write(req)
	}
	a.joinRelease().write(req)

	// The member holds its events and everything that is not answered, as far as one call
	// takes it. It forgets what is beyond that.
	holding := rangesOf(a.buffer.Offsets())
	for _, b := range a.unanswered() {
		holding = append(holding, b.acks...)
		for _, f := range b.nacks {
			holding = addOffset(holding, f.wire.Offset)
		}
		holding = append(holding, rangesOf(slices.Clone(b.released))...)
	}
	holding = frame.JoinRanges(holding)
	if len(holding) > maxRanges {
		holding = holding[:maxRanges]
		a.buffer.forgetAfter(holding[maxRanges-1].To)
	}
	req.Holding = RangesToWire(holding)
}

// NoteAway notes, before EndJoin, that the member was without contact for longer than its
// session lasts: the group may have given its events to others.
func (a *Acks) NoteAway() {
	if a.resend {
		a.sent.away = true
	}
}

// EndJoin takes in the answer to what BeginJoin has written, after TakeRevoked has.
func (a *Acks) EndJoin(resp *ringlogv1.ExchangeResponse) {
	if a.inDoubt() {
		a.confirm(resp, true)
	}
	a.open.released = a.open.released[len(a.joinRelease().released):]
	a.ResumeStopped()
}

// inDoubt reports whether the group perhaps has the last batch. Then joining repeats it,
// so the group knows what the member holds in spite of it.
func (a *Acks) inDoubt() bool { return a.resend && a.sent.lost }

// joinRelease is what is released with joining, so it is not kept if others may have it.
func (a *Acks) joinRelease() *batch {
	return &batch{released: a.open.released[:min(len(a.open.released), maxRanges)]}
}

// releaseAfterNacks releases the events that follow, in its key, a nack that the group perhaps
// has: then the group has taken them back, and others may have them.
func (a *Acks) releaseAfterNacks() {
	nacks := a.stopped
	if a.inDoubt() {
		nacks = slices.Concat(nacks, a.sent.nacks)
	}
	for _, f := range nacks {
		a.open.released = append(a.open.released, a.buffer.releaseAfter(f)...)
	}
}

// unanswered is the batches that are not known to be durable.
func (a *Acks) unanswered() []*batch {
	if a.sent == nil {
		return []*batch{&a.open}
	}
	return []*batch{&a.open, a.sent}
}

// TakeRevoked takes out what an answer reports as taken back. fromAcks says whether it is the
// answer to a batch. An offset that is not held any more counts only if no batch mentions it.
func (a *Acks) TakeRevoked(revoked []*ringlogv1.OffsetRange, fromAcks bool) {
	EachOffset(revoked, func(offset uint64) {
		mentioned := func(b *batch) bool { return b.mentions(offset) }
		if a.buffer.Holds(offset) || !slices.ContainsFunc(a.unanswered(), mentioned) {
			a.buffer.revoke(offset, fromAcks)
		}
	})
}

// confirm takes in the answer to the last batch.
func (a *Acks) confirm(resp *ringlogv1.ExchangeResponse, joined bool) {
	sent := a.sent
	a.confirmed = sent.given
	EachOffset(resp.GetRefused(), func(offset uint64) {
		// An ack that was sent before and is refused now was settled then, unless the group had
		// time to give it to others.
		settledBefore := sent.lost && (!sent.away || offset <= resp.GetCommitted())
		switch {
		case !sent.settles(offset) || settledBefore:
		case len(a.refused.Offsets) < maxRefused:
			a.refused.Offsets = append(a.refused.Offsets, offset)
		default:
			a.refused.More++
		}
	})

	// The keys that the nacks have stopped resume. If a fetch is in flight, or a session has
	// to begin, its answer may still take back what follows a nack: then the key waits for that.
	for _, f := range sent.nacks {
		if (a.buffer.fetchInFlight || !joined) && a.buffer.holdsAfter(f) {
			a.stopped = append(a.stopped, f)
		} else {
			a.buffer.resume(f)
		}
	}
	a.sent, a.resend = nil, false
}

// ResumeStopped resumes the keys that waited for the answer of a fetch, or for a session.
func (a *Acks) ResumeStopped() {
	for _, f := range a.stopped {
		a.buffer.resume(f)
	}
	a.stopped = nil
}

// settles reports whether a batch has an ack or a nack of an offset.
func (b *batch) settles(offset uint64) bool {
	return slices.ContainsFunc(b.nacks, func(f failure) bool { return f.wire.Offset == offset }) ||
		slices.ContainsFunc(b.acks, func(r frame.Range) bool { return r.From <= offset && offset <= r.To })
}

// mentions reports whether a batch says anything of an offset.
func (b *batch) mentions(offset uint64) bool {
	return slices.Contains(b.released, offset) || b.settles(offset)
}

// cut takes as much as one call may carry.
func (b *batch) cut() *batch {
	b.acks = frame.JoinRanges(b.acks)
	return &batch{acks: cutFront(&b.acks, maxRanges), nacks: cutFront(&b.nacks, maxNacks),
		released: cutFront(&b.released, maxRanges)}
}

// cutFront removes up to n elements from the front of a list and returns them.
func cutFront[T any](list *[]T, n int) []T {
	n = min(n, len(*list))
	front := (*list)[:n:n]
	*list = (*list)[n:]
	return front
}

// write adds the batch to a request. A release is a nack on the wire that does not count.
func (b *batch) write(req *ringlogv1.ExchangeRequest) {
	req.Acks = append(req.Acks, RangesToWire(b.acks)...)
	req.Progress = append(req.Progress, RangesToWire(b.progress)...)
	for _, f := range b.nacks {
		req.Nacks = append(req.Nacks, f.wire)
	}
	for _, offset := range b.released {
		req.Nacks = append(req.Nacks, &ringlogv1.Nack{Offset: offset, Released: true})
	}
}
