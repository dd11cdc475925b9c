package election

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/event"
)

var names = []string{"n1", "n2", "n3", "n4", "n5"}

func lasting(t *rapid.T, least, most time.Duration, label string) time.Duration {
	return time.Duration(rapid.Int64Range(int64(least), int64(most)).Draw(t, label))
}

// However voters flap and join and leave, one is reported at most once in a hold-down,
// online and offline in turns; and the quorum is at risk and is not, in turns.
func TestFlappingIsReportedOnceAHoldDown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, at, hold := Health{}, start, lasting(t, time.Second, 10*time.Second, "hold-down")
		h.Configure(at, names[:rapid.IntRange(1, 5).Draw(t, "voters")], nil)
		changed, online, risk := map[string]time.Time{}, map[string]bool{}, false
		for range rapid.IntRange(1, 100).Draw(t, "reports") {
			at = at.Add(lasting(t, 0, 3*time.Second, "pause"))
			var emitted []event.Event
			if rapid.IntRange(0, 9).Draw(t, "what") == 0 {
				voters := names[:rapid.IntRange(1, 5).Draw(t, "voters")]
				emitted = h.Configure(at, voters, func(string) string { return "" })
			} else {
				emitted = h.Report(at, VoterReport{
					Voter:         rapid.SampledFrom(names).Draw(t, "voter"),
					Online:        rapid.Bool().Draw(t, "online"),
					LastContactMs: 1,
				}, hold)
			}
			for _, e := range emitted {
				p := fields(e)
				id, _ := p["voter_id"].(string)
				switch e.Type {
				case event.VoterPromoted, event.VoterDemoted: // a new vote begins a new history
					delete(changed, id)
					online[id] = true
				case event.VoterOnline, event.VoterOffline:
					if last, known := changed[id]; known && at.Sub(last) < hold {
						t.Fatalf("%s %s after %v, the hold-down is %v", e.Type, id, at.Sub(last), hold)
					}
					now := e.Type == event.VoterOnline
					if was, known := online[id]; known && was == now {
						t.Fatalf("%s %s twice", e.Type, id)
					}
					changed[id], online[id] = at, now
				case event.QuorumAtRisk, event.QuorumRestored:
					if now := e.Type == event.QuorumAtRisk; now == risk {
						t.Fatalf("%s twice", e.Type)
					}
					risk = !risk
				}
			}
		}
	})
}

// A voter's own view: losses and returns in turns, a loss as soon as the majority has not
// answered for as long as an answer counts, and never where it has or somebody leads.
func TestTheQuorumTrackerIsRightAtEachObservation(t *testing.T) {
	const look = 100 * time.Millisecond
	rapid.Check(t, func(t *rapid.T) {
		c := QuorumConfig{
			Reach:      1500 * time.Millisecond,
			Leaderless: 5 * time.Second,
			Grace:      5 * time.Second,
			Hold:       time.Second,
		}
		o, at := NewQuorumTracker(start, c), start
		answered := make([]time.Time, rapid.IntRange(1, 4).Draw(t, "others"))
		lost, formed, led, heard := false, false, start, time.Time{}
		for range rapid.IntRange(1, 40).Draw(t, "phases") {
			up := rapid.SliceOfN(rapid.Bool(), len(answered), len(answered)).Draw(t, "up")
			leader := rapid.Bool().Draw(t, "leader")
			for range rapid.IntRange(1, 30).Draw(t, "looks") {
				at = at.Add(look)
				for i := range answered {
					if up[i] {
						answered[i] = at
					}
				}
				newest := slices.SortedFunc(slices.Values(answered), func(a, b time.Time) int { return b.Compare(a) })
				majority := newest[(len(answered)+1)/2-1]
				seen := Observation{Others: answered, Leader: leader}
				if leader {
					led, heard = at, at
					seen.Heard = at
				}
				inReach := at.Sub(latest(majority, heard)) < c.Reach
				formed = formed || (inReach && leader)
				for _, change := range o.Observe(at, seen) {
					wrong := change.Kind == TransitionStalled
					switch change.Kind {
					case TransitionLost:
						wrong = lost || (inReach && at.Sub(led) < c.Leaderless)
					case TransitionRestored:
						wrong = !lost || !inReach || !leader
					}
					if wrong {
						t.Fatalf("%v: change %d, lost %v, in reach %v, leader %v", at.Sub(start), change.Kind, lost, inReach, leader)
					}
					lost = (lost && change.Kind != TransitionRestored) || change.Kind == TransitionLost
				}
				overdue := !lost && !inReach && (formed || at.Sub(start) >= c.Grace)
				if _, says := o.Lost(); says != lost || overdue {
					t.Fatalf("%v: lost %v, in reach %v, formed %v", at.Sub(start), says, inReach, formed)
				}
			}
		}
	})
}

