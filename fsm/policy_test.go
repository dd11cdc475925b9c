package fsm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// The gate has no policies, not even the catalogue's, before all members can read what it makes of them. Nor does it
// let a trace context through.
func TestPoliciesBeginWithTheirLevel(t *testing.T) {
	m := open(t, vfs.NewMem())
	defer m.Close()
	for i, level := range []uint32{frame.LevelDelivery, frame.LevelDedup, frame.LevelTraces} {
		member := frame.Member{ID: "n1", FeatureLevel: level}
		applyTo(t, m, entryOf(uint64(i+1), 1, "n1", epoch, do(frame.MemberPut{Member: member})))
		for _, when := range []string{"running", "loaded again"} {
			rule := m.Policy().Dedup.Of(event.TaskHeartbeat)
			if m.Policy().NoTraces != (level < frame.LevelTraces) {
				t.Errorf("level %d, %s: NoTraces is %t", level, when, m.Policy().NoTraces)
			}
			if known := level >= frame.LevelDedup; (rule != nil) != known || (m.Policy().Dedup != nil) != known {
				t.Errorf("level %d, %s: %+v", level, when, rule)
			}
			reload(t, m)
		}
	}
}

// The number of policies and the names of their types are bounded. A type that has a policy takes no further place.
func TestPoliciesAreBounded(t *testing.T) {
	m := open(t, vfs.NewMem())
	defer m.Close()
	member := frame.Member{ID: "n1", FeatureLevel: FeatureLevel}
	requests := []request{do(frame.MemberPut{Member: member})}
	set := func(name string) request {
		return do(frame.DedupPolicySet{Type: name, Policy: event.DedupPolicy{Mode: event.DedupOff}})
	}
	for i := range maxPolicies {
		requests = append(requests, set(fmt.Sprintf("T%d", i)))
	}
	for i, r := range applyTo(t, m, entryOf(1, 1, "n1", epoch, requests...)) {
		if r.Refusal != nil {
			t.Fatalf("request %d: %v", i, r.Refusal)
		}
	}
	results := applyTo(t, m, entryOf(2, 1, "n1", epoch,
		set("T0"), set("ONE_MORE"), set(""), set("A\x00B"), set(strings.Repeat("x", maxPolicyType+1))))
	for i, want := range []Code{"", Overloaded, Invalid, Invalid, Invalid} {
		var got Code
		if results[i].Refusal != nil {
			got = results[i].Refusal.Code
		}
		if got != want {
			t.Errorf("request %d: %q, want %q", i, got, want)
		}
	}
	if n := len(m.DedupPolicies()); n != maxPolicies {
		t.Errorf("%d policies, want %d", n, maxPolicies)
	}
}

// policed has two machines that decide the same entries. One of them is opened again after each.
type policed struct {
	t             *testing.T
	runs, reopens *Machine
	index         uint64
	at            time.Time
}

func newPoliced(t *testing.T, window time.Duration) *policed {
	return policedAt(t, FeatureLevel, window)
}

func policedAt(t *testing.T, level uint32, window time.Duration) *policed {
	p := &policed{t: t, runs: open(t, vfs.NewMem()), reopens: open(t, vfs.NewMem()), at: epoch}
	t.Cleanup(func() { p.runs.Close(); p.reopens.Close() })
	p.entry(do(frame.MemberPut{Member: frame.Member{ID: "n1", FeatureLevel: level}}), p.policy(window))
	return p
}

// policy sets the policy of the type of ev.
func (p *policed) policy(window time.Duration) request {
	return do(frame.DedupPolicySet{Type: string(event.TrainingCompleted),
		Policy: event.DedupPolicy{Mode: event.DedupContent, Window: window}})
}

// entry decides an entry at both machines, which have to agree.
func (p *policed) entry(requests ...request) []Result {
	p.t.Helper()
	p.index++
	var answers [2][]Result
	e := gated(p.runs.Policy().Dedup, p.index, 1, "n1", p.at, requests...)
	for i, m := range []*Machine{p.runs, p.reopens} {
		answers[i] = applyTo(p.t, m, e)
	}
	reload(p.t, p.reopens)
	if got, want := fmt.Sprint(encode(answers[1])), fmt.Sprint(encode(answers[0])); got != want {
		p.t.Fatalf("entry %d: %.500s, and where it was opened again %.500s", p.index, want, got)
	}
	one, _ := p.runs.DigestAt(p.index)
	if other, _ := p.reopens.DigestAt(p.index); one != other {
		p.t.Fatalf("entry %d: the digests differ", p.index)
	}
	return answers[0]
}

