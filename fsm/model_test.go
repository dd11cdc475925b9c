package fsm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// model is the log as one would write it on a page: a list of events, searched
// from the front for everything.
type model struct {
	now       time.Time
	window    time.Duration
	events    []modelEvent // offset is the place, from 1
	blocks    []modelBlock
	first     uint64
	floor     uint64
	producers map[string]*modelProducer
	cursors   map[string]*modelCursor
	leader    string
	term      uint64
	voters    map[string]*modelVoter
	atRisk    bool
	late      []event.Type // emitted after the clients' events of the entry
	letters   modelLetters
	flows     map[string]string // by name: the effect of the one edge, whose cause is A

	policies    map[event.Type]modelPolicy
	gate        map[event.Type]event.DedupPolicy // the policies by which the events of the entry were checked
	policyCount int                              // of those that began without keys

	generations uint64         // of groups, given out
	met         map[string]int // how often what is worth meeting was met
}

type modelVoter struct {
	offline bool
	changed time.Time
}

type modelEvent struct {
	event   event.Event
	at      time.Time
	emitted bool
	by      string // identity under the policy of its type, if that decided about it
	policy  int    // the number of the policy that has accepted it; 0 is none, or that its key is gone
	target  string // appended again for this cursor, of this letter
	letter  uint64
}

type modelBlock struct{ first, last uint64 }

type modelPolicy struct {
	event.DedupPolicy
	number int
}

type modelProducer struct {
	last    uint64
	used    time.Time
	answers map[uint64]modelAnswer
}

type modelAnswer struct {
	print string
	text  string
}

type modelCursor struct {
	committed, generation uint64
	group                 *modelGroup
	types                 string // of its filter
}

func newModel() *model {
	return &model{met: map[string]int{}, window: time.Minute, first: 1, floor: 1, letters: newModelLetters(),
		producers: map[string]*modelProducer{}, cursors: map[string]*modelCursor{}, flows: map[string]string{},
		policies: map[event.Type]modelPolicy{},
		voters:   map[string]*modelVoter{"n0": {}, "n1": {}, "n2": {}}}
}

func identity(e event.Event) string {
	if e.DedupID != "" {
		return "id " + e.DedupID
	}
	return "content " + string(e.Type) + string(e.Payload)
}

// byPolicy returns by what the policy of its type compares an event, and that it decides about it.
func (m *model) byPolicy(e event.Event) (by string, decides bool) {
	p, set := m.gate[e.Type]
	if e.NoDedup || e.DedupID != "" || !set {
		return "", false
	}
	if p.Mode == event.DedupFields {
		var payload map[string]int
		_ = json.Unmarshal(e.Payload, &payload)
		some := false
		for _, name := range p.Fields {
			value, has := payload[name]
			some = some || has
			by += fmt.Sprintf("%s=%d %t ", name, value, has)
		}
		if some {
			return by, true
		}
	}
	return identity(e), p.Mode != event.DedupOff
}

// policyExpires removes the keys that have left the windows of their policies.
func (m *model) policyExpires() {
	for i := range m.events {
		old := &m.events[i]
		window := m.policies[old.event.Type].Window
		if window == 0 {
			window = m.window
		}
		if old.policy != 0 && !old.at.Add(window).After(m.now) {
			old.policy = 0
			m.met["key of a policy expired"]++
		}
	}
}

// policyKeys is how many keys the policies have.
func (m *model) policyKeys() (n int) {
	for _, e := range m.events {
		if e.policy != 0 && e.policy == m.policies[e.event.Type].number {
			n++
		}
	}
	return n
}

// setPolicy sets or removes a policy. One that compares by something else begins without keys.
func (m *model) setPolicy(c frame.DedupPolicySet) string {
	t := event.Type(c.Type)
	old, set := m.policies[t]
	switch {
	case c.Policy.Mode == "" && !set:
		return string(NotFound)
	case c.Policy.Mode == "":
		delete(m.policies, t)
		return ""
	case set && old.Mode == c.Policy.Mode && slices.Equal(old.Fields, c.Policy.Fields):
		m.met["policy with another window"]++
		m.policies[t] = modelPolicy{c.Policy, old.number}
		m.policyExpires()
	default:
		m.policyCount++
		m.policies[t] = modelPolicy{c.Policy, m.policyCount}
	}
	return ""
}

