package event

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestEverySpellingOfEveryTypeResolves(t *testing.T) {
	c := Builtin()
	if n := len(c.Definitions()); n != 260 {
		t.Fatalf("%d types, want 260", n)
	}
	for _, d := range c.Definitions() {
		spellings := []string{string(d.Name), d.Value, strings.ToLower(string(d.Name)), strings.ToUpper(d.Value),
			strings.ReplaceAll(
				d.Value,
				"_",
				".",
			), strings.ReplaceAll(string(d.Name), "_", "-"), string(d.Name[:1]) + strings.ToLower(string(d.Name[1:]))}
		for _, s := range spellings {
			if r, ok := c.Resolve(s); !ok || r.Type != d.Name || r.Value != d.Value || r.Definition != d || r.Renamed {
				t.Errorf("%s resolves to %+v, want %s", s, r, d.Name)
			}
		}
	}
	if n := len(c.Aliases()); n != 7 {
		t.Errorf("%d aliases, want 7", n)
	}
	for alias, want := range c.Aliases() {
		r, ok := c.Resolve(strings.ToLower(alias))
		if !ok || r.Type != want || r.Renamed != (alias == "PROMOTION_COMPLETE") {
			t.Errorf("%s resolves to %+v, want %s", alias, r, want)
		}
	}
}

func TestResolveReportsTheSpelling(t *testing.T) {
	for name, want := range map[string]Resolved{
		"TRAINING_COMPLETED": {Type: TrainingCompleted, Via: ViaName},
		"Training_Completed": {Type: TrainingCompleted, Via: ViaName},
		"training_completed": {Type: TrainingCompleted, Via: ViaValue},
		"training.completed": {Type: TrainingCompleted, Via: ViaTopic},
		"sync.completed":     {Type: DataSyncCompleted, Via: ViaTopic},
		"SYNC_COMPLETED":     {Type: DataSyncCompleted, Via: ViaValue},
		"new_games":          {Type: NewGamesAvailable, Via: ViaValue},
		"NEW_GAMES":          {Type: NewGamesAvailable, Via: ViaAlias},
		"training.complete":  {Type: TrainingCompleted, Via: ViaAlias},
		"my.own-Event":       {Type: "MY_OWN_EVENT", Value: "my_own_event", Via: ViaUnknown},
		"":                   {Via: ViaUnknown},
	} {
		r, ok := Builtin().Resolve(name)
		if r.Type != want.Type || r.Via != want.Via || ok != (want.Via != ViaUnknown) ||
			want.Value != "" && r.Value != want.Value {
			t.Errorf("%q resolves to %+v, want %+v", name, r, want)
		}
	}
}

// A type that the platform's lists lack has the value that its events were stored with before it was known.
func TestTypesThatThePlatformUsesWithoutListingThemAreKnown(t *testing.T) {
	for name, category := range map[Type]string{
		GameBatchReady: "selfplay", EvaluationResult: "evaluation", CurriculumUpdated: "curriculum",
		StartupStateValidated: "other", SyncRetryRequested: "sync", TrainingTriggered: "training",
	} {
		e := New(name, map[string]any{"config_key": "hex8_2p"})
		hash, warnings, err := (&Policy{Strict: true}).Normalize(&e)
		d, ok := Builtin().Definition(name)
		if !ok || d.Category != category || err != nil || len(warnings) != 0 || e.Value != "" {
			t.Errorf("%s: %+v, %v, %v", name, d, warnings, err)
		}
		unknown := Event{Type: name, Value: strings.ToLower(string(name)), Payload: e.Payload}
		if hash != unknown.Hash() {
			t.Errorf("%s has another hash than it had while it was unknown", name)
		}
	}
	for _, d := range Builtin().Definitions() {
		if d.Category == "" {
			t.Errorf("%s has no category", d.Name)
		}
	}
}