func (p *policed) keys() int { return p.runs.DedupPolicies()[0].Keys }

// fill publishes events with the contents [from, to).
func (p *policed) fill(from, to int) {
	for next := from; next < to; next += expirePolicyMost {
		var events []event.Event
		for n := next; n < min(next+expirePolicyMost, to); n++ {
			events = append(events, ev(n))
		}
		p.entry(publish(events...))
	}
}

// An entry removes a bounded number of keys, however many are due. Those that are left do not count, and are forgotten
// in the next entries, without those that have taken their place.
func TestKeysThatAreDueTogetherLeaveInSteps(t *testing.T) {
	p := newPoliced(t, time.Minute)
	const keys = 4 * expirePolicyMost
	p.fill(0, keys)
	p.at = p.at.Add(time.Minute)

	// The newest key is due and is still there. A request that is refused leaves it as it was.
	again, refused := ev(keys-1), []event.Event{ev(keys - 1), withID(ev(1), "x"), withID(ev(2), "x")}
	answers := p.entry(publish(refused...), publish(again), publish(again))
	if answers[0].Refusal == nil || len(answers[1].Duplicates) != 0 || len(answers[2].Duplicates) != 1 {
		t.Fatalf("%+v", answers)
	}
	for before := keys + 1; ; {
		left := p.keys()
		if left >= before || before-left > expirePolicyMost+2*5+1 {
			t.Fatalf("%d keys after %d", left, before)
		}
		if left == 1 {
			break
		}
		before = left
		p.entry(publish(noDedup(ev(0))))
	}
	if answers := p.entry(publish(again)); len(answers[0].Duplicates) != 1 {
		t.Errorf("the key that has taken the place of an old one does not count: %+v", answers)
	}
}

// A key that a refused request had taken the place of counts if the window gets longer, at a node that was opened
// again, too.
func TestARefusedRequestLeavesAKeyThatIsDue(t *testing.T) {
	p := newPoliced(t, time.Minute)
	const keys = 3 * expirePolicyMost
	p.fill(0, keys)
	p.at = p.at.Add(time.Minute)
	p.entry(publish(ev(keys-1), withID(ev(1), "x"), withID(ev(2), "x")))
	p.entry(p.policy(time.Hour))
	if answers := p.entry(publish(ev(keys - 1))); len(answers[0].Duplicates) != 1 {
		t.Errorf("%+v", answers)
	}
}

// What a policy takes in memory follows the keys that it has, not the most that it had.
func TestAPolicyReleasesTheMemoryOfItsKeys(t *testing.T) {
	p := newPoliced(t, time.Minute)
	const keys = 256 * copyPartFrom * 2
	p.fill(0, keys)
	p.at = p.at.Add(30 * time.Second)
	p.fill(keys, keys+256)
	p.at = p.at.Add(30 * time.Second)
	for p.keys() > 256 {
		p.entry(publish(noDedup(ev(0))))
	}
	policy, most := p.runs.s.policies.byType[event.TrainingCompleted], 0
	for i := range policy.offsets {
		most += policy.offsets[i].most
	}
	if most > keys/4 || cap(policy.queue) > keys/4 {
		t.Errorf("room for %d keys and a queue of %d, for 256 of %d", most, cap(policy.queue), keys)
	}
	for range 2 {
		p.at = p.at.Add(30 * time.Second)
		p.entry(publish(noDedup(ev(0))))
	}
	for i := range policy.offsets {
		if policy.offsets[i].offsets != nil {
			t.Fatal("a part without keys is kept")
		}
	}
}

