package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// sees returns the status of a node of three voters: which leader it follows, and which members it does not reach.
func sees(id, leader string, silent ...string) answer[nodeStatus] {
	var s nodeStatus
	s.NodeID, s.ClusterID, s.Role, s.LeaderID, s.Term = id, "c", api.RoleFollower, leader, 7
	switch leader {
	case id:
		s.Role = api.RoleLeader
	case "":
		s.Role = api.RoleCandidate
	}
	healthy := 0
	for _, member := range []string{"n1", "n2", "n3"} {
		m := api.Member{ID: member, HTTP: member, Voter: true, Healthy: !strings.Contains(strings.Join(silent, " "), member)}
		s.Members = append(s.Members, m)
		if m.Healthy {
			healthy++
		}
	}
	s.Quorum = api.Quorum{Voters: 3, Needed: 2, Healthy: healthy, Margin: healthy - 2}
	return answer[nodeStatus]{url: "http://" + id, value: s}
}

// Nodes that refuse to show their status have answered: they say what is wrong, whoever else is silent.
func TestANodeThatRefusesHasAnswered(t *testing.T) {
	refusal := `{"error":{"code":"no_leader","reason":"cut_off","message":"it hears no leader","remedy":"ask another"}}`
	cutOff := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, refusal, http.StatusServiceUnavailable)
	}))
	defer cutOff.Close()
	silent := "http://127.0.0.1:1"
	for _, endpoints := range [][]string{{silent, cutOff.URL}, {cutOff.URL, silent}} {
		sh := &shell.Shell{Endpoints: endpoints, Timeout: time.Minute, Getenv: func(string) string { return "" }}
		found, err := askEverybody(t.Context(), sh, statusOf)
		if answer, is := errors.AsType[*api.Error](err); !is || answer.Reason != api.ReasonCutOff {
			t.Errorf("%v: %v", endpoints, err)
		}
		// Without a leader the cluster accepts nothing, which is no less than silence.
		state, bad, _ := judgeSweep(found, err, endpoints, checkOptions{})
		if text := problemsText(bad); state != checkCritical || text != "no_leader: it hears no leader: ask another" {
			t.Errorf("%v: %d: %s", endpoints, state, text)
		}
		if _, err = lookAtCluster(t.Context(), sh); shell.Brief(err) != "no_leader: it hears no leader" {
			t.Errorf("%v: %v", endpoints, err)
		}
		if _, _, err = sh.AnyStatus(t.Context()); shell.Brief(err) != "no_leader: it hears no leader" {
			t.Errorf("%v: %v", endpoints, err)
		}
	}
}

// Without the cluster token digests are those of the nodes' newest states, which need not be of one index.
func TestDigestsAreComparedWithAnyToken(t *testing.T) {
	bearer, _, _ := api.MakeToken("")
	for name, c := range map[string]struct {
		digests     []string // of the nodes
		ok, notDone bool
	}{
		"the same":       {[]string{`{"index":7,"hex":"aa"}`, `{"index":7,"hex":"aa"}`}, true, false},
		"different":      {[]string{`{"index":7,"hex":"aa"}`, `{"index":7,"hex":"bb"}`}, false, false},
		"of two indexes": {[]string{`{"index":7,"hex":"aa"}`, `{"index":8,"hex":"bb"}`}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			sh := &shell.Shell{Token: bearer, Out: io.Discard, Err: io.Discard, Getenv: os.Getenv}
			var urls []string
			for _, digest := range c.digests {
				node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path != "/status" {
						http.NotFound(w, r)
						return
					}
					fmt.Fprintf(w, `{"digest":%s}`, digest)
				}))
				defer node.Close()
				urls = append(urls, node.URL)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			f := compareDigests(ctx, sh, urls)
			if f.OK != c.ok || f.NotDone != c.notDone || (sh.PrintFindings([]shell.Finding{f}) == nil) != (c.ok || c.notDone) {
				t.Errorf("%+v", f)
			}
		})
	}
}

