package server

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// linked finds what the page loads.
var linked = regexp.MustCompile(`(?:src|href)="([^"]+)"`)

// The page and all that it names come from the node itself, without the token, under a policy that allows no other
// host, and what is named by its content is asked for once.
func TestTheConsoleIsServedUnderItsPolicy(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Token = "secret" })
	page := s.ok("GET", "/ui/", "", noToken()...)
	if page.header.Get("Cache-Control") != "no-cache" {
		t.Errorf("Cache-Control of the page: %s", page.header.Get("Cache-Control"))
	}
	files := linked.FindAllStringSubmatch(page.body, -1)
	if len(files) < 3 {
		t.Fatalf("%d files in %s", len(files), page.body)
	}
	named := 0
	for _, file := range append(files, []string{"", "./"}) {
		name, relative := strings.CutPrefix(file[1], "./")
		if !relative {
			t.Errorf("%s does not lead through a proxy with a path of its own", file[1])
		}
		a := s.ok("GET", "/ui/"+name, "", noToken()...)
		policy := a.header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") ||
			strings.Contains(policy, "http") || a.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", name, a.header)
		}
		if strings.Contains(a.header.Get("Cache-Control"), "immutable") {
			named++
		}
		tag := a.header.Get("ETag")
		if again := s.do("GET", "/ui/"+name, "", noToken("If-None-Match", tag)...); again.status != http.StatusNotModified {
			t.Errorf("%s again: %d", name, again.status)
		}
	}
	if named < 2 {
		t.Errorf("%d files are named by their content", named)
	}
	for _, path := range []string{"/ui/assets/none.js", "/ui/assets/..%2findex.html", "/ui/assets/a/b", "/ui/index.html"} {
		if a := s.do("GET", path, "", "Authorization", "Bearer secret"); a.status != http.StatusNotFound {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}

// Who takes gzip gets the same file in fewer bytes, under a tag of its own.
func TestTheConsoleIsCompressedForThoseWhoTakeIt(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	plain := s.ok("GET", "/ui/", "", "Accept-Encoding", "identity")
	for accept, packed := range map[string]bool{
		"gzip": true, "br, GZIP;q=0.5": true, "identity": false, "gzip;q=0": false, "gzip; q=0.0": false, "br": false,
	} {
		a := s.ok("GET", "/ui/", "", "Accept-Encoding", accept)
		if (a.header.Get("Content-Encoding") == "gzip") != packed {
			t.Errorf("%s: %v", accept, a.header)
			continue
		}
		body := a.body
		if packed {
			r, err := gzip.NewReader(bytes.NewReader([]byte(body)))
			if err != nil {
				t.Fatal(err)
			}
			all, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			body = string(all)
		}
		if body != plain.body || (a.header.Get("ETag") == plain.header.Get("ETag")) == packed {
			t.Errorf("%s: ETag %s, %d bytes", accept, a.header.Get("ETag"), len(body))
		}
	}
}

// A name that was rebound to the node gets no page of it, as it gets nothing else.
func TestTheConsoleAnswersToItsOwnNamesAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/ui/", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = "rebound.example"
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("%d", response.StatusCode)
	}
}

// The root of a node redirects a browser to the console and lists for others what there is.
func TestTheRootLeadsBrowsersToTheConsole(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	if a := s.ok("GET", "/", "", "Accept", "text/html,*/*;q=0.8"); !strings.Contains(a.body, "<!doctype html>") {
		t.Errorf("%s", a.body)
	}
	if a := s.ok("GET", "/", "", "Accept", "*/*"); !strings.Contains(a.body, "/ui/") {
		t.Errorf("%s", a.body)
	}
}
