package fsm

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// In the histories of schedules: dedup.window, and producer.ttl.
const (
	modelWindow = time.Hour
	modelKept   = 90 * time.Minute
)

// scheduleModel is what is scheduled, and where each content is in the log.
type scheduleModel struct {
	made map[string]modelScheduled // by id
	log  []string                  // contents, by offset-1
	keys map[string]modelKey       // of dedup ids and contents
}

type modelScheduled struct {
	event event.Event
	at    time.Time
	done  time.Time // zero while it waits
	place Placement
}

type modelKey struct {
	offset  uint64
	content string
	at      time.Time
}

// forget drops what is not kept any more.
func (m *scheduleModel) forget(now time.Time) {
	for id, s := range m.made {
		if !s.done.IsZero() && !s.done.Add(modelKept).After(now) {
			delete(m.made, id)
		}
	}
	for k, e := range m.keys {
		if !e.at.Add(modelWindow).After(now) {
			delete(m.keys, k)
		}
	}
}

// publish places an event, and returns false where its dedup id has other content.
func (m *scheduleModel) publish(e event.Event, now time.Time) (Placement, bool) {
	key := "content " + string(e.Payload)
	if e.DedupID != "" {
		key = "id " + e.DedupID
	}
	if known, some := m.keys[key]; some && !e.NoDedup {
		return Placement{Offset: known.offset, Duplicate: true}, known.content == string(e.Payload)
	}
	m.log = append(m.log, string(e.Payload))
	offset := uint64(len(m.log))
	if !e.NoDedup {
		m.keys[key] = modelKey{offset, string(e.Payload), now}
	}
	return Placement{Offset: offset}, true
}

