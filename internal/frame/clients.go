package frame

import (
	"encoding/binary"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/fields"
)

// Bounds of one registered client.
const (
	MaxClientBytes         = 64 << 10 // as a command
	MaxClientSubscriptions = 1000
)

// ClientPut registers what a client listens to for TTL, and replaces what it registered
// before. Without subscriptions it removes the client.
type ClientPut struct {
	ID            string
	Host          string
	PID           uint64
	Version       string        // of the client's build
	Coordinator   string        // the entry of the platform's registry that the client is; "" if none
	TTL           time.Duration // 0 takes the default
	Subscriptions []ClientSubscription
}

// ClientSubscription is one subscription of a client, as the client describes it.
type ClientSubscription struct {
	Name           string        `json:"name"`
	Filter         event.Filter  `json:"filter"`
	Where          string        `json:"where,omitempty"` // a condition in CEL
	Mode           string        `json:"mode,omitempty"`
	Critical       bool          `json:"critical,omitempty"`
	State          string        `json:"state,omitempty"`
	HandlerTimeout time.Duration `json:"handler_timeout_ns,omitempty"` // of one attempt
	Cursor         string        `json:"cursor,omitempty"`
}

// Kind implements Command. A client of a coordinator has a kind of its own, which has the name as well.
func (c ClientPut) Kind() Kind {
	if c.Coordinator != "" {
		return KindCoordinatorPut
	}
	return KindClientPut
}

// Size is the length of the command, in bytes.
func (c ClientPut) Size() int { return len(c.appendTo(nil)) }

// appendTo writes id, host, pid, version, TTL, the subscriptions after their number, and the coordinator if there is
// one.
func (c ClientPut) appendTo(b []byte) []byte {
	b = fields.Append(fields.Append(b, c.ID), c.Host)
	b = fields.Append(binary.AppendUvarint(b, c.PID), c.Version)
	b = binary.AppendUvarint(binary.AppendVarint(b, int64(c.TTL)), uint64(len(c.Subscriptions)))
	for _, s := range c.Subscriptions {
		b = s.appendTo(b)
	}
	if c.Coordinator != "" {
		b = fields.Append(b, c.Coordinator)
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

// coordinatorPut reads a clientPut and the coordinator after it.
func (d *decoder) coordinatorPut() ClientPut {
	c := d.clientPut()
	c.Coordinator = d.string()
	if c.Coordinator == "" {
		d.Fail("a coordinator without a name")
	}
	return c
}
