package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// hanging is an endpoint that takes requests and answers none, as a stopped process does.
func hanging(t *testing.T) string {
	done := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(api.ClusterHeader, "c")
		if r.URL.Path != "/healthz" {
			<-done
		}
	}))
	t.Cleanup(func() {
		close(done)
		s.Close()
	})
	return s.URL
}

func TestANodeThatHoldsARequestIsNotSaidToBeDown(t *testing.T) {
	sh := &shell.Shell{Endpoints: []string{hanging(t)}, Timeout: 300 * time.Millisecond}
	text := shell.Describe(sh.Fetch(t.Context(), "/v1/settings", nil), sh)
	if strings.Contains(text, "ringlog dev") || !strings.Contains(text, "did not answer in time") {
		t.Errorf("a hanging node: %s", text)
	}
	sh.Endpoints = []string{"http://127.0.0.1:1"}
	text = shell.Describe(sh.Fetch(t.Context(), "/v1/settings", nil), sh)
	if strings.Contains(text, "ringlog dev") || !strings.Contains(text, "is one running there?") {
		t.Errorf("no node: %s", text)
	}
	// Whoever names no endpoint may have no cluster yet.
	sh.Endpoints = []string{shell.DefaultEndpoint}
	text = shell.Describe(shell.ErrUnreachable, sh)
	if !strings.Contains(text, "ringlog dev") {
		t.Errorf("no node at the default: %s", text)
	}
}

// A node that takes requests and answers none, as a stopped process does: nobody can say
// whether the lines that were sent are appended, and they must not be called refused.
func TestLinesOfUnknownOutcomeAreNotCalledRefused(t *testing.T) {
	var out, notices bytes.Buffer
	input := strings.Repeat(`{"type":"TRAINING_STARTED"}`+"\n", 5) + "no JSON\n"
	sh := &shell.Shell{In: strings.NewReader(input), Out: &out, Err: &notices,
		Endpoints: []string{hanging(t)}, Timeout: time.Second}
	err := publishStream(t.Context(), sh, publishOptions{stdin: true})
	if code := shell.ExitCode(err); code != shell.ExitTimeout && code != shell.ExitUnreachable {
		t.Errorf("exit code %d: %v", code, err)
	}
	sum := regexp.MustCompile(`(?m)^0 appended, 0 duplicates, 1 refused, 5 unknown ` +
		`\(lines 1 to 5: they may have been appended\) in `)
	if !sum.MatchString(notices.String()) {
		t.Errorf("it says\n%s", notices.String())
	}
}
