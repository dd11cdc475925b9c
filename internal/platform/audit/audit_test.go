package audit

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/event"
)

var update = flag.Bool("update", false, "write the reports into testdata")

// cluster is evidence of a small cluster.
func cluster() Evidence {
	return Evidence{
		Scope: Scope{FirstOffset: 11, LastOffset: 40, KeptFrom: 3, Events: 30},
		Seen: []Seen{
			{event.TrainingCompleted, "TrainingCoordinator", 7},
			{event.BackpressureActivated, "gpu-7", 2},
			{event.LeaderElected, "ringlog", 1},
			{"SYNC_RETRY_REQUEST", "sync_router.py", 5}, {event.SyncFailureCritical, "", 15},
		},
		Subscriptions: []Subscription{
			{"trainer", ByCursor, event.Filter{Types: []string{"TRAINING_COMPLETE", "new_games", "sync.*"}}, ""},
			{"alerts", ByClient, event.Filter{Types: []string{"LEADER_*", "SYNC_FAILURE_CRITICAL", "NO_SUCH_TYPE"}}, ""},
			{"evaluators", ByCursor, event.Filter{Categories: []string{"evaluation"}}, ""},
			{"archive", ByCursor, event.Filter{}, ""},
		},
	}
}

// The report of what is declared in every format, and that of a cluster.
func TestReports(t *testing.T) {
	declared := Run(event.Builtin(), Evidence{})
	for _, f := range []Format{Text, JSON, DOT, Mermaid} {
		golden(t, "declared."+string(f), written(t, declared, f))
	}
	golden(t, "cluster.text", written(t, Run(event.Builtin(), cluster()), Text))
}

func written(t *testing.T, r *Report, f Format) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := r.Write(&out, f); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got, want) {
		return
	}
	g, w := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			t.Fatalf("%s, line %d:\n%s\nnot\n%s\n(go test ./internal/platform/audit -update writes it)", path, i+1, g[i], w[i])
		}
	}
	t.Fatalf("%s: %d lines, not %d (go test ./internal/platform/audit -update writes it)", path, len(g), len(w))
}

// wires are all that the lists rest on.
func wires(c *Computed) map[event.Type][2][]Wire {
	out := map[event.Type][2][]Wire{}
	for name, e := range c.entries {
		out[name] = [2][]Wire{e.Emitters, e.Subscribers}
	}
	return out
}

func lists(c *Computed) map[Class][]event.Type {
	out := map[Class][]event.Type{}
	for _, class := range Classes() {
		out[class] = c.Of(class)
	}
	return out
}

// withoutFindings takes out of the catalogue all that the platform's audit found, also
// where its other files took it over.
func withoutFindings(t *testing.T) *Declarations {
	w := event.Builtin().Wiring()
	kept := *w
	t.Cleanup(func() { *w = kept })
	w.OrphanEvents, w.DeadSubscriptions = nil, nil
	d := Declared(event.Builtin())
	strip := func(list []*event.Definition) (out []*event.Definition) {
		for _, def := range list {
			bare := *def
			bare.Subscribers, bare.Impact, bare.CrossProcess, bare.CrossProcessBasis = nil, "", nil, ""
			out = append(out, &bare)
		}
		return out
	}
	d.Types, d.Mentioned, d.Coordinators = strip(d.Types), strip(d.Mentioned), slices.Clone(d.Coordinators)
	for i := range d.Coordinators {
		c := &d.Coordinators[i]
		c.Declared, c.DeclaredCount, c.ListedCount, c.Status = "", nil, nil, ""
	}
	return d
}

func TestTheListsAreTheSameWithoutTheFindings(t *testing.T) {
	with, without := Compute(Declared(event.Builtin())), Compute(withoutFindings(t))
	if !reflect.DeepEqual(lists(with), lists(without)) {
		t.Errorf("with the findings\n%v\nwithout\n%v", lists(with), lists(without))
	}
	if !reflect.DeepEqual(wires(with), wires(without)) {
		t.Error("a wire comes from a finding")
	}
	for name, n := range map[Class]int{Orphan: 40, Dead: 67, Connected: 24, Alias: 7, Unknown: 5} {
		if got := len(with.Of(name)); got != n {
			t.Errorf("%d are %s, not %d", got, name, n)
		}
	}
}

