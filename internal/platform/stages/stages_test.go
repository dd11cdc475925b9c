package stages

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/event"
)

var update = flag.Bool("update", false, "write what the stories give into their files")

// story is a file of testdata. Lines before --- are
//
//	OFFSET TIME TYPE [by=CAUSATION] [dedup=ID] [source=S]   an event, at a time after the beginning
//	now TIME | flow NAME | deadline FLOW:A->B=D | kept OFFSET | format FORMAT
//
// and the lines after it are the chain as it is written.
type story struct {
	events  []Event
	options Options
	format  Format
}

func beginning() time.Time { return time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC) }

func readStory(t *testing.T, text string) story {
	t.Helper()
	s := story{format: Text, options: Options{Scope: Scope{From: 1, KeptFrom: 1}}}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	var deadlines []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		switch words[0] {
		case "now":
			after, err := time.ParseDuration(words[1])
			must(err)
			s.options.Now = beginning().Add(after)
		case "flow":
			s.options.Flow = words[1]
		case "deadline":
			deadlines = append(deadlines, words[1])
		case "kept":
			kept, err := strconv.ParseUint(words[1], 10, 64)
			must(err)
			s.options.Scope.KeptFrom = kept
		case "format":
			s.format = Format(words[1])
		default:
			s.events = append(s.events, readEvent(t, words))
		}
	}
	var err error
	s.options.Deadlines, err = ParseDeadlines(event.Builtin(), deadlines)
	must(err)
	return s
}