func TestACheckJudgesOverAllNodes(t *testing.T) {
	foreign := sees("n1", "n1", "n2", "n3")
	foreign.value.ClusterID = "d"
	full := sees("n2", "n2")
	full.value.Members[2].Disk = &api.Disk{FreeBytes: 5 << 20, MinFreeBytes: 64 << 20, Full: true}
	letters := sees("n2", "n2")
	letters.value.DeadLetters = api.LetterStats{Count: 3, Redriven: 1, Bytes: 91, MaxBytes: 100}
	down := answer[nodeStatus]{url: "http://n3", err: errors.New("refused")}
	wrongToken := answer[nodeStatus]{url: "http://n3", err: fmt.Errorf("%w", &api.Error{Code: api.Unauthenticated})}
	old := answer[nodeStatus]{url: "http://old", err: errors.New("refused")}
	certified := func(id string, left time.Duration) answer[nodeStatus] {
		a := sees(id, "n2")
		a.value.TLS = &api.TLS{Mode: "require", Expires: time.Now().Add(left)}
		return a
	}
	unread := certified("n3", 60*24*time.Hour)
	unread.value.TLS.Problem = "no such file"
	removed := sees("n3", "")
	removed.value.JoinRefused = "it was removed"
	for _, test := range []struct {
		name    string
		answers []answer[nodeStatus]
		state   int
		words   []string // "" is none
	}{
		{"all well", []answer[nodeStatus]{sees("n1", "n2"), sees("n2", "n2"), sees("n3", "n2")}, checkOK, nil},
		{
			"the old leader is cut off alone, and asked first",
			[]answer[nodeStatus]{sees("n1", "", "n2", "n3"), sees("n2", "n2", "n1"), sees("n3", "n2", "n1")},
			checkWarning,
			[]string{"member n1 does not answer", "n1 sees no leader", "n1 gets no answer from"},
		},
		{
			"a bridge: the leader hears both, they do not hear each other",
			[]answer[nodeStatus]{sees("n1", "n2", "n3"), sees("n2", "n2"), sees("n3", "n2", "n1")},
			checkWarning,
			[]string{"n1 gets no answer from n3", "n3 gets no answer from n1"},
		},
		{
			"nobody leads",
			[]answer[nodeStatus]{sees("n1", "", "n2", "n3"), sees("n2", "", "n1", "n3")},
			checkCritical,
			[]string{"no leader", "no quorum"},
		},
		{
			"two clusters",
			[]answer[nodeStatus]{foreign, sees("n2", "n2", "n1"), sees("n3", "n2", "n1")},
			checkCritical,
			[]string{"2 clusters: c (n2 at http://n2, n3 at http://n3), d (n1 at http://n1)"},
		},
		{
			"a follower's disk",
			[]answer[nodeStatus]{sees("n1", "n2"), full, sees("n3", "n2")},
			checkWarning,
			[]string{"the disk of n3 is nearly full: 5 MiB free, 64 MiB needed"},
		},
		{
			"dead letters for which there is no room soon",
			[]answer[nodeStatus]{sees("n1", "n2"), letters, sees("n3", "n2")},
			checkWarning,
			[]string{"dead letters take 91 B of 100 B"},
		},
		{
			"an endpoint that only this monitor misses",
			[]answer[nodeStatus]{sees("n1", "n2"), sees("n2", "n2"), down},
			checkWarning,
			[]string{"http://n3 does not answer this command, but n2 has n3 as healthy"},
		},
		{
			"an endpoint that no member has any more",
			[]answer[nodeStatus]{sees("n1", "n2"), sees("n2", "n2"), sees("n3", "n2"), old},
			checkWarning,
			[]string{"http://old does not answer, and no member has that URL: correct --endpoints"},
		},
		{
			"a node with another token",
			[]answer[nodeStatus]{sees("n1", "n2", "n3"), sees("n2", "n2", "n3"), wrongToken},
			checkWarning,
			[]string{"http://n3 refuses the token of this command"},
		},
		{
			"a node that was removed",
			[]answer[nodeStatus]{sees("n1", "n2"), sees("n2", "n2"), removed},
			checkWarning,
			[]string{"n3 is not admitted to the cluster: it was removed"},
		},
		{
			"certificates that are to be renewed in time",
			[]answer[nodeStatus]{certified("n1", 31*24*time.Hour), certified("n2", 31*24*time.Hour), sees("n3", "n2")},
			checkOK,
			nil,
		},
		{
			"certificates that are to be renewed now",
			[]answer[nodeStatus]{certified("n1", 10*24*time.Hour), certified("n2", -time.Second), unread},
			checkWarning,
			[]string{"n1 has a certificate, or a CA, that expires in 10d", "n2 has a certificate, or a CA, that has expired",
				"n3 keeps an older certificate, as it cannot use the files that it has: no such file"},
		},
	} {
		found := sweep[nodeStatus]{
			answers: test.answers,
			members: map[string]string{"http://n1": "n1", "http://n2": "n2", "http://n3": "n3"},
		}
		state, words, _ := judgeAll(found, []string{"http://n1", "http://n2", "http://n3", "http://old"}, checkOptions{})
		text := problemsText(words)
		if state != test.state || (text == "") != (test.words == nil) {
			t.Errorf("%s: %d, %q", test.name, state, text)
		}
		for _, part := range test.words {
			said := strings.ReplaceAll(text, "no leader, gets no answer from", "no leader; n1 gets no answer from")
			if !strings.Contains(said, part) {
				t.Errorf("%s: %q, which should say %q", test.name, text, part)
			}
		}
	}
}

