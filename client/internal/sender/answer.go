package sender

import (
	"fmt"
	"time"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/client/internal/calls"
	"github.com/ringrift/ringlog/event"
)

// answerGroup gives each caller the outcomes of its own events.
// It needs no lock: until finish the group belongs to the worker.
func (w *worker) answerGroup(group []*Item, resp *ringlogv1.PublishResponse) {
	// A row of the request is an event.
	total := 0
	for _, p := range group {
		total += len(p.Outcomes)
	}
	appendedAt := time.Unix(0, resp.GetAppendedAtUnixNano()).UTC()
	warnings := warningsByEvent(resp.GetWarnings(), total)

	// New events have offsets in a row. The answer lists the others, in order.
	// index counts the events of all items together.
	next, duplicates, index := resp.GetFirst(), resp.GetDuplicates(), 0
	for _, p := range group {
		p.AppendedAt = appendedAt
		for i := range p.Outcomes {
			o := &p.Outcomes[i]
			// Duplicates are in the order of their rows, so only the first one left can be meant.
			if len(duplicates) > 0 && int(duplicates[0].GetRow()) == index {
				o.Offset, o.Duplicate = duplicates[0].GetOffset(), true
				duplicates = duplicates[1:]
			} else {
				o.Offset = next
				next++
			}
			if warnings != nil {
				o.Warnings = warnings[index]
			}
			index++
		}
	}

	// An answer that does not fit its request is an error of all callers: a wrong offset
	// would be worse.
	if resp.GetFirst() != 0 {
		w.s.noteOffset(next - 1)
	}
	// A duplicate is left if its row was not found; new events need a first offset.
	if len(duplicates) > 0 || (resp.GetFirst() == 0 && next != 0) {
		err := fmt.Errorf("the answer does not fit the request: first offset %d, %d duplicates",
			resp.GetFirst(), len(resp.GetDuplicates()))
		for _, p := range group {
			// Unknown: the events may be stored, at offsets that the answer does not say.
			p.err = &calls.Error{Op: p.op, Unknown: true, Err: err}
		}
	}
	w.q.finish(group)
}

// warningsByEvent returns the warnings of each event. Events that have the same single one share it.
func warningsByEvent(list []*ringlogv1.Warning, events int) [][]event.Warning {
	if len(list) == 0 {
		return nil
	}
	out := make([][]event.Warning, events)
	for _, w := range list {
		// The row says which event it is; the caller sees the field within its event.
		_, field, _ := cutIndex(w.GetField())
		one := []event.Warning{{Reason: w.GetReason(), Field: field, Message: w.GetMessage()}}
		warn := func(index uint32) {
			switch {
			case uint64(index) >= uint64(events):
			// The first warning of an event is shared, and copied when a second one comes.
			case out[index] == nil:
				out[index] = one
			default:
				// The capacity is cut, so append copies a slice that other events share.
				out[index] = append(out[index][:len(out[index]):len(out[index])], one[0])
			}
		}
		warn(w.GetRow())
		for _, index := range w.GetMoreRows() {
			warn(index)
		}
	}
	return out
}