// earlier returns the offset of the event that e repeats.
func (m *model) earlier(e event.Event) (uint64, bool) {
	if by, decides := m.byPolicy(e); decides {
		for i, old := range m.events {
			if p := m.policies[e.Type].number; p != 0 && old.policy == p && old.event.Type == e.Type && old.by == by {
				m.met["duplicate by a policy"]++
				return uint64(i + 1), true
			}
		}
		return 0, false
	}
	for i := len(m.events); i > 0 && uint64(i) >= m.floor; i-- {
		old := m.events[i-1]
		if old.emitted || old.target != "" || old.event.NoDedup || old.by != "" || !old.at.Add(m.window).After(m.now) {
			continue
		}
		if identity(old.event) == identity(e) {
			return uint64(i), true
		}
	}
	return 0, false
}

// entry applies requests and answers each with a line of text.
func (m *model) entry(term uint64, leader string, at time.Time, requests []request) []string {
	if at.After(m.now) {
		m.now = at
	}
	m.expire()
	m.policyExpires()
	m.gate = map[event.Type]event.DedupPolicy{}
	for t, p := range m.policies {
		m.gate[t] = p.DedupPolicy
	}
	m.age()
	before := uint64(len(m.events))
	m.lead(term, leader)
	stored := uint64(len(m.events))
	var answers []string
	var trims []int
	for i, r := range requests {
		answers = append(answers, m.decide(r))
		if _, ok := r.command.(frame.Trim); ok && answers[i] == "" {
			trims = append(trims, i)
		}
	}
	if last := uint64(len(m.events)); last > stored {
		m.blocks = append(m.blocks, modelBlock{stored + 1, last})
	}
	if m.letters.stored > 0 {
		m.met["letters stored"]++
		m.late = append(m.late, event.DLQEventsStored)
		m.letters.stored = 0
	}
	for i, r := range requests {
		if c, ok := r.command.(frame.Redrive); ok && answers[i] == "" {
			answers[i] = m.redrive(c)
		}
	}
	m.emit(m.late...)
	m.late = nil
	for _, i := range trims {
		answers[i] = m.trim(requests[i].command.(frame.Trim), before)
	}
	return answers
}

// expire moves the floor past the blocks that have left the window.
func (m *model) expire() {
	for _, b := range m.blocks {
		if b.first >= m.floor && !m.events[b.first-1].at.Add(m.window).After(m.now) {
			m.floor = b.last + 1
		}
	}
}

func (m *model) lead(term uint64, leader string) {
	if term == m.term {
		return
	}
	if m.leader != "" {
		m.emit(event.LeaderLost, event.LeaderElected)
	} else {
		m.emit(event.LeaderElected)
	}
	m.term, m.leader = term, leader
}

// emit appends events of the cluster's own as one block.
func (m *model) emit(types ...event.Type) {
	if len(types) == 0 {
		return
	}
	from := uint64(len(m.events)) + 1
	for _, t := range types {
		m.events = append(m.events, modelEvent{event: event.Event{Type: t}, at: m.now, emitted: true})
	}
	m.blocks = append(m.blocks, modelBlock{from, uint64(len(m.events))})
}

// report takes in that one of three voters answers or does not.
func (m *model) report(c frame.VoterHealth) {
	v := m.voters[c.Voter]
	if v == nil || v.offline != c.Online || !v.changed.IsZero() && m.now.Sub(v.changed) < 5*time.Second {
		return
	}
	v.offline, v.changed = !c.Online, m.now
	kind, offline := event.VoterOnline, 0
	if v.offline {
		kind = event.VoterOffline
	}
	m.late = append(m.late, kind)
	for _, v := range m.voters {
		if v.offline {
			offline++
		}
	}
	if atRisk := offline > 0; atRisk != m.atRisk {
		m.atRisk = atRisk
		if atRisk {
			m.late = append(m.late, event.QuorumAtRisk, event.QuorumPriorityReconnect)
		} else {
			m.late = append(m.late, event.QuorumRestored)
		}
	}
}

