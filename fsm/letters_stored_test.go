package fsm

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// One entry may store many letters, of cursors with long names and with long errors: it emits one event, whose size
// is bounded and whose count is complete.
func TestManyStoredLettersAreOneBoundedEvent(t *testing.T) {
	m := open(t, vfs.NewMem())
	defer m.Close()
	const letters = 300
	applyTo(t, m, entryOf(1, 1, "n1", epoch, do(frame.TermStart{ClusterID: "c"}),
		do(frame.MemberPut{Member: frame.Member{ID: "n1", FeatureLevel: FeatureLevel}}), publish(ev(1))))
	name := func(i int) string { return fmt.Sprintf("%03d%s", i, strings.Repeat("\x01", 250)) }
	var made, dead []request
	copied := ev(1)
	for i := range letters {
		made = append(made, do(frame.CursorCreate{Name: name(i)}))
		dead = append(dead, do(frame.DeadLetter{Cursor: name(i), Offset: 1, Handler: strings.Repeat("h", 4096),
			Error: strings.Repeat("é", 30_000), Event: frame.EncodeCopy(&copied)}))
	}
	applyTo(t, m, entryOf(2, 1, "n1", epoch, made...))
	for _, r := range applyTo(t, m, entryOf(3, 1, "n1", epoch, dead...)) {
		if r.Refusal != nil {
			t.Fatal(r.Refusal)
		}
	}

	var reports []event.Event
	for _, e := range all(t, m) {
		if e.Type == event.DLQEventsStored {
			reports = append(reports, e)
		}
	}
	if len(reports) != 1 || len(reports[0].Payload) > 256<<10 {
		t.Fatalf("%d reports, the first of %d bytes", len(reports), len(reports[0].Payload))
	}
	var p struct {
		Count, Dead int
		Cursors     map[string]int
		Handler     string
		Error       string
	}
	if err := json.Unmarshal(reports[0].Payload, &p); err != nil {
		t.Fatal(err)
	}
	if p.Count != letters || p.Dead != letters || len(p.Cursors) != maxStoredNames/len(name(0)) ||
		len(p.Handler) != maxStoredHandler || p.Error != strings.Repeat("é", maxStoredError/2) {
		t.Errorf("count %d, dead %d, %d cursors, handler of %d bytes, error of %d", p.Count, p.Dead, len(p.Cursors),
			len(p.Handler), len(p.Error))
	}
	if p.Cursors[name(0)] != 1 {
		t.Error("the first cursor is not listed")
	}
}

// The names of all cursors whose letters are purged may be longer than an event: the report then goes without them.
func TestAPurgeOfManyLongNamesIsReported(t *testing.T) {
	m := open(t, vfs.NewMem())
	defer m.Close()
	applyTo(t, m, entryOf(1, 1, "n1", epoch, do(frame.TermStart{ClusterID: "c"}),
		do(frame.MemberPut{Member: frame.Member{ID: "n1", FeatureLevel: FeatureLevel}})))
	copied := ev(1)
	var kept []request
	var purge frame.Purge
	for i := range 300 {
		letter := frame.DeadLetter{Cursor: fmt.Sprintf("%03d%s", i, strings.Repeat("c", 4093)),
			Event: frame.EncodeCopy(&copied)}
		kept = append(kept, do(frame.LetterKeep{Origin: [frame.OriginSize]byte{byte(i), byte(i >> 8)}, Letter: letter}))
		purge.Letters = append(purge.Letters, uint64(i+1))
	}
	applyTo(t, m, entryOf(2, 1, "n1", epoch, kept...))
	done := applyTo(t, m, entryOf(3, 1, "n1", epoch, do(purge)))
	if done[0].Letters == nil || done[0].Letters.Done != 300 {
		t.Fatalf("%+v", done[0])
	}
	events := all(t, m)
	last := events[len(events)-1]
	if want := `{"count":300,"dead":0,"reason":"request","under_way":0}`; last.Type != event.DLQEventsPurged ||
		strings.ReplaceAll(string(last.Payload), " ", "") != want {
		t.Errorf("%s %.200s", last.Type, last.Payload)
	}
}
