package sinks

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/attempt"
)

// answerUntilTaken answers an event, and repeats the answer while the cluster cannot take it: repeating the handler
// instead would do its work again. An error is final, or the round has ended.
func (rd *round) answerUntilTaken(d client.Delivery, o Outcome) error {
	for n := 1; ; n++ {
		err := rd.answer(d, o)
		if err == nil || final(err) {
			return err
		}
		rd.o.Logger.Warn("cannot answer the event, trying again", "group", rd.o.Group, "offset", d.Offset, "error", err)

		// The waits grow like those between attempts, but without what a sink has asked for.
		if !attempt.Sleep(rd.taking, rd.o.wait(n, Error{})) {
			return err
		}
	}
}

// answer publishes what became of an event, if Options.Answer wants that, for whoever waits for its run. Within the
// dedup window an outcome is answered once, also where the event was redelivered after its answer.
func (rd *round) answer(d client.Delivery, o Outcome) error {
	// As with HANDLER_FAILED, a sink of such events would feed itself.
	if rd.o.Answer == nil || strings.HasPrefix(string(d.Type), "HANDLER_") {
		return nil
	}
	kind := rd.o.Answer(d.Type, o.Result == Handled)
	if kind == "" {
		return nil
	}
	payload := map[string]any{"success": o.Result == Handled, "event": d.Type, "offset": d.Offset,
		"handler": rd.o.Group, "attempts": o.Attempt, "delivery": d.Count, "duration_seconds": o.Took.Seconds(),
		"timestamp": float64(time.Now().UnixMicro()) / 1e6}
	if o.Error != "" {
		payload["error"] = o.Error
	}
	if kind == event.HandlerFailed {
		payload["answer"], payload["dead_letter"] = true, true
	}

	// The causation id names the event that is answered. The dedup id makes one answer of those of several deliveries,
	// but a success after a dead letter was redriven is another answer than the failure before.
	ev := event.New(kind, payload)
	ev.Source, ev.Key, ev.Time = rd.o.Source, d.Key, time.Now()
	ev.CorrelationID, ev.CausationID = d.CorrelationID, strconv.FormatUint(d.Offset, 10)
	ev.DedupID = fmt.Sprintf("answer/%s/%d", rd.o.Group, d.Offset)
	if o.Result != Handled {
		ev.DedupID += "/failed"
	}
	err := rd.o.Publish(rd.base, ev)
	// Another delivery has given this answer, with other times in it.
	if refusal, ok := errors.AsType[*api.Error](err); ok && refusal.Code == api.Conflict {
		return nil
	}
	return err
}