func (m *model) decide(r request) string {
	switch c := r.command.(type) {
	case frame.Publish:
		return m.publish(c, r.events)
	case frame.CursorCreate:
		return m.create(c.Name, nil)
	case frame.GroupCreate:
		if c.Group.MaxPending > 50_000 {
			return string(Invalid)
		}
		return m.create(c.Name, &modelGroup{policy: c.Group})
	case frame.GroupSettle:
		return m.with(c.Name, func(cur *modelCursor) string { return m.settle(cur, c) })
	case frame.GroupDead:
		return m.with(c.Letter.Cursor, func(cur *modelCursor) string { return m.deadInGroup(cur, c) })
	case frame.CursorOpen:
		return m.alone(c.Name, func(cur *modelCursor) string { cur.generation++; return m.text(cur) })
	case frame.CursorChange:
		return m.alone(c.Name, func(cur *modelCursor) string {
			if types := strings.Join(c.Filter.Types, " "); types != cur.types {
				cur.types = types
				cur.generation++
			}
			return m.text(cur)
		})
	case frame.CursorSeek:
		return m.with(c.Name, func(cur *modelCursor) string { return m.seek(c.Name, cur, c.To) })
	case frame.CursorDelete:
		return m.with(c.Name, func(cur *modelCursor) string {
			delete(m.cursors, c.Name)
			m.revive(c.Name, math.MaxUint64)
			return m.text(cur)
		})
	case frame.CursorCommit:
		return m.alone(c.Name, func(cur *modelCursor) string { return m.commit(cur, c) })
	case frame.VoterHealth:
		m.report(c)
	case frame.DedupPolicySet:
		return m.setPolicy(c)
	case frame.SettingSet:
		m.set(c)
		return c.Value
	case frame.DeadLetter:
		return m.alone(c.Cursor, func(cur *modelCursor) string { return m.deadLetter(cur, c) })
	case frame.Redrive:
		if c.To != "" && m.cursors[c.To] == nil {
			return string(NotFound)
		}
	case frame.Purge:
		return m.purge(c)
	case frame.LetterImport:
		return m.importLetters(c)
	case frame.LetterKeep:
		return m.keepLetter(c)
	case frame.FlowPut:
		return m.putFlows(c)
	case frame.FlowRemove:
		if m.flows[c.Name] == "" {
			return string(NotFound)
		}
		delete(m.flows, c.Name)
	case frame.Trim:
		if c.Before > uint64(len(m.events))+1 {
			return string(PastTail)
		}
	}
	return ""
}

// putFlows adds all of them, or none where one leads from A to A.
func (m *model) putFlows(c frame.FlowPut) string {
	put := maps.Clone(m.flows)
	for _, f := range strings.Split(strings.Trim(string(c.Flows), "[]"), "},") {
		words := strings.Split(f, `"`)
		name, effect := words[3], words[9]
		if effect == "A" {
			return string(Invalid)
		}
		put[name] = effect
	}
	m.flows = put
	return ""
}

// checkFlows compares the flows that are registered with the model's.
func checkFlows(t tb, m *Machine, want map[string]string) {
	got := map[string]string{}
	for _, f := range m.Catalogue().Flows() {
		if f.Status == event.StatusRegistered {
			got[f.Name] = string(f.Edges[0][1])
		}
	}
	if !maps.Equal(got, want) {
		t.Fatalf("flows %v, want %v", got, want)
	}
}

func (m *model) set(c frame.SettingSet) {
	age, _ := time.ParseDuration(c.Value)
	switch c.Key {
	case "dlq.max_bytes":
		m.letters.maxBytes, _ = strconv.ParseUint(c.Value, 10, 64)
	case "dlq.max_age":
		m.letters.maxAge = age
	case "dlq.stale_after":
		m.letters.stale = age
	default:
		m.window = age
		m.expire()
		m.policyExpires()
	}
}

func (m *model) with(name string, do func(*modelCursor) string) string {
	if cur := m.cursors[name]; cur != nil {
		return do(cur)
	}
	return string(NotFound)
}

