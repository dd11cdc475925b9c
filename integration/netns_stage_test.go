package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/fsm"
)

// stage is a running cluster whose nodes have names: a is the first leader.
type stage struct {
	*netCluster
	a, b, c, d, e *process
	names         names
	level         uint32
	ledger        *ledger
	asked         int // how many writes requireRefusal has made
}

// newStage starts a cluster in network namespaces, waits for its first leader and gives the nodes their names.
func newStage(t testing.TB, voters int) *stage {
	c := newNetCluster(t, voters)
	c.startAll()
	s := &stage{netCluster: c, names: names{}, ledger: newLedger()}
	s.eventually(30*time.Second, "feature level of this program", func() error {
		v, err := c.view(c.nodes[0])
		s.level = v.FeatureLevel
		if err == nil && s.level != fsm.FeatureLevel {
			return fmt.Errorf("it is %d, the program knows %d", s.level, fsm.FeatureLevel)
		}
		return err
	})
	// The leader is a; the others have the next letters.
	s.a = s.awaitLeader(c.nodes...)
	cast := append([]*process{s.a}, others(c.nodes, s.a)...)
	for i, role := range []**process{&s.a, &s.b, &s.c, &s.d, &s.e}[:voters] {
		*role = cast[i]
		s.names[string(rune('a'+i))] = cast[i].id
	}
	s.awaitWhole()
	return s
}

// others returns all nodes but one.
func others(all []*process, p *process) []*process {
	return slices.DeleteFunc(slices.Clone(all), func(q *process) bool { return q == p })
}

// clusterView is the part of GET /v1/cluster that the stories look at.
type clusterView struct {
	ClusterID    string    `json:"cluster_id"`
	Role         string    `json:"role"`
	LeaderID     string    `json:"leader_id"`
	Term         uint64    `json:"term"`
	FeatureLevel uint32    `json:"feature_level"`
	AppliedIndex uint64    `json:"applied_index"`
	CommitIndex  uint64    `json:"commit_index"`
	Time         time.Time `json:"time"` // replicated
	Members      []struct {
		ID      string `json:"id"`
		Healthy bool   `json:"healthy"`
		Voter   bool   `json:"voter"`
	} `json:"members"`
}

// view returns what a node reports of the cluster.
func (c *netCluster) view(p *process) (v clusterView, err error) {
	return v, getJSON(c.t.Context(), p.web, p.url()+"/v1/cluster", &v)
}

// awaitLeader waits until these nodes agree that one of them leads.
func (s *stage) awaitLeader(nodes ...*process) (leader *process) {
	s.t.Helper()
	s.eventually(30*time.Second, "leader that these nodes agree on", func() error {
		// Each node's view of the leader and the term has to be that of the node that leads.
		leader = nil
		var views []clusterView
		for _, p := range nodes {
			v, err := s.view(p)
			if err != nil {
				return err
			}
			if v.Role == "leader" {
				leader = p
			}
			views = append(views, v)
		}
		for _, v := range views {
			if leader == nil || v.LeaderID != leader.id || v.Term != views[0].Term {
				return fmt.Errorf("they report %+v", views)
			}
		}
		return nil
	})
	return leader
}

// awaitHealth waits until the leader has each voter as healthy or not, as wanted, and until its
// log reports the same, if its feature level reports voters.
func (s *stage) awaitHealth(leader *process, healthy func(id string) bool) {
	s.t.Helper()
	s.eventually(30*time.Second, "health of the voters as "+leader.id+" sees it", func() error {
		v, err := s.view(leader)
		if err != nil {
			return err
		}
		// First the leader's own view, then the last report about each voter in its log.
		for _, m := range v.Members {
			if m.Healthy != healthy(m.ID) {
				return fmt.Errorf("%s is healthy: %t", m.ID, m.Healthy)
			}
		}
		if s.level < healthLevel {
			return nil
		}
		story, err := s.readStory(leader, 0)
		if err != nil {
			return err
		}
		last := map[string]string{}
		for _, e := range story {
			last[e.payload["voter_id"]] = e.kind
		}
		for _, p := range s.nodes {
			if online := last[p.id] != "VOTER_OFFLINE"; online != healthy(p.id) {
				return fmt.Errorf("the log reports %q of %s last", last[p.id], p.id)
			}
		}
		return nil
	})
}

// awaitOffline waits until the leader and its log have these nodes as unhealthy, and no others.
func (s *stage) awaitOffline(leader *process, gone ...*process) {
	s.t.Helper()
	s.awaitHealth(leader, func(id string) bool {
		return !slices.ContainsFunc(gone, func(p *process) bool { return p.id == id })
	})
}

// awaitWhole waits until all nodes are healthy and have the same state.
func (s *stage) awaitWhole() {
	s.t.Helper()
	s.awaitHealth(s.awaitLeader(s.nodes...), func(string) bool { return true })
	s.converged()
}

// requireRefusal requires that a node refuses a write because there is no quorum, and that
// until then it acknowledges none.
func (s *stage) requireRefusal(p *process) {
	s.t.Helper()
	web := http.Client{Transport: p.web.Transport, Timeout: 3 * time.Second}
	s.eventually(30*time.Second, "refusal by "+p.id, func() error {
		// The event is in the ledger, since a leader that has just lost its quorum may still append it.
		id := fmt.Sprintf("asked-of-%s-%d", p.id, s.asked)
		s.asked++
		s.ledger.send([]string{id})
		body := fmt.Sprintf(`{"type":"TRAINING_PROGRESS","payload":{"id":%q}}`, id)
		resp, err := web.Post(p.url()+"/v1/events", "application/json", strings.NewReader(body))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		var answer struct{ Error struct{ Code string } }
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
			return err
		}
		if resp.StatusCode == http.StatusOK {
			s.t.Fatalf("%s acknowledged %s without a quorum", p.id, id)
		}
		if answer.Error.Code != "no_quorum" {
			return fmt.Errorf("the answer is %d %s", resp.StatusCode, answer.Error.Code)
		}
		return nil
	})
}

// refuseDuringOutage lets an outage last, during which these nodes refuse every write.
func (s *stage) refuseDuringOutage(nodes ...*process) {
	s.t.Helper()
	tick, over := time.NewTicker(100*time.Millisecond), time.After(outageLasts)
	defer tick.Stop()
	for {
		for _, p := range nodes {
			s.requireRefusal(p)
		}
		select {
		case <-tick.C:
		case <-over:
			return
		}
	}
}

// requireDifferentStories requires that the nodes that are cut off do not report yet what the others do:
// otherwise one node's story would be compared with itself.
func (s *stage) requireDifferentStories() {
	s.t.Helper()
	stories, err := s.stories(0)
	if err != nil {
		s.t.Fatal(err)
	}
	if story, err := sameStory(stories); err == nil {
		s.t.Fatalf("all nodes report the same %d events while some are cut off", len(story))
	}
}
