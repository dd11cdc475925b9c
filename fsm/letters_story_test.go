package fsm

import (
	"context"
	"fmt"
	"strings"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

func numbers(words []string) (list []uint64) {
	for _, w := range words {
		list = append(list, number64(w))
	}
	return list
}

// deadLetter attaches the event's copy, as a server does.
func (s *teller) deadLetter(cursor string, offset, generation uint64, failure string) frame.DeadLetter {
	e, err := s.m.Log().Get(offset)
	if err != nil {
		e = ev(0)
	}
	return frame.DeadLetter{
		Cursor:     cursor,
		Generation: generation,
		Offset:     offset,
		Handler:    "train",
		Error:      strings.ReplaceAll(failure, "_", " "),
		Attempts:   3,
		Event:      frame.EncodeCopy(&e),
	}
}

func (s *teller) imports(words []string) (c frame.LetterImport) {
	for _, w := range words {
		e := ev(int(number64(w)))
		c.Letters = append(c.Letters, frame.ImportedLetter{
			Origin:   [frame.OriginSize]byte{byte(number64(w))},
			From:     "old.db row " + w,
			Error:    "timeout",
			Attempts: 2,
			Failed:   epoch.AddDate(0, -1, 0),
			Event:    frame.EncodeCopy(&e),
		})
	}
	return c
}

func tellLetters(m *Machine) string {
	var b strings.Builder
	if err := m.EachLetter(context.Background(), 0, func(l LetterView) bool {
		fmt.Fprintf(&b, "  %d %s %s at %d: %q, %d attempts, died at %s, lineage %d", l.ID, l.State, l.Cursor,
			l.Offset, l.Error, l.Attempts, l.Dead.Sub(epoch), l.Lineage)
		if l.Copy != 0 {
			fmt.Fprintf(&b, ", its copy stands at %d", l.Copy)
		}
		b.WriteByte('\n')
		return true
	}); err != nil {
		return failed(err)
	}
	stats := m.Stats().Letters
	fmt.Fprintf(&b, "  %d letters, %d redriven\n", stats.Count, stats.Redriven)
	return b.String()
}

// reads prints what a cursor gets after its commit.
func (s *teller) reads(name string) string {
	cur, _ := s.m.Cursor(name)
	m := cur.Filter.Compile(event.Builtin())
	first, last := s.m.Log().Bounds()
	text := ""
	for from := max(first, cur.Committed+1); from <= last; {
		chunk, err := s.m.Log().ReadFor(name, from, &m, 100)
		if err != nil {
			return text + failed(err)
		}
		for i := range chunk.Events {
			e := &chunk.Events[i]
			text += fmt.Sprintf("  %d %s %s", e.Offset, e.Type, e.Payload)
			if e.Redrive != 0 {
				text += fmt.Sprintf(", letter %d for %s", e.Redrive, e.Target)
			}
			text += "\n"
		}
		from = chunk.Next
	}
	return text
}
