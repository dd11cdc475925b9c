package fsm

import (
	"cmp"
	"fmt"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// The outcomes of an act. The first two are decided here; the others are those of an act that no entry does, which says
// that it begins, and again if it fails.
const (
	ActDone    = "done"    // the command was decided as asked
	ActRefused = "refused" // with the reason of the refusal
	ActStarted = "started" // before it is done
	ActFailed  = "failed"  // with the reason; without such an event it was done
)

// decideActed decides a command, and of an act the command that it is of.
func (a *applier) decideActed(c frame.Command) (Result, error) {
	act, is := c.(frame.Act)
	if !is || act.Of == nil {
		return a.decide(c)
	}
	r, err := a.decide(act.Of)
	if err != nil {
		return r, err
	}
	// What the sender says of the outcome does not count.
	act.Outcome, act.Reason = ActDone, ""
	if r.Refusal != nil {
		act.Outcome, act.Reason = ActRefused, cmp.Or(r.Refusal.Reason, string(r.Refusal.Code))
	}
	// A retry was reported the first time.
	if !r.Replayed {
		a.emitAct(act)
	}
	return r, nil
}

// recordAct reports an act that no entry does.
func (a *applier) recordAct(c frame.Act) Result {
	if c.Outcome != ActStarted && c.Outcome != ActFailed {
		return refuse(Invalid, "outcome", fmt.Sprintf("an act without a command that is %q", c.Outcome),
			"send "+ActStarted+" or "+ActFailed)
	}
	a.emitAct(c)
	return Result{}
}

// emitAct appends the event of an act. Whose act it is is its key.
func (a *applying) emitAct(c frame.Act) {
	payload := map[string]any{"principal": c.By, "action": c.Action, "outcome": c.Outcome}
	// What there is nothing to say of is left out.
	for _, more := range [...][2]string{{"target", c.Target}, {"detail", c.Detail}, {"reason", c.Reason}} {
		if more[1] != "" {
			payload[more[0]] = more[1]
		}
	}
	e := event.New(event.AdminAction, payload)
	e.Key = c.By
	a.late = append(a.late, e)
}
