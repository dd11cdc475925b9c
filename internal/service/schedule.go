package service

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
)

// Schedule holds the operations on events that are published at a time. An id is used once: what was published under it
// is remembered for a while.
type Schedule struct{ *core }

// Put schedules an event. The same call again changes nothing, and is answered with what became of the event. The event
// passes the gate twice: now, so that its author learns what is wrong, and when it is published.
func (s *Schedule) Put(ctx context.Context, id string, at time.Time, e event.Event) (api.Scheduled, error) {
	if err := s.checkID(id); err != nil {
		return api.Scheduled{}, err
	}
	if seconds := at.Unix(); seconds < -maxScheduleTime || seconds > maxScheduleTime {
		return api.Scheduled{}, api.BadValue("at", at.Format(time.RFC3339), "a time up to the year 2255")
	}
	policy := s.Machine().Policy()
	var warnings []event.Warning
	// The source has to be the caller's.
	err := bindSource(s.boundSource(ctx), &e)
	if err == nil {
		_, warnings, err = policy.Normalize(&e)
	}
	if err != nil {
		return api.Scheduled{}, Within("event", err)
	}
	// Its type is canonical from here on.
	if !s.allowed(ctx)(e.Type) {
		return api.Scheduled{}, outOfScope("event.type", "events of the type "+string(e.Type))
	}
	// The copy keeps what the event says of itself, in the form of the log.
	result, err := s.proposeAndApply(ctx,
		frame.Schedule{ID: id, At: at, NoDedup: e.NoDedup, Event: frame.EncodeCopy(&e)})
	if err != nil {
		return api.Scheduled{}, err
	}
	out := viewScheduled(result.Scheduled, id)
	out.Existing, out.Warnings = result.Replayed, warnings
	return out, nil
}

// maxScheduleTime bounds the seconds between 1970 and a time, so that its nanoseconds fit.
const maxScheduleTime = 9_000_000_000

// Limits are those of an event that is scheduled.
func (s *Schedule) Limits() event.Limits { return s.Machine().Settings().Limits }

// checkID refuses a name that no schedule can have.
func (s *Schedule) checkID(id string) error {
	if id == "" {
		return api.Missing("id", "a name of the schedule that is used once")
	}
	return api.CheckName("id", id, s.Limits().NameBytes)
}

// Remove removes an event that was not published yet.
func (s *Schedule) Remove(ctx context.Context, id string) (api.Scheduled, error) {
	if err := s.checkID(id); err != nil {
		return api.Scheduled{}, err
	}
	// One that is not the caller's is as if it were not there.
	if one, known := s.Machine().Scheduled(id); known && !s.allowed(ctx)(one.Type) {
		return api.Scheduled{}, noSchedule(id)
	}
	result, err := s.proposeAndApply(ctx, frame.Unschedule{ID: id})
	if err != nil {
		return api.Scheduled{}, err
	}
	return viewScheduled(result.Scheduled, id), nil
}

// Get returns what is scheduled under an id, with its event while that waits.
func (s *Schedule) Get(ctx context.Context, id string) (api.Scheduled, error) {
	one, known := s.Machine().Scheduled(id)
	if !known || !s.allowed(ctx)(one.Type) {
		return api.Scheduled{}, noSchedule(id)
	}
	out := viewScheduled(&one, id)
	// What was published has no event here any more: the log has it.
	e, waits, err := s.Machine().ScheduledEvent(id)
	if err != nil || !waits {
		return out, err
	}
	e.NoDedup = one.NoDedup
	out.Event = &e
	return out, nil
}

// noSchedule is the error for an id under which nothing is scheduled.
func noSchedule(id string) error {
	return api.Refuse(api.NotFound, "id", fmt.Sprintf("no event is scheduled as %q", id),
		"list them: GET /v1/scheduled, or ringlog scheduled ls")
}

// List returns the first schedules whose ids follow after, up to limit. A page has fewer, and perhaps none, where some
// are not the caller's.
func (s *Schedule) List(ctx context.Context, after string, limit int) api.ScheduledPage {
	page, allowed := api.ScheduledPage{Scheduled: []api.Scheduled{}}, s.allowed(ctx)
	// Next is the last id that was looked at, also if that is not the caller's.
	for _, one := range s.Machine().AllScheduled(after, limit) {
		if allowed(one.Type) {
			page.Scheduled = append(page.Scheduled, viewScheduled(&one, one.ID))
		}
		page.Next = one.ID
	}
	// Nothing follows the last one: there is no other page.
	if len(s.Machine().AllScheduled(page.Next, 1)) == 0 {
		page.Next = ""
	}
	return page
}

