package group

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/internal/frame"
)

// TestMain has rapid run more and longer histories than its defaults; flags on the command
// line override that.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": "4000", "rapid.steps": "80"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	m.Run()
}

// TestCoordinatorAgreesWithModel runs random histories of members, failures, silence and
// new leaders, and checks every decision against a model that knows the rules and no
// queues. In the end every event is settled.
func TestCoordinatorAgreesWithModel(t *testing.T) {
	did := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, did)
		t.Repeat(map[string]func(*rapid.T){
			"feed":     w.feed,
			"join":     w.join,
			"take":     w.take,
			"ack":      w.ack,
			"nack":     w.nack,
			"progress": w.progress,
			"wait":     w.wait,
			"settle":   w.settle,
			"letters":  w.storeLetters,
			"leave":    w.leave,
			"leader":   w.newLeader,
			"trim":     w.trim,
			"":         w.check,
		})
		w.drain()
	})
	for _, what := range []string{
		"delivered", "redelivered", "acked", "refused", "revoked", "expired", "silent", "dead",
		"claimed", "claimed after a failure", "unconfirmed nack", "not claimed", "new leader",
		"batch failed", "outcome unknown", "trimmed", "of a key, ahead",
	} {
		if did[what] == 0 && !testing.Short() { // with -short there are a fifth of the histories
			t.Errorf("no history had this: %s", what)
		}
	}
	t.Log(did)
}

// modelEvent is an event as the model sees it.
type modelEvent struct {
	offset  uint64
	key     string
	matches bool
	settled bool // as the coordinator knows
	dying   bool
	holder  string
	by      string    // who settled it, until the log has that
	until   time.Time // when its delivery expires
	after   time.Time // not delivered before
	count   uint64
	failed  bool
	kept    uint64 // deliveries of the failure that is to be in the log; 0 is none
	fails   uint64 // count as it was when it failed
	waits   bool   // for the member that an earlier leader delivered it to
}

// client is a member's own view.
type client struct {
	m       *Member
	session uint64
	seen    time.Time
	live    bool
	holding map[uint64]bool
}

type world struct {
	t       *rapid.T
	did     map[string]int
	c       *Coordinator
	p       Policy
	now     time.Time
	events  []*modelEvent // offset 1 first
	clients map[string]*client
	// What the log has.
	stored struct {
		committed, reserved uint64
		done                map[uint64]bool
		retries             map[uint64]frame.GroupRetry
	}
	scanned uint64
	lost    map[string]map[uint64]bool // that members are not notified of yet
	sent    []uint64                   // settled and to be in the log
}

func newWorld(t *rapid.T, did map[string]int) *world {
	w := &world{
		t: t, did: did, now: time.Unix(1_000_000, 0),
		clients: map[string]*client{}, lost: map[string]map[uint64]bool{},
		p: Policy{
			AckWait:    30 * time.Second,
			Session:    10 * time.Second,
			MaxDeliver: rapid.SampledFrom([]uint64{0, 2, 3}).Draw(t, "max_deliver"),
			MaxPending: rapid.SampledFrom([]uint64{3, 20, 1000}).Draw(t, "max_pending"),
		},
	}
	w.stored.done, w.stored.retries = map[uint64]bool{}, map[uint64]frame.GroupRetry{}
	w.c = New(w.now, State{}, w.p, 0)
	return w
}

// at returns the event at an offset.
func (w *world) at(offset uint64) *modelEvent { return w.events[offset-1] }

// feed appends events to the log and feeds what there is room for.
func (w *world) feed(t *rapid.T) {
	for range rapid.IntRange(0, 12).Draw(t, "n") {
		w.events = append(w.events, &modelEvent{
			offset:  uint64(len(w.events) + 1),
			key:     rapid.SampledFrom([]string{"", "", "a", "b", "c"}).Draw(t, "key"),
			matches: rapid.IntRange(0, 3).Draw(t, "matches") > 0,
		})
	}
	w.feedRoom()
}

