package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/offline"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/raftnode/blackbox"
)

func TestChaptersInWords(t *testing.T) {
	for _, c := range []struct{ chapter, gap, details string }{
		{`{"type":"LEADER_ELECTED","gap_seconds":1.2044,"payload":{"cause":"heartbeat_timeout",` +
			`"leader_id":"n2","previous_leader":"n1","leaderless_ms":1204}}`,
			"1.2s without a leader", "heartbeat_timeout, after n1"},
		{`{"type":"LEADER_ELECTED","payload":{"cause":"stepdown","previous_leader":"n1",` +
			`"skipped_terms":[{"term":4,"leader":"n3"},{"term":5,"leader":"n1"}]}}`,
			"", "stepdown, after n1, no leader from term 4 (n3) term 5 (n1)"},
		{`{"type":"LEADER_STEPDOWN","payload":{"leader_id":"n1","target":"n3","cause":"operator"}}`, "", "operator, to n3"},
		{
			`{"type":"VOTER_OFFLINE","payload":{"voter_id":"n2","reason":"raft","last_contact_ms":1600,` +
				`"active_voters":2,"voters":3}}`,
			"",
			"no contact over raft, 2 of 3 voters online",
		},
		{
			`{"type":"VOTER_DEMOTED","payload":{"voter_id":"n2","active_voters":2,"voters":2,"reason":"dead_server"}}`,
			"",
			"dead_server, 2 of 2 voters online",
		},
		{
			`{"type":"QUORUM_AT_RISK","payload":{"healthy":2,"voters":3,"quorum":2,"limiting":["n2"],"cause":"voter_offline"}}`,
			"",
			"voter_offline, 2 of 3 voters healthy, missing n2",
		},
		{
			`{"type":"QUORUM_PRIORITY_RECONNECT","payload":{"voters":["n2","n4"],"reason":"no_failure_to_spare"}}`,
			"",
			"no_failure_to_spare, n2 n4",
		},
		{`{"type":"QUORUM_LOST","payload":{"incident":3,"seen_by":["n1","n2"],"down":["n3"],"voters":3,` +
			`"quorum":2,"cause":"unreachable","refused":12,"views":[{"voter_id":"n1"}]}}`,
			"", "unreachable, incident 3, n3 did not run, seen by n1 n2, 12 writes refused"},
		{
			`{"type":"QUORUM_RESTORED","gap_seconds":31.04,"payload":{"after":"lost","incident":3,` +
				`"healthy":2,"voters":3,"refused":1}}`,
			"31s without a quorum",
			"2 of 3 voters healthy, incident 3, 1 write refused",
		},
		{
			`{"type":"QUORUM_RESTORED","gap_seconds":4000,"payload":{"after":"at_risk","healthy":3,"voters":3}}`,
			"1h6m40s without a spare voter",
			"3 of 3 voters healthy",
		},
		{
			`{"type":"QUORUM_OUTAGE_VIEW","gap_seconds":5,"payload":{"voter_id":"n3",` +
				`"cluster_had_quorum":true,"cause":"unreachable","unreachable":["n1","n2"]}}`,
			"5s cut off",
			"unreachable, n1 n2 unreachable",
		},
		{
			`{"type":"QUORUM_OUTAGE_VIEW","gap_seconds":5,"payload":{"voter_id":"n3","cluster_had_quorum":false,"incident":3}}`,
			"5s without a quorum",
			"incident 3",
		},
		{`{"type":"SPLIT_BRAIN_DETECTED","payload":{"term":7,"leaders":["n1","n2"]}}`, "", "claimed by n1 n2"},
		{
			`{"type":"CATCHUP_AT_RISK","payload":{"member_id":"n4","trailing_entries":9000,` +
				`"entries_left":1240,"truncated_in_ms":3000}}`,
			"",
			"lagging by 9000 entries, 1240 left",
		},
		{`{"type":"QUORUM_OF_A_NEWER_BUILD","payload":{"odd":{"a":[1,null]}}}`, "", ""},
	} {
		var got chapter
		if err := json.Unmarshal([]byte(c.chapter), &got); err != nil {
			t.Fatal(err)
		}
		if got.gap() != c.gap || got.details() != c.details {
			t.Errorf("%s\n  is  %q, %q\n  not %q, %q", c.chapter, got.gap(), got.details(), c.gap, c.details)
		}
	}
}

