package event

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestFilterChooses(t *testing.T) {
	event := Event{
		Type:          DataSyncFailed,
		Source:        "s1",
		Key:           "k1",
		CorrelationID: "c1",
	} // value sync_failed, category data or sync
	d, _ := Builtin().Definition(event.Type)
	unknown := Event{Type: "MY_OWN_FAILED", Source: "s1"}
	for _, c := range []struct {
		filter         Filter
		known, unknown bool
	}{
		{Filter{}, true, true},
		{Filter{Types: []string{"DATA_SYNC_FAILED"}}, true, false},
		{Filter{Types: []string{"sync.failed", "other"}}, true, false},
		{Filter{Types: []string{"my.own.failed"}}, false, true},
		{Filter{Types: []string{"sync_complete"}}, false, false},
		{Filter{Types: []string{"*_failed"}}, true, true},
		{Filter{Types: []string{"sync.*"}}, true, false},
		{Filter{Types: []string{"data.*"}}, true, false},
		{Filter{Types: []string{"MY_OWN_FAILE?"}}, false, true},
		{Filter{Types: []string{"*"}}, true, true},
		{Filter{Categories: []string{strings.ToUpper(d.Category)}}, true, false},
		{Filter{Categories: []string{"health"}}, false, false},
		{Filter{Types: []string{"*_FAILED"}, Categories: []string{d.Category}}, true, false},
		{Filter{Types: []string{"*_STARTED"}, Categories: []string{d.Category}}, false, false},
		{Filter{Types: []string{"my_own_failed"}, Categories: []string{d.Category}}, false, false},
		{Filter{Sources: []string{"s0", "s1"}}, true, true},
		{Filter{Sources: []string{"S1"}}, false, false},
		{Filter{Keys: []string{"k1"}}, true, false},
		{Filter{CorrelationIDs: []string{"c1"}}, true, false},
		{Filter{Types: []string{"*"}, Sources: []string{"s1"}, Keys: []string{"k2"}}, false, false},
	} {
		if err := c.filter.Validate(); err != nil {
			t.Errorf("%+v: %v", c.filter, err)
		}
		m := c.filter.Compile(Builtin())
		if got, other := m.Match(&event), m.Match(&unknown); got != c.known || other != c.unknown ||
			m.Empty() != c.filter.Empty() {
			t.Errorf("%+v: matches %v %v, want %v %v", c.filter, got, other, c.known, c.unknown)
		}
		if !slices.Equal(m.Keys(), c.filter.Keys) || !slices.Equal(m.CorrelationIDs(), c.filter.CorrelationIDs) {
			t.Errorf("%+v: keys %v, correlation ids %v", c.filter, m.Keys(), m.CorrelationIDs())
		}
	}
	if zero := (Matcher{}); !zero.Empty() || !zero.Match(&event) {
		t.Error("the zero Matcher refuses")
	}
}

func TestFilterIsBounded(t *testing.T) {
	many := slices.Repeat([]string{"a"}, 257)
	for _, c := range []struct {
		filter        Filter
		reason, field string
	}{
		{Filter{Types: many}, ReasonTooLarge, "types"},
		{Filter{Keys: many}, ReasonTooLarge, "keys"},
		{Filter{Sources: []string{"a", strings.Repeat("a", 257)}}, ReasonTooLarge, "sources[1]"},
		{Filter{Categories: []string{""}}, ReasonInvalidField, "categories[0]"},
		{Filter{Types: []string{"A,B"}}, ReasonInvalidType, "types[0]"},
		{Filter{CorrelationIDs: []string{"\xff"}}, ReasonInvalidUTF8, "correlation_ids[0]"},
		{Filter{Keys: []string{"\n"}}, ReasonInvalidField, "keys[0]"},
	} {
		checkError(t, c.filter.Validate(), c.reason, c.field, -1)
	}
	if err := (Filter{Types: many[:256]}).Validate(); err != nil {
		t.Error(err)
	}
}

// A pattern means what the regular expression it spells means.
func TestPatternsMatchAsTheyRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[AB*?_]{0,8}`).Draw(t, "pattern")
		name := rapid.StringMatching(`[AB_]{0,10}`).Draw(t, "name")
		expr := strings.NewReplacer("*", ".*", "?", ".").Replace(pattern)
		want := regexp.MustCompile("^" + expr + "$").MatchString(name)
		if got := MatchPattern(strings.ToLower(strings.ReplaceAll(pattern, "_", ".")), Type(name)); got != want {
			t.Fatalf("%s matches %s: %v, want %v", pattern, name, got, want)
		}
	})
	for pattern, want := range map[string]bool{
		"training.*":         true,
		"TRAINING_*":         true,
		"*.completed":        true,
		"train":              false,
		"sync.*":             false,
		"training-completed": true,
	} {
		if MatchPattern(pattern, TrainingCompleted) != want {
			t.Errorf("%s matches TRAINING_COMPLETED: %v", pattern, !want)
		}
	}
	if !MatchPattern("sync.*", DataSyncStarted) {
		t.Error("sync.* does not match DATA_SYNC_STARTED by its value")
	}
}

// A filter that Within takes for one of some patterns passes no type that these do not allow, registered or not.
func TestAFilterWithinPatternsPassesNoOtherType(t *testing.T) {
	within, beyond := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		entry := rapid.StringMatching(`[AB_*?]{1,4}`)
		filter := Filter{Types: rapid.SliceOfN(entry, 0, 3).Draw(t, "filter")}
		patterns := rapid.SliceOfN(entry, 1, 3).Draw(t, "patterns")
		if rapid.IntRange(0, 9).Draw(t, "categories") == 0 {
			filter.Categories = []string{"training"}
		}
		c := Builtin()
		if !filter.Within(patterns, c) {
			beyond++
			return
		}
		within++
		allowed, passed := Filter{Types: patterns}.Compile(c), filter.Compile(c)
		for range 20 {
			name := rapid.StringMatching(`[AB][AB_]{0,5}`).Draw(t, "type")
			if passed.MatchType(name) && !allowed.MatchType(name) {
				t.Fatalf("%q passes %q, and is not one of %q", name, filter.Types, patterns)
			}
		}
	})
	if within == 0 || beyond == 0 {
		t.Errorf("%d filters are within their patterns, %d are not", within, beyond)
	}
	for _, one := range []struct {
		filter, patterns []string
		want             bool
	}{
		{nil, []string{"*"}, true},
		{nil, []string{"A*", "B*"}, false},
		{[]string{"*"}, []string{"*"}, true},
		{[]string{"TRAINING_*"}, []string{"training_*"}, true},
		{[]string{"training.*"}, []string{"TRAINING_*"}, true},
		{[]string{"TRAINING_COMPLETED"}, []string{"*_COMPLETED"}, true},
		{[]string{"training_completed"}, []string{"TRAINING_COMPLETED"}, true},
		{[]string{"TRAINING_*"}, []string{"TRAINING_?"}, false},
		{[]string{"*"}, []string{"TRAINING_*"}, false},
		{[]string{"A", "B"}, []string{"A"}, false},
	} {
		if got := (Filter{Types: one.filter}).Within(one.patterns, Builtin()); got != one.want {
			t.Errorf("%q within %q: %t", one.filter, one.patterns, got)
		}
	}
}
