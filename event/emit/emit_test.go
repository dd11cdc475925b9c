package emit

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/event"
)

// recorder is a publisher that keeps the events, and answers with how many there were.
type recorder struct{ sent []event.Event }

// Publish implements Publisher.
func (r *recorder) Publish(_ context.Context, ev event.Event) (int, error) {
	r.sent = append(r.sent, ev)
	return len(r.sent), nil
}

func TestWhatIsSetIsSent(t *testing.T) {
	for want, p := range map[string]Payload{
		`{}`:                                   PlateauDetected{},
		`{"current_elo": 0, "stall_count": 0}`: PlateauDetected{CurrentElo: new(0.0), StallCount: new(int64(0))},
		`{"enable_cosine_annealing": false}`:   HyperparameterUpdated{EnableCosineAnnealing: new(false)},
		`{"config_key": "", "final_loss": 0}`:  TrainingCompleted{ConfigKey: "", FinalLoss: 0},
		`{"epochs_completed": 50, "model_path": "<a>&\u00fc"}`: TrainingCompleted{
			ModelPath: "<a>&ü", Extra: Extra{"epochs_completed": 50}},
		`{"model_path": null, "source": ""}`: &TrainingCompleted{Extra: Extra{"source": "", "model_path": nil}},
		`{"timestamp": 1767607200.5}`:        SyncTriggered{Timestamp: At(time.Unix(1767607200, 5e8))},
	} {
		var to recorder
		if n, err := Publish(t.Context(), &to, p); n != 1 || err != nil {
			t.Fatalf("%s: %d, %v", want, n, err)
		}
		ev := to.sent[0]
		if strings.Contains(string(ev.Payload), `\u003c`) {
			t.Errorf("%s was sent with < escaped, which the gate then has to rewrite", ev.Payload)
		}
		if _, _, err := (&event.Policy{}).Normalize(&ev); err != nil || string(ev.Payload) != want {
			t.Errorf("sent %s, want %s (%v)", ev.Payload, want, err)
		}
	}
}

func TestWhatCannotBeSentIsNamed(t *testing.T) {
	for want, p := range map[string]TrainingCompleted{
		"field source: given twice":           {Source: "a", Extra: Extra{"source": "b"}},
		"field final_loss: json: unsupported": {FinalLoss: math.NaN()},
		"field rest: json: unsupported":       {Extra: Extra{"rest": make(chan int)}},
		"field model_path: not valid UTF-8":   {ModelPath: "models/\xff.pth"},
		"field metrics: json: error calling":  {Metrics: At(time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC))},
	} {
		var to recorder
		_, err := Publish(t.Context(), &to, p)
		if err == nil || !strings.HasPrefix(err.Error(), "emit: encode TRAINING_COMPLETED: "+want) || len(to.sent) > 0 {
			t.Errorf("%v, want … %s", err, want)
		}
	}
}

// encoding/json alone does not know where the members of Extra belong: it must not leave them out silently.
func TestExtraIsNotLostByEncodingJSON(t *testing.T) {
	if data, err := json.Marshal(TrainingCompleted{ConfigKey: "hex8_2p"}); string(data) != `{"config_key":"hex8_2p"}` {
		t.Errorf("%s, %v", data, err)
	}
	data, err := json.Marshal(TrainingCompleted{Extra: Extra{"gpu_hours": 3.5}})
	if err == nil || !strings.Contains(err.Error(), "use emit.Publish") {
		t.Errorf("%s, %v", data, err)
	}
}

func TestOptionsSetTheEventsFields(t *testing.T) {
	at := time.Date(2026, 1, 5, 10, 0, 0, 1, time.UTC)
	got, err := Event(TaskSpawned{}, WithSource("trainer-3"), WithSource("other"), WithKey("sq8_4p"),
		WithCorrelationID("run-7"), WithCausationID("c"), WithDedupID("d"), WithoutDedup(), WithTime(at))
	if err != nil {
		t.Fatal(err)
	}
	want := event.Event{Type: event.TaskSpawned, Payload: json.RawMessage("{}"), Source: "other", Key: "sq8_4p",
		CorrelationID: "run-7", CausationID: "c", DedupID: "d", NoDedup: true, Time: at}
	if string(got.AppendJSON(nil)) != string(want.AppendJSON(nil)) {
		t.Errorf("%s, want %s", got.AppendJSON(nil), want.AppendJSON(nil))
	}
}

func TestPublishersErrorPassesThrough(t *testing.T) {
	noLeader := errors.New("no leader")
	to := PublishFunc[int](func(context.Context, event.Event) (int, error) { return 3, noLeader })
	if n, err := Publish(t.Context(), to, TaskFailed{}); n != 3 || err != noLeader {
		t.Errorf("%d, %v", n, err)
	}
}