// The findings as recorded, and those that the documents contradict: as
// the catalogue's README lists them.
func TestTheVerdicts(t *testing.T) {
	r := Run(event.Builtin(), Evidence{})
	got := map[string][3]int{}
	contradicted := map[string][]string{}
	for _, one := range r.Tally {
		got[one.Kind] = [3]int{one.Verdicts[Confirmed], one.Verdicts[Contradicted], one.Verdicts[NotDerivable]}
	}
	for _, f := range r.Findings {
		if f.Verdict == Contradicted {
			contradicted[f.Kind] = append(contradicted[f.Kind], f.Subject)
		}
	}
	want := map[string][3]int{
		FindingOrphan:   {0, 8, 19},
		FindingDead:     {12, 3, 21},
		FindingCount:    {3, 4, 20},
		FindingUnmapped: {0, 13, 39},
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
	for kind, names := range map[string]string{
		FindingOrphan: "CURRICULUM_UPDATED DAEMON_PERMANENTLY_FAILED EVALUATION_COMPLETE HANDLER_FAILED " +
			"HANDLER_TIMEOUT QUALITY_CHECK_REQUESTED TRAINING_COMPLETE TRAINING_TRIGGERED",
		FindingDead:  "CLUSTER_STATUS_CHANGED REGRESSION_DETECTED TRAINING_PROGRESS",
		FindingCount: "health_manager training_coordinator selfplay_scheduler curriculum_integration",
	} {
		if got := strings.Join(contradicted[kind], " "); got != names {
			t.Errorf("%s: contradicted are %s, not %s", kind, got, names)
		}
	}
}

// A finding is judged by what is declared, whatever it says itself.
func TestJudge(t *testing.T) {
	c := Compute(Declared(event.Builtin()))
	n := func(i int) *int { return &i }
	no, yes := false, true
	tests := []struct {
		about   string
		found   Recorded
		verdict Verdict
		because string
	}{
		{
			"emitted, no subscriber",
			Recorded{Orphans: []event.OrphanEvent{{Event: "ARCHITECTURE_WEIGHTS_UPDATED", Emitter: "x.py"}}},
			Confirmed,
			"architecture_feedback_controller (schema list app/",
		},
		{
			"has a subscriber",
			Recorded{Orphans: []event.OrphanEvent{{Event: "ADAPTIVE_PARAMS_CHANGED", Emitter: "x.py"}}},
			Contradicted,
			"selfplay_scheduler (own list)",
		},
		{
			"a pattern that the own list lacks",
			Recorded{Orphans: []event.OrphanEvent{{Event: "QUALITY_CHECK_REQUESTED", Emitter: "x.py"}}},
			Contradicted,
			"handler index: QUALITY_*), though not in its own list",
		},
		{
			"nothing known",
			Recorded{Orphans: []event.OrphanEvent{{Event: "WEIGHT_UPDATED", Emitter: "x.py"}}},
			NotDerivable,
			"only the finding says that x.py emits it",
		},
		{
			"no such name",
			Recorded{Orphans: []event.OrphanEvent{{Event: "NO_SUCH_TYPE", Emitter: "x.py"}}},
			NotDerivable,
			"only the finding",
		},
		{
			"an alias",
			Recorded{Orphans: []event.OrphanEvent{{Event: "NEW_GAMES", Emitter: "x.py"}}},
			NotDerivable,
			"an alias of NEW_GAMES_AVAILABLE, which is connected",
		},
		{
			"dead",
			Recorded{Dead: []event.DeadSubscription{{Event: "REGRESSION_CRITICAL", Subscriber: "daemon_manager.py"}}},
			Confirmed,
			"daemon_manager (handler index)",
		},
		{
			"dead, by others",
			Recorded{Dead: []event.DeadSubscription{{Event: "REGRESSION_CRITICAL", Subscriber: "x.py"}}},
			Confirmed,
			"by others than the finding names",
		},
		{
			"emitted by a test alone",
			Recorded{Dead: []event.DeadSubscription{{Event: "EVALUATION_FAILED", Subscriber: "data_pipeline_orchestrator.py"}}},
			Confirmed,
			"data_pipeline_orchestrator",
		},
		{
			"has an emitter",
			Recorded{Dead: []event.DeadSubscription{{Event: "TRAINING_COMPLETED", Subscriber: "x.py"}}},
			Contradicted,
			"p2p_orchestrator (schema list",
		},
		{
			"subscribed to in the finding alone",
			Recorded{Dead: []event.DeadSubscription{{
				Event:      "CACHE_INVALIDATED",
				Subscriber: "metrics_analysis_orchestrator.py",
			}}},
			NotDerivable,
			"only the finding",
		},
		{
			"the count of the list",
			Recorded{Counts: []event.Coordinator{{Name: "task_coordinator", DeclaredCount: n(9)}}},
			Confirmed,
			"names 9",
		},
		{
			"another count",
			Recorded{Counts: []event.Coordinator{{Name: "task_coordinator", DeclaredCount: n(5)}}},
			Contradicted,
			"names 9",
		},
		{
			"less than is known",
			Recorded{Counts: []event.Coordinator{{Name: "model_distribution_daemon", DeclaredCount: n(1)}}},
			Contradicted,
			"MODEL_PROMOTED, MODEL_UPDATED",
		},
		{
			"as much as is known",
			Recorded{Counts: []event.Coordinator{{Name: "model_distribution_daemon", DeclaredCount: n(2)}}},
			NotDerivable,
			"not listed",
		},
		{
			"does not cross",
			Recorded{Unmapped: []*event.Definition{{Name: "ADAPTIVE_PARAMS_CHANGED", CrossProcess: &no}}},
			NotDerivable,
			"from feedback_loop_controller to selfplay_scheduler",
		},
		{
			"crosses",
			Recorded{Unmapped: []*event.Definition{{Name: "HEALTH_ALERT", CrossProcess: &yes, CrossProcessBasis: "named_fix"}}},
			Contradicted,
			"named_fix",
		},
	}
	for _, test := range tests {
		found := Judge(c, test.found)
		if len(found) != 1 {
			t.Fatalf("%s: %d findings", test.about, len(found))
		}
		f := found[0]
		words := f.Because + ": " + strings.Join(f.Evidence, "; ")
		if f.Verdict != test.verdict || !strings.Contains(words, test.because) {
			t.Errorf("%s: %s, %s; want %s, %s", test.about, f.Verdict, words, test.verdict, test.because)
		}
	}
}

// evidences draws what a cluster may show, names that nobody knows included.
func evidences() *rapid.Generator[Evidence] {
	known := event.Builtin().Definitions()
	name := rapid.Custom(func(t *rapid.T) string {
		if rapid.IntRange(0, 4).Draw(t, "kind") == 0 {
			return rapid.StringMatching(`[A-Z]{1,6}_[A-Z]{1,6}`).Draw(t, "unknown")
		}
		return string(known[rapid.IntRange(0, len(known)-1).Draw(t, "type")].Name)
	})
	pattern := rapid.OneOf(name, rapid.SampledFrom([]string{
		"*",
		"*_FAILED",
		"training.*",
		"TRAINING_COMPLETE",
		"new_games",
		"SYNC?COMPLETED",
	}))
	who := rapid.OneOf(rapid.SampledFrom([]string{
		"",
		"selfplay_scheduler.py",
		"TrainingCoordinator",
		"ringlog",
		"gpu-1",
	}), rapid.String())
	return rapid.Custom(func(t *rapid.T) (e Evidence) {
		for range rapid.IntRange(0, 12).Draw(t, "seen") {
			e.Seen = append(e.Seen, Seen{
				event.Type(name.Draw(t, "type")),
				who.Draw(t, "source"),
				uint64(rapid.IntRange(1, 9).Draw(t, "events")),
			})
		}
		for range rapid.IntRange(0, 5).Draw(t, "subscriptions") {
			f := event.Filter{Types: rapid.SliceOfN(pattern, 0, 4).Draw(t, "types")}
			if rapid.Bool().Draw(t, "by category") {
				f.Categories = []string{rapid.SampledFrom(event.Builtin().Categories()).Draw(t, "category")}
			}
			basis := rapid.SampledFrom([]Basis{ByCursor, ByClient}).Draw(t, "basis")
			e.Subscriptions = append(e.Subscriptions, Subscription{who.Draw(t, "subscriber"), basis, f, ""})
		}
		return e
	})
}

// For any evidence of a cluster, every name is in exactly one class, by the rule; what is
// seen or subscribed to is in the report; and all numbers add up.
func TestEveryNameIsInOneClass(t *testing.T) {
	before := Run(event.Builtin(), Evidence{})
	rapid.Check(t, func(t *rapid.T) {
		e := evidences().Draw(t, "evidence")
		r := Run(event.Builtin(), e)
		sum, byClass, entries := 0, map[Class]int{}, map[event.Type]Entry{}
		for _, n := range r.Totals {
			sum += n
		}
		for _, one := range r.Types {
			if _, twice := entries[one.Name]; twice {
				t.Fatalf("%s is there twice", one.Name)
			}
			entries[one.Name] = one
			byClass[one.Class]++
			checkClass(t, one)
		}
		maps.DeleteFunc(byClass, func(_ Class, n int) bool { return n == 0 })
		totals := maps.Clone(r.Totals)
		maps.DeleteFunc(totals, func(_ Class, n int) bool { return n == 0 })
		if sum != r.Names || r.Names != len(r.Types) || !maps.Equal(totals, byClass) {
			t.Fatalf("%d names, %d entries, totals %v, classes %v", r.Names, len(r.Types), r.Totals, byClass)
		}
		for _, d := range slices.Concat(event.Builtin().Definitions(), event.Builtin().Own(), event.Builtin().Mentioned()) {
			if _, there := entries[d.Name]; !there {
				t.Fatalf("%s is missing", d.Name)
			}
		}
		for _, s := range e.Seen {
			if !slices.ContainsFunc(entries[s.Type].Emitters, func(w Wire) bool {
				return w.Basis == InLog && w.Events >= s.Events
			}) {
				t.Fatalf("%s of %q is not there: %+v", s.Type, s.Source, entries[s.Type])
			}
		}
		checkTallies(t, r, entries)
		if !slices.EqualFunc(r.Findings, before.Findings, func(a, b Finding) bool {
			return a.Subject == b.Subject && a.Verdict == b.Verdict
		}) {
			t.Fatal("a verdict rests on the cluster")
		}
	})
}

// checkClass checks a class by the rule, written differently than in classOf.
func checkClass(t *rapid.T, e Entry) {
	defined := slices.Contains([]string{event.StatusCanonical, event.StatusUndocumented, event.StatusCluster}, e.Status)
	want := map[[2]bool]Class{
		{true, true}:   Connected,
		{true, false}:  Orphan,
		{false, true}:  Dead,
		{false, false}: Unwired,
	}[[2]bool{len(e.Emitters) != 0, len(e.Subscribers) != 0}]
	switch {
	case !defined && e.AliasOf != "":
		want = Alias
	case !defined:
		want = Unknown
	}
	if e.Class != want {
		t.Fatalf("%+v is not %s", e, want)
	}
}

func checkTallies(t *rapid.T, r *Report, entries map[event.Type]Entry) {
	n := 0
	for _, c := range r.Categories {
		for _, count := range c.Totals {
			n += count
		}
	}
	if n != r.Names {
		t.Fatalf("the categories hold %d of %d names", n, r.Names)
	}
	n = 0
	for _, l := range r.Layers {
		n += l.Coordinators
	}
	if n != len(event.Builtin().Coordinators()) {
		t.Fatalf("the layers hold %d coordinators", n)
	}
	for _, c := range r.Components {
		var emits, hears, orphans, dead int
		for _, e := range entries {
			emitted, heard := hasComponent(e.Emitters, c.Name), hasComponent(e.Subscribers, c.Name)
			emits, hears = emits+one(emitted), hears+one(heard)
			orphans, dead = orphans+one(emitted && e.Class == Orphan), dead+one(heard && e.Class == Dead)
		}
		if c.Emits != emits || c.Named+c.Matched != hears || c.Orphans != orphans || c.Dead != dead {
			t.Fatalf("%+v: it emits %d (%d orphans) and hears %d (%d dead)", c, emits, orphans, hears, dead)
		}
	}
	findings := 0
	for _, one := range r.Tally {
		sum := 0
		for _, n := range one.Verdicts {
			sum += n
		}
		if sum != one.Findings {
			t.Fatalf("%+v does not add up", one)
		}
		findings += sum
	}
	if findings != len(r.Findings) || findings != 27+36+27+52 {
		t.Fatalf("%d verdicts of %d findings", findings, len(r.Findings))
	}
}

func TestComponents(t *testing.T) {
	c := newComponents(Declared(event.Builtin()))
	for written, want := range map[string]string{
		"TaskLifecycleCoordinator":                "task_coordinator",
		"task_coordinator":                        "task_coordinator",
		"task_coordinator.py":                     "global_task_coordinator",
		"app/coordination/task_coordinator.py:17": "global_task_coordinator", "TaskCoordinator": "global_task_coordinator",
		"unified_queue_populator.py":       "queue_populator",
		"UnifiedDistributionDaemon":        "model_distribution_daemon",
		"sync_coordinator.py":              "sync_coordinator",
		"scripts/p2p_orchestrator.py:3967": "p2p_orchestrator",
		"Training Loop":                    "Training Loop",
		"gpu-7":                            "gpu-7",
		"DataPipeline":                     "DataPipeline",
	} {
		if got := c.canonical(written); got != want {
			t.Errorf("%s is %s, not %s", written, got, want)
		}
	}
}

// The evidence of a cluster changes what it should.
func TestACluster(t *testing.T) {
	r := Run(event.Builtin(), cluster())
	entry := func(name event.Type) Entry {
		i := slices.IndexFunc(r.Types, func(e Entry) bool { return e.Name == name })
		if i < 0 {
			t.Fatalf("no %s", name)
		}
		return r.Types[i]
	}
	for name, want := range map[event.Type]Class{
		event.BackpressureActivated: Connected,
		event.SyncFailureCritical:   Connected,
		event.LeaderElected:         Connected,
		event.LeaderLost:            Connected,
		event.VoterOffline:          Orphan,
		"SYNC_RETRY_REQUEST":        Unknown,
		"NO_SUCH_TYPE":              Unknown,
		event.DataSyncStarted:       Connected,
		event.CacheInvalidated:      Unwired,
	} {
		if e := entry(name); e.Class != want {
			t.Errorf("%s is %s, not %s: %+v", name, e.Class, want, e)
		}
	}
	if e := entry("SYNC_RETRY_REQUEST"); len(e.Likely) == 0 || e.Likely[0] != "SYNC_RETRY_REQUESTED" ||
		e.Emitters[0].Component != "sync_router" {
		t.Errorf("%+v", e)
	}
	if !slices.Equal(r.CatchAll, []string{"archive"}) {
		t.Errorf("subscribed to everything: %v", r.CatchAll)
	}
	inUse := map[string]string{}
	for _, d := range r.Drift {
		inUse[d.Kind+" "+strings.Join(d.Names, " ")] = strings.Join(d.InUse, " ")
	}
	for drift, by := range map[string]string{
		"alias TRAINING_COMPLETED TRAINING_COMPLETE": "trainer",
		"written NEW_GAMES_AVAILABLE new_games":      "trainer",
		"alias TASK_COMPLETED TASK_COMPLETE":         "",
	} {
		if got, there := inUse[drift]; !there || got != by {
			t.Errorf("%s is in use by %q, not %q", drift, got, by)
		}
	}
	for _, f := range r.Findings {
		if f.Subject == "SYNC_FAILURE_CRITICAL" && (f.Verdict != NotDerivable || f.Now != Connected) {
			t.Errorf("%+v", f)
		}
	}
}

// The live report has what the cluster shows, and no claim of a document or a definition.
func TestLive(t *testing.T) {
	c, err := event.Builtin().With(event.Definition{
		Name:        "GAMES_ARCHIVED",
		Category:    "data",
		Emitters:    []string{"app/archiver.py:7"},
		Subscribers: []string{"SelfplayScheduler"},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := Live(c, cluster())
	got := map[event.Type]Class{}
	for _, e := range r.Types {
		got[e.Name] = e.Class
		for _, w := range slices.Concat(e.Emitters, e.Subscribers) {
			if !slices.Contains([]Basis{InLog, ByCursor, ByClient, Cluster}, w.Basis) {
				t.Errorf("%s has a wire that is declared: %+v", e.Name, w)
			}
		}
		if len(e.Unbacked)+len(e.TestEmitters) > 0 {
			t.Errorf("%s has what a definition claims: %+v", e.Name, e)
		}
	}
	for name, want := range map[event.Type]Class{
		event.TrainingCompleted:     Connected,
		event.BackpressureActivated: Orphan, // the documents know subscribers
		event.NewGamesAvailable:     Dead,   // and emitters
		event.LeaderElected:         Connected,
		event.LeaderLost:            Connected, // the cluster would emit it
		event.SyncFailureCritical:   Connected,
		"SYNC_RETRY_REQUEST":        Unknown,
		"NO_SUCH_TYPE":              Unknown,
		event.VoterOffline:          "",
		event.CacheInvalidated:      "",
		"GAMES_ARCHIVED":            "",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, not %q", name, got[name], want)
		}
	}
	if len(Live(c, Evidence{}).Types) > 0 {
		t.Error("a cluster that shows nothing has types")
	}
	for _, d := range r.Drift {
		if d.Kind == DriftField || d.Kind == DriftValue || d.Kind == DriftEnding {
			t.Errorf("%+v is the documents' drift", d)
		}
	}
	if r.Count("drift") == 0 || r.Count("findings")+r.Count("layers")+r.Count("unwired") > 0 {
		t.Errorf("%+v", r)
	}
	if part, err := r.About("TrainingCoordinator"); err != nil || len(part.Types) != 1 {
		t.Errorf("%v %+v", err, part)
	}
	if _, err := r.About("curriculum_integration"); !errors.Is(err, ErrNoComponent) {
		t.Errorf("a coordinator of which nothing is seen: %v", err)
	}
}

// Types that are registered at run time bring their own declarations.
func TestARegisteredTypeDeclaresItsWiring(t *testing.T) {
	c, err := event.Builtin().With(event.Definition{
		Name:        "GAMES_ARCHIVED",
		Category:    "data",
		Emitters:    []string{"app/archiver.py:7"},
		Subscribers: []string{"SelfplayScheduler"},
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(c, Evidence{}).About("archiver")
	if err != nil || len(r.Types) != 1 || r.Types[0].Class != Connected ||
		r.Types[0].Subscribers[0].Component != "selfplay_scheduler" {
		t.Errorf("%v %+v", err, r)
	}
}

// What the registry declares of a coordinator is compared with what its clients registered and what it emitted.
func TestCompareCoordinator(t *testing.T) {
	e := Evidence{
		Seen: []Seen{{event.PromotionRolledBack, "app/training_coordinator.py:7", 2}},
		Subscriptions: []Subscription{
			{"a", ByClient, event.Filter{Types: []string{"MODEL_PROMOTED", "regression.*"}}, "training_coordinator"},
			{"b", ByClient, event.Filter{Types: []string{"HEALTH_ALERT", "REGRESSION_DETECTED"}},
				"training_coordinator"},
			{"TrainingCoordinator", ByCursor, event.Filter{Types: []string{"TRAINING_STARTED"}}, ""},
			{"c", ByClient, event.Filter{Types: []string{"TRAINING_FAILED"}}, "health_manager"},
		},
		Coordinators: map[string][]string{"training_coordinator": {"t-1", "t-2"}},
	}
	r, err := CompareCoordinator(event.Builtin(), "TrainingCoordinator", e)
	if err != nil {
		t.Fatal(err)
	}
	got := map[event.Type]DeclaredWire{}
	for _, w := range r.Subscriptions {
		got[w.Type] = w
	}
	for _, want := range []DeclaredWire{
		{Type: event.ModelPromoted, Declared: true, Live: true},
		{Type: event.RegressionDetected, Declared: true, Live: true},
		{Type: event.RegressionCritical, Declared: true, Live: true, Pattern: "MODEL_PROMOTED regression.*"},
		{Type: event.TrainingStarted, Declared: true, Live: true},
		{Type: event.TrainingFailed, Declared: true, Drift: Missing},
		{Type: event.HealthAlert, Live: true, Drift: Undeclared},
	} {
		if got[want.Type] != want {
			t.Errorf("%+v, not %+v", got[want.Type], want)
		}
	}
	if len(r.Clients) != 2 || !r.Listed || r.CatchAll || r.Drift[Missing] == 0 || r.Drift[Undeclared] == 0 {
		t.Errorf("%+v", r)
	}
	i := slices.IndexFunc(r.Emissions, func(w DeclaredWire) bool { return w.Type == event.PromotionRolledBack })
	if i < 0 || r.Emissions[i].Events != 2 || !r.Emissions[i].Live {
		t.Errorf("%+v", r.Emissions)
	}

	// Who gets everything misses nothing, and without a list nothing is missing.
	all := Evidence{Subscriptions: []Subscription{{"a", ByClient, event.Filter{}, "training_coordinator"}}}
	if r, err = CompareCoordinator(event.Builtin(), "training_coordinator", all); err != nil || !r.CatchAll ||
		r.Drift[Missing] > 0 {
		t.Errorf("%v %+v", err, r)
	}
	r, err = CompareCoordinator(event.Builtin(), "cache_orchestrator", e)
	if err != nil || r.Listed || r.Drift[Missing] > 0 {
		t.Errorf("%v %+v", err, r)
	}
	if _, err := CompareCoordinator(event.Builtin(), "nobody", e); !errors.Is(err, ErrNoCoordinator) {
		t.Error(err)
	}
}

func TestParts(t *testing.T) {
	whole := Run(event.Builtin(), Evidence{})
	for _, list := range Lists() {
		part := whole.Only([]string{list})
		if part.Count(list) != whole.Count(list) || part.Count(list) == 0 {
			t.Errorf("%s: %d of %d", list, part.Count(list), whole.Count(list))
		}
		for _, other := range Lists() {
			finding := func(l string) bool { return l == "findings" || l == "contradicted" || l == "unmapped" }
			if other != list && part.Count(other) != 0 && !(finding(list) && finding(other)) {
				t.Errorf("%s has %d of %s", list, part.Count(other), other)
			}
		}
	}
	for spelt, want := range map[string]string{
		"UnifiedHealthManager":      "health_manager",
		"HEALTH_MANAGER":            "health_manager",
		"unified_health_manager.py": "health_manager",
		"task_coordinator.py":       "global_task_coordinator",
		"AutoSyncDaemon":            "auto_sync_daemon",
		"p2p_orchestrator.py":       "p2p_orchestrator",
	} {
		part, err := whole.About(spelt)
		if err != nil || len(part.Components) != 1 || part.Components[0].Name != want {
			t.Errorf("%s: %v %+v", spelt, err, part)
			continue
		}
		for _, e := range part.Types {
			if !hasComponent(slices.Concat(e.Emitters, e.Subscribers), want) && !slices.Contains(e.Unbacked, want) {
				t.Errorf("%s has nothing to do with %s", want, e.Name)
			}
		}
	}
	if _, err := whole.About("nobody"); !errors.Is(err, ErrNoComponent) {
		t.Error(err)
	}
	if _, err := ParseLists("dead,nothing"); !errors.Is(err, ErrNoList) ||
		!strings.Contains(fmt.Sprint(err), `"nothing"`) {
		t.Error(err)
	}
	if _, err := ParseFormat("xml"); !errors.Is(err, ErrFormat) {
		t.Error(err)
	}
	if err := whole.Write(&bytes.Buffer{}, "xml"); !errors.Is(err, ErrFormat) {
		t.Error(err)
	}
}
