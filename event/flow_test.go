package event

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestFlowsThatNobodyCouldFollowAreRefused(t *testing.T) {
	many := `["A","B0"]`
	for i := range maxFlowEdges {
		many += fmt.Sprintf(`,["A","C%d"]`, i)
	}
	for _, bad := range []struct{ flow, reason, field string }{
		{``, ReasonEmpty, ""},
		{`[]`, ReasonEmpty, ""},
		{`7`, ReasonInvalidJSON, ""},
		{`{"name":"f","edges":[["A","B"]]} x`, ReasonTrailingBytes, ""},
		{`{"name":"f","edges":[["A","B"]],"run_bye":[]}`, ReasonUnknownKey, "run_bye"},
		{`{"name":"f","name":"g","edges":[["A","B"]]}`, ReasonDuplicateKey, "name"},
		{`[{"name":"f","edges":[["A","B"]]},{"name":"g","edges":{}}]`, ReasonInvalidField, "[1].edges"},
		{`{"edges":[["A","B"]]}`, ReasonInvalidField, ".name"},
		{`{"name":"F","edges":[["A","B"]]}`, ReasonInvalidField, "F.name"},
		{`{"name":"a:b","edges":[["A","B"]]}`, ReasonInvalidField, "a:b.name"},
		{`{"name":"f"}`, ReasonInvalidField, "f.edges"},
		{`{"name":"f","edges":[` + many + `]}`, ReasonTooLarge, "f.edges"},
		{`{"name":"f","edges":[["A"]]}`, ReasonInvalidField, "edges[0]"},
		{`{"name":"f","edges":[["A","B","C"]]}`, ReasonInvalidField, "edges[0]"},
		{`{"name":"f","edges":[["A","B!"]]}`, ReasonInvalidType, "f.edges[0]"},
		{`{"name":"f","edges":[["A",""]]}`, ReasonInvalidType, "f.edges[0]"},
		{`{"name":"f","edges":[["A","` + strings.Repeat("B", 129) + `"]]}`, ReasonInvalidType, "f.edges[0]"},
		{`{"name":"f","edges":[["A","a"]]}`, ReasonInvalidField, "f.edges[0]"},
		{`{"name":"f","edges":[["A","B"],["a","b"]]}`, ReasonInvalidField, "f.edges[1]"},
		{`{"name":"f","edges":[["A","B"],["B","A"]]}`, ReasonInvalidField, "f.edges[0]"},
		{`{"name":"f","edges":[["A","B"],["C","D"],["D","C"]]}`, ReasonInvalidField, "f.edges[1]"},
		{`{"name":"f","edges":[["A","CHAIN_OVERDUE"]]}`, ReasonReservedType, "f.edges[0]"},
		{`{"name":"f","edges":[["A","B"]],"run_by":["a","a"]}`, ReasonInvalidField, "f.run_by[1]"},
		{`{"name":"f","edges":[["A","B"]],"run_by":["a=b"]}`, ReasonInvalidField, "f.run_by[0]"},
		{`{"name":"f","edges":[["A","B"]],"run_by":[""]}`, ReasonInvalidField, "f.run_by[0]"},
		{`{"name":"f","edges":[["A","B"]],"run_by":["1","2","3","4","5","6","7","8","9"]}`, ReasonTooLarge, "f.run_by"},
		{`{"name":"f","edges":[["A","B"]],"edge_notes":[{"edge":1}]}`, ReasonInvalidField, "f.edge_notes[0].edge"},
		{`{"name":"f","edges":[["A","B"]],"edge_notes":[{"edge":0,"if":"x"}]}`, ReasonUnknownKey, "edge_notes[0].if"},
		{`{"name":"f","edges":[["A","B"]],"edge_notes":[7]}`, ReasonInvalidJSON, "edge_notes[0]"},
		{`{"name":7,"edges":[["A","B"]]}`, ReasonInvalidField, "name"},
	} {
		_, err := ParseFlows([]byte(bad.flow))
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Reason != bad.reason || !strings.HasSuffix(e.Field, bad.field) {
			t.Errorf("%.80s: %v, want %s at %s", bad.flow, err, bad.reason, bad.field)
		}
	}
}

