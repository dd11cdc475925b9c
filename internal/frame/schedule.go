package frame

import (
	"encoding/binary"
	"time"

	"github.com/ringrift/ringlog/internal/fields"
)

// Schedule keeps an event, the copy Event, to be published at At. The same command again changes nothing.
type Schedule struct {
	ID      string
	At      time.Time
	NoDedup bool   // of the event; a copy does not have it
	Event   []byte // see EncodeCopy
}

// Unschedule removes an event that was not published yet.
type Unschedule struct{ ID string }

// Kind implements Command.
func (Schedule) Kind() Kind   { return KindSchedule }
func (Unschedule) Kind() Kind { return KindUnschedule }

// appendTo writes id, time, whether it is deduplicated, copy.
func (c Schedule) appendTo(b []byte) []byte {
	b = binary.AppendVarint(fields.Append(b, c.ID), c.At.UnixNano())
	return fields.Append(fields.AppendBool(b, c.NoDedup), c.Event)
}

// appendTo writes id.
func (c Unschedule) appendTo(b []byte) []byte { return fields.Append(b, c.ID) }