// While a cluster is forming the check says that, and whom the nodes wait for. No endpoint is to blame.
func TestACheckOfAClusterThatIsForming(t *testing.T) {
	forms := func(id string) answer[nodeStatus] {
		var s nodeStatus
		s.NodeID, s.Role, s.NotFormed = id, api.RoleFollower, "the cluster is not formed yet: 2 of 3 nodes known (n1, n2); "+
			"waiting for http://n3: connection refused"
		return answer[nodeStatus]{url: "http://" + id, value: s}
	}
	silent := answer[nodeStatus]{url: "http://n3", err: errors.New("refused")}
	found := sweep[nodeStatus]{answers: []answer[nodeStatus]{silent, forms("n1"), forms("n2")}}
	state, words, _ := judgeAll(found, []string{"http://n1", "http://n2", "http://n3"}, checkOptions{})
	want := "n1 is not in a cluster: " + forms("n1").value.NotFormed
	if text := problemsText(words); state != checkCritical || text != want {
		t.Errorf("%d, %q, not %q", state, text, want)
	}
	// A wrong token is not a part of forming.
	silent.err = fmt.Errorf("%w", &api.Error{Code: api.Unauthenticated})
	found.answers[0] = silent
	if _, words, _ := judgeAll(found, []string{"http://n3"}, checkOptions{}); len(words) != 2 {
		t.Errorf("%q", words)
	}
}

// With --nodes what ails those who use the cluster is left out, and what ails a node is not.
func TestACheckOfTheNodesAlone(t *testing.T) {
	s := sees("n1", "n1").value
	s.Cursors = []api.Cursor{{Name: "idle", LagEvents: 3, Stalled: &api.Stall{},
		Backpressure: &api.LagPressure{ActivateAt: 3, Since: time.Now()}}}
	s.Subscriptions.CriticalDetached, s.Subscriptions.CriticalUnheard = 1, 1
	s.Backpressure.Active = true
	if state, words := judge(s, checkOptions{}); state != checkWarning || len(words) != 5 {
		t.Errorf("%d, %q", state, words)
	}
	if state, words := judge(s, checkOptions{nodes: true}); state != checkOK || len(words) != 0 {
		t.Errorf("with --nodes: %d, %q", state, words)
	}
	if state, words := judge(sees("n1", "n1", "n3").value, checkOptions{nodes: true}); state != checkWarning {
		t.Errorf("a node that is missing: %d, %q", state, words)
	}
}
