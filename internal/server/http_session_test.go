package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/api"
)

// signIn changes what a header shows into a cookie, and returns the header of calls with it.
func (s *site) signIn(header ...string) []string {
	s.t.Helper()
	a := s.ok("POST", "/v1/session", "", header...)
	set, err := http.ParseSetCookie(a.header.Get("Set-Cookie"))
	if err != nil {
		s.t.Fatal(err)
	}
	bearer := strings.TrimPrefix(header[1], "Bearer ")
	switch {
	case !set.HttpOnly, set.SameSite != http.SameSiteStrictMode, set.Path != "/", set.MaxAge != 0, set.Domain != "":
		s.t.Errorf("the cookie is %q", set.Raw)
	case strings.Contains(set.Raw, bearer), a.header.Get("Cache-Control") != "no-store":
		s.t.Errorf("the cookie shows its token, or may be stored: %q %v", set.Raw, a.header)
	}
	return []string{"Authorization", "", "Cookie", set.Name + "=" + set.Value}
}

// A browser that has signed in calls with its cookie alone, at every node, and as far as its token allows.
func TestABrowserCallsWithItsCookie(t *testing.T) {
	t.Parallel()
	sites := newSites(t, 3, withToken)
	leader, _ := leading(t, sites)
	reader := leader.tokenOf("reader", api.NewToken{Roles: []string{"subscriber"}})
	leader.ok("PUT", "/v1/groups/g", "")
	root := leader.signIn("Authorization", "Bearer root's")
	session := leader.signIn(reader...)
	for _, s := range sites {
		eventually(t, "the token at every node", func() bool { return s.node.Machine().Tokens().Len() == 1 })
		// What only the leader does is passed on for the browser.
		s.hold(root, wants{"GET", "/v1/tokens", "", 200, []string{"reader"}},
			wants{"POST", "/v1/members/n9/demote", "", 404, nil},
			wants{"POST", "/v1/session", "", 409, []string{"bearer token"}})
		s.hold(session, wants{"GET", "/v1/groups/g", "", 200, nil}, wants{"GET", "/v1/tokens", "", 403, nil})
		// Pages of another port of the host are of the same site, and of another origin.
		s.hold(append([]string{"Sec-Fetch-Site", "same-site"}, root...),
			wants{"PUT", "/v1/settings/validation", `{"value":"strict"}`, 403, []string{"origin"}},
			wants{"DELETE", "/v1/session", "", 403, []string{"origin"}})
	}

	// With its token ends all that a session is good for, and what lasts.
	lines, _ := leader.follow(t.Context(), "/v1/events?follow=true", session...)
	leader.ok("DELETE", "/v1/tokens/reader", "")
	if rest := ends(t, lines); !strings.Contains(strings.Join(rest, ""), api.ReasonRevoked) {
		t.Errorf("a stream of a session ends with %q", rest)
	}
	for _, s := range sites {
		eventually(t, "the session refused", func() bool { return s.do("GET", "/v1/groups/g", "", session...).status == 401 })
	}

	// Signing out needs nothing.
	out := leader.ok("DELETE", "/v1/session", "", "Authorization", "")
	if set := out.header.Get("Set-Cookie"); !strings.Contains(set, "ringlog-session=; Path=/; Max-Age=0") {
		t.Errorf("a browser that signs out is sent %q", set)
	}
}

// There is no session where there is no token, and no cookie opens anything there.
func TestAClusterWithoutTokensHasNoSessions(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.hold([]string{"Authorization", "Bearer something"}, wants{"POST", "/v1/session", "", 409, []string{"without tokens"}})
	s.hold([]string{"Cookie", "ringlog-session=something"}, wants{"GET", "/v1/cursors", "", 200, nil})
}
