package router

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ringrift/ringlog/internal/attempt"
)

// committer moves a durable subscription's cursor.
type committer struct {
	s    *subscriber
	link struct {
		sync.Mutex           // held over calls, so nobody takes an opening here for one elsewhere
		cursor     LogCursor // nil: none is open
	}
	// offset as the log confirmed it last, when the cursor was opened or by a commit; 0 before both
	committed atomic.Uint64
}

// commitSettled moves the cursor past what is settled, one commit at a time, each of all that
// has settled meanwhile, until flush is closed and nothing is left to commit.
func (c *committer) commitSettled() {
	// Only a durable subscription has a cursor to move.
	if !c.s.spec.Durable {
		return
	}
	for {
		select {
		case <-c.s.tracker.wake:
			if !c.passSettled() {
				return
			}
		case <-c.s.flush:
			c.passSettled()
			return
		}
	}
}

// passSettled moves the cursor. It reports whether it still can.
func (c *committer) passSettled() bool {
	for {
		upTo, letter, epoch := c.s.tracker.takeSettled()
		switch {
		case letter != nil: // nothing before it is open: its entry moves the cursor past all of that
			if !c.callUntilDone(epoch, func(cur LogCursor) error { return c.putLetter(cur, letter) }) {
				return false
			}
			upTo = letter.Event.Offset
		case upTo == 0:
			return true
		}
		// After a letter too, as an open cursor commits what it scanned only while it
		// knows of nothing open.
		if !c.callUntilDone(epoch, func(cur LogCursor) error { return c.commit(cur, upTo) }) {
			return false
		}
	}
}

// commit makes one call to the log.
func (c *committer) commit(cur LogCursor, upTo uint64) error {
	// The status shows what the log has confirmed, not what was asked for.
	err := cur.Commit(c.s.base, upTo)
	if err == nil {
		c.committed.Store(upTo)
	}
	return err
}

// putLetter stores a dead letter under the generation that this process has opened.
func (c *committer) putLetter(cur LogCursor, letter *DeadLetter) error {
	s := c.s
	letter.Generation = cur.Info().Generation

	// If the log does not have the event any more there can be no letter: the loss is
	// counted and logged, and the cursor moves on.
	switch err := s.r.options.DeadLetters.Put(s.base, *letter); {
	case errors.Is(err, ErrGone):
		s.r.options.Logger.Error("an abandoned event became no dead letter", "subscription", s.spec.Name,
			"offset", letter.Event.Offset, "failed with", letter.Error, "error", err)
		s.count(func(c *Counts) { c.Lost++ })
	case err != nil:
		return fmt.Errorf("router: %s: dead letter of %d: %w", s.spec.Name, letter.Event.Offset, err)
	default:
		s.count(func(c *Counts) { c.DeadLettered++ })
	}
	return nil
}

// callUntilDone repeats a call until it succeeds, the log has refused it for good, or there is
// no more time.
func (c *committer) callUntilDone(epoch int, do func(LogCursor) error) bool {
	s, pauses := c.s, newPauses()
	for {
		// The status shows meanwhile why the cursor does not move.
		err := c.withCursor(epoch, do)
		s.noteHeld(err)
		switch {
		case err == nil:
			return true
		case errors.Is(err, ErrFenced):
			s.endRefused(Fenced, err)
			return false
		case errors.Is(err, ErrRefused):
			s.endRefused(Refused, err)
			return false
		case s.base.Err() != nil:
			return false
		}
		s.r.options.Logger.Debug("the cursor does not move", "subscription", s.spec.Name, "error", err)
		attempt.Sleep(s.base, pauses.NextBackOff())
	}
}

// withCursor calls do with the open cursor, unless the tracker was restarted since the epoch.
func (c *committer) withCursor(epoch int, do func(LogCursor) error) error {
	c.link.Lock()
	defer c.link.Unlock()
	switch {
	case c.link.cursor == nil:
		return ErrNotAttached
	case !c.s.tracker.current(epoch):
		return nil // the cursor was moved on purpose meanwhile
	}
	return do(c.link.cursor)
}

// openCursor returns the cursor that is open now, nil for none.
func (c *committer) openCursor() LogCursor {
	c.link.Lock()
	defer c.link.Unlock()
	return c.link.cursor
}
