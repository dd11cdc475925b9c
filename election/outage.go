package election

import (
	"cmp"
	"slices"
	"time"

	"github.com/ringrift/ringlog/event"
)

// Kinds of views, as a voter's journal records them.
const (
	ViewLost    = "lost"          // the voter saw no majority, or no leader
	ViewStalled = "stalled"       // the voter did not run for a while: it was paused, or its machine was
	ViewDown    = "down"          // the voter's process did not run
	ViewLease   = "lease_expired" // as a leader it did not hear of a majority for its lease
)

// View is what one voter saw. Times are by the leader's wall clock, as far as it knows
// how the voter's clock differs. Began <= Ended.
type View struct {
	Voter       string    `json:"voter"`
	Journal     string    `json:"journal,omitempty"` // which journal of the voter
	Seq         uint64    `json:"seq,omitempty"`     // the newest record in it
	Kind        string    `json:"kind"`
	Began       time.Time `json:"began"`
	Regained    time.Time `json:"regained,omitzero"` // when a majority was in reach again; zero: not seen
	Ended       time.Time `json:"ended"`
	Term        uint64    `json:"term,omitempty"`
	Leader      string    `json:"leader,omitempty"` // the last one known
	Cause       string    `json:"cause,omitempty"`
	Refused     uint64    `json:"refused,omitempty"` // writes refused meanwhile
	Unreachable []string  `json:"unreachable,omitempty"`
}

// absentUntil returns the time until which the voter cannot have been part of a quorum. While it had a majority
// in reach and waited for a leader it could have been, unless the gap is longer than an
// election may take.
func (v View) absentUntil(g gap) time.Time {
	switch {
	// It did not run, or the wait for a leader itself was an outage.
	case v.Kind != ViewLost || g.to.Sub(g.from) >= slowElection:
		return v.Ended
	case v.Cause == CauseNoLeader:
		return v.Began
	case !v.Regained.IsZero():
		return v.Regained
	default:
		return v.Ended
	}
}

// Up says since when a voter has been running, and when it last ran before.
type Up struct {
	Voter  string
	Since  time.Time
	Before time.Time // zero: not known
}

// Taken says up to which record a voter's journal is in the log.
type Taken struct {
	Journal string `json:"journal"`
	Seq     uint64 `json:"seq"` // of the last record that was reconciled
}

// Outage is a time without a quorum.
type Outage struct {
	ID     uint64    `json:"id"` // counts from 1
	Began  time.Time `json:"began"`
	Ended  time.Time `json:"ended"`
	SeenBy []string  `json:"seen_by"` // sorted
}

// same reports whether what lasted from began to ended belongs to this outage: at least
// half of the shorter of the two lies in the other.
func (o *Outage) same(began, ended time.Time) bool {
	shared := shared(o.Began, o.Ended, began, ended)
	return shared > 0 && 2*shared >= min(ended.Sub(began), o.Ended.Sub(o.Began))
}

// TakenOf reports how far a journal has been reconciled, 0 for one that is not known.
func (l *Timeline) TakenOf(journal string) uint64 {
	for _, t := range l.Journals {
		if t.Journal == journal {
			return t.Seq
		}
	}
	return 0
}

// noteTaken notes that a journal is reconciled up to seq, as the newest of keptJournals.
func (l *Timeline) noteTaken(journal string, seq uint64) {
	i := slices.IndexFunc(l.Journals, func(t Taken) bool { return t.Journal == journal })
	if i >= 0 {
		l.Journals = slices.Delete(l.Journals, i, i+1)
	}
	l.Journals = append(l.Journals, Taken{journal, seq})
	l.Journals = l.Journals[max(0, len(l.Journals)-keptJournals):]
}

// Evidence is what Reconcile judges by. The order of Views and Up does not matter.
type Evidence struct {
	Views []View
	Up    []Up
	Led   []Span // as the leader saw it; the newest is its own
}

// leader is the newest leadership, empty if none is known.
func (e *Evidence) leader() (s Span) {
	if len(e.Led) > 0 {
		s = e.Led[len(e.Led)-1]
	}
	return s
}

// Reconcile takes in what the voters' journals hold, each record once. What together
// proves a time without a quorum becomes one outage: QUORUM_LOST and QUORUM_RESTORED
// with their real times. A view of an outage that was reported before, or of a voter that
// was cut off alone while the others had a quorum, is reported by itself.
func (h *Health) Reconcile(e Evidence) []event.Event {
	fresh := h.takeNew(e.Views)
	var events []event.Event
	h.mergeTerms(e.Led)

	// An expired lease ends a leadership, which may open a gap.
	for _, v := range fresh {
		if v.Kind == ViewLease {
			h.expireLease(v)
			events = append(events, leaseExpired(v))
		}
	}

	// A gap in which nothing new was seen has been judged before.
	news := h.addAbsences(fresh, e.Up)
	before := len(h.Outages)
	for _, g := range h.gaps() {
		if !slices.ContainsFunc(news, func(v View) bool { return shared(v.Began, v.Ended, g.from, g.to) > 0 }) {
			continue
		}
		found := h.findOutage(g, h.Voters)
		if !found.proven || isReported(h.Outages[:before], found.outage, g) {
			continue
		}
		h.Incidents++
		found.outage.ID = h.Incidents
		h.Outages = append(h.Outages, found.outage)
		events = append(events, h.outageEvents(found, e)...)
	}

	// The views of an outage that was found now are part of its events.
	for _, v := range fresh {
		ofFound := slices.ContainsFunc(h.Outages[before:], func(o Outage) bool {
			return shared(v.Began, v.Ended, o.Began, o.Ended) > 0
		})
		if v.Kind == ViewLost && !ofFound {
			events = append(events, viewEvent(v, h.addWitness(v)))
		}
	}

	// What lies before a forgotten outage could be reported twice: it is not judged any more.
	for len(h.Outages) > keptOutages {
		h.settleBefore(h.Outages[0].Ended)
		h.Outages = h.Outages[1:]
	}
	return events
}

