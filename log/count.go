package log

import (
	"math"
	"time"

	"github.com/ringrift/ringlog/event"
)

// Count is what CountFor found.
type Count struct {
	Events uint64    // matching events
	First  time.Time // when the first of them was appended
	Next   uint64    // every retained event before it was counted or does not match
	Blocks int       // blocks read
}

// CountFor counts the events from one offset up to another, itself included, that ReadFor returns. It reads at most
// the given number of blocks.
func (l *Log) CountFor(cursor string, from, to uint64, m *event.Matcher, blocks int) (Count, error) {
	first, _ := l.Bounds()
	chunk := Chunk{Next: max(from, first)}
	var n Count
	gap, err := l.walk(chunk.Next, func(b *cached) (more bool, err error) {
		chunk.Events = nil // not [:0]: take may have made it a part of the cached block
		err = chunk.addMatching(b, cursor, m, math.MaxInt)
		// The block may end after the last offset that is asked for.
		for len(chunk.Events) > 0 && chunk.Events[len(chunk.Events)-1].Offset > to {
			chunk.Events = chunk.Events[:len(chunk.Events)-1]
		}
		if n.Events == 0 && len(chunk.Events) > 0 {
			n.First = chunk.Events[0].AppendedAt
		}
		n.Events += uint64(len(chunk.Events))
		n.Blocks++
		return n.Blocks < blocks && chunk.Next <= to, err
	})
	if gap != nil { // from was trimmed since Bounds: nothing was read
		chunk.Next = gap.To + 1
	}
	// A gap may end after to: there is nothing left to count then.
	n.Next = chunk.Next
	if to < n.Next {
		n.Next = to + 1
	}
	return n, err
}