func TestARegisteredFlowIsKnownInTheNewCatalogueOnly(t *testing.T) {
	// After a first stage a cycle is fine, as in the built-in flow backpressure.
	flows, err := ParseFlows([]byte(`[
		{"name": "labels", "edges": [["A", "sync.completed"], ["SYNC_COMPLETED", "B"], ["B", "sync_completed"]]},
		{"name": "backpressure", "run_by": ["config_key"]}]`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Builtin().WithFlows(flows...)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(c.Flows()[len(c.Flows())-1])
	want := "{labels registered  [[A DATA_SYNC_COMPLETED] [DATA_SYNC_COMPLETED B] [B DATA_SYNC_COMPLETED]] [] [] []}"
	if got != want || len(c.Flows()) != len(Builtin().Flows())+1 {
		t.Errorf("%s, want %s", got, want)
	}
	for i, f := range c.Flows() {
		if f.Name == "backpressure" && (len(f.RunBy) != 1 || len(f.Edges) != 4 || Builtin().Flows()[i].RunBy != nil) {
			t.Errorf("%+v, built in %+v", f, Builtin().Flows()[i])
		}
	}
	for flow, field := range map[string]string{
		`{"name": "backpressure", "edges": [["A", "B"]]}`:                "backpressure.edges",
		`{"name": "no_such", "run_by": ["config_key"]}`:                  "no_such.edges",
		`{"name": "f", "edges": [["NEW_GAMES", "new.games.available"]]}`: "f.edges[0]", // one type
	} {
		flows, err := ParseFlows([]byte(flow))
		if err == nil {
			_, err = Builtin().WithFlows(flows...)
		}
		checkError(t, err, ReasonInvalidField, field, -1)
	}
}

func TestRunsAreFoundByPayloadFields(t *testing.T) {
	one, two := Flow{RunBy: []string{"config_key"}}, Flow{RunBy: []string{"config_key", "iteration"}}
	for _, test := range []struct {
		flow          Flow
		payload, want string
	}{
		{Flow{}, `{"config_key": "hex8"}`, ""},
		{one, `{"config_key": "hex8"}`, "config_key=hex8"},
		{one, `{"config_key":"hex8"}`, "config_key=hex8"}, // not canonical, as an event that nobody has published
		{one, `{"config_key": "\u00e4\""}`, `config_key=ä"`},
		{two, `{"config_key": "hex8", "iteration": 7}`, "config_key=hex8,iteration=7"},
		{two, `{"iteration":7,"config_key":"hex8"}`, "config_key=hex8,iteration=7"},
		{two, `{"config_key": false, "iteration": 0}`, "config_key=false,iteration=0"},
		{two, `{"config_key": "hex8"}`, ""},
		{one, `{"config_key": "a,b=50%"}`, "config_key=a%2Cb%3D50%25"},
		{one, `{"config_key": null}`, ""},
		{one, `{"config_key": ""}`, ""},
		{one, `{"config_key": ["hex8"]}`, ""},
		{one, `{"config_key": {"hex": 8}}`, ""},
		{one, `{"config_key": "a\nb"}`, ""},
		{one, `{"config_key": "` + strings.Repeat("x", 250) + `"}`, ""},
		{one, `{"config_key": "` + strings.Repeat("x", 2500) + `"}`, ""},
		{Flow{RunBy: []string{"größe\""}}, `{"gr\u00f6\u00dfe\"": 1}`, `größe"=1`},
		{one, `{}`, ""},
		{one, `{"config_key": 1`, "config_key=1"}, // the rest is not read
		{one, `{"config_key": `, ""},
		{one, `[1]`, ""},
		{one, ``, ""},
	} {
		got := test.flow.RunOf([]byte(test.payload))
		if got != test.want {
			t.Errorf("%v %.60s: %q, want %q", test.flow.RunBy, test.payload, got, test.want)
		}
		if got != "" && !test.flow.MayName(got) {
			t.Errorf("%q does not look like an id of %v", got, test.flow.RunBy)
		}
	}
	for id, want := range map[string]bool{"config_key=a,iteration=1": true, "config_key=a": false, "run-7": false,
		"": false, "iteration=1,config_key=a": false, "my_config_key=a,iteration=1": false,
		"config_key=a=b,iteration=1": false, "config_key=a,b,iteration=1": false, "config_key=,iteration=1": false,
		"config_key=50%,iteration=1": false, "config_key=50%25,iteration=1": true} {
		if two.MayName(id) != want {
			t.Errorf("MayName(%q) is %v", id, !want)
		}
	}
}

// Two runs have two ids, whatever their texts are, and no flow takes the id of another's run for one of its own.
func TestRunsWithOtherFieldsHaveOtherIDs(t *testing.T) {
	text := rapid.StringOfN(rapid.SampledFrom([]rune("ab,=%25CD\"")), 1, 8, -1)
	flows := []Flow{{RunBy: []string{"a"}}, {RunBy: []string{"a", "b"}}, {RunBy: []string{"b", "a"}}}
	rapid.Check(t, func(t *rapid.T) {
		of := rapid.SampledFrom(flows)
		draw := func(label string) (f Flow, texts [2]string, id string) {
			f, texts = of.Draw(t, label), [2]string{text.Draw(t, label), text.Draw(t, label)}
			if len(f.RunBy) == 1 {
				texts[1] = ""
			}
			fields := FieldTexts{}
			for i, name := range f.RunBy {
				fields[name] = texts[i]
			}
			return f, texts, f.RunIn(fields)
		}
		f, texts, id := draw("one")
		g, others, other := draw("other")
		if same := texts == others && slices.Equal(f.RunBy, g.RunBy); (id == other) != same {
			t.Fatalf("%v %q: %s; %v %q: %s", f.RunBy, texts, id, g.RunBy, others, other)
		}
		for _, h := range flows {
			if h.MayName(id) != slices.Equal(h.RunBy, f.RunBy) {
				t.Fatalf("%v may name %s of %v: %v", h.RunBy, id, f.RunBy, h.MayName(id))
			}
		}
	})
}
