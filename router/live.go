package router

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/attempt"
)

// Dead letters of subscriptions without a cursor of their own: live, direct, and what is local. Their events are kept
// by a copy, in any order, and redriven to the cursor live.NAME, which is made with the first letter. Its filter passes
// nothing, so it holds nothing back from retention; redriven events reach it all the same. Nothing but what was
// redriven moves it, so a letter is resolved only once the handler has handled its copy.

// maxLiveLetters may wait for the log. Events that are abandoned then are lost, and counted.
const maxLiveLetters = 1024

// liveLetters stores the letters in the order in which events were abandoned, without holding handlers up.
type liveLetters struct {
	r     *Router
	log   LiveLetters     // of the router, where it keeps such letters
	queue chan liveLetter // of maxLiveLetters; run alone takes from it
	made  string          // makes ids unique to this router

	mu    sync.Mutex
	count uint64 // of ids
}

// liveLetter is one letter on its way.
type liveLetter struct {
	s      *subscriber
	letter DeadLetter
	id     string // of the failure, so that a letter that is stored twice is one
}

// newLiveLetters returns letters that run stores.
func newLiveLetters(r *Router, log LiveLetters) *liveLetters {
	return &liveLetters{r: r, log: log, queue: make(chan liveLetter, maxLiveLetters),
		made: fmt.Sprintf("%s/%d", r.options.Source, time.Now().UnixNano())}
}

// put queues a letter, or counts its event as lost if too many wait. It counts as in flight until it is stored, so
// Close waits for it.
func (l *liveLetters) put(s *subscriber, letter DeadLetter) {
	l.mu.Lock()
	l.count++
	id := fmt.Sprintf("%s/%d", l.made, l.count)
	l.mu.Unlock()
	l.r.busy.begin()

	// The handler does not wait for the log, which may be away.
	select {
	case l.queue <- liveLetter{s, letter, id}:
	default:
		l.r.busy.end()
		l.lose(s, &letter, errors.New("too many letters wait for the log"))
	}
}

// lose counts an abandoned event that becomes no letter.
func (l *liveLetters) lose(s *subscriber, letter *DeadLetter, why error) {
	l.r.options.Logger.Error("an abandoned event became no dead letter", "subscription", s.spec.Name,
		"type", letter.Event.Type, "offset", letter.Event.Offset, "failed with", letter.Error, "error", why)
	s.count(func(c *Counts) { c.Lost++ })
}

// run stores letters until quit is closed, or ctx ends.
func (l *liveLetters) run(ctx context.Context, quit <-chan struct{}) {
	for {
		select {
		case one := <-l.queue:
			if err := l.store(ctx, one); err != nil {
				l.lose(one.s, &one.letter, err)
			} else {
				one.s.count(func(c *Counts) { c.DeadLettered++ })
				one.s.redrives.read()
			}

			// It was in flight until here, so Close has waited for it.
			l.r.busy.end()
		case <-quit:
			l.loseAll()
			return
		}
	}
}

// loseAll counts the letters that still wait as lost. Close has waited for them for as long as its ctx allowed.
func (l *liveLetters) loseAll() {
	for {
		select {
		case one := <-l.queue:
			l.lose(one.s, &one.letter, ErrClosed)
			l.r.busy.end()
		default:
			return
		}
	}
}

// store repeats the call until the letter is stored, or never can be.
func (l *liveLetters) store(ctx context.Context, one liveLetter) error {
	pauses := newPauses()
	for {
		// A call whose outcome is unknown is repeated with the same id: the log keeps one letter.
		err := l.log.Keep(ctx, one.letter, one.id)
		switch {
		case err == nil, errors.Is(err, ErrGone), errors.Is(err, ErrRefused), ctx.Err() != nil:
			return err
		}
		l.r.options.Logger.Warn("a dead letter is not stored yet", "subscription", one.s.spec.Name, "error", err)
		attempt.Sleep(ctx, pauses.NextBackOff())
	}
}

// redrives are what a subscription without a cursor is given of its letters.
type redrives struct {
	s       *subscriber
	reading sync.WaitGroup

	mu     sync.Mutex
	active bool // there is a reader
	ended  bool // there will be none
}

// wait waits for the readers to end, once reading has ended. None begins after that.
func (r *redrives) wait() {
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.reading.Wait()
}

// liveCursor is the prefix of the cursors of such letters.
const liveCursor = "live."

