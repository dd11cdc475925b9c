package fsm

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// clientsModel has the registered clients, those that were lost, and what nobody listens to since.
type clientsModel struct {
	known   map[string]knownClient
	lost    []string          // in the order in which they were lost
	unheard map[string]string // by name, the client that had it
	last    time.Time         // of the entry before
	led     time.Duration     // how much time with a leader there was
	events  uint64            // emitted
}

type knownClient struct {
	seen time.Time
	ttl  time.Duration
	due  time.Duration // of led
	subs []frame.ClientSubscription

	asked time.Duration // the TTL of its registration, 0 for the default
}

// withHealth counts the subscriptions that have health.
func withHealth(c *Client) (n int) {
	for _, s := range c.Subscriptions {
		if s.Health != nil {
			n++
		}
	}
	return n
}

// left is what the first client to end has left.
func (m *clientsModel) left() (left time.Duration, some bool) {
	var dues []time.Duration
	for _, k := range m.known {
		dues = append(dues, k.due)
	}
	if len(dues) == 0 {
		return 0, false
	}
	return slices.Min(dues) - m.led, true
}

// pass has the time of the next entry come, and loses the clients that were silent for their time. silence is as in
// ledOf.
func (m *clientsModel) pass(now time.Time, silence time.Duration) {
	if left, some := m.left(); some {
		m.led += ledOf(now.Sub(m.last), left, silence)
	}
	m.last = now
	byEnd := func(a, b string) int { return cmp.Or(cmp.Compare(m.known[a].due, m.known[b].due), cmp.Compare(a, b)) }
	for _, id := range slices.SortedFunc(maps.Keys(m.known), byEnd) {
		was := m.known[id]
		if was.due > m.led {
			continue
		}
		delete(m.known, id)
		m.lost, m.events = append(m.lost, id), m.events+1
		for _, s := range was.subs {
			if _, already := m.unheard[s.Name]; s.Critical && !already && !m.heard(s.Name) {
				m.unheard[s.Name] = id
			}
		}
	}
}

// heard reports whether a registered client has a subscription of that name.
func (m *clientsModel) heard(name string) bool {
	for _, k := range m.known {
		if slices.ContainsFunc(k.subs, func(s frame.ClientSubscription) bool { return s.Name == name }) {
			return true
		}
	}
	return false
}

// put registers a client, or removes it if it has no subscription.
func (m *clientsModel) put(id string, k knownClient) {
	maps.DeleteFunc(m.unheard, func(_, by string) bool { return by == id })
	back := slices.Index(m.lost, id)
	if back >= 0 {
		m.lost = slices.Delete(m.lost, back, back+1)
	}
	if len(k.subs) == 0 {
		delete(m.known, id)
		return
	}
	if back >= 0 {
		m.events++
	}
	m.known[id] = k
	for _, s := range k.subs {
		delete(m.unheard, s.Name)
	}
}

