package server

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/api"
)

// FuzzWhoCalls shows any Authorization header, and any name for whom a node would call. Nobody is let in by anything
// but a whole token, and nobody but a node speaks for another.
func FuzzWhoCalls(f *testing.F) {
	s := newSite(f, withToken)
	header := s.tokenOf("ada", api.NewToken{Roles: []string{"admin"}})
	s.tokenOf("ops", api.NewToken{Roles: []string{"operator"}})
	bearer := strings.TrimPrefix(header[1], "Bearer ")
	f.Add("Bearer root's", "")
	f.Add("Bearer root's", "ops")
	f.Add("bearer  root's ", "nobody")
	f.Add("Basic root's", "ops")
	f.Add("Bearer ADA", "ops") // ADA stands for the token, which is another one in each run
	f.Add("Bearer ADA", "")
	f.Add("Bearer ADA ADA", "")
	f.Add("Bearer", "ada")
	f.Fuzz(func(t *testing.T, authorization, principal string) {
		authorization = strings.ReplaceAll(authorization, "ADA", bearer)
		r := httptest.NewRequest("GET", "/v1/cluster", nil)
		r.Header["Authorization"] = []string{authorization}
		r.Header[headerPrincipal] = []string{principal}
		scheme, shown, _ := strings.Cut(authorization, " ")
		want := ""
		switch whole := strings.TrimSpace(shown); {
		case !strings.EqualFold(scheme, "bearer"):
		case whole == bearer:
			want = "ada"
		case whole == "root's" && principal == "":
			want = "root"
		case whole == "root's" && (principal == "ada" || principal == "ops"):
			want = principal
		}
		who, err := s.server.callers.identify(r)
		got := ""
		if err == nil {
			got = who.String()
		}
		if got != want || (err == nil) != (want != "") {
			t.Fatalf("%q for %q is %q, %v; want %q", authorization, principal, got, err, want)
		}
	})
}