// A policy with a long window has what it decided looked for as long, and nothing else.
func TestExplainLooksForAsLongAsTheWindowOfAPolicy(t *testing.T) {
	p := newPoliced(t, 31*24*time.Hour)
	p.entry(publish(ev(1)))
	p.at = p.at.Add(30 * 24 * time.Hour)
	p.entry(publish(ev(1)))
	_, last := p.runs.Log().Bounds()
	x, err := p.runs.Explain(t.Context(), last)
	if err != nil || x.Suppressed != 1 || !x.InWindow {
		t.Errorf("%+v, %v", x, err)
	}
	if window := p.runs.s.meta.MaxWindow; window > time.Hour {
		t.Errorf("other events are explained from the receipts of %s", window)
	}
}

// Keys that are overdue take no room, however many an entry leaves: what is refused would have been too much.
func TestOverdueKeysTakeNoRoom(t *testing.T) {
	p := newPoliced(t, time.Minute)
	const keys, room = 3 * expirePolicyMost, 10
	p.fill(0, keys)
	p.entry(do(frame.SettingSet{Key: "dedup.policy_max_keys", Value: fmt.Sprint(room)}))
	full := p.entry(publish(ev(keys)))[0].Refusal
	if want := fmt.Sprintf("hold %d keys, the limit is %d", keys, room); full == nil ||
		!strings.Contains(full.Message, want) {
		t.Fatalf("%+v, want %q", full, want)
	}

	p.at = p.at.Add(time.Minute)
	var requests []request
	for n := range room + 1 {
		requests = append(requests, publish(ev(keys+n)))
	}
	answers := p.entry(requests...)
	for n, r := range answers[:room] {
		if r.Refusal != nil {
			t.Fatalf("event %d: %v", n, r.Refusal)
		}
	}
	full = answers[room].Refusal
	if want := fmt.Sprintf("hold %d keys, the limit is %d", room, room); full == nil ||
		!strings.Contains(full.Message, want) {
		t.Errorf("%+v, want %q", full, want)
	}
	if left := p.keys(); left <= room {
		t.Errorf("one entry has removed all keys: %d are left", left)
	}
}

// What is overdue is known at each command of an entry: commands before it may change a window or remove a policy.
func TestKeysAreOverdueByTheWindowOfTheMoment(t *testing.T) {
	p := newPoliced(t, time.Hour)
	const keys = 3 * expirePolicyMost
	p.fill(0, keys)
	p.at = p.at.Add(time.Minute)
	answers := p.entry(
		do(frame.SettingSet{Key: "dedup.policy_max_keys", Value: "1"}),
		publish(ev(keys)),     // all count
		p.policy(time.Second), // none counts
		publish(ev(keys)),     // takes the only place
		publish(ev(keys+1)),   // finds none
		do(frame.DedupPolicySet{Type: string(event.TrainingCompleted)}),
		p.policy(time.Hour),
		publish(ev(keys+2)),
		do(frame.ClockStep{To: p.at.Add(2 * time.Hour)}),
		publish(ev(keys+3)), // a key of this entry is in the window, whatever the time
	)
	for i, refused := range []bool{false, true, false, false, true, false, false, false, false, true} {
		if (answers[i].Refusal != nil) != refused {
			t.Errorf("request %d: %v, refused is to be %t", i, answers[i].Refusal, refused)
		}
	}
}

// The bound belongs to the entry, whatever number of its commands may make keys overdue. Members of an older level have
// none, on which all of a cluster have to agree.
func TestAnEntryRemovesABoundedNumberOfPolicyKeys(t *testing.T) {
	for level, most := range map[uint32]int{frame.LevelPolicySteps: expirePolicyMost,
		frame.LevelPolicySteps - 1: 5 * expirePolicyMost} {
		p := policedAt(t, level, time.Minute)
		p.fill(0, 5*expirePolicyMost)
		p.at = p.at.Add(time.Minute)
		var requests []request
		for n := range 20 {
			requests = append(requests, do(frame.SettingSet{Key: "dedup.window", Value: fmt.Sprintf("%ds", 60+n)}))
		}
		p.entry(requests...)
		if removed := 5*expirePolicyMost - p.keys(); removed != most {
			t.Errorf("level %d: %d keys are removed, want %d", level, removed, most)
		}
	}
}
