package main

import (
	"context"
	"errors"
	"io"
	"math"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
)

// cursorTail prints through a durable cursor and commits what is printed.
type cursorTail struct {
	// as the flags have them
	opts tailOptions
	cur  *client.Cursor // open, and fenced off from whoever had it
	p    *shell.Printer // flushed before each commit
	left uint64         // events still wanted
	last uint64         // the last offset printed, reported as a gap or passed over
}

// tailCursor prints the events of a durable cursor, and commits what was printed.
func tailCursor(ctx context.Context, c *client.Client, o tailOptions, p *shell.Printer) (err error) {
	// Without -n there is no limit that could be reached.
	t := &cursorTail{opts: o, p: p, left: o.count}
	if o.count == 0 {
		t.left = math.MaxUint64
	}
	// With --no-commit the client must not commit what the filter leaves out, either.
	options := client.CursorOptions{Filter: o.filter, NoScanCommit: o.noCommit, UntilEnd: o.untilEnd}
	// Only a cursor that is created now begins there.
	if o.from != nil {
		options.From = *o.from
	}
	// A misspelled name would create a cursor: that is said.
	_, err = c.Cursor(ctx, o.cursor)
	answer, _ := errors.AsType[*api.Error](err)
	isNew := answer != nil && answer.Code == api.NotFound
	// It fences off whoever has the cursor open.
	t.cur, err = c.OpenCursor(ctx, o.cursor, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.cur.Close()) }()
	switch info := t.cur.Info(); {
	case isNew:
		p.Sh.Say("created the cursor %s, which begins after %d; to remove it: ringlog cursor rm %s",
			info.Name, info.Committed, info.Name)
	case o.from != nil:
		// The cursor has its own position: --from would be ignored silently.
		p.Sh.Say("the cursor %s exists and resumes after %d: --from applies to a new one (to move it: ringlog "+
			"cursor seek %s --to …)", info.Name, info.Committed, info.Name)
	}
	if !o.untilEnd {
		sayWaiting(ctx, p.Sh, c, t.cur.Info().Committed+1)
	}
	// One batch after the other, so a commit follows what was written out.
	for t.left > 0 {
		err := t.step(ctx)
		if errors.Is(err, io.EOF) {
			t.last = max(t.last, t.cur.Scanned()) // what came last did not match
			return t.commit(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// step prints what is there, and commits it once it is written out.
func (t *cursorTail) step(ctx context.Context) error {
	// All that is there is printed at once, and committed once.
	events, err := t.cur.NextBatch(ctx)
	var gap *client.GapError
	// A gap comes alone or before the events of its batch.
	if errors.As(err, &gap) {
		err = t.gap(gap.Gap)
	}
	// A batch may have more than is wanted: the rest is not printed, and not committed.
	for i := range events {
		if err == nil && t.left > 0 {
			err = t.event(&events[i])
		}
	}
	if err != nil {
		return err
	}
	return t.commit(ctx)
}

// event prints an event, if it meets the condition; the next commit includes it.
func (t *cursorTail) event(ev *event.Event) error {
	if !t.opts.where.met(ev) {
		t.last = ev.Offset
		return nil
	}
	// Counted before it is printed: one that cannot be printed ends the tail in any case.
	t.left--
	t.last = ev.Offset
	return t.p.Event(ev)
}

// gap prints a gap; the next commit passes it, so it is reported once.
func (t *cursorTail) gap(g client.Gap) error {
	t.last = max(t.last, g.To)
	return t.p.Gap(g)
}

// commitWithin bounds a commit of what is printed already, also after Ctrl-C.
const commitWithin = 5 * time.Second

// commit writes the output out and then commits it.
func (t *cursorTail) commit(ctx context.Context) error {
	// Events that were not written out are not committed, but redelivered.
	if err := t.p.Out.Flush(); err != nil || t.opts.noCommit || t.last == 0 {
		return err
	}
	// What was printed is committed after Ctrl-C, too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitWithin)
	defer cancel()
	return t.cur.Commit(ctx, t.last)
}
