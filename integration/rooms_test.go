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
	state := []string{"event", "internal/frame", "log", "election", "fsm/dedup", "fsm"}
	consensus := append(slices.Clone(state), "snapshots", "raftnode/datadir", "raftnode/raftstore", "raftnode/rafttransport", "raftnode/blackbox", "raftnode")
	operations := []string{"api", "event", "fsm", "internal/frame", "internal/group", "internal/tail", "internal/platform/audit", "internal/platform/stages", "log", "raftnode"}
	clients := []string{"event", "internal/frame", "api", "api/ringlog/v1", "api/ringlog/v1/ringlogv1connect"}
	return map[string][]string{
		"event":                           {"event/canon"},
		"event/canon":                     nil,
		"event/where":                     {"event"},
		"election":                        {"event"},
		"internal/frame":                  {"event"},
		"internal/group":                  {"event", "internal/frame"},
		"log":                             {"event", "internal/frame"},
		"fsm/dedup":                       {"event", "internal/frame"},
		"fsm":                             state[:5],
		"snapshots":                       nil,
		"raftnode/datadir":                nil,
		"raftnode/raftstore":              {"raftnode/datadir"},
		"raftnode/rafttransport":          nil,
		"raftnode/blackbox":               nil,
		"raftnode":                        consensus[:len(consensus)-1],
		"api":                             {"event"},
		"api/ringlog/v1":                  nil,
		"api/ringlog/v1/ringlogv1connect": {"api/ringlog/v1"},
		"client":                          clients,
		"internal/platform/audit":         {"event"},
		"internal/platform/stages":        {"event"},
		"router":                          append(slices.Clone(clients), "client", "internal/platform/stages", "event/where", "router/breaker"),
		"router/breaker":                  {"event"},
		"internal/tail":                   {"event", "fsm", "log", "raftnode"},
		"internal/group/engine":           {"api", "event", "fsm", "internal/frame", "internal/group", "internal/tail", "log", "raftnode"},
		"internal/service":                append(slices.Clone(operations), "internal/group/engine"),
		"internal/server":                 append(append(append(slices.Clone(consensus), clients...), operations...), "internal/service", "internal/group/engine"),
		"":                                append(append(slices.Clone(consensus), clients...), "internal/server", "client", "router"),
		"sinks":                           {"api", "client", "event", "event/where", "router/breaker"},
		"integration":                     nil,
		"internal/longtest":               nil,
		"event/emit":                      {"event"},
		"event/internal/goname":           nil,
		"event/internal/gencatalogue":     {"event/internal/goname"},
		"event/internal/genemit":          {"event", "event/internal/goname"},
	}
}

// Imports point down only, and only raftnode knows raft.
func TestRooms(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{.ImportPath}}: {{join .Imports \" \"}}", module+"/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	allowed := rooms()
	for line := range strings.Lines(string(out)) {
		path, imports, _ := strings.Cut(strings.TrimSpace(line), ":")
		room, ours := strings.CutPrefix(path, module)
		room = strings.TrimPrefix(room, "/")
		if !ours || strings.HasPrefix(room, "cmd/") {
			continue
		}
		may, known := allowed[room]
		if !known {
			t.Errorf("%s is a new room: say in ARCHITECTURE.md and here what it may import", path)
		}
		for imported := range strings.FieldsSeq(imports) {
			if other, ours := strings.CutPrefix(imported, module); ours {
				if other = strings.TrimPrefix(other, "/"); !slices.Contains(may, other) {
					t.Errorf("%s must not import %s", path, imported)
				}
			}
			if imported == "github.com/hashicorp/raft" && !strings.HasPrefix(room, "raftnode") {
				t.Errorf("%s must not know hashicorp/raft", path)
			}
		}
	}
}
