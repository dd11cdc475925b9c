package router_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router"
)

// memLog is a log in memory, for tests with a clock of their own. TestLogs holds it to
// what the real one does.
type memLog struct {
	mu      sync.Mutex
	events  []event.Event
	first   uint64 // the first offset kept
	dedup   map[string]uint64
	cursors map[string]*memCursorState
	letters []router.DeadLetter
	away    error                          // what every call fails with
	noPut   error                          // what Put fails with
	moves   func(cursor string, to uint64) // sees the moves of cursors
	changed chan struct{}
}

type memCursorState struct {
	filter     event.Filter
	committed  uint64
	generation uint64
}

func newMemLog() *memLog {
	return &memLog{
		first:   1,
		dedup:   map[string]uint64{},
		cursors: map[string]*memCursorState{},
		changed: make(chan struct{}),
	}
}

var errAway = errors.New("nobody answers")

// wake lets readers look again. mu is held.
func (l *memLog) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *memLog) setAway(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = err
	l.wake()
}

func (l *memLog) setNoPut(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noPut = err
}

// trim removes the events before an offset.
func (l *memLog) trim(first uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first = first
}

func (l *memLog) Publish(_ context.Context, events []event.Event) ([]client.Result, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away != nil {
		return nil, l.away
	}
	gate := event.Policy{}
	results := make([]client.Result, len(events))
	stored := slices.Clone(events)
	for i := range stored {
		if _, _, err := gate.Normalize(&stored[i]); err != nil {
			return nil, fmt.Errorf("%w: %w", router.ErrRefused, err)
		}
	}
	for i, ev := range stored {
		if at := l.dedup[ev.DedupID]; ev.DedupID != "" && at > 0 {
			results[i] = client.Result{Offset: at, Duplicate: true, AppendedAt: l.events[at-1].AppendedAt}
			continue
		}
		ev.Offset, ev.AppendedAt, ev.Term = uint64(len(l.events)+1), time.Now(), 1
		l.dedup[ev.DedupID] = ev.Offset
		l.events = append(l.events, ev)
		results[i] = client.Result{Offset: ev.Offset, AppendedAt: ev.AppendedAt}
	}
	l.wake()
	return results, nil
}

func (l *memLog) Last(context.Context) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return uint64(len(l.events)), l.away
}

// offset returns the offset of a position, which is opaque.
func (l *memLog) offset(p client.Position) uint64 {
	for o := uint64(1); o <= uint64(len(l.events))+1; o++ {
		if p == client.FromOffset(o) {
			return o
		}
	}
	if p == client.FromEnd() {
		return uint64(len(l.events)) + 1
	}
	return l.first
}

// batch returns what is there to read from an offset on.
func (l *memLog) batch(
	next uint64,
	m *event.Matcher,
) (found []event.Event, after uint64, changed <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away != nil {
		return nil, next, l.changed, l.away
	}
	if next < l.first {
		return nil, l.first, nil, &client.GapError{Gap: client.Gap{From: next, To: l.first - 1, Reason: "retention"}}
	}
	for ; next <= uint64(len(l.events)); next++ {
		if ev := l.events[next-1]; m.Match(&ev) {
			found = append(found, ev)
		}
	}
	return found, next, l.changed, nil
}

func (l *memLog) Tail(ctx context.Context, o client.TailOptions) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		l.mu.Lock()
		next := l.offset(o.From)
		l.mu.Unlock()
		m, taken := o.Filter.Compile(event.Builtin()), uint64(0)
		for {
			events, after, changed, err := l.batch(next, &m)
			next = after
			if err != nil {
				if !yield(event.Event{}, err) || changed != nil {
					return
				}
				continue
			}
			for _, ev := range events {
				if taken++; !yield(ev, nil) || taken == o.Limit {
					return
				}
			}
			if len(events) > 0 {
				continue
			}
			if o.NoFollow {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				yield(event.Event{}, context.Cause(ctx))
				return
			}
		}
	}
}

func (l *memLog) OpenCursor(_ context.Context, name string, o client.CursorOptions) (router.LogCursor, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away != nil {
		return nil, l.away
	}
	st := l.cursors[name]
	if st == nil {
		st = &memCursorState{filter: o.Filter, committed: l.offset(o.From) - 1}
		l.cursors[name] = st
	}
	if o.Change {
		st.filter = o.Filter
	}
	if !o.Filter.Empty() && fmt.Sprint(o.Filter) != fmt.Sprint(st.filter) {
		return nil, fmt.Errorf("%w: the cursor has another filter", router.ErrRefused)
	}
	st.generation++
	l.wake()
	m := st.filter.Compile(event.Builtin())
	return &memCursor{l: l, st: st, matcher: m, next: st.committed + 1,
		info: client.CursorInfo{Name: name, Filter: st.filter, Committed: st.committed, Generation: st.generation}}, nil
}

type memCursor struct {
	l       *memLog
	st      *memCursorState
	info    client.CursorInfo
	matcher event.Matcher
	next    uint64
}

func (c *memCursor) Info() client.CursorInfo { return c.info }
func (c *memCursor) Close() error            { return nil }

func (c *memCursor) NextBatch(ctx context.Context) ([]event.Event, error) {
	for {
		events, after, changed, err := c.l.batch(c.next, &c.matcher)
		c.next = after
		if err == nil {
			err = c.fence()
		}
		if err != nil || len(events) > 0 {
			return events, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (c *memCursor) fence() error {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	return c.fenced()
}

func (c *memCursor) fenced() error {
	if c.st.generation != c.info.Generation {
		return router.ErrFenced
	}
	return nil
}

func (c *memCursor) Commit(ctx context.Context, offset uint64) error {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case c.l.away != nil:
		return c.l.away
	case c.st.generation != c.info.Generation:
		return router.ErrFenced
	}
	c.st.committed = max(c.st.committed, offset)
	if c.l.moves != nil {
		c.l.moves(c.info.Name, offset)
	}
	return nil
}

// Put implements router.DeadLetters.
func (l *memLog) Put(ctx context.Context, letter router.DeadLetter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := l.cursors[letter.Cursor]
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case l.away != nil:
		return l.away
	case l.noPut != nil:
		return l.noPut
	case st.generation != letter.Generation:
		return router.ErrFenced
	}
	l.letters = append(l.letters, letter)
	st.committed = max(st.committed, letter.Event.Offset)
	if l.moves != nil {
		l.moves(letter.Cursor, letter.Event.Offset)
	}
	return nil
}

func (l *memLog) committed(name string) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if st := l.cursors[name]; st != nil {
		return st.committed
	}
	return 0
}

// of returns the events of the given types.
func (l *memLog) of(types ...event.Type) []event.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []event.Event
	for _, ev := range l.events {
		if slices.Contains(types, ev.Type) {
			out = append(out, ev)
		}
	}
	return out
}

// stored returns the dead letters.
func (l *memLog) stored() []router.DeadLetter {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.letters)
}