// lettersCursor is the cursor to which the letters of a subscription without one are redriven.
func (s *subscriber) lettersCursor() string { return liveCursor + s.spec.Name }

// nothingFilter passes no event. Handlers of ringlog.compat give their cursors the same: a handler that moves from one
// language to the other opens the cursor that it had.
func nothingFilter() event.Filter { return event.Filter{Sources: []string{"ringlog.compat/none"}} }

// resume begins to read redriven letters if an earlier process has left some.
func (r *redrives) resume() {
	if r.s.r.letters == nil {
		return
	}

	// A subscription that never had a letter has no such cursor, and needs no reader. The log is asked until it
	// answers.
	r.reading.Go(func() {
		for pauses := newPauses(); r.s.feeding.Err() == nil; attempt.Sleep(r.s.feeding, pauses.NextBackOff()) {
			some, err := r.s.r.letters.log.HasCursor(r.s.feeding, r.s.lettersCursor())
			if some {
				r.read()
			}
			if err == nil || errors.Is(err, ErrRefused) {
				return
			}
		}
	})
}

// read begins to read redriven letters, unless that has begun or the subscription ends.
func (r *redrives) read() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active || r.ended {
		return
	}

	// The reader is begun under the lock, so wait does not miss it. Once it has ended, the next letter begins another
	// one.
	r.active = true
	r.reading.Go(func() {
		err := r.follow(r.s.feeding)
		r.mu.Lock()
		r.active = false
		r.mu.Unlock()
		if r.s.feeding.Err() == nil {
			r.s.r.options.Logger.Warn("redriven letters are not read", "subscription", r.s.spec.Name,
				"cursor", r.s.lettersCursor(), "error", err)
		}
	})
}

// follow hands redriven letters to the handler until ctx ends, or another process reads them: its error.
func (r *redrives) follow(ctx context.Context) error {
	for pauses := newPauses(); ; attempt.Sleep(ctx, pauses.NextBackOff()) {
		// Earlier versions had another source that nothing has.
		o := client.CursorOptions{From: client.FromEnd(), Filter: nothingFilter(), Change: true}
		cursor, err := r.s.r.log.OpenCursor(ctx, r.s.lettersCursor(), o)
		if err == nil {
			err = r.handleAll(ctx, cursor)
			cursor.Close() // the error that has ended it is known
		}
		// Another process that opens the cursor reads the letters from then on. Any other error may pass.
		if ctx.Err() != nil || errors.Is(err, ErrFenced) || errors.Is(err, ErrRefused) {
			return err
		}
		r.s.r.options.Logger.Debug("reading redriven letters", "subscription", r.s.spec.Name, "error", err)
	}
}

// handleAll hands over one letter after the other, and moves the cursor past each in its turn: past one that has
// failed again with its letter.
func (r *redrives) handleAll(ctx context.Context, cursor LogCursor) error {
	for {
		events, err := cursor.NextBatch(ctx)
		if _, gap := errors.AsType[*client.GapError](err); gap {
			continue // of letters that are dead again
		}
		if err != nil {
			return err
		}
		for i := range events {
			if err := r.handle(ctx, cursor, events[i]); err != nil {
				return err
			}
		}
	}
}

// handle takes one redriven event through its attempts.
func (r *redrives) handle(ctx context.Context, cursor LogCursor, ev event.Event) error {
	t, result := r.s.task(ev, redriven), make(chan error, 1)
	t.result = result
	if err := r.s.lanes.push(ctx, t, 0); err != nil {
		return err
	}
	r.s.count(func(c *Counts) { c.Received++ })

	// Nothing else of the cursor is handed over meanwhile, so its commits are in the order of the offsets.
	var err error
	select {
	case err = <-result:
	case <-r.s.base.Done():
		return context.Cause(r.s.base)
	}
	switch {
	case err == nil:
		return cursor.Commit(r.s.base, ev.Offset)
	case t.letter == nil: // it was left: it is redelivered
		return err
	}

	// It has failed again: the entry that stores its letter moves the cursor past it.
	t.letter.Generation = cursor.Info().Generation
	err = r.s.r.options.DeadLetters.Put(r.s.base, *t.letter)
	if err == nil {
		r.s.count(func(c *Counts) { c.DeadLettered++ })
	}
	if errors.Is(err, ErrGone) { // the cursor was moved meanwhile, which has made the letter dead
		err = nil
	}
	return err
}
