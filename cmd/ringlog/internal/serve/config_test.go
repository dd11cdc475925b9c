package serve

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

func TestConfigurationLayers(t *testing.T) {
	file := `id = "file"
data-dir = "/from/file"
join = ["http://a:1", "http://b:1"]
heartbeat = "2s"
bootstrap-expect = 3
`
	set := map[string]string{"id": "flag", "join": "http://c:1", "bootstrap-expect": "5"}
	got, err := layered("ringlog.toml", []byte(file), func(name string) (string, bool) {
		v, ok := set[name]
		return v, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	want := serveDefaults()
	want.ID, want.DataDir, want.Join = "flag", "/from/file", []string{"http://c:1"}
	want.BootstrapExpect, want.Heartbeat = 5, interval{2 * time.Second}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestConfigurationProblemsAreNamed(t *testing.T) {
	nothing := func(string) (string, bool) { return "", false }
	for file, want := range map[string]string{
		"id = \"a\"\ndata_dir = \"x\"\n": `f.toml:2: there is no key "data_dir". Did you mean "data-dir"?`,
		"id = \"a\"\n\n[http]\nx = 1\n":  "f.toml:3",
		"bootstrap-expect = \"three\"\n": "f.toml:1: bootstrap-expect: the value is of the wrong type: " +
			"write bootstrap-expect = 3",
		"id = \n":                  "f.toml:1",
		"id = \"a\"\nid = \"b\"\n": "f.toml:2:1: key id is already defined",
		"leader-lease = 5\n":       `f.toml:1: leader-lease: the value is of the wrong type: write leader-lease = "1s"`,
		"heartbeat = \"soon\"\n":   `f.toml:1: heartbeat: time: invalid duration "soon": write heartbeat = "1s"`,
		"ping-interval = 500\n": `f.toml:1: ping-interval: the value is of the wrong type: ` +
			`write ping-interval = "1s"`,
		"ping-misses = \"3\"\n": `f.toml:1: ping-misses: the value is of the wrong type: write ping-misses = 3`,
		"\nraft-compact-interval = 30\n": `f.toml:2: raft-compact-interval: the value is of the wrong type: ` +
			`write raft-compact-interval = "1s"`,
		"id = 5\n":                `f.toml:1: id: the value is of the wrong type: write id = "…"`,
		"join = \"http://a:1\"\n": `f.toml:1: join: the value is of the wrong type: write join = ["http://…"]`,
		"log-json = 1\n":          "write log-json = true",
		"id = n1\n":               `write id = "n1" (strings need quotes)`,
		"\nheartbeat = 2s\n":      `f.toml:2:14: strings must be quoted: write heartbeat = "2s" (strings need quotes)`,
		"join = http://x\n":       `write join = ["http://…"]`,
		"log-json = yes\n":        "write log-json = true",
		"id = \"n1\n":             `f.toml:1:9: basic strings cannot have new lines: write id = "…"`,
		"bogus = 1\n":             `there is no key "bogus"`,
	} {
		_, err := layered("f.toml", []byte(file), nothing)
		if shell.ExitCode(err) != shell.ExitUsage || !strings.Contains(fmt.Sprint(err), want) {
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
		"--election-timeout 500ms: use 1s (--heartbeat) to 1m": func(c *serveConfig) {
			c.Election = interval{500 * time.Millisecond}
		},
		"--election-timeout -1s": func(c *serveConfig) {
			c.Election = interval{-time.Second}
		},
		"--leader-lease 2s: use 25ms to 1s (--heartbeat), so that a": func(c *serveConfig) {
			c.Lease = interval{2 * time.Second}
		},
		"--leader-lease 1ms": func(c *serveConfig) {
			c.Lease = interval{time.Millisecond}
		},
		"--ping-interval 49ms: use 50ms to 10s": func(c *serveConfig) {
			c.PingInterval = interval{49 * time.Millisecond}
		},
		"--ping-interval 11s": func(c *serveConfig) {
			c.PingInterval = interval{11 * time.Second}
		},
		"--ping-misses 1: use 2 to 20":                 func(c *serveConfig) { c.PingMisses = 1 },
		"--ping-misses 21":                             func(c *serveConfig) { c.PingMisses = 21 },
		"--disk-min-free 1048575: use 1048576 (1 MiB)": func(c *serveConfig) { c.DiskMinFree = 1<<20 - 1 },
		"--reserved":                                   func(c *serveConfig) { c.Reserved = "maybe" },
		"--bootstrap-expect 1 for":                     func(c *serveConfig) { c.BootstrapExpect = 0 },
	} {
		c := valid()
		change(&c)
		if err := c.validate(false); shell.ExitCode(err) != shell.ExitUsage || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	c := valid()
	c.HTTP = "10.0.0.1:8770"
	if err := c.validate(true); err != nil {
		t.Errorf("with a token: %v", err)
	}
}

var update = flag.Bool("update", false, "write the example configuration again")

// The example has every key, with a value that a node takes, and the file that packages have is the example.
func TestTheExampleConfigurationHasEveryKey(t *testing.T) {
	const file = "../../packaging/ringlog.toml"
	example := ExampleConfig()
	if *update {
		if err := os.WriteFile(file, []byte(example), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	packaged, err := os.ReadFile(file)
	if err != nil || string(packaged) != example {
		t.Errorf("%s is not the example, or cannot be read: %v; write it again with -update", file, err)
	}
	uncommented := regexp.MustCompile(`(?m)^# ([a-z0-9-]+ = .*)$`).ReplaceAllString(example, "$1")
	for _, text := range []string{example, uncommented} {
		c := serveDefaults()
		if err := readConfigFile(&c, "example", []byte(text)); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if err := c.validate(false); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
	for _, o := range serveOptions() {
		if !strings.Contains(uncommented, "\n"+o.name+" = ") {
			t.Errorf("the example lacks %s", o.name)
		}
	}
}
