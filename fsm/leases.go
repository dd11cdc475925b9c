package fsm

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/human"
)

// What roles and allocations share, and led time, by which clients are lost, too. A claim lives for as long as it is
// renewed. The fence of its holder is the offset of the event with which it was granted.

// Claim is what a caller has, or waits for: a role or an allocation. A Claim is never changed.
type Claim struct {
	Holder  string        `json:"holder"`  // a name for people
	Session string        `json:"session"` // what the claim is renewed and released by
	TTL     time.Duration `json:"ttl_ns"`
	Since   time.Time     `json:"since"`      // when it began to hold, or to wait
	Renewed time.Time     `json:"renewed_at"` // the last time
	// Due is when it ends, in nanoseconds of led time; of what readers get, in replicated Unix nanoseconds.
	Due int64 `json:"due_ns"`
	// Arrival numbers those that wait, the first with 1. It is 0 for the holder of a role.
	Arrival uint64 `json:"arrival,omitzero"`
}

// claimText is a text of a claim, and the field in which it was sent.
type claimText struct{ field, value string }

// refuseClaim returns what is wrong with a claim, and nil for a sound one. most is the longest TTL of its kind.
func refuseClaim(ttl, most time.Duration, texts ...claimText) *Result {
	for _, text := range texts {
		if refused := text.refuse(); refused != nil {
			return refused
		}
	}
	if ttl < MinRoleTTL || ttl > most {
		r := refuse(Invalid, "ttl", fmt.Sprintf("a TTL of %s", ttl),
			fmt.Sprintf("send one from %s to %s", human.Exact(MinRoleTTL), human.Exact(most)))
		return &r
	}
	return nil
}

// refuse returns what is wrong with a text, and nil for a sound one.
func (t claimText) refuse() *Result {
	if t.value != "" && len(t.value) <= MaxRoleText && !strings.ContainsRune(t.value, 0) {
		return nil
	}
	r := refuse(Invalid, t.field, fmt.Sprintf("%d bytes, or a zero byte among them", len(t.value)),
		fmt.Sprintf("send 1 to %d bytes without a zero byte", MaxRoleText))
	return &r
}

// lateEntry is how long after its time an entry for the end of a claim may come.
const lateEntry = time.Second

// countLed counts the time since the entry before as led time, as far as there was a leader in it. It must come before
// a clock step of this entry.
func (a *applying) countLed() {
	m := &a.s.meta
	// Without a claim or client nothing depends on led time.
	first, some := a.s.firstEnd()
	if !some {
		return
	}
	// led is what would be counted, and left how much the first claim has.
	led, left := a.now-a.began, first-m.Led
	// A leader is there at the time when a claim ends, with a Tick. If the entry is late, the leader was paused.
	uncertain := led > left+int64(lateEntry)
	if a.term > m.Leadership.Term {
		// The new leader knows how long it had not heard of the old one, but not of a pause of all nodes.
		led, uncertain = led-cmp.Or(a.silence(), led), true
	}
	// The first claim to end keeps half of what it has left, to be renewed in, but does not so for ever.
	if uncertain {
		if left > int64(lateEntry) {
			left /= 2
		}
		led = min(led, left)
	}
	m.Led += max(0, led)
}

// silence returns how long the leader of a new term had not heard of the one before; 0 if that is not known.
func (a *applying) silence() int64 {
	// The term start is in the first entry of its term.
	for _, c := range a.frame.Commands {
		if start, ok := c.(frame.TermStart); ok {
			return int64(start.Silence)
		}
	}
	return 0
}

// firstEnd returns when the first claim or client ends, in led time.
func (s *state) firstEnd() (at int64, some bool) {
	// The earliest of three orders: roles, allocations and clients.
	at = math.MaxInt64
	if role, _, held := s.roles.due.Min(); held {
		at = role.at
	}
	if share, _, requested := s.shares.ends.Min(); requested {
		at = min(at, share.at)
	}
	if client, _, registered := s.clients.ends.Min(); registered {
		at = min(at, client.at)
	}
	return at, at != math.MaxInt64
}

// atLed returns the replicated time at which led time will be that, if there is always a leader.
func (s *state) atLed(led int64) int64 { return s.meta.Time + led - s.meta.Led }

// over reports whether a claim has ended, and is only not dropped yet.
func (a *applying) over(c Claim) bool { return c.Due <= a.s.meta.Led }

// renewClaim has a claim count from now on.
func (a *applying) renewClaim(c *Claim) {
	c.Renewed, c.Due = a.time(), a.s.meta.Led+int64(c.TTL)
}

// fencedEvent is an event of late whose payload is written once the fences that the entry gives out are known.
type fencedEvent struct {
	at      int    // in late
	key     string // for filters
	granted int    // the place in late, from 1, of the event whose offset is the fence; 0 if the payload has the fence
	// payload has no fence yet if granted is not 0.
	payload map[string]any
}

// reportFenced adds an event about a lease. granted is as in fencedEvent. Its place in late is taken at once, so that
// events keep the order in which they were decided.
func (a *applying) reportFenced(kind event.Type, key string, fence uint64, granted int, payload map[string]any) {
	payload["fence"] = fence
	a.fenceds = append(a.fenceds, fencedEvent{len(a.late), key, granted, payload})
	a.late = append(a.late, event.Event{Type: kind})
}

// lateOffset returns the offset of the event at a place in late, from 1. It is known at the end of the entry, when
// these are appended next.
func (a *applying) lateOffset(place int) uint64 { return a.s.meta.Last + uint64(place) }

// writeFences writes fences into the events that reportFenced has added. It is called at the end of the entry, before
// late is appended.
func (a *applying) writeFences() {
	for _, e := range a.fenceds {
		if e.granted != 0 {
			e.payload["fence"] = a.lateOffset(e.granted)
		}
		made := event.New(a.late[e.at].Type, e.payload)
		made.Key = e.key
		a.late[e.at] = made
	}
}
