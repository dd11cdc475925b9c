package breaker

import (
	"strings"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/ringrift/ringlog/event"
)

// Change is a change of a breaker's state. If one more failure opens it, From and To are both
// closed.
type Change struct {
	From, To gobreaker.State
	Failures int           // events in a row that have failed; only set where From is closed
	Err      error         // of the attempt that brought it about, if one did
	Lasted   time.Duration // how long From was
	config   Config
}

// Notice is the change as an event: its type, one of CIRCUIT_BREAKER_*, and the payload
// but for who reports it.
func (ch Change) Notice() (event.Type, map[string]any) {
	payload := map[string]any{"state": ch.To.String(), "failures": ch.Failures}
	if ch.Err != nil {
		payload["error"] = Bounded(ch.Err.Error())
	}
	// The warning: one failure more opens the breaker.
	if ch.From == ch.To {
		payload["threshold"] = ch.config.Failures
		return event.CircuitBreakerThreshold, payload
	}
	payload["previous"], payload["previous_seconds"] = ch.From.String(), ch.Lasted.Seconds()
	switch ch.To {
	case gobreaker.StateOpen:
		payload["half_open_after_seconds"] = ch.config.OpenFor.Seconds()
		return event.CircuitBreakerOpened, payload
	case gobreaker.StateHalfOpen:
		return event.CircuitBreakerHalfOpen, payload
	}
	return event.CircuitBreakerClosed, payload
}

// Bounded cuts a text that goes into an event to what a person reads of it.
func Bounded(text string) string {
	const most = 8 << 10
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + " …"
}