// alone is with for what a cursor of one reader takes and a group does not.
func (m *model) alone(name string, do func(*modelCursor) string) string {
	return m.with(name, func(cur *modelCursor) string {
		if cur.group != nil {
			return string(Invalid)
		}
		return do(cur)
	})
}

func (m *model) create(name string, group *modelGroup) string {
	if cur := m.cursors[name]; cur != nil {
		if cur.types != "" || (cur.group == nil) != (group == nil) ||
			(group != nil && cur.group.policy != group.policy) {
			return string(Exists)
		}
		return m.text(cur)
	}
	cur := &modelCursor{committed: m.first - 1}
	if group != nil {
		cur.group = group
		m.renew(cur)
	}
	m.cursors[name] = cur
	return m.text(cur)
}

// text describes a cursor; its gap is what is trimmed and not committed.
func (m *model) text(c *modelCursor) string {
	if c.committed+1 < m.first {
		return c.text(c.committed+1, m.first-1)
	}
	return c.text(0, 0)
}

func (c *modelCursor) text(gapFrom, gapTo uint64) string {
	text := fmt.Sprintf("committed %d generation %d gap %d-%d", c.committed, c.generation, gapFrom, gapTo)
	if c.group != nil {
		text += fmt.Sprintf(" reserved %d", c.group.reserved)
	}
	return text
}

func (m *model) commit(cur *modelCursor, c frame.CursorCommit) string {
	switch {
	case c.Generation != cur.generation:
		return string(Fenced)
	case c.Offset > uint64(len(m.events)):
		return string(PastTail)
	}
	cur.committed = max(cur.committed, c.Offset)
	m.resolve(c.Name, func(offset uint64) bool { return offset <= cur.committed })
	return m.text(cur)
}

func (m *model) seek(name string, cur *modelCursor, to frame.Position) string {
	switch {
	case to.Kind == frame.AtStart:
		cur.committed = m.first - 1
	case to.Kind == frame.AtEnd:
		cur.committed = uint64(len(m.events))
	case to.Offset > uint64(len(m.events))+1:
		return string(PastTail)
	default:
		cur.committed = max(to.Offset, 1) - 1
	}
	m.revive(name, cur.committed+1)
	if cur.group != nil {
		m.renew(cur)
	}
	return m.text(cur)
}

// trim removes whole blocks below c.Before, of those stored before this entry.
func (m *model) trim(c frame.Trim, stored uint64) string {
	want := c.Before
	if !c.Force {
		for _, cur := range m.cursors {
			want = min(want, cur.committed+1)
		}
	}
	first := m.first
	for _, b := range m.blocks {
		if b.first <= want && b.first <= stored {
			first = max(first, b.first)
		}
	}
	removed := first - m.first
	for name, cur := range m.cursors {
		if removed > 0 {
			m.revive(name, first)
		}
		if removed > 0 && cur.committed+1 < first {
			cur.passed(m, first)
		}
	}
	m.first = first
	return fmt.Sprintf("first %d removed %d", first, removed)
}

func (m *model) publish(c frame.Publish, events []event.Event) string {
	if c.Producer == "" {
		return m.place(events)
	}
	p := m.producers[c.Producer]
	if p != nil && !p.used.Add(15*time.Minute).After(m.now) {
		p = nil
	}
	print := ""
	for _, e := range events {
		print += fmt.Sprint(identity(e), string(e.Payload), e.NoDedup, ";")
	}
	switch {
	case c.Sequence == 0:
		return string(Invalid)
	case p == nil && c.Sequence != 1:
		return string(UnknownProducer)
	case p == nil:
		p = &modelProducer{answers: map[uint64]modelAnswer{}}
	case c.Sequence <= p.last && p.answers[c.Sequence].print != print:
		return string(Conflict)
	case c.Sequence <= p.last && p.answers[c.Sequence].text == string(Conflict):
		return string(Conflict)
	case c.Sequence <= p.last:
		return p.answers[c.Sequence].text + " replayed"
	case c.Sequence != p.last+1:
		return string(OutOfSequence)
	}
	m.producers[c.Producer] = p
	text := m.place(events)
	p.last, p.used = c.Sequence, m.now
	p.answers[c.Sequence] = modelAnswer{print, text}
	return text
}

