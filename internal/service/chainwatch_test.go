package service

import (
	"testing"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/platform/stages"
)

// A watch over runs reads the log again if its flows or deadlines have changed, and not for each type that is
// registered.
func TestAWatchOverRunsOutlivesWhatItDoesNotGoBy(t *testing.T) {
	const deadline = "training_pipeline:TRAINING_STARTED->TRAINING_COMPLETED=6h"
	known := event.Builtin()
	c := chainWatch{texts: []string{deadline}, known: known}
	var err error
	c.limits, err = stages.ParseDeadlines(known, c.texts)
	if err != nil {
		t.Fatal(err)
	}
	c.watch = stages.NewWatch(known.Flows(), c.limits, 10)
	definitions, err := event.ParseDefinitions([]byte(`[{"name": "SOME_TYPE"}]`))
	if err != nil {
		t.Fatal(err)
	}
	typed, err := known.With(definitions...)
	if err != nil {
		t.Fatal(err)
	}
	flowed, err := typed.WithFlows(event.Flow{Name: "training_pipeline", RunBy: []string{"config_key"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		texts []string
		known *event.Catalogue
		want  bool
	}{
		"nothing changed":  {c.texts, known, true},
		"a type":           {c.texts, typed, true},
		"a flow":           {c.texts, flowed, false},
		"another deadline": {[]string{deadline[:len(deadline)-2] + "7h"}, known, false},
		"none":             {nil, known, false},
	} {
		if got := c.goesBy(test.texts, test.known); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	c.limits = stages.Deadlines{}
	if c.goesBy(c.texts, typed) {
		t.Error("deadlines mean something else now")
	}
}
