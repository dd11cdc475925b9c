package event_test

import (
	"errors"
	"fmt"

	"github.com/ringrift/ringlog/event"
)

// A producer names a type in any spelling that the platform uses. The gate makes type and payload canonical, as every
// node does before it stores an event.
func ExamplePolicy_Normalize() {
	ev := event.New("training.completed", map[string]any{"epochs_completed": 50, "config_key": "hex8_2p"})
	gate := event.Policy{}
	hash, warnings, err := gate.Normalize(&ev)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(ev.Type, string(ev.Payload))
	fmt.Println(len(hash), "bytes of hash,", len(warnings), "warnings")
	// Output:
	// TRAINING_COMPLETED {"config_key": "hex8_2p", "epochs_completed": 50}
	// 32 bytes of hash, 0 warnings
}

// An error says what is wrong, where, and what would be accepted.
func ExampleError() {
	_, err := event.DecodeOne([]byte(`{"type": "TRAINING_STARTED", "payload": {"loss": NaN}}`), event.Limits{})
	if refused, ok := errors.AsType[*event.Error](err); ok {
		fmt.Println(refused.Reason, "at byte", refused.Position)
		fmt.Println(refused.Field+":", refused.Message)
		fmt.Println(refused.Remedy)
	}
	// Output:
	// not_a_number at byte 49
	// payload.loss: NaN is not a JSON number
	// send null or a string instead
}

// A filter is compiled once against the catalogue, and then asked of each event.
func ExampleFilter_Compile() {
	m := event.Filter{Types: []string{"training.*"}, Sources: []string{"trainer-3"}}.Compile(event.Builtin())
	for _, ev := range []event.Event{
		{Type: event.TrainingCompleted, Source: "trainer-3"},
		{Type: event.TrainingCompleted, Source: "trainer-4"},
		{Type: event.ModelPromoted, Source: "trainer-3"},
	} {
		fmt.Println(ev.Type, ev.Source, m.Match(&ev))
	}
	// Output:
	// TRAINING_COMPLETED trainer-3 true
	// TRAINING_COMPLETED trainer-4 false
	// MODEL_PROMOTED trainer-3 false
}

// Former names lead to the type that replaced them.
func ExampleCatalogue_Resolve() {
	for _, name := range []string{"training_completed", "EVALUATION_COMPLETE", "TRAINNG_COMPLETED"} {
		r, known := event.Builtin().Resolve(name)
		fmt.Println(r.Type, known, r.Via)
	}
	fmt.Println(event.Builtin().Nearest("TRAINNG_COMPLETED", 1))
	// Output:
	// TRAINING_COMPLETED true value
	// EVALUATION_COMPLETED true alias
	// TRAINNG_COMPLETED false unknown
	// [TRAINING_COMPLETED]
}

// A type of one's own is added to a copy of the catalogue.
func ExampleCatalogue_With() {
	defs, err := event.ParseDefinitions([]byte(
		`{"name": "GPU_RESERVED", "payload": [{"name": "host", "type": "string"}, {"name": "hours", "type": "number"}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := event.Builtin().With(defs...)
	if err != nil {
		fmt.Println(err)
		return
	}
	gate := event.Policy{Catalogue: c, Strict: true}
	ev := event.New("gpu.reserved", map[string]any{"host": "gpu-7", "hours": 3})
	_, warnings, err := gate.Normalize(&ev)
	fmt.Println(ev.Type, warnings, err)
	// Output: GPU_RESERVED [] <nil>
}

// An event prints as one line.
func ExampleEvent_String() {
	ev := event.New(event.TrainingCompleted, map[string]any{"config_key": "hex8_2p"})
	ev.Key, ev.Source = "hex8_2p", "trainer-3"
	fmt.Println(ev)
	// Output: TRAINING_COMPLETED key=hex8_2p source=trainer-3 {"config_key":"hex8_2p"}
}
