package emit

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/event/internal/goname"
)

// anyValue draws a value for a field of unknown type, in the form that it is decoded to.
func anyValue() *rapid.Generator[any] {
	plain := rapid.OneOf(
		rapid.Just[any](nil), rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.String(), func(s string) any { return s }),
		rapid.SampledFrom([]any{json.Number("0"), json.Number("-0.5"), json.Number("50.0"),
			json.Number("123456789012345678901234567890"), "", "<hex8>&ü"}),
		rapid.Map(rapid.Int64(), func(n int64) any { return json.Number(fmt.Sprint(n)) }),
	)
	return rapid.OneOf(plain,
		rapid.Map(rapid.SliceOfN(plain, 0, 3), func(s []any) any { return s }),
		rapid.Map(rapid.MapOfN(rapid.String(), plain, 0, 3), func(m map[string]any) any { return m }))
}

// fill draws a value for each field.
func fill(t *rapid.T, p reflect.Value) {
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
			t.Fatalf("%s.%s is a %s", p.Type(), f.name, f.value.Type())
		}
		f.value.Set(reflect.ValueOf(v))
	}
}

// extraFor draws members that the catalogue does not list.
func extraFor(t *rapid.T) Extra {
	members := rapid.MapOfN(rapid.StringMatching(`x_[a-z]{1,8}`), anyValue(), 0, 3).Draw(t, "extra")
	if len(members) == 0 {
		return nil
	}
	return members
}

// Every payload passes the strict gate, is read back from the log unchanged, and has warnings only for its Extra.
func TestEveryPayloadSurvivesTheLog(t *testing.T) {
	all := payloads()
	if want := len(event.Builtin().Definitions()) + len(event.Builtin().Own()); len(all) != want {
		t.Fatalf("%d payloads, the catalogue has %d types", len(all), want)
	}
	for _, empty := range all {
		t.Run(string(empty.EventType()), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) { survives(t, reflect.TypeOf(empty)) })
		})
	}
}

func survives(t *rapid.T, of reflect.Type) {
	sent := reflect.New(of).Elem()
	fill(t, sent)
	_, extra := fieldsOf(sent)
	extra.Set(reflect.ValueOf(extraFor(t)))

	ev, err := Event(sent.Interface().(Payload))
	if err != nil {
		t.Fatal(err)
	}
	gate := (&event.Policy{Strict: true, Reserved: event.ReservedOwn}).Gate()
	_, warnings, err := gate.Normalize(&ev)
	if err != nil || (extra.Len() == 0 && len(warnings) > 0) {
		t.Fatalf("%+v: %v, %v", sent, warnings, err)
	}
	var stored event.Event
	if err := json.Unmarshal(ev.AppendJSON(nil), &stored); err != nil {
		t.Fatal(err)
	}
	got := reflect.New(of).Elem()
	err = decode(stored.Payload, got, ev.Type)
	if err != nil || !reflect.DeepEqual(got.Interface(), sent.Interface()) {
		t.Fatalf("sent %+v, read %+v, %v", sent, got, err)
	}
}

// Each payload struct has the name of its type's constant, and its empty payload passes the strict gate unless the
// type is reserved.
func TestEveryPayloadIsOfItsType(t *testing.T) {
	for _, p := range payloads() {
		ev, err := Event(p, WithSource("trainer-3"))
		if err != nil {
			t.Fatal(err)
		}
		if want := goname.Type(string(ev.Type)); reflect.TypeOf(p).Name() != want || ev.Type != p.EventType() {
			t.Errorf("%T has type %s, whose constant is %s", p, ev.Type, want)
		}
		_, warnings, err := (&event.Policy{Strict: true}).Normalize(&ev)
		bad, refused := errors.AsType[*event.Error](err)
		if refused != event.IsReserved(p.EventType()) || (refused && bad.Reason != event.ReasonReservedType) {
			t.Errorf("%s: %v", p.EventType(), err)
		}
		if ev.Source != "trainer-3" || string(ev.Payload) != "{}" || len(warnings) > 0 {
			t.Errorf("%s: %+v, %v", p.EventType(), ev, warnings)
		}
	}
}

// The types of the fields are the catalogue's: a value of another kind is reported and kept.
func TestEveryTypedFieldReportsAMismatch(t *testing.T) {
	for _, empty := range payloads() {
		def, _ := event.Builtin().Definition(empty.EventType())
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
		p := reflect.New(reflect.TypeOf(empty)).Elem()
		err = decode(data, p, def.Name)
		mismatch, _ := errors.AsType[*MismatchError](err)
		_, extra := fieldsOf(p)
		switch {
		case len(typed) == 0:
			if err != nil || extra.Len() > 0 {
				t.Errorf("%s: %v, %v", def.Name, err, extra)
			}
		case mismatch == nil || mismatch.Type != def.Name || !slices.Equal(mismatch.Fields, typed) ||
			extra.Len() != len(typed):
			t.Errorf("%s: %v, want %v, and in Extra not %v", def.Name, err, typed, extra)
		}
		again, err := encode(p.Interface().(Payload))
		if err != nil || string(again) != string(data) {
			t.Errorf("%s was %s and is sent as %s, %v", def.Name, data, again, err)
		}
	}
}