// feedRoom feeds what there is room for, and whatever the room, what was reserved before this leader.
func (w *world) feedRoom() {
	room := w.c.Room()
	var list []Event
	next := w.c.Next()
	for ; int(next) <= len(w.events) && (len(list) < room || next <= w.c.loaded.reserved); next++ {
		if e := w.at(next); e.matches {
			list = append(list, Event{Offset: e.offset, Key: e.key, Bytes: 10})
		}
	}
	w.c.Feed(list, next)
	w.scanned = max(w.scanned, next-1)
}

// anyone draws a member, and skips the step where there is none.
func (w *world) anyone(t *rapid.T) (string, *client) {
	names := slices.Sorted(maps.Keys(w.clients))
	if len(names) == 0 {
		t.Skip("no members")
	}
	name := rapid.SampledFrom(names).Draw(t, "member")
	return name, w.clients[name]
}

// enter begins an exchange of a member. The coordinator must know where its session has ended.
func (w *world) enter(name string) *Member {
	cl := w.clients[name]
	m, err := w.c.Enter(w.now, name, cl.session)
	if (err == nil) != cl.live {
		w.t.Fatalf("%s: session %d live=%v: %v", name, cl.session, cl.live, err)
	}
	if err == nil {
		cl.seen = w.now
	}
	return m
}

func (w *world) join(t *rapid.T) {
	name := rapid.SampledFrom([]string{"w1", "w2", "w3"}).Draw(t, "member")
	cl := w.clients[name]
	if cl == nil {
		cl = &client{holding: map[uint64]bool{}}
		w.clients[name] = cl
	}
	if rapid.IntRange(0, 3).Draw(t, "forgets") == 0 {
		clear(cl.holding)
	}
	w.rejoin(name, cl, w.someNacks(cl))
}

// someNacks are nacks of what a member holds, whether it sent them before or not.
func (w *world) someNacks(cl *client) (list []Nack) {
	if rapid.Bool().Draw(w.t, "nacks") {
		for _, offset := range slices.Sorted(maps.Keys(cl.holding)) {
			if rapid.IntRange(0, 2).Draw(w.t, "nacked") == 0 {
				list = append(list, w.someNack(offset))
			}
		}
	}
	return list
}

// rejoin begins a session with what a member holds and what it nacks.
func (w *world) rejoin(name string, cl *client, nacks []Nack) {
	var holding []frame.Range
	for _, offset := range slices.Sorted(maps.Keys(cl.holding)) {
		holding = frame.AppendRange(holding, frame.Range{From: offset, To: offset})
	}
	unconfirmed := map[uint64]Nack{}
	for _, n := range nacks {
		unconfirmed[n.Offset] = n
	}
	delete(w.lost, name)
	if cl.live { // what it does not name fails, the last event first
		for _, e := range slices.Backward(w.events) {
			if e.holder == name && !cl.holding[e.offset] {
				w.fail(e, w.now, false, true)
			}
		}
	}
	for _, offset := range slices.Sorted(maps.Keys(cl.holding)) {
		if e := w.at(offset); e.holder == name {
			continue
		} else if n, nacked := unconfirmed[offset]; nacked && mayBeIn(n, e) {
			w.lose(name, offset)
			w.did["unconfirmed nack"]++
		} else if w.claimable(e, name) {
			w.did["claimed"]++
			if e.failed {
				w.did["claimed after a failure"]++
			}
			if e.count == e.fails {
				e.count++
			}
			e.holder, e.until, e.waits = name, w.now.Add(w.p.AckWait), false
			for _, other := range w.sameKey(e) {
				if other.waits {
					other.after, other.waits = time.Time{}, false
				}
			}
		} else {
			w.lose(name, offset)
			w.did["not claimed"]++
		}
	}
	m, err := w.c.Join(w.now, name, holding, nacks)
	if err != nil {
		w.t.Fatal(err)
	}
	cl.m, cl.session, cl.live, cl.seen = m, m.Session, true, w.now
	for _, n := range nacks {
		w.nackOne(name, cl, n)
	}
}

