package server

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/access"
	"github.com/ringrift/ringlog/internal/frame"
)

var update = flag.Bool("update", false, "write the table of permissions into docs/security.md")

const securityPage = "../../docs/security.md"

// tableOf is the table of docs/security.md: a row for each route, with the roles that may call it.
func tableOf(routes []route) string {
	var b strings.Builder
	b.WriteString("| route |")
	for _, r := range access.Roles() {
		fmt.Fprintf(&b, " %s |", r)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" :-: |", len(access.Roles())) + "\n")
	for i := range routes {
		fmt.Fprintf(&b, "| `%s` |", nameOf(&routes[i]))
		for _, r := range access.Roles() {
			b.WriteString(" " + cell(&routes[i], r) + " |")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// nameOf is a route as the table has it.
func nameOf(rt *route) string {
	return strings.TrimPrefix(strings.TrimSuffix(rt.pattern(), "{$}"), "/ringlog.v1.")
}

// cell says whether a role may call a route.
func cell(rt *route, r access.Role) string {
	switch {
	case rt.needs == access.Open:
		return "open"
	case !rt.needs.To(r):
		return ""
	case rt.whole && r.Scoped():
		return "all"
	}
	return "yes"
}

// documented is the table of docs/security.md as it stands there, and the rest of the page around it.
func documented(t *testing.T) (before, table, after string) {
	t.Helper()
	page, err := os.ReadFile(securityPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), "| route |")
	table, after, ended := strings.Cut(rest, "\n\n")
	if !found || !ended {
		t.Fatalf("%s has no table of routes", securityPage)
	}
	return before, "| route |" + table + "\n", after
}

// The table of the documents is made of the routes themselves.
func TestTheDocumentsHaveTheTableOfPermissions(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	before, table, after := documented(t)
	want := tableOf(s.server.routes)
	if *update {
		if err := os.WriteFile(securityPage, []byte(before+want+"\n"+after), 0o644); err != nil {
			t.Fatal(err)
		}
		table = want
	}
	if table != want {
		t.Errorf("docs/security.md has another table than the routes; with -update it gets\n%s", want)
	}
}

// A route that does not say who may call it is not served.
func TestARouteWithoutAPermissionDoesNotStart(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	planted := route{method: http.MethodGet, path: "/v1/planted",
		handle: func(w http.ResponseWriter, _ *http.Request) error { return writeJSON(w, http.StatusOK, "planted") }}
	cfg := s.server.cfg
	cfg.Registry = nil
	if _, err := newServer(cfg, planted); err == nil || !strings.Contains(err.Error(), "GET /v1/planted") {
		t.Errorf("a route without a permission is served: %v", err)
	}
	for _, permission := range []access.Permission{access.Peer + 1, 255} {
		planted.needs = permission
		if checkPermissions([]route{planted}) == nil {
			t.Errorf("%d counts as a permission", permission)
		}
	}
}

// cast is somebody who calls, and which roles the table has for them.
type cast struct {
	name   string
	bearer string
	cert   string // the identity of a certificate
	cookie string // of a session
	speaks string // on whose behalf
	role   access.Role
	scoped bool
	root   bool
	node   bool
}

// expected is the answer to a call by the row of the table: 401, 403 or 0 for any other.
func (c *cast) expected(row map[access.Role]string, peer bool) int {
	open := row[access.Admin] == "open"
	switch {
	case open || c.root:
		return 0
	case c.node && peer:
		return 0
	case c.node:
		return http.StatusForbidden
	case c.role == "":
		return http.StatusUnauthorized
	case row[c.role] == "yes" || (row[c.role] == "all" && !c.scoped):
		return 0
	}
	return http.StatusForbidden
}

// rows reads the table of the documents.
func rows(t *testing.T) map[string]map[access.Role]string {
	t.Helper()
	_, table, _ := documented(t)
	out := map[string]map[access.Role]string{}
	for _, line := range strings.Split(strings.TrimSpace(table), "\n")[2:] {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		row := map[access.Role]string{}
		for i, r := range access.Roles() {
			row[r] = strings.TrimSpace(cells[i+1])
		}
		out[strings.Trim(cells[0], " `")] = row
	}
	return out
}

// wild is a part of a path that names something.
var wild = regexp.MustCompile(`\{[^$}]*\}`)

// Every route, from the table that the mux is made of, answers each kind of caller as the table in the documents says.
func TestEveryRouteAnswersEachCallerAsDocumented(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Token = "root's" })
	callers := castOf(t, s)
	table := rows(t)
	answered := 0
	for i := range s.server.routes {
		rt := &s.server.routes[i]
		row, there := table[nameOf(rt)]
		if !there {
			t.Fatalf("the documents lack %s", nameOf(rt))
		}
		for _, c := range callers {
			// A backup, and the end of this node's leadership, are for nobody in this test.
			if c.expected(row, rt.needs == access.Peer) == 0 && (rt.backup || strings.HasSuffix(rt.path, "/step-down")) {
				continue
			}
			status, body := s.callAs(t, rt, &c)
			want := c.expected(row, rt.needs == access.Peer)
			refused := status == http.StatusUnauthorized || status == http.StatusForbidden
			// What a route itself refuses is not the table's: a forced compaction, a setting, a revocation.
			if refused != (want != 0) || (want != 0 && status != want) {
				t.Errorf("%s by %s: %d %s, want %d", nameOf(rt), c.name, status, body, want)
			}
			answered++
		}
	}
	if answered < 20*len(s.server.routes) {
		t.Errorf("%d calls of %d routes", answered, len(s.server.routes))
	}
}

