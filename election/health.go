package election

import (
	"cmp"
	"slices"
	"time"

	"github.com/ringrift/ringlog/event"
)

// Health is what the log has shown of the voters and their quorum. It is part of the replicated state, stored as
// JSON.
//
// Voters is sorted by id and holds the voters of the newest configuration.
type Health struct {
	Known     bool      `json:"known"` // Configure has been called
	Voters    []Voter   `json:"voters"`
	AtRisk    bool      `json:"at_risk"`
	RiskSince time.Time `json:"risk_since,omitzero"`
	Timeline
	Split    *Split   `json:"split_brain,omitempty"`
	Trailing []string `json:"catchup_at_risk,omitempty"` // members, sorted
}

// Voter is one voter as the log knows it.
type Voter struct {
	ID     string    `json:"id"`
	Online bool      `json:"online"`
	Since  time.Time `json:"since,omitzero"`  // the last change; zero: none yet
	Reason string    `json:"reason,omitzero"` // why it is offline: ReasonHTTP or ReasonRaft
}

// Split is two members that lead at the same time.
type Split struct {
	Term    uint64    `json:"term"` // of the leader that reported it
	Leaders []string  `json:"leaders"`
	Since   time.Time `json:"since"`
	// Watched says that a leader reports its end. Otherwise the next term counts as its end.
	Watched bool `json:"watched,omitzero"`
}

// voter returns the voter with this id, nil if there is none; it may be changed.
func (h *Health) voter(id string) *Voter {
	i, found := slices.BinarySearchFunc(h.Voters, id, func(v Voter, id string) int { return cmp.Compare(v.ID, id) })
	if !found {
		return nil
	}
	return &h.Voters[i]
}

// Configure takes the voters of a new configuration. reason says why a voter was added
// or removed. The first configuration of all yields no events.
func (h *Health) Configure(at time.Time, voters []string, reason func(id string) string) []event.Event {
	// A voter that stays keeps what is known of it; a new one counts as online.
	voters = slices.Sorted(slices.Values(voters))
	var next []Voter
	var added, removed []string
	for _, id := range voters {
		v := Voter{ID: id, Online: true}
		if known := h.voter(id); known != nil {
			v = *known
		} else {
			added = append(added, id)
		}
		next = append(next, v)
	}
	for _, v := range h.Voters {
		if !slices.Contains(voters, v.ID) {
			removed = append(removed, v.ID)
		}
	}

	// The events count the voters of the new configuration, so it is stored before.
	first := !h.Known
	h.Known, h.Voters = true, next
	if first {
		return nil
	}
	var events []event.Event
	for _, id := range added {
		events = append(events, event.New(event.VoterPromoted, h.change(id, reason(id))))
	}
	for _, id := range removed {
		events = append(events, event.New(event.VoterDemoted, h.change(id, reason(id))))
	}
	return append(events, h.risk(at, "configuration")...)
}

// Restart begins with the voters of another cluster. The outages that were reported
// before are kept.
func (h *Health) Restart(voters []string) {
	*h = Health{Timeline: Timeline{Outages: h.Outages, Incidents: h.Incidents, Settled: h.Settled}}
	h.Configure(time.Time{}, voters, nil)
}

// change is the payload of an event about a voter that was added or removed.
func (h *Health) change(id, reason string) map[string]any {
	return map[string]any{
		"voter_id":      id,
		"active_voters": h.healthy(),
		"voters":        len(h.Voters),
		"reason":        cmp.Or(reason, CauseUnknown),
	}
}

// healthy counts the voters that are online.
func (h *Health) healthy() (n int) {
	for _, v := range h.Voters {
		if v.Online {
			n++
		}
	}
	return n
}

// quorum is how many voters make a majority.
func (h *Health) quorum() int { return majorityOf(len(h.Voters)) }

// majorityOf is how many of that many voters make a majority.
func majorityOf(voters int) int { return voters/2 + 1 }

// Offline lists the voters that are not online, sorted.
func (h *Health) Offline() []string {
	ids := []string{}
	for _, v := range h.Voters {
		if !v.Online {
			ids = append(ids, v.ID)
		}
	}
	return ids
}

// Due reports whether a leader should report now that a voter is online or is not: the
// log has the opposite, and the last change is at least holdDown ago.
func (h *Health) Due(at time.Time, voter string, online bool, holdDown time.Duration) bool {
	v := h.voter(voter)
	return v != nil && v.Online != online && (v.Since.IsZero() || at.Sub(v.Since) >= holdDown)
}

// Reasons why a leader does not count a voter as online.
const (
	ReasonHTTP = "http" // it does not answer pings
	ReasonRaft = "raft" // it answers pings, and raft has no contact with it
)

// VoterReport is what a leader reports of one voter.
type VoterReport struct {
	Voter         string
	Online        bool
	LastContactMs int64  // of what Reason names; -1: never
	Reason        string // ReasonHTTP or ReasonRaft; "" for a voter that is online
}

// Report takes a leader's report of one voter. It emits at most one change of a voter in
// each hold-down.
func (h *Health) Report(at time.Time, r VoterReport, holdDown time.Duration) []event.Event {
	if !h.Due(at, r.Voter, r.Online, holdDown) {
		return nil
	}
	v := h.voter(r.Voter)
	v.Online, v.Since, v.Reason = r.Online, at, r.Reason
	payload := map[string]any{
		"voter_id":        r.Voter,
		"last_contact_ms": r.LastContactMs,
		"active_voters":   h.healthy(),
		"voters":          len(h.Voters),
	}

	// Only a voter that is offline has a reason.
	kind := event.VoterOnline
	if !r.Online {
		kind, payload["reason"] = event.VoterOffline, r.Reason
	}
	return append([]event.Event{event.New(kind, payload)}, h.risk(at, "voter_offline")...)
}