// mayBeIn reports whether the last failure of an event may be this nack.
func mayBeIn(n Nack, e *modelEvent) bool {
	named := n.Delivery == 0 || n.Delivery <= e.fails
	return n.Released || (e.failed && named && !n.Dead)
}

func (w *world) claimable(e *modelEvent, name string) bool {
	if !e.matches || e.settled || e.dying || e.holder != "" || e.count == 0 {
		return false
	}
	for _, other := range w.sameKey(e) {
		openBefore := other.offset < e.offset && w.isOpen(other) && other.holder != name
		pinned := other.by != "" && other.by != name
		if openBefore || pinned {
			return false
		}
	}
	return true
}

func (w *world) isOpen(e *modelEvent) bool { return !e.settled && !e.dying }

func (w *world) sameKey(e *modelEvent) (list []*modelEvent) {
	for _, other := range w.events {
		if e.key != "" && other.key == e.key && other.matches && other != e {
			list = append(list, other)
		}
	}
	return list
}

func (w *world) lose(name string, offset uint64) {
	if w.lost[name] == nil {
		w.lost[name] = map[uint64]bool{}
	}
	w.lost[name][offset] = true
	w.did["revoked"]++
}

// fail ends a delivery that counts. revokes takes the later ones of its key.
func (w *world) fail(e *modelEvent, after time.Time, kept, revokes bool) {
	holder := e.holder
	e.holder = ""
	if w.p.MaxDeliver > 0 && e.count >= w.p.MaxDeliver {
		e.dying = true
		w.did["dead"]++
		return
	}
	e.after, e.waits = after, false
	if kept {
		e.failed, e.kept, e.fails = true, e.count, e.count
	}
	if revokes {
		w.revokeAfter(e, holder)
	}
}

// revokeAfter revokes what holder has of the event's key after it. These deliveries do not count.
func (w *world) revokeAfter(e *modelEvent, holder string) {
	for _, later := range w.sameKey(e) {
		if later.offset > e.offset && later.holder == holder {
			later.holder, later.after, later.waits = "", time.Time{}, false
			later.count--
			w.lose(holder, later.offset)
		}
	}
}

func (w *world) take(t *rapid.T) {
	name, cl := w.anyone(t)
	want := rapid.IntRange(1, 10).Draw(t, "want")
	w.takeFor(name, cl, want)
}

func (w *world) takeFor(name string, cl *client, want int) int {
	m := w.enter(name)
	if m == nil {
		return 0
	}
	w.notifyLost(name, cl)
	ahead := rapid.IntRange(0, 2).Draw(w.t, "ahead") > 0
	list := w.c.Take(w.now, m, Demand{Events: want, Bytes: 1 << 20, Units: want, Ahead: ahead}, nil)
	if len(list) > want {
		w.t.Fatalf("%d events, %d were wanted", len(list), want)
	}
	for _, d := range list {
		e := w.at(d.Offset)
		w.mayGet(e, name)
		if ahead && w.holdsOfKey(e, name) {
			w.did["of a key, ahead"]++
		} else if w.holdsOfKey(e, name) {
			w.t.Fatalf("offset %d of key %s goes to %s, which holds one of it and does not work ahead",
				e.offset, e.key, name)
		}
		e.count++
		if d.Count != e.count {
			w.t.Fatalf("offset %d: delivery %d, want %d", d.Offset, d.Count, e.count)
		}
		e.holder, e.until, e.waits = name, w.now.Add(w.p.AckWait), false
		cl.holding[d.Offset] = true
		w.did["delivered"]++
		if d.Count > 1 {
			w.did["redelivered"]++
		}
	}
	return len(list)
}

