package fsm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/longtest"
)

// copies are three machines that are given the same entries: the first runs on, the second
// is restarted at random, the third lags at random and then installs a snapshot of
// the first.
type copies struct {
	fs     vfs.FS
	m      [3]*Machine
	used   int
	lags   bool // the third does
	counts map[string]int
}

var copyDirs = [3]string{"runs", "restarts", "installs"}

func (c *copies) open(t tb, i int) {
	m, err := Open(Options{Dir: copyDirs[i], FS: c.fs})
	if err != nil {
		t.Fatalf("open %s: %v", copyDirs[i], err)
	}
	c.m[i] = m
}

func (c *copies) close() {
	for i, m := range c.m {
		if m != nil {
			m.Close()
		}
		c.m[i] = nil
	}
}

// empty has the machines as if they were just opened. After a failure they are made again.
func (c *copies) empty(t tb) {
	if c.used++; c.m[0] == nil || c.used == historiesPerMachine {
		c.close()
		c.used, c.fs = 0, vfs.NewMem()
		for i := range c.m {
			c.open(t, i)
		}
	} else {
		for _, m := range c.m {
			clearKeys(t, m.db)
			become(m, newState())
		}
	}
	c.lags = false
}

// trouble does to the second and third copy what happens to nodes.
func (c *copies) trouble(t *rapid.T) {
	some := []string{"reload", "reload", "reload", "restart", "lags", "lags", "lags"}
	switch rapid.SampledFrom(append(make([]string, 12), some...)).Draw(t, "trouble") {
	case "reload":
		c.counts["state loaded again"]++
		reload(t, c.m[1])
	case "restart":
		c.counts["restart"]++
		if err := c.m[1].Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
		c.open(t, 1)
	case "lags":
		if c.lags {
			c.install(t)
		} else {
			c.lags = true
		}
	}
}

// install brings the third copy to where the first is.
func (c *copies) install(t tb) {
	c.counts["snapshot"]++
	if _, err := c.m[0].Checkpoint("incoming"); err != nil {
		t.Fatalf("checkpoint: %v", err)
	}
	if err := c.m[2].Swap("incoming"); err != nil {
		t.Fatalf("swap: %v", err)
	}
	c.lags = false
}

// each calls apply with the copies that are given entries now.
func (c *copies) each(apply func(m *Machine)) {
	for i, m := range c.m {
		if i != 2 || !c.lags {
			apply(m)
		}
	}
}

// agree requires that all copies are the same.
func (c *copies) agree(t tb, index uint64) {
	_, want := c.m[0].Digest()
	for i, m := range c.m[1:] {
		if i == 1 && c.lags {
			continue
		}
		if _, got := m.Digest(); got != want {
			t.Fatalf("entry %d: the copy that %s has another digest", index, copyDirs[i+1])
		}
		if got, want := m.s.ranks.bytes, c.m[0].s.ranks.bytes; got != want {
			t.Fatalf("entry %d: the cursors of the copy that %s take %d bytes, not %d", index, copyDirs[i+1], got, want)
		}
		if got, want := throttled(m), throttled(c.m[0]); !slices.Equal(got, want) {
			t.Fatalf("entry %d: in the copy that %s %q are throttled, not %q", index, copyDirs[i+1], got, want)
		}
	}
}

// Whatever a history has in it, configurations, clock steps, settings, types, feature levels
// and what expires: a copy that was restarted, and one that installed a snapshot, decide
// every entry as the one that runs on does.
func TestCopiesDecideAlikeWhateverHappensToThem(t *testing.T) {
	checks := "200" // a fifth with -short
	if longtest.Enabled() {
		checks = "800"
	}
	setFlag(t, "rapid.checks", checks)
	c := &copies{counts: map[string]int{}}
	defer c.close()
	rapid.Check(t, func(t *rapid.T) {
		whole := false
		defer func() {
			if !whole {
				c.close()
			}
		}()
		c.empty(t)
		h := &anything{copies: c, t: t, now: epoch, term: 1, sequences: map[string]uint64{}}
		h.begin()
		for range rapid.IntRange(5, 60).Draw(t, "entries") {
			c.trouble(t)
			h.entry()
		}
		if c.lags {
			c.install(t)
		}
		reload(t, c.m[1])
		for _, m := range c.m[1:] {
			if !slices.Equal(stored(t, c.m[0].db), stored(t, m.db)) {
				t.Fatalf("dumps differ:\n%s\n%s", dump(t, c.m[0]), dump(t, m))
			}
		}
		whole = true
	})
	for _, what := range slices.Sorted(maps.Keys(c.counts)) {
		t.Logf("%7d %s", c.counts[what], what)
	}
	for _, what := range []string{
		"snapshot", "restart", "configuration",
		"accepted frame.ClockStep", "accepted frame.Register", "accepted frame.CursorCommit",
		"accepted frame.FlowPut", "accepted frame.FlowRemove",
		"trimmed", "passed", "held", "gap exact", "cursor expired", "CURSOR_STALLED", "VOTER_PROMOTED", "DLQ_EVENTS_PURGED",
		"accepted frame.LagReport", "accepted frame.Act", "ADMIN_ACTION",
	} {
		if c.counts[what] == 0 && longtest.Enabled() {
			t.Errorf("%s was not met", what)
		}
	}
}

