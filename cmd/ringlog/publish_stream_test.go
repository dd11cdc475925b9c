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
	sh := &shell{endpoints: []string{hanging(t)}, timeout: 300 * time.Millisecond}
	if text := describe(sh.fetch(t.Context(), "/v1/settings", nil), sh); strings.Contains(text, "ringlog dev") || !strings.Contains(text, "did not answer in time") {
		t.Errorf("a hanging node: %s", text)
	}
	sh.endpoints = []string{"http://127.0.0.1:1"}
	if text := describe(sh.fetch(t.Context(), "/v1/settings", nil), sh); !strings.Contains(text, "ringlog dev") {
		t.Errorf("no node: %s", text)
	}
}

// A node that takes requests and answers none, as a stopped process does: nobody can say
// whether the lines that were sent are appended, and they must not be called refused.
func TestLinesOfUnknownOutcomeAreNotCalledRefused(t *testing.T) {
	var out, notices bytes.Buffer
	sh := &shell{in: strings.NewReader(strings.Repeat(`{"type":"TRAINING_STARTED"}`+"\n", 5) + "no JSON\n"), out: &out, err: &notices,
		endpoints: []string{hanging(t)}, timeout: time.Second}
	err := publishStream(t.Context(), sh, publishOptions{stdin: true})
	if code := exitCode(err); code != exitTimeout && code != exitUnreachable {
		t.Errorf("exit code %d: %v", code, err)
	}
	if !regexp.MustCompile(`(?m)^0 appended, 0 duplicates, 1 refused, 5 unknown \(lines 1 to 5: they may be appended\) in `).MatchString(notices.String()) {
		t.Errorf("it says\n%s", notices.String())
	}
}
