package service

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/fsm"
)

// A view is refused if what its rules publish comes back to it, directly or through others.
func TestViewsDoNotFeedEachOther(t *testing.T) {
	text := func(name, reads, emits string) string {
		rules := ""
		if emits != "" {
			rules = fmt.Sprintf(`, "rules": [{"name": "r", "when": "n > 1", "emit": %q}]`, emits)
		}
		return fmt.Sprintf(`{"name": %q, "types": [%q], "fields": {"n": {"kind": "count"}}%s}`, name, reads, rules)
	}
	defined := &fsm.ViewDefinitions{List: []fsm.ViewDefinition{
		{Name: "a", Declaration: text("a", "A_TYPE", "B_TYPE")},
		{Name: "b", Declaration: text("b", "B_*", "C_TYPE")},
		{Name: "quiet", Declaration: text("quiet", "D_TYPE", "")},
	}}
	for _, c := range []struct{ name, reads, emits, path string }{
		{"c", "C_TYPE", "A_TYPE", "c -> a -> b -> c"},
		{"c", "C_TYPE", "D_TYPE", ""},
		{"c", "C_TYPE", "", ""},
		{"c", "E_TYPE", "A_TYPE", ""},
		// In the place of the one that closes the loop, there is none.
		{"b", "E_TYPE", "A_TYPE", ""},
		{"b", "B_TYPE", "A_TYPE", "b -> a -> b"},
	} {
		_, fold, err := parseView(c.name, []byte(text(c.name, c.reads, c.emits)))
		if err != nil {
			t.Fatal(err)
		}
		err = refuseLoop(defined, c.name, fold)
		refused := (*api.Error)(nil)
		switch {
		case c.path == "" && err != nil:
			t.Errorf("%+v: %v", c, err)
		case c.path != "" && (!errors.As(err, &refused) || !strings.Contains(refused.Message, c.path)):
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// An error of a declaration names the place.
func TestABadDeclarationIsRefusedWithItsPlace(t *testing.T) {
	for text, field := range map[string]string{
		`{"fields": {"n": {"kind": "mean", "of": "payload."}}}`: "declaration",
		`{"fields": {"n": {"kind": "nothing"}}}`:                "declaration.fields.n.kind",
		`{"name": "other", "fields": {"n": {"kind": "count"}}}`: "name",
		`{"fields": {}}`: "declaration.fields",
		`{"nothing": 1}`: "declaration",
	} {
		_, _, err := parseView("v", []byte(text))
		refused := (*api.Error)(nil)
		if !errors.As(err, &refused) || refused.Code != api.InvalidArgument || !strings.HasPrefix(refused.Field, field) {
			t.Errorf("%s: %+v %v", text, refused, err)
		}
	}
}
