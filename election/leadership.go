package election

import (
	"time"

	"github.com/ringrift/ringlog/event"
)

// Leadership is what the log has shown of its leaders so far.
//
// Term never falls, and Leader is the node that appended the first entry of Term: Raft
// lets nobody else append in it. A leader appends its second entry once the first one is
// committed, so Decided proves that a majority had that leader.
type Leadership struct {
	Term   uint64    `json:"term"`
	Leader string    `json:"leader"`
	Since  time.Time `json:"since"`
	Last   time.Time `json:"last"`             // time of the newest entry of Term
	Intent *Intent   `json:"intent,omitempty"` // of Leader, in Term; nil: none

	Decided bool `json:"decided,omitempty"` // Term has more than one entry
}

// Intent is a leader's announcement that it ends its leadership on purpose.
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
	Seen     []TermSeen    // from a term start
	Cause    string        // from a term start: why there was an election, as the new leader saw it
	Silence  time.Duration // from a term start: since the new leader last heard of the old one; 0: not known
	Detailed bool          // all members know the events and fields of feature level 2
	Counted  bool          // all members know Leadership.Decided, of feature level 4
}

// Causes of a LEADER_LOST and a LEADER_ELECTED.
const (
	CauseHeartbeat = "heartbeat_timeout" // the new leader no longer heard of the old one
	CauseRestart   = "restart"           // the old leader's process ended and leads again
	CauseReelected = "reelected"         // the old leader lost its leadership and won it back
	CauseBootstrap = "bootstrap"
	CauseStepdown  = "stepdown"
	CauseUnknown   = "unknown"
)

// Observe takes the next entry of the log. The first entry of a higher term yields the
// events of the change: first the end of the old leadership, then the new leader.
func (l *Leadership) Observe(e Entry) []event.Event {
	// A second entry of the term proves a majority, if all members count it.
	if e.Term <= l.Term {
		l.Last, l.Decided = e.Time, l.Decided || e.Counted
		return nil
	}

	// Events of a feature level that some member lacks would make its state differ.
	var events []event.Event
	if l.Leader != "" && e.Detailed && l.cause(e) == CauseHeartbeat {
		events = append(events, event.New(event.LeaderHeartbeatMissing, map[string]any{
			"leader_id": l.Leader, "term": l.Term, "missing_ms": l.leaderless(e).Milliseconds(), "seen_by": e.Proposer,
		}))
	}
	if l.Leader != "" {
		events = append(events, l.departure(e))
	}
	events = append(events, l.elected(e))
	*l = Leadership{Term: e.Term, Leader: e.Proposer, Since: e.Time, Last: e.Time}
	return events
}

// Span is the leadership that e ends, in replicated time.
func (l *Leadership) Span(e Entry) Span {
	return Span{
		Term:    l.Term,
		Leader:  l.Leader,
		From:    l.Since,
		To:      latest(l.Last, e.Time.Add(-l.leaderless(e))),
		Decided: l.Decided,
	}
}

// Stepped notes that replicated time jumped by d: the leadership did not last for that time.
func (l *Leadership) Stepped(d time.Duration) {
	l.Since, l.Last = l.Since.Add(d), l.Last.Add(d)
}

// Announce records an intent of the present leader; nil withdraws it.
func (l *Leadership) Announce(i *Intent) { l.Intent = i }

// departure is the event that the old leadership ended, on purpose or not.
func (l *Leadership) departure(e Entry) event.Event {
	kind, payload := event.LeaderLost, map[string]any{"old_leader": l.Leader, "term": l.Term, "cause": l.cause(e)}

	// A leader that announced its end handed over on purpose.
	if l.Intent != nil {
		kind, payload = event.LeaderStepdown, map[string]any{
			"leader_id": l.Leader,
			"term":      l.Term,
			"target":    l.Intent.Target,
			"cause":     l.Intent.Cause,
		}
	}
	if e.Detailed {
		payload["led_ms"] = max(0, e.Time.Add(-l.leaderless(e)).Sub(l.Since).Milliseconds())
	}
	return event.New(kind, payload)
}

// leaderless is how long nobody led before e. The old leader's last entry may be long
// before its end if nothing was proposed; the new leader knows when it last heard of it.
func (l *Leadership) leaderless(e Entry) time.Duration {
	since := max(0, e.Time.Sub(l.Last))
	if e.Silence > 0 {
		since = min(since, e.Silence)
	}
	return since
}

// cause is why the old leadership ended, as far as the log shows.
func (l *Leadership) cause(e Entry) string {
	// The old leader's announcement counts more than what the new one saw.
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

// elected is the event that the proposer of e leads.
func (l *Leadership) elected(e Entry) event.Event {
	payload := map[string]any{"leader_id": e.Proposer, "term": e.Term}
	if l.Leader == "" {
		payload["cause"] = CauseBootstrap
	} else {
		payload["previous_leader"] = l.Leader
		payload["leaderless_ms"] = l.leaderless(e).Milliseconds()
		payload["cause"] = l.cause(e)
	}

	// Terms in between had a leader that could commit nothing.
	if skipped := l.between(e); len(skipped) > 0 {
		payload["skipped_terms"] = skipped
	}
	return event.New(event.LeaderElected, payload)
}

// between returns the seen terms after the last one with an entry and before the new
// one: they committed nothing.
func (l *Leadership) between(e Entry) []TermSeen {
	var skipped []TermSeen
	for _, s := range e.Seen {
		if s.Term > l.Term && s.Term < e.Term {
			skipped = append(skipped, s)
		}
	}
	return skipped
}