// place appends all events, or none when a dedup id conflicts.
func (m *model) place(events []event.Event) string {
	before := len(m.events)
	text := "at"
	for _, e := range events {
		by, decides := m.byPolicy(e)
		if _, set := m.gate[e.Type]; set && !decides && !e.NoDedup && e.DedupID == "" { // the policy is off
			m.events = append(m.events, modelEvent{event: e, at: m.now, by: "off"})
			text += fmt.Sprintf(" %d", len(m.events))
			continue
		}
		if offset, repeated := m.earlier(e); repeated && !e.NoDedup {
			old := m.events[offset-1].event
			if !decides && string(old.Type)+string(old.Payload) != string(e.Type)+string(e.Payload) {
				m.events = m.events[:before]
				return string(Conflict)
			}
			text += fmt.Sprintf(" (%d)", offset)
			continue
		}
		policy := 0
		if p := m.policies[e.Type]; decides && p.Mode != event.DedupOff {
			policy = p.number
		}
		m.events = append(m.events, modelEvent{event: e, at: m.now, by: by, policy: policy})
		text += fmt.Sprintf(" %d", len(m.events))
	}
	return text
}

// describe puts a machine's answer into the model's words.
func describe(r request, got Result) string {
	switch {
	case got.Refusal != nil:
		return string(got.Refusal.Code)
	case got.Letters != nil:
		return got.Letters.text()
	case got.Letter != nil:
		return got.Letter.text() + " " + describe(r, Result{Cursor: got.Cursor})
	case got.Cursor != nil:
		c := modelCursor{committed: got.Cursor.Committed, generation: got.Cursor.Generation}
		if got.Cursor.Group != nil {
			c.group = &modelGroup{reserved: got.Cursor.Group.Reserved}
		}
		if gap := got.Cursor.Gap; gap != nil {
			return c.text(gap.From, gap.To)
		}
		return c.text(0, 0)
	case got.Trim != nil:
		return fmt.Sprintf("first %d removed %d", got.Trim.First, got.Trim.Removed)
	case got.Setting != nil:
		return got.Setting.Value
	case got.Role != nil:
		return fmt.Sprintf("held by %s, fence %d, %d wait, place %d", got.Role.Held.Holder, got.Role.Fence,
			got.Role.Waiting, got.Role.Place)
	case got.Scheduled != nil:
		return fmt.Sprintf("%s at %s, offset %d", got.Scheduled.ID, time.Unix(0, got.Scheduled.At).Sub(epoch),
			got.Scheduled.Offset)
	case got.View != nil:
		return fmt.Sprintf("%s generation %d, since %d, emitted %d", got.View.Name, got.View.Generation, got.View.Since,
			got.View.Emitted)
	case got.Token != nil:
		return describeToken(got.Token)
	case got.Allocation != nil:
		return fmt.Sprintf("fence %d, waits %t", got.Allocation.Fence, got.Allocation.Waits)
	case len(got.LostLeases) > 0:
		return fmt.Sprintf("lost %v", got.LostLeases)
	}
	if _, ok := r.command.(frame.Publish); !ok {
		return ""
	}
	text := "at"
	for _, p := range got.Offsets(len(r.events)) {
		if p.Duplicate {
			text += fmt.Sprintf(" (%d)", p.Offset)
		} else {
			text += fmt.Sprintf(" %d", p.Offset)
		}
	}
	if got.Replayed {
		text += " replayed"
	}
	return text
}

// history draws requests; it remembers enough to make retries and commits that
// mean something.
type history struct {
	sent map[string][]request // by producer
}

