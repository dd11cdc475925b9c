package emit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/event"
)

// anyValue draws what a field of unknown type may hold, in the form it is decoded to.
func anyValue() *rapid.Generator[any] {
	plain := rapid.OneOf(
		rapid.Just[any](nil), rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.String(), func(s string) any { return s }),
		rapid.SampledFrom([]any{json.Number("0"), json.Number("-0.5"), json.Number("50.0"), json.Number("123456789012345678901234567890"), "", "<hex8>&ü"}),
		rapid.Map(rapid.Int64(), func(n int64) any { return json.Number(fmt.Sprint(n)) }),
	)
	return rapid.OneOf(plain,
		rapid.Map(rapid.SliceOfN(plain, 0, 3), func(s []any) any { return s }),
		rapid.Map(rapid.MapOfN(rapid.String(), plain, 0, 3), func(m map[string]any) any { return m }))
}

// fill draws a value for each field.
func fill(t *rapid.T, p Payload) {
	fields, _ := fieldsOf(p)
	for _, f := range fields {
		var v any
		switch f.value.Addr().Interface().(type) {
		case *any:
			if v = anyValue().Draw(t, f.name); v == nil {
				continue
			}
		case *string:
			text := rapid.String()
			if f.name == "correlation_id" { // it fills the event's, which takes no control character
				text = rapid.StringMatching(`[^\pC]{0,20}`)
			}
			v = text.Draw(t, f.name)
		case **bool:
			v = rapid.Ptr(rapid.Bool(), true).Draw(t, f.name)
		case **int64:
			v = rapid.Ptr(rapid.Int64(), true).Draw(t, f.name)
		case **float64:
			v = rapid.Ptr(rapid.Float64(), true).Draw(t, f.name)
		case *Timestamp:
			v, _ = timestamp(json.Number(fmt.Sprintf("%d.25", rapid.Int64Range(-1e9, 4e9).Draw(t, f.name))))
		default:
			t.Fatalf("%T.%s is a %s", p, f.name, f.value.Type())
		}
		f.value.Set(reflect.ValueOf(v))
	}
}

// extraFor draws members that the catalogue does not list.
func extraFor(t *rapid.T) map[string]any {
	members := rapid.MapOfN(rapid.StringMatching(`x_[a-z]{1,8}`), anyValue(), 0, 3).Draw(t, "extra")
	if len(members) == 0 {
		return nil
	}
	return members
}

// Every payload passes the strict gate, comes back from the log as it was, and is warned of only for its Extra.
func TestEveryPayloadSurvivesTheLog(t *testing.T) {
	all := payloads()
	if want := len(event.Builtin().Definitions()) + len(event.Builtin().Own()); len(all) != want {
		t.Fatalf("%d payloads, the catalogue has %d types", len(all), want)
	}
	for _, empty := range all {
		t.Run(string(empty.EventType()), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) { survives(t, reflect.TypeOf(empty).Elem()) })
		})
	}
}

func survives(t *rapid.T, of reflect.Type) {
	sent := reflect.New(of).Interface().(Payload)
	fill(t, sent)
	_, extra := fieldsOf(sent)
	*extra = extraFor(t)

	ev := event.New(sent.EventType(), reflect.ValueOf(sent).Elem().Interface())
	gate := (&event.Policy{Strict: true, Reserved: event.ReservedOwn}).Gate()
	_, warnings, err := gate.Normalize(&ev)
	if err != nil || len(*extra) == 0 && len(warnings) > 0 {
		t.Fatalf("%+v: %v, %v", sent, warnings, err)
	}
	var stored event.Event
	if err := json.Unmarshal(ev.AppendJSON(nil), &stored); err != nil {
		t.Fatal(err)
	}
	got := reflect.New(of).Interface().(Payload)
	if err := json.Unmarshal(stored.Payload, got); err != nil || !reflect.DeepEqual(got, sent) {
		t.Fatalf("sent %+v, read %+v, %v", sent, got, err)
	}
}

// There is a method for each type that a client may publish, named after its constant, and none for the others;
// what it sends is of that type and passes the strict gate.
func TestEveryMethodEmitsItsType(t *testing.T) {
	var sent []event.Event
	e := New(PublishFunc[int](func(_ context.Context, ev event.Event) (int, error) {
		sent = append(sent, ev)
		return len(sent), nil
	}), WithSource("trainer-3"))
	emitter, methods := reflect.ValueOf(e), 0
	for _, p := range payloads() {
		name := strings.TrimSuffix(reflect.TypeOf(p).Elem().Name(), "Payload")
		method := emitter.MethodByName(name)
		if method.IsValid() == event.IsReserved(p.EventType()) {
			t.Errorf("%s: reserved %t, method %t", p.EventType(), event.IsReserved(p.EventType()), method.IsValid())
		}
		if !method.IsValid() {
			continue
		}
		methods++
		sent = nil
		answer := method.Call([]reflect.Value{reflect.ValueOf(t.Context()), reflect.ValueOf(p).Elem()})
		if len(sent) != 1 || answer[0].Int() != 1 || !answer[1].IsNil() {
			t.Fatalf("%s sent %v and answered %v", name, sent, answer)
		}
		ev := sent[0]
		_, warnings, err := (&event.Policy{Strict: true}).Normalize(&ev)
		if ev.Type != p.EventType() || ev.Source != "trainer-3" || string(ev.Payload) != "{}" || err != nil || len(warnings) > 0 {
			t.Errorf("%s sent %+v: %v, %v", name, ev, warnings, err)
		}
	}
	if all := emitter.NumMethod() - 1; methods != all { // With is not one
		t.Errorf("%d of %d methods belong to a payload", methods, all)
	}
}

// The types of the fields are the catalogue's: a value of another kind is told and kept.
func TestEveryTypedFieldTellsAMismatch(t *testing.T) {
	for _, p := range payloads() {
		def, _ := event.Builtin().Definition(p.EventType())
		var typed []string
		wrong := map[string]any{}
		for _, f := range def.Payload {
			wrong[f.Name] = []any{true}
			if f.Type != "any" {
				typed = append(typed, f.Name)
			}
		}
		data, err := json.Marshal(wrong)
		if err != nil {
			t.Fatal(err)
		}
		err = json.Unmarshal(data, p)
		mismatch, _ := errors.AsType[*MismatchError](err)
		_, extra := fieldsOf(p)
		switch {
		case len(typed) == 0:
			if err != nil || *extra != nil {
				t.Errorf("%s: %v, %v", p.EventType(), err, *extra)
			}
		case mismatch == nil || mismatch.Type != p.EventType() || !slices.Equal(mismatch.Fields, typed) || len(*extra) != len(typed):
			t.Errorf("%s: %v, want %v, and in Extra not %v", p.EventType(), err, typed, *extra)
		}
		again, err := p.MarshalJSON()
		if err != nil || string(again) != string(data) {
			t.Errorf("%s came as %s and goes as %s, %v", p.EventType(), data, again, err)
		}
	}
}
