package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
)

func TestFlagsMayStandAnywhere(t *testing.T) {
	app := newApp(&shell.Shell{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &bytes.Buffer{}})
	for typed, want := range map[string]string{
		"ringlog get 7 --json":                           "ringlog --json get 7",
		"ringlog publish T --payload {} -e u --no-dedup": "ringlog -e u publish --payload {} --no-dedup T",
		"ringlog tail --from -10 -o json":                "ringlog -o json tail --from -10",
		"ringlog cursor --json seek c --to=-5":           "ringlog --json cursor seek --to=-5 c",
		"ringlog catalogue validate - --strict":          "ringlog catalogue validate --strict -",
		"ringlog tail -n5 --json":                        "ringlog --json tail -n 5",
		"ringlog get -- --json":                          "ringlog get -- --json",
		"ringlog tail --nosuch x --json":                 "ringlog --json tail --nosuch x",
		"ringlog cursor rm rm --yes":                     "ringlog cursor rm --yes rm",
		"ringlog run --role r date now":                  "ringlog run --role r date now",
		"ringlog run --role r --json -- d -o x":          "ringlog --json run --role r -- d -o x",
	} {
		args, err := shell.Intersperse(app, strings.Fields(typed))
		if got := strings.Join(args, " "); got != want || err != nil {
			t.Errorf("%s\n  became %s\n  not    %s (%v)", typed, got, want, err)
		}
	}
	// The flag could be of either.
	for _, typed := range []string{
		"ringlog run --role r d.sh -v",
		"ringlog react cat --group g",
		"ringlog run d --role r",
	} {
		args, err := shell.Intersperse(app, strings.Fields(typed))
		if shell.ExitCode(err) != shell.ExitUsage || !strings.Contains(err.Error(), "put -- before the command") {
			t.Errorf("%s became %s: %v", typed, args, err)
		}
	}
}

func membersWithFullDisks(voters, full int) (list []api.Member) {
	for i := range voters {
		list = append(list, api.Member{
			ID:      fmt.Sprintf("n%d", i+1),
			Voter:   true,
			Healthy: true,
			Disk:    &api.Disk{Full: i < full},
		})
	}
	return list
}

// What is wrong in a member's place is named, with what to do.
func TestTheNodeInAMembersPlaceIsNamed(t *testing.T) {
	var s nodeStatus
	s.NodeID, s.ClusterID, s.LeaderID = "n1", "c", "n1"
	s.Members = []api.Member{{ID: "n2", OtherToken: true}, {ID: "n3", OtherFolder: true}, {ID: "n4", OtherCluster: true},
		{ID: "n5"}}
	want := []string{
		"n2 and n1 have different cluster tokens: start both with the same --token-file",
		"another data folder answers as n3: if that is a second node, give it another --id; " +
			"else ringlog cluster remove n3, then it can join",
		"a node of another cluster answers as n4: stop it, and start n4 with its own data folder; " +
			"or ringlog cluster remove n4, and start it with an empty one",
		"member n5 does not answer: see whether it runs, and its log; if it never returns, ringlog cluster remove n5",
	}
	if got := problemsText(problems(s)); got != strings.Join(want, "; ") {
		t.Errorf("%q", got)
	}
	// Nobody can be removed without a quorum.
	s.Quorum.Margin = -1
	if got := problemsText(problems(s)); strings.Contains(got, "cluster remove") ||
		!strings.Contains(got, "cluster recover") {
		t.Errorf("without a quorum: %q", got)
	}
	// What a node says that is no member any more is as old as its folder.
	s.JoinRefused = "this node was removed"
	if got := problemsText(problems(s)); got != "n1 is not admitted to the cluster: this node was removed" {
		t.Errorf("removed: %q", got)
	}
}

// A node that has started without a leader does not know how far the log is committed.
func TestNoIndexIsCommittedBeforeItWasHeardOf(t *testing.T) {
	var s nodeStatus
	s.AppliedIndex = 161
	if got := indexText(s); got != "161 applied, no commit index heard of yet" {
		t.Error(got)
	}
	if s.CommitIndex = 162; indexText(s) != "161 applied, 162 committed" {
		t.Error(indexText(s))
	}
}