// A member is reachable as long as its last answer counts, and steady only after as many
// answers as misses are too many.
func TestDetectorCountsAnswers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, at, run, last := NewDetector(time.Second, 3), start, 0, time.Time{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			at = at.Add(lasting(t, 0, 4*time.Second, "pause"))
			fresh := !last.IsZero() && at.Sub(last) < d.Reach()
			if d.Reachable(at) != fresh || d.Steady(at) != (fresh && run >= 3) {
				t.Fatalf("reachable %v, steady %v after %d answers, the last one %v ago",
					d.Reachable(at), d.Steady(at), run, at.Sub(last))
			}
			if rapid.Bool().Draw(t, "answers") {
				if !fresh {
					run = 0
				}
				run, last = run+1, at
				d.Answered(at)
			}
		}
	})
}

// Of a long pause between two readings a part counts, and of a shorter one all of it.
func TestThePauseClockLeavesOutPauses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 300 * time.Millisecond
		now, ran := start, start
		w := NewPauseClock(now, most)
		for range rapid.IntRange(1, 60).Draw(t, "looks") {
			pause := lasting(t, 0, 2*time.Second, "pause")
			now, ran = now.Add(pause), ran.Add(min(pause, most))
			if got := w.At(now); !got.Equal(ran) {
				t.Fatalf("%v after %v of it: %v, want %v", now.Sub(start), pause, got.Sub(start), ran.Sub(start))
			}
			if before := now.Add(-lasting(t, 0, time.Second, "earlier")); !w.At(before).Equal(ran.Add(before.Sub(now))) {
				t.Fatal("an earlier moment moved the clock")
			}
		}
	})
}

// anything is a command of journals that may contradict each other.
func anything(t *rapid.T, at time.Time, seq *uint64) (e Evidence) {
	moment := func() time.Time { return at.Add(-lasting(t, 0, time.Minute, "ago")) }
	pair := func() (time.Time, time.Time) {
		a, b := moment(), moment()
		return earliest(a, b), latest(a, b)
	}
	for range rapid.IntRange(0, 6).Draw(t, "views") {
		*seq++
		v := View{
			Voter: rapid.SampledFrom(names).Draw(t, "voter"),
			Seq:   *seq,
			Term:  rapid.Uint64Range(1, 9).Draw(t, "term"),
			Kind:  rapid.SampledFrom([]string{ViewLost, ViewLost, ViewStalled, ViewDown, ViewLease}).Draw(t, "kind"),
		}
		v.Journal = "j" + v.Voter
		v.Began, v.Ended = pair()
		if rapid.Bool().Draw(t, "regained") {
			v.Regained = v.Began.Add(v.Ended.Sub(v.Began) / 2)
		}
		e.Views = append(e.Views, v)
	}
	for range rapid.IntRange(0, 3).Draw(t, "ups") {
		u := Up{Voter: rapid.SampledFrom(names).Draw(t, "voter")}
		u.Before, u.Since = pair()
		e.Up = append(e.Up, u)
	}
	for range rapid.IntRange(0, 4).Draw(t, "led") {
		s := Span{Term: rapid.Uint64Range(1, 9).Draw(t, "term"), Leader: rapid.SampledFrom(names).Draw(t, "leader")}
		s.From, s.To = pair()
		e.Led = append(e.Led, s)
	}
	return e
}

// shuffled is the same evidence in another order; who led last stays the last.
func shuffled(t *rapid.T, e Evidence) Evidence {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))
	out := Evidence{Views: slices.Clone(e.Views), Up: slices.Clone(e.Up), Led: slices.Clone(e.Led)}
	rng.Shuffle(len(out.Views), func(i, j int) { out.Views[i], out.Views[j] = out.Views[j], out.Views[i] })
	rng.Shuffle(len(out.Up), func(i, j int) { out.Up[i], out.Up[j] = out.Up[j], out.Up[i] })
	return out
}

func words(events []event.Event) (list []string) {
	for _, e := range events {
		list = append(list, fmt.Sprintf("%s %s", e.Type, e.Payload))
	}
	return list
}