// Schedules against a model, over random histories of schedules, removals, deliveries that are early, late, repeated or
// of nothing, and events that are published beside them. A second machine is reopened and replaced by a checkpoint on
// the way and stays equal. No event is published before its time, or twice.
func TestSchedulesAgreeWithAModel(t *testing.T) {
	counts := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		plainFS, troubledFS := vfs.NewMem(), vfs.NewMem()
		plain, troubled := open(t, plainFS), open(t, troubledFS)
		defer func() { plain.Close(); troubled.Close() }()
		now, index := epoch, uint64(0)
		m := scheduleModel{made: map[string]modelScheduled{}, keys: map[string]modelKey{}}
		apply := func(r ...request) Result {
			index++
			e := entryOf(index, 1, "n1", now, r...)
			got := applyTo(t, plain, e)
			troubled = trouble(t, troubled, troubledFS, counts)
			applyTo(t, troubled, e)
			return got[len(got)-1]
		}
		apply(do(frame.TermStart{ClusterID: "c", Members: []frame.Member{{ID: "n1", FeatureLevel: FeatureLevel}}}),
			do(frame.SettingSet{Key: "dedup.window", Value: modelWindow.String()}),
			do(frame.SettingSet{Key: "producer.ttl", Value: modelKept.String()}),
			do(frame.SettingSet{Key: "schedule.max", Value: "3"}))
		for _, e := range all(t, plain) {
			m.log = append(m.log, string(e.Payload))
		}
		for range rapid.IntRange(1, 60).Draw(t, "entries") {
			now = now.Add(rapid.SampledFrom([]time.Duration{0, time.Second, 10 * time.Minute}).Draw(t, "wait"))
			m.forget(now)
			id := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "id")
			e := ev(rapid.IntRange(1, 4).Draw(t, "content"))
			e.Source = ""
			switch rapid.IntRange(0, 4).Draw(t, "dedup") {
			case 0:
				e.NoDedup = true
			case 1, 2:
				e.DedupID = rapid.SampledFrom([]string{"x", "y"}).Draw(t, "dedup id")
			}
			known, made := m.made[id]
			switch action := rapid.IntRange(0, 9).Draw(t, "action"); {
			case action < 4:
				at := epoch.Add(time.Duration(rapid.IntRange(-1, 60).Draw(t, "at")) * 10 * time.Minute)
				if made && rapid.Bool().Draw(t, "again") {
					e, at = known.event, known.at
				}
				got := apply(do(frame.Schedule{ID: id, At: at, NoDedup: e.NoDedup, Event: frame.EncodeCopy(&e)}))
				waiting := 0
				for _, s := range m.made {
					if s.done.IsZero() {
						waiting++
					}
				}
				same := made && known.at.Equal(at) && known.event.DedupID == e.DedupID &&
					known.event.NoDedup == e.NoDedup && string(known.event.Payload) == string(e.Payload)
				switch {
				case made && !same:
					wantRefusal(t, got, Exists)
				case made:
					if got.Refusal != nil || !got.Replayed || got.Scheduled.Offset != known.place.Offset {
						t.Fatalf("%+v %v, want the offset %d", got.Scheduled, got.Refusal, known.place.Offset)
					}
					counts["repeated"]++
				case waiting == 3:
					wantRefusal(t, got, Overloaded)
					counts["full"]++
				default:
					if got.Refusal != nil || got.Replayed {
						t.Fatalf("%+v", got)
					}
					m.made[id] = modelScheduled{event: e, at: at}
					counts["scheduled"]++
				}
			case action < 8:
				// The command carries what the leader has read, which is what was scheduled.
				one := publish(e)
				if made {
					one = publish(known.event)
				}
				one.command = frame.Publish{Count: 1, Scheduled: id}
				got := apply(one)
				switch {
				case !made:
					wantRefusal(t, got, NotFound)
				case !known.done.IsZero():
					if !got.Replayed || got.Scheduled.Offset != known.place.Offset {
						t.Fatalf("%+v, want the offset %d", got.Scheduled, known.place.Offset)
					}
					counts["delivered again"]++
				case known.at.After(now):
					wantRefusal(t, got, Invalid)
					counts["early"]++
				default:
					place, fits := m.publish(known.event, now)
					if !fits {
						wantRefusal(t, got, Conflict)
						counts["conflict"]++
						break
					}
					if got.Refusal != nil || got.Offsets(1)[0] != place {
						t.Fatalf("%+v %v, want %+v", got.Offsets(1), got.Refusal, place)
					}
					known.done, known.place = now, place
					m.made[id] = known
					counts["delivered"]++
				}
			case action < 9:
				got := apply(do(frame.Unschedule{ID: id}))
				switch {
				case !made:
					wantRefusal(t, got, NotFound)
				case !known.done.IsZero():
					wantRefusal(t, got, Conflict)
				default:
					delete(m.made, id)
					counts["removed"]++
				}
			default:
				got := apply(publish(e))
				if place, fits := m.publish(e, now); fits != (got.Refusal == nil) || (fits && got.Offsets(1)[0] != place) {
					t.Fatalf("%+v %v, want %+v %t", got.Offsets(1), got.Refusal, place, fits)
				}
			}

			// The log and what waits are the model's.
			var log []string
			for _, e := range all(t, troubled) {
				log = append(log, string(e.Payload))
			}
			if !slices.Equal(log, m.log) {
				t.Fatalf("the log is %q, want %q", log, m.log)
			}
			if list := troubled.AllScheduled("", 10); len(list) != len(m.made) {
				t.Fatalf("%+v, want %+v", list, m.made)
			}
			due := 0
			for id, s := range m.made {
				e, waits, err := troubled.ScheduledEvent(id)
				if err != nil || waits != s.done.IsZero() || (waits && string(e.Payload) != string(s.event.Payload)) {
					t.Fatalf("%s: %s %t %v, want %+v", id, e.Payload, waits, err, s)
				}
				if s.done.IsZero() && !s.at.After(now) {
					due++
				}
			}
			if got := troubled.DueAt(now, 10); len(got) != due {
				t.Fatalf("%d are due, want %d", len(got), due)
			}
		}
		if a, b := dump(t, plain), dump(t, troubled); !bytes.Equal(a, b) {
			t.Fatalf("dumps differ:\n%s\n%s", a, b)
		}
	})
	for _, kind := range []string{"scheduled", "repeated", "full", "delivered", "delivered again", "early", "conflict",
		"removed"} {
		if counts[kind] == 0 && !testing.Short() { // which goes through few
			t.Errorf("no history has %s", kind)
		}
	}
}

func wantRefusal(t tb, got Result, code Code) {
	t.Helper()
	if got.Refusal == nil || got.Refusal.Code != code {
		t.Fatalf("%v, want the code %s", got.Refusal, code)
	}
}
