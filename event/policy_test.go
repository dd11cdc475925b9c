package event

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/event/canon"
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
	// Clients print the remedy after the message.
	if e, ok := err.(*Error); !ok || strings.Count(e.Message+e.Remedy, "TRAINING_COMPLETED") != 1 {
		t.Errorf("%v does not name the nearest type once", err)
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
		{ // the fields that the samples of the platform's documents give it
			`{"type":"TRAINING_COMPLETED","payload":{"config":"hex8_2p","epochs_completed":50,"metrics":{"loss":0.1}}}`,
			TrainingCompleted,
			"",
			nil,
		},
		{
			`{"type":"promotion.complete"}`,
			ModelPromoted,
			"promotion.complete",
			[]string{"renamed_type type: PROMOTION_COMPLETED is a type"},
		},
		{`{"type":"my.own-event"}`, "MY_OWN_EVENT", "", []string{"unknown_type type: MY_OWN_EVENT is not in the catalogue"}},
		{
			`{"type":"TRAINING_THRESHOLD_REACHED","value":"training_threshold",` +
				`"payload":{"config":1,"num_players":2,"reason":null}}`,
			TrainingThresholdReached,
			"",
			nil,
		},
		{`{"type":"TRAINING_THRESHOLD_REACHED","payload":{"num_players":2.0}}`, TrainingThresholdReached, "", nil},
		{
			`{"type":"TRAINING_THRESHOLD_REACHED","payload":{"num_players":2.5,"reason":["x"],"zeta":1,"eta":2}}`,
			TrainingThresholdReached,
			"",
			[]string{
				"payload_field payload.num_players: a number, the catalogue has integer",
				"payload_field payload.reason: an array, the catalogue has string",
				"payload_field payload: not among the catalogue's fields of TRAINING_THRESHOLD_REACHED: eta, zeta",
			},
		},
		{
			`{"type":"CHECKPOINT_LOADED","payload":{"correlation_id":"a\nb"}}`,
			CheckpointLoaded,
			"",
			[]string{"correlation_id payload.correlation_id: control character"},
		},
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

// A gate says of every event of its requests what the policy says of it alone, whatever came before.
func TestGateSaysWhatThePolicySays(t *testing.T) {
	keys := []string{
		"config_key",
		"correlation_id",
		"epoch",
		"gpu",
		"loss",
		`lo\u00e9`,
		"lo\\ne",
		strings.Repeat("m", canon.OutlineKeyBytes),
		strings.Repeat("n", canon.OutlineKeyBytes),
	}
	for i := range canon.OutlineKeys {
		keys = append(keys, fmt.Sprintf("p%02d", i))
	}
	values := []string{
		"null",
		`"text"`,
		`"a\nb"`,
		"3",
		"2.5",
		"2.0",
		"2.50",
		"true",
		"[1, 2.5]",
		"[1,2]",
		`{"b": 1}`,
		`{"b": 1, "a": 2}`,
	}
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{}
		g := p.Gate()
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			var members []string
			most := rapid.SampledFrom([]int{5, len(keys)}).Draw(t, "keys")
			for _, key := range keys[:most] {
				if rapid.IntRange(0, 9).Draw(t, key) > 0 {
					members = append(members, `"`+key+`": `+rapid.SampledFrom(values).Draw(t, key))
				}
			}
			if len(members) > 1 && rapid.IntRange(0, 9).Draw(t, "order") == 0 {
				members[0], members[1] = members[1], members[rapid.IntRange(0, 1).Draw(t, "twice")]
			}
			e := Event{Payload: json.RawMessage("{" + strings.Join(members, ", ") + "}")}
			e.Type = rapid.SampledFrom(
				[]Type{TrainingCompleted, "training.completed", "PROMOTION_COMPLETE", "MY_OWN", "GPU_MELTED", "GPU MELTED"},
			).Draw(
				t,
				"type",
			)
			alone := e
			wantHash, want, wantErr := p.Normalize(&alone)
			hash, got, err := g.Normalize(&e)
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || hash != wantHash ||
				fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("%s %s: %x %v, want %x %v\n%s", e.Type, e.Payload, hash, err, wantHash, wantErr, diff)
			}
			if diff := cmp.Diff(alone, e, cmpopts.IgnoreUnexported(Event{})); err == nil && diff != "" {
				t.Fatal(diff)
			}
			if rapid.Bool().Draw(t, "another request") {
				g.Close()
				p.Strict = rapid.Bool().Draw(t, "strict")
				g = p.Gate()
			}
		}
		g.Close()
	})
}

