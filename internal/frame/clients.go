package frame

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/fields"
)

// Bounds of one registered client.
const (
	MaxClientBytes         = 64 << 10 // as a command, without the health of its handlers
	MaxClientSubscriptions = 1000
	// HealthBytes bounds the health of one handler as it is encoded. Each takes that many bytes of what clients may
	// take, whatever it has: a longer error must not make a client too large.
	HealthBytes = 256
)

// ClientPut registers what a client listens to for TTL, and replaces what it registered
// before. Without subscriptions it removes the client.
type ClientPut struct {
	ID            string
	Host          string
	PID           uint64        // of its process, on Host
	Version       string        // of the client's build
	Coordinator   string        // the entry of the platform's registry that the client is; "" if none
	TTL           time.Duration // 0 takes the default
	Subscriptions []ClientSubscription
}

// ClientSubscription is one subscription of a client, as the client describes it.
type ClientSubscription struct {
	Name           string        `json:"name"` // unique within the client
	Filter         event.Filter  `json:"filter"`
	Where          string        `json:"where,omitempty"`              // a condition in CEL
	Mode           string        `json:"mode,omitempty"`               // how it reads, in the client's words
	Critical       bool          `json:"critical,omitempty"`           // it must not be without a listener
	State          string        `json:"state,omitempty"`              // "" counts as attached
	HandlerTimeout time.Duration `json:"handler_timeout_ns,omitempty"` // of one attempt
	Cursor         string        `json:"cursor,omitempty"`             // that it reads by; "" is none

	Health *HandlerHealth `json:"health,omitempty"` // nil: the client does not report it
}

// HandlerHealth is what happened to the handler of a subscription since its process started. It is never changed.
type HandlerHealth struct {
	TimedOut       uint64    `json:"timed_out,omitempty"`       // attempts
	FailedAttempts uint64    `json:"failed_attempts,omitempty"` // those that timed out among them
	Breaker        string    `json:"breaker,omitempty"`         // the state of its circuit breaker; "": it has none
	LastError      string    `json:"last_error,omitempty"`      // of an attempt, clipped
	LastErrorAt    time.Time `json:"last_error_at,omitzero"`    // by the process's clock
}

// Kind implements Command. A client of a coordinator, or with the health of its handlers, has a kind of its own, which
// has these as well.
func (c ClientPut) Kind() Kind {
	if c.Coordinator != "" || c.healths() > 0 {
		return KindClientReport
	}
	return KindClientPut
}

// healths counts the subscriptions with health.
func (c ClientPut) healths() (n int) {
	for i := range c.Subscriptions {
		if c.Subscriptions[i].Health != nil {
			n++
		}
	}
	return n
}

// Size is the length of the command without health, in bytes. It is what the client counts for in clients.max_bytes,
// together with HealthSize.
func (c ClientPut) Size() int {
	n := len(c.appendDescription(nil))
	if c.Coordinator != "" {
		n += len(fields.Append(nil, c.Coordinator))
	}
	return n
}

// HealthSize is what the health of the handlers counts for, in bytes. It depends on their number alone.
func (c ClientPut) HealthSize() int { return c.healths() * HealthBytes }

// WithoutHealth returns the client without the health of its handlers.
func (c ClientPut) WithoutHealth() ClientPut {
	c.Subscriptions = slices.Clone(c.Subscriptions)
	for i := range c.Subscriptions {
		c.Subscriptions[i].Health = nil
	}
	return c
}

// appendTo writes the description; a KindClientReport has after it the coordinator, "" if there is none, and for each
// subscription whether it has health, and that.
func (c ClientPut) appendTo(b []byte) []byte {
	b = c.appendDescription(b)
	if c.Kind() == KindClientPut {
		return b
	}
	b = fields.Append(b, c.Coordinator)
	for i := range c.Subscriptions {
		health := c.Subscriptions[i].Health
		b = fields.AppendBool(b, health != nil)
		if health != nil {
			b = health.appendTo(b)
		}
	}
	return b
}

// appendTo writes the counts, the breaker's state, the last error, and its time in Unix nanoseconds, 0 for none.
func (h *HandlerHealth) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(b, h.TimedOut), h.FailedAttempts)
	b = fields.Append(fields.Append(b, h.Breaker), h.LastError)
	// The zero time has no Unix nanoseconds.
	at := int64(0)
	if !h.LastErrorAt.IsZero() {
		at = h.LastErrorAt.UnixNano()
	}
	return binary.AppendVarint(b, at)
}

// appendDescription writes id, host, pid, version, TTL, and the subscriptions after their number.
func (c ClientPut) appendDescription(b []byte) []byte {
	b = fields.Append(fields.Append(b, c.ID), c.Host)
	b = fields.Append(binary.AppendUvarint(b, c.PID), c.Version)
	b = binary.AppendUvarint(binary.AppendVarint(b, int64(c.TTL)), uint64(len(c.Subscriptions)))
	for _, s := range c.Subscriptions {
		b = s.appendTo(b)
	}
	return b
}

// appendTo writes name, filter, condition, mode, critical, state, timeout, cursor.
func (s ClientSubscription) appendTo(b []byte) []byte {
	b = AppendFilter(fields.Append(b, s.Name), s.Filter)
	b = fields.AppendBool(fields.Append(fields.Append(b, s.Where), s.Mode), s.Critical)
	b = binary.AppendVarint(fields.Append(b, s.State), int64(s.HandlerTimeout))
	return fields.Append(b, s.Cursor)
}

// clientPut refuses more subscriptions than a client may register.
func (d *decoder) clientPut() ClientPut {
	c := ClientPut{
		ID:      d.string(),
		Host:    d.string(),
		PID:     d.Uvarint(),
		Version: d.string(),
		TTL:     time.Duration(d.Varint()),
	}
	// A subscription takes a byte for each field at least, its filter one for each of five lists.
	n := d.Count(12)
	if n > MaxClientSubscriptions {
		d.Fail("%d subscriptions in one command", n)
		return c
	}
	for range n {
		c.Subscriptions = append(c.Subscriptions, ClientSubscription{
			Name:           d.string(),
			Filter:         d.filter(),
			Where:          d.string(),
			Mode:           d.string(),
			Critical:       d.Bool(),
			State:          d.string(),
			HandlerTimeout: time.Duration(d.Varint()),
			Cursor:         d.string(),
		})
	}
	return c
}

// clientReport reads a clientPut, and the coordinator and the health of its handlers after it.
func (d *decoder) clientReport() ClientPut {
	c := d.clientPut()
	c.Coordinator = d.string()
	for i := range c.Subscriptions {
		if d.Bool() {
			c.Subscriptions[i].Health = d.handlerHealth()
		}
	}
	// It would be encoded as another kind.
	if c.Kind() != KindClientReport {
		d.Fail("a client's report with neither a coordinator nor health")
	}
	return c
}

// handlerHealth refuses health that takes more than it counts for.
func (d *decoder) handlerHealth() *HandlerHealth {
	before := len(d.Rest)
	h := &HandlerHealth{TimedOut: d.Uvarint(), FailedAttempts: d.Uvarint(), Breaker: d.string(), LastError: d.string()}
	if at := d.Varint(); at != 0 {
		h.LastErrorAt = time.Unix(0, at).UTC()
	}
	// What it counts for is fixed, so it may not take more.
	if n := before - len(d.Rest); n > HealthBytes {
		d.Fail("the health of a handler takes %d bytes, the limit is %d", n, HealthBytes)
	}
	return h
}