// castOf makes a token for everybody who calls.
func castOf(t *testing.T, s *site) []cast {
	t.Helper()
	made := func(name string, n api.NewToken) string {
		t.Helper()
		one, err := s.server.ops.Tokens.Create(access.With(t.Context(), access.Root()), name, n)
		if err != nil {
			t.Fatal(err)
		}
		return one.Bearer
	}
	list := []cast{
		{name: "no token"},
		{name: "a wrong token", bearer: "nobody's"},
		{name: "the cluster token", bearer: "root's", root: true},
		{name: "the cluster token's start", bearer: "root'"},
		{name: "the certificate of a member", cert: "ringlog://node/n1", node: true},
		{name: "the certificate of another node", cert: "ringlog://node/n9"},
		{name: "the certificate of a client without a token", cert: "ringlog://client/stranger"},
	}
	session := func(bearer string) string {
		return s.server.callers.sessions.seal(bearer, time.Now().Add(time.Hour))
	}
	list = append(list,
		cast{name: "a session of the cluster token", cookie: session("root's"), root: true},
		cast{name: "a session that is over", cookie: s.server.callers.sessions.seal("root's", time.Now())},
		cast{name: "a session that was changed", cookie: session("root's")[1:]},
		cast{name: "a session of another cluster", cookie: newSessions("other").seal("root's", time.Now().Add(time.Hour))},
		cast{name: "the cluster token for a session", cookie: "root's"})
	for _, r := range access.Roles() {
		bearer := made(string(r), api.NewToken{Roles: []string{string(r)}})
		list = append(list,
			cast{name: string(r), bearer: bearer, role: r},
			cast{name: "a session, " + string(r), cookie: session(bearer), role: r},
			cast{name: "a client's certificate, " + string(r), cert: "ringlog://client/" + string(r), role: r},
			cast{name: "a member for " + string(r), cert: "ringlog://node/n1", speaks: string(r), role: r},
			cast{name: "a member with the cluster token for " + string(r), bearer: "root's", speaks: string(r), role: r},
			cast{name: string(r) + ", who speaks for an admin", bearer: bearer, speaks: "admin", role: r},
			cast{name: string(r) + " with another secret", bearer: bearer[:len(bearer)-1] + flipped(bearer)})
		if r.Scoped() {
			scoped := made(string(r)+"-types", api.NewToken{Roles: []string{string(r)}, Types: []string{"A_*"}})
			list = append(list, cast{name: string(r) + " of some types", bearer: scoped, role: r, scoped: true})
			scoped = made(string(r)+"-cursors", api.NewToken{Roles: []string{string(r)}, Cursors: []string{"*"}})
			list = append(list, cast{name: string(r) + " of some cursors", bearer: scoped, role: r, scoped: true})
		}
	}
	// Those whose token was good.
	revoked := made("revoked", api.NewToken{Roles: []string{"admin"}})
	if _, err := s.server.ops.Tokens.Revoke(t.Context(), "revoked"); err != nil {
		t.Fatal(err)
	}
	expired, id, secret := api.MakeToken("")
	old, err := s.server.ops.Propose(t.Context(), frame.Request{Command: frame.TokenCreate{Name: "expired", ID: id,
		Secret: sha256.Sum256([]byte(secret)), Roles: []string{"admin"}, TTL: 1, By: "root"}})
	if err != nil || old.Token == nil {
		t.Fatal(err)
	}
	rotated := made("rotated", api.NewToken{Roles: []string{"admin"}})
	if _, err := s.server.ops.Tokens.Rotate(t.Context(), "rotated", api.TokenRotation{Grace: "0s"}); err != nil {
		t.Fatal(err)
	}
	return append(list, cast{name: "a revoked token", bearer: revoked},
		cast{name: "a session of a revoked token", cookie: session(revoked)}, cast{name: "an expired token", bearer: expired},
		cast{name: "a secret that was rotated away", bearer: rotated},
		cast{name: "the certificate of an expired token", cert: "ringlog://client/expired"},
		cast{name: "a member for a token that is gone", cert: "ringlog://node/n1", speaks: "revoked"})
}

