package integration

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/ringrift/ringlog"

// rooms lists every package with the rooms of this module that it may import, as
// ARCHITECTURE.md draws them. What is not named imports none.
func rooms() map[string][]string {
	state := []string{"event", "internal/fields", "internal/frame", "log", "election", "fsm/dedup", "fsm/store", "fsm"}
	upstream := []string{"internal/certs", "raftnode/datadir", "raftnode/raftstore", "raftnode/rafttransport",
		"raftnode/quietlog"}
	// What knows the members reads the state and raft's configuration.
	known := append(slices.Concat(state, upstream), "raftnode/upstream")
	consensus := append(slices.Concat(state, upstream), "snapshots", "raftnode/blackbox", "raftnode/clock",
		"raftnode/statestore", "raftnode/batcher", "raftnode/upstream", "raftnode/lifetime", "raftnode/roster",
		"raftnode/health", "raftnode/membership", "internal/view", "internal/view/engine",
		"internal/platform/transfers", "api", "raftnode/incident", "raftnode")
	folds := []string{"internal/view", "internal/view/engine"}
	groups := []string{"api", "event", "fsm", "internal/frame", "internal/group", "internal/tail", "log", "raftnode"}
	platform := []string{"internal/platform/asyncapi", "internal/platform/audit", "internal/platform/stages",
		"internal/platform/transfers"}
	operations := slices.Concat(groups, platform, folds, []string{"event/where", "internal/access",
		"internal/group/engine", "internal/joint", "raftnode/incident"})
	clients := []string{
		"event", "internal/eventlog", "internal/frame", "api", "api/ringlog/v1", "api/ringlog/v1/ringlogv1connect",
	}
	// The command line: what all verbs share imports the client alone; fsm and raftnode are for what runs a
	// node or opens its folder.
	shell := []string{"api", "client", "event", "internal/certs", "internal/human"}
	verbs := []string{
		"cmd/ringlog/internal/bench", "cmd/ringlog/internal/daemon", "cmd/ringlog/internal/dev",
		"cmd/ringlog/internal/launch", "cmd/ringlog/internal/offline", "cmd/ringlog/internal/replay",
		"cmd/ringlog/internal/serve",
		"cmd/ringlog/internal/shell", "cmd/ringlog/internal/top",
	}
	verb := append(slices.Clone(shell), "cmd/ringlog/internal/shell")
	handling := []string{"event/where", "router/breaker"}
	routing := append(slices.Concat(clients, handling), "client", "internal/platform/stages", "internal/attempt")
	inClient := []string{"client/internal/calls", "client/internal/sender", "client/internal/prefetch"}
	calling := []string{"api", "api/ringlog/v1", "api/ringlog/v1/ringlogv1connect", "event", "internal/certs"}
	return map[string][]string{
		"event":                  {"event/canon", "internal/human"},
		"event/canon":            nil,
		"event/where":            {"event", "event/canon"},
		"election":               {"event"},
		"internal/eventlog":      {"event"},
		"internal/fields":        nil,
		"internal/kv":            nil,
		"internal/joint":         nil,
		"internal/certs":         nil,
		"internal/otlp":          nil,
		"internal/access":        {"event"},
		"internal/frame":         {"event", "election", "internal/fields"},
		"internal/group":         {"event", "internal/frame"},
		"log":                    {"event", "internal/frame", "internal/fields", "internal/kv"},
		"fsm/dedup":              {"event", "internal/frame"},
		"fsm/store":              {"internal/kv"},
		"fsm":                    append(slices.Clone(state[:len(state)-1]), "internal/human", "internal/kv"),
		"snapshots":              nil,
		"raftnode/datadir":       nil,
		"raftnode/raftstore":     {"raftnode/datadir"},
		"raftnode/rafttransport": {"internal/certs"},
		"raftnode/blackbox":      nil,
		"raftnode/clock":         nil,
		"raftnode/quietlog":      nil,
		"raftnode/statestore":    append(slices.Clone(state), "snapshots"),
		"raftnode/incident":      append(slices.Clone(state), "api", "raftnode/statestore", "snapshots"),
		"raftnode/batcher":       append(slices.Clone(state), "raftnode/clock"),
		"raftnode/upstream":      upstream,
		"raftnode/lifetime":      {"raftnode/batcher"},
		"raftnode/roster":        known,
		"raftnode/health": append(slices.Clone(known),
			"raftnode/batcher", "raftnode/blackbox", "raftnode/clock", "raftnode/roster"),
		"raftnode/membership": append(slices.Clone(known),
			"raftnode/batcher", "raftnode/health", "raftnode/lifetime", "raftnode/roster"),
		"raftnode":                        consensus[:len(consensus)-1],
		"api":                             {"event"},
		"api/ringlog/v1":                  nil,
		"api/ringlog/v1/ringlogv1connect": {"api/ringlog/v1"},
		"client":                          append(slices.Concat(clients, inClient), "internal/joint"),
		"client/internal/calls":           calling,
		"client/internal/sender":          {"api", "api/ringlog/v1", "client/internal/calls", "event", "internal/frame"},
		"client/internal/prefetch":        {"api/ringlog/v1", "event", "internal/frame"},
		"internal/platform/audit":         {"event", "internal/human"},
		"internal/platform/stages":        {"event", "internal/human"},
		"internal/platform/asyncapi":      {"event", "internal/platform/audit"},
		"internal/platform/scan":          {"event"},
		"internal/platform/transfers":     {"api", "event", "internal/fields", "internal/view"},
		"internal/view":                   {"api", "event", "event/canon", "event/where", "internal/fields"},
		"internal/view/engine": {"event", "fsm", "fsm/store", "internal/frame", "internal/kv", "internal/view",
			"log"},
		"internal/human":        nil,
		"router":                routing,
		"client/otelringlog":    {"client", "event", "router"},
		"router/breaker":        {"event"},
		"internal/tail":         {"event", "fsm", "log", "raftnode"},
		"internal/group/engine": groups,
		"internal/service":      operations,
		"internal/server": append(slices.Concat(consensus, clients, operations),
			"internal/console", "internal/human", "internal/otlp", "internal/service", "event/canon", "python"),
		"internal/sealed": {"api", "fsm", "internal/frame", "internal/view/engine", "raftnode", "raftnode/incident",
			"snapshots"},
		"":       append(slices.Concat(consensus, clients), "internal/server", "client", "router"),
		"python": nil,
		"router/sinks": {"api", "client", "event", "event/where", "internal/attempt", "internal/procgroup",
			"router/breaker"},
		"internal/attempt":            nil,
		"internal/console":            nil,
		"internal/procgroup":          nil,
		"integration":                 nil,
		"internal/longtest":           nil,
		"internal/testaddr":           nil,
		"event/emit":                  {"event"},
		"event/internal/goname":       nil,
		"event/internal/gencatalogue": {"event/internal/goname"},
		"event/internal/genemit":      {"event", "event/internal/goname"},
		"cmd/ringlog/devcluster":      {"internal/procgroup"},
		"cmd/ringlog/internal/shell":  shell,
		"cmd/ringlog/internal/dev":    append(slices.Clone(verb), "cmd/ringlog/devcluster", "cmd/ringlog/internal/replay"),
		"cmd/ringlog/internal/replay": append(slices.Clone(verb), "cmd/ringlog/internal/offline", "internal/sealed",
			"internal/server", "log", "snapshots"),
		"cmd/ringlog/internal/top":     {"api", "cmd/ringlog/internal/shell"},
		"cmd/ringlog/internal/daemon":  append(slices.Clone(verb), "internal/procgroup"),
		"cmd/ringlog/internal/launch":  append(slices.Clone(verb), "cmd/ringlog/internal/daemon", "internal/procgroup"),
		"cmd/ringlog/internal/bench":   append(slices.Clone(verb), "cmd/ringlog/devcluster", "cmd/ringlog/internal/dev"),
		"cmd/ringlog/internal/offline": slices.Concat(consensus, verb),
		"cmd/ringlog/internal/serve": append(slices.Clone(consensus),
			"api", "internal/certs", "internal/eventlog", "internal/otlp", "internal/server",
			"cmd/ringlog/internal/shell", "cmd/ringlog/internal/offline"),
		"cmd/ringlog": append(slices.Concat(shell, verbs, handling, platform),
			"election", "internal/certs", "internal/frame", "internal/platform/scan", "internal/procgroup", "internal/view",
			"raftnode/blackbox", "router",
			"router/sinks", "internal/server", "python"),
	}
}

// Imports point down only, and only raftnode knows raft.
func TestRooms(t *testing.T) {
	const format = `{{.ImportPath}}: {{join .Imports " "}}`
	out, err := exec.Command("go", "list", "-deps", "-f", format, module+"/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	// Each line has a package and what it imports; those of other modules are listed, too.
	allowed := rooms()
	for line := range strings.Lines(string(out)) {
		path, imports, _ := strings.Cut(strings.TrimSpace(line), ":")
		room, ours := strings.CutPrefix(path, module)
		room = strings.TrimPrefix(room, "/")
		if !ours {
			continue
		}
		may, known := allowed[room]
		if !known {
			t.Errorf("%s is a new room: add what it may import to rooms and to ARCHITECTURE.md", path)
		}
		for imported := range strings.FieldsSeq(imports) {
			other, ours := strings.CutPrefix(imported, module)
			if ours && !slices.Contains(may, strings.TrimPrefix(other, "/")) {
				t.Errorf("%s must not import %s", path, imported)
			}
			if imported == "github.com/hashicorp/raft" && !strings.HasPrefix(room, "raftnode") {
				t.Errorf("%s must not import hashicorp/raft", path)
			}
		}
	}
}
