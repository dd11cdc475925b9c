package event

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func TestGateRefuses(t *testing.T) {
	long := strings.Repeat("x", 257)
	far := time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, bad := range []struct {
		e             Event
		strict        bool
		reason, field string
	}{
		{Event{}, false, ReasonInvalidType, "type"},
		{Event{Type: "A\nB"}, false, ReasonInvalidType, "type"},
		{Event{Type: "A B"}, false, ReasonInvalidType, "type"},
		{Event{Type: "É"}, false, ReasonInvalidType, "type"},
		{Event{Type: "..."}, false, ReasonInvalidType, "type"},
		{Event{Type: Type(long)}, false, ReasonTooLarge, "type"},
		{Event{Type: "NO_SUCH"}, true, ReasonUnknownType, "type"},
		{Event{Type: "leader.elected"}, false, ReasonReservedType, "type"},
		{Event{Type: "CURSOR_ANYTHING"}, false, ReasonReservedType, "type"},
		{Event{Type: "DLQ_STALE_EVENTS", Foreign: true}, false, ReasonReservedType, "type"},
		{Event{Type: "A", Value: "b"}, false, ReasonInvalidField, "value"},
		{Event{Type: TrainingStarted, Value: "training_completed"}, false, ReasonInvalidField, "value"},
		{Event{Type: "A", Source: long}, false, ReasonTooLarge, "source"},
		{Event{Type: "A", Key: "a\x00"}, false, ReasonInvalidField, "key"},
		{Event{Type: "A", CorrelationID: "\u0085"}, false, ReasonInvalidField, "correlation_id"},
		{Event{Type: "A", CausationID: "\xff"}, false, ReasonInvalidUTF8, "causation_id"},
		{Event{Type: "A", DedupID: long}, false, ReasonTooLarge, "dedup_id"},
		{Event{Type: "A", Time: far}, false, ReasonInvalidField, "time"},
		{Event{Type: "A", Payload: json.RawMessage(`[]`)}, false, ReasonInvalidPayload, "payload"},
		{Event{Type: "A", Payload: json.RawMessage(`{"a": {"b": 1, "b": 2}}`)}, false, ReasonDuplicateKey, "payload.a.b"},
		{Event{Type: "A", Payload: json.RawMessage(`{"a": NaN}`)}, false, ReasonNotANumber, "payload.a"},
		{Event{Type: "A", Payload: json.RawMessage(sized(1<<20 + 1))}, false, ReasonTooLarge, "payload"},
		{Event{Type: "A", Payload: json.RawMessage(nest(129))}, false, ReasonTooDeep, ""},
	} {
		_, _, err := (&Policy{Strict: bad.strict}).Normalize(&bad.e)
		e, ok := err.(*Error)
		if !ok || e.Reason != bad.reason || e.Field != bad.field && e.Reason != ReasonTooDeep {
			t.Errorf("%.40q: %v, want %s in %s", bad.e.Type, err, bad.reason, bad.field)
		}
	}
	_, _, err := (&Policy{Strict: true}).Normalize(&Event{Type: "TRAINING_COMPLETD"})
	if !strings.Contains(fmt.Sprint(err), "TRAINING_COMPLETED") {
		t.Errorf("%v does not name the nearest type", err)
	}
}