// flipped is another last character.
func flipped(bearer string) string {
	if strings.HasSuffix(bearer, "A") {
		return "B"
	}
	return "A"
}

// callAs makes a call without a body as somebody, in this process, and returns its status and the start of its answer.
func (s *site) callAs(t *testing.T, rt *route, c *cast) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	path := strings.TrimSuffix(wild.ReplaceAllString(rt.path, "nothing"), "{$}")
	method, content := rt.method, ""
	if rt.service != nil {
		method, content = http.MethodPost, "application/json"
	}
	// Reads that follow end at once.
	if rt.stream && method == http.MethodGet {
		path += "?timeout=1ms"
	}
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(""))
	r.Host = "127.0.0.1"
	if content != "" {
		r.Header.Set("Content-Type", content)
	}
	if c.bearer != "" {
		r.Header.Set("Authorization", "Bearer "+c.bearer)
	}
	if c.cookie != "" {
		r.AddCookie(&http.Cookie{Name: sessionCookie(r), Value: c.cookie})
	}
	if c.speaks != "" {
		r.Header.Set(headerPrincipal, c.speaks)
	}
	if c.cert != "" {
		uri, err := url.Parse(c.cert)
		if err != nil {
			t.Fatal(err)
		}
		leaf := &x509.Certificate{URIs: []*url.URL{uri}}
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf},
			VerifiedChains: [][]*x509.Certificate{{leaf}}}
	}
	w := httptest.NewRecorder()
	s.server.Handler().ServeHTTP(w, r)
	return w.Code, fmt.Sprintf("%.200s", w.Body.String())
}

// No permission is everybody's by mistake: what is dangerous is an admin's alone, and calls between nodes nobody's.
func TestWhoHasWhichPermission(t *testing.T) {
	t.Parallel()
	want := map[access.Permission][]access.Role{
		access.Administer: {access.Admin},
		access.Peer:       nil,
		access.Operate:    {access.Operator, access.Admin},
		access.Publish:    {access.Publisher, access.Admin},
		access.Subscribe:  {access.Subscriber, access.Admin},
		access.Observe:    {access.Monitor, access.Operator, access.Admin},
	}
	for p, roles := range want {
		if got := p.Holders(); !slices.Equal(got, roles) {
			t.Errorf("permission %d: %v, want %v", p, got, roles)
		}
	}
	if (access.Permission(0)).Declared() || access.Open.To("a role of a newer build") || access.Admin.Scoped() {
		t.Error("what is not declared is granted")
	}
}
