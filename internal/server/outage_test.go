package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// The last of three voters reports at once, and without a leader, that there is no quorum: in /status, in /metrics
// and on its own stream. It refuses writes and counts them.
func TestALoneVoterTellsOfTheOutage(t *testing.T) {
	t.Parallel()
	sites := newSites(t, 3, nil)
	leading(t, sites)
	eventually(t, "the log has all voters", func() bool { return len(sites[0].node.Status().Voters.Voters) == 3 })
	last := sites[0]
	lines, _ := last.follow(t.Context(), "/v1/cluster/outage?follow=true")
	for _, s := range sites[1:] {
		if err := s.server.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.node.Close(t.Context()); err != nil {
			t.Log(err) // there may be nobody left to hand over to
		}
	}
	var lost localEvent
	for lost.Type != event.QuorumLost {
		if err := json.Unmarshal([]byte(next(t, lines)), &lost); err != nil {
			t.Fatal(err)
		}
	}
	if !lost.Local || lost.NodeID != "n1" || lost.Payload.Cause != "unreachable" || len(lost.Payload.Peers) != 2 ||
		lost.Payload.Peers[0].Reachable {
		t.Errorf("%+v", lost)
	}
	// A leader has to step down first. On a loaded machine the outage may have been seen to end once.
	var st api.Status
	eventually(t, "a write is refused, and counted in the outage", func() bool {
		// A caller that repeats its request has one write refused.
		for range 3 {
			a := last.do("POST", "/v1/events", `{"type":"A"}`)
			if a.status != 503 || a.err(t).Code != api.NoQuorum {
				return false
			}
		}
		last.ok("GET", "/status", "").decode(t, &st)
		return st.Outage != nil && st.Outage.Refused > 0
	})
	if st.Outage.Refused != 1 {
		t.Errorf("%d writes refused, want the one that was repeated", st.Outage.Refused)
	}
	if st.Quorum.Margin >= 0 || !strings.Contains(strings.Join(st.Warnings, "\n"), "no quorum since") {
		t.Errorf("%+v %+v %q", st.Outage, st.Quorum, st.Warnings)
	}
	metrics := last.ok("GET", "/metrics", "").body
	for _, line := range []string{
		"ringlog_quorum_lost 1",
		"ringlog_outage_seconds",
		fmt.Sprintf("ringlog_outage_refused_writes %d", st.Outage.Refused),
		"ringlog_quorum_margin -1",
	} {
		if !strings.Contains(metrics, "\n"+line) {
			t.Errorf("no %q in /metrics", line)
		}
	}
	var history struct {
		History []api.Chapter   `json:"history"`
		Outage  json.RawMessage `json:"outage"`
	}
	last.ok("GET", "/v1/cluster/history?limit=3", "").decode(t, &history)
	if len(history.History) == 0 || len(history.History) > 3 || string(history.Outage) == "null" {
		t.Errorf("%+v", history)
	}
}

// Changes that would end the quorum, or name nobody, are refused with the reason.
func TestChangesThatWouldEndTheQuorumAreRefused(t *testing.T) {
	t.Parallel()
	sites := newSites(t, 3, nil)
	leader, others := leading(t, sites)
	gone, stays := others[0], others[1]
	if err := gone.server.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := gone.node.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	goneID, staysID := gone.node.Status().NodeID, stays.node.Status().NodeID
	eventually(t, "the leader misses a voter", func() bool { return leader.node.Status().Quorum.Margin == 0 })
	for _, c := range []struct{ method, path, body, says string }{
		{"DELETE", "/v1/members/" + staysID, "", "too few voters answer"},
		{"POST", "/v1/members/" + staysID + "/demote", "", "too few voters answer"},
		{"DELETE", "/v1/members/n9", "", "no such member"},
		{"POST", "/v1/cluster/step-down", `{"to":"n9"}`, "no such member"},
		{"POST", "/v1/cluster/step-down", `{"to":"` + goneID + `"}`, "no voter that could take over"},
	} {
		a := leader.do(c.method, c.path, c.body)
		if e := a.err(t); a.status != 409 && a.status != 404 || !strings.Contains(e.Message, c.says) || e.Remedy == "" {
			t.Errorf("%s %s: %d %s", c.method, c.path, a.status, a.body)
		}
	}
	// Removing the voter that is down is allowed: the others are a majority without it.
	leader.ok("DELETE", "/v1/members/"+goneID, "")
	eventually(t, "two voters are left", func() bool { return leader.node.Status().Quorum.Voters == 2 })
	leader.ok("POST", "/v1/events", `{"type":"A"}`)
}