// mayGet checks a delivery against the rules.
func (w *world) mayGet(e *modelEvent, name string) {
	switch {
	case !e.matches || !w.isOpen(e):
		w.t.Fatalf("offset %d cannot be delivered: %+v", e.offset, e)
	case e.offset > w.stored.reserved:
		w.t.Fatalf("offset %d is delivered, the log has %d reserved", e.offset, w.stored.reserved)
	case e.holder != "":
		w.t.Fatalf("offset %d is delivered to %s and held by %s", e.offset, name, e.holder)
	case e.kept > 0 && w.stored.retries[e.offset].Deliveries < e.kept:
		w.t.Fatalf("offset %d is redelivered before the log has its failure: %+v", e.offset, e)
	case e.after.After(w.now):
		w.t.Fatalf("offset %d is delivered at %s, it waits until %s", e.offset, w.now, e.after)
	}
	for _, other := range w.sameKey(e) {
		openBefore := other.offset < e.offset && !other.settled && other.holder != name
		heldAfter := other.offset > e.offset && other.holder != ""
		if openBefore || heldAfter {
			w.t.Fatalf("offset %d of key %s goes to %s, %d is with %q",
				e.offset, e.key, name, other.offset, other.holder)
		}
		if other.by != "" && other.by != name {
			w.t.Fatalf("offset %d of key %s goes to %s before the log has what %s settled: %d",
				e.offset, e.key, name, other.by, other.offset)
		}
	}
}

func (w *world) holdsOfKey(e *modelEvent, name string) bool {
	return slices.ContainsFunc(w.sameKey(e), func(other *modelEvent) bool { return other.holder == name })
}

func (w *world) notifyLost(name string, cl *client) {
	got := map[uint64]bool{}
	for _, r := range cl.m.Lost() {
		for offset := r.From; offset <= r.To; offset++ {
			got[offset] = true
			delete(cl.holding, offset)
		}
	}
	if !maps.Equal(got, w.lost[name]) && len(got)+len(w.lost[name]) > 0 {
		w.t.Fatalf("%s is notified that it lost %v, it lost %v", name, got, w.lost[name])
	}
	delete(w.lost, name)
}

func (w *world) someRange(t *rapid.T) frame.Range {
	if len(w.events) == 0 {
		t.Skip("no events")
	}
	from := rapid.Uint64Range(1, uint64(len(w.events))).Draw(t, "from")
	return frame.Range{From: from, To: from + rapid.SampledFrom([]uint64{0, 0, 3, 50, 1 << 63}).Draw(t, "more")}
}

func (w *world) ack(t *rapid.T) {
	name, cl := w.anyone(t)
	r := w.someRange(t)
	if m := w.enter(name); m != nil {
		w.ackRange(name, cl, m, r)
	}
}

func (w *world) ackRange(name string, cl *client, m *Member, r frame.Range) {
	var refused []frame.Range
	for offset := r.From; offset <= r.To && offset <= uint64(len(w.events)); offset++ {
		delete(cl.holding, offset)
		if e := w.at(offset); e.holder == name {
			e.holder, e.settled, e.by = "", true, name
			w.sent = append(w.sent, offset)
			w.did["acked"]++
		} else {
			refused = frame.AppendRange(refused, frame.Range{From: offset, To: offset})
			w.did["refused"]++
		}
	}
	if end := uint64(len(w.events)) + 1; r.To >= end {
		refused = frame.AppendRange(refused, frame.Range{From: max(r.From, end), To: r.To})
	}
	if got := w.c.Ack(m, r, nil); !slices.Equal(got, refused) {
		w.t.Fatalf("ack of %v by %s: refused %v, want %v", r, name, got, refused)
	}
}

func (w *world) nack(t *rapid.T) {
	name, cl := w.anyone(t)
	offset := w.someRange(t).From
	if held := slices.Sorted(maps.Keys(cl.holding)); len(held) > 0 && rapid.IntRange(0, 5).Draw(t, "own") > 0 {
		offset = rapid.SampledFrom(held).Draw(t, "held")
	}
	nack := w.someNack(offset)
	if w.enter(name) != nil {
		w.nackOne(name, cl, nack)
	}
}

