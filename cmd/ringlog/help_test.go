package main

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/internal/longtest"
)

// imperatives are the verbs that a usage may begin with.
const imperatives = " acquire add append change check compare consume count create declare define deliver explain " +
	"find form import inspect install list make manage measure move print publish read redrive register release " +
	"remove request run show take transfer wait write "

// retired are words that the help does without, as they mean two things or none to a reader.
var retired = regexp.MustCompile(`(?i)\b(t(old|ells?)|anew|behind|can\s+not|stands?\s+(at|in|by)|` +
	`comes?\s+again|goes\s+on|gives?\s+up|lets?\s+go|so\s+(much|many|long))\b`)

// withoutValue is a flag whose value has no name.
var withoutValue = regexp.MustCompile(`(?m)^ +(-\w, )?--[a-z-]+ VALUE\b`)

// walk calls f for each command of the help, with the words by which it is typed.
func walk(app *cli.App, f func(path []string, c *cli.Command)) {
	var below func(path []string, list []*cli.Command)
	below = func(path []string, list []*cli.Command) {
		for _, c := range list {
			if c.Hidden {
				continue
			}
			path := append(slices.Clone(path), c.Name)
			f(path, c)
			below(path, c.Subcommands)
		}
	}
	below(nil, app.Commands)
}

// runApp runs the program in this process, and returns what it printed on stdout.
func runApp(args ...string) (string, error) {
	var out bytes.Buffer
	sh := &shell.Shell{In: strings.NewReader(""), Out: &out, Err: &bytes.Buffer{}, Getenv: func(string) string {
		return ""
	}}
	app := newApp(sh)
	args, err := shell.Intersperse(app, append([]string{"ringlog"}, args...))
	if err == nil {
		err = app.Run(args)
	}
	return out.String(), err
}

// Each verb has a usage that begins with what it does, an example of it, a description of each flag, and lines that fit
// a terminal; help NOUN VERB, NOUN help VERB and NOUN VERB --help print the same.
func TestTheHelpOfEveryVerb(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine reads one help after another")
	}
	app := newApp(&shell.Shell{})
	top, err := runApp("help")
	if err != nil {
		t.Fatal(err)
	}
	checkHelp(t, "help", top)
	for _, same := range [][]string{{"--help"}, {"-h"}, {}} {
		if got, err := runApp(same...); err != nil || got != top {
			t.Errorf("ringlog %v: %v\n%s", same, err, got)
		}
	}
	n := 0
	walk(app, func(path []string, c *cli.Command) {
		n++
		name := strings.Join(path, " ")
		text, err := runApp(append([]string{"help"}, path...)...)
		if err != nil {
			t.Fatalf("help %s: %v", name, err)
		}
		checkHelp(t, name, text)
		if c.Name != "help" {
			last := len(path) - 1
			ways := [][]string{append(slices.Clone(path), "--help"), append(slices.Clone(path), "-h"),
				append(append(slices.Clone(path[:last]), "help"), path[last])}
			if len(c.Subcommands) > 0 {
				ways = append(ways, append(slices.Clone(path), "help"))
			}
			for _, same := range ways {
				if got, err := runApp(same...); err != nil || got != text {
					t.Errorf("ringlog %s: %v\n%s", strings.Join(same, " "), err, got)
				}
			}
		}
		first, _, _ := strings.Cut(c.Usage, " ")
		if !strings.Contains(imperatives, " "+strings.TrimSuffix(first, ",")+" ") || strings.HasSuffix(c.Usage, ".") {
			t.Errorf("%s: the usage %q does not begin with a verb in lower case, or ends with a period", name, c.Usage)
		}
		if len(path) == 1 && (c.Category == "" || !strings.Contains(top, "\n  "+c.Name+" ")) {
			t.Errorf("%s has no category, or is not in the help", name)
		}
		if examples := strings.Split(c.UsageText, "\n"); len(examples) > 4 || !strings.Contains(c.UsageText,
			"ringlog "+path[0]) {
			t.Errorf("%s: %d examples of it: %q", name, len(examples), c.UsageText)
		}
		for _, f := range c.Flags {
			if doc, ok := f.(cli.DocGenerationFlag); ok && doc.GetUsage() == "" {
				t.Errorf("%s: the flag %v has no description", name, f.Names())
			}
		}
	})
	if n < 60 {
		t.Errorf("only %d verbs were read", n)
	}
}

