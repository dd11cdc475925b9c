package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/frame"
)

// lagsReported returns what the log reports of the backpressure of cursors and groups, from an offset on, by name.
func (s *site) lagsReported(from uint64) (list []string) {
	s.t.Helper()
	events, _ := s.ok("GET", fmt.Sprintf("/v1/events?from=%d&type=BACKPRESSURE_*&consistency=linearizable", from), "").
		stream(s.t)
	for line := range strings.Lines(events) {
		var e struct {
			Type    string
			Payload struct {
				Cursor    string
				Group     bool
				LagEvents uint64 `json:"lag_events"`
				Reason    string
			}
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			s.t.Fatal(err)
		}
		p := e.Payload
		what := strings.TrimPrefix(e.Type, "BACKPRESSURE_")
		list = append(list, strings.TrimSpace(fmt.Sprintln(p.Cursor, p.Group, what, p.LagEvents, p.Reason)))
	}
	slices.Sort(list)
	return list
}

// Of what a cursor or group is still to handle, what its filter passes counts. Each that reaches the upper limit is
// reported once, and once when it has come down to the lower one, whichever node leads.
func TestACursorThatLagsIsReportedOnce(t *testing.T) {
	t.Parallel()
	sites := newSites(t, 3, nil)
	sites[0].atLevel(frame.LevelLag)
	leader, _ := leading(t, sites)
	var want []string
	reported := func(what string, more ...string) {
		t.Helper()
		want = append(want, more...)
		slices.Sort(want)
		eventually(t, what, func() bool { return len(leader.lagsReported(1)) >= len(want) })
		if got := leader.lagsReported(1); !slices.Equal(got, want) {
			t.Fatalf("%s: %q, want %q", what, got, want)
		}
	}
	const filter = `{"from":"start","filter":{"types":["B"]}}`
	for _, path := range []string{"cursors/work-a", "cursors/work-b", "cursors/free", "groups/work-crew"} {
		leader.ok("PUT", "/v1/"+path, filter)
	}
	leader.ok("PUT", "/v1/cursors/work-idle", `{"from":"start","filter":{"types":["C"]}}`)
	leader.ok("PUT", "/v1/settings/backpressure.lag", `{"value":"work-*=6/1"}`)
	leader.publish("A", 1, 30)
	leader.publish("B", 1, 6)
	reported("the upper limit is reached", "work-a false ACTIVATED 6", "work-b false ACTIVATED 6",
		"work-crew true ACTIVATED 6")
	for _, s := range sites {
		eventually(t, "every node shows it", func() bool {
			var cursor, group, idle, free api.Cursor
			s.ok("GET", "/v1/cursors/work-a", "").decode(t, &cursor)
			s.ok("GET", "/v1/groups/work-crew", "").decode(t, &group)
			s.ok("GET", "/v1/cursors/work-idle", "").decode(t, &idle)
			s.ok("GET", "/v1/cursors/free", "").decode(t, &free)
			return cursor.Throttled() && group.Throttled() && !idle.Throttled() && free.Backpressure == nil &&
				*idle.Backpressure == api.LagPressure{ActivateAt: 6, ReleaseAt: 1}
		})
	}
	metrics := leader.ok("GET", "/metrics", "").body
	for _, line := range []string{`ringlog_cursors_throttled 3`, `ringlog_cursor_throttled{cursor="work-a"} 1`} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("/metrics lacks %s", line)
		}
	}

	// The next leader reports nothing again. A cursor that is gone lags by nothing.
	leader.ok("POST", "/v1/cluster/step-down", "")
	leader, _ = leading(t, sites)
	last := leader.publish("B", 7, 8)
	leader.ok("DELETE", "/v1/cursors/work-b", "")
	generation := leader.open("work-a")
	commit := func(offset uint64) {
		leader.ok("POST", "/v1/cursors/work-a/commit", fmt.Sprintf(`{"offset":%d,"generation":%d}`, offset, generation))
	}
	commit(last[0])
	reported("the lower limit is reached", "work-a false RELEASED 1 lag", "work-b false RELEASED 0 removed")

	// Events that are trimmed are not handled any more.
	leader.publish("B", 9, 19)
	reported("the upper limit is reached again", "work-a false ACTIVATED 12")
	tail := leader.publish("B", 20, 20)[0]
	leader.ok("POST", "/v1/compact", fmt.Sprintf(`{"before":%d,"force":true}`, tail))
	eventually(t, "the trim releases both", func() bool { return len(leader.lagsReported(tail)) == 2 })
	if got := fmt.Sprint(leader.lagsReported(tail)); got !=
		"[work-a false RELEASED 1 lag work-crew true RELEASED 1 lag]" {
		t.Error(got)
	}

	// Without a limit nothing stays throttled.
	end := leader.publish("B", 21, 40)[19]
	eventually(t, "both lag again", func() bool { return len(leader.lagsReported(end)) == 2 })
	leader.ok("PUT", "/v1/settings/backpressure.lag", `{"value":""}`)
	eventually(t, "both are released", func() bool { return len(leader.lagsReported(end)) == 4 })
	for _, one := range leader.lagsReported(end) {
		if strings.Contains(one, "RELEASED") && !strings.HasSuffix(one, " setting") {
			t.Error(one)
		}
	}
}
