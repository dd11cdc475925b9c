package service

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/view/engine"
)

// Bounds of the leader's duty to publish what rules of views publish.
const (
	firingsLook   = 100 * time.Millisecond // for what another leader has left
	firingsAtOnce = 256                    // events of one publish
)

// viewWatch is the leader's duty to publish what the rules of views publish. Every node has it; the state machine
// decides each once, so it does not matter who has proposed it, or how often.
type viewWatch struct {
	core   *core          // the node and its state
	engine *engine.Engine // has the firings of this node
}

// run publishes until ctx ends.
func (w viewWatch) run(ctx context.Context) {
	next := time.NewTimer(firingsLook)
	defer next.Stop()
	for {
		select {
		// This node has folded what fires.
		case <-w.engine.Fired():
		case <-next.C:
		case <-ctx.Done():
			return
		}
		// Errors of a node that does not lead, or not any more, are not worth a line.
		pause := firingsLook
		if err := w.look(ctx); err != nil && ctx.Err() == nil && w.core.node.LeadingTerm() != 0 {
			w.core.logger.Warn("publishing what the rules of views publish", "error", err)
			pause = scheduleRetry
		}
		next.Reset(pause)
	}
}

// look publishes what is there, view by view. It does nothing on a node that does not lead.
func (w viewWatch) look(ctx context.Context) error {
	for _, s := range w.engine.List() {
		// What the store has may be published already: the state machine knows up to where.
		for more := s.Firings > 0; more; {
			if w.core.node.LeadingTerm() == 0 {
				return nil
			}
			var err error
			if more, err = w.publish(ctx, s.Name, s.Generation); err != nil {
				return fmt.Errorf("view %q: %w", s.Name, err)
			}
		}
	}
	return nil
}

// publish publishes the next firings of a view, and reports whether there may be more.
func (w viewWatch) publish(ctx context.Context, name string, generation uint64) (more bool, err error) {
	// The view may have been removed or defined otherwise since it was listed.
	d, defined := w.core.Machine().ViewDefinitions().Get(name)
	if !defined || d.Generation != generation {
		return false, nil
	}
	// From where the state is: what was published before, by whoever led, is not read.
	list, err := w.engine.Firings(generation, d.Emitted, firingsAtOnce)
	if err != nil || len(list) == 0 {
		return false, err
	}
	// The command says from where to where. It is refused unless the state is still at From, so nothing is published
	// twice.
	emission := frame.ViewEmission{View: name, Generation: generation, From: d.Emitted, To: list[len(list)-1].Offset}
	bad, err := w.propose(ctx, emission, list)
	if bad == nil {
		return err == nil, err
	}
	// One cannot be published: those of the offsets before it are, then it becomes a dead letter.
	at := slices.IndexFunc(list, func(f engine.Fired) bool { return f.Offset == bad.Offset })
	if at > 0 {
		emission.To = list[at-1].Offset
		_, err := w.propose(ctx, emission, list[:at])
		return err == nil, err
	}
	// The first offset has it: all of its firings are kept, as an offset is published as one.
	for i := at; i < len(list) && list[i].Offset == bad.Offset; i++ {
		if err := w.keep(ctx, &d, &list[i], i-at, err); err != nil {
			return false, err
		}
	}
	// The state moves past the offset without publishing anything.
	emission.To = bad.Offset
	_, err = w.core.Propose(ctx, frame.Request{Command: frame.ViewSkip{ViewEmission: emission}})
	return err == nil, notAhead(err)
}

// propose proposes firings. If bad is not nil, it is the first that the gate refuses, and err says why.
func (w viewWatch) propose(ctx context.Context, emission frame.ViewEmission, list []engine.Fired) (bad *engine.Fired,
	err error) {
	policy := w.core.Machine().Policy()
	events := make([]event.Event, len(list))
	for i := range list {
		events[i] = list[i].Event
		// The state machine publishes each once, whatever the dedup window has.
		events[i].NoDedup = true
	}
	req := PublishRequest{Events: events}
	_, batch, err := req.makeBatch(&policy)
	if err != nil {
		// The row of the batch is the place in the list.
		if row, ok := errors.AsType[*rowError](err); ok {
			return &list[row.row], row.err
		}
		return nil, err
	}
	command := frame.Publish{Count: len(events), Emission: emission}
	_, err = w.core.Propose(ctx, frame.Request{Command: command, Batch: batch})
	return nil, notAhead(err)
}

// notAhead is nil for a refusal that says that another one has published the same. Fenced says that the state has moved
// on or the view was defined otherwise, NotFound that it is gone.
func notAhead(err error) error {
	refusal, refused := errors.AsType[*fsm.Refusal](err)
	if refused && (refusal.Code == fsm.Fenced || refusal.Code == fsm.NotFound) {
		return nil
	}
	return err
}

// viewHandler is the name under which the dead letters of views are kept.
const viewHandler = "view"

// keep makes an event a dead letter that cannot be published. number is its own among those of its offset.
func (w viewWatch) keep(ctx context.Context, d *fsm.ViewDefinition, f *engine.Fired, number int, why error) error {
	letter := frame.LetterKeep{From: d.Name, Letter: frame.DeadLetter{
		Cursor:   viewHandler,
		Handler:  viewHandler,
		Error:    api.TruncateText(fmt.Sprintf("%s, for the event at %d: %v", d.Name, f.Offset, why), MaxErrorText),
		Attempts: 1,
		Event:    frame.EncodeCopy(&f.Event),
	}}
	// Whoever leads keeps one letter of it.
	place := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, d.Generation), f.Offset)
	letter.Origin = rowOrigin([]byte(viewHandler), []byte(d.Name), binary.BigEndian.AppendUint32(place, uint32(number)))
	if _, err := w.core.Propose(ctx, frame.Request{Command: letter}); err != nil {
		return errors.Join(why, err)
	}
	w.core.logger.Warn("what a rule publishes became a dead letter", "view", d.Name, "offset", f.Offset, "error", why)
	return nil
}
