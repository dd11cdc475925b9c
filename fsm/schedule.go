package fsm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/RaduBerinde/btreemap"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/kv"
)

// An event may be scheduled: the state keeps it until its time, in replicated time. Then the leader proposes it as it
// proposes any event, under the id of the schedule, so it is deduplicated like one that is published then. Whoever
// proposes it, and however often, it is decided once.
//
// What was published is remembered for producer.ttl, as the results of producers are: a schedule that is repeated in
// that time is answered with the offset of its event, and schedules no second one.

// maxScheduleID bounds an id, in bytes.
const maxScheduleID = 256

// Scheduled is an event that is to be published at a time, or was. A Scheduled is never changed: what changes it
// replaces it.
type Scheduled struct {
	ID      string     `json:"-"`
	At      int64      `json:"at_ns"`   // in replicated Unix nanoseconds
	Made    int64      `json:"made_ns"` // likewise
	Type    event.Type `json:"type"`    // canonical
	Key     string     `json:"key,omitempty"`
	Hash    event.Hash `json:"hash"` // of the event's content
	DedupID string     `json:"dedup_id,omitempty"`
	NoDedup bool       `json:"no_dedup,omitzero"`
	Bytes   uint64     `json:"bytes"` // of its copy

	// Once it is decided: the offset of the event, or of the earlier one that it repeats, and when.
	Offset    uint64 `json:"offset,omitzero"`
	Duplicate bool   `json:"duplicate,omitzero"`
	Done      int64  `json:"done_ns,omitzero"`
}

// scheduleDue is the place of a schedule in the order of their times.
type scheduleDue struct {
	at int64
	id string
}

// schedule is the events that wait for their time, and those that were published within producer.ttl.
type schedule struct {
	byID    orderedMap[string, *Scheduled]
	waiting orderedMap[scheduleDue, struct{}] // by At
	done    orderedMap[scheduleDue, struct{}] // by Done
	bytes   uint64                            // of the copies of those that wait
}

// newSchedule returns one without events.
func newSchedule() schedule {
	byTime := func(a, b scheduleDue) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id)) }
	return schedule{
		byID:    btreemap.New[string, *Scheduled](32, strings.Compare),
		waiting: btreemap.New[scheduleDue, struct{}](32, byTime),
		done:    btreemap.New[scheduleDue, struct{}](32, byTime),
	}
}

// get returns what is known under an id, and nil for any other. It must not be changed.
func (l *schedule) get(id string) *Scheduled {
	_, s, _ := l.byID.Get(id)
	return s
}

// put enters a schedule in place of what was there under its id. Where it counts depends on whether it was published.
func (l *schedule) put(s *Scheduled) {
	l.remove(s.ID)
	l.byID.ReplaceOrInsert(s.ID, s)
	if s.Done != 0 {
		l.done.ReplaceOrInsert(scheduleDue{s.Done, s.ID}, struct{}{})
		return
	}
	l.waiting.ReplaceOrInsert(scheduleDue{s.At, s.ID}, struct{}{})
	l.bytes += s.Bytes
}

// remove removes what is there under an id, if there is anything.
func (l *schedule) remove(id string) {
	s := l.get(id)
	if s == nil {
		return
	}
	l.byID.Delete(id)
	if s.Done != 0 {
		l.done.Delete(scheduleDue{s.Done, id})
		return
	}
	l.waiting.Delete(scheduleDue{s.At, id})
	l.bytes -= s.Bytes
}

// loadScheduled reads a stored Scheduled. Its id is the key's.
func (s *state) loadScheduled(id string, value []byte) error {
	one := &Scheduled{}
	err := json.Unmarshal(value, one)
	one.ID = id
	s.schedule.put(one)
	return err
}

// scheduleApplier decides which events are scheduled, and when they are published.
type scheduleApplier struct{ *applying }

// scheduleEvent keeps an event until its time.
func (a *scheduleApplier) scheduleEvent(c frame.Schedule) Result {
	e, err := frame.DecodeCopy(c.Event)
	if err != nil {
		return refuse(Invalid, "event", err.Error(), "send a copy of the event")
	}
	if c.ID == "" || len(c.ID) > maxScheduleID || strings.ContainsRune(c.ID, 0) {
		return refuse(Invalid, "id", fmt.Sprintf("%d bytes, or a zero byte among them", len(c.ID)),
			fmt.Sprintf("send 1 to %d bytes without a zero byte", maxScheduleID))
	}
	// What is known of the event without its copy, which is stored by itself.
	made := &Scheduled{ID: c.ID, At: c.At.UnixNano(), Made: a.now, Type: e.Type, Key: e.Key, Hash: e.Hash(),
		DedupID: e.DedupID, NoDedup: c.NoDedup, Bytes: uint64(len(c.Event))}

	// A repetition is answered with what became of the first one.
	if known := a.s.schedule.get(c.ID); known != nil {
		if !known.repeatedBy(made) {
			return refuse(Exists, "id", fmt.Sprintf("%q is an event for %s with other content, or another time", c.ID,
				instant(known.At)), "use another id, or remove the one that is scheduled first")
		}
		return Result{Scheduled: known, Replayed: true}
	}
	// Only what is new takes a place.
	settings := &a.s.settings
	switch {
	case uint64(a.s.schedule.waiting.Len()) >= settings.ScheduleMax:
		return refuse(Overloaded, "id", fmt.Sprintf("%d events are scheduled, which is the limit", settings.ScheduleMax),
			"wait until some are published, remove some, or raise schedule.max")
	case a.s.schedule.bytes+made.Bytes > settings.ScheduleBytes:
		return refuse(Overloaded, "id", fmt.Sprintf("the scheduled events take %d bytes, the limit is %d",
			a.s.schedule.bytes, settings.ScheduleBytes),
			"wait until some are published, remove some, or raise schedule.max_bytes")
	}
	a.tx.Set(key(prefixScheduledEvent, c.ID), c.Event)
	a.keep(made)
	return Result{Scheduled: made}
}

