package raftnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
)

// story is the log as the first node has it, checked as it grows: the others have
// to have the same.
type story struct {
	events    []event.Event
	published map[int][]uint64 // by the client's number: at which offsets

	elected map[uint64]string // by term
	leader  string            // of the newest LEADER_ELECTED; "" once it went
	before  string            // who led before
	term    uint64            // of the newest LEADER_ELECTED

	offline map[string]bool
	atRisk  bool
	led     map[uint64]span // by term: from its first event to its last

	incident  string // of a QUORUM_LOST without its QUORUM_RESTORED
	incidents map[string]bool
	lost      []span
	expired   map[ledBy]bool // leases whose end the leader itself reported
}

type ledBy struct {
	leader string
	term   uint64
}

// span is a time in which the log says that quorum was lost.
type span struct {
	from, to time.Time
	offset   uint64
	noLeader bool // enough voters answered, and still nobody led
}

func newStory() *story {
	return &story{published: map[int][]uint64{}, elected: map[uint64]string{}, offline: map[string]bool{},
		incidents: map[string]bool{}, expired: map[ledBy]bool{}, led: map[uint64]span{}}
}

// payload holds the fields of all events that are looked at.
type payload struct {
	Number         *int      `json:"n"`
	LeaderID       string    `json:"leader_id"`
	OldLeader      string    `json:"old_leader"`
	PreviousLeader string    `json:"previous_leader"`
	Term           uint64    `json:"term"`
	VoterID        string    `json:"voter_id"`
	After          string    `json:"after"`
	Cause          string    `json:"cause"`
	BeganAt        time.Time `json:"began_at"`
	OutageMs       int64     `json:"outage_ms"`
	LedMs          int64     `json:"led_ms"`

	Incident json.RawMessage `json:"incident"`
}

// hear takes in the next event of one node's log.
func (s *story) hear(e event.Event) error {
	if i := int(e.Offset) - 1; i < len(s.events) {
		if !reflect.DeepEqual(e, s.events[i]) {
			return fmt.Errorf("%+v, where another node has %+v", e, s.events[i])
		}
		return nil
	}
	if want := uint64(len(s.events)) + 1; e.Offset != want {
		return fmt.Errorf("offset %d where %d is due", e.Offset, want)
	}
	if n := len(s.events); n > 0 && e.Term < s.events[n-1].Term {
		return fmt.Errorf("offset %d: term %d after term %d", e.Offset, e.Term, s.events[n-1].Term)
	}
	s.events = append(s.events, e)
	led, known := s.led[e.Term]
	if !known {
		led.from = e.AppendedAt
	}
	if e.AppendedAt.After(led.to) {
		led.to = e.AppendedAt
	}
	s.led[e.Term] = led
	var p payload
	if err := json.Unmarshal(e.Payload, &p); err != nil {
		return fmt.Errorf("offset %d: %s: %w", e.Offset, e.Payload, err)
	}
	// A term start may have a time that did not move during the outage before it.
	if led := s.led[p.Term]; p.LedMs > 0 {
		if from := led.to.Add(-time.Duration(p.LedMs) * time.Millisecond); from.After(led.from) {
			led.from = from
			s.led[p.Term] = led
		}
	}
	if e.Source != fsm.EmittedBy {
		if p.Number != nil {
			s.published[*p.Number] = append(s.published[*p.Number], e.Offset)
		}
		return nil
	}
	if err := s.follow(e, p); err != nil {
		return fmt.Errorf("offset %d: %s %s: %w", e.Offset, e.Type, e.Payload, err)
	}
	return nil
}

