package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/frame"
)

// labelled publishes one event of a run that its payload names.
func (s *site) labelled(batch int, kind string) {
	s.t.Helper()
	s.ok("POST", "/v1/events",
		fmt.Sprintf(`{"type":%q,"payload":{"n":%d,"batch":%d}}`, kind, time.Now().UnixNano(), batch))
}

// A flow that one node registers is every node's: runs by its payload fields are found, watched by their deadlines and
// reported, until it is removed.
func TestAFlowOfOnesOwnIsFollowedByItsPayloadFields(t *testing.T) {
	t.Parallel()
	sites := newSites(t, 3, nil)
	sites[0].atLevel(frame.LevelFlows)
	leader, others := leading(t, sites)
	const flow = `{"name":"labels","edges":[["LABELS_REQUESTED","LABELS_READY"],["LABELS_READY","NEW_GAMES"]],
		"run_by":["batch"]}`
	var done api.FlowsRegistered
	others[0].ok("POST", "/v1/flows?dry_run=true", flow).decode(t, &done)
	if e := others[0].do("GET", "/v1/flows/labels", "").err(t); e.Code != api.NotFound || !done.DryRun {
		t.Errorf("after a dry run: %+v", e)
	}
	others[0].ok("POST", "/v1/flows", flow).decode(t, &done)
	if !slices.Equal(done.Registered, []string{"labels"}) || len(done.Warnings) != 2 || done.DryRun {
		t.Errorf("%+v", done)
	}
	leader.labelled(7, "LABELS_REQUESTED")
	leader.labelled(8, "LABELS_REQUESTED")
	leader.labelled(8, "LABELS_READY")
	leader.labelled(7, "TRAINING_STARTED") // no stage
	leader.step("batch=7", "LABELS_READY") // is of another run, by its correlation id
	leader.step("run-9", "LABELS_REQUESTED")
	leader.ok("POST", "/v1/events", `{"type":"LABELS_REQUESTED","payload":{"batch":10},"correlation_id":"run-10"}`)
	leader.step("run-10", "LABELS_READY") // is of batch 10
	leader.ok("POST", "/v1/events", `{"type":"NEW_GAMES","payload":{"batch":10,"n":1},"correlation_id":"run-11"}`)
	leader.ok("PUT", "/v1/settings/chain.deadlines",
		`{"value":"labels:LABELS_READY->NEW_GAMES_AVAILABLE=300ms,labels:LABELS_REQUESTED->LABELS_READY=300ms"}`)
	eventually(t, "they are reported", func() bool { return len(leader.overdueReported()) >= 4 })
	reported := leader.overdueReported()
	slices.Sort(reported)
	if got := strings.Join(reported, ", "); got != "batch=7 LABELS_READY, batch=7 NEW_GAMES_AVAILABLE, "+
		"batch=8 NEW_GAMES_AVAILABLE, run-9 LABELS_READY" {
		t.Error(got)
	}
	for _, s := range sites {
		c := s.chain("batch=8", "?consistency=linearizable")
		if len(c.Events) < 2 || len(c.Flows) != 1 || c.Flows[0].Flow != "labels" || c.Overdue != 1 {
			t.Errorf("%+v", c)
		}
		// Beside its stages it has what was reported of it, not those of a correlation id that looks like it.
		c = s.chain("batch=7", "")
		if c.Events[0].Type != "LABELS_REQUESTED" || c.Events[1].Type != "CHAIN_OVERDUE" {
			t.Errorf("%+v", c)
		}
		c = s.chain("batch=10", "")
		if len(c.Events) != 3 || !c.Flows[0].Complete || c.Overdue != 0 {
			t.Errorf("%+v", c)
		}
		c = s.chain("run-10", "")
		if len(c.Events) != 2 || len(c.Flows) != 0 || !slices.Equal(c.Runs, []string{"batch=10"}) {
			t.Errorf("%+v", c)
		}
		if c = s.chain("run-9", ""); len(c.Flows) != 1 || c.Overdue != 1 || len(c.Runs) != 0 {
			t.Errorf("%+v", c)
		}
	}
	after := leader.chain("batch=8", "").Events[1].Offset
	if c := leader.chain("batch=8", fmt.Sprint("?from=", after)); c.Events[0].Offset != after || c.Scope.From != after {
		t.Errorf("%+v", c)
	}
	if e := leader.do("GET", "/v1/chain/batch=9", "").err(t); e.Code != api.NotFound {
		t.Errorf("%+v", e)
	}

	// Its deadlines hold it.
	for _, call := range [][3]string{{"DELETE", "/v1/flows/labels", ""},
		{"POST", "/v1/flows", `{"name":"labels","edges":[["LABELS_REQUESTED","LABELS_READY"]]}`}} {
		if e := leader.do(call[0], call[1], call[2]).err(t); e.Code != api.Conflict || e.Remedy == "" {
			t.Errorf("%s: %+v", call, e)
		}
	}
	leader.ok("PUT", "/v1/settings/chain.deadlines", `{"value":""}`)
	leader.ok("DELETE", "/v1/flows/labels", "")
	for _, s := range sites {
		// What was reported of it has its id.
		if c := s.chain("batch=8", "?consistency=linearizable"); len(c.Events) != 1 || len(c.Flows) != 0 {
			t.Errorf("%+v", c)
		}
	}
	if e := leader.do("DELETE", "/v1/flows/labels", "").err(t); e.Code != api.NotFound || e.Field != "name" {
		t.Errorf("%+v", e)
	}
}