// viewScheduled is a schedule as callers see it. id is given, since not every answer of the state machine has it.
func viewScheduled(one *fsm.Scheduled, id string) api.Scheduled {
	v := api.Scheduled{
		ID:        id,
		At:        time.Unix(0, one.At).UTC(),
		Made:      time.Unix(0, one.Made).UTC(),
		State:     api.ScheduleWaiting,
		Type:      string(one.Type),
		Key:       one.Key,
		Offset:    one.Offset,
		Duplicate: one.Duplicate,
	}
	// It was published, at Offset, or was a duplicate of the event there.
	if one.Done != 0 {
		v.State, v.Published = api.SchedulePublished, time.Unix(0, one.Done).UTC()
	}
	return v
}

// Bounds of the leader's duty to publish what is scheduled.
const (
	scheduleLook   = 100 * time.Millisecond // between two looks, which is how late an event may be
	scheduleRetry  = time.Second            // after an error
	scheduleAtOnce = 64                     // events of one look at what is due
)

// scheduleWatch is the leader's duty to publish scheduled events once their time has come.
type scheduleWatch struct{ core *core }

// run looks until ctx ends.
func (w scheduleWatch) run(ctx context.Context) {
	next := time.NewTimer(scheduleLook)
	defer next.Stop()
	for {
		select {
		case <-next.C:
		case <-ctx.Done():
			return
		}
		err := w.look(ctx)
		// Where this node does not lead, an error is none of its business.
		switch {
		case err == nil || w.core.node.LeadingTerm() == 0:
			next.Reset(scheduleLook)
		case ctx.Err() == nil:
			w.core.logger.Warn("publishing what is scheduled", "error", err)
			next.Reset(scheduleRetry)
		}
	}
}

// look publishes what is due, in the order of its times. It ends when nothing is due, or this node no longer leads.
func (w scheduleWatch) look(ctx context.Context) error {
	// Commands of its kinds are in the state only once all members know them.
	for w.core.node.LeadingTerm() != 0 {
		// By this node's clock. The state machine checks it by replicated time.
		due := w.core.Machine().DueAt(time.Now(), scheduleAtOnce)
		for i := range due {
			if err := w.publish(ctx, &due[i]); err != nil {
				return fmt.Errorf("scheduled event %q: %w", due[i].ID, err)
			}
		}
		if len(due) < scheduleAtOnce {
			return nil
		}
	}
	return nil
}

// publish proposes a scheduled event. An error leaves it to the next look.
func (w scheduleWatch) publish(ctx context.Context, one *fsm.Scheduled) error {
	// It may have been published since it was found due.
	e, waits, err := w.core.Machine().ScheduledEvent(one.ID)
	if err != nil || !waits {
		return err
	}
	e.NoDedup = one.NoDedup
	// As if it were published now: what the gate allows may have changed.
	policy := w.core.Machine().Policy()
	req := PublishRequest{Events: []event.Event{e}, Alone: true}
	_, batch, err := req.makeBatch(&policy)
	// The catalogue or the limits have changed since it was scheduled.
	if err != nil {
		return w.keep(ctx, one, &e, err)
	}
	// The command names the schedule: the state machine publishes it once, whoever proposes it.
	_, err = w.core.Propose(ctx, frame.Request{Command: frame.Publish{Count: 1, Scheduled: one.ID}, Batch: batch})
	refusal, refused := errors.AsType[*fsm.Refusal](err)
	switch {
	case !refused:
		return err
	case refusal.Code == fsm.Conflict: // an event with its dedup_id and other content was published meanwhile
		return w.keep(ctx, one, &e, err)
	case refusal.Code == fsm.NotFound, refusal.Code == fsm.Invalid:
		return nil // it was removed, or replicated time is not there yet
	}
	return err
}

// scheduleHandler is the name under which the dead letters of the schedule are kept.
const scheduleHandler = "schedule"

// keep makes an event a dead letter that cannot be published any more, and removes its schedule. why is the error of
// publishing it.
func (w scheduleWatch) keep(ctx context.Context, one *fsm.Scheduled, e *event.Event, why error) error {
	letter := frame.LetterKeep{From: one.ID, Letter: frame.DeadLetter{
		Cursor:   scheduleHandler,
		Handler:  scheduleHandler,
		Error:    api.TruncateText(why.Error(), MaxErrorText),
		Attempts: 1,
		Event:    frame.EncodeCopy(e),
	}}
	// Whoever leads keeps one letter of it.
	made := binary.BigEndian.AppendUint64(nil, uint64(one.Made))
	letter.Origin = rowOrigin([]byte(scheduleHandler), []byte(one.ID), made)
	if _, err := w.core.Propose(ctx, frame.Request{Command: letter}); err != nil {
		return errors.Join(why, err)
	}
	w.core.logger.Warn("a scheduled event became a dead letter", "id", one.ID, "error", why)
	// The letter first: a failure in between leaves both, and the next look skips the letter by its origin.
	_, err := w.core.Propose(ctx, frame.Request{Command: frame.Unschedule{ID: one.ID}})
	if refusal, refused := errors.AsType[*fsm.Refusal](err); refused && refusal.Code == fsm.NotFound {
		return nil // it was removed meanwhile
	}
	return err
}