// The warning of an unknown type has the nearest known ones for the first types of a request. A later request with a
// type that came too late has them as well.
func TestAnUnknownTypeIsNamedWithTheNearest(t *testing.T) {
	p := Policy{}
	const near = "is not in the catalogue; nearest known types: TRAINING_COMPLETED"
	// Both clients of the gate, with a misspelt type and with one that resembles none.
	for name, normalize := range map[string]func(*Event) (Hash, []Warning, error){
		"policy": p.Normalize, "gate": p.Gate().Normalize,
	} {
		for spelt, want := range map[Type]string{
			"training.completd":                 "TRAINING_COMPLETD " + near,
			"QQQQQQQQ_XXXXXXX":                  "QQQQQQQQ_XXXXXXX is not in the catalogue",
			Type(strings.Repeat("TRAINING", 9)): "TRAINING is not in the catalogue",
		} {
			_, got, err := normalize(&Event{Type: spelt})
			if err != nil || len(got) != 1 || !strings.Contains(got[0].Message+"$", want) {
				t.Errorf("%s, %s: %v %v", name, spelt, got, err)
			}
		}
	}

	g := p.Gate()
	message := func(n int) string {
		_, got, err := g.Normalize(&Event{Type: Type(fmt.Sprint("TRAINING_COMPLETED", n))})
		if err != nil || len(got) != 1 {
			t.Fatalf("%v %v", got, err)
		}
		return got[0].Message
	}
	for n := range maxLookups + 2 {
		if has := strings.Contains(message(n), near); has != (n < maxLookups) {
			t.Errorf("type %d of the request: %s", n, message(n))
		}
	}
	// The gate that the next request gets knows what this one has looked up.
	g.lookups = maxLookups
	for _, n := range []int{maxLookups + 1, 0} {
		if !strings.Contains(message(n), near) {
			t.Errorf("type %d in the next request: %s", n, message(n))
		}
	}
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

// BenchmarkGate lets the events of one request through, of one shape, with values of their own.
func BenchmarkGate(b *testing.B) {
	events := trainingEvents(1024)
	policy := Policy{}
	bytes := 0
	for i := range events {
		bytes += len(events[i].Payload)
	}
	b.SetBytes(int64(bytes))
	b.ReportAllocs()
	for b.Loop() {
		gate := policy.Gate()
		for i := range events {
			e := events[i]
			if _, _, err := gate.Normalize(&e); err != nil {
				b.Fatal(err)
			}
		}
		gate.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(events)), "ns/event")
}

// trainingEvents are of five types, with payloads of 256 bytes.
func trainingEvents(n int) []Event {
	random := rand.New(rand.NewPCG(1, 2))
	types := []Type{TrainingStarted, TrainingProgress, TrainingCompleted, EvaluationCompleted, NewGamesAvailable}
	boards := []string{"hex8_2p", "hex8_4p", "square8_2p", "square19_2p", "hexagonal_2p"}
	events := make([]Event, n)
	for i := range events {
		board := boards[random.IntN(len(boards))]
		p := fmt.Appendf(
			nil,
			`{"config_key": "%s", "elo": %d.%d5, "epoch": %d, "host": "gpu-%d", "iteration": %d, "loss": %d.%03d5, `+
				`"model_path": "models/%s/candidate-%d.pth", "run": "18a1b2c3d4e5f607-3", "val_losses": [`,
			board,
			1200+random.IntN(800),
			random.IntN(10),
			random.IntN(200),
			random.IntN(64),
			i,
			random.IntN(3),
			random.IntN(1000),
			board,
			random.IntN(5000),
		)
		for len(p) < 248 {
			p = fmt.Appendf(p, "%d.%02d5, ", random.IntN(2), random.IntN(100))
		}
		events[i] = Event{Type: types[i%len(types)], Source: "trainer-3", Key: board, Payload: append(p, "1.5]}"...)}
	}
	return events
}
