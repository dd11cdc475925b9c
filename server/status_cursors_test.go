package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/frame"
	"github.com/ringrift/ringlog/fsm"
)

// /status and /metrics name some cursors, however many there are: those that stand still, then
// those that lag most. All are counted.
func TestStatusNamesSomeCursors(t *testing.T) {
	s := newSite(t, nil)
	s.publish("TRAINING_COMPLETED", 1, 10)
	const many = 3 * notableCursors
	for i := range many {
		start := frame.Position{Kind: frame.AtEnd}
		if i == 7 {
			start.Kind = frame.AtStart
		}
		if _, err := s.node.Propose(t.Context(), frame.Request{Command: frame.CursorCreate{Name: fmt.Sprintf("c%03d", i), Start: start}}); err != nil {
			t.Fatal(err)
		}
	}
	var status struct {
		Cursors []struct{ Name string }
		Total   int `json:"cursors_total"`
		Left    int `json:"cursors_left_out"`
	}
	s.ok("GET", "/status", "").decode(t, &status)
	named := false
	for _, c := range status.Cursors {
		named = named || c.Name == "c007"
	}
	if len(status.Cursors) != notableCursors || status.Total != many || status.Left != many-notableCursors || !named {
		t.Errorf("%d cursors of %d, %d left out; the one that lags: %v", len(status.Cursors), status.Total, status.Left, named)
	}
	text := s.ok("GET", "/metrics", "").body
	if n := strings.Count(text, "ringlog_cursor_lag_events{"); n != notableCursors {
		t.Errorf("%d series of lags", n)
	}
	for _, want := range []string{fmt.Sprintf("ringlog_cursors %d\n", many), "ringlog_cursors_stalled 0\n", `ringlog_cursor_lag_events{cursor="c007"}`} {
		if !strings.Contains(text, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	list := make([]fsm.Cursor, 10)
	for i := range list {
		list[i] = fsm.Cursor{Name: fmt.Sprint(i), Committed: uint64(i)}
	}
	list[8].Stalled = &fsm.Stall{}
	if got := notable(list, 3); len(got) != 3 || got[0].Name != "0" || got[1].Name != "1" || got[2].Name != "8" {
		t.Errorf("%+v", got)
	}
}