// anything draws histories of all that there is.
type anything struct {
	*copies
	t         *rapid.T
	now       time.Time
	index     uint64
	term      uint64
	sequences map[string]uint64 // of producers
	log       []event.Event     // offset is the place, from 1
	voters    int
	gate      *event.DedupPolicies // of the node that checks events
}

func pick[T any](h *anything, what string, from ...T) T {
	return rapid.SampledFrom(from).Draw(h.t, what)
}

func (h *anything) begin() {
	h.apply(do(frame.TermStart{ClusterID: "c"}), do(frame.SettingSet{Key: "producer.ttl", Value: "10m0s"}))
	h.configure()
	if rapid.IntRange(0, 4).Draw(h.t, "young cluster") > 0 {
		h.apply(do(frame.MemberPut{Member: frame.Member{ID: "n1", FeatureLevel: FeatureLevel}}))
	}
}

// entry draws one.
func (h *anything) entry() {
	if rapid.IntRange(0, 9).Draw(h.t, "configuration") == 0 {
		h.configure()
		return
	}
	h.now = h.now.Add(pick(h, "wait", 0, 0, time.Millisecond, 700*time.Millisecond, time.Second, 10*time.Second,
		time.Minute, 11*time.Minute, time.Hour))
	var requests []request
	if rapid.IntRange(0, 9).Draw(h.t, "election") == 0 {
		h.term++
		requests = append(requests, do(frame.TermStart{ClusterID: "c", Cause: "timeout", Silence: time.Second}))
		if rapid.Bool().Draw(h.t, "with a step") {
			requests = append(requests, h.step())
		}
	}
	for range rapid.IntRange(0, 6).Draw(h.t, "requests") {
		requests = append(requests, h.request())
	}
	h.apply(requests...)
}

func (h *anything) apply(requests ...request) {
	h.index++
	// A node that checks events may not know of the newest policies yet.
	if current := h.m[0].Policy().Dedup; rapid.IntRange(0, 4).Draw(h.t, "stale gate") > 0 {
		h.gate = current
	}
	e := gated(h.gate, h.index, h.term, fmt.Sprintf("n%d", 1+h.term%3), h.now, requests...)
	h.take(func(m *Machine) {
		for i, r := range applyTo(h.t, m, e) {
			if m == h.m[0] && r.Refusal == nil {
				h.counts[fmt.Sprintf("accepted %T", requests[i].command)]++
			}
		}
	})
}

func (h *anything) configure() {
	h.index++
	h.voters = pick(h, "voters", 1, 3, 4)
	var members []ConfigMember
	for i := range 4 {
		id := fmt.Sprintf("n%d", i+1)
		members = append(members, ConfigMember{ID: id, Addr: id, Voter: i < h.voters})
	}
	h.counts["configuration"]++
	h.take(func(m *Machine) {
		if err := m.ApplyConfiguration(h.index, h.term, fmt.Appendf(nil, "%d", h.voters), members); err != nil {
			h.t.Fatalf("configuration %d: %v", h.index, err)
		}
	})
}

