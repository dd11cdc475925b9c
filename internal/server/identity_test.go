package server

import (
	"errors"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode"
)

func TestEveryAnswerSaysWhichClusterItComesFrom(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Token = "secret" })
	own := s.node.Status().ClusterID
	if own == "" {
		t.Fatal("no cluster")
	}
	// A refusal for want of the token names the cluster, too.
	s.token = ""
	refused := s.do("GET", "/status", "")
	s.token = "secret"
	for what, a := range map[string]answer{
		"health": s.ok("GET", "/healthz", ""), "ready": s.ok("GET", "/readyz", ""), "status": s.ok("GET", "/status", ""),
		"publish": s.ok("POST", "/v1/events", `{"type":"TRAINING_STARTED"}`), "read": s.ok("GET", "/v1/events", ""),
		"no such path": s.do("GET", "/nowhere", ""), "no token": refused,
		"connect": s.do("POST", "/ringlog.v1.LogService/GetEvent", `{"offset":"1"}`, "Content-Type", contentJSON),
	} {
		if got := a.header.Get(api.ClusterHeader); got != own {
			t.Errorf("%s: %s %q, want %q", what, api.ClusterHeader, got, own)
		}
		// Health checks and refusals also go to strangers, who learn no address of the cluster.
		leader := s.url
		switch what {
		case "health", "ready", "no such path", "no token":
			leader = ""
		}
		if got := a.header.Get(headerLeader); got != leader {
			t.Errorf("%s: %s %q, want %q", what, headerLeader, got, leader)
		}
	}
	for _, a := range []answer{
		s.ok("GET", "/healthz", ""),
		s.ok("GET", "/readyz", ""),
		s.ok("GET", "/status", ""),
		s.ok("POST", "/v1/events", `{"type":"TRAINING_STARTED"}`),
	} {
		var body struct {
			Cluster string `json:"cluster_id"`
		}
		if a.decode(t, &body); body.Cluster != own {
			t.Errorf("cluster_id %q in %s", body.Cluster, a.body)
		}
	}
}

func TestARequestForAnotherClusterIsRefusedBeforeAnythingHappens(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	own := s.node.Status().ClusterID
	_, before := s.node.Machine().Log().Bounds()
	for _, call := range []struct{ method, path, body string }{
		{"POST", "/v1/events", `{"type":"TRAINING_STARTED"}`},
		{"POST", "/v1/compact", `{"keep":0,"force":true}`},
		{"PUT", "/v1/settings/retention.events", `{"value":"1"}`},
		{"GET", "/v1/events", ""}, {"GET", "/status", ""}, {"GET", "/readyz", ""}, {"GET", api.PublishStreamPath, ""},
	} {
		a := s.do(call.method, call.path, call.body, api.ClusterHeader, "another")
		if e := a.err(t); a.status != 421 || e.Code != api.OtherCluster || e.Field != api.ClusterHeader || e.Remedy == "" {
			t.Errorf("%s %s: %d %s", call.method, call.path, a.status, a.body)
		}
		if call.method == "GET" {
			continue
		}
		if a := s.do(call.method, call.path, "no JSON", api.ClusterHeader, own); a.status != 400 {
			t.Errorf("%s %s for this cluster: %d %s", call.method, call.path, a.status, a.body)
		}
	}
	a := s.do(
		"POST", "/ringlog.v1.LogService/Publish", `{"events":[{"type":"TRAINING_STARTED"}]}`,
		"Content-Type", contentJSON, api.ClusterHeader, "another",
	)
	if a.status != 400 || a.header.Get(api.ClusterHeader) != own {
		t.Errorf("over Connect: %d %s", a.status, a.body)
	}
	if _, last := s.node.Machine().Log().Bounds(); last != before {
		t.Errorf("%d events were appended", last-before)
	}
}

// A node passes nothing on to a node of another cluster, even if that has its leader's address.
func TestNodesPassNothingOnToAnotherCluster(t *testing.T) {
	t.Parallel()
	own, other := newSite(t, nil), newSite(t, nil)
	request := frame.Request{Command: frame.SettingSet{Key: "retention.events", Value: "1"}}
	if _, err := own.peers.Forward(t.Context(), other.url, request.Encode()); !errors.Is(err, raftnode.ErrNoLeader) {
		t.Errorf("forward: %v", err)
	}
	if _, err := own.peers.ReadIndex(t.Context(), other.url); !errors.Is(err, raftnode.ErrNoLeader) {
		t.Errorf("read index: %v", err)
	}
	if r, err := own.peers.Identify(
		t.Context(), other.url, raftnode.Question{},
	); err != nil || r.ClusterID != other.node.Status().ClusterID {
		t.Errorf("identify: %+v, %v", r, err)
	}
	if s := other.node.Machine().Settings(); s.RetentionEvents != 0 {
		t.Errorf("the other cluster keeps %d events", s.RetentionEvents)
	}
}

// An exchange is passed on like other calls: a group of the same name in another cluster is not touched.
func TestExchangesAreNotPassedOnToAnotherCluster(t *testing.T) {
	t.Parallel()
	other := newSite(t, nil)
	other.group("g", `{}`)
	own := newSite(t, func(c *Config) { c.Node = &faultyNode{leader: other.url} })
	a := own.do("POST", "/ringlog.v1.GroupService/Exchange", `{"group":"g","member":"m"}`, "Content-Type", contentJSON)
	if a.status != 503 || !strings.Contains(a.body, "is a node of another cluster by now") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if view := other.ok("GET", "/v1/groups/g", "").body; !strings.Contains(view, `"members":0`) {
		t.Errorf("a stranger has joined: %s", view)
	}
}
