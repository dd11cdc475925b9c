package server

import (
	"cmp"
	"net/http"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/api"
)

// A web page may have the browser send simple requests anywhere. None of them may change anything, whatever route
// it names.
func TestAWebPageOfAnotherOriginChangesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.publish("TRAINING_COMPLETED", 1, 3)
	before := s.node.Status().AppliedIndex
	foreign := [][]string{
		{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"},
		{"Origin", "https://evil.example"}, // of a browser without Sec-Fetch-Site
		{"Origin", "null", "Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"},
	}
	for _, headers := range foreign {
		for _, r := range s.server.routes {
			if r.method == http.MethodGet {
				continue
			}
			method := cmp.Or(r.method, http.MethodPost)
			path := strings.NewReplacer("{name}", "x", "{id}", "1", "{key}", "limits.depth", "{offset}", "1").Replace(r.path)
			if a := s.do(method, path, `{}`, headers...); a.status != http.StatusForbidden || a.err(t).Code != api.Forbidden {
				t.Errorf("%s %s with %v: %d %s", method, path, headers, a.status, a.body)
			}
		}
		if a := s.do(
			"POST", "/ringlog.v1.LogService/Publish", `{}`,
			append([]string{"Content-Type", "application/json"}, headers...)...,
		); a.status != http.StatusForbidden {
			t.Errorf("over Connect with %v: %d %s", headers, a.status, a.body)
		}
	}
	if now := s.node.Status().AppliedIndex; now != before {
		t.Errorf("%d entries were appended", now-before)
	}
	// Callers that are no browsers, pages of the same origin and the address bar may publish.
	for _, own := range [][]string{
		{},
		{"Sec-Fetch-Site", "same-origin", "Origin", s.url},
		{"Sec-Fetch-Site", "none"},
		{"Origin", s.url},
	} {
		s.ok("POST", "/v1/events", `{"type":"TRAINING_COMPLETED","payload":{}}`, own...)
	}
}

// A name that an attacker points at this node is none of its names.
func TestANodeWithoutATokenAnswersToItsOwnNamesAlone(t *testing.T) {
	t.Parallel()
	ask := func(s *site, host string) int {
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		return s.send(r).status
	}
	s := newSite(t, func(c *Config) { c.Hosts = []string{"Log.Internal", "http://n2.example:8770"} })
	for host, want := range map[string]int{
		"127.0.0.1:8770":            200,
		"[::1]:8770":                200,
		"192.0.2.7":                 200,
		"localhost:1":               200,
		"LOCALHOST.":                200,
		"log.internal":              200,
		"log.internal:99":           200,
		"N2.example":                200,
		"rebound.evil.example":      403,
		"rebound.evil.example:8770": 403,
		"localhost.evil.example":    403,
		"127.0.0.1.evil.example":    403,
		"internal":                  403,
		"[::1].evil":                403,
	} {
		if got := ask(s, host); got != want {
			t.Errorf("%s: %d, want %d", host, got, want)
		}
	}
	guarded := newSite(t, func(c *Config) { c.Token = "sesame" })
	if got := ask(guarded, "any.example"); got != http.StatusUnauthorized {
		t.Errorf("with a token the token decides: %d", got)
	}
}
