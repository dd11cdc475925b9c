package transfers

import (
	"cmp"
	"time"
)

// step brings a transfer to where the event says that it is. A new transfer has no state yet. The functions below are
// one for each class of event. Each decides by the state that the transfer is in.
func (f *fold) step(t *transfer) {
	t.last = f.m.offset
	switch f.m.class {
	case request:
		f.request(t)
	case retry:
		f.retry(t)
	case start:
		f.start(t)
	case stall:
		f.stall(t)
	case complete:
		f.complete(t)
	default:
		f.fail(t)
	}
	// Every step of an open transfer moves its deadline.
	t.due = time.Time{}
	if t.state.open() {
		t.due = f.m.at.Add(t.deadline)
	}
}

// now is the step of the event.
func (f *fold) now() step { return step{f.m.offset, f.m.at} }

// take enters what the event says beside its step. What the event does not say stays as it is known.
func (f *fold) take(t *transfer) {
	m := &f.m
	t.from, t.version = cmp.Or(m.from, t.from), cmp.Or(m.version, t.version)
	t.bytes, t.files = cmp.Or(m.bytes, t.bytes), cmp.Or(m.files, t.files)
	t.checked, t.deadline = max(m.checked, t.checked), cmp.Or(m.deadline, t.deadline)
}

// enter enters a step that changes no state: the first time it is news, then a repeat.
func (f *fold) enter(t *transfer, s *step) {
	if s.offset == 0 {
		*s = f.now()
		return
	}
	f.repeat(t)
}

// repeat counts an event that says what is known already, of the transfer and in the tally.
func (f *fold) repeat(t *transfer) {
	t.repeats++
	f.tally.Repeats++
}

// contradict counts an event that cannot be true of the transfer as it is, which it leaves unchanged.
func (f *fold) contradict(t *transfer) {
	t.contradictions++
	f.tally.Contradictions++
}

// attempt begins another attempt after a failure: what was counted of the last one is not true of this one.
func (t *transfer) attempt() {
	t.retries++
	t.started, t.stalled, t.ended = step{}, step{}, step{}
	t.bytes, t.files, t.checked = 0, 0, unchecked
}

// request enters that the copy is wanted.
func (f *fold) request(t *transfer) {
	switch t.state {
	case completed, superseded:
		// It was appended late.
		f.enter(t, &t.requested)
		return
	// Asked for once more. It does not go back.
	case requested, running:
		f.enter(t, &t.requested)
	case failed:
		t.attempt()
		t.state, t.requested = requested, f.now()
	// It is new.
	default:
		t.state, t.requested = requested, f.now()
	}
	f.take(t)
}

// retry enters that the copy is wanted again. Of a completed one it is a contradiction.
func (f *fold) retry(t *transfer) {
	if t.state == completed {
		f.contradict(t)
		return
	}
	t.attempt()
	t.state, t.requested = requested, f.now()
	f.take(t)
}

// start enters that it runs.
func (f *fold) start(t *transfer) {
	switch t.state {
	// It was appended late.
	case completed:
		f.enter(t, &t.started)
		return
	case running:
		f.enter(t, &t.started)
	case failed:
		t.attempt()
		t.state, t.started = running, f.now()
	default:
		// Also if it was superseded: it runs.
		t.state, t.started, t.ended = running, f.now(), step{}
	}
	f.take(t)
}

// stall enters that it makes no progress. It is running all the same, even if no start was seen.
func (f *fold) stall(t *transfer) {
	if t.state != 0 && !t.state.open() {
		f.contradict(t)
		return
	}
	t.state, t.stalled, t.error = running, f.now(), f.m.error
	f.take(t)
}

// complete enters that the host has the copy, whatever was before.
func (f *fold) complete(t *transfer) {
	if t.state == completed {
		f.repeat(t)
		return
	}
	// What arrived now was not damaged, whatever an attempt before was.
	if t.checked == damaged {
		t.checked = unchecked
	}
	t.state, t.ended = completed, f.now()
	f.take(t)
}

// fail enters a failure of any class.
func (f *fold) fail(t *transfer) {
	switch {
	// The copy is there. Only a checksum says that it is not what it should be.
	case t.state == completed && f.m.class != checksum:
		f.contradict(t)
		return
	case t.state == failed:
		f.repeat(t)
	default:
		t.state, t.ended = failed, f.now()
	}
	t.error = cmp.Or(f.m.error, t.error)
	f.take(t)
	// After take, which keeps the higher of two checks.
	if f.m.class == checksum {
		t.checked = damaged
	}
}
