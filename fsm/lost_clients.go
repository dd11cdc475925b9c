package fsm

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/RaduBerinde/btreemap"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// A registered client is lost if its TTL passes and it has not removed itself. The log reports that once, and once
// more if a client of that id registers again.
//
// A critical subscription of a lost client has no listener from then on, unless another client has a subscription
// of that name. It has one again as soon as any client registers a subscription of that name. It is forgotten if
// the lost client registers without it, or is removed.

// LostClient is a client that was lost and may come back. A LostClient is never changed.
type LostClient struct {
	ID   string    `json:"id"`
	Host string    `json:"host,omitempty"`
	Seen time.Time `json:"seen_at"` // when it registered last
	Lost time.Time `json:"lost_at"` // when that was decided, in replicated time
}

// Unheard is a critical subscription without a listener.
type Unheard struct {
	Name   string       `json:"name"`
	Filter event.Filter `json:"filter"` // empty where it is longer than unheardFilterBytes
	Client string       `json:"client"` // the lost client that had it last
	Host   string       `json:"host,omitempty"`
	Since  time.Time    `json:"since"`
}

const (
	// One entry removes at most that many clients, since each is an event; the next one continues.
	clientsAtOnce = 64
	// How many names of subscriptions an event has.
	namesInEvent = 50
	// A lost client that has not come back in this time is forgotten, as is the oldest of more than clients.max.
	lostClientFor = 24 * time.Hour
	// With that many, no further subscription is added: the alarm is on.
	unheardMax = 1000
	// Longer filters are left out of an Unheard, which bounds what all of them take.
	unheardFilterBytes = 1 << 10
)

// lostAt is the place of a lost client in the order in which they were lost.
type lostAt struct {
	at int64 // replicated Unix nanoseconds
	id string
}

// lostClients are the clients that were lost, and the critical subscriptions that have no listener since.
type lostClients struct {
	byID    map[string]*LostClient
	inOrder orderedMap[lostAt, *LostClient] // the same, those lost first coming first
	unheard map[string]*Unheard             // by name
	had     map[string]map[string]bool      // by the client that had it: the names of unheard
}

// newLostClients returns the list of none.
func newLostClients() lostClients {
	return lostClients{
		byID: map[string]*LostClient{},
		inOrder: btreemap.New[lostAt, *LostClient](32, func(a, b lostAt) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id))
		}),
		unheard: map[string]*Unheard{},
		had:     map[string]map[string]bool{},
	}
}

// put adds a lost client.
func (l *lostClients) put(c *LostClient) {
	l.byID[c.ID] = c
	l.inOrder.ReplaceOrInsert(lostAt{c.Lost.UnixNano(), c.ID}, c)
}

// putUnheard adds a subscription without a listener.
func (l *lostClients) putUnheard(u *Unheard) {
	l.unheard[u.Name] = u
	if l.had[u.Client] == nil {
		l.had[u.Client] = map[string]bool{}
	}
	l.had[u.Client][u.Name] = true
}

// loadLostClient reads a stored LostClient.
func (s *state) loadLostClient(_ string, value []byte) error {
	c := &LostClient{}
	if err := json.Unmarshal(value, c); err != nil {
		return err
	}
	s.lost.put(c)
	return nil
}

// loadUnheard reads a stored Unheard.
func (s *state) loadUnheard(_ string, value []byte) error {
	u := &Unheard{}
	if err := json.Unmarshal(value, u); err != nil {
		return err
	}
	s.lost.putUnheard(u)
	return nil
}

// knowsLostClients reports whether all members know them.
func (a *applying) knowsLostClients() bool { return a.s.meta.FeatureLevel >= frame.LevelClients }

// ledSince returns since when there has been a leader with whom clients could register, and a clock that was not
// stepped, in replicated Unix nanoseconds. Other time does not count against a client without Due.
func (a *applying) ledSince() int64 {
	m := &a.s.meta
	switch {
	case !a.knowsLostClients():
		return 0
	// This is the first entry of its term.
	case a.term > m.Leadership.Term:
		return a.now
	case m.LastStep != nil:
		return max(m.Leadership.Since.UnixNano(), m.LastStep.To.UnixNano())
	}
	return m.Leadership.Since.UnixNano()
}

