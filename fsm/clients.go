package fsm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/RaduBerinde/btreemap"

	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/human"
)

// Bounds of a client's TTL, and what it is where the client names none.
const (
	MinClientTTL     = 30 * time.Second
	MaxClientTTL     = time.Hour
	DefaultClientTTL = 5 * time.Minute
)

// Client is a process that registered what it listens to. It is removed once it has not registered
// again for TTL, in led time. All but the times and Bytes are as the client says. A Client is never changed.
type Client struct {
	ID            string                     `json:"id"`
	Host          string                     `json:"host,omitempty"`
	PID           uint64                     `json:"pid,omitempty"`
	Version       string                     `json:"version,omitempty"`
	Coordinator   string                     `json:"coordinator,omitempty"` // that it registers as; "" is none
	TTL           time.Duration              `json:"ttl_ns"`
	Registered    time.Time                  `json:"registered_at"` // the first time
	Seen          time.Time                  `json:"seen_at"`       // the last time
	Bytes         uint64                     `json:"bytes"`         // as a command, with a fixed number for health
	Subscriptions []frame.ClientSubscription `json:"subscriptions"`
	// Due is when it is removed, in nanoseconds of led time; 0 below LevelFences.
	Due int64 `json:"due_ns,omitzero"`
}

// expires returns when a client without Due is removed, in replicated Unix nanoseconds.
func (c *Client) expires() int64 { return c.Seen.UnixNano() + int64(c.TTL) }

// clientEnd is the place of a client in the order in which they end.
type clientEnd struct {
	at int64 // led time
	id string
}

// clients are the registered clients. names counts their subscriptions by name. due is a lower bound of when
// the next of those without Due expires, in replicated time; math.MaxInt64 without any.
type clients struct {
	byID    map[string]*Client
	inOrder orderedMap[string, *Client]     // the same, by id
	ends    orderedMap[clientEnd, struct{}] // of those with Due
	names   map[string]int
	bytes   uint64 // of all
	due     int64
}

// newClients returns the list of no clients.
func newClients() clients {
	return clients{
		byID:    map[string]*Client{},
		inOrder: btreemap.New[string, *Client](32, strings.Compare),
		ends: btreemap.New[clientEnd, struct{}](32, func(a, b clientEnd) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id))
		}),
		names: map[string]int{},
		due:   math.MaxInt64,
	}
}

// put adds a client, or replaces the one of the same id.
func (l *clients) put(c *Client) {
	// What it replaces no longer counts.
	if old := l.byID[c.ID]; old != nil {
		l.remove(old)
	}
	for i := range c.Subscriptions {
		l.names[c.Subscriptions[i].Name]++
	}
	l.byID[c.ID] = c
	l.inOrder.ReplaceOrInsert(c.ID, c)
	l.bytes += c.Bytes
	// By led time, or as it was registered before LevelFences.
	if c.Due != 0 {
		l.ends.ReplaceOrInsert(clientEnd{c.Due, c.ID}, struct{}{})
	} else {
		l.due = min(l.due, c.expires())
	}
}

// remove takes a client out. due may stay too early: it is a lower bound.
func (l *clients) remove(c *Client) {
	delete(l.byID, c.ID)
	l.inOrder.Delete(c.ID)
	l.ends.Delete(clientEnd{c.Due, c.ID})
	l.bytes -= c.Bytes
	for i := range c.Subscriptions {
		name := c.Subscriptions[i].Name
		l.names[name]--
		if l.names[name] == 0 {
			delete(l.names, name)
		}
	}
}

// loadClient takes the id from the key, since JSON cannot hold every id.
func (s *state) loadClient(id string, value []byte) error {
	c := &Client{}
	if err := json.Unmarshal(value, c); err != nil {
		return err
	}
	c.ID = id
	s.clients.put(c)
	return nil
}

// clientApplier decides about registered clients, and takes in what the leader reports of its queue and of runs.
type clientApplier struct{ *applying }

