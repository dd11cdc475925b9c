package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/log"
	"github.com/ringrift/ringlog/raftnode"
	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/raftstore"
)

// The flags of the command line take the positions that HTTP takes, apart from an empty one.
func TestPositionsAreReadAsEverywhere(t *testing.T) {
	table, err := os.ReadFile("../../api/testdata/positions.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		text, want := strings.TrimSpace(line[:32]), strings.TrimSpace(line[32:])
		p, err := parsePosition("from", text)
		if problem, wrong := strings.CutPrefix(want, "! "); wrong {
			if exitCode(err) != exitUsage || !strings.Contains(err.Error(), "--from") || !strings.Contains(err.Error(), problem) {
				t.Errorf("%q is read as %v, %v; want an error that says %q", text, p, err, problem)
			}
			continue
		}
		if err != nil || p.String() != want {
			t.Errorf("%q is read as %v, %v; want %s", text, p, err, want)
		}
	}
	if p, err := parsePosition("from", ""); exitCode(err) != exitUsage {
		t.Errorf("nothing is read as %v, %v", p, err)
	}
	for _, text := range []string{"", "0s", "-1d", "soon"} {
		if age, err := parseAge("older-than", text); exitCode(err) != exitUsage || !strings.Contains(err.Error(), "--older-than") {
			t.Errorf("%q is read as %s, %v", text, age, err)
		}
	}
}

func TestConfigurationLayers(t *testing.T) {
	file := "id = \"file\"\ndata-dir = \"/from/file\"\njoin = [\"http://a:1\", \"http://b:1\"]\nheartbeat = \"2s\"\nbootstrap-expect = 3\n"
	set := map[string]string{"id": "flag", "join": "http://c:1", "bootstrap-expect": "5"}
	got, err := layered("ringlog.toml", []byte(file), func(name string) (string, bool) { v, ok := set[name]; return v, ok })
	if err != nil {
		t.Fatal(err)
	}
	want := serveDefaults()
	want.ID, want.DataDir, want.Join, want.BootstrapExpect, want.Heartbeat = "flag", "/from/file", []string{"http://c:1"}, 5, interval{2 * time.Second}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestConfigurationProblemsAreNamed(t *testing.T) {
	nothing := func(string) (string, bool) { return "", false }
	for file, want := range map[string]string{
		"id = \"a\"\ndata_dir = \"x\"\n": `f.toml:2: there is no key "data_dir". Did you mean "data-dir"?`,
		"id = \"a\"\n\n[http]\nx = 1\n":  "f.toml:3",
		"bootstrap-expect = \"three\"\n": "f.toml:1: bootstrap-expect: the value is of the wrong type: write bootstrap-expect = 3",
		"id = \n":                        "f.toml:1",
		"id = \"a\"\nid = \"b\"\n":       "f.toml:2:1: key id is already defined",
		"leader-lease = 5\n":             `f.toml:1: leader-lease: the value is of the wrong type: write leader-lease = "1s"`,
		"heartbeat = \"soon\"\n":         `f.toml:1: heartbeat: time: invalid duration "soon": write heartbeat = "1s"`,
		"ping-interval = 500\n":          `f.toml:1: ping-interval: the value is of the wrong type: write ping-interval = "1s"`,
		"ping-misses = \"3\"\n":          `f.toml:1: ping-misses: the value is of the wrong type: write ping-misses = 3`,
		"\nraft-compact-interval = 30\n": `f.toml:2: raft-compact-interval: the value is of the wrong type: write raft-compact-interval = "1s"`,
		"id = 5\n":                       `f.toml:1: id: the value is of the wrong type: write id = "…"`,
		"join = \"http://a:1\"\n":        `f.toml:1: join: the value is of the wrong type: write join = ["http://…"]`,
		"log-json = 1\n":                 "write log-json = true",
	} {
		if _, err := layered("f.toml", []byte(file), nothing); exitCode(err) != exitUsage || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%q: %v; want %s", file, err, want)
		}
	}
}