// A busy cluster changes its figures all the time; a watch that printed for them would
// never be quiet.
func TestWhatCountsAsAChange(t *testing.T) {
	since := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	look := func() []clusterRow {
		server := api.ServerHealth{
			ID:              "n2",
			Voter:           true,
			Healthy:         true,
			Since:           since,
			TrailingEntries: 3,
			TrailingSeconds: 0.2,
			LastContactMs:   40,
			Why:             "stable for 2 s of 10 s",
		}
		leader := clusterRow{
			URL:     "http://a",
			ID:      "n1",
			Role:    "leader",
			Leader:  "n1",
			Term:    3,
			First:   1,
			Last:    9,
			Applied: 20,
			Margin:  new(1),
			Health:  &api.Health{Voters: []api.VoterHealth{{ID: "n1", Online: true}, {ID: "n2", Online: true}}},
			Autopilot: &api.Autopilot{
				Healthy:          true,
				FailureTolerance: 1,
				Servers:          []api.ServerHealth{server},
			},
		}
		outage := &api.Outage{
			Since:   since,
			Cause:   "unreachable",
			Refused: 2,
			Peers:   []api.OutagePeer{{ID: "n1", LastContactMs: 900}, {ID: "n3", Reachable: true}},
		}
		alone := clusterRow{URL: "http://b", ID: "n2", Role: "follower", Term: 3, Margin: new(-1), Outage: outage}
		return []clusterRow{
			leader,
			alone,
			{URL: "http://c", ID: "n3", Role: "unreachable", Error: "read tcp 127.0.0.1:40001: timeout"},
		}
	}
	shape := func(change func([]clusterRow)) string {
		rows := look()
		change(rows)
		text, err := shapeOf(rows)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	before := shape(func([]clusterRow) {})
	for name, change := range map[string]func([]clusterRow){
		"offsets": func(r []clusterRow) { r[0].First, r[0].Last, r[0].Applied = 4, 90, 200 },
		"contact": func(r []clusterRow) { r[0].Autopilot.Servers[0].LastContactMs = 400 },
		"trailing": func(r []clusterRow) {
			s := &r[0].Autopilot.Servers[0]
			s.TrailingEntries, s.TrailingSeconds = 40, 1.5
		},
		"reason":      func(r []clusterRow) { r[0].Autopilot.Servers[0].Why = "stable for 3 s of 10 s" },
		"peer's age":  func(r []clusterRow) { r[1].Outage.Peers[0].LastContactMs = 2000 },
		"refusals":    func(r []clusterRow) { r[1].Outage.Refused = 200 },
		"candidacy":   func(r []clusterRow) { r[1].Role, r[1].Term = "candidate", 9 },
		"error's way": func(r []clusterRow) { r[2].Error = "read tcp 127.0.0.1:40002: timeout" },
	} {
		if shape(change) != before {
			t.Errorf("%s: counts as a change", name)
		}
	}
	for name, change := range map[string]func([]clusterRow){
		"role":        func(r []clusterRow) { r[0].Role = "follower" },
		"leader":      func(r []clusterRow) { r[0].Leader = "n2" },
		"term":        func(r []clusterRow) { r[0].Term = 4 },
		"answer":      func(r []clusterRow) { r[2].Role = "follower" },
		"spare":       func(r []clusterRow) { r[0].Margin = new(0) },
		"health":      func(r []clusterRow) { r[0].Autopilot.Servers[0].Healthy = false },
		"suffrage":    func(r []clusterRow) { r[0].Autopilot.Servers[0].DesiredSuffrage = "vote" },
		"tolerance":   func(r []clusterRow) { r[0].Autopilot.FailureTolerance = 0 },
		"online":      func(r []clusterRow) { r[0].Health.Voters[1].Online = false },
		"catch-up":    func(r []clusterRow) { r[0].Health.CatchupAtRisk = []string{"n2"} },
		"outage":      func(r []clusterRow) { r[1].Outage = nil },
		"peer's word": func(r []clusterRow) { r[1].Outage.Peers[0].Reachable = true },
		"fewer":       func(r []clusterRow) { r[2] = clusterRow{} },
	} {
		if shape(change) == before {
			t.Errorf("%s: does not count as a change", name)
		}
	}
}

func TestHealthInWords(t *testing.T) {
	now := time.Date(2026, 1, 5, 10, 1, 0, 0, time.UTC)
	autopilot := &api.Autopilot{
		FailureTolerance: 1,
		Limiting:         []string{"n3: no answer for 4.2 s"},
		Servers: []api.ServerHealth{
			{ID: "n1", Voter: true, Healthy: true},
			{
				ID:              "n2",
				Voter:           true,
				Healthy:         true,
				Since:           now.Add(-time.Minute),
				TrailingEntries: 3,
				TrailingSeconds: 0.25,
				LastContactMs:   40,
				DesiredSuffrage: api.DesiredVote,
			},
			{ID: "n3", Voter: true, Since: now.Add(-4 * time.Second), LastContactMs: 4200, Why: "no answer for 4.2 s"},
			{
				ID:              "n4",
				Since:           now.Add(-time.Hour),
				TrailingEntries: 90000,
				TrailingSeconds: 300,
				LastContactMs:   -1,
				DesiredSuffrage: api.DesiredVote,
				Why:             "trails by 90000 entries",
			},
		},
	}
	leader := clusterRow{ID: "n1", Cluster: "c", Role: api.RoleLeader, Health: &api.Health{CatchupAtRisk: []string{"n4"}},
		Autopilot: autopilot}
	alone := clusterRow{ID: "n5", Cluster: "c",
		Outage: &api.Outage{Since: now.Add(-31 * time.Second), Cause: "unreachable", Refused: 7}}
	var out bytes.Buffer
	rows := []clusterRow{leader, {ID: "n2", Cluster: "c"}, alone, {ID: "n6"}}
	if err := printVerdict(&shell.Shell{Out: &out}, rows, now); err != nil {
		t.Fatal(err)
	}
	if err := printHealth(&shell.Shell{Out: &out}, rows, now); err != nil {
		t.Fatal(err)
	}
	want := `n6 is not in a cluster: see its log
1 healthy voter may fail; limited by n3: no answer for 4.2 s
about to lag too far for the raft log, and to need a snapshot: n4
n5 sees no quorum: unreachable, for 31s; 7 writes refused (see ringlog cluster outage)

FOLLOWER  IS       HEALTHY  LAG                LAST CONTACT  WHY
n2        voter    yes, 1m  3 entries, 250ms   40ms
n3        voter    no, 4s   0 entries          4.2s          no answer for 4.2 s
n4        joining  no, 1h   90000 entries, 5m  never         trails by 90000 entries
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Error(d)
	}
	for line := range strings.Lines(out.String()) {
		if len(line) > 101 {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
}

func TestAnOutageInWords(t *testing.T) {
	now := time.Date(2026, 1, 5, 10, 1, 0, 0, time.UTC)
	quorum := &api.Quorum{Voters: 3, Needed: 2, Healthy: 3, Margin: 1}
	outage := &api.Outage{
		Since:   now.Add(-31200 * time.Millisecond),
		Cause:   "unreachable",
		Term:    4,
		Leader:  "n3",
		Refused: 12,
		Peers: []api.OutagePeer{
			{ID: "n2", Reachable: true, LastContactMs: 250},
			{ID: "n3", LastContactMs: -1},
		},
	}
	lasting := nodeOutage{URL: "http://a", NodeID: "n1", Quorum: quorum, Outage: outage}
	want := `n1 at http://a sees no quorum: unreachable, for 31.2s
  since         2026-01-05T10:00:28.800Z
  last leader   n3 (term 4)
  writes        12 refused here
  n2            answers, last contact 250ms ago
  n3            unreachable, no contact yet
`
	if d := cmp.Diff(want, lasting.text(now)); d != "" || lasting.seesQuorum() {
		t.Error(d)
	}
	for _, c := range []struct {
		quorum api.Quorum
		want   string
		sees   bool
	}{
		{*quorum, "n1 at http://a sees a quorum: 3 of 3 voters healthy, 2 needed, 1 to spare\n", true},
		{
			api.Quorum{Voters: 3, Needed: 2, Healthy: 1, Margin: -1},
			"n1 at http://a is about to lose the quorum: 1 of 3 voters healthy, 2 needed, 1 missing\n",
			false,
		},
		{api.Quorum{Needed: 1, Margin: -1}, "n1 at http://a is in no cluster\n", false},
	} {
		o := nodeOutage{URL: "http://a", NodeID: "n1", Quorum: &c.quorum}
		if got := o.text(now); got != c.want || o.seesQuorum() != c.sees {
			t.Errorf("%q, %v", got, o.seesQuorum())
		}
	}
}

func TestTheOutageThatAJournalEndsIn(t *testing.T) {
	at := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	lost := blackbox.Record{Kind: blackbox.Lost, Since: at, Cause: "no_leader", Leader: "n2", Term: 5}
	view := blackbox.Record{Kind: blackbox.View, Refused: 9, Peers: []blackbox.Peer{{ID: "n2", Reachable: true}}}
	restored := blackbox.Record{Kind: blackbox.Restored, Since: at}
	if o := offline.OpenOutage([]blackbox.Record{lost, view, restored, {Kind: blackbox.Stalled}, view}); o != nil {
		t.Errorf("over, and still %+v", o)
	}
	o := offline.OpenOutage([]blackbox.Record{lost, restored, lost, view, {Kind: blackbox.LeaseExpired}})
	want := &api.Outage{
		Since:   at,
		Cause:   "no_leader",
		Leader:  "n2",
		Term:    5,
		Refused: 9,
		Peers:   []api.OutagePeer{{ID: "n2", Reachable: true}},
	}
	if d := cmp.Diff(want, o); d != "" {
		t.Error(d)
	}
}

// What the cluster emits is in the catalogue, field by field, with its type.
func TestTheCatalogueKnowsWhatTheClusterEmits(t *testing.T) {
	seen := map[event.Type][]string{}
	for _, e := range clusterEvents() {
		_, warnings, err := (&event.Policy{Strict: true, Reserved: event.ReservedOwn}).Normalize(&e)
		if err != nil || len(warnings) != 0 {
			t.Errorf("%s %s: %v, %v", e.Type, e.Payload, warnings, err)
		}
		var payload map[string]any
		if err := json.Unmarshal(e.Payload, &payload); err != nil {
			t.Fatal(err)
		}
		seen[e.Type] = append(seen[e.Type], slices.Sorted(maps.Keys(payload))...)
	}
	for kind, fields := range seen {
		d, known := event.Builtin().Definition(kind)
		if !known {
			t.Errorf("%s is not in the catalogue", kind)
			continue
		}
		for _, f := range d.Payload {
			if !slices.Contains(fields, f.Name) {
				t.Errorf("%s has no field %s, the catalogue does", kind, f.Name)
			}
		}
	}
	for _, kind := range []event.Type{
		event.LeaderElected,
		event.LeaderLost,
		event.LeaderStepdown,
		event.LeaderHeartbeatMissing,
		event.LeaderLeaseExpired,
		event.VoterOnline,
		event.VoterOffline,
		event.VoterPromoted,
		event.VoterDemoted,
		event.QuorumAtRisk,
		event.QuorumLost,
		event.QuorumRestored,
		event.QuorumRecoveryStarted,
		event.QuorumPriorityReconnect,
		event.QuorumOutageView,
		event.SplitBrainDetected,
		event.SplitBrainResolved,
		event.CatchupAtRisk,
	} {
		if seen[kind] == nil {
			t.Errorf("no %s was seen", kind)
		}
	}
}

// clusterEvents lets the cluster's own state machines emit everything they can.
func clusterEvents() (events []event.Event) {
	at := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	record := func(list []event.Event) { events = append(events, list...) }
	after := func(seconds int) time.Time { return at.Add(time.Duration(seconds) * time.Second) }

	var l election.Leadership
	record(l.Observe(election.Entry{Term: 1, Proposer: "n1", Time: at, Detailed: true}))
	record(l.Observe(election.Entry{
		Term:     4,
		Proposer: "n2",
		Time:     after(9),
		Cause:    election.CauseHeartbeat,
		Silence:  time.Second,
		Detailed: true,
		Seen:     []election.TermSeen{{Term: 2, Leader: "n3"}},
	}))
	l.Announce(&election.Intent{Target: "n3", Cause: "operator"})
	record(l.Observe(election.Entry{Term: 5, Proposer: "n3", Time: after(10), Detailed: true}))

	var h election.Health
	reason := func(string) string { return "join" }
	record(h.Configure(at, []string{"n1", "n2"}, reason))
	record(h.Configure(after(1), []string{"n1", "n2", "n3", "n4"}, reason))
	record(h.Configure(after(2), []string{"n1", "n2", "n3"}, reason))
	record(h.Report(after(10), election.VoterReport{Voter: "n2", LastContactMs: 1600, Reason: election.ReasonHTTP}, 0))
	record(h.Report(after(20), election.VoterReport{Voter: "n2", Online: true, LastContactMs: 20}, 0))
	record(h.Claimed(after(21), 5, []string{"n1", "n3"}, false))
	record(h.NewTerm(6, "n3", after(22), election.Span{}))
	record(h.Trails(election.Trail{
		Member:      "n4",
		AtRisk:      true,
		Trailing:    9000,
		Left:        100,
		Rate:        10,
		LogRate:     50,
		TruncatedIn: time.Second,
	}))

	view := func(voter string, seq uint64, kind string, from, to int) election.View {
		return election.View{
			Voter:       voter,
			Journal:     "j-" + voter,
			Seq:         seq,
			Kind:        kind,
			Began:       after(from),
			Regained:    after(to - 1),
			Ended:       after(to),
			Term:        6,
			Leader:      "n3",
			Cause:       election.CauseUnreachable,
			Refused:     4,
			Unreachable: []string{"n2", "n3"},
		}
	}
	evidence := election.Evidence{
		Views: []election.View{view("n1", 1, election.ViewLost, 30, 60), view("n3", 1, election.ViewLease, 30, 31)},
		Up: []election.Up{
			{Voter: "n2", Since: after(59), Before: after(29)},
			{Voter: "n3", Since: after(59), Before: after(29)},
		},
		Led: []election.Span{{Term: 7, Leader: "n1", From: after(60), To: after(70)}},
	}
	record(h.Reconcile(evidence))
	evidence.Up = nil
	evidence.Views = []election.View{view("n3", 2, election.ViewLost, 30, 60), view("n2", 1, election.ViewLost, 80, 90)}
	record(h.Reconcile(evidence))
	return events
}