func (h *history) events(t *rapid.T) []event.Event {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) event.Event {
		n := rapid.IntRange(0, 12).Draw(t, "content")
		e := ev(n)
		if rapid.IntRange(0, 3).Draw(t, "other type") == 0 {
			e = event.New(event.ModelPromoted, fmt.Appendf(nil, `{"m": %d, "n": %d}`, n, n%3))
		}
		switch rapid.IntRange(0, 5).Draw(t, "dedup") {
		case 0:
			e = withID(e, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id"))
		case 1:
			e = noDedup(e)
		}
		if rapid.Bool().Draw(t, "traced") {
			e.Trace = event.Trace{TraceID: [16]byte{1}, SpanID: [8]byte{rapid.Uint8Range(1, 3).Draw(t, "span")}}
		}
		return e
	}), 1, 6).Draw(t, "events")
}

// Which commands histories are made of, as often as they stand here.
var commandKinds = strings.Fields(`
	publish settle letters create group settle letters open commit seek trim window produce produce produce
	delete voter change letters policy letters commit letters settle settle open group create settle letters settle
	publish flow`)

func (h *history) request(t *rapid.T, m *model, term uint64) request {
	tail := uint64(len(m.events))
	name := rapid.SampledFrom([]string{"x", "g", "h"}).Draw(t, "name")
	offset := rapid.Uint64Range(0, tail+2).Draw(t, "offset")
	switch rapid.SampledFrom(commandKinds).Draw(t, "kind") {
	case "create":
		return do(frame.CursorCreate{Name: mostly(t, "x", name)})
	case "group":
		return do(frame.GroupCreate{Name: mostly(t, rapid.SampledFrom([]string{"g", "h"}).Draw(t, "group"), name),
			Group: frame.GroupPolicy{MaxPending: rapid.SampledFrom([]uint64{0, 0, 0, 0, 7, 50_001}).Draw(t, "pending")}})
	case "open":
		return do(frame.CursorOpen{Name: mostly(t, "x", name)})
	case "commit":
		name := mostly(t, "x", name)
		offset, generation := likely(t, m, name, offset)
		return do(frame.CursorCommit{Name: name, Offset: offset, Generation: generation})
	case "seek":
		return do(frame.CursorSeek{
			Name: name,
			To:   frame.Position{Kind: frame.PositionKind(rapid.IntRange(0, 2).Draw(t, "to")), Offset: offset},
		})
	case "change":
		return do(frame.CursorChange{Name: mostly(t, "x", name),
			Filter: event.Filter{Types: rapid.SampledFrom([][]string{nil, {"training.*"}, {"model.*"}}).Draw(t, "types")}})
	case "trim":
		return do(frame.Trim{Before: offset, Force: rapid.Bool().Draw(t, "force")})
	case "window":
		return do(frame.SettingSet{
			Key:   "dedup.window",
			Value: rapid.SampledFrom([]string{"10s", "1m0s", "5m0s"}).Draw(t, "window"),
		})
	case "policy":
		return policyRequest(t)
	case "produce":
		return h.produced(t)
	case "delete":
		return do(frame.CursorDelete{Name: name})
	case "voter":
		voter := rapid.SampledFrom([]string{"n0", "n1", "n2", "n9"}).Draw(t, "voter")
		return do(frame.VoterHealth{Voter: voter, Online: rapid.Bool().Draw(t, "online"), LastContactMs: 1})
	case "flow":
		if rapid.IntRange(0, 2).Draw(t, "remove") == 0 {
			return do(frame.FlowRemove{Name: rapid.SampledFrom([]string{"f", "g"}).Draw(t, "flow")})
		}
		one := func() string {
			return fmt.Sprintf(`{"name":"%s","edges":[["A","%s"]]}`, rapid.SampledFrom([]string{"f", "g"}).Draw(t, "flow"),
				rapid.SampledFrom([]string{"B", "C", "D", "A"}).Draw(t, "effect"))
		}
		return do(frame.FlowPut{Flows: []byte("[" + one() + "," + one() + "]")})
	case "letters":
		return letterRequest(t, m, name, offset)
	case "settle":
		return groupRequest(t, m, mostly(t, rapid.SampledFrom([]string{"g", "h"}).Draw(t, "group"), name), offset, term)
	default:
		return publish(h.events(t)...)
	}
}