func (s *story) follow(e event.Event, p payload) error {
	switch e.Type {
	case event.LeaderElected:
		return s.gained(e, p)
	case event.LeaderLost:
		return s.left(p.OldLeader, p.Term)
	case event.LeaderStepdown:
		return s.left(p.LeaderID, p.Term)
	case event.VoterOffline, event.VoterOnline:
		if gone := e.Type == event.VoterOffline; gone == s.offline[p.VoterID] {
			return errors.New("twice in a row")
		}
		s.offline[p.VoterID] = e.Type == event.VoterOffline
	case event.QuorumAtRisk:
		if s.atRisk {
			return errors.New("twice in a row")
		}
		s.atRisk = true
	case event.SplitBrainDetected, event.SplitBrainResolved:
		return errors.New("there is one cluster only")
	case event.LeaderLeaseExpired:
		if l := (ledBy{p.LeaderID, p.Term}); s.expired[l] {
			return errors.New("reported before")
		}
		s.expired[ledBy{p.LeaderID, p.Term}] = true
	case event.QuorumLost:
		return s.began(e, p)
	case event.QuorumRestored:
		return s.restored(p)
	}
	return nil
}

func (s *story) gained(e event.Event, p payload) error {
	switch {
	case s.elected[p.Term] != "":
		return fmt.Errorf("%s was elected in that term", s.elected[p.Term])
	case p.Term <= s.term:
		return fmt.Errorf("after term %d", s.term)
	case p.Term != e.Term:
		return fmt.Errorf("in an entry of term %d", e.Term)
	case s.leader != "":
		return fmt.Errorf("nobody reported how %s went", s.leader)
	case p.PreviousLeader != s.before:
		return fmt.Errorf("it was %q who led before", s.before)
	}
	s.elected[p.Term], s.leader, s.term = p.LeaderID, p.LeaderID, p.Term
	return nil
}

func (s *story) left(leader string, term uint64) error {
	if leader == "" || leader != s.leader || term != s.term {
		return fmt.Errorf("%q leads, in term %d", s.leader, s.term)
	}
	s.leader, s.before = "", leader
	return nil
}

func (s *story) began(e event.Event, p payload) error {
	incident := string(p.Incident)
	switch {
	case incident == "" || p.BeganAt.IsZero():
		return errors.New("it names no incident, or not when it began")
	case s.incidents[incident]:
		return errors.New("the same incident again")
	case s.incident != "":
		return fmt.Errorf("incident %s has not ended", s.incident)
	}
	s.incident, s.incidents[incident] = incident, true
	s.lost = append(s.lost, span{p.BeganAt, p.BeganAt.Add(time.Duration(p.OutageMs) * time.Millisecond), e.Offset,
		p.Cause == election.CauseNoLeader})
	return nil
}

func (s *story) restored(p payload) error {
	switch {
	case p.After == "at_risk" && s.atRisk:
		s.atRisk = false
	case p.After == "lost" && s.incident != "" && string(p.Incident) == s.incident:
		s.incident = ""
		if last := &s.lost[len(s.lost)-1]; !last.to.After(last.from) { // only the end has how long it took
			last.to = last.from.Add(time.Duration(p.OutageMs) * time.Millisecond)
		}
	default:
		return fmt.Errorf("open are: incident %q, at risk %v", s.incident, s.atRisk)
	}
	return nil
}

// end is what the log still owes when all nodes are well and had their time.
func (s *story) end() (errs []error) {
	if s.incident != "" {
		errs = append(errs, fmt.Errorf("incident %s has no end", s.incident))
	}
	if s.atRisk {
		errs = append(errs, errors.New("the quorum is still at risk"))
	}
	for id, offline := range s.offline {
		if offline {
			errs = append(errs, fmt.Errorf("%s is still offline", id))
		}
	}
	return errs
}