func readEvent(t *testing.T, words []string) Event {
	t.Helper()
	offset, err := strconv.ParseUint(words[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	after, err := time.ParseDuration(words[1])
	if err != nil {
		t.Fatal(err)
	}
	e := Event{Offset: offset, At: beginning().Add(after), Type: event.Type(words[2]), Hash: fmt.Sprintf("%064x", offset)}
	for _, word := range words[3:] {
		name, value, _ := strings.Cut(word, "=")
		*map[string]*string{"by": &e.CausationID, "dedup": &e.DedupID, "source": &e.Source}[name] = value
	}
	return e
}

func TestChainsAreToldAsTheyWent(t *testing.T) {
	files, err := filepath.Glob("testdata/*.chain")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			script, want, _ := strings.Cut(string(text), "---\n")
			s := readStory(t, script)
			chain := Follow(event.Builtin().Flows(), "run-7", s.events, s.options)
			var got bytes.Buffer
			if err := chain.Write(&got, s.format); err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(file, []byte(script+"---\n"+got.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if got.String() != want {
				t.Errorf("got\n%s\nnot\n%s\n(go test ./stages -update writes it)", got.String(), want)
			}
		})
	}
}

// Whatever comes in whatever order: every stage is reached in some way, no event takes
// an edge twice from the same cause, and what is missing is missing from the newest event of its stage.
func TestEveryStageIsAccountedFor(t *testing.T) {
	flows := event.Builtin().Flows()
	var types []event.Type
	for _, f := range flows {
		for _, e := range f.Edges {
			types = append(types, e[0], e[1])
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		at, offset := beginning(), uint64(0)
		var events []Event
		for i := range rapid.IntRange(0, 40).Draw(t, "events") {
			at, offset = at.Add(time.Second), offset+1
			e := Event{Offset: offset, At: at, Type: rapid.SampledFrom(types).Draw(t, "type")}
			if i > 0 && rapid.Bool().Draw(t, "named") {
				e.CausationID = fmt.Sprint(rapid.IntRange(1, i).Draw(t, "cause"))
			}
			events = append(events, e)
		}
		for _, f := range flows {
			c := Follow(flows, "c", events, Options{Now: at, Flow: f.Name})
			checkRun(t, f, events, c.Flows[0])
			if len(c.Outside)+stagesOf(f, events) != len(events) {
				t.Fatalf("%d outside, %d stages, of %d", len(c.Outside), stagesOf(f, events), len(events))
			}
			first, _ := json.Marshal(c)
			again := Follow(flows, "c", events, Options{Now: at, Flow: f.Name})
			if second, _ := json.Marshal(again); !bytes.Equal(first, second) {
				t.Fatal("the same events gave two results")
			}
		}
	})
}

func stagesOf(f event.Flow, events []Event) (n int) {
	for _, e := range events {
		if isStage(f, e.Type) {
			n++
		}
	}
	return n
}

func checkRun(t *rapid.T, f event.Flow, events []Event, r Run) {
	reached, newest := map[uint64]bool{}, map[event.Type]uint64{}
	for _, s := range r.Starts {
		reached[s.Offset] = true
	}
	type way struct {
		from uint64
		to   event.Type
	}
	gone := map[way]bool{}
	for _, e := range r.Edges {
		reached[e.ToOffset] = true
		u := way{e.FromOffset, e.To}
		if e.State != Again && e.FromOffset != 0 {
			if gone[u] {
				t.Fatalf("%d goes to %s twice", e.FromOffset, e.To)
			}
			gone[u] = true
		}
		if (e.State == Taken || e.State == Again) && e.FromOffset >= e.ToOffset {
			t.Fatalf("%+v", e)
		}
	}
	for _, e := range events {
		newest[e.Type] = e.Offset
		if isStage(f, e.Type) && !reached[e.Offset] {
			t.Fatalf("%s %d is reached in no way", e.Type, e.Offset)
		}
	}
	for _, n := range r.Next {
		if newest[n.From] != n.FromOffset || gone[way{n.FromOffset, n.To}] || r.Complete && !n.Optional {
			t.Fatalf("%+v is missing", n)
		}
	}
}

func TestDeadlinesAreHeldAgainstTheFlows(t *testing.T) {
	c := event.Builtin()
	d, err := ReadDeadlines(c, []byte(`{"training_pipeline": {"training.started -> training_completed": "6h"}}`))
	if err != nil {
		t.Fatal(err)
	}
	texts := d.Texts()
	if len(texts) != 1 || texts[0] != "training_pipeline:TRAINING_STARTED->TRAINING_COMPLETED=6h0m0s" {
		t.Fatal(texts)
	}
	if again, err := ParseDeadlines(c, texts); err != nil || fmt.Sprint(again) != fmt.Sprint(d) {
		t.Errorf("%v %v", again, err)
	}
	for _, test := range []struct{ file, want string }{
		{``, "ends where a value is expected"},
		{`{"training_pipeline": {"TRAINING_STARTED->TRAINING_COMPLETED": 6}}`, "the form is"},
		{`{"training": {}}`, ""},
		{`{"training": {"A->B": "6h"}}`, "there are training_pipeline, health_recovery"},
		{`{"training_pipeline": {"TRAINING_COMPLETED->TRAINING_STARTED": "6h"}}`, "has no edge"},
		{`{"training_pipeline": {"TRAINING_STARTED": "6h"}}`, "has no edge"},
		{`{"training_pipeline": {"TRAINING_STARTED->TRAINING_COMPLETED": "-6h"}}`, "not a duration"},
		{
			`{"training_pipeline": {"TRAINING_STARTED->TRAINING_COMPLETED": "1h",` +
				` "TRAINING_STARTED -> TRAINING_COMPLETED": "2h"}}`,
			"has two",
		},
		{`{"training_pipeline": {}, "training_pipeline": {}}`, "twice"},
	} {
		file, want := test.file, test.want
		_, err := ReadDeadlines(c, []byte(file))
		if want == "" && err == nil {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
	if _, err := ParseDeadlines(c, []string{"training_pipeline"}); err == nil {
		t.Error("half a deadline was taken")
	}
}

func TestTheNextDeadlineIsTheEarliestThatIsNotOver(t *testing.T) {
	d, err := ParseDeadlines(event.Builtin(), []string{"health_recovery:RECOVERY_INITIATED->RECOVERY_COMPLETED=10s",
		"health_recovery:RECOVERY_INITIATED->RECOVERY_FAILED=30s"})
	if err != nil {
		t.Fatal(err)
	}
	events := []Event{{Offset: 1, At: beginning(), Type: "RECOVERY_INITIATED"}}
	for after, want := range map[time.Duration]time.Duration{
		5 * time.Second:  10 * time.Second,
		20 * time.Second: 30 * time.Second,
		time.Minute:      0,
	} {
		c := Follow(event.Builtin().Flows(), "c", events, Options{Now: beginning().Add(after), Deadlines: d})
		at := c.NextDeadline()
		if want == 0 && !at.IsZero() || want != 0 && !at.Equal(beginning().Add(want)) {
			t.Errorf("after %s: %s", after, at)
		}
	}
}

// News written in pieces have each event and each edge once.
func TestNewsAreWhatCameAfterAnOffset(t *testing.T) {
	text, err := os.ReadFile("testdata/stuck.chain")
	if err != nil {
		t.Fatal(err)
	}
	script, _, _ := strings.Cut(string(text), "---\n")
	s := readStory(t, script)
	c := Follow(event.Builtin().Flows(), "run-7", s.events, s.options)
	var got bytes.Buffer
	if err := c.WriteNews(&got, 4); err != nil {
		t.Fatal(err)
	}
	const want = `  5  2026-01-05T10:02:00.000Z  TRAINING_STARTED  +1m57s

training_pipeline: not complete
  taken    TRAINING_THRESHOLD_REACHED 4 -> TRAINING_STARTED 5  1m57s      late: its deadline is 1m
  OVERDUE  TRAINING_STARTED 5 -> TRAINING_COMPLETED            for 1h58m  its deadline is 1h
`
	if got.String() != want || len(c.Events) != 5 || len(c.Flows[0].Edges) != 4 {
		t.Errorf("%s\n%+v", got.String(), c)
	}
}
