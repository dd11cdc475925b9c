package integration

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
)

// cursorInput is an operation on a cursor: an opening, or a commit of a generation.
type cursorInput struct {
	cursor     string
	open       bool
	generation uint64
	offset     uint64
	disturbed  bool // an opening of unknown outcome may have come before it
}

// cursorOutput is its answer.
type cursorOutput struct {
	unknown    bool // it may have happened or not
	fenced     bool
	generation uint64
	committed  uint64
}

type cursorState struct{ generation, committed uint64 }

// cursorModel is a cursor as its clients may see it: openings count the generations up, a commit of
// the present one moves the cursor forward or leaves it where it is, and one of another is fenced.
// A trim, or a commit of unknown outcome, may have moved the cursor forward as well. Operations of
// unknown outcome are not part of the history, as dozens of them, each possible at any later time,
// cannot be searched; an operation after such an opening may see a generation that no client was answered.
var cursorModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		by := map[string][]porcupine.Operation{}
		for _, op := range history {
			name := op.Input.(cursorInput).cursor
			by[name] = append(by[name], op)
		}
		for _, part := range by {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return cursorState{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(cursorState), input.(cursorInput), output.(cursorOutput)
		switch {
		case in.open:
			next := out.generation == s.generation+1 || (in.disturbed && out.generation > s.generation)
			return next && out.committed >= s.committed, cursorState{out.generation, out.committed}
		case out.fenced:
			return in.generation != s.generation || in.disturbed, s
		default:
			legal := in.generation == s.generation && out.committed >= max(s.committed, in.offset)
			return legal, cursorState{s.generation, out.committed}
		}
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
}

// cursor notes an operation on a cursor.
func (h *history) cursor(client int, in cursorInput, called int64, out cursorOutput) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts.CursorOps++
	h.cursorOps = append(h.cursorOps, porcupine.Operation{
		ClientId: client, Input: in, Call: called, Output: out, Return: h.now(),
	})
}

// withoutUnknown leaves the operations of known outcome, and marks those that an opening of unknown
// outcome may have come before.
func withoutUnknown(ops []porcupine.Operation) (known []porcupine.Operation) {
	unknownOpening := map[string]int64{} // when the first was sent
	for _, op := range ops {
		in, out := op.Input.(cursorInput), op.Output.(cursorOutput)
		if called, there := unknownOpening[in.cursor]; in.open && out.unknown && (!there || op.Call < called) {
			unknownOpening[in.cursor] = op.Call
		}
	}
	for _, op := range ops {
		in := op.Input.(cursorInput)
		called, there := unknownOpening[in.cursor]
		in.disturbed = there && called < op.Return
		op.Input = in
		if !op.Output.(cursorOutput).unknown {
			known = append(known, op)
		}
	}
	return known
}

// checkCursors requires that the operations on cursors are linearizable, and forgets them. Cursors
// have other names afterwards. A history that takes too long to search is counted, and is no violation.
func (h *history) checkCursors() {
	h.mu.Lock()
	ops := h.cursorOps
	h.cursorOps = nil
	h.mu.Unlock()
	ops = withoutUnknown(ops)
	switch porcupine.CheckOperationsTimeout(cursorModel, ops, 3*time.Minute) {
	case porcupine.Illegal:
		h.violation("%d operations on cursors are not linearizable", len(ops))
	case porcupine.Unknown:
		h.mu.Lock()
		h.counts.CursorOpsUnchecked += len(ops)
		h.mu.Unlock()
	}
}