func (w *world) someNack(offset uint64) Nack {
	return Nack{
		Offset:   offset,
		Delivery: rapid.Uint64Range(0, 3).Draw(w.t, "delivery"),
		Error:    "e",
		Delay:    rapid.SampledFrom([]time.Duration{0, 0, 5 * time.Second}).Draw(w.t, "delay"),
		Dead:     rapid.IntRange(0, 9).Draw(w.t, "dead") == 0,
		Released: rapid.IntRange(0, 5).Draw(w.t, "released") == 0,
	}
}

func (w *world) nackOne(name string, cl *client, nack Nack) {
	e := w.at(nack.Offset)
	if got := w.c.Nack(w.now, cl.m, nack); got != (e.holder == name) {
		w.t.Fatalf("nack of %d by %s, held by %q: %v", e.offset, name, e.holder, got)
	}
	delete(cl.holding, e.offset)
	if e.holder != name {
		return
	}
	switch {
	case nack.Released:
		e.holder, e.after, e.waits = "", time.Time{}, false
		e.count--
		w.revokeAfter(e, name)
	case nack.Dead:
		e.holder, e.dying = "", true
	default:
		w.fail(e, w.now.Add(nack.Delay), true, true)
	}
}

func (w *world) progress(t *rapid.T) {
	name, _ := w.anyone(t)
	if m := w.enter(name); m != nil {
		r := w.someRange(t)
		w.c.Progress(w.now, m, r, nil)
		for offset := r.From; offset <= r.To && offset <= uint64(len(w.events)); offset++ {
			if e := w.at(offset); e.holder == name {
				e.until = w.now.Add(w.p.AckWait)
			}
		}
	}
}

func (w *world) wait(t *rapid.T) {
	waits := []time.Duration{time.Second, 4 * time.Second, 9 * time.Second, 11 * time.Second, 31 * time.Second}
	w.pass(rapid.SampledFrom(waits).Draw(t, "wait"))
	for _, name := range slices.Sorted(maps.Keys(w.clients)) { // some keep their sessions
		if w.clients[name].live && rapid.Bool().Draw(t, "speaks") {
			w.enter(name)
		}
	}
}

// pass lets time pass: first deliveries expire, then sessions.
func (w *world) pass(d time.Duration) {
	w.now = w.now.Add(d)
	w.c.Tick(w.now)
	for _, e := range w.events {
		if e.holder != "" && !e.until.After(w.now) {
			w.lose(e.holder, e.offset)
			w.did["expired"]++
			w.fail(e, time.Time{}, true, true)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.clients)) {
		if cl := w.clients[name]; cl.live && !cl.seen.Add(w.p.Session).After(w.now) {
			w.gone(name, cl)
			w.did["silent"]++
		}
	}
}

func (w *world) gone(name string, cl *client) {
	cl.live = false
	delete(w.lost, name)
	for _, e := range w.events {
		if e.holder == name {
			w.fail(e, time.Time{}, false, false)
		}
		if e.by == name {
			e.by = ""
		}
	}
}

func (w *world) leave(t *rapid.T) {
	name, cl := w.anyone(t)
	m := w.enter(name)
	if m == nil {
		return
	}
	w.c.Leave(m)
	cl.live = false
	delete(w.lost, name)
	clear(cl.holding)
	for _, e := range w.events {
		if e.holder == name {
			e.holder, e.after = "", time.Time{}
			e.count--
		}
	}
}

func (w *world) settle(t *rapid.T) {
	fates := []string{"", "", "", "batch failed", "outcome unknown"}
	reserve, all := rapid.IntRange(0, 20).Draw(t, "reserve"), rapid.Bool().Draw(t, "all")
	w.settleAs(reserve, all, rapid.SampledFrom(fates).Draw(t, "fate"))
}