// The clients against a model, over random histories. A second machine is
// reopened and replaced by a checkpoint on the way and stays equal to the first.
func TestClientsAgreeWithAModel(t *testing.T) {
	const most = 3
	counts := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		plainFS, troubledFS := vfs.NewMem(), vfs.NewMem()
		plain, troubled := open(t, plainFS), open(t, troubledFS)
		defer func() { plain.Close(); troubled.Close() }()
		now, term := epoch, uint64(1)
		m := clientsModel{known: map[string]knownClient{}, unheard: map[string]string{}, last: epoch, events: 1}
		var starts []request // of a term, in the next entry
		apply := func(index uint64, r ...request) Result {
			e := entryOf(index, term, "n1", now, append(starts, r...)...)
			starts = nil
			got := applyTo(t, plain, e)
			troubled = trouble(t, troubled, troubledFS, counts)
			applyTo(t, troubled, e)
			return got[len(got)-1]
		}
		apply(1, do(frame.TermStart{ClusterID: "c", Members: []frame.Member{{ID: "n1", FeatureLevel: FeatureLevel}}}),
			do(frame.SettingSet{Key: "clients.max", Value: fmt.Sprint(most)}))
		for index := range uint64(rapid.IntRange(1, 40).Draw(t, "entries")) {
			now = now.Add(rapid.SampledFrom([]time.Duration{
				0, 10 * time.Second, 30 * time.Second, 2 * time.Minute,
			}).Draw(t, "wait"))
			silence := time.Duration(-1)
			if rapid.IntRange(0, 7).Draw(t, "new leader") == 0 {
				term, m.events = term+1, m.events+2
				silence = rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute}).Draw(t, "silence")
				starts = []request{do(frame.TermStart{ClusterID: "c", Cause: "lost", Silence: silence})}
			}
			// Too many lost ones are forgotten by the next entry.
			m.lost = m.lost[max(0, len(m.lost)-most):]
			lost := len(m.lost)
			m.pass(now, silence)
			counts["lost"] += len(m.lost) - lost
			id := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "client")
			subs := make([]frame.ClientSubscription, rapid.IntRange(0, 3).Draw(t, "subscriptions"))
			for i := range subs {
				subs[i] = frame.ClientSubscription{
					Name:     fmt.Sprint(i),
					Filter:   event.Filter{Types: []string{strings.Repeat("x", 100)}},
					Critical: rapid.Bool().Draw(t, "critical"),
				}
				if rapid.Bool().Draw(t, "health") {
					subs[i].Health = &frame.HandlerHealth{
						TimedOut:    index,
						LastError:   strings.Repeat("x", rapid.IntRange(0, 200).Draw(t, "error")),
						LastErrorAt: now,
					}
				}
			}
			ttl := rapid.SampledFrom([]time.Duration{MinClientTTL, time.Minute, 0}).Draw(t, "ttl")
			_, there := m.known[id]
			full := len(m.known) == most && !there && len(subs) > 0
			got := apply(index+2, do(frame.ClientPut{ID: id, TTL: ttl, Subscriptions: subs}))
			switch {
			case full != (got.Refusal != nil):
				t.Fatalf("%d known, %s: %v", len(m.known), id, got.Refusal)
			case full:
				counts["refused"]++
			default:
				if len(subs) > 0 && slices.Contains(m.lost, id) {
					counts["back"]++
				}
				lasts := cmp.Or(ttl, DefaultClientTTL)
				m.put(id, knownClient{now, lasts, m.led + lasts, subs, ttl})
			}
			ids, bytes := []string{}, uint64(0)
			for _, c := range troubled.Clients("", 10) {
				ids = append(ids, c.ID)
				bytes += c.Bytes
				k := m.known[c.ID]
				if !reflect.DeepEqual(c.Subscriptions, k.subs) || c.TTL != k.ttl || !c.Seen.Equal(k.seen) {
					t.Fatalf("%s: %+v, want %+v", c.ID, c, k)
				}
				// However long the errors are.
				described := frame.ClientPut{ID: c.ID, TTL: k.asked, Subscriptions: c.Subscriptions}
				if want := described.WithoutHealth().Size() + withHealth(c)*frame.HealthBytes; c.Bytes != uint64(want) {
					t.Fatalf("%s counts for %d bytes, want %d", c.ID, c.Bytes, want)
				}
			}
			stats := troubled.ClientStats()
			if !slices.Equal(ids, slices.Sorted(maps.Keys(m.known))) || stats.Bytes != bytes {
				t.Fatalf("%v, want %v, %d bytes", ids, m.known, bytes)
			}
			unheard := map[string]string{}
			for _, u := range troubled.Unheard() {
				unheard[u.Name] = u.Client
			}
			if !maps.Equal(unheard, m.unheard) || stats.CriticalUnheard != len(unheard) || stats.Lost != len(m.lost) {
				t.Fatalf("%v %+v, want %v and %v lost", unheard, stats, m.unheard, m.lost)
			}
			if got := troubled.Stats().Emitted; got != m.events {
				t.Fatalf("%d events, want %d", got, m.events)
			}
			counts["unheard"] += len(unheard)
			left, some := m.left()
			if next, due := troubled.NextDeadline(), now.Add(left); some && (next.IsZero() || next.After(due)) {
				t.Fatalf("the next deadline is %s, a client expires at %s", next, due)
			}
		}
		if a, b := dump(t, plain), dump(t, troubled); !bytes.Equal(a, b) {
			t.Fatalf("dumps differ:\n%s\n%s", a, b)
		}
	})
	for _, kind := range []string{"lost", "back", "unheard", "refused"} {
		if counts[kind] == 0 && !testing.Short() { // which goes through few
			t.Errorf("no history has %s", kind)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%s: %d", kind, counts[kind])
	}
}

// register is what a client sends again and again.
func register(id string, ttl time.Duration) request {
	return do(frame.ClientPut{ID: id, TTL: ttl, Subscriptions: []frame.ClientSubscription{{Name: id}}})
}