// risk emits the events when the quorum can bear no more failure, and when it can again. A
// single voter can never bear one, which needs no event.
func (h *Health) risk(at time.Time, cause string) []event.Event {
	atRisk := len(h.Voters) > 1 && h.healthy() <= h.quorum()
	if atRisk == h.AtRisk {
		return nil
	}
	since := h.RiskSince
	h.AtRisk, h.RiskSince = atRisk, at
	payload := map[string]any{"healthy": h.healthy(), "voters": len(h.Voters), "quorum": h.quorum()}
	if !atRisk {
		payload["after"], payload["at_risk_ms"], payload["outage_ms"] = "at_risk", at.Sub(since).Milliseconds(), 0
		return []event.Event{event.New(event.QuorumRestored, payload)}
	}
	// Once these voters are back a failure can be borne again.
	offline := h.Offline()
	payload["limiting"], payload["cause"] = offline, cause
	events := []event.Event{event.New(event.QuorumAtRisk, payload)}
	if len(offline) > 0 {
		events = append(events, event.New(event.QuorumPriorityReconnect, map[string]any{
			"voters": offline,
			"reason": "no_failure_to_spare",
		}))
	}
	return events
}

// NewTerm notes that leader leads in a new term, and the leadership before it, which the
// log knows up to its last entry.
func (h *Health) NewTerm(term uint64, leader string, at time.Time, before Span) []event.Event {
	if before.Leader != "" {
		h.endTerm(before)
	}
	// Nobody reports the end of a split that is not watched: a new term counts as its end.
	split := h.Split
	if split == nil || split.Watched || term <= split.Term {
		return nil
	}
	return h.resolveSplit(at, term, leader)
}

// resolveSplit ends the split: leader leads alone in term.
func (h *Health) resolveSplit(at time.Time, term uint64, leader string) []event.Event {
	split := h.Split
	h.Split = nil
	return []event.Event{event.New(event.SplitBrainResolved, map[string]any{
		"term":      split.Term,
		"leaders":   split.Leaders,
		"leader_id": leader,
		"new_term":  term,
		"lasted_ms": at.Sub(split.Since).Milliseconds(),
	})}
}

// Unsplit notes that the leader of term no longer finds another member that leads.
func (h *Health) Unsplit(at time.Time, term uint64, leader string) []event.Event {
	if h.Split == nil || !h.Split.Watched {
		return nil
	}
	return h.resolveSplit(at, term, leader)
}

// Claimed notes that the leader of term has found several members that lead at the same
// time. If the split is watched, only Unsplit ends it.
func (h *Health) Claimed(at time.Time, term uint64, leaders []string, watched bool) []event.Event {
	// A split that is known already is reported again only by a later term.
	known := h.Split != nil && (h.Split.Watched || term <= h.Split.Term)
	if known || len(leaders) < 2 {
		return nil
	}
	h.Split = &Split{Term: term, Leaders: slices.Sorted(slices.Values(leaders)), Since: at, Watched: watched}
	return []event.Event{event.New(event.SplitBrainDetected, map[string]any{"term": term, "leaders": h.Split.Leaders})}
}

// Trail is how far a member lags, and what the leader's raft log keeps for it. Rates are in
// entries a second.
type Trail struct {
	Member      string
	AtRisk      bool
	Trailing    uint64        // entries by which the member lags
	Left        uint64        // entries until the log no longer has what the member needs
	Rate        uint64        // of the member
	LogRate     uint64        // of the log
	TruncatedIn time.Duration // until Left is used up at these rates
}

// Trails notes that the log is about to lose entries that a member needs, or no longer is.
// Only the former is an event.
func (h *Health) Trails(t Trail) []event.Event {
	i, known := slices.BinarySearch(h.Trailing, t.Member)
	switch {
	case t.AtRisk == known:
		return nil
	case !t.AtRisk:
		h.Trailing = slices.Delete(h.Trailing, i, i+1)
		return nil
	}

	// A member that was not at risk before is an event.
	h.Trailing = slices.Insert(h.Trailing, i, t.Member)
	return []event.Event{event.New(event.CatchupAtRisk, map[string]any{
		"member_id":        t.Member,
		"trailing_entries": t.Trailing,
		"entries_left":     t.Left,
		"member_rate":      t.Rate,
		"log_rate":         t.LogRate,
		"truncated_in_ms":  t.TruncatedIn.Milliseconds(),
	})}
}

// Forget drops what is known of members that are gone.
func (h *Health) Forget(id string) {
	if i, known := slices.BinarySearch(h.Trailing, id); known {
		h.Trailing = slices.Delete(h.Trailing, i, i+1)
	}
}

// Clone returns a copy that shares nothing.
func (h *Health) Clone() Health {
	out := *h
	out.Voters, out.Trailing, out.Timeline = slices.Clone(h.Voters), slices.Clone(h.Trailing), h.Timeline.clone()
	if h.Split != nil {
		split := *h.Split
		split.Leaders = slices.Clone(split.Leaders)
		out.Split = &split
	}
	return out
}