// take has the copies apply an entry, and counts what it led to.
func (h *anything) take(apply func(m *Machine)) {
	m := h.m[0]
	cursors, first, last := len(m.s.cursors), m.s.meta.First, m.s.meta.Last
	h.each(apply)
	h.agree(h.t, h.index)
	if m.s.meta.First > first {
		h.counts["trimmed"]++
		if least, _, some := m.s.ranks.byPassed.Min(); some && least.rank+1 < m.s.meta.First {
			h.counts["passed"]++
		}
	} else if m.s.meta.NotHeld != (holdMark{}) && len(m.s.cursors) > 0 {
		h.counts["held"]++
	}
	if len(m.s.cursors) < cursors {
		h.counts["cursor expired"]++ // or deleted
	}
	for offset := last + 1; offset <= m.s.meta.Last; offset++ {
		e, err := m.Log().Get(offset)
		if err != nil {
			h.t.Fatalf("event %d: %v", offset, err)
		}
		h.counts[string(e.Type)]++
		h.log = append(h.log, e)
	}
	h.checkGaps()
}

// checkGaps compares the gap of each cursor with the events that there were.
func (h *anything) checkGaps() {
	for _, c := range h.m[0].Cursors() {
		if c.Gap == nil {
			continue
		}
		group, _ := h.m[0].Group(c.Name)
		lost, all := map[string]uint64{}, uint64(0)
		for _, e := range h.log[c.Gap.From-1 : c.Gap.To] {
			if c.Group == nil || !group.Settled(e.Offset) {
				all++
				if e.Target == "" {
					lost[string(e.Type)]++
				}
			}
		}
		counted := c.Gap.Uncounted
		for name, n := range c.Gap.Types {
			counted += n
			if n > lost[name] {
				h.t.Fatalf("entry %d: %s lost %d of %s, its gap has %d: %+v", h.index, c.Name, lost[name], name, n, c.Gap)
			}
		}
		least := uint64(0)
		for _, n := range lost {
			least += n
		}
		if counted < least || counted > all {
			h.t.Fatalf("entry %d: %s lost %d events, %d with those that were appended again, its gap has %d: %+v",
				h.index, c.Name, least, all, counted, c.Gap)
		}
		if maps.Equal(lost, c.Gap.Types) {
			h.counts["gap exact"]++
		} else {
			h.counts["gap with events not counted by type"]++
		}
	}
}

func (h *anything) step() request {
	return do(frame.ClockStep{
		To:     h.now.Add(pick(h, "step", time.Second, 10*time.Minute, 30*time.Hour)),
		Agreed: []string{"n1", "n2"},
	})
}

func (h *anything) events() []event.Event {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) event.Event {
		e := ev(rapid.IntRange(0, 20).Draw(t, "content"))
		e.Type = rapid.SampledFrom([]event.Type{
			event.TrainingCompleted, event.TrainingStarted, "HOUSE_BUILT",
		}).Draw(t, "type")
		e.NoDedup = rapid.Bool().Draw(t, "no dedup")
		return e
	}), 1, 5).Draw(h.t, "events")
}

func (h *anything) offset(what string) uint64 {
	s := h.m[0].s
	return rapid.Uint64Range(max(s.meta.First, 3)-2, s.meta.Last+1).Draw(h.t, what)
}

// generation is most often that of the cursor.
func (h *anything) generation(name string) uint64 {
	c := h.m[0].s.cursors[name]
	if c == nil || rapid.IntRange(0, 9).Draw(h.t, "another generation") == 0 {
		return rapid.Uint64Range(0, 3).Draw(h.t, "generation")
	}
	return c.Generation
}

func (h *anything) dead(name string) frame.DeadLetter {
	e := ev(rapid.IntRange(0, 20).Draw(h.t, "content"))
	return frame.DeadLetter{
		Cursor:     name,
		Generation: h.generation(name),
		Offset:     h.offset("dead"),
		Attempts:   1,
		Error:      "boom",
		Event:      frame.EncodeCopy(&e),
	}
}

func (h *anything) letters() []uint64 {
	return rapid.SliceOfN(rapid.Uint64Range(1, h.m[0].s.meta.Letters.Next+1), 1, 4).Draw(h.t, "letters")
}

