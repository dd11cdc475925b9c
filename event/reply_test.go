package event

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var updateReplies = flag.Bool("update", false, "write testdata/replies.golden")

// repliesLine is one line of the golden file, which python/tests/test_parts.py reads as well.
func repliesLine(t Type, r Replies) string {
	join := func(types []Type) (text string) {
		for _, t := range types {
			text += " " + string(t)
		}
		return text
	}
	return fmt.Sprintf("%s ->%s |%s\n", t, join(r.Success), join(r.Failure))
}

func TestRepliesOfTheCatalogue(t *testing.T) {
	c := Builtin()
	var all strings.Builder
	for _, d := range c.Definitions() {
		if r := c.RepliesTo(d.Name); len(r.Success) > 0 {
			all.WriteString(repliesLine(d.Name, r))
		}
	}
	golden := filepath.Join("testdata", "replies.golden")
	if *updateReplies {
		if err := os.WriteFile(golden, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || all.String() != string(want) {
		t.Errorf("replies (-update writes %s): %v\n%s", golden, err, all.String())
	}
}

func TestARegisteredFlowNamesReplies(t *testing.T) {
	c, err := Builtin().WithFlows(Flow{Name: "labelling", Edges: [][2]Type{
		{"LABELS_REQUESTED", "LABELLING_STARTED"}, {"LABELLING_STARTED", "LABELS_READY"},
		{"LABELLING_STARTED", "LABELS_REJECTED"}}})
	if err != nil {
		t.Fatal(err)
	}
	r := c.RepliesTo("labels.requested")
	if !slices.Equal(r.Success, []Type{"LABELS_READY"}) || !slices.Equal(r.Failure, []Type{"LABELS_REJECTED"}) {
		t.Errorf("replies to LABELS_REQUESTED are %v", r)
	}
	// Types that begin each other have no outcome, and the walk ends.
	c, err = Builtin().WithFlows(Flow{Name: "loop", Edges: [][2]Type{
		{"LOOP_WANTED", "A_STARTED"}, {"A_STARTED", "B_STARTED"}, {"B_STARTED", "A_STARTED"}}})
	if err != nil {
		t.Fatal(err)
	}
	if r := c.RepliesTo("A_STARTED"); len(r.Success)+len(r.Failure) > 0 {
		t.Errorf("replies to A_STARTED are %v, want none", r)
	}
}