// repeatedBy reports whether another schedule asks for the same event at the same time.
func (s *Scheduled) repeatedBy(o *Scheduled) bool {
	return s.At == o.At && s.Hash == o.Hash && s.DedupID == o.DedupID && s.NoDedup == o.NoDedup
}

// instant is a time as refusals have it.
func instant(at int64) string { return time.Unix(0, at).UTC().Format(time.RFC3339Nano) }

// keep stores a schedule. It replaces what was there under the id.
func (a *scheduleApplier) keep(s *Scheduled) {
	a.s.schedule.put(s)
	a.tx.setJSON(key(prefixScheduled, s.ID), s)
}

// unschedule removes an event that was not published yet. One that was published is refused with its offset.
func (a *scheduleApplier) unschedule(c frame.Unschedule) Result {
	known := a.s.schedule.get(c.ID)
	switch {
	case known == nil:
		return refuse(NotFound, "id", fmt.Sprintf("no event is scheduled as %q", c.ID),
			"list them: GET /v1/scheduled, or ringlog scheduled ls")
	case known.Done != 0:
		r := refuse(Conflict, "id", fmt.Sprintf("the event %q was published", c.ID), "read it at its offset")
		r.Refusal.Offset = known.Offset
		return r
	}
	a.forget(known)
	a.tx.Delete(key(prefixScheduledEvent, c.ID))
	return Result{Scheduled: known}
}

// forget removes a schedule.
func (a *scheduleApplier) forget(s *Scheduled) {
	a.s.schedule.remove(s.ID)
	a.tx.Delete(key(prefixScheduled, s.ID))
}

// admit returns the answer of a command that publishes a scheduled event too early, or once more, and nil if it may
// be decided.
func (a *scheduleApplier) admit(c frame.Publish) *Result {
	known := a.s.schedule.get(c.Scheduled)
	var r Result
	switch {
	case known == nil:
		r = refuse(NotFound, "id", fmt.Sprintf("no event is scheduled as %q", c.Scheduled), "")
	// Another leader, or the same in an earlier try, has had it published.
	case known.Done != 0:
		r = Result{Scheduled: known, Replayed: true}
	// The clock of the node that proposes it may be ahead of replicated time.
	case known.At > a.now || c.Count != 1:
		r = refuse(Invalid, "at", fmt.Sprintf("%d events, for %s", c.Count, instant(known.At)), "")
	default:
		return nil
	}
	return &r
}

// published notes where a scheduled event is.
func (a *scheduleApplier) published(id string, r Result) {
	// A copy: readers have the old one.
	done := *a.s.schedule.get(id)
	at := r.Offsets(1)[0]
	done.Offset, done.Duplicate, done.Done = at.Offset, at.Duplicate, a.now
	a.keep(&done)
	a.tx.Delete(key(prefixScheduledEvent, id))
}

// scheduledAtOnce bounds the schedules that one entry forgets; the next one continues.
const scheduledAtOnce = 64

// forgetPublished forgets schedules that cannot be repeated any more. An id may be used again after that.
func (a *scheduleApplier) forgetPublished() {
	for range scheduledAtOnce {
		oldest, _, some := a.s.schedule.done.Min()
		if !some || oldest.at+int64(a.s.settings.ProducerTTL) > a.now {
			return
		}
		a.forget(a.s.schedule.get(oldest.id))
	}
}

// Scheduled returns what is known under an id.
func (v *views) Scheduled(id string) (Scheduled, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if s := v.s.schedule.get(id); s != nil {
		return *s, true
	}
	return Scheduled{}, false
}

// AllScheduled returns up to limit schedules whose ids follow after, by id. Those that were published are among them.
func (v *views) AllScheduled(after string, limit int) []Scheduled {
	return read(v, func(s *state) (list []Scheduled) {
		from := btreemap.Min[string]()
		if after != "" {
			from = btreemap.GT(after)
		}
		for _, one := range s.schedule.byID.Ascend(from, btreemap.Max[string]()) {
			if len(list) == limit {
				break
			}
			list = append(list, *one)
		}
		return list
	})
}

// DueAt returns up to limit schedules whose time has come by now, the earliest first.
func (v *views) DueAt(now time.Time, limit int) []Scheduled {
	return read(v, func(s *state) (list []Scheduled) {
		for due := range s.schedule.waiting.Ascend(btreemap.Min[scheduleDue](), btreemap.Max[scheduleDue]()) {
			if due.at > now.UnixNano() || len(list) == limit {
				break
			}
			list = append(list, *s.schedule.get(due.id))
		}
		return list
	})
}

// ScheduledEvent returns an event that waits for its time, and false for one that does not.
func (r letterReader) ScheduledEvent(id string) (e event.Event, waits bool, err error) {
	err = r.log.View(func(db kv.DB) error {
		copied, err := readValue(db, key(prefixScheduledEvent, id))
		if err != nil || copied == nil {
			return err
		}
		e, err = frame.DecodeCopy(copied)
		waits = err == nil
		return err
	})
	if err != nil {
		return e, false, fmt.Errorf("scheduled event %q: %w", id, err)
	}
	return e, waits, nil
}
