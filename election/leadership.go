// Package election holds the pure decisions about who leads. It is fed with what
// a log entry says and answers with the events that follow; it reads no clock and
// starts nothing, so that every node that feeds it the same decides the same.
package election

import (
	"time"

	"github.com/ringrift/ringlog/event"
)

// Leadership is what the log has told about its leaders so far.
//
// Term never falls, and Leader is whoever appended the first entry of Term: Raft
// lets nobody else append in it.
type Leadership struct {
	Term   uint64    `json:"term"`
	Leader string    `json:"leader"`
	Since  time.Time `json:"since"`
	Last   time.Time `json:"last"` // time of the newest entry of Term
	Intent *Intent   `json:"intent,omitempty"`
}

// Intent is a leader's word that it gives up on purpose.
type Intent struct {
	Target string `json:"target,omitempty"`
	Cause  string `json:"cause,omitempty"`
}

// TermSeen is a leadership that committed nothing, as a later leader saw it.
type TermSeen struct {
	Term   uint64 `json:"term"`
	Leader string `json:"leader"`
}

// Entry is what Observe needs to know of a log entry.
type Entry struct {
	Term     uint64
	Proposer string
	Time     time.Time
	Seen     []TermSeen // from a hello
	Cause    string     // from a hello: why there was an election, as the new leader saw it
}

// Causes of a LEADER_LOST and a LEADER_ELECTED, where the hello names none.
const (
	CauseUnknown   = "unknown"
	CauseReelected = "reelected"
	CauseBootstrap = "bootstrap"
	CauseStepdown  = "stepdown"
)

// Observe takes the next entry of the log in. The first entry of a higher term
// yields that term's events: how the old leader went, then who leads now.
func (l *Leadership) Observe(e Entry) []event.Event {
	if e.Term <= l.Term {
		l.Last = e.Time
		return nil
	}
	var events []event.Event
	if l.Leader != "" {
		events = append(events, l.departure(e))
	}
	events = append(events, l.elected(e))
	*l = Leadership{Term: e.Term, Leader: e.Proposer, Since: e.Time, Last: e.Time}
	return events
}

// Announce records an intent of the present leader, or with nil takes it back.
func (l *Leadership) Announce(i *Intent) { l.Intent = i }

func (l *Leadership) departure(e Entry) event.Event {
	if l.Intent != nil {
		return event.New(event.LeaderStepdown, map[string]any{
			"leader_id": l.Leader, "term": l.Term, "target": l.Intent.Target, "cause": l.Intent.Cause,
		})
	}
	return event.New(event.LeaderLost, map[string]any{
		"old_leader": l.Leader, "term": l.Term, "cause": l.cause(e),
	})
}

func (l *Leadership) cause(e Entry) string {
	switch {
	case l.Intent != nil:
		return CauseStepdown
	case e.Cause != "":
		return e.Cause
	case e.Proposer == l.Leader:
		return CauseReelected
	default:
		return CauseUnknown
	}
}

func (l *Leadership) elected(e Entry) event.Event {
	payload := map[string]any{"leader_id": e.Proposer, "term": e.Term}
	if l.Leader == "" {
		payload["cause"] = CauseBootstrap
	} else {
		payload["previous_leader"] = l.Leader
		payload["leaderless_ms"] = max(0, e.Time.Sub(l.Last).Milliseconds())
		payload["cause"] = l.cause(e)
	}
	if skipped := l.between(e); len(skipped) > 0 {
		payload["skipped_terms"] = skipped
	}
	return event.New(event.LeaderElected, payload)
}

// between keeps the terms seen that lie between the last one with an entry and
// the new one: those committed nothing.
func (l *Leadership) between(e Entry) []TermSeen {
	var skipped []TermSeen
	for _, s := range e.Seen {
		if s.Term > l.Term && s.Term < e.Term {
			skipped = append(skipped, s)
		}
	}
	return skipped
}
