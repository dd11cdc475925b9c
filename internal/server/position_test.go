package server

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/api"
)

// A query and a body take the same positions as the command line.
func TestPositionsAreReadAsEverywhere(t *testing.T) {
	t.Parallel()
	table, err := os.ReadFile("../../api/testdata/positions.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		text, want := strings.TrimSpace(line[:32]), strings.TrimSpace(line[32:])
		problem, wrong := strings.CutPrefix(want, "! ")
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		inQuery, queryErr := parsePosition("from", text)
		inBody, bodyErr := parseJSONPosition("from", quoted)
		if inQuery != inBody || (queryErr == nil) != (bodyErr == nil) || (queryErr != nil) != wrong {
			t.Errorf("%q is %v, %v in a query and %v, %v in a body; want %s", text, inQuery, queryErr, inBody, bodyErr, want)
		}
		bad, _ := errors.AsType[*api.Error](queryErr)
		if wrong && (bad == nil || !strings.Contains(bad.Message+bad.Remedy, problem)) {
			t.Errorf("%q: %#v; want an error that says %q", text, bad, problem)
		}
		if !wrong && inQuery.String() != want {
			t.Errorf("%q is read as %s; want %s", text, inQuery, want)
		}
	}
}
