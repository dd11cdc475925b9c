package log

import (
	"time"

	"github.com/ringrift/ringlog/internal/frame"
)

// Span is events of one block as they are stored, for a reader that decodes them itself.
// Its slices are shared and must not be changed.
type Span struct {
	First          uint64 // offset of the block's first live event
	Term           uint64
	AppendedAt     time.Time
	Rows           int
	Suppressed     Bitmap
	Types, Sources []string
	Body           []byte // as package frame draws a block's
	Traces         []byte // of the rows, as a frame.Packet has them
	Skip, Take     int    // the span is the Take live events after the first Skip
}

// Spans is what one ReadSpans found.
type Spans struct {
	Spans []Span
	Next  uint64 // where to resume
	Gap   *Gap   // what was skipped because it is trimmed; Spans is then empty
	// Targeted says that the event at Next was redriven for the reader's cursor. A Span
	// cannot say that of its events: read this one with ReadFor.
	Targeted bool
}

// ReadSpans returns up to limit events from offset from on without decoding them. It stops
// at the block that reaches limit, or maxBytes once decompressed, or at the tail, and it
// never waits. cursor is the reader's, or "": ReadSpans skips events that were redriven for
// other cursors and stops before those that were for this one.
func (l *Log) ReadSpans(cursor string, from uint64, limit, maxBytes int) (Spans, error) {
	found, left, bytes := Spans{Next: from}, max(limit, 1), 0
	gap, err := l.walk(from, func(b *cached) (more bool, err error) {
		// walk begins with the last block that begins at the offset or before, which may end before it.
		if found.Next < b.first || b.last() < found.Next {
			return false, errMissing
		}

		// A redriven block is for one cursor: stop before the reader's own, and pass over the others.
		if b.target != "" {
			if b.isFor(cursor) {
				found.Targeted = true
				return false, nil
			}
			found.Next = b.last() + 1
			return true, nil
		}

		// The checksum protects the reader, which decompresses the body itself.
		body, err := b.verified()
		if err != nil {
			return false, err
		}

		// Only a part of the first and of the last block may be wanted.
		skip := int(found.Next - b.first)
		take := min(b.live-skip, left)
		found.Spans = append(found.Spans, Span{
			First:      b.first,
			Term:       b.term,
			AppendedAt: b.appendedAt,
			Rows:       b.header.Rows,
			Suppressed: b.suppressed,
			Types:      b.header.Types,
			Sources:    b.header.Sources,
			Body:       body,
			Traces:     b.header.Traces(),
			Skip:       skip,
			Take:       take,
		})
		found.Next += uint64(take)
		left -= take
		bytes += max(len(body), frame.RawSize(body))
		return left > 0 && bytes < maxBytes, nil
	})
	if gap != nil {
		return Spans{Next: gap.To + 1, Gap: gap}, nil
	}
	return found, err
}