// What is set in histories: bounds that are soon reached.
var someSettings = map[string][]string{
	"retention.events": {"", "5", "20"}, "retention.bytes": {"", "2000"}, "retention.age": {"", "1m", "1h"},
	"cursor.hold_events": {"", "3", "30"}, "cursor.hold_bytes": {"", "1500"}, "cursor.hold_for": {"", "30s", "20m"},
	"cursor.idle_expiry": {"", "10m", "2h"}, "cursor.stall_after": {"", "30s", "0s"}, "cursor.max": {"", "4"},
	"dedup.window": {"", "5s"}, "dedup.policy_max_keys": {"", "3"},
	"dlq.max_age": {"", "15m"}, "dlq.stale_after": {"", "1m"}, "dlq.max_bytes": {"", "2000"},
	"producer.ttl": {"", "10m"}, "backpressure.lag": {"", "x=5/1,g=9/0", "*=4/2"},
	"health.hold_down": {"", "0s"}, "clients.max": {"", "1"},
}

var anyCommands = strings.Fields(`
	publish publish publish publish produce create create open commit commit commit commit seek change delete
	group group settle settle deadof dead dead redrive purge trim retain set set set
	policy policy policy register member remove step voter vote outage client pressure lag overdue act tick`)

// request draws one. Some of what operators may do is done as an act of theirs.
func (h *anything) request() request {
	r := h.command()
	switch r.command.(type) {
	case frame.CursorSeek, frame.CursorDelete, frame.CursorChange, frame.Redrive, frame.Purge, frame.Trim,
		frame.SettingSet, frame.DedupPolicySet, frame.Register, frame.FlowPut, frame.FlowRemove:
		if by := pick(h, "by", "", "", "ada", "bob"); by != "" {
			r.command = frame.Act{By: by, Action: "some.act", Of: r.command}
		}
	}
	return r
}

func (h *anything) command() request {
	plain, group := pick(h, "cursor", "x", "y", "z"), pick(h, "group", "g", "h")
	policy := frame.CursorPolicy{HoldEvents: pick(h, "hold", uint64(0), 0, 2, 40)}
	start := frame.Position{Kind: frame.PositionKind(rapid.IntRange(0, 2).Draw(h.t, "start")), Offset: h.offset("at")}
	filter := event.Filter{Types: pick(h, "types", nil, nil, []string{"training.*"}, []string{"model.*"})}
	switch pick(h, "command", anyCommands...) {
	case "publish":
		return publish(h.events()...)
	case "produce":
		id := pick(h, "producer", "p", "q")
		h.sequences[id] += pick(h, "next", uint64(1), 1, 1, 0, 2)
		return produce(id, h.sequences[id], h.events()...)
	case "create":
		return do(frame.CursorCreate{Name: plain, Start: start, Filter: filter, Policy: policy})
	case "open":
		return do(frame.CursorOpen{Name: plain, Opener: pick(h, "opener", "", "a", "b")})
	case "commit":
		return do(frame.CursorCommit{Name: plain, Offset: h.offset("commit"), Generation: h.generation(plain)})
	case "seek":
		return do(frame.CursorSeek{Name: pick(h, "seek", plain, group), To: start, Seeker: pick(h, "seeker", "", "a", "b")})
	case "change":
		return do(frame.CursorChange{Name: plain, Filter: filter, Policy: policy})
	case "delete":
		return do(frame.CursorDelete{Name: pick(h, "delete", plain, group)})
	case "group":
		return do(frame.GroupCreate{Name: group, Start: start, Filter: filter, Policy: policy})
	case "settle":
		return do(h.settlement(group))
	case "deadof":
		return do(frame.GroupDead{Term: h.term, Letter: h.dead(group)})
	case "dead":
		return do(h.dead(plain))
	case "redrive":
		return do(frame.Redrive{Letters: h.letters(), To: pick(h, "to", "", "", plain)})
	case "purge":
		return do(frame.Purge{Letters: h.letters()})
	case "trim":
		return do(frame.Trim{Before: h.offset("before"), Force: rapid.Bool().Draw(h.t, "force")})
	case "retain":
		return do(frame.Trim{Retention: true})
	default:
		return h.clusterRequest()
	}
}

func (h *anything) settlement(group string) frame.GroupSettle {
	s := frame.GroupSettle{Name: group, Term: h.term, Generation: h.generation(group), Open: 1}
	next := h.offset("settle")
	for range rapid.IntRange(0, 3).Draw(h.t, "ranges") {
		to := next + rapid.Uint64Range(0, 2).Draw(h.t, "length")
		s.Done = append(s.Done, frame.Range{From: next, To: to})
		next = to + 2
	}
	for offset := range rapid.IntRange(0, 3).Draw(h.t, "retries") {
		s.Retries = append(s.Retries, frame.GroupRetry{
			Offset:     next + uint64(offset),
			Deliveries: 1,
			After:      h.now,
			Error:      "boom",
		})
	}
	s.Reserved = next
	return s
}

