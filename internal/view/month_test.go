package view_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/longtest"
	"github.com/ringrift/ringlog/internal/view"
)

// player is a configuration of the generated month.
type player struct {
	name     string
	elo      float64
	velocity float64 // Elo per hour
	until    time.Time
	training bool
}

// month returns the events of a month of selfplay, training and evaluation. perDay is how often a configuration is
// evaluated, and plays about as often.
func month(seed uint64, perDay int) []*event.Event {
	random := rand.New(rand.NewPCG(seed, 22))
	var players []*player
	for i := range 12 {
		players = append(players, &player{name: fmt.Sprintf("%s_%dp", []string{"hex8", "square8", "square19"}[i%3], 2+i/3),
			elo: 1200 + 400*random.Float64()})
	}
	var events []*event.Event
	s := newSeries()
	pause := 24 * time.Hour / time.Duration(perDay*len(players)*3)
	for end := start.Add(30 * 24 * time.Hour); s.at.Before(end); {
		p := players[random.IntN(len(players))]
		// Elo rises, stalls or falls for some days; now and then it collapses and comes back.
		if s.at.After(p.until) {
			p.velocity = []float64{0, 0, 0.05, 3, 5, -3, -6}[random.IntN(7)]
			p.until = s.at.Add(time.Duration((6 + 90*random.Float64()) * float64(time.Hour)))
		}
		after := time.Duration(random.ExpFloat64() * float64(pause))
		p.elo += p.velocity * after.Hours() * float64(len(players))
		if random.IntN(40) == 0 {
			after = 0 // in one entry with the event before
		}
		if random.IntN(50) == 0 {
			after = -time.Duration(random.IntN(int(time.Minute))) // a clock that steps back
		}
		events = append(events, p.next(s, after, random))
	}
	return events
}

// next returns an event of the player.
func (p *player) next(s *series, after time.Duration, random *rand.Rand) *event.Event {
	t, payload := event.Type("EVALUATION_COMPLETED"), map[string]any{"config_key": p.name}
	switch n := random.IntN(30); {
	case n < 10:
		payload["elo_estimate"] = math.Round((p.elo+random.NormFloat64()*10)*8) / 8
		if n < 8 {
			payload["win_rate"] = random.Float64()
		}
	case n < 19:
		t = "SELFPLAY_COMPLETE"
		payload["game_count"] = 1 + random.IntN(60)
		if n < 17 {
			payload["duration"] = 10 + 100*random.Float64()
		}
		payload["test"] = n == 10
	case n < 28:
		t = "NEW_GAMES_AVAILABLE"
		payload[[]string{"new_games", "count"}[n%2]] = random.IntN(100)
	case !p.training:
		t = "TRAINING_STARTED"
		p.training = true
	default:
		t = "TRAINING_COMPLETED"
		p.training = false
		if n == 28 {
			payload["final_loss"] = random.Float64()
		}
	}
	text, err := json.Marshal(payload)
	if err != nil {
		panic(err)
	}
	ev := s.next(after, t, "", string(text))
	ev.Source = fmt.Sprintf("worker-%d", random.IntN(45))
	return ev
}

// folded is what the reference prints of a view.
type folded struct {
	Rows map[string]struct {
		Key    string
		Offset uint64
		At     int64
		Fields map[string]any
		Rules  map[string]uint64 // the offset with which it began, 0 if it does not hold
	}
	Firings []fired
}

// fired is a firing as the reference prints it.
type fired struct {
	Rule    string
	Ended   bool
	Type    string
	Payload map[string]any
}

// reference folds the events with the Python program.
func reference(t *testing.T, events []*event.Event) map[string]folded {
	var in, diagnostics bytes.Buffer
	for _, e := range events {
		fmt.Fprintf(&in, "{\"offset\": %d, \"at\": %d, \"type\": %q, \"key\": %q, \"source\": %q, \"payload\": %s}\n",
			e.Offset, e.AppendedAt.UnixNano(), e.Type, e.Key, e.Source, e.Payload)
	}
	cmd := exec.Command("python3", "testdata/reference.py")
	cmd.Stdin, cmd.Stderr = &in, &diagnostics
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("reference: %v\n%s", err, diagnostics.Bytes())
	}
	var all map[string]folded
	if err := json.Unmarshal(out, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAMonthIsAsTheReferenceFoldsIt(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("one goroutine folds a month")
	}
	perDay := 7
	if longtest.Enabled() {
		perDay *= 2
	}
	events := month(1, perDay)
	want := reference(t, events)
	all, err := view.Platform()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/everything.json")
	if err != nil {
		t.Fatal(err)
	}
	everything, err := view.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]int{}
	for _, d := range append(all, everything) {
		v, err := view.Compile(d)
		if err != nil {
			t.Fatal(err)
		}
		compareRows(t, v, fold(t, v, events, want[d.Name].Firings, types), want[d.Name], d.Name)
	}
	// A month in which a rule never fires shows nothing about it.
	for _, name := range []string{"ELO_VELOCITY_CHANGED", "PLATEAU_DETECTED", "REGRESSION_DETECTED", "REGRESSION_CRITICAL",
		"REGRESSION_CLEARED", "MY_SPREAD", "MY_SPREAD_OVER", "MY_RUSH", "MY_LULL"} {
		if types[name] == 0 {
			t.Errorf("no %s in the month", name)
		}
	}
	t.Logf("%d events; firings %v", len(events), types)
}