// outages holds what the log has of a lost quorum against what was done: each
// long outage that somebody saw stands there once, none that was not, and no calm
// time is part of one, nor is anything that was acknowledged.
func (s *story) outages(done []inflicted, calm, acked []span) (errs []error) {
	const long, leaderless = 5 * time.Second, 15 * time.Second
	matched := map[uint64]bool{}
	wrong := func(from, to time.Time, format string, args ...any) {
		errs = append(errs,
			fmt.Errorf("from %v to %v: %s%s", hms(from), hms(to), fmt.Sprintf(format, args...), s.about(done, from, to)))
	}
	for _, o := range done {
		if o.quorum {
			continue
		}
		var found []uint64
		doubled := 0 // of them, those that are not the outage before or after, whose times are a little off
		for _, l := range s.lost {
			if l.overlaps(o.from, o.to) {
				found = append(found, l.offset)
				matched[l.offset] = true
			}
			if l.overlaps(o.from.Add(clockSlack), o.to.Add(-clockSlack)) {
				doubled++
			}
		}
		enough := long
		if o.raftOnly {
			enough = leaderless
		}
		if doubled > 1 || (len(found) == 0 && o.seen && o.to.Sub(o.from) > enough) {
			wrong(o.from, o.to, "there was no majority, QUORUM_LOST is at %v", found)
		}
	}
	for _, l := range s.lost {
		scarce := slices.ContainsFunc(done, func(o inflicted) bool {
			return !o.whole && l.overlaps(o.from.Add(-clockSlack), o.to.Add(clockSlack))
		})
		if !matched[l.offset] && !l.noLeader && !scarce {
			wrong(l.from, l.to, "QUORUM_LOST at %d, and there was a majority", l.offset)
		}
		for _, led := range s.led {
			common := min(l.to.UnixNano(), led.to.UnixNano()) - max(l.from.UnixNano(), led.from.UnixNano())
			if time.Duration(common) > time.Second+clockSlack {
				wrong(l.from, l.to, "QUORUM_LOST at %d, and somebody led from %v to %v", l.offset, hms(led.from), hms(led.to))
			}
		}
		for _, a := range acked {
			if a.from.After(l.from.Add(clockSlack)) && a.to.Before(l.to.Add(-clockSlack)) {
				wrong(l.from, l.to, "QUORUM_LOST at %d, and offset %d was acknowledged from %v to %v",
					l.offset, a.offset, hms(a.from), hms(a.to))
			}
		}
		for _, c := range calm {
			if l.overlaps(c.from.Add(clockSlack), c.to.Add(-clockSlack)) {
				wrong(l.from, l.to, "QUORUM_LOST at %d, and all was well from %v to %v", l.offset, hms(c.from), hms(c.to))
			}
		}
	}
	return errs
}

// clockSlack is how far times may be off that are by clocks compared over a
// network.
const clockSlack = time.Second

func (l span) overlaps(from, to time.Time) bool { return !l.from.After(to) && !l.to.Before(from) }

func hms(t time.Time) string { return t.Format("15:04:05.000") }

// about is what was done and what the cluster reported around a time, for messages.
func (s *story) about(done []inflicted, from, to time.Time) string {
	around := span{from: from.Add(-5 * time.Second), to: to.Add(20 * time.Second)}
	var lines []string
	for _, f := range done {
		if around.overlaps(f.from, f.to) {
			lines = append(lines, fmt.Sprintf("%s to %s: %s", hms(f.from), hms(f.to), f.what))
		}
	}
	for _, e := range s.events {
		if e.Source == fsm.EmittedBy && around.overlaps(e.AppendedAt, e.AppendedAt) {
			lines = append(lines, fmt.Sprintf("%s offset %d: %s %s", hms(e.AppendedAt), e.Offset, e.Type, e.Payload))
		}
	}
	slices.Sort(lines) // by time
	return "\n\t" + strings.Join(lines, "\n\t")
}

// simClient publishes numbered events and remembers what came of each.
type simClient struct {
	mu      sync.Mutex
	next    int
	acked   map[int]uint64 // by number: at which offset
	calls   []span         // that were acknowledged, each from its start to its answer
	refused map[int]error
	unknown int
}

func newSimClient() *simClient {
	return &simClient{acked: map[int]uint64{}, refused: map[int]error{}}
}

// publish asks once: what is refused must never appear, and what nobody knows of
// at most once.
func (c *simClient) publish(n *Node, patience time.Duration) {
	c.mu.Lock()
	c.next++
	number := c.next
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began := time.Now()
	result, err := n.Propose(ctx, numbered(number))
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.acked[number] = result.First
		c.calls = append(c.calls, span{from: began, to: time.Now(), offset: result.First})
	case errors.Is(err, ErrOutcomeUnknown):
		c.unknown++
	default:
		c.refused[number] = err
	}
}