func TestCheckJudges(t *testing.T) {
	healthy := func() nodeStatus {
		var s nodeStatus
		s.NodeID, s.ClusterID, s.LeaderID = "n1", "c", "n1"
		s.Quorum = api.Quorum{Voters: 3, Needed: 2, Healthy: 3, Margin: 1}
		s.Cursors = []api.Cursor{{LagEvents: 100, LagSeconds: 30}}
		return s
	}
	for _, c := range []struct {
		name   string
		change func(*nodeStatus)
		opts   checkOptions
		want   int
	}{
		{"healthy", func(*nodeStatus) {}, checkOptions{}, checkOK},
		{"no voter to spare", func(s *nodeStatus) { s.Quorum.Healthy, s.Quorum.Margin = 2, 0 }, checkOptions{}, checkWarning},
		{"one voter has none to spare by nature", func(s *nodeStatus) {
			s.Quorum = api.Quorum{Voters: 1, Needed: 1, Healthy: 1}
		}, checkOptions{}, checkOK},
		{"silent member", func(s *nodeStatus) { s.Members = []api.Member{{ID: "n2"}} }, checkOptions{}, checkWarning},
		{"member with another folder", func(s *nodeStatus) {
			s.Members = []api.Member{{ID: "n2", Healthy: true, OtherFolder: true}}
		}, checkOptions{}, checkWarning},
		{"member that stores an entry now and then", func(s *nodeStatus) {
			s.Members = []api.Member{{ID: "n2", Healthy: true, StalledMs: 200}}
		}, checkOptions{}, checkOK},
		{"member that stores nothing", func(s *nodeStatus) {
			s.Members = []api.Member{{ID: "n2", Healthy: true, StalledMs: 4000}}
		}, checkOptions{}, checkWarning},
		{"no quorum", func(s *nodeStatus) { s.Quorum.Margin = -1 }, checkOptions{}, checkCritical},
		{"no leader", func(s *nodeStatus) { s.LeaderID = "" }, checkOptions{}, checkCritical},
		{"diverged", func(s *nodeStatus) { s.Diverged = true }, checkOptions{}, checkCritical},
		{"one full disk of three", func(s *nodeStatus) {
			s.Members = membersWithFullDisks(3, 1)
		}, checkOptions{}, checkWarning},
		{"two full disks of three", func(s *nodeStatus) {
			s.Members = membersWithFullDisks(3, 2)
		}, checkOptions{}, checkCritical},
		{"a single voter's full disk", func(s *nodeStatus) {
			s.Members = membersWithFullDisks(1, 1)
		}, checkOptions{}, checkCritical},
		{"a critical subscription without a listener", func(s *nodeStatus) {
			s.Subscriptions.CriticalUnheard = 1
		}, checkOptions{critUnheard: 2}, checkWarning},
		{"two of them at the limit", func(s *nodeStatus) {
			s.Subscriptions.CriticalUnheard, s.Subscriptions.CriticalDetached = 1, 1
		}, checkOptions{critUnheard: 2}, checkCritical},
		{"lag below", func(*nodeStatus) {}, checkOptions{warnLag: 101, critAge: time.Minute}, checkOK},
		{"lag at the warning", func(*nodeStatus) {}, checkOptions{warnLag: 100, critLag: 101}, checkWarning},
		{
			"age at the critical",
			func(*nodeStatus) {},
			checkOptions{warnAge: time.Second, critAge: 30 * time.Second},
			checkCritical,
		},
	} {
		s := healthy()
		c.change(&s)
		if got, words := judge(s, c.opts); got != c.want || (got != checkOK) != (len(words) > 0) {
			t.Errorf("%s: %d (%v), not %d", c.name, got, words, c.want)
		}
	}
}

