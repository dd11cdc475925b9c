package event

import (
	"fmt"
	"strings"
	"testing"
)

// The catalogue's policies are off, each for a type that it lists, with a reason: a build decides by them what other
// builds replay, and a mode with keys would be the state machine's to know.
func TestTheCataloguesPoliciesAreOff(t *testing.T) {
	seen := map[Type]bool{}
	for _, d := range DedupDefaults() {
		r, known := Builtin().Resolve(string(d.Type))
		if !known || r.Type != d.Type || d.Mode != DedupOff || d.Reason == "" || seen[d.Type] || IsReserved(d.Type) {
			t.Errorf("%+v", d)
		}
		seen[d.Type] = true
	}
	if rule := NewDedupPolicies(nil).Of(TaskHeartbeat); rule == nil || rule.Mode != DedupOff {
		t.Errorf("heartbeats: %+v", rule)
	}
}

// What is set takes the place of what the catalogue has.
func TestASetPolicyReplacesTheCatalogues(t *testing.T) {
	set := NewDedupPolicies(map[Type]DedupPolicy{TaskHeartbeat: {Mode: DedupContent}})
	if rule := set.Of(TaskHeartbeat); rule.Mode != DedupContent {
		t.Errorf("%+v", rule)
	}
	if rule := set.Of(TrainingCompleted); rule != nil {
		t.Errorf("%+v", rule)
	}
	if rule := (*DedupPolicies)(nil).Of(TaskHeartbeat); rule != nil {
		t.Errorf("%+v", rule)
	}
}

// Two payloads have the same key if they have the same of the fields with the same values, and only then.
func TestKeysOfFields(t *testing.T) {
	fields := []string{"a", "a\"b", "ü"}
	rule := NewDedupPolicies(map[Type]DedupPolicy{"T": {Mode: DedupFields, Fields: fields}}).Of("T")
	keyOf := func(payload string) (Hash, bool) {
		t.Helper()
		canonical, err := Canonicalize([]byte(payload), DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		return rule.Key(canonical)
	}
	seen := map[Hash]string{}
	for _, same := range [][]string{
		{`{"a": 1}`, `{"a": 1, "timestamp": 5}`, `{"z": {"a": 2}, "a": 1, "0": [1]}`},
		{`{"a": 1.0}`},
		{`{"a": "1"}`},
		{`{"a": null}`},
		{`{"a": {"b": 1, "c": [2]}}`, `{"a": {"c": [2], "b": 1}}`},
		{`{"ü": 1}`, `{"\u00fc": 1, "b": 3}`},
		{`{"a\"b": 1}`},
		{`{"a": 1, "ü": 1}`, `{"ü": 1, "a": 1}`},
		{`{"a": 1, "a\"b": 1}`},
	} {
		for _, payload := range same {
			key, some := keyOf(payload)
			if first, taken := seen[key]; !some || (taken && first != same[0]) {
				t.Errorf("%s: %v, the key of %s", payload, some, first)
			}
			seen[key] = same[0]
		}
	}
	if len(seen) != 9 {
		t.Errorf("%d keys: %v", len(seen), seen)
	}
	for _, payload := range []string{`{}`, `{"b": 1}`, `{"z": {"a": 2}}`} {
		if _, some := keyOf(payload); some {
			t.Errorf("%s has a key", payload)
		}
	}
}

func TestWhatIsNoPolicyIsRefused(t *testing.T) {
	many := make([]string, MaxDedupFields+1)
	for i := range many {
		many[i] = fmt.Sprintf("f%02d", i)
	}
	for _, p := range []DedupPolicy{
		{},
		{Mode: "OFF"},
		{Mode: DedupFields},
		{Mode: DedupFields, Fields: many},
		{Mode: DedupFields, Fields: []string{""}},
		{Mode: DedupFields, Fields: []string{strings.Repeat("x", MaxDedupFieldLen+1)}},
		{Mode: DedupFields, Fields: []string{"a", "a"}},
		{Mode: DedupFields, Fields: []string{"b", "a"}},
		{Mode: DedupContent, Fields: []string{"a"}},
		{Mode: DedupOff, Window: MinDedupWindow},
		{Mode: DedupContent, Window: MinDedupWindow - 1},
		{Mode: DedupContent, Window: MaxDedupWindow + 1},
		{Mode: DedupContent, Window: -1},
	} {
		if err := p.Validate(); err == nil {
			t.Errorf("%+v is taken", p)
		}
	}
	for _, p := range []DedupPolicy{
		{Mode: DedupOff},
		{Mode: DedupContent},
		{Mode: DedupContent, Window: MaxDedupWindow},
		{Mode: DedupFields, Fields: many[1:], Window: MinDedupWindow},
	} {
		if err := p.Validate(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

// A key that was made under another list of fields counts for nobody: {"a":1} of [a] is not {"a":1} of [a b].
func TestKeysOfOtherFieldsDiffer(t *testing.T) {
	key := func(payload string, fields ...string) Hash {
		key, some := ruleOf(DedupPolicy{Mode: DedupFields, Fields: fields}).Key([]byte(payload))
		if !some {
			t.Errorf("%s has none of %v", payload, fields)
		}
		return key
	}
	both := key(`{"a": 1}`, "a", "b")
	if both == key(`{"a": 1}`, "a") || both == key(`{"a": 1, "b": null}`, "a", "b") {
		t.Error("an absent field is left out of the key")
	}
}
