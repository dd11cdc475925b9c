package health

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/election"
)

const keptTerms = 16 // of a Terms; the oldest is dropped

// ErrLeaderGone is the cause of a wait that While has ended.
var ErrLeaderGone = errors.New("the leader that was asked leads no more and does not answer")

// Terms remembers who led which term as this node saw it, so a later leader can report terms in which
// nothing was committed.
type Terms struct {
	mu    sync.Mutex
	grace time.Duration        // of those that wait
	waits map[*time.Timer]bool // of the calls that wait for a leader's answer; see While
	list  []ledTerm            // terms never fall; a term is listed again if its leader was lost and found
}

// ledTerm is a leadership as this node saw it, by its wall clock.
type ledTerm struct {
	election.TermSeen
	from, to time.Time // to is zero while it lasts
}

// NewTerms registers with raft. The filter of the observer runs on raft's goroutine, so no change of leaders
// is dropped.
func NewTerms(r *raft.Raft) *Terms {
	t := &Terms{}
	r.RegisterObserver(raft.NewObserver(nil, false, func(o *raft.Observation) bool {
		if l, ok := o.Data.(raft.LeaderObservation); ok {
			t.add(election.TermSeen{Term: r.CurrentTerm(), Leader: string(l.LeaderID)}, seenAt(r, string(l.LeaderID)))
		}
		return false
	}))
	return t
}

// seenAt returns when a change of leaders happened. A follower that abandons a leader last heard from it some time
// before, and that time counts.
func seenAt(r *raft.Raft, leader string) time.Time {
	if heard := r.LastContact(); leader == "" && r.State() != raft.Leader && !heard.IsZero() {
		return heard.UTC()
	}
	return time.Now().UTC()
}

// add notes who leads from now on. An empty leader ends the leadership before it.
func (t *Terms) add(s election.TermSeen, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.list)
	// Any change ends the leadership before it.
	if n > 0 && t.list[n-1].to.IsZero() {
		t.list[n-1].to = now
	}
	// Even if there is a new leader already: the waiting calls asked the old one.
	if n > 0 && t.list[n-1].TermSeen != s {
		t.startGrace()
	}
	if s.Leader == "" {
		return
	}
	// A term has one leader, and terms never fall: anything else is a late observation.
	if n > 0 {
		last := t.list[n-1].TermSeen
		if last.Term > s.Term || (last.Term == s.Term && last.Leader != s.Leader) {
			return
		}
	}
	t.list = append(t.list, ledTerm{TermSeen: s, from: now})
	// Elections in a row must not fill the memory; a report needs the last ones alone.
	if len(t.list) > keptTerms {
		t.list = t.list[1:]
	}
}

// Between returns the terms seen above low and below high, each leadership once.
func (t *Terms) Between(low, high uint64) (list []election.TermSeen) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.list {
		// A leader that was lost and found again in its term is listed twice, and counts once.
		if s.Term > low && s.Term < high && (len(list) == 0 || list[len(list)-1] != s.TermSeen) {
			list = append(list, s.TermSeen)
		}
	}
	return list
}

// While returns ctx, also ended a grace after the present leader is no longer followed, then with the cause
// ErrLeaderGone. The caller has to call the function returned.
func (t *Terms) While(ctx context.Context, grace time.Duration) (context.Context, func()) {
	// The timer is stopped until the leader is lost: a slow answer of a leader that leads is waited for.
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(grace, func() { cancel(ErrLeaderGone) })
	// startGrace starts it.
	timer.Stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waits == nil {
		t.waits = map[*time.Timer]bool{}
	}
	t.waits[timer], t.grace = true, grace
	return ctx, func() {
		t.mu.Lock()
		delete(t.waits, timer)
		t.mu.Unlock()
		timer.Stop()
		cancel(nil)
	}
}

// startGrace starts the grace of the calls that wait. It is called with mu held.
func (t *Terms) startGrace() {
	// Once for each: who waits from now on asks the next leader.
	for timer := range t.waits {
		timer.Reset(t.grace)
	}
	clear(t.waits)
}

// Missed returns when this node last abandoned the leader of a term; zero if it did not.
func (t *Terms) Missed(term uint64) (at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.list {
		if s.Term == term {
			at = s.to
		}
	}
	return at
}

// spans returns the leaderships that this node saw. One that lasts ends at now.
func (t *Terms) spans(now time.Time) (list []election.Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.list {
		// A leadership that lasts has no end yet.
		span := election.Span{Term: s.Term, Leader: s.Leader, From: s.from, To: s.to}
		if s.to.IsZero() {
			span.To = now
		}
		list = append(list, span)
	}
	return list
}
