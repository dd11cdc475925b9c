package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/frame"
)

// overdueReported returns the runs that the log reports as overdue, each with the type it is missing, in the order of
// the log.
func (s *site) overdueReported() (reported []string) {
	s.t.Helper()
	events, _ := s.ok("GET", "/v1/events?from=start&type=CHAIN_OVERDUE", "").stream(s.t)
	for line := range strings.Lines(events) {
		var e struct {
			CorrelationID string `json:"correlation_id"`
			Source        string
			Payload       struct {
				Missing  string
				Deadline int64 `json:"deadline_ms"`
				Waiting  int64 `json:"waiting_ms"`
			}
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			s.t.Fatal(err)
		}
		if e.Payload.Waiting <= e.Payload.Deadline || e.Source != "ringlog" {
			s.t.Errorf("%s", line)
		}
		reported = append(reported, e.CorrelationID+" "+e.Payload.Missing)
	}
	return reported
}

// Every node shows a run that is missing an edge past its deadline, and the log reports it once, also if another
// node leads meanwhile. A run that continues in time is not reported.
func TestAnOverdueRunIsReportedOnce(t *testing.T) {
	t.Parallel()
	sites := newSites(t, 3, nil)
	sites[0].atLevel(frame.LevelDelivery)
	leader, others := leading(t, sites)
	leader.step("late", "TRAINING_STARTED")
	leader.step("quick", "TRAINING_STARTED")
	leader.step("quick", "TRAINING_COMPLETED")
	leader.step("", "TRAINING_STARTED")
	// The deadline is set after the runs began: they are judged all the same.
	others[0].ok(
		"PUT", "/v1/settings/chain.deadlines",
		`{"value":"training_pipeline:training.started->TRAINING_COMPLETED=300ms"}`,
	)
	eventually(t, "it is reported", func() bool { return len(leader.overdueReported()) > 0 })
	for _, s := range sites {
		eventually(t, "it is shown", func() bool {
			var st api.Status
			s.ok("GET", "/status", "").decode(t, &st)
			o := st.Overdue
			return o.Count == 1 && len(o.List) == 1 && o.List[0].CorrelationID == "late" &&
				o.List[0].Missing == "TRAINING_COMPLETED" && o.Runs == 2
		})
	}
	if c := leader.chain("late", ""); c.Overdue != 1 {
		t.Errorf("the chain itself says %d", c.Overdue)
	}
	// The next leader reports what becomes overdue now, and nothing that was reported before.
	leader.ok("POST", "/v1/cluster/step-down", "")
	leader, _ = leading(t, sites)
	leader.step("later", "TRAINING_STARTED")
	eventually(t, "the next is reported", func() bool { return len(leader.overdueReported()) > 1 })
	leader.step("late", "TRAINING_COMPLETED")
	eventually(t, "the first resumes", func() bool {
		var st api.Status
		leader.ok("GET", "/status", "").decode(t, &st)
		return st.Overdue.Count == 1 && st.Overdue.List[0].CorrelationID == "later"
	})
	if got := fmt.Sprint(leader.overdueReported()); got != "[late TRAINING_COMPLETED later TRAINING_COMPLETED]" {
		t.Error(got)
	}
	leader.ok("PUT", "/v1/settings/chain.deadlines", `{"value":""}`)
	eventually(t, "nobody looks any more", func() bool {
		var st api.Status
		leader.ok("GET", "/status", "").decode(t, &st)
		return st.Overdue.Count == 0 && len(st.Overdue.Deadlines) == 0
	})
}

func TestABadDeadlineIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	const edge = "training_pipeline:TRAINING_STARTED->TRAINING_COMPLETED"
	for value, says := range map[string]string{
		"nightly:A->B=1h": "there are training_pipeline",
		"training_pipeline:TRAINING_STARTED->MODEL_PROMOTED=1h": "has no edge",
		edge + "=soon": "is not a duration",
		edge + "=1h,training_pipeline:training.started->TRAINING_COMPLETED=2h": "has two",
		edge: "FLOW:CAUSE->EFFECT=DURATION",
	} {
		body, err := json.Marshal(map[string]string{"value": value})
		if err != nil {
			t.Fatal(err)
		}
		e := s.do("PUT", "/v1/settings/chain.deadlines", string(body)).err(t)
		if e.Code != api.InvalidArgument || e.Field != "value" || e.Remedy == "" || !strings.Contains(e.Message, says) {
			t.Errorf("%s: %+v", value, e)
		}
	}
	if e := s.do("POST", "/v1/events", `{"type":"CHAIN_OVERDUE"}`).err(t); e.Code != api.Reserved {
		t.Errorf("%+v", e)
	}
}