// settleAs stores the next ack batch, or has it fail. Once it is stored, the log must have
// everything that was settled before.
func (w *world) settleAs(reserve int, all bool, fate string) {
	s, some := w.c.NextAckBatch(reserve, all)
	if !some {
		if len(w.sent) > 0 {
			w.t.Fatalf("%v are settled, and there is no ack batch", w.sent)
		}
		return
	}
	open := uint64(0)
	for _, e := range w.events[:min(s.Reserved, w.scanned)] {
		if e.matches && !e.settled {
			open++
		}
	}
	if s.Open != open {
		w.t.Fatalf("%d are reported open up to %d of %d, and %d are", s.Open, s.Reserved, w.scanned, open)
	}
	w.did[fate]++
	if fate != "batch failed" {
		w.store(s)
	}
	w.c.AckBatchDone(fate == "")
	if fate != "" {
		return
	}
	for _, offset := range w.sent {
		if !w.stored.done[offset] {
			w.t.Fatalf("offset %d was settled, the log does not have it: %+v", offset, s)
		}
	}
	w.sent = nil
	for _, e := range w.events {
		if e.settled {
			e.by = ""
		}
		if e.kept > 0 && w.isOpen(e) && w.stored.retries[e.offset].Deliveries < e.kept {
			w.t.Fatalf("offset %d has failed %d times, the log has %+v", e.offset, e.kept, w.stored.retries[e.offset])
		}
	}
}

// store does what the state machine does.
func (w *world) store(s AckBatch) {
	above := uint64(0)
	for _, r := range s.Done {
		if r.From <= above || r.To < r.From || r.To > w.scanned {
			w.t.Fatalf("ranges %v, read up to %d", s.Done, w.scanned)
		}
		above = r.To + 1
		for offset := r.From; offset <= r.To; offset++ {
			if e := w.at(offset); e.matches && !e.settled {
				w.t.Fatalf("offset %d is reported settled: %+v", offset, e)
			}
			w.stored.done[offset] = true
			delete(w.stored.retries, offset)
		}
	}
	for w.stored.done[w.stored.committed+1] {
		w.stored.committed++
	}
	if s.Reserved > uint64(len(w.events)) {
		w.t.Fatalf("%d is reserved past the tail", s.Reserved)
	}
	w.stored.reserved = max(w.stored.reserved, s.Reserved, w.stored.committed)
	for _, r := range s.Retries {
		if w.stored.done[r.Offset] || r.Offset > w.stored.reserved {
			w.t.Fatalf("a retry of %d", r.Offset)
		}
		if r.Deliveries >= w.stored.retries[r.Offset].Deliveries {
			w.stored.retries[r.Offset] = r
		}
	}
}

func (w *world) storeLetters(t *rapid.T) {
	w.storeAllLetters(rapid.IntRange(0, 3).Draw(t, "fails") > 0)
}

func (w *world) storeAllLetters(ok bool) {
	for _, d := range w.c.Deaths() {
		e := w.at(d.Offset)
		if !e.dying || d.Attempts != e.count || d.Handler == "" {
			w.t.Fatalf("%+v is dead: %+v", d, e)
		}
		if ok {
			w.stored.done[d.Offset] = true
			e.settled, e.dying, e.by = true, false, ""
			delete(w.stored.retries, d.Offset)
		}
		w.c.LetterStored(d.Offset, ok)
	}
	for w.stored.done[w.stored.committed+1] {
		w.stored.committed++
	}
}

func (w *world) trim(t *rapid.T) {
	if len(w.events) == 0 || rapid.IntRange(0, 9).Draw(t, "rare") > 0 {
		t.Skip("nothing to trim")
	}
	to := rapid.Uint64Range(1, uint64(len(w.events))).Draw(t, "to")
	w.c.Trim(to)
	w.scanned = max(w.scanned, to)
	for _, e := range w.events[:to] {
		if e.holder != "" {
			w.lose(e.holder, e.offset)
		}
		if e.matches && !e.settled {
			e.settled, e.dying, e.holder = true, false, ""
		}
		e.by = ""
		e.matches = false // it is not in the log any more
	}
	w.did["trimmed"]++
}