// The structs must hold all there is in the files, or printing the catalogue would drop some.
func TestEmbeddedFilesAreHeldWhole(t *testing.T) {
	c := Builtin()
	for file, into := range map[string]any{
		"catalogue/events":       &[]*Definition{},
		"catalogue/aliases":      &map[string]Type{},
		"catalogue/coordinators": &[]Coordinator{},
		"catalogue/flows":        &[]Flow{},
		"catalogue/wiring":       &Wiring{},
		"cluster":                &[]*ownDefinition{},
		"samples":                &[]*Definition{},
		"undocumented":           &map[Type]string{},
	} {
		data, err := catalogueFiles.ReadFile(file + ".json")
		if err != nil {
			t.Fatal(err)
		}
		strict := json.NewDecoder(bytes.NewReader(data))
		strict.DisallowUnknownFields()
		if err := strict.Decode(into); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	w := c.Wiring()
	counts := []int{
		len(c.Mentioned()),
		len(c.Coordinators()),
		len(c.Flows()),
		len(c.Categories()),
		len(w.OrphanEvents),
		len(w.DeadSubscriptions),
		len(
			w.RunbookWiring,
		),
		len(w.ArchitectureWiring),
		len(w.HandlerIndex),
		len(w.CriticalSubscriptions.Events),
		len(w.ComponentNames),
	}
	if want := []int{12, 27, 4, 15, 27, 36, 11, 5, 7, 7, 8}; !slices.Equal(counts, want) {
		t.Errorf("counts %v, want %v", counts, want)
	}
	known := map[Type]bool{}
	for _, d := range slices.Concat(c.Definitions(), c.Mentioned()) {
		known[d.Name] = true
	}
	for _, f := range c.Flows() {
		for _, edge := range f.Edges {
			if !known[edge[0]] || !known[edge[1]] {
				t.Errorf("flow %s has the unknown edge %v", f.Name, edge)
			}
		}
	}
}

func TestReservedTypesAreTheClusters(t *testing.T) {
	var reserved []string
	for _, d := range Builtin().Definitions() {
		if IsReserved(d.Name) {
			reserved = append(reserved, string(d.Name))
		}
	}
	want := strings.Fields(
		`DLQ_EVENTS_PURGED DLQ_EVENTS_REPLAYED DLQ_STALE_EVENTS LEADER_ELECTED LEADER_HEARTBEAT_MISSING LEADER_LEASE_EXPIRED
		LEADER_LOST LEADER_STEPDOWN QUORUM_AT_RISK QUORUM_LOST QUORUM_PRIORITY_RECONNECT QUORUM_RECOVERY_STARTED
		QUORUM_RESTORED
		SPLIT_BRAIN_DETECTED SPLIT_BRAIN_RESOLVED VOTER_DEMOTED VOTER_OFFLINE VOTER_ONLINE VOTER_PROMOTED`,
	)
	if !slices.Equal(reserved, want) {
		t.Errorf("reserved: %v", reserved)
	}
	for _, d := range Builtin().Own() {
		if !IsReserved(d.Name) {
			t.Errorf("%s is not reserved", d.Name)
		}
	}
	if !IsReserved("CURSOR_X") {
		t.Error("a type of a reserved family is not reserved")
	}
}

// What the cluster emits is known like any type, and still nobody else's.
func TestOwnTypesOfTheClusterAreKnown(t *testing.T) {
	want := map[Type]string{
		CatchupAtRisk:    "p2p",
		ChainOverdue:     "monitoring",
		CursorRecovered:  "other",
		CursorStalled:    "other",
		DLQEventsStored:  "other",
		QuorumOutageView: "p2p",
		RoleAcquired:     "other",
		RoleLost:         "other",
		RoleReleased:     "other",

		AdminAction: "other",

		AllocationGranted:  "other",
		AllocationLost:     "other",
		AllocationReleased: "other",
	}
	for _, d := range Builtin().Own() {
		r, known := Builtin().Resolve(strings.ToLower(strings.ReplaceAll(string(d.Name), "_", ".")))
		e := New(d.Name, map[string]any{})
		_, warnings, err := (&Policy{Strict: true, Reserved: ReservedOwn}).Normalize(&e)
		if !known || r.Definition != d || d.Category != want[d.Name] || d.Status != StatusCluster || err != nil ||
			len(warnings) != 0 ||
			e.Value != "" {
			t.Errorf("%s: %+v, %v, %v", d.Name, r, warnings, err)
		}
		delete(want, d.Name)
		m := Filter{Categories: []string{d.Category}}.Compile(Builtin())
		if !m.MatchType(string(d.Name)) || !MatchPattern(string(d.Name[:7])+"*", d.Name) {
			t.Errorf("%s is not found in its category", d.Name)
		}
		_, _, err = (&Policy{}).Normalize(&e)
		checkError(t, err, ReasonReservedType, "type", -1)
		if slices.Contains(Builtin().Definitions(), d) {
			t.Errorf("%s is listed as the platform's", d.Name)
		}
	}
	if len(want) != 0 {
		t.Errorf("missing: %v", want)
	}
	d, _ := Builtin().Definition(LeaderElected)
	if got := d.Payload[0]; d.Status != StatusCanonical || got.Name != "leader_id" || got.Type != "string" ||
		len(d.Payload) != 6 {
		t.Errorf("LEADER_ELECTED: %+v", d)
	}
}

func TestNearestFindsTheTypingError(t *testing.T) {
	for name, want := range map[string]string{
		"TRAINING_COMPLETD": "TRAINING_COMPLETED",
		"trainign.started":  "TRAINING_STARTED",
		"sync_complted":     "DATA_SYNC_COMPLETED",
		"modell_promoted":   "MODEL_PROMOTED",
	} {
		if got := Builtin().Nearest(name, 3); len(got) != 3 || got[0] != want {
			t.Errorf("Nearest(%s) = %v, want %s first", name, got, want)
		}
	}
	all := len(Builtin().Definitions()) + len(Builtin().Own())
	if got := Builtin().Nearest(strings.Repeat("x", 10_000), 1000); len(got) != all {
		t.Errorf("%d names of %d", len(got), all)
	}
}

func TestRegisteredTypeIsKnownInTheNewCatalogueOnly(t *testing.T) {
	defs, err := ParseDefinitions([]byte(`[
		{"name": "GPU_THROTTLED", "value": "gpu_hot", "category": "health",
			"payload": [{"name": "celsius", "type": "number"}, {"name": "x"}]},
		{"name": "TRAINING_COMPLETED", "payload": [{"name": "epochs", "type": "integer"}]}]`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Builtin().With(defs...)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := Builtin().Resolve("GPU_THROTTLED"); ok {
		t.Error("the built-in catalogue changed")
	}
	if again, err := c.With(defs...); err != nil || len(again.Definitions()) != 261 {
		t.Errorf("registering twice: %v", err)
	}
	e := Event{Type: "gpu.hot", Payload: json.RawMessage(`{"celsius": "hot"}`)}
	hash, warnings, err := (&Policy{Catalogue: c, Strict: true}).Normalize(&e)
	if err != nil || e.Type != "GPU_THROTTLED" || e.Value != "gpu_hot" || len(warnings) != 1 || hash != e.Hash() {
		t.Errorf("%+v, %v, %v", e, warnings, err)
	}
	builtin, _ := Builtin().Definition(TrainingCompleted)
	extended, _ := c.Definition(TrainingCompleted)
	if len(extended.Payload) != len(builtin.Payload)+1 || extended.Category != builtin.Category {
		t.Errorf("extended built-in: %+v", extended)
	}
	e = Event{Type: TrainingCompleted}
	if _, _, err := (&Policy{Catalogue: c}).Normalize(&e); err != nil || e.Value != "" {
		t.Errorf("value %q, %v: an extended built-in keeps its default", e.Value, err)
	}
}

func TestDefinitionsThatWouldConfuseAreRefused(t *testing.T) {
	for _, bad := range []struct{ def, reason, field string }{
		{`{"name":"lower"}`, ReasonInvalidType, "lower.name"},
		{`{"name":"A__B"}`, ReasonInvalidType, "A__B.name"},
		{`{"name":"LEADER_BORED"}`, ReasonReservedType, "LEADER_BORED.name"},
		{`{"name":"A","value":"cursor_x"}`, ReasonReservedType, "A.value"},
		{`{"name":"A","value":"Upper"}`, ReasonInvalidField, "A.value"},
		{`{"name":"A","value":"training_completed"}`, ReasonInvalidField, "A"},
		{`{"name":"A","value":"sync.completed"}`, ReasonInvalidField, "A"},
		{`{"name":"A","value":"task_complete"}`, ReasonInvalidField, "A"},
		{`{"name":"NEW_GAMES"}`, ReasonInvalidField, "NEW_GAMES"},
		{`{"name":"SYNC_COMPLETED"}`, ReasonInvalidField, "SYNC_COMPLETED"},
		{`{"name":"TRAINING_STARTED","value":"other"}`, ReasonInvalidField, "TRAINING_STARTED.value"},
		{`{"name":"TRAINING_STARTED","category":"health"}`, ReasonInvalidField, "TRAINING_STARTED.category"},
		{
			`{"name":"NEW_GAMES_AVAILABLE","value":"new_games","payload":[{"name":"trigger","type":"number"}]}`,
			ReasonInvalidField,
			"NEW_GAMES_AVAILABLE.payload[0].type",
		},
		{`{"name":"A","category":"Bad Category"}`, ReasonInvalidField, "A.category"},
		{`{"name":"A","payload":[{"name":"x"},{"name":"x"}]}`, ReasonInvalidField, "A.payload[1].name"},
		{`{"name":"A","payload":[{"name":"x","type":"float"}]}`, ReasonInvalidField, "A.payload[0].type"},
		{`{"name":"A","payload":[{"name":""}]}`, ReasonInvalidField, "A.payload[0].name"},
	} {
		defs, err := ParseDefinitions([]byte(bad.def))
		if err != nil {
			t.Errorf("%s: %v", bad.def, err)
			continue
		}
		_, err = Builtin().With(defs...)
		checkError(t, err, bad.reason, bad.field, -1)
	}
}

func TestDefinitionFileErrorsHaveAPlace(t *testing.T) {
	for _, bad := range []struct {
		file, reason, field string
		position            int64
	}{
		{``, ReasonEmpty, "", 0},
		{`[]`, ReasonEmpty, "", 0},
		{`7`, ReasonInvalidJSON, "", 0},
		{`[{"name":"A"},7]`, ReasonInvalidJSON, "[1]", 14},
		{`[{"name":"A"}`, ReasonInvalidJSON, "", 13},
		{`{"name":"A"} x`, ReasonTrailingBytes, "", 13},
		{`[{"name":"A","colour":1}]`, ReasonUnknownKey, "[0].colour", 13},
		{`[{"name":"A","name":"B"}]`, ReasonDuplicateKey, "[0].name", 13},
		{`{"name":"A","payload":[{"name":"x"},{"nam":"y"}]}`, ReasonUnknownKey, "payload[1].nam", 37},
		{`{"value":"a"}`, ReasonInvalidField, "name", 0},
		{`[{"name":5}]`, ReasonInvalidField, "[0].name", 10},
		{`{"name":"A","payload":{}}`, ReasonInvalidField, "payload", 23},
	} {
		_, err := ParseDefinitions([]byte(bad.file))
		checkError(t, err, bad.reason, bad.field, bad.position)
	}
	whole, err := catalogueFiles.ReadFile("catalogue/events.json")
	if err != nil {
		t.Fatal(err)
	}
	if defs, err := ParseDefinitions(whole); err != nil || len(defs) != 272 {
		t.Errorf("the built-in file: %d definitions, %v", len(defs), err)
	}
}

func TestJSONSchemaListsTheFields(t *testing.T) {
	for _, d := range Builtin().Definitions() {
		var schema struct {
			Schema     string `json:"$schema"`
			Title      string
			Type       string
			Properties map[string]struct{ Type []string }
		}
		if err := json.Unmarshal(d.JSONSchema(), &schema); err != nil {
			t.Fatal(err)
		}
		if schema.Title != string(d.Name) || schema.Type != "object" || schema.Schema == "" ||
			len(schema.Properties) != len(d.Payload) {
			t.Errorf("%s: %+v", d.Name, schema)
		}
	}
	// What the cluster emits says when, and what is not plain in its payload.
	var own []*ownDefinition
	mustLoad("cluster", &own)
	for _, o := range own {
		d, _ := Builtin().Definition(o.Name)
		if d.When() == "" || !bytes.Contains(d.JSONSchema(), []byte(d.When())) {
			t.Errorf("%s: %s", o.Name, d.JSONSchema())
		}
	}
	lost, _ := Builtin().Definition(LeaderLost)
	if !bytes.Contains(lost.JSONSchema(), []byte(`"the old leader's own"`)) {
		t.Errorf("%s", lost.JSONSchema())
	}
	d, _ := Builtin().Definition(TrainingThresholdReached)
	if !bytes.Contains(d.JSONSchema(), []byte(`"integer"`)) {
		t.Errorf("%s", d.JSONSchema())
	}
}