func TestConfigurationsThatCanNotWorkAreNamed(t *testing.T) {
	valid := func() serveConfig {
		c := serveDefaults()
		c.ID, c.DataDir, c.BootstrapExpect = "n1", t.TempDir(), 1
		return c
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if c := valid(); c.validate(false) != nil {
		t.Fatal(c.validate(false))
	}
	for want, change := range map[string]func(*serveConfig){
		"--id is required":       func(c *serveConfig) { c.ID = "" },
		"--id":                   func(c *serveConfig) { c.ID = "a b" },
		"--data-dir is required": func(c *serveConfig) { c.DataDir = "" },
		"name a folder":          func(c *serveConfig) { c.DataDir = file },
		"or below one":           func(c *serveConfig) { c.DataDir = filepath.Join(file, "data") },
		"cluster token":          func(c *serveConfig) { c.HTTP = "10.0.0.1:8770" },
		"--advertise-raft":       func(c *serveConfig) { c.Raft, c.Insecure = ":9770", true },
		"nobody can dial":        func(c *serveConfig) { c.AdvertiseHTTP = "0.0.0.0:8770" },
		"HOST:PORT":              func(c *serveConfig) { c.Raft = "9770" },
		"are both":               func(c *serveConfig) { c.Raft = c.HTTP },
		"--join":                 func(c *serveConfig) { c.BootstrapExpect = 3 },
		"exclude each other":     func(c *serveConfig) { c.NonVoter = true },
		"is not a URL":           func(c *serveConfig) { c.Join = []string{"ftp://x"} },
		"--log-level":            func(c *serveConfig) { c.LogLevel = "loud" },
		"--heartbeat":            func(c *serveConfig) { c.Heartbeat = interval{1} },
		"--election-timeout 500ms: use 1s (--heartbeat) to 1m":       func(c *serveConfig) { c.Election = interval{500 * time.Millisecond} },
		"--election-timeout -1s":                                     func(c *serveConfig) { c.Election = interval{-time.Second} },
		"--leader-lease 2s: use 25ms to 1s (--heartbeat), so that a": func(c *serveConfig) { c.Lease = interval{2 * time.Second} },
		"--leader-lease 1ms":                                         func(c *serveConfig) { c.Lease = interval{time.Millisecond} },
		"--ping-interval 49ms: use 50ms to 10s":                      func(c *serveConfig) { c.PingInterval = interval{49 * time.Millisecond} },
		"--ping-interval 11s":                                        func(c *serveConfig) { c.PingInterval = interval{11 * time.Second} },
		"--ping-misses 1: use 2 to 20":                               func(c *serveConfig) { c.PingMisses = 1 },
		"--ping-misses 21":                                           func(c *serveConfig) { c.PingMisses = 21 },
		"--disk-min-free 1048575: use 1048576 (1 MiB)":               func(c *serveConfig) { c.DiskMinFree = 1<<20 - 1 },
		"--reserved":               func(c *serveConfig) { c.Reserved = "maybe" },
		"--bootstrap-expect 1 for": func(c *serveConfig) { c.BootstrapExpect = 0 },
	} {
		c := valid()
		change(&c)
		if err := c.validate(false); exitCode(err) != exitUsage || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	c := valid()
	c.HTTP = "10.0.0.1:8770"
	if err := c.validate(true); err != nil {
		t.Errorf("with a token: %v", err)
	}
}

func TestFlagsMayStandAnywhere(t *testing.T) {
	app := newApp(&shell{in: strings.NewReader(""), out: &bytes.Buffer{}, err: &bytes.Buffer{}})
	for typed, want := range map[string]string{
		"ringlog get 7 --json":                           "ringlog --json get 7",
		"ringlog publish T --payload {} -e u --no-dedup": "ringlog -e u publish --payload {} --no-dedup T",
		"ringlog tail --from -10 -o json":                "ringlog -o json tail --from -10",
		"ringlog cursor --json seek c --to=-5":           "ringlog --json cursor seek --to=-5 c",
		"ringlog catalogue validate - --strict":          "ringlog catalogue validate --strict -",
		"ringlog get -- --json":                          "ringlog get -- --json",
		"ringlog tail --nosuch x --json":                 "ringlog --json tail --nosuch x",
		"ringlog cursor rm rm --yes":                     "ringlog cursor rm --yes rm",
	} {
		if got := strings.Join(intersperse(app, strings.Fields(typed)), " "); got != want {
			t.Errorf("%s\n  became %s\n  not    %s", typed, got, want)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, exitDone}, {fmt.Errorf("write: %w", syscall.EPIPE), exitDone}, {errors.New("odd"), exitFailed},
		{fmt.Errorf("x: %w", &api.Error{Code: api.Conflict}), exitRefused}, {&api.Error{Code: api.Reserved}, exitRefused}, {&api.Error{Code: api.Fenced}, exitRefused},
		{&api.Error{Code: api.NoLeader}, exitUnreachable}, {&api.Error{Code: api.NotFound}, exitNotFound}, {&api.Error{Code: api.Timeout}, exitTimeout},
		{&api.Error{Code: api.InvalidArgument}, exitUsage}, {&api.Error{Code: api.OutcomeUnknown}, exitFailed},
		{fmt.Errorf("%w: %w", errUnreachable, context.DeadlineExceeded), exitUnreachable}, {context.DeadlineExceeded, exitTimeout},
		{fmt.Errorf("x: %w", datadir.ErrOtherCluster), exitUsage}, {fmt.Errorf("x: %w", datadir.ErrInUse), exitFailed}, {codeError(3), 3},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%v ends with %d, not %d", c.err, got, c.want)
		}
	}
}

func TestDamageHasAName(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{log.ErrCorrupt, "DAMAGED"}, {fsm.ErrDamaged, "DAMAGED"}, {datadir.ErrDamaged, "DAMAGED"}, {frame.ErrCorrupt, "CORRUPT_FRAME"},
		{raftstore.ErrDiskHung, "DISK_HUNG"}, {raftnode.ErrDiverged, "DIVERGED"}, {errors.New("odd"), ""}, {nil, ""},
	} {
		err := c.err
		if err != nil {
			err = fmt.Errorf("fsm: apply 7: %w", err)
		}
		if got := problemName(err); got != c.want {
			t.Errorf("%v is named %q, not %q", c.err, got, c.want)
		}
	}
}

