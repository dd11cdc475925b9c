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

// stage is a running cluster with somebody called a who leads.
type stage struct {
	*netCluster
	a, b, c, d, e *process
	names         names
	level         uint32
	ledger        *ledger
	asked         int // writes of refuses
}

func newStage(t testing.TB, voters int) *stage {
	c := newNetCluster(t, voters)
	c.startAll()
	s := &stage{netCluster: c, names: names{}, ledger: newLedger()}
	s.eventually(30*time.Second, "feature level of this program", func() error {
		v, err := c.view(c.nodes[0])
		if s.level = v.FeatureLevel; err == nil && s.level != fsm.FeatureLevel {
			return fmt.Errorf("it is %d, the program knows %d", v.FeatureLevel, fsm.FeatureLevel)
		}
		return err
	})
	s.a = s.leads(c.nodes...)
	cast := append([]*process{s.a}, others(c.nodes, s.a)...)
	for i, role := range []**process{&s.a, &s.b, &s.c, &s.d, &s.e}[:voters] {
		*role = cast[i]
		s.names[string(rune('a'+i))] = cast[i].id
	}
	s.whole()
	return s
}

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

func (c *netCluster) view(p *process) (v clusterView, err error) {
	return v, getJSONBy(c.t.Context(), p.web, p.url()+"/v1/cluster", &v)
}

// leads waits until these nodes agree that one of them leads.
func (s *stage) leads(nodes ...*process) (leader *process) {
	s.t.Helper()
	s.eventually(30*time.Second, "leader that these nodes agree on", func() error {
		leader = nil
		var said []clusterView
		for _, p := range nodes {
			v, err := s.view(p)
			if err != nil {
				return err
			}
			if v.Role == "leader" {
				leader = p
			}
			said = append(said, v)
		}
		for _, v := range said {
			if leader == nil || v.LeaderID != leader.id || v.Term != said[0].Term {
				return fmt.Errorf("they say %+v", said)
			}
		}
		return nil
	})
	return leader
}

// knows waits until the leader knows whether each voter is healthy, and until its log
// says so, where the log tells of voters.
func (s *stage) knows(leader *process, healthy func(id string) bool) {
	s.t.Helper()
	s.eventually(30*time.Second, "knowledge at "+leader.id+" of who is healthy", func() error {
		v, err := s.view(leader)
		if err != nil {
			return err
		}
		for _, m := range v.Members {
			if m.Healthy != healthy(m.ID) {
				return fmt.Errorf("%s is healthy: %t", m.ID, m.Healthy)
			}
		}
		if s.level < healthLevel {
			return nil
		}
		story, err := s.tells(leader, 0)
		if err != nil {
			return err
		}
		last := map[string]string{}
		for _, e := range story {
			last[e.payload["voter_id"]] = e.kind
		}
		for _, p := range s.nodes {
			if told := last[p.id] != "VOTER_OFFLINE"; told != healthy(p.id) {
				return fmt.Errorf("of %s the log says %q", p.id, last[p.id])
			}
		}
		return nil
	})
}

func (s *stage) offline(leader *process, gone ...*process) {
	s.t.Helper()
	s.knows(leader, func(id string) bool {
		return !slices.ContainsFunc(gone, func(p *process) bool { return p.id == id })
	})
}

// whole waits until everybody is back.
func (s *stage) whole() {
	s.t.Helper()
	s.knows(s.leads(s.nodes...), func(string) bool { return true })
	s.converged()
}

// refuses requires that a node refuses a write because there is no quorum, and that
// until then it acknowledges none.
func (s *stage) refuses(p *process) {
	s.t.Helper()
	web := http.Client{Transport: p.web.Transport, Timeout: 3 * time.Second}
	s.eventually(30*time.Second, "refusal by "+p.id, func() error {
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

// without lets an outage last, in which these nodes refuse whatever they are asked.
func (s *stage) without(nodes ...*process) {
	s.t.Helper()
	tick, over := time.NewTicker(100*time.Millisecond), time.After(outageLasts)
	defer tick.Stop()
	for {
		for _, p := range nodes {
			s.refuses(p)
		}
		select {
		case <-tick.C:
		case <-over:
			return
		}
	}
}

// behind requires that the nodes that are cut off do not tell yet what the others do:
// else one node's story would be compared with itself.
func (s *stage) behind() {
	s.t.Helper()
	stories, err := s.stories(0)
	if err != nil {
		s.t.Fatal(err)
	}
	if story, err := sameStory(stories); err == nil {
		s.t.Fatalf("all nodes tell the same %d events while some are cut off", len(story))
	}
}
