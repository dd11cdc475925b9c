package sinks_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/router/sinks"
)

// The receiver of docs/reacting.md takes what a webhook posts, and handles it once. It refuses what somebody else made
// of it: another body, another id, another time, no signature; and what was signed a while ago.
func TestTheDocumentedReceiver(t *testing.T) {
	t.Parallel()
	const key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	url, handled := startReceiver(t, key)
	secret, err := sinks.ParseSecret([]byte(key))
	if err != nil {
		t.Fatal(err)
	}

	// What the webhook posts passes somebody who keeps it.
	var header http.Header
	var body []byte
	send := func(header http.Header, body []byte) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	w := webhook(t, func(rw http.ResponseWriter, r *http.Request) {
		header = r.Header.Clone()
		body, _ = io.ReadAll(r.Body)
		rw.WriteHeader(send(header, body))
	}, func(o *sinks.WebhookOptions) { o.Secret = secret })
	if err := w.Handle(t.Context(), delivery()); err != nil || handled() != string(body)+"\n" {
		t.Fatalf("%v, handled %q of %q", err, handled(), body)
	}

	id := header.Get("Webhook-Id")
	signed := func(id string, at time.Time) func(http.Header) {
		return func(h http.Header) {
			h.Set("Webhook-Id", id)
			h.Set("Webhook-Timestamp", strconv.FormatInt(at.Unix(), 10))
			h.Set("Webhook-Signature", sinks.Signature(secret, id, at, body))
		}
	}
	for _, c := range []struct {
		what    string
		change  func(http.Header)
		body    []byte
		want    int
		handled int
	}{
		{"the same again", func(http.Header) {}, body, 204, 1},
		{"another attempt", signed(id, time.Now().Add(time.Second)), body, 204, 1},
		{"another body", func(http.Header) {}, bytes.Replace(body, []byte("42"), []byte("43"), 1), 401, 1},
		{"another id", func(h http.Header) { h.Set("Webhook-Id", "43-0") }, body, 401, 1},
		{"another time", func(h http.Header) { h.Set("Webhook-Timestamp", "1614265330") }, body, 401, 1},
		{"no time", func(h http.Header) { h.Set("Webhook-Timestamp", "x") }, body, 401, 1},
		{"no signature", func(h http.Header) { h.Del("Webhook-Signature") }, body, 401, 1},
		{"an old request", signed("43-0", time.Now().Add(-10*time.Minute)), body, 401, 1},
		{"one from the future", signed("43-0", time.Now().Add(10*time.Minute)), body, 401, 1},
		{"several signatures", func(h http.Header) {
			signed("43-0", time.Now())(h)
			h.Set("Webhook-Signature", "v1,AAAA "+h.Get("Webhook-Signature"))
		}, body, 204, 2},
	} {
		changed := header.Clone()
		c.change(changed)
		if got := send(changed, c.body); got != c.want || strings.Count(handled(), "\n") != c.handled {
			t.Errorf("%s is answered with %d, want %d; handled\n%s", c.what, got, c.want, handled())
		}
	}
}

// startReceiver runs the program of the document, and returns where it listens and what it has handled.
func startReceiver(t *testing.T, key string) (url string, handled func() string) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	page, err := os.ReadFile("../../docs/reacting.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, begins := strings.Cut(string(page), "<<'PROGRAM'\n")
	program, _, ends := strings.Cut(program, "\nPROGRAM\n")
	if !begins || !ends {
		t.Fatal("docs/reacting.md has no receiver")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"receiver.py": program, "webhook.secret": key + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := os.Create(filepath.Join(dir, "handled"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "receiver.py")
	cmd.Dir, cmd.Stdout = dir, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = out.Close()
	})
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		port, err := os.ReadFile(filepath.Join(dir, "receiver.port"))
		if err == nil && len(port) > 0 {
			return "http://127.0.0.1:" + string(port) + "/", func() string {
				text, _ := os.ReadFile(out.Name())
				return string(text)
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the receiver does not start: %v", err)
		}
	}
}