func TestConsentIsAskedForOnATerminalOnly(t *testing.T) {
	ask := func(terminal bool, answer string, c consent) (string, error) {
		var notices bytes.Buffer
		sh := &shell{in: strings.NewReader(answer), err: &notices, inTerminal: terminal, errTerminal: terminal}
		err := sh.confirm(c, "Remove %d events?", 5)
		return notices.String(), err
	}
	if said, err := ask(true, "y\n", consent{}); err != nil || !strings.Contains(said, "Remove 5 events? [y/N]") {
		t.Errorf("yes: %v, %q", err, said)
	}
	for _, answer := range []string{"\n", "n\n", "", "yesterday\n"} {
		if _, err := ask(true, answer, consent{}); exitCode(err) != exitFailed {
			t.Errorf("%q is taken for consent: %v", answer, err)
		}
	}
	if said, err := ask(false, "y\n", consent{}); exitCode(err) != exitUsage || !strings.Contains(err.Error(), "--yes") || said != "" {
		t.Errorf("without a terminal: %v, %q", err, said)
	}
	if _, err := ask(false, "", consent{yes: true}); err != nil {
		t.Errorf("--yes: %v", err)
	}
}

func membersWithFullDisks(voters, full int) (list []raftnode.MemberStatus) {
	for i := range voters {
		list = append(list, raftnode.MemberStatus{ID: fmt.Sprintf("n%d", i+1), Voter: true, Healthy: true, Disk: &raftnode.DiskStatus{Full: i < full}})
	}
	return list
}

func TestCheckJudges(t *testing.T) {
	healthy := func() nodeStatus {
		s := nodeStatus{NodeID: "n1", LeaderID: "n1", Quorum: raftnode.Quorum{Voters: 3, Needed: 2, Healthy: 3, Margin: 1}}
		s.Cursors = []cursorInfo{{LagEvents: 100, LagSeconds: 30}}
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
		{"one voter has none to spare by nature", func(s *nodeStatus) { s.Quorum = raftnode.Quorum{Voters: 1, Needed: 1, Healthy: 1} }, checkOptions{}, checkOK},
		{"silent member", func(s *nodeStatus) { s.Members = []raftnode.MemberStatus{{ID: "n2"}} }, checkOptions{}, checkWarning},
		{"member with another folder", func(s *nodeStatus) {
			s.Members = []raftnode.MemberStatus{{ID: "n2", Healthy: true, OtherFolder: true}}
		}, checkOptions{}, checkWarning},
		{"member that stores an entry now and then", func(s *nodeStatus) {
			s.Members = []raftnode.MemberStatus{{ID: "n2", Healthy: true, StalledMs: 200}}
		}, checkOptions{}, checkOK},
		{"member that stores nothing", func(s *nodeStatus) {
			s.Members = []raftnode.MemberStatus{{ID: "n2", Healthy: true, StalledMs: 4000}}
		}, checkOptions{}, checkWarning},
		{"no quorum", func(s *nodeStatus) { s.Quorum.Margin = -1 }, checkOptions{}, checkCritical},
		{"no leader", func(s *nodeStatus) { s.LeaderID = "" }, checkOptions{}, checkCritical},
		{"diverged", func(s *nodeStatus) { s.Diverged = true }, checkOptions{}, checkCritical},
		{"one full disk of three", func(s *nodeStatus) { s.Members = membersWithFullDisks(3, 1) }, checkOptions{}, checkWarning},
		{"two full disks of three", func(s *nodeStatus) { s.Members = membersWithFullDisks(3, 2) }, checkOptions{}, checkCritical},
		{"a single voter's full disk", func(s *nodeStatus) { s.Members = membersWithFullDisks(1, 1) }, checkOptions{}, checkCritical},
		{"lag below", func(*nodeStatus) {}, checkOptions{warnLag: 101, critAge: time.Minute}, checkOK},
		{"lag at the warning", func(*nodeStatus) {}, checkOptions{warnLag: 100, critLag: 101}, checkWarning},
		{"age at the critical", func(*nodeStatus) {}, checkOptions{warnAge: time.Second, critAge: 30 * time.Second}, checkCritical},
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
		if f := judgeDigests(c.at, 3); f.OK != c.ok {
			t.Errorf("%s: %+v", c.name, f)
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