func (c *simClient) acknowledged() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.acked)
}

func (c *simClient) tally() string {
	return fmt.Sprintf("%d acknowledged, %d refused, %d unknown", len(c.acked), len(c.refused), c.unknown)
}

// check compares with what is in the log.
func (c *simClient) check(published map[int][]uint64) (errs []error) {
	for number := range c.next + 1 {
		stands := published[number]
		offset, acked := c.acked[number]
		refusal, refused := c.refused[number]
		switch {
		case len(stands) > 1:
			errs = append(errs, fmt.Errorf("event %d is at %v", number, stands))
		case acked && (len(stands) == 0 || stands[0] != offset):
			errs = append(errs, fmt.Errorf("event %d was acknowledged at %d and is at %v", number, offset, stands))
		case refused && len(stands) > 0:
			errs = append(errs, fmt.Errorf("event %d was refused (%w) and is at %v", number, refusal, stands))
		}
	}
	return errs
}

// TestStoryNotices plants what must not be in a log, and requires that it is noticed.
func TestStoryNotices(t *testing.T) {
	began := time.Unix(1000, 0).UTC()
	lost := func(incident int, after time.Duration) event.Event {
		return event.New(event.QuorumLost, map[string]any{"incident": incident, "began_at": began.Add(after)})
	}
	restored := func(incident, outageMs int) event.Event {
		return event.New(event.QuorumRestored, map[string]any{"after": "lost", "incident": incident, "outage_ms": outageMs})
	}
	elected := func(leader string, term int, previous string) event.Event {
		return event.New(event.LeaderElected, map[string]any{"leader_id": leader, "term": term, "previous_leader": previous})
	}
	went := func(leader string, term int) event.Event {
		return event.New(event.LeaderLost, map[string]any{"old_leader": leader, "term": term})
	}
	voter := func(kind event.Type) event.Event { return event.New(kind, map[string]any{"voter_id": "n1"}) }
	lease := event.New(event.LeaderLeaseExpired, map[string]any{"leader_id": "n1", "term": 2})
	at := func(after time.Duration, e event.Event) event.Event {
		e.AppendedAt = began.Add(after)
		return e
	}
	risk := event.New(event.QuorumAtRisk, nil)
	safe := event.New(event.QuorumRestored, map[string]any{"after": "at_risk"})
	done := []inflicted{{from: began, to: began.Add(10 * time.Second), seen: true}}
	calm := []span{{from: began.Add(12 * time.Second), to: began.Add(16 * time.Second)}}
	acked := []span{{from: began.Add(10100 * time.Millisecond), to: began.Add(10200 * time.Millisecond), offset: 3}}

	for name, c := range map[string]struct {
		log  []event.Event
		well bool
	}{
		"all in order": {log: []event.Event{elected("n1", 2, ""), voter(event.VoterOffline), risk, went("n1", 2),
			elected("n2", 4, "n1"), lost(7, 0),
			restored(7, 9000), voter(event.VoterOnline), safe, lease}, well: true},
		"a leader for a moment": {log: []event.Event{at(6*time.Second, elected("n1", 2, "")),
			at(7*time.Second, went("n1", 2)), lost(7, 0), restored(7, 9000)}, well: true},
		"two leaders of a term": {log: []event.Event{elected("n1", 2, ""), went("n1", 2), elected("n2", 2, "n1"),
			lost(7, 0), restored(7, 9000)}},
		"a term that falls": {log: []event.Event{elected("n1", 2, ""), went("n1", 2), elected("n2", 1, "n1"),
			lost(7, 0), restored(7, 9000)}},
		"a leader that never went": {log: []event.Event{elected("n1", 2, ""), elected("n2", 3, "n1"), lost(7, 0),
			restored(7, 9000)}},
		"the loss of another leader": {log: []event.Event{elected("n1", 2, ""), went("n2", 2), lost(7, 0),
			restored(7, 9000)}},
		"the wrong predecessor": {log: []event.Event{elected("n1", 2, ""), went("n1", 2), elected("n2", 3, "n3"),
			lost(7, 0), restored(7, 9000)}},
		"no QUORUM_LOST":            {},
		"an outage without its end": {log: []event.Event{lost(7, 0)}},
		"an end without its outage": {log: []event.Event{restored(7, 9000), lost(8, 0), restored(8, 9000)}},
		"the end of another outage": {log: []event.Event{lost(7, 0), restored(8, 9000)}},
		"an outage within another":  {log: []event.Event{lost(7, 0), lost(8, 0), restored(8, 9000)}},
		"an incident twice":         {log: []event.Event{lost(7, 0), restored(7, 9000), lost(7, 0), restored(7, 9000)}},
		"an outage reported twice": {log: []event.Event{lost(7, 0), restored(7, 4000), lost(8, 5*time.Second),
			restored(8, 4000)}},
		"an outage that never was": {log: []event.Event{lost(7, 0), restored(7, 9000), lost(8, time.Minute),
			restored(8, 4000)}},
		"an outage that takes too long": {log: []event.Event{lost(7, 0), restored(7, 15000)}},
		"over an acknowledged one":      {log: []event.Event{lost(7, 0), restored(7, 11500)}},
		"the wrong time":                {log: []event.Event{lost(7, 11*time.Second), restored(7, 9000)}},
		"a leader all the while": {log: []event.Event{at(2*time.Second, elected("n1", 2, "")),
			at(6*time.Second, went("n1", 2)), lost(7, 0), restored(7, 9000)}},
		"a lease twice": {log: []event.Event{elected("n1", 2, ""), lease, lease, lost(7, 0),
			restored(7, 9000)}},
		"offline twice": {log: []event.Event{voter(event.VoterOffline), voter(event.VoterOffline),
			voter(event.VoterOnline), lost(7, 0), restored(7, 9000)}},
		"online, never having left": {log: []event.Event{voter(event.VoterOnline), lost(7, 0), restored(7, 9000)}},
		"offline for ever":          {log: []event.Event{voter(event.VoterOffline), lost(7, 0), restored(7, 9000)}},
		"at risk twice":             {log: []event.Event{risk, risk, safe, lost(7, 0), restored(7, 9000)}},
		"safe without a risk":       {log: []event.Event{safe, lost(7, 0), restored(7, 9000)}},
		"at risk for ever":          {log: []event.Event{risk, lost(7, 0), restored(7, 9000)}},
	} {
		s := newStory()
		var errs []error
		for i, e := range c.log {
			e.Offset, e.Source, e.Term = uint64(i+1), fsm.EmittedBy, termOf(e, s.term)
			if err := s.hear(e); err != nil {
				errs = append(errs, err)
			}
		}
		errs = append(errs, slices.Concat(s.end(), s.outages(done, calm, acked))...)
		if well := len(errs) == 0; well != c.well {
			t.Errorf("%s: %v", name, errs)
		}
	}
}

// termOf is the term of the entry that emits e: a LEADER_ELECTED is in its own.
func termOf(e event.Event, before uint64) uint64 {
	var p payload
	if json.Unmarshal(e.Payload, &p) == nil && e.Type == event.LeaderElected {
		return p.Term
	}
	return before
}

func TestClientNotices(t *testing.T) {
	c := newSimClient()
	c.next, c.unknown = 4, 2
	c.acked[1], c.refused[2] = 10, ErrNoLeader
	for name, r := range map[string]struct {
		published map[int][]uint64
		well      bool
	}{
		"all in order":              {map[int][]uint64{1: {10}, 3: {12}}, true},
		"an acknowledged one lost":  {map[int][]uint64{}, false},
		"an acknowledged one moved": {map[int][]uint64{1: {11}}, false},
		"an acknowledged one twice": {map[int][]uint64{1: {10, 11}}, false},
		"a refused one appended":    {map[int][]uint64{1: {10}, 2: {11}}, false},
		"an unknown one twice":      {map[int][]uint64{1: {10}, 3: {11, 12}}, false},
	} {
		if errs := c.check(r.published); (len(errs) == 0) != r.well {
			t.Errorf("%s: %v", name, errs)
		}
	}
}