// takeNew returns the views whose records are not reconciled yet, each once, and notes that they are now.
// Their order does not depend on the order of views.
func (l *Timeline) takeNew(views []View) (fresh []View) {
	seen := map[Taken]bool{}
	for _, v := range views {
		record := Taken{v.Journal, v.Seq}
		if v.Seq > l.TakenOf(v.Journal) && !seen[record] {
			seen[record] = true
			fresh = append(fresh, v)
		}
	}
	slices.SortFunc(fresh, func(a, b View) int {
		return cmp.Or(
			a.Began.Compare(b.Began),
			cmp.Compare(a.Voter, b.Voter),
			cmp.Compare(a.Journal, b.Journal),
			cmp.Compare(a.Seq, b.Seq),
		)
	})

	// Records of a journal may be out of order here: the highest counts.
	for _, v := range fresh {
		l.noteTaken(v.Journal, max(v.Seq, l.TakenOf(v.Journal)))
	}
	return fresh
}

// addWitness returns the id of the newest outage that a view belongs to, 0 if there is none, and
// adds the voter to those that saw it.
func (l *Timeline) addWitness(v View) uint64 {
	for i := range slices.Backward(l.Outages) {
		if o := &l.Outages[i]; o.same(v.Began, v.Ended) {
			if at, known := slices.BinarySearch(o.SeenBy, v.Voter); !known {
				o.SeenBy = slices.Insert(slices.Clone(o.SeenBy), at, v.Voter)
			}
			return o.ID
		}
	}
	return 0
}

// outageEvents returns the events of an outage: that the quorum was lost, that a majority was in reach again if a
// view saw it, and that the quorum is back.
func (h *Health) outageEvents(found verdict, e Evidence) []event.Event {
	// The views are parts of one event, together with what they add up to.
	o := found.outage
	var refused uint64
	var views []map[string]any
	var regained time.Time
	for _, v := range found.views {
		refused += v.Refused
		views = append(views, v.payload())
		if v.Regained.After(o.Began) && (regained.IsZero() || v.Regained.Before(regained)) {
			regained = earliest(v.Regained, o.Ended) // pings may notice later than raft
		}
	}
	lost := map[string]any{
		"incident":    o.ID,
		"began_at":    stamp(o.Began),
		"seen_by":     o.SeenBy,
		"voters":      len(h.Voters),
		"quorum":      h.quorum(),
		"cause":       h.outageCause(found),
		"last_leader": found.views[0].Leader,
		"term":        found.views[0].Term,
		"refused":     refused,
		"views":       views,
	}
	if len(found.down) > 0 {
		lost["down"] = found.down
	}
	events := []event.Event{event.New(event.QuorumLost, lost)}

	// Voters may have seen each other for a while before there was a leader.
	if !regained.IsZero() {
		events = append(events, event.New(event.QuorumRecoveryStarted, map[string]any{
			"incident":    o.ID,
			"started_at":  stamp(regained),
			"recovery_ms": o.Ended.Sub(regained).Milliseconds(),
		}))
	}
	return append(events, event.New(event.QuorumRestored, map[string]any{
		"incident":  o.ID,
		"after":     "lost",
		"began_at":  stamp(o.Began),
		"ended_at":  stamp(o.Ended),
		"outage_ms": o.Ended.Sub(o.Began).Milliseconds(),
		"leader_id": e.leader().Leader,
		"term":      e.leader().Term,
		"healthy":   h.healthy(),
		"voters":    len(h.Voters),
		"quorum":    h.quorum(),
		"refused":   refused,
	}))
}

// outageCause is why nothing could be decided: too many voters were out of reach, or as many as
// a majority had each other and none of them led.
func (h *Health) outageCause(found verdict) string {
	apart, waited := slices.Clone(found.down), false
	for _, v := range found.views {
		if v.Cause == CauseNoLeader {
			waited = true
		} else {
			apart = append(apart, v.Voter)
		}
	}

	// Those that were apart were too few to take the majority from the others.
	slices.Sort(apart)
	if waited && len(slices.Compact(apart)) <= len(h.Voters)-h.quorum() {
		return CauseNoLeader
	}
	return found.views[0].Cause
}

// stamp is the form of times in events.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// payload is a view as events carry it.
func (v View) payload() map[string]any {
	p := map[string]any{
		"voter_id":    v.Voter,
		"began_at":    stamp(v.Began),
		"ended_at":    stamp(v.Ended),
		"cause":       v.Cause,
		"term":        v.Term,
		"last_leader": v.Leader,
		"refused":     v.Refused,
	}
	if len(v.Unreachable) > 0 {
		p["unreachable"] = v.Unreachable
	}
	return p
}

// viewEvent is the event of one voter's view by itself. outage is the id of the outage that it
// belongs to, 0 if the voter was cut off alone.
func viewEvent(v View, outage uint64) event.Event {
	p := v.payload()
	p["outage_ms"], p["cluster_had_quorum"] = v.Ended.Sub(v.Began).Milliseconds(), outage == 0
	if outage != 0 {
		p["incident"] = outage
	}
	return event.New(event.QuorumOutageView, p)
}

// leaseExpired is the event of a leader that lost its lease.
func leaseExpired(v View) event.Event {
	return event.New(event.LeaderLeaseExpired, map[string]any{
		"leader_id":         v.Voter,
		"term":              v.Term,
		"expired_at":        stamp(v.Ended),
		"quorum_contact_ms": v.Ended.Sub(v.Began).Milliseconds(),
	})
}
