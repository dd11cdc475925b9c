package engine

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/group"
	"github.com/ringrift/ringlog/log"
)

// Bounds of one command, so that a request stays far below what one may take.
const (
	retriesAtOnce = 1000
	lettersAtOnce = 16
)

// settle tells the log what there is to tell and then answers those who wait for it. It
// reports whether there was something.
func (g *liveGroup) settle(all bool) bool {
	g.mu.Lock()
	r := g.round
	s, some := g.c.NextAckBatch(g.reserves(), all)
	var dead []group.Death
	if g.now().Before(g.mourn) {
		r.letters = g.unburied
	} else {
		dead = g.c.Deaths()
	}
	g.round = newRound()
	g.mu.Unlock()
	if some {
		r.err = g.propose(s)
	}
	buried := make([]bool, len(dead))
	if r.err == nil && len(dead) > 0 {
		if r.letters = g.bury(dead, buried); g.ctx.Err() != nil {
			r.err = g.cause()
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if some {
		g.c.AckBatchDone(g.ctx.Err() == nil)
	}
	for i, d := range dead {
		if g.c.LetterStored(d.Offset, buried[i]); !buried[i] {
			g.mourn, g.unburied = g.now().Add(mournPause), r.letters
		}
	}
	close(r.done)
	g.share()
	return some || slices.Contains(buried, true)
}

// propose gets a settle into the log, however long it takes. An error has ended the
// group here.
func (g *liveGroup) propose(s group.AckBatch) error {
	for {
		n := min(len(s.Retries), retriesAtOnce)
		_, err := g.host.Propose(g.ctx, frame.Request{Command: frame.GroupSettle{Name: g.name, Generation: g.generation, Term: g.term,
			Reserved: s.Reserved, Open: s.Open, Done: s.Done, Retries: s.Retries[:n]}})
		switch {
		case err == nil && n == len(s.Retries):
			return nil
		case err == nil:
			s.Done, s.Retries = nil, s.Retries[n:]
		case g.over(err):
			return g.cause()
		default:
			g.logger.Warn("a settle is not taken yet", "group", g.name, "error", err)
			g.pause(settlePace)
		}
	}
}

func (g *liveGroup) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-g.ctx.Done():
	}
}

// over ends the group where an error of a proposal says that it can not go on here.
func (g *liveGroup) over(err error) bool {
	refusal, refused := errors.AsType[*fsm.Refusal](err)
	switch {
	case g.ctx.Err() != nil:
	case refused && refusal.Code == fsm.Overloaded:
		return false
	case refused && refusal.Code == fsm.NotFound:
		g.end(NoGroup(g.host.Machine(), g.name))
	case refused && refusal.Code == fsm.Fenced:
		g.end(errSessionsOver(g.name))
	case refused:
		g.end(err)
	case g.host.LeadingTerm() == g.term:
		return false // it is the same again where it was taken before
	default:
		g.end(err)
	}
	return true
}

// bury puts events to the dead letters, some at a time, and notes which of them were.
func (g *liveGroup) bury(list []group.Death, buried []bool) error {
	errs := make([]error, len(list))
	var graves sync.WaitGroup
	free := make(chan struct{}, lettersAtOnce)
	for i := range list {
		free <- struct{}{}
		graves.Go(func() {
			errs[i] = g.letter(&list[i])
			buried[i] = errs[i] == nil
			<-free
		})
	}
	graves.Wait()
	return errors.Join(errs...)
}

func (g *liveGroup) letter(d *group.Death) error {
	l, err := g.host.CompleteLetter(g.ctx, frame.DeadLetter{Cursor: g.name, Generation: g.generation, Offset: d.Offset, Handler: d.Handler,
		Error: d.Error, Attempts: d.Attempts})
	if trimmed := (*log.TrimmedError)(nil); errors.As(err, &trimmed) {
		return nil // there is nothing to keep, and the trim has settled it
	}
	if err != nil {
		return err
	}
	_, err = g.host.Propose(g.ctx, frame.Request{Command: frame.GroupDead{Term: g.term, Letter: l}})
	if refusal, ok := errors.AsType[*fsm.Refusal](err); ok && refusal.Code == fsm.Conflict {
		return nil // it is settled
	}
	if refusal, ok := errors.AsType[*fsm.Refusal](err); err != nil && (!ok || refusal.Code == fsm.Fenced || refusal.Code == fsm.NotFound) {
		g.over(err)
	}
	return err
}
