package raftnode

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/election"
)

const keptTerms = 16

var errLeaderGone = errors.New("the leader that was asked leads no more and does not answer")

// termsSeen remembers who led which term as this node saw it, so that terms
// that committed nothing can be named later.
type termsSeen struct {
	mu    sync.Mutex
	grace time.Duration
	waits map[*time.Timer]bool // of those who wait for a leader's answer; see while
	list  []ledTerm            // terms never fall; one stands twice where its leader was heard of again
}

// ledTerm is a leadership as this node saw it, by its wall clock.
type ledTerm struct {
	election.TermSeen
	from, to time.Time // to is zero while it lasts
}

// newTermsSeen registers with raft. The filter runs on raft's goroutine and
// copies what it is shown, so nothing is dropped.
func newTermsSeen(r *raft.Raft) *termsSeen {
	t := &termsSeen{}
	r.RegisterObserver(raft.NewObserver(nil, false, func(o *raft.Observation) bool {
		if l, ok := o.Data.(raft.LeaderObservation); ok {
			t.add(election.TermSeen{Term: r.CurrentTerm(), Leader: string(l.LeaderID)}, seenAt(r, string(l.LeaderID)))
		}
		return false
	}))
	return t
}

// seenAt is when a change of leaders was: a follower that misses one heard of it last
// long before it gives it up.
func seenAt(r *raft.Raft, leader string) time.Time {
	if heard := r.LastContact(); leader == "" && r.State() != raft.Leader && !heard.IsZero() {
		return heard.UTC()
	}
	return time.Now().UTC()
}

// add takes in who leads now; without a leader the last one is gone.
func (t *termsSeen) add(s election.TermSeen, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.list)
	if n > 0 && t.list[n-1].to.IsZero() {
		t.list[n-1].to = now
	}
	switch {
	case n > 0 && t.list[n-1].TermSeen != s:
		t.lapse()
	}
	switch {
	case s.Leader == "":
		return
	case n > 0 && (t.list[n-1].Term > s.Term || t.list[n-1].Term == s.Term && t.list[n-1].Leader != s.Leader):
		return
	}
	t.list = append(t.list, ledTerm{TermSeen: s, from: now})
	if len(t.list) > keptTerms {
		t.list = t.list[1:]
	}
}

// between are the terms seen above low and below high.
func (t *termsSeen) between(low, high uint64) (list []election.TermSeen) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.list {
		if s.Term > low && s.Term < high && (len(list) == 0 || list[len(list)-1] != s.TermSeen) {
			list = append(list, s.TermSeen)
		}
	}
	return list
}

// while is ctx, ended a grace after the present leader is no longer followed.
func (t *termsSeen) while(ctx context.Context, grace time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(grace, func() { cancel(errLeaderGone) })
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

// lapse lets the grace of those who wait begin.
func (t *termsSeen) lapse() {
	for timer := range t.waits {
		timer.Reset(t.grace)
	}
	clear(t.waits)
}

// missed is when this node gave up the leader of a term; zero if it did not.
func (t *termsSeen) missed(term uint64) (at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.list {
		if s.Term == term {
			at = s.to
		}
	}
	return at
}

// spans are the leaderships that this node saw, the one that lasts up to now.
func (t *termsSeen) spans(now time.Time) (list []election.Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.list {
		span := election.Span{Term: s.Term, Leader: s.Leader, From: s.from, To: s.to}
		if s.to.IsZero() {
			span.To = now
		}
		list = append(list, span)
	}
	return list
}