func TestDigestsAreComparedAtTheNewestCommonIndex(t *testing.T) {
	for _, c := range []struct {
		name string
		at   map[uint64]map[string]int
		ok   bool
	}{
		{"equal", map[uint64]map[string]int{5: {"aa": 3}, 9: {"bb": 2}}, true},
		{"different", map[uint64]map[string]int{5: {"aa": 3}, 9: {"bb": 2, "cc": 1}}, false},
		{"different before, equal later", map[uint64]map[string]int{5: {"aa": 2, "x": 1}, 9: {"bb": 3}}, true},
		{"no index in common", map[uint64]map[string]int{5: {"aa": 1}, 6: {"bb": 2}}, false},
	} {
		if f, _ := judgeDigests(c.at, 3); f.OK != c.ok {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
}

// Nodes are compared at the newest offset at which all have a digest, and only if they have folded from the same one.
// Records that are printed with one time keep the order in which their node has written them.
func TestRecordsOfAJournalKeepTheirOrder(t *testing.T) {
	at := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	records := []localRecord{
		{NodeID: "n2", Seq: 1, Time: at.Add(time.Second)},
		{NodeID: "n1", Seq: 8, Time: at.Add(700 * time.Microsecond)},
		{NodeID: "n1", Seq: 9, Time: at.Add(200 * time.Microsecond)},
		{NodeID: "n1", Seq: 7, Time: at},
		{NodeID: "n2", Seq: 2, Time: at},
	}
	slices.SortFunc(records, compareRecords)
	var order []string
	for _, r := range records {
		order = append(order, fmt.Sprint(r.NodeID, "/", r.Seq))
	}
	if got, want := strings.Join(order, " "), "n1/7 n1/8 n1/9 n2/2 n2/1"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
}

func TestViewsAreComparedAtTheNewestCommonOffset(t *testing.T) {
	view := func(digests ...api.ViewDigest) api.View {
		return api.View{Name: "v", Generation: 2, Since: 1, Digests: digests}
	}
	first := view(api.ViewDigest{Offset: 1000, Hex: "a"}, api.ViewDigest{Offset: 2000, Hex: "b"},
		api.ViewDigest{Offset: 2007, Hex: "c"})
	changed := func(change func(*api.View)) api.View {
		v := view(first.Digests...)
		change(&v)
		return v
	}
	for name, c := range map[string]struct {
		second api.View
		found  string // "" if they agree
	}{
		"equal":   {first, ""},
		"further": {view(api.ViewDigest{Offset: 2000, Hex: "b"}, api.ViewDigest{Offset: 3000, Hex: "x"}), ""},
		"different": {view(api.ViewDigest{Offset: 1000, Hex: "a"}, api.ViewDigest{Offset: 2000, Hex: "x"}),
			`n1 and n2 have different rows of view "v" at offset 2000`},
		"far away":    {view(api.ViewDigest{Offset: 9000, Hex: "y"}), "there is no offset"},
		"not defined": {api.View{}, `n1 has generation 2 of view "v", n2 has 0`},
		"from a later offset": {changed(func(v *api.View) { v.From = 500 }),
			`view "v" begins at offset 1 on n1, at 500 on n2`},
		"failed": {changed(func(v *api.View) { v.Failed = "why" }), `n2 does not fold view "v" any further: why`},
	} {
		second := map[string]api.View{}
		if c.second.Name != "" {
			second["v"] = c.second
		}
		f := judgeViews([]answer[map[string]api.View]{{url: "n1", value: map[string]api.View{"v": first}},
			{url: "n2", value: second}})
		if f.OK != (c.found == "") || (!f.OK && !strings.HasPrefix(f.Found, c.found)) {
			t.Errorf("%s: %+v, want %q", name, f, c.found)
		}
	}
}

// All pages of a list are read, and the first request is one that an older node takes.
func TestAllPagesOfCursorsAreRead(t *testing.T) {
	pages := map[string]string{
		"":                     `{"cursors":[{"name":"a"},{"name":"b c"}],"next":"b c","cursors_total":4}`,
		"after=b+c&limit=1000": `{"cursors":[{"name":"d"}],"next":"d","cursors_total":4}`,
		"after=d&limit=1000":   `{"cursors":[{"name":"e"}],"cursors_total":4}`,
	}
	list, err := cursors(func(query url.Values, into any) error {
		page, known := pages[query.Encode()]
		if !known {
			return fmt.Errorf("asked for %q", query.Encode())
		}
		return json.Unmarshal([]byte(page), into)
	})
	names := ""
	for _, c := range list {
		names += c.Name + ","
	}
	if err != nil || names != "a,b c,d,e," {
		t.Errorf("%s %v", names, err)
	}
}

// Names of registered types may have characters that mean something in Markdown.
func TestTheReferenceShowsNamesAsTheyAre(t *testing.T) {
	text := reference(typeList{
		Types: []*event.Definition{
			{Name: "B", Value: "b", Category: "training", Payload: []event.Field{
				{Name: "a|b", Type: "any"}, {Name: "`x` <b>", Type: "string"},
			}},
			{Name: "A", Value: "a", Emitters: []string{"__init__.py:3", "*"}},
		},
		Own:     []*event.Definition{{Name: "C", Value: "c", Category: "training"}},
		Aliases: map[string]event.Type{"OLD_B": "B", "BB": "B"},
	})
	want := "# Event types\n\n3 types. No payload field is required.\n" +
		"\n## without a category\n\n### A\n\n- value: `a`\n- emitted by: `__init__.py:3`, `*`\n" +
		"- payload: not documented\n" +
		"\n## training\n\n### B\n\n- value: `b`\n- aliases: `BB`, `OLD_B`\n" +
		"\n| field | type |\n| --- | --- |\n| `a\\|b` | any |\n| `` `x` <b> `` | string |\n" +
		"\n### C\n\n- value: `c`\n- payload: not documented\n"
	if text != want {
		t.Errorf("%s\nnot\n%s", text, want)
	}
}

// The line of the status has the worst handlers first, and no limits that it does not know.
func TestTimeoutsText(t *testing.T) {
	h := func(name string, limit float64, timedOut uint64) api.HandlerTimeout {
		return api.HandlerTimeout{Client: "c", Subscription: name, TimeoutSeconds: limit,
			HandlerHealth: api.HandlerHealth{TimedOut: timedOut}}
	}
	for want, s := range map[string]api.HandlerTimeouts{
		"none registered":                       {},
		"2 handlers, 30s, no attempt timed out": {Handlers: []api.HandlerTimeout{h("a", 30, 0), h("b", 30, 0)}},
		"1 handler, no attempt timed out":       {Handlers: []api.HandlerTimeout{h("a", 0, 0)}},
		"2 handlers, 1s to 30s; timed out attempts: 5 (b of c: 5)": {TimedOut: 5,
			Handlers: []api.HandlerTimeout{h("b", 30, 5), h("a", 1, 0)}},
		"9 handlers; timed out attempts: 10 (a of c: 4, b of c: 3, d of c: 2)": {TimedOut: 10, LeftOut: 5,
			Handlers: []api.HandlerTimeout{h("a", 1, 4), h("b", 1, 3), h("d", 1, 2), h("e", 1, 1)}},
	} {
		if got := timeoutsText(s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A critical subscription without a listener has a row, too, after those that have a client.
func TestSubscriptionRows(t *testing.T) {
	lost := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	rows := subscriptionRows(
		[]api.Client{{ID: "a", Subscriptions: []api.Subscription{{Name: "x"}, {Name: "y"}}}, {ID: "b"}},
		[]api.Unheard{{Name: "z", Client: "c", Host: "gpu-1", Since: lost}})
	if len(rows) != 3 || rows[1].Name != "y" || rows[1].of.ID != "a" {
		t.Fatalf("%+v", rows)
	}
	if r := rows[2]; r.Name != "z" || r.State != "lost" || !r.Critical || r.of.ID != "c" || r.of.Host != "gpu-1" ||
		!r.of.Seen.Equal(lost) {
		t.Errorf("%+v", r)
	}
}