// fold folds the events that the view reads, compares its firings, counts their types, and returns the rows.
func fold(t *testing.T, v *view.View, events []*event.Event, want []fired, types map[string]int) *memory {
	rows, reads := newMemory(), v.Filter().Compile(event.Builtin())
	ids := map[string]bool{}
	for _, e := range events {
		if !reads.Match(e) {
			continue
		}
		for _, f := range apply(t, v, rows, e) {
			types[string(f.Event.Type)]++
			if ids[f.Event.DedupID] {
				t.Errorf("%s is published twice", f.Event.DedupID)
			}
			ids[f.Event.DedupID] = true
			if len(want) == 0 {
				t.Fatalf("%s is not expected", f.Event)
			}
			var got map[string]any
			if err := json.Unmarshal(f.Event.Payload, &got); err != nil {
				t.Fatal(err)
			}
			delete(got, "view")
			w := want[0]
			if f.Rule != w.Rule || f.Ended != w.Ended || string(f.Event.Type) != w.Type || f.Event.Offset != 0 {
				t.Fatalf("fired %+v, want %+v", f, w)
			}
			if diff := differs(got, w.Payload); diff != "" {
				t.Fatalf("%s: %s", f.Event.DedupID, diff)
			}
			want = want[1:]
		}
	}
	if len(want) > 0 {
		t.Errorf("%d firings are missing, first %+v", len(want), want[0])
	}
	return rows
}

// compareRows compares all rows of a view.
func compareRows(t *testing.T, v *view.View, rows *memory, want folded, name string) {
	keys, err := v.Keys(rows, "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) != len(want.Rows) || !sort.StringsAreSorted(keys) || len(keys) < 12 {
		t.Errorf("%s: keys %q, %d are wanted", name, keys, len(want.Rows))
	}
	if skipped, err := v.Skipped(rows); err != nil || skipped.Events != 0 {
		t.Errorf("%s: %+v, %v", name, skipped, err)
	}
	for _, key := range keys {
		var got struct {
			Offset, Skipped uint64
			At              time.Time
			Fields          map[string]any
			Rules           map[string]struct{ Offset uint64 }
		}
		if err := json.Unmarshal([]byte(show(t, v, rows, key)), &got); err != nil {
			t.Fatal(err)
		}
		w := want.Rows[key]
		if got.Offset != w.Offset || got.At.UnixNano() != w.At || got.Skipped != 0 {
			t.Errorf("%s: %s: %+v, want offset %d at %d", name, key, got, w.Offset, w.At)
		}
		if diff := differs(got.Fields, w.Fields); diff != "" {
			t.Errorf("%s: %s: %s", name, key, diff)
		}
		for rule, offset := range w.Rules {
			if got.Rules[rule].Offset != offset {
				t.Errorf("%s: %s: rule %s since %d, want %d", name, key, rule, got.Rules[rule].Offset, offset)
			}
		}
	}
}

// differs says how two values of JSON differ; numbers may by 1e-9 of themselves. The reference has times in
// nanoseconds.
func differs(got, want any) string {
	switch w := want.(type) {
	case float64:
		if text, ok := got.(string); ok {
			at, err := time.Parse(time.RFC3339Nano, text)
			got = float64(at.UnixNano())
			if err != nil {
				return err.Error()
			}
		}
		// What is a difference of two Elos is as exact as these are.
		if g, ok := got.(float64); !ok || math.Abs(g-w) > 1e-9*max(math.Abs(w), 1) {
			return fmt.Sprintf("%v, want %v", got, w)
		}
		return ""
	case map[string]any:
		g, _ := got.(map[string]any)
		names := make([]string, 0, len(w))
		for name := range w {
			names = append(names, name)
		}
		slices.Sort(names)
		if len(g) != len(w) {
			return fmt.Sprintf("%v, want the members %v", got, names)
		}
		for _, name := range names {
			if diff := differs(g[name], w[name]); diff != "" {
				return name + ": " + diff
			}
		}
		return ""
	}
	if got != want {
		return fmt.Sprintf("%v, want %v", got, want)
	}
	return ""
}