func text(t *rapid.T, h *Health) string {
	raw, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// Whatever the journals hold: the order within a command does not matter, the same records
// again emit nothing, and what is kept stays bounded and is read back from its text.
func TestReconcileTakesAnyJournals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, at, seq := Health{}, start, uint64(0)
		h.Configure(at, names[:rapid.SampledFrom([]int{1, 2, 3, 5}).Draw(t, "voters")], nil)
		for term := range rapid.Uint64Range(1, 20).Draw(t, "commands") {
			at = at.Add(lasting(t, 0, time.Minute, "pause"))
			if rapid.Bool().Draw(t, "election") {
				before := Span{Term: term + 1, Leader: "n2", From: at.Add(-20 * time.Second)}
				before.To = at.Add(-lasting(t, 0, 20*time.Second, "silence"))
				h.NewTerm(term+2, "n1", at, before)
			}
			e := anything(t, at, &seq)
			other := h.Clone()
			got, same := words(h.Reconcile(e)), words(other.Reconcile(shuffled(t, e)))
			if diff := cmp.Diff(got, same); diff != "" || text(t, &h) != text(t, &other) {
				t.Fatalf("in another order:\n%s", diff)
			}
			if again := words(h.Reconcile(e)); len(again) > 0 {
				t.Fatalf("emitted again: %v", again)
			}
			var back Health
			if err := json.Unmarshal([]byte(text(t, &h)), &back); err != nil || text(t, &back) != text(t, &h) {
				t.Fatalf("%v: %s", err, text(t, &h))
			}
		}
	})
}

func TestHealthStaysBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine, whose memory is measured")
	}
	h, rng := Health{}, rand.New(rand.NewPCG(1, 2))
	h.Configure(start, names, nil)
	largest := 0
	for i := range 3000 {
		at := start.Add(time.Duration(i) * 20 * time.Second)
		h.NewTerm(uint64(i+2), names[i%5], at, Span{
			Term:   uint64(i + 1),
			Leader: names[(i+4)%5],
			From:   at.Add(-18 * time.Second),
			To:     at.Add(-10 * time.Second),
		})
		e := Evidence{Led: []Span{{Term: uint64(i + 2), Leader: names[i%5], From: at, To: at.Add(time.Second)}}}
		for v, id := range names {
			e.Views = append(e.Views, View{
				Voter:   id,
				Journal: fmt.Sprint(id, i/10),
				Seq:     uint64(i*10 + v + 1),
				Kind:    ViewLost,
				Began:   at.Add(-10 * time.Second),
				Ended:   at.Add(time.Second),
			})
			gone := fmt.Sprint("gone", rng.IntN(100))
			e.Up = append(e.Up, Up{Voter: gone, Before: at.Add(-5 * time.Second), Since: at})
		}
		before := h.Incidents
		h.Reconcile(e)
		if h.Incidents != before+1 {
			t.Fatalf("outage %d was reported %d times", i, h.Incidents-before)
		}
		raw, _ := json.Marshal(h)
		largest = max(largest, len(raw))
	}
	if largest > 128<<10 {
		t.Errorf("the state takes %d bytes", largest)
	}
}

// TestEachOutageIsReportedOnce runs a world: leaders that lead, outages of all
// voters or as many as it takes, voters that are cut off alone. Each voter has its own clock,
// and hands its journal in when the leader reaches it.
func TestEachOutageIsReportedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(1, 8).Draw(t, "outages") {
			w.lead(lasting(t, 3*time.Second, time.Minute, "led"), rapid.Bool().Draw(t, "alone"))
			w.outage(lasting(t, 6*time.Second, time.Minute, "outage"))
			w.handIn(true)
		}
		w.lead(10*time.Second, false)
		w.handIn(false)
		w.handIn(false)
		if len(w.reported) != len(w.outages) {
			t.Fatalf("%d outages, reported are %v\n%v", len(w.outages), w.reported, w.outages)
		}
		for i, o := range w.outages {
			got := w.reported[i]
			if got.Began.Sub(o.From).Abs() > 3*time.Second || got.Ended.Sub(o.To).Abs() > time.Second {
				t.Fatalf("outage %d from %v to %v is reported from %v to %v",
					i, o.From.Sub(start), o.To.Sub(start), got.Began.Sub(start), got.Ended.Sub(start))
			}
		}
	})
}

// world is a cluster as it was, and the journals that its voters have not handed in.
type world struct {
	t        *rapid.T
	h        Health
	ids      []string
	skew     map[string]time.Duration // of a voter's clock
	now      time.Time
	term     uint64
	leader   string
	elected  time.Time
	seq      uint64            // of the newest record of any journal
	pending  map[string][]View // by voter: not handed in yet
	outages  []Span            // as they were
	reported []Outage          // as the log has them
}