// putClient replaces what a client registered. A Client is never changed, so readers may share
// it.
//
// A client that has no room with the health of its handlers is registered without, so what it reports of them does not
// make it lost.
func (a *clientApplier) putClient(c frame.ClientPut) Result {
	r := a.putClientAs(c)
	if r.Refusal != nil && c.HealthSize() > 0 {
		return a.putClientAs(c.WithoutHealth())
	}
	return r
}

// putClientAs is putClient of a client as it is.
func (a *clientApplier) putClientAs(c frame.ClientPut) Result {
	old := a.s.clients.byID[c.ID]
	// Without subscriptions the client is removed; the answer has it as it was.
	if len(c.Subscriptions) == 0 {
		lost := a.forgetLost(c.ID)
		if old == nil {
			return Result{Client: lost}
		}
		a.dropClient(old)
		return Result{Client: old}
	}
	made := &Client{
		ID:            c.ID,
		Host:          c.Host,
		PID:           c.PID,
		Version:       c.Version,
		Coordinator:   c.Coordinator,
		TTL:           cmp.Or(c.TTL, DefaultClientTTL),
		Registered:    a.time(),
		Seen:          a.time(),
		Bytes:         uint64(c.Size() + c.HealthSize()),
		Subscriptions: c.Subscriptions,
	}

	// Older builds remove clients by another rule, which all members have to follow.
	if a.s.meta.FeatureLevel >= frame.LevelFences {
		made.Due = a.s.meta.Led + int64(made.TTL)
	}

	// A client that registers again keeps the time of its first registration.
	before := uint64(0)
	if old != nil {
		made.Registered, before = old.Registered, old.Bytes
	}
	// What it took before is free for it.
	if refused := a.refuseClient(made, c.Size(), before); refused != nil {
		return *refused
	}
	a.s.clients.put(made)
	a.tx.setJSON(key(prefixClient, made.ID), made)
	// What nobody listened to may be heard again.
	a.clientListens(made)
	return Result{Client: made}
}

// refuseClient returns why there is no room for a client that took that many bytes before, and nil
// where there is room. size is what it takes without health.
func (a *clientApplier) refuseClient(c *Client, size int, before uint64) *Result {
	set, list := &a.s.settings, &a.s.clients
	var r Result
	switch {
	case c.ID == "":
		r = refuse(Invalid, "id", "a client without an id", "name it")
	case c.TTL < MinClientTTL || c.TTL > MaxClientTTL:
		r = refuse(Invalid, "ttl", fmt.Sprintf("a TTL of %s", c.TTL),
			fmt.Sprintf("send one from %s to %s", human.Exact(MinClientTTL), human.Exact(MaxClientTTL)))
	case size > frame.MaxClientBytes:
		r = refuse(Invalid, "subscriptions", fmt.Sprintf("the client takes %d bytes, the limit is %d", size,
			frame.MaxClientBytes), "register fewer or shorter subscriptions")
	// A client that is there takes no further place.
	case before == 0 && uint64(len(list.byID)) >= set.ClientsMax:
		r = refuse(Overloaded, "id",
			fmt.Sprintf("there are %d clients, the limit is %d", len(list.byID), set.ClientsMax),
			"wait until some expire, remove some, or raise clients.max")
	// One that takes no more than before is accepted, even where the limit was lowered since.
	case c.Bytes > before && list.bytes-before+c.Bytes > set.ClientsBytes:
		r = refuse(Overloaded, "subscriptions",
			fmt.Sprintf("the clients take %d bytes, the limit is %d", list.bytes, set.ClientsBytes),
			"wait until some expire, remove some, or raise clients.max_bytes")
	default:
		return nil
	}
	return &r
}

// dropClient removes a client. Whether it was lost is for the caller to say.
func (a *clientApplier) dropClient(c *Client) {
	a.s.clients.remove(c)
	a.tx.Delete(key(prefixClient, c.ID))
}

