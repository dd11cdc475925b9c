package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/python"
)

// noToken is the header of a caller that does not have the cluster's token, as pip.
func noToken(more ...string) []string {
	return append([]string{"Authorization", "Basic eDp4"}, more...)
}

// The index is what pip follows: links, each with the digest of its file.
func TestThePackageIndexLeadsToTheWheel(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Token = "secret" })
	wheel := python.Built()
	if a := s.ok("GET", "/python/", "", noToken()...); !strings.Contains(a.body, `<a href="ringlog/">ringlog</a>`) {
		t.Errorf("%s", a.body)
	}
	a := s.ok("GET", "/python/ringlog/", "", noToken()...)
	want := `<a href="` + wheel.File + "#sha256=" + wheel.SHA256 + `" data-requires-python="&gt;=3.10">`
	if !strings.Contains(a.body, want) || !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
		t.Errorf("no %s in %s", want, a.body)
	}
	file := "/python/ringlog/" + wheel.File
	whole := s.ok("GET", file, "", noToken()...)
	tag := whole.header.Get("ETag")
	if whole.body != string(wheel.Content) || tag != `"`+wheel.SHA256+`"` {
		t.Errorf("%d bytes, ETag %s", len(whole.body), tag)
	}
	for _, one := range []struct {
		method string
		header []string
		status int
		body   string
	}{
		{"HEAD", nil, http.StatusOK, ""},
		{"GET", []string{"If-None-Match", tag}, http.StatusNotModified, ""},
		{"GET", []string{"If-None-Match", `"other"`}, http.StatusOK, whole.body},
		{"GET", []string{"Range", "bytes=0-3"}, http.StatusPartialContent, "PK\x03\x04"},
	} {
		if a := s.do(one.method, file, "", noToken(one.header...)...); a.status != one.status || a.body != one.body {
			t.Errorf("%s %v: %d, %d bytes", one.method, one.header, a.status, len(a.body))
		}
	}
	if a := s.do("POST", file, "{}", noToken()...); a.status != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", a.status)
	}
}

// What is below the index needs no token, and leads to nothing that does.
func TestThePackageIndexHasNothingElse(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Token = "secret" })
	for _, path := range []string{
		"/python/requests/", "/python/ringlog/ringlog-9.9-py3-none-any.whl", "/python/x/" + python.Built().File,
		"/python/ringlog/..%2f..%2fstatus", "/python/%2e%2e%2fstatus/", "/python/ringlog/a/b", "/python%2fringlog/",
	} {
		if a := s.do("GET", path, "", noToken()...); a.status != http.StatusNotFound || a.err(t).Code != api.NotFound {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	for _, path := range []string{"/status", "/python/../status", "/pythonx/", "/v1/settings"} {
		if a := s.do("GET", path, "", noToken()...); a.status != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := s.do("GET", "/python/ringlog/?x=1", "", noToken()...); a.status != http.StatusBadRequest {
		t.Errorf("a parameter: %d", a.status)
	}
}

// A client of a newer version learns from a reason that it is the path that is missing.
func TestAPathThatIsMissingHasAReason(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	if e := s.do("GET", "/v1/later", "").err(t); e.Code != api.NotFound || e.Reason != api.ReasonUnknownPath ||
		!strings.Contains(e.Message, "/v1/later") {
		t.Errorf("%+v", e)
	}
	if e := s.do("GET", "/v1/cursors/none", "").err(t); e.Code != api.NotFound || e.Reason != "" {
		t.Errorf("%+v", e)
	}
}