// checkHelp reads one help text.
func checkHelp(t *testing.T, name, text string) {
	if word := retired.FindString(text); word != "" {
		t.Errorf("the help of %s has the word %q", name, word)
	}
	if flag := withoutValue.FindString(text); flag != "" {
		t.Errorf("the help of %s does not name the value of%s", name, flag)
	}
	for line := range strings.Lines(text) {
		// A command to copy is one line, however long.
		if len([]rune(line)) > 81 && !strings.Contains(line, rowsOfSQLite) {
			t.Errorf("the help of %s has a line of %d characters: %s", name, len([]rune(line))-1, line)
		}
	}
}

// The exit codes that the program prints are those of the documentation.
func TestExitCodesAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	printed, err := runApp("help", "exit-codes")
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range shell.ExitCodes() {
		row := "| " + string(rune('0'+c.Code)) + " | " + c.Meaning + " |"
		if c.Code != i || !bytes.Contains(doc, []byte(row)) ||
			!strings.Contains(strings.Join(strings.Fields(printed), " "), c.Meaning) {
			t.Errorf("%d: docs/http.md has no row %q, or the help lacks it", c.Code, row)
		}
	}
}

// unfit reports examples that cannot run here: they do not end by themselves, need a terminal, a port, another machine, a
// stopped node, another shell or a cluster token, or depend on which node leads. They are only parsed.
func unfit(example string) bool {
	for _, part := range []string{"ringlog serve --id n1 --data-dir n1 --bootstrap-expect 1", "ringlog dev",
		"ringlog demo", "ringlog bench", "cluster add", "cluster recover", "--data-dir n1", "--watch", "tail -f",
		"step-down --to", "ringlog token ", "--incident", "incident step", "ringlog top"} {
		if strings.Contains(example, part) && !strings.Contains(example, "--print-config") {
			return true
		}
	}
	return example == "ringlog dlq watch"
}

// exampleFiles are what some examples read.
var exampleFiles = map[string]string{
	"events.ndjson": `{"type":"TRAINING_STARTED","payload":{}}` + "\n",
	"rows.ndjson":   `{"id":1,"event_type":"training_completed","event_data":"{}","error":"e","retry_count":1}` + "\n",
	"flows.json":    `{"name":"labelling","edges":[["TRAINING_STARTED","EVALUATION_STARTED"]],"run_by":["config_key"]}`,
	"view.json": `{"name":"progress","types":["TRAINING_STARTED"],"fields":{"runs":{"kind":"count"},
 "epoch":{"kind":"max","of":"payload.epoch"}}}`,
	"types.json":   `{"name":"EXAMPLE_TYPE","value":"example_type","category":"training"}`,
	"daemons.toml": "[daemon.sync]\ncommand = \"true\"\ngroup = \"sync\"\n",
	"seen/h~gpu-1~1~1~000000.ndjson": `{"k":"start","name":"h","host":"gpu-1","pid":1,"mode":"shadow","at":100}
{"k":"sub","s":"h.on_x","h":"on_x","t":"X","at":100}
{"k":"old","s":"h.on_x","type":"X","time":102,"content":"c","source":"s","id":1,"at":102}
{"k":"log","s":"h.on_x","type":"X","time":102,"content":"c","source":"s","id":7,"at":102}
{"k":"sub","s":"h.on_x","h":"on_x","t":"X","at":200}
`,
}