// expireClients removes the clients that have been silent for their time, while there was a leader.
func (a *clientApplier) expireClients() {
	a.ageLostClients()
	a.expireUnranked()
	// The others are removed with the next entry.
	for range clientsAtOnce {
		end, _, some := a.s.clients.ends.Min()
		if !some || end.at > a.s.meta.Led {
			return
		}
		c := a.s.clients.byID[end.id]
		a.dropClient(c)
		a.loseClient(c)
	}
}

// rankClients has the clients that registered below LevelFences end by led time, as if they had registered now.
func (a *applying) rankClients() {
	list := &a.s.clients
	// In an order that is the same on every node.
	for _, id := range slices.Sorted(maps.Keys(list.byID)) {
		c := *list.byID[id]
		c.Due = a.s.meta.Led + int64(c.TTL)
		list.put(&c)
		a.tx.setJSON(key(prefixClient, id), &c)
	}
	// None is without Due from here on.
	list.due = math.MaxInt64
}

// expireUnranked removes the clients without Due. Their time begins again with each leader, so below LevelFences nobody
// is lost while leaders change more often than that.
func (a *clientApplier) expireUnranked() {
	list, led := &a.s.clients, a.ledSince()
	if a.now < list.due {
		return
	}
	// The next one may expire at the earliest of what remains.
	var over []string
	list.due = math.MaxInt64
	for id, c := range list.byID {
		if at := max(c.Seen.UnixNano(), led) + int64(c.TTL); at <= a.now {
			over = append(over, id)
		} else {
			list.due = min(list.due, at)
		}
	}

	// The map has no order, and the digest depends on it.
	slices.Sort(over)
	if a.knowsLostClients() && len(over) > clientsAtOnce {
		over, list.due = over[:clientsAtOnce], a.now
	}
	for _, id := range over {
		c := list.byID[id]
		a.dropClient(c)
		if a.knowsLostClients() {
			a.loseClient(c)
		}
	}
}

// Clients returns up to limit registered clients whose ids follow after, by id. They must not be
// changed.
func (v *views) Clients(after string, limit int) []*Client {
	return read(v, func(s *state) []*Client {
		// An empty name begins with the first client.
		from := btreemap.Min[string]()
		if after != "" {
			from = btreemap.GT(after)
		}
		list := make([]*Client, 0, min(s.clients.inOrder.Len(), limit))
		for _, c := range s.clients.inOrder.Ascend(from, btreemap.Max[string]()) {
			if len(list) == limit {
				break
			}
			list = append(list, c)
		}
		return list
	})
}

// ClientStats counts the registered clients.
type ClientStats struct {
	Clients       int    `json:"clients"`
	Subscriptions int    `json:"subscriptions"`
	Bytes         uint64 `json:"bytes"`
	// CriticalDetached counts the critical subscriptions that are not attached.
	CriticalDetached int `json:"critical_detached"`
	// CriticalUnheard counts the critical subscriptions whose client was lost and that nobody has since.
	CriticalUnheard int `json:"critical_unheard"`
	// Lost counts the clients that were lost and may come back.
	Lost int `json:"lost"`
}

// ClientStats returns the figures of this moment.
func (v *views) ClientStats() ClientStats {
	return read(v, func(s *state) ClientStats {
		out := ClientStats{
			Clients: len(s.clients.byID), Bytes: s.clients.bytes,
			CriticalUnheard: len(s.lost.unheard), Lost: len(s.lost.byID),
		}
		for _, c := range s.clients.byID {
			out.Subscriptions += len(c.Subscriptions)
			for i := range c.Subscriptions {
				if one := &c.Subscriptions[i]; one.Critical && !Attached(one) {
					out.CriticalDetached++
				}
			}
		}
		return out
	})
}

// The states of a subscription that is fed, and of one whose client was lost.
const (
	StateAttached = "attached"
	StateLost     = "lost"
)

// Attached reports whether a subscription is fed, as its client says; one that does not
// say is.
func Attached(s *frame.ClientSubscription) bool { return s.State == "" || s.State == StateAttached }
