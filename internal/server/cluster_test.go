package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode"
)

// leading waits for a leader that all sites agree on and returns it before the others.
func leading(t testing.TB, sites []*site) (leader *site, others []*site) {
	t.Helper()
	eventually(t, "one leader that all know", func() bool {
		leader, others = nil, nil
		for _, s := range sites {
			st := s.node.Status()
			if st.Role == raftnode.RoleLeader {
				leader = s
			} else {
				others = append(others, s)
			}
			if st.LeaderHTTP == "" || st.LeaderID != sites[0].node.Status().LeaderID {
				return false
			}
		}
		return leader != nil && len(others) == len(sites)-1
	})
	for _, s := range sites {
		if err := s.node.WaitLeader(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return leader, others
}

// TestAClusterOverHTTP has three voters that reach each other through this package.
func TestAClusterOverHTTP(t *testing.T) {
	t.Parallel()
	sites := newSites(t, 3, func(c *Config) { c.Token = "secret" })
	for _, one := range []struct {
		name string
		run  func(t *testing.T, sites []*site)
	}{
		{"a follower takes publishes and commits, and reads its own writes", followerTakesWrites},
		{"what a follower has answered for is there when it is asked next", followerReadsItsOwn},
		{"a refusal by the leader is passed on by the follower in full", refusalIsPassedOnInFull},
		{"changes are passed on to the leader once", passedOnOnce},
		{"a member is demoted and promoted through a follower", demotedAndPromoted},
		{"leadership is handed over on request", handedOver},
		{"a new node joins through a member that does not lead", joinsThroughFollower},
	} {
		t.Run(one.name, func(t *testing.T) { one.run(t, sites) })
	}
}

// TestWhatNotEveryMemberKnowsIsRefused has members that report an older version.
func TestWhatNotEveryMemberKnowsIsRefused(t *testing.T) {
	t.Parallel()
	sites := newSites(t, 3, func(c *Config) { c.Node = &faultyNode{level: frame.LevelLetters} })
	sites[0].atLevel(frame.LevelLetters)
	leader, others := leading(t, sites)
	for _, s := range []*site{leader, others[0]} {
		s.ok("PUT", "/v1/cursors/c", `{"from":"start"}`)
		for path, body := range map[string]string{
			"/v1/groups/g":       `{"from":"start"}`,
			"/v1/clients/router": `{"subscriptions":[{"name":"s"}]}`,
		} {
			a := s.do("PUT", path, body)
			e := a.err(t)
			if a.status != 503 || e.Code != api.Unavailable || e.Reason != api.ReasonFeatureLevel || e.Remedy == "" {
				t.Errorf("%s at %s: %d %s", path, s.node.Status().NodeID, a.status, a.body)
			}
		}
	}
}

func followerTakesWrites(t *testing.T, sites []*site) {
	_, others := leading(t, sites)
	f := others[0]
	offsets := f.publish("A", 1, 10)
	last := offsets[len(offsets)-1]
	f.ok("PUT", "/v1/cursors/c", `{"from":"start"}`)
	f.open("c")
	other := others[1]
	got := offsetsIn(
		other.ok("GET", fmt.Sprintf("/v1/cursors/c/events?generation=1&follow=true&limit=%d", last), "").lines(t),
	)
	if len(got) != int(last) || got[last-1] != last {
		t.Errorf("%v, want up to %d", got, last)
	}
	got = offsetsIn(other.ok("GET", "/v1/events?consistency=linearizable", "").lines(t))
	if len(got) < int(last) || got[last-1] != last {
		t.Errorf("%v, want all up to %d: %s", got, last, other.ok("GET", "/v1/events", "").body)
	}
	f.ok("POST", "/v1/cursors/c/commit", fmt.Sprintf(`{"offset":%d,"generation":1}`, last))
}

func followerReadsItsOwn(t *testing.T, sites []*site) {
	_, others := leading(t, sites)
	for i := range 20 {
		name := fmt.Sprintf("quick%d", i)
		others[0].ok("PUT", "/v1/cursors/"+name, "")
		others[0].ok("GET", "/v1/cursors/"+name, "")
		others[0].ok("DELETE", "/v1/cursors/"+name, "")
		if a := others[0].do("GET", "/v1/cursors/"+name, ""); a.status != 404 {
			t.Errorf("%s: %d", name, a.status)
		}
	}
}

func refusalIsPassedOnInFull(t *testing.T, sites []*site) {
	_, others := leading(t, sites)
	f := others[0]
	f.ok("POST", "/v1/events", `{"type":"A","payload":{"n":1},"dedup_id":"d"}`)
	a := f.do("POST", "/v1/events", `[{"type":"B"},{"type":"A","payload":{"n":2},"dedup_id":"d"}]`)
	if e := a.err(t); a.status != 409 || e.Code != api.Conflict || e.Field != "events[1].dedup_id" || e.Offset == 0 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func passedOnOnce(t *testing.T, sites []*site) {
	leader, others := leading(t, sites)
	f := others[0]
	if a := f.do("DELETE", "/v1/members/n9", ""); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
	a := f.do("DELETE", "/v1/members/n9", "", headerForwarded, "1")
	e := a.err(t)
	if a.status != 503 || e.Code != api.NoLeader || a.header.Get("Retry-After") == "" || e.LeaderHTTP != leader.url ||
		a.header.Get(headerLeader) != leader.url {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
}

func demotedAndPromoted(t *testing.T, sites []*site) {
	leader, others := leading(t, sites)
	id := others[1].node.Status().NodeID
	a := others[0].ok("POST", "/v1/members/"+id+"/demote", "")
	if !strings.Contains(a.body, `"warning":"2 voters`) {
		t.Errorf("%s", a.body)
	}
	others[0].ok("POST", "/v1/members/"+id+"/promote", "")
	eventually(t, "three voters", func() bool { return leader.node.Status().Quorum.Voters == 3 })
}

func handedOver(t *testing.T, sites []*site) {
	_, others := leading(t, sites)
	to := others[0].node.Status().NodeID
	var handover struct {
		LeaderID   string `json:"leader_id"`
		LeaderHTTP string `json:"leader_http"`
	}
	others[1].ok("POST", "/v1/cluster/step-down", `{"to":"`+to+`"}`).decode(t, &handover)
	if handover.LeaderID == "" || handover.LeaderHTTP == "" {
		t.Errorf("who leads now: %+v", handover)
	}
	now, _ := leading(t, sites)
	if got := now.node.Status().NodeID; got != to {
		t.Logf("%s leads, %s was asked to: the voters decide", got, to)
	}
	got := now.ok("GET", "/v1/events?type=LEADER_STEPDOWN&consistency=linearizable", "").lines(t)
	if len(got) != 1 {
		t.Errorf("%v", got)
	}
}

func joinsThroughFollower(t *testing.T, sites []*site) {
	_, others := leading(t, sites)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	joiner := startSite(t, l, func(c *Config) { c.Token = "secret" }, raftnode.Config{
		ID:       "n4",
		Dir:      filepath.Join(t.TempDir(), "n4"),
		Join:     []string{others[0].url},
		NonVoter: true,
	})
	if err := joiner.node.WaitLeader(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, last := others[0].node.Machine().Log().Bounds()
	joiner.ok("GET", "/v1/events?limit=1&min_offset="+strings.TrimSpace(uintText(last)), "")
	eventually(t, "the joiner is ready", func() bool { return joiner.do("GET", "/readyz", "").status == 200 })
	others[1].ok("DELETE", "/v1/members/n4", "")
}

// A node of another cluster is rejected whether it is added or joins by itself, and reports why.
func TestANodeOfAnotherClusterIsNotAdmitted(t *testing.T) {
	t.Parallel()
	s, stranger := newSite(t, nil), newSite(t, nil)
	a := s.do("POST", "/v1/members", `{"http":"`+strings.TrimPrefix(stranger.url, "http://")+`"}`)
	e := a.err(t)
	if a.status != 409 || e.Code != api.Conflict || e.Field != "cluster_id" ||
		!strings.Contains(e.Remedy, "empty data folder") {
		t.Errorf("by URL: %d %s", a.status, a.body)
	}
	m := frame.Member{ID: "n9", RaftAddr: "127.0.0.1:9", HTTPAddr: "n9", Incarnation: "i9", FeatureLevel: fsm.FeatureLevel}
	err := stranger.peers.Join(t.Context(), s.url, m, raftnode.MemberOptions{ClusterID: stranger.node.Status().ClusterID})
	if !errors.Is(err, raftnode.ErrForeignFolder) {
		t.Errorf("by joining: %v", err)
	}
	if got := s.node.Status().Members; len(got) != 1 {
		t.Errorf("members: %+v", got)
	}
	// A node whose id is taken reports why it was rejected where an operator looks first.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	second := startSite(t, l, nil, raftnode.Config{ID: "n1", Dir: filepath.Join(t.TempDir(), "n1"), Join: []string{s.url}})
	for _, path := range []string{"/status", "/readyz"} {
		eventually(t, path+" says why", func() bool {
			return strings.Contains(second.do("GET", path, "").body, raftnode.ErrOtherIncarnation.Error())
		})
	}
}

// Peers distinguish a call that never left the node from one whose answer was lost.
func TestPeersTellWhatIsCertain(t *testing.T) {
	t.Parallel()
	p := NewPeers("", Security{})
	defer p.Close()
	if _, err := p.Forward(t.Context(), "http://127.0.0.1:1", nil); !errors.Is(err, raftnode.ErrNoLeader) {
		t.Errorf("nobody listens: %v", err)
	}
	// A call that reached somebody may have been done, however its connection ended.
	cut := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer cut.Close()
	if _, err := p.Forward(t.Context(), cut.URL, nil); !errors.Is(err, raftnode.ErrOutcomeUnknown) {
		t.Errorf("cut off: %v", err)
	}
	reset := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
	}))
	defer reset.Close()
	if _, err := p.Forward(t.Context(), reset.URL, nil); !errors.Is(err, raftnode.ErrOutcomeUnknown) {
		t.Errorf("reset: %v", err)
	}
	// A read changes nothing, so there is no outcome to be unsure of.
	if _, err := p.ReadIndex(
		t.Context(), reset.URL,
	); !errors.Is(err, raftnode.ErrNoLeader) || errors.Is(err, raftnode.ErrOutcomeUnknown) {
		t.Errorf("a read that is reset: %v", err)
	}
	// Without the token a node answers nothing but the challenge.
	s := newSite(t, func(c *Config) { c.Token = "t" })
	if _, err := p.Identify(
		t.Context(), s.url, raftnode.Question{},
	); err == nil || !strings.Contains(err.Error(), "token") {
		t.Errorf("without the token: %v", err)
	}
	with := NewPeers("t", Security{})
	defer with.Close()
	report, err := with.Identify(t.Context(), s.url, raftnode.Question{})
	if err != nil || report.ID != "n1" || report.HTTPAddr == "" {
		t.Errorf("%+v %v", report, err)
	}
	if _, err := with.Forward(
		t.Context(), s.url, []byte("junk"),
	); err == nil || !strings.Contains(err.Error(), string(api.InvalidArgument)) {
		t.Errorf("a request that is none: %v", err)
	}
	request := frame.Request{Command: frame.CursorCreate{Name: "c"}}.Encode()
	if _, err := with.Forward(t.Context(), s.url, request); err != nil {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if index, err := with.ReadIndex(ctx, s.url); err != nil || index == 0 {
		t.Errorf("%d %v", index, err)
	}
}
