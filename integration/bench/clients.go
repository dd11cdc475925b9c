package main

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// pythonFiles are the programs, and the versions of the other systems' clients.
//
//go:embed python/clients.py python/requirements.txt
var pythonFiles embed.FS

const requirementsFile = "python/requirements.txt"

// pythonWay is one way to do a work with a client for Python.
type pythonWay struct {
	name   string // for the report
	system string // of clients.py
	method string
}

// pythonClient is a session of a system that has a client for Python.
type pythonClient interface {
	pythonEndpoints() []string
	pythonWays() map[string][]pythonWay // by kind of work: batch, soon, one, read
}

func (r *ringlogSession) pythonEndpoints() []string { return r.cluster.URLs() }

func (r *ringlogSession) pythonWays() map[string][]pythonWay {
	return map[string][]pythonWay{
		"batch": {
			{"publish_many of 256", "ringlog", "publish_many"},
			{"publish_many of 256, 4 threads", "ringlog", "publish_many_of_4_threads"},
		},
		"soon": {
			{"publish_soon", "ringlog", "publish_soon"},
			{"publish_soon of asyncio", "ringlog-asyncio", "asyncio_publish_soon"},
		},
		"one": {{"publish", "ringlog", "publish"}},
		"read": {
			{"cursor, commit every 1000", "ringlog", "cursor"},
			{"tail of asyncio" + forInformation, "ringlog-asyncio", "asyncio_tail"},
		},
	}
}

func (n *natsSession) pythonEndpoints() (endpoints []string) {
	for _, url := range n.conn.Servers() {
		endpoints = append(endpoints, strings.TrimPrefix(url, "nats://"))
	}
	return endpoints
}

func (n *natsSession) pythonWays() map[string][]pythonWay {
	return map[string][]pythonWay{
		"batch": {
			{"256 publish at a time", "nats", "gather"},
			{"publish_async of 256, all answers", "nats", "publish_async_and_all_answers"},
		},
		"soon": {{"publish_async, 4096 pending", "nats", "publish_async"}},
		"one":  {{"publish", "nats", "publish"}},
		"read": {{"pull consumer, ack of all every 1000", "nats", "pull"}},
	}
}

// measureClient measures one kind of work of a system's client for Python, each way for some seconds.
func measureClient(kind string) func(context.Context, *turn) error {
	return func(ctx context.Context, t *turn) error {
		// A session that has no client for Python, or none for this kind, is left out.
		c, ok := t.session.(pythonClient)
		if !ok || len(c.pythonWays()[kind]) == 0 {
			return errNotOffered
		}
		// The environment takes a minute to make, which no measurement includes: the script measures the time
		// itself.
		python, err := t.pythonProgram(ctx)
		if err != nil {
			return err
		}
		// The payloads are of the same generator as those of all other works.
		payloads, err := t.writePayloads()
		if err != nil {
			return err
		}
		defer os.Remove(payloads)
		for _, way := range c.pythonWays()[kind] {
			err := t.measured(ctx, clientWork+kind, way.name, func() (map[string]float64, error) {
				// The script warms up, measures, and answers with the numbers of both.
				answer, err := t.runClient(ctx, python, way.system, kind, way.method,
					strings.Join(c.pythonEndpoints(), ","), seconds(t.scale.warm), seconds(t.scale.python), payloads)
				if err != nil {
					return nil, err
				}
				values := map[string]float64{perSecond: float64(answer.Events) / answer.Seconds}
				// Only a caller that waits for each event has waits. They are in seconds, the figure in
				// milliseconds.
				if kind == "one" {
					slices.Sort(answer.Waits)
					values[p50] = 1000 * answer.Waits[len(answer.Waits)/2]
				}
				return values, nil
			})
			if err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
		}
		return t.holdsAll(ctx)
	}
}

// clientWork begins the names of the works of clients for Python.
const clientWork = "python-"

// clientAnswer is what clients.py prints.
type clientAnswer struct {
	// How many events the script published or read in the warm-up, and in the time that counts.
	Warmed, Events int
	// The time that counts, by the script's own clock.
	Seconds float64
	// In seconds, unsorted; empty unless the caller waits for each event.
	Waits []float64
}

// runClient runs clients.py, and counts what it published.
func (t *turn) runClient(ctx context.Context, python, system, kind string, args ...string) (a clientAnswer, err error) {
	// The script is an argument of the interpreter, so no file has to be removed.
	script, err := pythonFiles.ReadFile("python/clients.py")
	if err != nil {
		return a, err
	}
	err = runPython(ctx, python, string(script), &a, append([]string{system, kind}, args...)...)
	if err != nil {
		return a, err
	}
	// A script that did nothing must not become a figure of 0.
	if a.Events == 0 || (kind == "one" && len(a.Waits) == 0) {
		return a, errors.New("clients.py did nothing")
	}
	// What was read is not published.
	if kind != "read" {
		t.published += a.Warmed + a.Events
	}
	return a, nil
}

// pythonProgram returns an interpreter with the clients of all systems. It makes the environment once.
func (r *runner) pythonProgram(ctx context.Context) (string, error) {
	if r.python != "" {
		return r.python, nil
	}
	// The environment belongs to this run and is removed with its folder. Nothing is installed for the user.
	folder := filepath.Join(r.dir, "venv")
	requirements := filepath.Join(r.dir, "requirements.txt")
	text, err := pythonFiles.ReadFile(requirementsFile)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(requirements, text, 0o600); err != nil {
		return "", err
	}
	python := filepath.Join(folder, "bin", "python3")
	for _, command := range [][]string{
		{"python3", "-m", "venv", folder},
		{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements},
		// The binary holds ringlog's client; this is how a user unpacks it.
		{r.program, "python", "install", "--target", filepath.Join(folder, "ringlog")},
	} {
		out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("make an environment with the clients for Python (it needs the module venv, and a package "+
				"index for nats-py and redis): %s: %w\n%s", strings.Join(command, " "), err, out)
		}
	}
	// Python does not look there by itself; a .pth file in site-packages names one more folder.
	found, err := filepath.Glob(filepath.Join(folder, "lib", "python3*", "site-packages"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("%s has %d folders site-packages, want 1", folder, len(found))
	}
	path := filepath.Join(found[0], "ringlog.pth")
	if err := os.WriteFile(path, []byte(filepath.Join(folder, "ringlog")+"\n"), 0o600); err != nil {
		return "", err
	}
	// The name is kept once everything is installed: after a failure the next call begins again.
	r.python = python
	return python, nil
}

func seconds(d time.Duration) string { return fmt.Sprint(d.Seconds()) }

// runPython runs a program that prints its answer as JSON.
func runPython(ctx context.Context, python, script string, answer any, args ...string) error {
	cmd := exec.CommandContext(ctx, python, append([]string{"-c", script}, args...)...)
	// Standard output has the answer alone. What the interpreter complains of goes into the error.
	var problems strings.Builder
	cmd.Stderr, cmd.SysProcAttr = &problems, childAttributes()
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("python3: %w\n%s", err, problems.String())
	}
	if err := json.Unmarshal(out, answer); err != nil {
		return fmt.Errorf("python3 answered %q: %w", out, err)
	}
	return nil
}
