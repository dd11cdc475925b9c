package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/cmd/ringlog/devcluster"
)

// members reads a bundle: the texts by their names.
func members(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for r := tar.NewReader(zipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		found[h.Name] = string(text)
	}
}

// Secrets are planted wherever one could be: none is in any member of a bundle, nor is what an event holds.
func TestABundleHasNoSecrets(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("ringlog")
	if err != nil {
		t.Fatal(err)
	}
	const clusterToken = "planted-cluster-token-0123456789"
	planted := map[string]string{"the cluster token": clusterToken, "a payload": "planted-payload",
		"a dead letter's error": "planted-error", "a header": "planted-header", "an environment variable": "planted-variable",
		"a bearer": "planted-bearer", "a password in a URL": "planted-password", "a webhook secret": "cGxhbnRlZC1ob29r",
		"a private key": "cGxhbnRlZC1rZXk", "a JSON secret": "planted-json", "a cookie": "planted-cookie",
		"a web token": "cGxhbnRlZA.c2ln"}
	dir := t.TempDir()
	tokenFile := filepath.Join(dir, "token")
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("token", clusterToken+"\n")
	// A file that is too large for a token has none: its lines stay in the bundle.
	noToken := write("access.log", strings.Repeat("the last line\n", largestToken/10))
	cluster, err := devcluster.Start(t.Context(), devcluster.Options{Program: program, Dir: filepath.Join(dir, "nodes"),
		Token: clusterToken, Args: []string{"--heartbeat", "400ms", "--token-file", tokenFile}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), scriptWithin)
		defer cancel()
		if err := cluster.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	leader, err := cluster.WaitLeader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), scriptWithin)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Env = append(os.Environ(), "RINGLOG_ENDPOINTS="+strings.Join(cluster.URLs(), ","),
			"RINGLOG_TOKEN_FILE="+tokenFile, "SOME_PASSWORD=planted-variable", "RINGRIFT_WEBHOOK_SECRET=planted-variable",
			"ACCESS_TOKEN_FILE="+noToken)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	must := func(args ...string) string {
		t.Helper()
		out, err := run(args...)
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return out
	}
	must("publish", "TRAINING_COMPLETED", "--payload", `{"secret": "planted-payload"}`)
	_, _ = run("react", "--group", "g", "--type", "*", "--retries", "0", "--max-deliver", "1",
		"--from", "start", "-n", "1", "--",
		"sh", "-c", "echo planted-error >&2; exit 1")
	bearer := must("token", "create", "somebody", "--role", "admin")
	planted["another token"] = bearer[strings.Index(bearer, "rlt_"):][:30]
	log := write("n1.log", fmt.Sprintf(`a line of no harm
2026-01-05 [INFO] asked: Authorization: Bearer planted-bearer
Cookie: session=planted-cookie
X-Api-Key: planted-header
http://somebody:planted-password@127.0.0.1:8770/v1/events
secret file: whsec_cGxhbnRlZC1ob29r and the token %s
{"level":"info","client_secret":"planted-json \" more","@message":"kept"}
{"type":"TRAINING_COMPLETED","payload":{"n":"planted-payload"}}
jwt eyJhbGciOiJub25lIn0.cGxhbnRlZA.c2ln end
SOME_PASSWORD=planted-variable
-----BEGIN PRIVATE KEY-----
cGxhbnRlZC1rZXk
-----END PRIVATE KEY-----
the last line
`, bearer[strings.Index(bearer, "rlt_"):][:60]))
	// One node is away: the others are in the bundle all the same.
	gone := ""
	for _, n := range cluster.Nodes() {
		if n.ID != leader.NodeID {
			gone = n.ID
		}
	}
	if err := cluster.Kill(gone); err != nil {
		t.Fatal(err)
	}
	n1, err := cluster.Node(leader.NodeID)
	if err != nil {
		t.Fatal(err)
	}
	config := write("ringlog.toml", fmt.Sprintf("id = %q\ntoken-file = %q\n", n1.ID, tokenFile))
	must("debug", "bundle", "b.tar.gz", "--log", log, "--log", "missing.log", "--config", config, "--data-dir", n1.Dir,
		"-e", strings.Join(cluster.URLs(), ","))
	found := members(t, filepath.Join(dir, "b.tar.gz"))
	for name, text := range found {
		for what, secret := range planted {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %s:\n%.3000s", name, what, text)
			}
		}
		if strings.HasSuffix(name, ".json") && !json.Valid([]byte(text)) {
			t.Errorf("%s is no JSON any more: %.300s", name, text)
		}
	}
	// What is of use is there.
	for name, part := range map[string]string{
		"bundle.json": gone, "doctor.json": `"check"`, "cluster/settings.json": "dedup.window",
		"cluster/history.json": leader.NodeID, "machine/configuration.json": "bootstrap-expect", "machine/node.json": n1.ID,
		"nodes/" + leader.NodeID + "/status.json": `"last_offset"`, "nodes/" + leader.NodeID + "/metrics.txt": "ringlog_",
		"nodes/" + leader.NodeID + "/stacks.txt": "goroutine", "nodes/" + leader.NodeID + "/journal.json": "records",
		"logs/1-n1.log": "the last line",
	} {
		if !strings.Contains(found[name], part) {
			t.Errorf("%s lacks %q: %.300s", name, part, found[name])
		}
	}
	var contents bundleContents
	if err := json.Unmarshal([]byte(found["bundle.json"]), &contents); err != nil {
		t.Fatal(err)
	}
	silent := 0
	for _, n := range contents.Nodes {
		if n.Error != "" && n.ID == gone {
			silent++
		}
	}
	if len(contents.Nodes) != 3 || silent != 1 || contents.LeftOut["logs/2-missing.log"] == "" {
		t.Errorf("bundle.json: %+v", contents)
	}
	// Bad input.
	for _, c := range []struct {
		args []string
		code int
	}{{[]string{"debug", "bundle"}, 2}, {[]string{"debug", "bundle", "b.tar.gz"}, 2},
		{[]string{"debug", "bundle", "nowhere/b.tar.gz"}, 2}} {
		out, err := run(c.args...)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != c.code {
			t.Errorf("%v: %v %s", c.args, err, out)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.part-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A bundle is bounded, whatever a node or a log has.
func TestABundleIsBounded(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(file, []byte(strings.Repeat("x", 100)+"\nthe end\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := endOf(file, 20); err != nil || string(text) != "the end\n" {
		t.Errorf("%q, %v", text, err)
	}
	b := &bundle{tar: tar.NewWriter(io.Discard), redactor: &redactor{}, left: 15, made: time.Now(),
		contents: bundleContents{LeftOut: map[string]string{}}}
	for _, name := range []string{"a", "b", "c"} {
		if err := b.add(name, []byte("0123456789"), nil); err != nil {
			t.Fatal(err)
		}
	}
	if b.left != 0 || b.contents.LeftOut["b"] != "5 of its 10 bytes" || b.contents.LeftOut["c"] != "10 of its 10 bytes" {
		t.Errorf("%d left, %v", b.left, b.contents.LeftOut)
	}
}
