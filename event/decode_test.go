package event

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const fullEvent = `{"offset":7,"type":"MODEL_PROMOTED","value":"model_promoted",` +
	`"payload":{"a": 1, "b": "\u00e9"},"source":"trainer-3",` +
	`"key":"hex8_2p","correlation_id":"c","causation_id":"x","dedup_id":"d","dedup":false,` +
	`"time":"2026-01-05T10:00:00.000000001Z","appended_at":"2026-01-05T10:00:01Z","term":3,` +
	`"hash":"d2edb14c2a3b96ff9df9ae76e37c6ee0ce98d09d5e62bdc3a3ab41b6ae6e6d4d",` +
	`"original_type":"PROMOTION_COMPLETE","foreign":true,"target":"trainer","redrive":12}`

// badInput is a body that no decoder takes, and the error that names what is wrong with it.
type badInput struct {
	name, body    string
	reason, field string
	position      int64 // -2: any
}

func badInputs() []badInput {
	deep := strings.Repeat("[", 10_000)
	return []badInput{
		{"empty", "", ReasonEmpty, "", 0},
		{"blank", " \n\t", ReasonEmpty, "", 0},
		{"cut in a string", `{"type":"A","payload":{"a":"b`, ReasonInvalidJSON, "payload.a", 29},
		{"cut after a colon", `{"type":`, ReasonInvalidJSON, "type", 8},
		{"cut in an object", `{"type":"A"`, ReasonInvalidJSON, "", 11},
		{"cut in a literal", `{"type":"A","payload":{"a":tru`, ReasonInvalidJSON, "payload.a", 27},
		{"cut in an escape", `{"type":"A\`, ReasonInvalidJSON, "type", 11},
		{"cut in a number", `{"type":"A","payload":{"a":-`, ReasonInvalidJSON, "payload.a", 28},
		{"no JSON", `hello`, ReasonInvalidJSON, "", 0},
		{"no object", `17`, ReasonInvalidJSON, "", 0},
		{"single quotes", `{'type':"A"}`, ReasonInvalidJSON, "", 1},
		{"trailing comma", `{"type":"A",}`, ReasonInvalidJSON, "", 12},
		{"unknown key", `{"type":"A","colour":1}`, ReasonUnknownKey, "colour", 12},
		{"key in other case", `{"Type":"A"}`, ReasonUnknownKey, "Type", 1},
		{"doubled key", `{"type":"A","source":"x","source":"y"}`, ReasonDuplicateKey, "source", 25},
		{"type under both names", `{"type":"A","event_type":"B"}`, ReasonDuplicateKey, "event_type", 12},
		{"time under both names", `{"type":"A","time":null,"timestamp":1}`, ReasonDuplicateKey, "timestamp", 24},
		{
			"doubled key in the payload",
			`{"type":"A","payload":{"m":[{"x":1,"y":2,"\u0078":3}]}}`,
			ReasonDuplicateKey,
			"payload.m[0].x",
			41,
		},
		{"10 000 levels", `{"type":"A","payload":{"a":` + deep, ReasonTooDeep, "", -2},
		{"129 levels", `{"type":"A","payload":` + nest(129) + `}`, ReasonTooDeep, "", -2},
		{"trailing bytes", `{"type":"A"} {}`, ReasonTrailingBytes, "", 13},
		{"invalid UTF-8", "{\"type\":\"A\",\"payload\":{\"a\":\"\xff\"}}", ReasonInvalidUTF8, "payload.a", 28},
		{"UTF-8 of a surrogate", "{\"type\":\"A\",\"source\":\"\xed\xa0\x80\"}", ReasonInvalidUTF8, "source", 22},
		{"overlong UTF-8 after an escape", "{\"type\":\"A\",\"source\":\"\\n\xc0\x80\"}", ReasonInvalidUTF8, "source", 24},
		{"lone high surrogate", `{"type":"A","payload":{"a":"\ud83d"}}`, ReasonLoneSurrogate, "payload.a", 28},
		{"lone low surrogate", `{"type":"A","payload":{"a":"\ude00\ud83d"}}`, ReasonLoneSurrogate, "payload.a", 28},
		{"two low surrogates", `{"type":"A","payload":{"a":"\ude00\ude00"}}`, ReasonLoneSurrogate, "payload.a", 28},
		{"two high surrogates", `{"type":"A","payload":{"a":"\ud83d\ud83d"}}`, ReasonLoneSurrogate, "payload.a", 28},
		{"control character", "{\"type\":\"A\",\"source\":\"a\nb\"}", ReasonInvalidJSON, "source", 23},
		{"unknown escape", `{"type":"A","source":"\x41"}`, ReasonInvalidJSON, "source", 22},
		{"short hex escape", `{"type":"A","source":"\u12"}`, ReasonInvalidJSON, "source", 22},
		{"leading zero", `{"type":"A","payload":{"a":01}}`, ReasonInvalidJSON, "payload", 28},
		{"leading plus", `{"type":"A","payload":{"a":+1}}`, ReasonInvalidJSON, "payload.a", 27},
		{"bare point", `{"type":"A","payload":{"a":1.}}`, ReasonInvalidJSON, "payload.a", 29},
		{"no type", `{"payload":{}}`, ReasonInvalidType, "type", -1},
		{"empty type", `{"type":""}`, ReasonInvalidType, "type", -1},
		{"type null", `{"type":null}`, ReasonInvalidType, "type", 8},
		{"type a number", `{"type":5}`, ReasonInvalidType, "type", 8},
		{"payload a string", `{"type":"A","payload":"x"}`, ReasonInvalidPayload, "payload", 22},
		{"payload null", `{"type":"A","payload":null}`, ReasonInvalidPayload, "payload", 22},
		{"payload an array", `{"type":"A","payload":[{}]}`, ReasonInvalidPayload, "payload", 22},
		{"payload NaN", `{"type":"A","payload":NaN}`, ReasonNotANumber, "payload", 22},
		{"NaN inside", `{"type":"A","payload":{"m":{"loss":[1,NaN]}}}`, ReasonNotANumber, "payload.m.loss[1]", 38},
		{"Infinity", `{"type":"A","payload":{"a":Infinity}}`, ReasonNotANumber, "payload.a", 27},
		{"-Infinity", `{"type":"A","payload":{"a.b":-Infinity}}`, ReasonNotANumber, `payload."a.b"`, 29},
		{"beyond a double", `{"type":"A","payload":{"a":-1E400}}`, ReasonNotANumber, "payload.a", 27},
		{"NaN outside", `{"type":"A","source":NaN}`, ReasonNotANumber, "source", 21},
		{"4301 digits", `{"type":"A","payload":{"a":` + strings.Repeat("1", 4301) + `}}`, ReasonTooLarge, "payload.a", 27},
		{"1 MiB + 1", `{"type":"A","payload":` + sized(1<<20+1) + `}`, ReasonTooLarge, "payload", -1},
		{
			"more than 1 MiB once escaped",
			`{"type":"A","payload":{"a":"` + strings.Repeat("é", 200_000) + `"}}`,
			ReasonTooLarge,
			"payload",
			-1,
		},
		{"request too large", strings.Repeat(" ", 4<<20+1), ReasonTooLarge, "", -1},
		{"source a number", `{"type":"A","source":1}`, ReasonInvalidField, "source", 21},
		{"dedup a string", `{"type":"A","dedup":"no"}`, ReasonInvalidField, "dedup", 20},
		{"time a number", `{"type":"A","time":1}`, ReasonInvalidField, "time", 19},
		{"time no time", `{"type":"A","time":"yesterday"}`, ReasonInvalidField, "time", 19},
		{"time of nothing", `{"type":"A","time":"0001-01-01T00:00:00Z"}`, ReasonInvalidField, "time", 19},
		{"time of nothing elsewhere", `{"type":"A","time":"0001-01-01T01:00:00+01:00"}`, ReasonInvalidField, "time", 19},
		{"timestamp a string", `{"type":"A","timestamp":"1"}`, ReasonInvalidField, "timestamp", 24},
		{"timestamp far out", `{"type":"A","timestamp":1e300}`, ReasonInvalidField, "timestamp", 24},
		{"timestamp of many digits", `{"type":"A","timestamp":99999999999999999999}`, ReasonInvalidField, "timestamp", 24},
	}
}

// nest makes a payload of that many levels.
func nest(levels int) string {
	return `{"a":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `}`
}

// sized makes a canonical payload of that many bytes.
func sized(bytes int) string {
	return `{"a": "` + strings.Repeat("x", bytes-len(`{"a": ""}`)) + `"}`
}

func TestBadInputIsNamed(t *testing.T) {
	for _, bad := range badInputs() {
		t.Run(bad.name, func(t *testing.T) {
			// By itself the input is named alike, as one event and as a request.
			_, err := DecodeOne([]byte(bad.body), Limits{})
			checkError(t, err, bad.reason, bad.field, bad.position)
			_, err = DecodeArray([]byte(bad.body), Limits{})
			checkError(t, err, bad.reason, bad.field, bad.position)

			// After another event of an array the field and the position count that one.
			if bad.reason == ReasonEmpty || len(bad.body) > 4<<20 {
				return
			}
			const before = `[{"type":"A"},`
			field := strings.TrimSuffix("events[1]."+bad.field, ".")
			if bad.reason == ReasonTrailingBytes {
				field = ""
			}
			_, err = DecodeArray([]byte(before+bad.body), Limits{})
			if bad.reason == ReasonTrailingBytes { // inside an array it is a missing comma
				checkError(t, err, ReasonInvalidJSON, "", bad.position+int64(len(before)))
			} else {
				checkError(t, err, bad.reason, field, shift(bad.position, len(before)))
			}

			// In a line of its own the line is named as well.
			if strings.Contains(bad.body, "\n") {
				return
			}
			_, err = DecodeNDJSON([]byte("{\"type\":\"A\"}\n\r\n"+bad.body+"\n{"), Limits{})
			checkError(t, err, bad.reason, field, shift(bad.position, 15))
			if !strings.Contains(err.Error(), "line 3: ") {
				t.Errorf("%v does not name line 3", err)
			}
		})
	}
}

// A key that an event lacks may be a misspelt field; any other belongs into the payload.
func TestAMisspeltFieldIsSuggested(t *testing.T) {
	for key, want := range map[string]string{
		"corelation_id":            "did you mean correlation_id? an event has type, ",
		"correlationId":            "did you mean correlation_id? ",
		"Payload":                  "did you mean payload? ",
		"types":                    "did you mean type? ",
		"dedupe":                   "did you mean dedup? ",
		"dedup-id":                 "did you mean dedup_id? ",
		"colour":                   "put it into payload; an event has type, ",
		"":                         "put it into payload; ",
		"data":                     "put it into payload; ",
		strings.Repeat("key", 999): "put it into payload; ",
	} {
		_, err := DecodeOne([]byte(`{"type":"A","`+key+`":1}`), Limits{})
		if e, ok := err.(*Error); !ok || e.Reason != ReasonUnknownKey || !strings.HasPrefix(e.Remedy, want) {
			t.Errorf("%.20q: %+v", key, err)
		}
	}
}

func shift(position int64, by int) int64 {
	if position < 0 {
		return position
	}
	return position + int64(by)
}

func checkError(t *testing.T, err error, reason, field string, position int64) {
	t.Helper()
	var bad *Error
	if !errors.As(err, &bad) {
		t.Fatalf("error %v, want an *Error with %s", err, reason)
	}
	anywhere := position == -2
	if bad.Reason != reason || (!anywhere && (bad.Field != field || bad.Position != position)) {
		t.Errorf("%v\n%s in %q at %d, want %s in %q at %d", bad, bad.Reason, bad.Field, bad.Position, reason, field, position)
	}
	if bad.Message == "" || !strings.HasPrefix(bad.Error(), "event: ") {
		t.Errorf("error %q", bad.Error())
	}
}

func TestBatchesAreBounded(t *testing.T) {
	const line = `{"type":"A"}`
	three := strings.Repeat(line+"\n", 3)
	two := "[" + line + "," + line + "]"
	badLast := "[" + strings.Repeat(line+",", 99) + `{"type":"A","payload":7}]`
	for _, test := range []struct {
		name          string
		decode        func([]byte, Limits) ([]Event, error)
		body          string
		most          int // Limits.RequestEvents
		reason, field string
		position      int64
	}{
		{"an empty array", DecodeArray, "[]", 0, ReasonEmpty, "", -1},
		{"a line too many", DecodeNDJSON, three, 2, ReasonTooLarge, "", -1},
		{"an element too many", DecodeArray, two, 1, ReasonTooLarge, "", -1},
		{"a bad last element", DecodeArray, badLast, 0, ReasonInvalidPayload, "events[99].payload", 1 + 99*13 + 22},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := test.decode([]byte(test.body), Limits{RequestEvents: test.most})
			checkError(t, err, test.reason, test.field, test.position)
		})
	}
	if events, err := DecodeNDJSON([]byte(three), Limits{RequestEvents: 3}); err != nil || len(events) != 3 {
		t.Errorf("%d events, %v", len(events), err)
	}
}

func TestLimitsAreInclusive(t *testing.T) {
	for _, payload := range []string{nest(128), sized(1 << 20)} {
		e, err := DecodeOne([]byte(`{"type":"A","payload":`+payload+`}`), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := (&Policy{}).Normalize(&e); err != nil {
			t.Error(err)
		}
	}
}

// trainerEvent is fullEvent without what the log adds to an event.
func trainerEvent() Event {
	return Event{
		Type:          ModelPromoted,
		Payload:       json.RawMessage(`{"a": 1, "b": "\u00e9"}`),
		Source:        "trainer-3",
		Key:           "hex8_2p",
		CorrelationID: "c",
		CausationID:   "x",
		DedupID:       "d",
		NoDedup:       true,
		Time:          time.Date(2026, 1, 5, 10, 0, 0, 1, time.UTC),
	}
}

func TestWhatIsSentIsRead(t *testing.T) {
	sent := trainerEvent()
	sent.Type, sent.Value, sent.Source, sent.Key = "training.completed", "v", "s", "k\n"
	sent.Payload = json.RawMessage(`{"a": 1, "b": [2]}`)
	full, at := trainerEvent(), sent.Time
	full.Value = "model_promoted"
	for body, want := range map[string]Event{
		`{"type":"training.completed","value":"v","payload":{"b":[2],"a":1},"source":"s","key":"k\n","correlation_id":"c",
		  "causation_id":"x","dedup_id":"d","dedup":false,"time":"2026-01-05T11:00:00.000000001+01:00"}`: sent,
		`{"event_type":"A","timestamp":1767607200}`:                      {Type: "A", Time: at.Add(-1)},
		`{"event_type":"A","timestamp":1767607200.123456789987}`:         {Type: "A", Time: at.Add(123456788)},
		`{"event_type":"A","timestamp":17676072e2}`:                      {Type: "A", Time: at.Add(-1)},
		`{"event_type":"A","timestamp":-0.5}`:                            {Type: "A", Time: time.Unix(-1, 5e8).UTC()},
		`{"type":"A","source":null,"key":null,"dedup":null,"time":null}`: {Type: "A"},
		fullEvent: full,
	} {
		if want.Payload == nil {
			want.Payload = json.RawMessage("{}")
		}
		got, err := DecodeOne([]byte(body), Limits{})
		if err != nil {
			t.Errorf("%s: %v", body, err)
		} else if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Event{})); diff != "" {
			t.Errorf("%s: %s", body, diff)
		}
	}
}

func TestStoredEventIsPrintedAndReadBack(t *testing.T) {
	e := trainerEvent()
	e.Offset, e.Term, e.AppendedAt = 7, 3, time.Date(2026, 1, 5, 10, 0, 1, 0, time.UTC)
	e.Original, e.Foreign, e.Target, e.Redrive = "PROMOTION_COMPLETE", true, "trainer", 12
	const hash = "d2edb14c2a3b96ff9df9ae76e37c6ee0ce98d09d5e62bdc3a3ab41b6ae6e6d4d"
	want := strings.Replace(fullEvent, hash, e.Hash().String(), 1)
	if got := string(e.AppendJSON([]byte("x"))); got != "x"+want {
		t.Errorf("got  %s\nwant %s", got[1:], want)
	}
	marshalled, err := json.Marshal([]Event{e}) // compacts the payload; reading makes it canonical again
	if err != nil {
		t.Fatal(err)
	}
	var read []Event
	newer := strings.Replace(string(marshalled), `{"offset"`, `{"of_a_newer_version":[{}],"offset"`, 1)
	if err := json.Unmarshal([]byte(newer), &read); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Event{e}, read, cmpopts.IgnoreUnexported(Event{})); diff != "" {
		t.Error(diff)
	}
	line := []byte(want)
	var kept Event
	if err := kept.UnmarshalJSON(line); err != nil {
		t.Fatal(err)
	}
	clear(line) // the caller's buffer is the caller's again
	if diff := cmp.Diff(e, kept, cmpopts.IgnoreUnexported(Event{})); diff != "" {
		t.Error(diff)
	}
	small := Event{Type: "FOO", Payload: json.RawMessage("{\n\"a\":1}")}
	if got, want := string(small.AppendJSON(nil)), `{"type":"FOO","value":"foo","payload":{"a":1}}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestNewTakesEveryPayload(t *testing.T) {
	type payload struct {
		B int     `json:"b"`
		A float64 `json:"a"`
	}
	for _, p := range []any{
		payload{2, 1.5},
		map[string]any{"b": 2, "a": 1.5},
		json.RawMessage(`{"b":2,"a":1.5}`),
		[]byte(`{"b":2,"a":1.50}`),
	} {
		e := New("foo", p)
		hash, _, err := (&Policy{}).Normalize(&e)
		if err != nil || string(e.Payload) != `{"a": 1.5, "b": 2}` || hash != e.Hash() {
			t.Errorf("%T: %s, %v", p, e.Payload, err)
		}
	}
	e := New("foo", func() {})
	_, _, err := (&Policy{}).Normalize(&e)
	checkError(t, err, ReasonInvalidPayload, "payload", -1)
	if _, err := json.Marshal(e); err == nil {
		t.Error("MarshalJSON hid that the payload could not be marshalled")
	}
	if e := New("foo", nil); string(e.Payload) != "{}" {
		t.Errorf("payload %s", e.Payload)
	}
}
