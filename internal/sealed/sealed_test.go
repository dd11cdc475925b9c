package sealed_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/sealed"
	"github.com/ringrift/ringlog/internal/server"
	"github.com/ringrift/ringlog/raftnode"
)

// site is a node, or an incident, that is asked over HTTP.
type site struct {
	t       testing.TB
	handler http.Handler
	token   string // that is shown; "" is none
}

func serve(t testing.TB, n server.Node) site { return serveWith(t, n, "") }

// serveWith is serve with a cluster token.
func serveWith(t testing.TB, n server.Node, token string) site {
	t.Helper()
	s, err := server.New(server.Config{Node: n, Version: "test", Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(t.Context()) })
	return site{t, s.Handler(), token}
}

func (s site) ask(method, path, body string) (int, string) {
	s.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "127.0.0.1"
	r.Header.Set("Content-Type", "application/json")
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	answer, err := io.ReadAll(w.Result().Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return w.Code, string(answer)
}

func (s site) ok(method, path, body string) string {
	s.t.Helper()
	status, answer := s.ask(method, path, body)
	if status != http.StatusOK {
		s.t.Fatalf("%s %s: %d %s", method, path, status, answer)
	}
	return answer
}

// live is a node of its own with a past: events, a cursor, a group, a dead letter, a setting, and a token.
func live(t *testing.T) (site, *raftnode.Node) {
	t.Helper()
	const alone = 50 * time.Millisecond
	n, err := raftnode.Open(t.Context(), raftnode.Config{
		ID: "n1", Dir: filepath.Join(t.TempDir(), "n1"), RaftBind: "127.0.0.1:0", HTTPAdvertise: "127.0.0.1:9",
		BootstrapExpect: 1, Secret: []byte("s"), Timing: raftnode.Timing{Heartbeat: alone, Election: alone, Lease: alone},
		Disk: raftnode.Disk{Reserve: -1}, Fatal: func(err error) { t.Errorf("fatal: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close(t.Context()) })
	if err := n.WaitLeader(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := serve(t, n)
	for i := range 5 {
		s.ok("POST", "/v1/events", fmt.Sprintf(`{"type":"TRAINING_COMPLETED","payload":{"n":%d}}`, i))
	}
	s.ok("PUT", "/v1/cursors/c", `{}`)
	s.ok("PUT", "/v1/groups/g", `{"filter":{"types":["*"]}}`)
	var open struct {
		Generation uint64 `json:"generation"`
	}
	if err := json.Unmarshal([]byte(s.ok("POST", "/v1/cursors/c/open", `{}`)), &open); err != nil {
		t.Fatal(err)
	}
	s.ok("POST", "/v1/cursors/c/deadletter", fmt.Sprintf(
		`{"generation":%d,"offset":2,"handler":"h","error":"it failed","attempts":3}`, open.Generation))
	s.ok("PUT", "/v1/settings/cursor.hold_events", `{"value":"4711"}`)
	return s, n
}

// taken is the whole past of a node.
func taken(t *testing.T, n *raftnode.Node) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := n.Incident(t.Context(), &b, api.Position{}, api.Position{}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func opened(t *testing.T, file []byte) *sealed.Node {
	t.Helper()
	n, err := sealed.Open(t.Context(), bytes.NewReader(file), filepath.Join(t.TempDir(), "in"),
		sealed.Options{HTTP: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// reads are what is asked of the past. What they leave out is what the clock, or a leader's memory, has a part in.
var reads = []string{"/v1/events", "/v1/events/3", "/v1/settings", "/v1/dlq?limit=10", "/v1/dlq/1", "/v1/cursors",
	"/v1/groups", "/v1/groups/g", "/v1/cursors/c", "/v1/catalogue", "/v1/dedup/3", "/v1/explain?cursor=c&offset=2",
	"/v1/events?consistency=linearizable", "/v1/cluster/history"}

func TestTheEndOfAnIncidentReadsAsTheNodeDoes(t *testing.T) {
	t.Parallel()
	s, n := live(t)
	past := opened(t, taken(t, n))
	if err := past.ToEnd(t.Context()); err != nil {
		t.Fatal(err)
	}
	replayed := serve(t, past)
	for _, path := range reads {
		if d := cmp.Diff(plain(t, s.ok("GET", path, "")), plain(t, replayed.ok("GET", path, ""))); d != "" {
			t.Errorf("GET %s: %s", path, d)
		}
	}
	// It says what it is, and leads nobody to the cluster.
	var status api.Status
	if err := json.Unmarshal([]byte(replayed.ok("GET", "/status", "")), &status); err != nil {
		t.Fatal(err)
	}
	if status.Role != raftnode.RoleSealed || status.LeaderID != "n1" || status.LeaderHTTP != "" ||
		len(status.Members) != 1 || status.Members[0].HTTP != "" || status.Quorum.Margin != 0 {
		t.Errorf("%+v", status.Cluster)
	}
	// A read of a cursor's events, a backup and another incident are not what it is for.
	for _, path := range []string{"/v1/snapshot", "/v1/incident"} {
		code, answer := replayed.ask("GET", path, "")
		if code != http.StatusForbidden || !strings.Contains(answer, "sealed") {
			t.Errorf("GET %s: %d %s", path, code, answer)
		}
	}
}

// plain is an answer without what only a running node knows.
func plain(t *testing.T, answer string) string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(answer) {
		var v any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			lines = append(lines, line) // an end that is no JSON, such as a heartbeat's
			continue
		}
		text, _ := json.MarshalIndent(without(v), "", " ")
		lines = append(lines, string(text))
	}
	return strings.Join(lines, "\n")
}

func without(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range []string{"lag_seconds", "coordinator", "as_of", "now", "clock"} {
			delete(v, name)
		}
		for k := range v {
			v[k] = without(v[k])
		}
	case []any:
		for i := range v {
			v[i] = without(v[i])
		}
	}
	return v
}

// Whatever is asked, by every call of the document that is not a read: the state stays, and who would have changed it
// learns why.
func TestNothingIsWrittenToAnIncident(t *testing.T) {
	t.Parallel()
	_, n := live(t)
	past := opened(t, taken(t, n))
	if err := past.ToEnd(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := serve(t, past)
	var document struct {
		Paths map[string]map[string]struct {
			RequestBody struct {
				Content map[string]struct{ Example any }
			}
		}
	}
	if err := json.Unmarshal([]byte(s.ok("GET", "/openapi.json", "")), &document); err != nil {
		t.Fatal(err)
	}
	before, dump := past.Machine().Position(), dumped(t, past)
	// These change nothing of any cluster, or there is nothing here that they could change.
	harmless := []string{"POST /v1/audit", "POST /v1/catalogue/validate", "POST /v1/incident/step",
		"DELETE /v1/session"}
	refused := 0
	for path, operations := range document.Paths {
		for method, op := range operations {
			method = strings.ToUpper(method)
			if method == http.MethodGet || slices.Contains(harmless, method+" "+path) {
				continue
			}
			body := ""
			if content, there := op.RequestBody.Content["application/json"]; there && content.Example != nil {
				text, err := json.Marshal(content.Example)
				if err != nil {
					t.Fatal(err)
				}
				body = string(text)
			}
			code, answer := s.ask(method, named(path), body)
			if code == http.StatusOK && !strings.Contains(answer, `"dry_run"`) {
				t.Errorf("%s %s: %s", method, path, answer)
			}
			if code == http.StatusForbidden && strings.Contains(answer, `"reason":"sealed"`) {
				refused++
			}
		}
	}
	if refused < 30 {
		t.Errorf("only %d calls were refused as writes", refused)
	}
	for _, call := range []struct{ path, body string }{
		{"/ringlog.v1.LogService/Publish", `{"events":[{"type":"TRAINING_COMPLETED","payload":"e30="}]}`},
		{"/ringlog.v1.CursorService/OpenCursor", `{"name":"c"}`},
		{"/ringlog.v1.GroupService/Exchange", `{"group":"g","member":"m","want":1}`},
	} {
		code, answer := s.ask("POST", call.path, call.body)
		if code == http.StatusOK || !strings.Contains(answer, "incident") {
			t.Errorf("%s: %d %s", call.path, code, answer)
		}
	}
	if after := past.Machine().Position(); after.Digest != before.Digest || dumped(t, past) != dump {
		t.Error("the state has changed")
	}
}

func dumped(t *testing.T, n *sealed.Node) string {
	t.Helper()
	var b bytes.Buffer
	if err := n.Machine().Dump(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// named is a path with names that there are.
func named(path string) string {
	return strings.NewReplacer("/groups/{name}", "/groups/g", "{name}", "c", "{offset}", "2", "{id}", "1", "{key}",
		"cursor.hold_events", "{type}", "TRAINING_COMPLETED", "{role}", "r", "{resource}", "x",
		"{allocation}", "a").Replace(path)
}

func TestOneGoesOnInAnIncident(t *testing.T) {
	t.Parallel()
	s, n := live(t)
	past := opened(t, taken(t, n))
	replayed := serve(t, past)
	step := func(body string) (place api.IncidentPlace) {
		t.Helper()
		if err := json.Unmarshal([]byte(replayed.ok("POST", "/v1/incident/step", body)), &place); err != nil {
			t.Fatal(err)
		}
		return place
	}
	if at := step(`{"until":3}`); at.LastOffset != 3 || at.Left == 0 || at.Digest == "" || at.NodeID != "n1" {
		t.Errorf("%+v", at)
	}
	if answer := replayed.ok("GET", "/v1/cursors", ""); strings.Contains(answer, `"c"`) {
		t.Errorf("at offset 3 there was no cursor: %s", answer)
	}
	if at, next := past.Place().Index, step(""); next.Index != at+1 {
		t.Errorf("a step leads from %d to %d", at, next.Index)
	}
	if at, next := past.Place().Index, step(`{"entries":2}`); next.Index != at+2 {
		t.Errorf("two steps lead from %d to %d", at, next.Index)
	}
	if at := step(`{"entries":1000000}`); at.Left != 0 || at.Index != at.LastIndex {
		t.Errorf("%+v", at)
	}
	for body, want := range map[string]string{`{"until":1}`: "moves forward and not back", `{"until":100000}`: "until",
		`{"until":1,"entries":1}`: "one of them", `{"unti":1}`: "unti"} {
		if code, answer := replayed.ask("POST", "/v1/incident/step", body); code != http.StatusBadRequest ||
			!strings.Contains(answer, want) {
			t.Errorf("%s: %d %s", body, code, answer)
		}
	}
	if code, answer := s.ask("POST", "/v1/incident/step", ""); code != http.StatusConflict ||
		!strings.Contains(answer, api.ReasonNoIncident) {
		t.Errorf("a step of a node: %d %s", code, answer)
	}
	// Bad input to the other route.
	for query, want := range map[string]string{"from=-0": "from", "from=end&to=start": "", "frm=1": "frm",
		"from=4711": "past_tail", "from=@2026-02-01&to=@2026-01-01": "before it begins"} {
		code, answer := s.ask("GET", "/v1/incident?"+query, "")
		if want != "" && (code < 400 || !strings.Contains(answer, want)) {
			t.Errorf("%s: %d %.200s", query, code, answer)
		}
	}
}

// The tokens of an incident are those of people of then: whoever has the file may read it.
func TestTheTokensOfAnIncidentKeepNobodyOut(t *testing.T) {
	t.Parallel()
	s, n := live(t)
	serveWith(t, n, "root's").ok("PUT", "/v1/tokens/somebody", `{"roles":["admin"]}`)
	if code, _ := s.ask("GET", "/v1/settings", ""); code != http.StatusUnauthorized {
		t.Fatalf("the node itself answers %d", code)
	}
	past := opened(t, taken(t, n))
	if err := past.ToEnd(t.Context()); err != nil {
		t.Fatal(err)
	}
	serve(t, past).ok("GET", "/v1/settings", "")
}

func TestWhatIsNoIncidentIsNotOpened(t *testing.T) {
	t.Parallel()
	_, n := live(t)
	var backup bytes.Buffer
	if _, err := n.Backup(t.Context(), &backup); err != nil {
		t.Fatal(err)
	}
	file := taken(t, n)
	for name, stream := range map[string][]byte{"a backup": backup.Bytes(), "nothing": nil,
		"a cut file": file[:len(file)/2]} {
		_, err := sealed.Open(t.Context(), bytes.NewReader(stream), filepath.Join(t.TempDir(), "in"), sealed.Options{})
		if err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