func TestDecodeReadsWhatOthersSend(t *testing.T) {
	raw := json.RawMessage(`{"num_players": "two", "target_games": 3.0, "anomaly_count": 9223372036854775808, "elo_gap": 1,
		"velocity": null, "exploration_boost": 1.5, "new": {"seed": 18446744073709551615}, "priority": "high"}`)
	p, err := Decode[SelfplayTargetUpdated](event.Event{Type: "selfplay.target.updated", Payload: raw})
	mismatch, ok := errors.AsType[*MismatchError](err)
	if !ok || !slices.Equal(slices.Sorted(slices.Values(mismatch.Fields)), []string{"anomaly_count", "num_players"}) {
		t.Errorf("%v", err)
	}
	want := SelfplayTargetUpdated{
		Priority: "high", TargetGames: new(int64(3)), EloGap: new(1.0), ExplorationBoost: new(1.5),
		Extra: Extra{"num_players": "two", "anomaly_count": json.Number("9223372036854775808"),
			"new": map[string]any{"seed": json.Number("18446744073709551615")}},
	}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Error(diff)
	}

	if _, err := Decode[TrainingCompleted](event.New(event.TrainingStarted, nil)); !errors.Is(err, ErrOtherType) {
		t.Errorf("another type: %v", err)
	}
	if _, err := Decode[TrainingCompleted](event.Event{Type: event.TrainingCompleted}); err != nil {
		t.Errorf("no payload: %v", err)
	}
	if _, err := Decode[TrainingCompleted](event.New(event.TrainingCompleted, json.RawMessage(`{"a": 1} 2`))); err == nil {
		t.Error("trailing bytes were read over")
	}
	elected := event.New(event.LeaderElected, map[string]any{"leader_id": "n2", "term": 4, "skipped_terms": []int{3}})
	leader, err := Decode[LeaderElected](elected)
	wantLeader := LeaderElected{LeaderID: "n2", Term: new(int64(4)), SkippedTerms: []any{json.Number("3")}}
	if diff := cmp.Diff(wantLeader, leader); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestAsReadsAnyField(t *testing.T) {
	if f, err := As[float64](json.Number("1500.5")); f != 1500.5 || err != nil {
		t.Error(f, err)
	}
	if hosts, err := As[[]string]([]any{"a", "b"}); !slices.Equal(hosts, []string{"a", "b"}) || err != nil {
		t.Error(hosts, err)
	}
	if s, err := As[string]("x"); s != "x" || err != nil {
		t.Error(s, err)
	}
	if at, err := As[Timestamp](json.Number("1767607200.25")); !at.Equal(time.Unix(1767607200, 25e7)) || err != nil {
		t.Error(at, err)
	}
	if _, err := As[int](nil); !errors.Is(err, ErrNotSet) {
		t.Error(err)
	}
	if _, err := As[int](json.Number("1.5")); err == nil {
		t.Error("1.5 was read as an int")
	}
	if _, err := As[int](make(chan int)); err == nil {
		t.Error("a channel was read as an int")
	}
}

func TestTimestampReadsWhatTheGateAccepts(t *testing.T) {
	for in, want := range map[string]string{
		`1767607200`:                     `1767607200.0`,
		`1767607200.1234567`:             `1767607200.1234567`,
		`-0.5`:                           `-0.5`,
		`1.7676072e9`:                    `1767607200.0`,
		`"2026-01-05T10:00:00.25Z"`:      `1767607200.25`,
		`"2026-01-05T11:00:00.25+01:00"`: `1767607200.25`,
		`"yesterday"`:                    ``,
		`true`:                           ``,
		`1e300`:                          ``,
		`1e400`:                          ``,
		`-9223372037`:                    ``,
		`"9999-01-01T00:00:00Z"`:         ``,
		`"0001-01-01T00:00:00Z"`:         ``,
		`{"seconds": 1}`:                 ``,
	} {
		var at Timestamp
		err := json.Unmarshal([]byte(in), &at)
		if want == "" {
			if err == nil || !at.IsZero() {
				t.Errorf("%s was read as %v", in, at)
			}
			continue
		}
		if out, bad := json.Marshal(at); err != nil || bad != nil || string(out) != want {
			t.Errorf("%s became %s, want %s (%v, %v)", in, out, want, err, bad)
		}
	}
}

// A current time keeps a microsecond, and a time that was read is sent unchanged.
func TestTimestampKeepsMicroseconds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := At(time.Unix(rapid.Int64Range(1e8, 4e9).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanos")))
		first, err := json.Marshal(at)
		if err != nil {
			t.Fatal(err)
		}
		var read Timestamp
		if err := json.Unmarshal(first, &read); err != nil || at.Sub(read.Time).Abs() > time.Microsecond/2 {
			t.Fatalf("%v became %v, %v", at, read, err)
		}
		if again, err := json.Marshal(read); err != nil || string(again) != string(first) {
			t.Fatalf("%s became %s, %v", first, again, err)
		}
	})
}
