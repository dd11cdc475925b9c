package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// stalls returns the events that report stalls, each as its type and its cursor.
func (s *site) stalls() (list []string) {
	s.t.Helper()
	for _, e := range s.ok("GET", "/v1/events?from=start&type=CURSOR_*", "").lines(s.t) {
		list = append(list, fmt.Sprint(e["type"], " ", e["payload"].(map[string]any)["cursor"]))
	}
	return list
}

// Two cursors and a group, only one of them with a reader, have a filter that passes nothing: none of them lags or
// is reported as stalled. Once an event matches they lag, and the stall is reported.
func TestWhatAFilterKeepsAwayIsNoLag(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.set("cursor.stall_after", "2s")
	for _, path := range []string{"cursors/read", "cursors/detached", "groups/crew"} {
		s.ok("PUT", "/v1/"+path, `{"filter":{"types":["RARE"]}}`)
	}
	s.open("read")
	s.follow(t.Context(), "/v1/cursors/read/events?follow=true&generation=1")
	s.publish("COMMON", 1, 1)
	_, common := s.node.Machine().Log().Bounds()
	lags := func() (text string) {
		var st api.Status
		s.ok("GET", "/status", "").decode(t, &st)
		for _, c := range st.Cursors {
			text += fmt.Sprint(
				c.Name, " ", c.LagEvents, " ", c.LagSeconds > 0, " ", c.LagAtLeast != nil, " ",
				c.Stalled != nil, ";",
			)
		}
		return text
	}
	const none = "crew 0 false false false;detached 0 false false false;read 0 false false false;"
	if got := lags(); got != none {
		t.Errorf("at once: %s", got)
	}
	eventually(t, "the log has what was found", func() bool {
		for _, c := range s.node.Machine().Cursors() {
			if c.Scanned < common || c.Committed != 0 {
				return false
			}
		}
		return true
	})
	// More than twice the time after which a lagging cursor is reported. Each setting is an entry and moves the clock.
	eventually(t, "time goes by", func() bool {
		s.set("cursor.stall_after", "2s")
		return time.Since(s.node.Machine().Time()) < time.Second && s.appended(common) > 5*time.Second
	})
	if got := lags(); got != none || len(s.stalls()) > 0 {
		t.Errorf("%s %v", got, s.stalls())
	}
	metrics := s.ok("GET", "/metrics", "").body
	for _, want := range []string{
		`ringlog_cursor_lag_events{cursor="detached"} 0`,
		`ringlog_cursor_lag_seconds{cursor="detached"} 0`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s", want)
		}
	}

	s.publish("RARE", 2, 2)
	if got := lags(); got != strings.ReplaceAll(none, "0 false false false", "1 true false false") {
		t.Errorf("with an event that matches: %s", got)
	}
	s.publish("COMMON", 3, 5)
	eventually(t, "all three are reported", func() bool { return len(s.stalls()) == 3 })
	if got := lags(); got != strings.ReplaceAll(none, "0 false false false", "1 true false true") {
		t.Errorf("stalled: %s", got)
	}
	s.ok("POST", "/v1/cursors/read/commit", fmt.Sprintf(`{"offset":%d,"generation":1}`, common+1))
	eventually(t, "one has recovered, though events follow", func() bool {
		return strings.HasSuffix(fmt.Sprint(s.stalls()), string(event.CursorRecovered)+" read]")
	})
	if got := lags(); !strings.Contains(got, "read 0 false false false;") {
		t.Errorf("recovered: %s", got)
	}

	// What the others were stalled at is trimmed by force, and nothing that is left is for them.
	s.ok("POST", "/v1/compact", fmt.Sprintf(`{"before":%d,"force":true}`, common+2))
	eventually(t, "the others have recovered", func() bool {
		return strings.Count(fmt.Sprint(s.stalls()), string(event.CursorRecovered)) == 3
	})
	if got := lags(); got != none {
		t.Errorf("trimmed: %s", got)
	}
}

// appended returns how long ago an offset was appended, by replicated time.
func (s *site) appended(offset uint64) time.Duration {
	s.t.Helper()
	columns, err := s.node.Machine().Log().Columns(offset)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.node.Machine().Time().Sub(columns.AppendedAt)
}