// ids are the registered clients.
func (n *roleNode) ids() (list []string) {
	for _, c := range n.m.Clients("", 10) {
		list = append(list, c.ID)
	}
	return list
}

// A client that is gone is lost however often leaders change, and one that registers under each of them is not.
func TestLeadersThatChangeKeepNoDeadClient(t *testing.T) {
	for _, led := range []time.Duration{time.Second, 10 * time.Second, 29 * time.Second} {
		n := newRoleNode(t)
		n.entry(register("dead", 30*time.Second), register("alive", 30*time.Second))
		changes := 0
		for ; slices.Contains(n.ids(), "dead"); changes++ {
			if changes > 100 {
				t.Fatalf("leaders of %s each keep a dead client", led)
			}
			n.now = n.now.Add(led + 700*time.Millisecond)
			n.leads(700 * time.Millisecond)
			n.entry(register("alive", 30*time.Second))
		}
		if !slices.Contains(n.ids(), "alive") {
			t.Errorf("leaders of %s each: a client that registers was lost", led)
		}
		t.Logf("leaders of %s each: lost after %d changes", led, changes)
	}
}

// Clients that registered at an earlier level count from the level's rise on, also after a restart.
func TestClientsOfAnEarlierLevelAreLostByLedTime(t *testing.T) {
	n := newRoleNode(t)
	n.m, n.index = open(t, vfs.NewMem()), 0
	t.Cleanup(func() { n.m.Close() })
	old := frame.Member{ID: "n1", FeatureLevel: frame.LevelFences - 1}
	n.entry(do(frame.TermStart{ClusterID: "c", Members: []frame.Member{old}}))
	n.entry(register("a", 30*time.Second), register("b", time.Minute))
	n.now = n.now.Add(20 * time.Second)
	old.FeatureLevel++
	n.entry(do(frame.MemberPut{Member: old}))
	for i, want := range []string{"[a b]", "[b]", "[]"} {
		reload(t, n.m)
		if due := n.m.NextDeadline(); i < 2 && due.After(n.now.Add(30*time.Second)) {
			t.Errorf("the next deadline is %s, at %s", due, n.now)
		}
		if got := fmt.Sprint(n.ids()); got != want {
			t.Errorf("%s are registered at %s, want %s", got, n.now, want)
		}
		n.now = n.now.Add(30 * time.Second)
		n.entry(do(frame.Tick{}))
	}
}

// A client keeps its registration whatever its handlers report: a longer error takes no more room, and where there is
// no room for health, the client is registered without.
func TestHealthCostsNoClientItsRegistration(t *testing.T) {
	m := open(t, vfs.NewMem())
	defer m.Close()
	index := uint64(0)
	apply := func(r ...request) Result {
		index++
		got := applyTo(t, m, entryOf(index, 1, "n1", epoch, r...))
		return got[len(got)-1]
	}
	apply(do(frame.TermStart{ClusterID: "c", Members: []frame.Member{{ID: "n1", FeatureLevel: FeatureLevel}}}),
		do(frame.SettingSet{Key: "clients.max_bytes", Value: fmt.Sprint(frame.MaxClientBytes)}))
	client := func(id string, bytes int, h *frame.HandlerHealth) frame.ClientPut {
		return frame.ClientPut{ID: id, Subscriptions: []frame.ClientSubscription{
			{Name: "s", Where: strings.Repeat("x", bytes), Health: h}}}
	}
	failing := &frame.HandlerHealth{LastError: "e"}

	// The two take all but some bytes, less than health counts for, and then each byte.
	for _, c := range []frame.ClientPut{client("a", 1000, failing), client("b", frame.MaxClientBytes-1500, nil),
		client("a", 1000, &frame.HandlerHealth{LastError: strings.Repeat("e", 200)}),
		client("b", frame.MaxClientBytes-1500, failing)} {
		if r := apply(do(c)); r.Refusal != nil {
			t.Fatalf("%s: %v", c.ID, r.Refusal)
		}
	}
	a, b := m.Clients("", 2)[0], m.Clients("", 2)[1]
	if got := a.Subscriptions[0].Health; got == nil || len(got.LastError) != 200 {
		t.Errorf("a has %+v", got)
	}
	if got := b.Subscriptions[0].Health; got != nil || b.Bytes >= frame.MaxClientBytes {
		t.Errorf("b has %+v and %d bytes, though there was no room", got, b.Bytes)
	}
	if r := apply(do(client("b", frame.MaxClientBytes, failing))); r.Refusal == nil {
		t.Error("a client that is too large without health was accepted")
	}
}