func TestGateWarns(t *testing.T) {
	for _, c := range []struct {
		event    string
		want     Type
		original string
		warnings []string // reason field: a part of the message
	}{
		{`{"type":"training.complete"}`, TrainingCompleted, "", nil},
		{`{"type":"promotion.complete"}`, ModelPromoted, "promotion.complete", []string{"renamed_type type: PROMOTION_COMPLETED is a type"}},
		{`{"type":"my.own-event"}`, "MY_OWN_EVENT", "", []string{"unknown_type type: MY_OWN_EVENT is not in the catalogue"}},
		{`{"type":"TRAINING_THRESHOLD_REACHED","value":"training_threshold","payload":{"config":1,"num_players":2,"reason":null}}`, TrainingThresholdReached, "", nil},
		{`{"type":"TRAINING_THRESHOLD_REACHED","payload":{"num_players":2.0}}`, TrainingThresholdReached, "", nil},
		{`{"type":"TRAINING_THRESHOLD_REACHED","payload":{"num_players":2.5,"reason":["x"],"zeta":1,"eta":2}}`, TrainingThresholdReached, "", []string{
			"payload_field payload.num_players: a number, the catalogue has integer", "payload_field payload.reason: an array, the catalogue has string",
			"payload_field payload: not among the catalogue's fields of TRAINING_THRESHOLD_REACHED: eta, zeta"}},
		{`{"type":"CHECKPOINT_LOADED","payload":{"correlation_id":"a\nb"}}`, CheckpointLoaded, "", []string{"correlation_id payload.correlation_id: control character"}},
	} {
		e, err := DecodeOne([]byte(c.event), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // normalizing again finds the same but for the rename, which has happened
			_, warnings, err := (&Policy{}).Normalize(&e)
			if err != nil || e.Type != c.want || e.Original != c.original || e.Value != "" || len(warnings) != len(c.warnings) {
				t.Fatalf("%s: %+v, %+v, %v", c.event, e, warnings, err)
			}
			for i, w := range warnings {
				reason, message, _ := strings.Cut(c.warnings[i], ": ")
				if w.Reason+" "+w.Field != reason || !strings.Contains(w.Message, message) {
					t.Errorf("%s: %+v, want %s", c.event, w, c.warnings[i])
				}
			}
			c.warnings = slices.DeleteFunc(c.warnings, func(w string) bool { return strings.HasPrefix(w, WarningRenamedType) })
		}
	}
}

// A gate says of every event of a request what the policy says of it alone.
func TestGateSaysWhatThePolicySays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{}
		g := p.Gate()
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			e := New(rapid.SampledFrom([]Type{TrainingCompleted, "training.completed", "PROMOTION_COMPLETE", "MY_OWN", "GPU_MELTED"}).Draw(t, "type"), nil)
			payload := map[string]any{}
			for _, field := range []string{"config_key", "epoch", "loss", "gpu", "correlation_id"} {
				if value := rapid.SampledFrom([]any{nil, "text", "a\nb", 3, 2.5, 2.0, true, []int{1}, struct{}{}}).Draw(t, field); value != (struct{}{}) {
					payload[field] = value
				}
			}
			e = New(e.Type, payload)
			alone := e
			wantHash, want, wantErr := p.Normalize(&alone)
			hash, got, err := g.Normalize(&e)
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || hash != wantHash || (err == nil) != (wantErr == nil) {
				t.Fatalf("%s %s: %x %v, want %x %v\n%s", e.Type, e.Payload, hash, err, wantHash, wantErr, diff)
			}
			if diff := cmp.Diff(alone, e, cmpopts.IgnoreUnexported(Event{})); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

func TestWarningsAreBounded(t *testing.T) {
	var fields []string
	for i := range 10_000 {
		fields = append(fields, fmt.Sprintf(`"f%d":%d`, i, i))
	}
	e := Event{Type: TrainingThresholdReached, Payload: json.RawMessage("{" + strings.Join(fields, ",") + "}")}
	_, warnings, err := (&Policy{}).Normalize(&e)
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0].Message, "and 9992 more") {
		t.Errorf("%+v, %v", warnings, err)
	}
}

func TestReservedPolicies(t *testing.T) {
	for policy, foreign := range map[ReservedPolicy]bool{ReservedForeign: true, ReservedOwn: false} {
		gate := Policy{Reserved: policy, Strict: true}
		for _, name := range []Type{"leader_elected", "CURSOR_STALLED"} {
			e := Event{Type: name}
			if _, warnings, err := gate.Normalize(&e); err != nil || len(warnings) > 0 || e.Foreign != foreign {
				t.Errorf("%s: foreign %v, %v, %v", name, e.Foreign, warnings, err)
			}
		}
		e := Event{Type: NodeUnhealthy, Foreign: true}
		if _, _, err := gate.Normalize(&e); err != nil || e.Foreign {
			t.Errorf("a client's own type: foreign %v, %v", e.Foreign, err)
		}
	}
}