// newLeader resumes from what the log has. Members notice, and some join again.
func (w *world) newLeader(t *rapid.T) {
	w.did["new leader"]++
	s := State{Committed: w.stored.committed, Reserved: w.stored.reserved}
	for _, offset := range slices.Sorted(maps.Keys(w.stored.done)) {
		if offset > s.Committed {
			s.Done = frame.AppendRange(s.Done, frame.Range{From: offset, To: offset})
		}
	}
	for _, offset := range slices.Sorted(maps.Keys(w.stored.retries)) {
		s.Retries = append(s.Retries, w.stored.retries[offset])
	}
	w.c = New(w.now, s, w.p, w.c.members.last)
	w.scanned, w.sent, w.lost = w.stored.committed, nil, map[string]map[uint64]bool{}
	for _, e := range w.events {
		*e = modelEvent{offset: e.offset, key: e.key, matches: e.matches, settled: w.stored.done[e.offset]}
		if r, failed := w.stored.retries[e.offset]; failed {
			e.count, e.fails, e.failed = r.Deliveries, r.Deliveries, true
			e.after, e.waits = w.now.Add(w.p.Session), true
			if r.After.After(e.after) {
				e.after, e.waits = r.After, false
			}
		} else if e.offset <= w.stored.reserved && !e.settled && e.matches {
			e.count, e.after, e.waits = 1, w.now.Add(w.p.Session), true
		}
	}
	for _, cl := range w.clients {
		cl.live = false
	}
	w.feedRoom()
	if w.c.Loading() {
		t.Fatal("an event that was delivered is not loaded")
	}
	for _, name := range slices.Sorted(maps.Keys(w.clients)) {
		if rapid.Bool().Draw(t, "joins again") {
			w.rejoin(name, w.clients[name], w.someNacks(w.clients[name]))
		}
	}
}

// check compares the figures with the model.
func (w *world) check(t *rapid.T) {
	held := map[string]int{}
	total := 0
	for _, e := range w.events {
		if e.holder != "" {
			held[e.holder]++
			total++
		}
	}
	if got := w.c.Counts(); got.Held != total {
		t.Fatalf("%d are held, %d by the model", got.Held, total)
	}
	for _, s := range w.c.Sessions(w.now) {
		if s.Held != held[s.Name] {
			t.Fatalf("%s holds %d, %d by the model", s.Name, s.Held, held[s.Name])
		}
	}
	if w.c.slots.len() > int(w.p.MaxPending) && !w.c.Loading() &&
		w.c.slots.at(w.c.slots.next-1).offset > w.c.loaded.reserved {
		t.Fatalf("%d events are in memory, %d may be", w.c.slots.len(), w.p.MaxPending)
	}
}

// drain has two members handle everything: no event is lost, and none waits for ever.
func (w *world) drain() {
	for round := 0; ; round++ {
		if round > 20*len(w.events)+100 {
			w.t.Fatalf("nobody gets these events: %s", w.left())
		}
		w.feedRoom()
		w.settleAs(20, true, "")
		for _, name := range []string{"w1", "w2"} {
			cl := w.clients[name]
			if cl == nil || !cl.live {
				cl = &client{holding: map[uint64]bool{}}
				w.clients[name] = cl
				w.rejoin(name, cl, nil)
			}
			w.takeFor(name, cl, 10)
			if m := w.enter(name); m != nil && len(w.events) > 0 {
				for _, offset := range slices.Sorted(maps.Keys(cl.holding)) {
					w.ackRange(name, cl, m, frame.Range{From: offset, To: offset})
				}
			}
		}
		w.storeAllLetters(true)
		w.settleAs(0, true, "")
		if w.stored.committed == uint64(len(w.events)) {
			return
		}
		w.pass(3 * time.Second)
	}
}

func (w *world) left() (text string) {
	for _, e := range w.events {
		if !w.stored.done[e.offset] {
			text += fmt.Sprintf("%+v ", *e)
		}
	}
	return text
}
