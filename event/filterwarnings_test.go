package event

import (
	"strings"
	"testing"
)

func TestAFilterIsWarnedAboutWhatMatchesNothing(t *testing.T) {
	for _, one := range []struct {
		filter        Filter
		reason, field string // of the only warning; "" for none
		says          string
	}{
		{Filter{}, "", "", ""},
		{Filter{Types: []string{"TRAINING_COMPLETED", "training.*", "sync_completed", "*"}}, "", "", ""},
		{Filter{Types: []string{"CURSOR_STALLED", "QUORUM_*"}}, "", "", ""},
		{Filter{Sources: []string{"s"}, Keys: []string{"k"}, CorrelationIDs: []string{"c"}}, "", "", ""},
		{Filter{Types: []string{"training.started", "TRAINNG_COMPLETED"}}, WarningUnknownType, "types[1]",
			"TRAINNG_COMPLETED is not in the catalogue; nearest known types: TRAINING_COMPLETED, "},
		{Filter{Types: []string{"trainng.*"}}, WarningUnknownType, "types[0]",
			"no type of the catalogue matches trainng.*; nearest known types: TRAINING_"},
		{Filter{Types: []string{"*_PROMOTD"}}, WarningUnknownType, "types[0]",
			"matches *_PROMOTD; nearest known types: MODEL_PROMOTED, "},
		{Filter{Types: []string{"NOTHING_LIKE_IT_ANYWHERE"}}, WarningUnknownType, "types[0]",
			"NOTHING_LIKE_IT_ANYWHERE is not in the catalogue"},
		{Filter{Types: []string{"training.*"}, Categories: []string{"sync"}}, WarningNoMatch, "categories",
			"none of the types is in category sync: no event passes both"},
		{Filter{Types: []string{"training.*"}, Categories: []string{"Training"}}, "", "", ""},
	} {
		got := one.filter.Warnings(Builtin())
		switch {
		case one.reason == "" && len(got) == 0:
		case one.reason == "" || len(got) != 1:
			t.Errorf("%+v: %+v", one.filter, got)
		case got[0].Reason != one.reason || got[0].Field != one.field || !strings.Contains(got[0].Message, one.says):
			t.Errorf("%+v: %+v, want %s of %s: %s", one.filter, got[0], one.reason, one.field, one.says)
		}
	}
	// What is far off is not suggested, and the list is bounded.
	for _, w := range (Filter{Types: strings.Split(strings.Repeat("NOTHING_LIKE_IT_ANYWHERE ", 200), " ")[:200]}).
		Warnings(Builtin()) {
		if strings.Contains(w.Message, "nearest") {
			t.Error(w)
		}
	}
	many := make([]string, maxFilterEntries)
	for i := range many {
		many[i] = "NO_" + strings.Repeat("X", i)
	}
	if got := (Filter{Types: many}).Warnings(Builtin()); len(got) != maxFilterWarnings {
		t.Errorf("%d warnings", len(got))
	}
}