func TestCorrelationIDOfThePayloadFillsAnAbsentOne(t *testing.T) {
	for _, c := range []struct{ outside, payload, want string }{
		{"", `{"correlation_id": "caf\u00e9"}`, "café"},
		{"out", `{"correlation_id": "in"}`, "out"},
		{"", `{"correlation_id": 7}`, ""},
		{"", `{"correlation_id": null}`, ""},
		{"", `{"deeper": {"correlation_id": "in"}}`, ""},
		{"", `{"z":1,"correlation_id":"in"}`, "in"},
	} {
		e := Event{Type: "A", CorrelationID: c.outside, Payload: json.RawMessage(c.payload)}
		if _, _, err := (&Policy{}).Normalize(&e); err != nil || e.CorrelationID != c.want {
			t.Errorf("%q, %s: correlation id %q, %v", c.outside, c.payload, e.CorrelationID, err)
		}
	}
}

// typicalEvent has a canonical payload and is about 256 bytes long when sent.
func typicalEvent() Event {
	return Event{Type: CheckpointSaved, Source: "trainer-3", Key: "hex8_2p", Payload: json.RawMessage(
		`{"accuracy": 0.8731, "board_type": "hex8", "epochs": 40, "final_loss": 0.02391, "host": "gpu-node-17", ` +
			`"model": "hex8_2p_v41.pth", "ok": true, "t": 1767607200.25}`)}
}

func TestCanonicalEventPassesTheGateWithoutAllocation(t *testing.T) {
	gate := Policy{Catalogue: Builtin()}
	large := typicalEvent()
	large.Payload = json.RawMessage(sized(100_000))
	for _, payload := range []json.RawMessage{typicalEvent().Payload, large.Payload} {
		var e Event
		if allocs := testing.AllocsPerRun(100, func() {
			e = Event{Type: CheckpointLoaded, Source: "s", Payload: payload}
			if _, _, err := gate.Normalize(&e); err != nil {
				t.Fatal(err)
			}
		}); allocs > 0 {
			t.Errorf("%d bytes: %v allocations", len(payload), allocs)
		}
	}
	e := typicalEvent()
	d, _ := Builtin().Definition(e.Type)
	m := Filter{Types: []string{"checkpoint.*", "custom_*"}, Sources: []string{"trainer-3"}, Categories: []string{d.Category}}.Compile(Builtin())
	if allocs := testing.AllocsPerRun(100, func() {
		if !m.Match(&e) {
			t.Fatal("no match")
		}
	}); allocs > 0 {
		t.Errorf("matching: %v allocations", allocs)
	}
}

func BenchmarkCanonicalCheckAndHash(b *testing.B) {
	e := typicalEvent()
	b.SetBytes(int64(len(e.Payload)))
	b.ReportAllocs()
	for b.Loop() {
		v := verifier{data: e.Payload, maxDepth: 128}
		if !v.payload() {
			b.Fatal("not canonical")
		}
		contentHash("training_completed", e.Payload)
	}
}

func BenchmarkCanonicalCheck(b *testing.B) {
	e := typicalEvent()
	b.SetBytes(int64(len(e.Payload)))
	for b.Loop() {
		if v := (verifier{data: e.Payload, maxDepth: 128}); !v.payload() {
			b.Fatal("not canonical")
		}
	}
}

func BenchmarkDecodeAndNormalize(b *testing.B) {
	e := typicalEvent()
	compact, err := e.MarshalJSON()
	if err != nil {
		b.Fatal(err)
	}
	var shuffled map[string]any
	if err := json.Unmarshal(compact, &shuffled); err != nil {
		b.Fatal(err)
	}
	unsorted, err := json.Marshal(shuffled)
	if err != nil {
		b.Fatal(err)
	}
	gate := Policy{Catalogue: Builtin()}
	for name, body := range map[string][]byte{"canonical": compact, "compact": unsorted} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				e, err := DecodeOne(body, Limits{})
				if err == nil {
					_, _, err = gate.Normalize(&e)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	e := typicalEvent()
	e.Offset, e.Term, e.AppendedAt, e.Time = 7_000_000, 3, time.Unix(1767607200, 5), time.Unix(1767607200, 5)
	line := e.AppendJSON(nil)
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		line = e.AppendJSON(line[:0])
	}
}

func BenchmarkUnmarshalJSON(b *testing.B) {
	e := typicalEvent()
	e.Offset, e.Term, e.AppendedAt = 7_000_000, 3, time.Unix(1767607200, 5)
	line := e.AppendJSON(nil)
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if err := e.UnmarshalJSON(line); err != nil {
			b.Fatal(err)
		}
	}
}