// Of a built-in flow one may say how its runs are found, and take it back.
func TestABuiltInFlowGetsHowItsRunsAreFound(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.atLevel(frame.LevelFlows)
	s.ok("POST", "/v1/events", `{"type":"TRAINING_STARTED","payload":{"config_key":"hex8_2p"}}`)
	if e := s.do("GET", "/v1/chain/config_key=hex8_2p", "").err(t); e.Code != api.NotFound {
		t.Errorf("%+v", e)
	}
	s.ok("POST", "/v1/flows", `{"name":"training_pipeline","run_by":["config_key"]}`)
	if c := s.chain("config_key=hex8_2p", ""); len(c.Events) != 1 || c.Flows[0].Flow != "training_pipeline" {
		t.Errorf("%+v", c)
	}
	s.ok("DELETE", "/v1/flows/training_pipeline", "")
	if e := s.do("GET", "/v1/chain/config_key=hex8_2p", "").err(t); e.Code != api.NotFound {
		t.Errorf("%+v", e)
	}
	s.ok("GET", "/v1/flows/training_pipeline", "")
}

func TestABadFlowIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.atLevel(frame.LevelFlows)
	for body, says := range map[string]string{
		"":                             "the body is empty",
		`{"name":"f","edges":[["A"]]}`: "an edge is two types",
		`{"name":"training_pipeline","edges":[["A","B"]]}`: "the built-in flow has its own",
	} {
		if e := s.do("POST", "/v1/flows", body).err(t); !strings.Contains(e.Message, says) || e.Field == "" {
			t.Errorf("%s: %+v", body, e)
		}
	}
	s.ok("PUT", "/v1/settings/validation.strict", `{"value":"true"}`)
	e := s.do("POST", "/v1/flows", `{"name":"f","edges":[["TRAINING_STARTD","TRAINING_COMPLETED"]]}`).err(t)
	if e.Code != api.UnknownType || e.Field != "f.edges[0]" || !strings.Contains(e.Message, "TRAINING_STARTED") {
		t.Errorf("%+v", e)
	}
	s.ok("POST", "/v1/flows", `{"name":"f","edges":[["TRAINING_STARTED","TRAINING_COMPLETED"]]}`)
	for i := range 63 {
		s.ok("POST", "/v1/flows", fmt.Sprintf(`{"name":"f%d","edges":[["TRAINING_STARTED","TRAINING_COMPLETED"]]}`, i))
	}
	if e := s.do("POST", "/v1/flows", `{"name":"g","edges":[["TRAINING_STARTED","TRAINING_COMPLETED"]]}`).err(t); e.Code !=
		api.Overloaded || !strings.Contains(e.Message, "64") {
		t.Errorf("%+v", e)
	}
}