// loseClient reports a client that was removed since it expired, and keeps what is needed when it comes back.
func (a *clientApplier) loseClient(c *Client) {
	lost := &LostClient{ID: c.ID, Host: c.Host, Seen: c.Seen, Lost: a.time()}
	a.s.lost.put(lost)
	a.tx.setJSON(key(prefixLostClient, c.ID), lost)

	// What only this client listened to has no listener now.
	var names, unheard []string
	critical := false
	for i := range c.Subscriptions {
		s := &c.Subscriptions[i]
		names = append(names, s.Name)
		critical = critical || s.Critical
		if !s.Critical || a.s.clients.names[s.Name] > 0 {
			continue
		}
		unheard = append(unheard, s.Name)
		if a.s.lost.unheard[s.Name] == nil && len(a.s.lost.unheard) < unheardMax {
			a.addUnheard(c, s)
		}
	}
	// The event names the first of both lists, and has how many there are.
	p := statusPayload(c.ID, c.Host, "registered", "lost")
	p["pid"], p["critical"] = c.PID, critical
	p["subscriptions"], p["subscription_count"] = names[:min(len(names), namesInEvent)], len(names)
	p["unheard"], p["unheard_count"] = append([]string{}, unheard[:min(len(unheard), namesInEvent)]...), len(unheard)
	p["seen_at"], p["ttl_s"] = c.Seen, int64(c.TTL/time.Second)
	a.late = append(a.late, event.New(event.DaemonStatusChanged, p))
}

// statusPayload returns the fields that both changes of a client have.
func statusPayload(id, host, before, now string) map[string]any {
	return map[string]any{"daemon": id, "client": id, "host": host, "old": before, "new": now}
}

// addUnheard keeps that a subscription of a lost client has no listener.
func (a *clientApplier) addUnheard(c *Client, s *frame.ClientSubscription) {
	u := &Unheard{Name: s.Name, Client: c.ID, Host: c.Host, Since: a.time()}
	if len(frame.AppendFilter(nil, s.Filter)) <= unheardFilterBytes {
		u.Filter = s.Filter
	}
	a.s.lost.putUnheard(u)
	a.tx.setJSON(key(prefixUnheard, u.Name), u)
}

// dropUnheard forgets that a subscription had no listener. It does nothing for a subscription that has a listener.
func (a *clientApplier) dropUnheard(name string) {
	u := a.s.lost.unheard[name]
	if u == nil {
		return
	}
	delete(a.s.lost.unheard, name)
	delete(a.s.lost.had[u.Client], name)
	if len(a.s.lost.had[u.Client]) == 0 {
		delete(a.s.lost.had, u.Client)
	}
	a.tx.Delete(key(prefixUnheard, name))
}

// dropLost forgets a lost client, but not what it listened to.
func (a *clientApplier) dropLost(c *LostClient) {
	delete(a.s.lost.byID, c.ID)
	a.s.lost.inOrder.Delete(lostAt{c.Lost.UnixNano(), c.ID})
	a.tx.Delete(key(prefixLostClient, c.ID))
}

// clientListens takes in that a client has registered: what it listens to has a listener, and if it was lost, it is
// back.
func (a *clientApplier) clientListens(c *Client) {
	for i := range c.Subscriptions {
		a.dropUnheard(c.Subscriptions[i].Name)
	}
	// What it listened to before and does not any more is not missing.
	for _, name := range slices.Sorted(maps.Keys(a.s.lost.had[c.ID])) {
		a.dropUnheard(name)
	}
	// A client that was not lost is no news.
	lost := a.s.lost.byID[c.ID]
	if lost == nil {
		return
	}
	a.dropLost(lost)
	p := statusPayload(c.ID, c.Host, "lost", "registered")
	p["pid"], p["lost_at"], p["lost_ms"] = c.PID, lost.Lost, a.time().Sub(lost.Lost).Milliseconds()
	a.late = append(a.late, event.New(event.DaemonStatusChanged, p))
}

// forgetLost forgets a lost client with all that it listened to, and returns it as a client; nil if there is none.
func (a *clientApplier) forgetLost(id string) *Client {
	lost, names := a.s.lost.byID[id], slices.Sorted(maps.Keys(a.s.lost.had[id]))
	if lost == nil && len(names) == 0 {
		return nil
	}
	// The answer has what is still known of it.
	was := &Client{ID: id}
	if lost != nil {
		was.Host, was.Seen = lost.Host, lost.Seen
		a.dropLost(lost)
	}
	for _, name := range names {
		u := a.s.lost.unheard[name]
		was.Host = u.Host
		was.Subscriptions = append(was.Subscriptions,
			frame.ClientSubscription{Name: name, Filter: u.Filter, Critical: true, State: StateLost})
		a.dropUnheard(name)
	}
	return was
}

// ageLostClients forgets the lost clients that are too many, or have been lost for too long. What they listened to
// stays without a listener.
func (a *clientApplier) ageLostClients() {
	for range clientsAtOnce {
		oldest, c, some := a.s.lost.inOrder.Min()
		if !some {
			return
		}
		tooMany := uint64(len(a.s.lost.byID)) > a.s.settings.ClientsMax
		if !tooMany && a.now < oldest.at+int64(lostClientFor) {
			return
		}
		a.dropLost(c)
	}
}

// Unheard returns the critical subscriptions without a listener, by name: at most 1000.
func (v *views) Unheard() []Unheard {
	return read(v, func(s *state) []Unheard {
		list := make([]Unheard, 0, len(s.lost.unheard))
		for _, name := range slices.Sorted(maps.Keys(s.lost.unheard)) {
			list = append(list, *s.lost.unheard[name])
		}
		return list
	})
}
