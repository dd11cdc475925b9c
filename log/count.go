package log

import (
	"math"
	"time"

	"github.com/ringrift/ringlog/event"
)

// Count is what CountFor found.
type Count struct {
	Events uint64    // that match
	First  time.Time // when the first of them was appended
	Next   uint64    // all that is kept before it was looked at
	Blocks int       // that were looked at
}

// CountFor counts the events from an offset on that ReadFor returns, in some blocks at
// most.
func (l *Log) CountFor(cursor string, from uint64, m *event.Matcher, blocks int) (Count, error) {
	first, _ := l.Bounds()
	chunk := Chunk{Next: max(from, first)}
	var n Count
	gap, err := l.walk(chunk.Next, func(b *cached) (more bool, err error) {
		chunk.Events = nil // it may be shared
		err = chunk.take(b, cursor, m, math.MaxInt)
		if n.Events == 0 && len(chunk.Events) > 0 {
			n.First = chunk.Events[0].AppendedAt
		}
		n.Events += uint64(len(chunk.Events))
		n.Blocks++
		return n.Blocks < blocks, err
	})
	if gap != nil { // trimmed since: what follows was not looked at
		chunk.Next = gap.To + 1
	}
	n.Next = chunk.Next
	return n, err
}