// policyRequest sets or removes the policy of one of the two types that events have.
func policyRequest(t *rapid.T) request {
	c := frame.DedupPolicySet{Type: string(event.ModelPromoted)}
	if rapid.IntRange(0, 4).Draw(t, "the other type") == 0 {
		c.Type = string(event.TrainingCompleted)
	}
	window := rapid.SampledFrom([]time.Duration{time.Hour, 0, 10 * time.Second}).Draw(t, "window")
	switch rapid.IntRange(0, 6).Draw(t, "mode") {
	case 0, 1, 2:
		fields := rapid.SampledFrom([][]string{{"n"}, {"x"}, {"n", "x"}}).Draw(t, "fields")
		c.Policy = event.DedupPolicy{Mode: event.DedupFields, Fields: fields, Window: window}
	case 3, 4:
		c.Policy = event.DedupPolicy{Mode: event.DedupContent, Window: window}
	case 5:
		c.Policy = event.DedupPolicy{Mode: event.DedupOff}
	}
	return do(c)
}

// mostly draws the name that a command is meant for, or now and then any.
func mostly(t *rapid.T, meant, any string) string {
	if rapid.IntRange(0, 9).Draw(t, "meant") == 9 {
		return any
	}
	return meant
}

func (h *history) produced(t *rapid.T) request {
	id := rapid.SampledFrom([]string{"p", "q"}).Draw(t, "producer")
	if sent := h.sent[id]; len(sent) > 0 && rapid.Bool().Draw(t, "retry") {
		return sent[rapid.IntRange(max(0, len(sent)-5), len(sent)-1).Draw(t, "which")]
	}
	sequence := uint64(len(h.sent[id]) + 1)
	if rapid.IntRange(0, 9).Draw(t, "skip") == 0 {
		return produce(id, rapid.Uint64Range(0, sequence+3).Draw(t, "sequence"), h.events(t)...)
	}
	r := produce(id, sequence, h.events(t)...)
	h.sent[id] = append(h.sent[id], r)
	return r
}

// threeVoters puts raft's configuration and the members into the log, so that it reports
// their health. A leader is reported first.
func threeVoters(t tb, m *Machine, model *model) {
	var members []ConfigMember
	var known []request
	for _, id := range slices.Sorted(maps.Keys(model.voters)) {
		members = append(members, ConfigMember{ID: id, Addr: id, Voter: true})
		known = append(known, do(frame.MemberPut{Member: frame.Member{ID: id, FeatureLevel: FeatureLevel}}))
	}
	// TestStallsAreReportedInTurns has them.
	known = append(known, do(frame.SettingSet{Key: "cursor.stall_after", Value: "0s"}))
	if err := m.ApplyConfiguration(1, 1, []byte("raw"), members); err != nil {
		t.Fatalf("configuration: %v", err)
	}
	model.now = epoch
	model.lead(1, "n1")
	applyTo(t, m, entryOf(2, 1, "n1", epoch, known...))
}

func encode(results []Result) (list []string) {
	for _, r := range results {
		list = append(list, string(r.Encode()))
	}
	return list
}

func dump(t tb, m *Machine) []byte {
	var b bytes.Buffer
	if err := m.Dump(&b); err != nil {
		t.Fatalf("dump: %v", err)
	}
	return b.Bytes()
}

// checkLog compares what can be read with the model's events.
func checkLog(t tb, m *Machine, want *model) {
	got := all(t, m)
	if first, last := m.Log().Bounds(); first != want.first || last != uint64(len(want.events)) {
		t.Fatalf("bounds %d to %d, want %d to %d", first, last, want.first, len(want.events))
	}
	offset := want.first
	for _, e := range got {
		for want.events[offset-1].target != "" {
			offset++
		}
		w := want.events[offset-1]
		samePayload := w.emitted || bytes.Equal(e.Payload, w.event.Payload)
		sameTrace := w.emitted || e.Trace == w.event.Trace
		if e.Offset != offset || e.Type != w.event.Type || !samePayload || !sameTrace || !e.AppendedAt.Equal(w.at) {
			t.Fatalf("event %d: %d %s %s %q at %s, want %s %s %q at %s", offset, e.Offset, e.Type, e.Payload, e.Trace,
				e.AppendedAt, w.event.Type, w.event.Payload, w.event.Trace, w.at)
		}
		offset++
	}
}