// Every example of the help runs as it is, in the order of the help, on a cluster that has events, a cursor, a group
// and a dead letter.
func TestExamplesOfTheHelpRun(t *testing.T) {
	t.Parallel()
	if !longtest.Enabled() {
		t.Skip("scripts run the same verbs")
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	cluster := startCluster(t.Context(), t, t.TempDir())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), scriptWithin)
		defer cancel()
		if err := cluster.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	for name, content := range exampleFiles {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(line string) ([]byte, error) {
		ctx, cancel := context.WithTimeout(t.Context(), scriptWithin)
		defer cancel()
		cmd := exec.CommandContext(ctx, bash, "-c", "set -o pipefail\n"+line)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "RINGLOG_ENDPOINTS="+strings.Join(cluster.URLs(), ","), "XDG_CONFIG_HOME="+dir)
		return cmd.CombinedOutput()
	}
	const groundwork = `set -e
for i in $(seq 20); do echo '{"type":"TRAINING_STARTED","payload":{"epoch":'$i'},"key":"k'$i'"}'; done |
  ringlog publish --stdin --correlation-id run-42 >/dev/null
ringlog group create evaluators --type 'training.*' >/dev/null
ringlog react --group failing --type 'training.*' --retries 0 --max-deliver 1 -n 1 -- false || ringlog dlq show 1`
	if out, err := run(groundwork); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	registerExample(t, cluster.URLs()[0])
	ran := 0
	walk(newApp(&shell.Shell{}), func(path []string, c *cli.Command) {
		for _, example := range strings.Split(c.UsageText, "\n") {
			switch {
			case strings.Contains(example, "completion zsh"), strings.Contains(example, "completion fish"):
			case unfit(example):
				parseExample(t, bash, example)
			default:
				ran++
				// An example before it may have removed what this one needs, or changed it.
				if strings.Contains(example, "trainer") || strings.Contains(example, "evaluators") {
					_, _ = run("ringlog cursor create trainer --type 'training.*'; ringlog cursor seek trainer --to end;" +
						"ringlog group create evaluators --type 'training.*'; ringlog cursor seek evaluators --to end")
				}
				if strings.Contains(example, "nightly-sync") {
					_, _ = run("ringlog publish DATA_SYNC_STARTED --at 2099-01-01 --schedule-id nightly-sync")
				}
				if strings.Contains(example, "ringlog where") {
					_, _ = run(`ringlog publish DATABASE_CREATED --payload '{"dataset": "hex8_2p", "host": "gpu-7"}'`)
				}
				if strings.Contains(example, "copy-4711") || strings.Contains(example, "--allocate") {
					_, _ = run("ringlog allocation capacity net:gpu-1 1000; ringlog allocation capacity transfers:gpu-1 4;" +
						"ringlog allocation request net:gpu-1=50 transfers:gpu-1=1 --id copy-4711")
				}
				if out, err := run(example); err != nil || bytes.Contains(out, []byte("warning:")) {
					t.Errorf("%s: %s: %v\n%s", strings.Join(path, " "), example, err, out)
				}
			}
		}
	})
	if ran < 80 {
		t.Errorf("only %d examples ran", ran)
	}
}

// parseExample checks that a command line has verbs and flags that exist; nothing is run.
func parseExample(t *testing.T, bash, example string) {
	// The shell splits the line into arguments.
	out, err := exec.Command(bash, "-c", `ringlog() { printf '%s\n' "$@"; }; `+example).Output()
	if err != nil {
		t.Fatalf("%s: %v", example, err)
	}
	app := newApp(&shell.Shell{Getenv: os.Getenv})
	reached := ""
	walk(app, func(path []string, c *cli.Command) {
		if len(c.Subcommands) == 0 || c.Name == "dlq" || c.Name == "clients" {
			c.Action = func(*cli.Context) error { reached = strings.Join(path, " "); return nil }
		}
	})
	args := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	args, err = shell.Intersperse(app, append([]string{"ringlog"}, args...))
	if err == nil {
		err = app.Run(args)
	}
	if err != nil || reached == "" {
		t.Errorf("%s: %v, reached %q", example, err, reached)
	}
}

// registerExample registers the client that the examples name, once the members know of each other what they can do.
func registerExample(t *testing.T, url string) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(scriptWithin)
	for {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url+"/v1/clients/trainer-3",
			strings.NewReader(`{"host": "gpu-1", "subscriptions": [{"name": "loss", "mode": "durable"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			err = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("trainer-3 could not be registered: %v", err)
		}
	}
}
