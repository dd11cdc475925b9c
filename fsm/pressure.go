package fsm

import (
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// Pressure is what the log has of the leader's queue: Active from
// BACKPRESSURE_ACTIVATED to BACKPRESSURE_RELEASED.
type Pressure struct {
	Active bool      `json:"active"`
	Since  time.Time `json:"since,omitzero"`
	Leader string    `json:"leader_id,omitempty"` // who said so
}

// reportPressure emits one event when the leader's queue gets full, and one when it no longer is.
// A new leader continues where the one before was.
func (a *clientApplier) reportPressure(c frame.Pressure) Result {
	before := a.s.pressure
	// The log has it already.
	if c.Active == before.Active {
		return Result{}
	}
	p := map[string]any{
		"queue_depth": c.Requests,
		"queue_bytes": c.Bytes,
		"refused":     c.Refused,
		"leader_id":   a.frame.Proposer,
	}
	kind := event.BackpressureActivated
	if !c.Active {
		kind, p["active_ms"] = event.BackpressureReleased, a.time().Sub(before.Since).Milliseconds()
	}

	// The state follows, so the next report of the same emits nothing.
	a.s.pressure = Pressure{Active: c.Active, Since: a.time(), Leader: a.frame.Proposer}
	a.tx.setJSON([]byte{prefixPressure}, a.s.pressure)
	a.late = append(a.late, event.New(kind, p))
	return Result{}
}

// Pressure returns what the log has of the leader's queue.
func (v *views) Pressure() Pressure {
	return read(v, func(s *state) Pressure { return s.pressure })
}