func (h *anything) clusterRequest() request {
	member := pick(h, "member", "n1", "n2", "n3", "n4")
	switch pick(h, "cluster command", "policy", "set", "set", "set", "register", "flow", "no flow", "member", "remove",
		"step", "voter", "vote", "outage", "client", "pressure", "lag", "overdue", "act", "tick") {
	case "set":
		key := pick(h, "key", slices.Sorted(maps.Keys(someSettings))...)
		return do(frame.SettingSet{Key: key, Value: pick(h, "value", someSettings[key]...)})
	case "policy":
		c := frame.DedupPolicySet{Type: string(pick(h, "type", event.TrainingCompleted, event.TrainingStarted))}
		c.Policy.Mode = pick(h, "mode", "", event.DedupOff, event.DedupContent, event.DedupFields, event.DedupFields)
		if c.Policy.Mode == event.DedupFields {
			c.Policy.Fields = pick(h, "fields", []string{"n"}, []string{"x"})
		}
		if c.Policy.Mode != "" && c.Policy.Mode != event.DedupOff {
			c.Policy.Window = pick(h, "window", 0, 5*time.Second, time.Hour)
		}
		return do(c)
	case "register":
		return do(frame.Register{Definitions: fmt.Appendf(nil,
			`[{"name": "HOUSE_%s", "value": "house_%[1]s", "category": "house"}]`, pick(h, "type", "BUILT", "SOLD"))})
	case "flow":
		return do(frame.FlowPut{Flows: fmt.Appendf(nil,
			`[{"name": "%s", "edges": [["HOUSE_BUILT", "HOUSE_SOLD"]], "run_by": ["street"]}]`,
			pick(h, "flow", "f", "g"))})
	case "no flow":
		return do(frame.FlowRemove{Name: pick(h, "flow", "f", "g")})
	case "member":
		return do(frame.MemberPut{Member: frame.Member{
			ID:           member,
			FeatureLevel: pick(h, "level", uint32(FeatureLevel), FeatureLevel, 1, 2, 3),
		}})
	case "remove":
		return do(frame.MemberRemove{ID: member})
	case "step":
		return h.step()
	case "voter":
		return do(frame.VoterHealth{Voter: member, Online: rapid.Bool().Draw(h.t, "online"), LastContactMs: 1})
	case "vote":
		return do(frame.MemberVote{ID: member, Wanted: rapid.Bool().Draw(h.t, "wanted"), Reason: "operator"})
	case "outage":
		began := h.now.Add(-time.Minute)
		return do(frame.OutageViews{Views: []election.View{{
			Voter:   member,
			Journal: "j",
			Kind:    "lost",
			Seq:     h.index,
			Began:   began,
			Ended:   h.now,
			Term:    h.term,
			Leader:  "n1",
		}}})
	case "act":
		return do(frame.Act{By: "ada", Action: "backup", Outcome: pick(h, "outcome", ActStarted, ActFailed, ActDone)})
	case "client":
		return do(frame.ClientPut{ID: pick(h, "client", "a", "b"), TTL: MinClientTTL,
			Subscriptions: make([]frame.ClientSubscription, rapid.IntRange(0, 1).Draw(h.t, "subscriptions"))})
	case "pressure":
		return do(frame.Pressure{Active: rapid.Bool().Draw(h.t, "active"), Requests: 7, Bytes: 1 << 20})
	case "lag":
		c := frame.LagReport{Cursor: pick(h, "lagging", "x", "y", "g"), Lag: rapid.Uint64Range(0, 10).Draw(h.t, "lag")}
		if cur := h.m[0].s.cursors[c.Cursor]; cur != nil {
			c.Created = cur.Created.UnixNano()
		}
		return do(c)
	case "overdue":
		return do(frame.ChainOverdue{
			CorrelationID: pick(h, "run", "r", "s"),
			Flow:          "f",
			From:          "A",
			FromOffset:    1,
			Missing:       "B",
			Since:         h.now.Add(-time.Hour),
			Deadline:      time.Minute,
		})
	default:
		return do(frame.Tick{})
	}
}
