package router

import (
	"errors"
	"fmt"

	"github.com/ringrift/ringlog/internal/attempt"
	"github.com/ringrift/ringlog/router/breaker"
)

// commitWhatSettles moves the cursor behind what is settled, one commit at a time, each
// of all that has settled meanwhile, until flush is closed and nothing is left to commit.
func (s *subscriber) commitWhatSettles() {
	if !s.spec.Durable {
		return
	}
	for {
		select {
		case <-s.tracker.wake:
			if !s.passSettled() {
				return
			}
		case <-s.flush:
			s.passSettled()
			return
		}
	}
}

// passSettled moves the cursor. It reports whether it still can.
func (s *subscriber) passSettled() bool {
	for {
		upTo, letter, epoch := s.tracker.pass()
		switch {
		case letter != nil: // in front of it nothing is open: its entry moves the cursor past all of that
			if !s.insist(epoch, func(c Cursor) error { return s.putLetter(c, letter) }) {
				return false
			}
			upTo = letter.Event.Offset
		case upTo == 0:
			return true
		}
		// Behind a letter too, as an open cursor commits what it scanned only while it
		// knows of nothing open.
		if !s.insist(epoch, func(c Cursor) error { return s.commit(c, upTo) }) {
			return false
		}
	}
}

func (s *subscriber) commit(c Cursor, upTo uint64) error {
	err := c.Commit(s.base, upTo)
	if err == nil {
		s.committed.Store(upTo)
	}
	return err
}

func (s *subscriber) putLetter(c Cursor, letter *Letter) error {
	letter.Generation = c.Info().Generation
	switch err := s.r.options.DeadLetters.Put(s.base, *letter); {
	case errors.Is(err, ErrGone):
		s.r.options.Logger.Error("an event that was given up is no dead letter", "subscription", s.spec.Name,
			"offset", letter.Event.Offset, "failed with", letter.Error, "error", err)
		s.count(func(c *Counts) { c.Lost++ })
	case err != nil:
		return fmt.Errorf("router: %s: dead letter of %d: %w", s.spec.Name, letter.Event.Offset, err)
	default:
		s.count(func(c *Counts) { c.DeadLettered++ })
	}
	return nil
}

// insist repeats a call until it succeeds, the log has refused it for good, or there is
// no more time.
func (s *subscriber) insist(epoch int, do func(Cursor) error) bool {
	pauses := newPauses()
	for {
		err := s.withCursor(epoch, do)
		s.held(err)
		switch {
		case err == nil:
			return true
		case errors.Is(err, ErrFenced):
			s.lose(Fenced, err)
			return false
		case errors.Is(err, ErrRefused):
			s.lose(Refused, err)
			return false
		case s.base.Err() != nil:
			return false
		}
		s.r.options.Logger.Debug("the cursor does not move", "subscription", s.spec.Name, "error", err)
		attempt.Sleep(s.base, pauses.NextBackOff())
	}
}

// held notes what keeps the cursor where it is, nil where nothing does.
func (s *subscriber) held(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.held = ""; err != nil {
		s.last.held = breaker.Bounded(err.Error())
	}
}

func (s *subscriber) withCursor(epoch int, do func(Cursor) error) error {
	s.link.Lock()
	defer s.link.Unlock()
	switch {
	case s.link.cursor == nil:
		return ErrNotAttached
	case !s.tracker.current(epoch):
		return nil // the cursor was moved on purpose meanwhile
	}
	return do(s.link.cursor)
}