func newWorld(t *rapid.T) *world {
	w := &world{
		t:       t,
		ids:     names[:rapid.SampledFrom([]int{3, 5}).Draw(t, "voters")],
		skew:    map[string]time.Duration{},
		now:     start,
		term:    1,
		leader:  "n1",
		elected: start,
		pending: map[string][]View{},
	}
	for _, id := range w.ids {
		w.skew[id] = lasting(t, -100*time.Millisecond, 100*time.Millisecond, "skew")
	}
	w.h.Configure(start, w.ids, nil)
	w.h.NewTerm(1, w.leader, start, Span{})
	return w
}

func (w *world) journal(id, kind string, from, to, regained time.Time) {
	w.seq++
	v := View{
		Voter:   id,
		Journal: "j" + id,
		Seq:     w.seq,
		Kind:    kind,
		Began:   from.Add(w.skew[id]),
		Ended:   to.Add(w.skew[id]),
		Term:    w.term,
		Cause:   CauseUnreachable,
	}
	if !regained.IsZero() {
		v.Regained = regained.Add(w.skew[id])
	}
	w.pending[id] = append(w.pending[id], v)
}

// lead is a time with a quorum; a minority may be away.
func (w *world) lead(d time.Duration, alone bool) {
	if alone {
		for _, id := range w.others()[:len(w.ids)-len(w.ids)/2-1] {
			kind := rapid.SampledFrom([]string{ViewLost, ViewDown}).Draw(w.t, "kind")
			w.journal(id, kind, w.now.Add(d/4), w.now.Add(d/2), time.Time{})
		}
	}
	w.now = w.now.Add(d)
}

func (w *world) others() []string {
	return slices.DeleteFunc(slices.Clone(w.ids), func(id string) bool { return id == w.leader })
}

// outage blocks as many as it takes or more, of whom one sees it, and elects somebody a
// moment after it is over.
func (w *world) outage(d time.Duration) {
	ids := rapid.Permutation(w.ids).Draw(w.t, "blocked")
	ids = ids[:rapid.IntRange(len(ids)/2+1, len(ids)).Draw(w.t, "how many")]
	over, until := w.now.Add(d), w.now.Add(d+lasting(w.t, 100*time.Millisecond, 3*time.Second, "election"))
	for i, id := range ids {
		from := w.now.Add(-lasting(w.t, 0, 500*time.Millisecond, "last answer"))
		switch kind := rapid.SampledFrom([]string{ViewLost, ViewDown, ViewStalled}).Draw(w.t, "kind"); {
		case i == 0 || kind == ViewLost:
			w.journal(id, ViewLost, from, until.Add(lasting(w.t, 0, 300*time.Millisecond, "noticed")), over)
		default:
			w.journal(id, kind, from, over, time.Time{})
		}
	}
	last := Span{Term: w.term, Leader: w.leader, From: w.elected}
	last.To = w.now.Add(-lasting(w.t, 0, time.Second, "last entry"))
	w.outages = append(w.outages, Span{From: w.now, To: until})
	w.term, w.leader, w.elected, w.now = w.term+1, rapid.SampledFrom(w.ids).Draw(w.t, "leader"), until, until
	w.h.NewTerm(w.term, w.leader, w.now, last)
	w.now = w.now.Add(1500 * time.Millisecond)
}

// handIn has the leader and the others, or only a majority of all, hand in their journals.
func (w *world) handIn(some bool) {
	ids := append([]string{w.leader}, rapid.Permutation(w.others()).Draw(w.t, "in reach")...)
	if some {
		ids = ids[:rapid.IntRange(len(ids)/2+1, len(ids)).Draw(w.t, "reached")]
	}
	e := Evidence{Led: []Span{{Term: w.term, Leader: w.leader, From: w.elected, To: w.now}}}
	for _, id := range ids {
		for _, v := range w.pending[id] {
			v.Began, v.Ended = v.Began.Add(-w.skew[w.leader]), v.Ended.Add(-w.skew[w.leader])
			e.Views = append(e.Views, v)
		}
		delete(w.pending, id)
	}
	before := map[uint64]bool{}
	for _, o := range w.h.Outages {
		before[o.ID] = true
	}
	w.h.Reconcile(e)
	for _, o := range w.h.Outages {
		if !before[o.ID] {
			w.reported = append(w.reported, o)
		}
	}
	slices.SortFunc(w.reported, func(a, b Outage) int { return a.Began.Compare(b.Began) })
}
