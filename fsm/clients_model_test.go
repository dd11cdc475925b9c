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
	led     time.Time         // since when there is a leader
	events  uint64            // emitted
}

type knownClient struct {
	seen time.Time
	ttl  time.Duration
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

// expire loses the clients that are silent for their time at now.
func (m *clientsModel) expire(now time.Time) {
	for _, id := range slices.Sorted(maps.Keys(m.known)) {
		was := m.known[id]
		since := was.seen
		if m.led.After(since) {
			since = m.led
		}
		if since.Add(was.ttl).After(now) {
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
		m := clientsModel{known: map[string]knownClient{}, unheard: map[string]string{}, led: epoch, events: 1}
		apply := func(index uint64, r ...request) Result {
			e := entryOf(index, term, "n1", now, r...)
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
			if rapid.IntRange(0, 7).Draw(t, "new leader") == 0 {
				term, m.led, m.events = term+1, now, m.events+2
			}
			// Too many lost ones are forgotten by the next entry.
			m.lost = m.lost[max(0, len(m.lost)-most):]
			lost := len(m.lost)
			m.expire(now)
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
				m.put(id, knownClient{now, cmp.Or(ttl, DefaultClientTTL), subs, ttl})
			}
			ids, bytes, due := []string{}, uint64(0), time.Time{}
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
				at := c.Seen
				if m.led.After(at) {
					at = m.led
				}
				if at = at.Add(c.TTL); due.IsZero() || at.Before(due) {
					due = at
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
			if next := troubled.NextDeadline(); !due.IsZero() && (next.IsZero() || next.After(due)) {
				t.Fatalf("the next deadline is %s, a client expires at %s", next, due)
			}
		}
		if a, b := dump(t, plain), dump(t, troubled); !bytes.Equal(a, b) {
			t.Fatalf("dumps differ:\n%s\n%s", a, b)
		}
	})
	for _, kind := range []string{"lost", "back", "unheard", "refused"} {
		if counts[kind] == 0 {
			t.Errorf("no history has %s", kind)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%s: %d", kind, counts[kind])
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
