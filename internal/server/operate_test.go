package server

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/certs"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/python"
	"github.com/ringrift/ringlog/raftnode"
)

func uintText(n uint64) string { return strconv.FormatUint(n, 10) }

func TestTheTokenGuardsAllButHealth(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Token = "secret" })
	for _, rt := range s.server.routes {
		method := cmp.Or(rt.method, http.MethodPost)
		path := strings.NewReplacer(
			"{offset}", "1", "{name}", "x", "{subject}", "1", "{key}", "x", "{type}", "x", "{id}",
			"x", "{$}", "", "{project}", python.Project, "/assets/{file}", "/assets/icon.svg", "{file}", python.Built().File,
		).Replace(
			rt.path,
		)
		a := s.do(method, path, "", "Authorization", "Bearer wrong")
		health := path == "/healthz" || path == "/readyz" || strings.HasPrefix(path, "/python/") ||
			strings.HasPrefix(path, consolePath) ||
			rt.pattern() == "DELETE /v1/session" // which has a browser forget its cookie, and does nothing here
		open := health || path == ringlogv1connect.PeerServiceChallengeProcedure
		if health != (a.status == http.StatusOK) || open != (a.status != http.StatusUnauthorized) {
			t.Errorf("%s %s: %d", method, path, a.status)
		}
		if !open {
			e := a.err(t)
			if e.Code != api.Unauthenticated || !strings.Contains(e.Remedy, "--token-file") ||
				a.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s %s: %s", method, path, a.body)
			}
		}
	}
	for _, auth := range []string{"", "Bearer", "Basic secret", "Bearer secretx", "secret"} {
		if a := s.do("GET", "/status", "", "Authorization", auth); a.status != http.StatusUnauthorized {
			t.Errorf("%q: %d", auth, a.status)
		}
	}
	if a := s.do(
		"POST", ringlogv1connect.LogServicePublishProcedure, "{}", "Authorization", "x",
		"Content-Type", "application/json",
	); a.status != http.StatusUnauthorized || !strings.Contains(a.body, `"code":"unauthenticated"`) {
		t.Errorf("Connect: %d %s", a.status, a.body)
	}
	s.ok("GET", "/status", "", "Authorization", "bearer secret")
}

func TestStatusSaysWhatHappened(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.publish("A", 1, 5)
	s.publish("A", 1, 5)
	s.ok("PUT", "/v1/cursors/c", `{"from":"start"}`)
	var st map[string]any
	s.ok("GET", "/status", "").decode(t, &st)
	if st["role"] != "leader" || st["last_offset"] != 6.0 || st["leader_http"] != s.url ||
		st["dedup"].(map[string]any)["suppressed"] != 5.0 {
		t.Errorf("%v", st)
	}
	if c := st["cursors"].([]any)[0].(map[string]any); c["lag_events"] != 6.0 || c["lag_seconds"] == nil {
		t.Errorf("%v", c)
	}
	s.ok("GET", "/healthz", "")
	s.ok("GET", "/readyz", "")
	if a := s.ok("GET", "/", ""); !strings.Contains(a.body, "/status") || !strings.Contains(a.body, "/openapi.json") {
		t.Errorf("%s", a.body)
	}
}

func TestMetricsAreAnExposition(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	if err := RaftMetrics(registry); err != nil {
		t.Fatal(err)
	}
	s := newSite(t, func(c *Config) { c.Registry = registry })
	s.publish("A", 1, 5)
	s.ok("PUT", "/v1/cursors/c", "")
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(s.ok("GET", "/metrics", "").body))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"ringlog_published_events_total": 5,
		"ringlog_log_last_offset":        6,
		"ringlog_leader":                 1,
		"ringlog_cursor_lag_events":      6,
		"ringlog_quorum_voters":          1,
		"ringlog_events_accepted_total":  5,
	} {
		f := families[name]
		if f == nil || value(f.Metric[0]) != want {
			t.Errorf("%s: %v, want %v", name, f, want)
		}
	}
	// Series of the runtime, the server and raft are in one exposition.
	for _, name := range []string{
		"go_goroutines", "ringlog_http_requests_total", "raft_fsm_applyBatch", "raft_commitTime",
	} {
		if families[name] == nil {
			var raft []string
			for n := range families {
				if strings.Contains(n, "raft") {
					raft = append(raft, n)
				}
			}
			t.Errorf("no %s; of raft there are %v", name, raft)
		}
	}
	if h := families["raft_fsm_applyBatch"].GetMetric(); len(h) != 1 || h[0].GetHistogram().GetSampleCount() == 0 {
		t.Errorf("raft_fsm_applyBatch: %v", h)
	}
}

// value returns the value of a counter or a gauge.
func value(m *dto.Metric) float64 {
	return m.GetCounter().GetValue() + m.GetGauge().GetValue()
}

// faultyNode is a real node some of whose answers are changed. A test sets it as Config.Node of its site.
type faultyNode struct {
	Node
	diverged atomic.Bool
	full     atomic.Bool // it reports a value in each field of its status
	panics   atomic.Bool
	hangs    atomic.Bool
	loses    atomic.Bool  // the outcome of what it proposes
	level    uint32       // the feature level that it reports; 0: its own
	looked   atomic.Int64 // how often its state machine was asked for
	leader   string       // where it says that the leader answers; "": where it does
	address  string       // where it says that it answers itself; "": where it does
	deadline atomic.Int64 // of the last proposal, in Unix nanoseconds

	silent atomic.Int64        // nanoseconds since it heard its leader, beyond the truth
	before func(frame.Command) // is called with what it proposes; nil: nothing is
}

func (f *faultyNode) Machine() *fsm.Machine {
	f.looked.Add(1)
	return f.Node.Machine()
}

func (f *faultyNode) HeardLeader() time.Time {
	return f.Node.HeardLeader().Add(-time.Duration(f.silent.Load()))
}

func (f *faultyNode) Diverged() bool { return f.diverged.Load() }
func (f *faultyNode) Propose(ctx context.Context, r frame.Request) (fsm.Result, error) {
	if f.panics.Load() {
		panic("planted")
	}
	if at, bounded := ctx.Deadline(); bounded {
		f.deadline.Store(at.UnixNano())
	}
	if f.before != nil {
		f.before(r.Command)
	}
	if f.hangs.Load() {
		<-ctx.Done()
		return fsm.Result{}, ctx.Err()
	}
	if f.loses.Load() {
		return fsm.Result{}, fmt.Errorf("%w: the leader changed", raftnode.ErrOutcomeUnknown)
	}
	return f.Node.Propose(ctx, r)
}
func (f *faultyNode) ReadBarrier(ctx context.Context) error {
	if f.hangs.Load() {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return f.Node.ReadBarrier(ctx)
}
func (f *faultyNode) Report(q raftnode.Question) raftnode.Report {
	if f.panics.Load() {
		panic("planted")
	}
	r := f.Node.Report(q)
	if f.level != 0 {
		r.FeatureLevel = f.level
	}
	r.HTTPAddr = cmp.Or(f.address, r.HTTPAddr)
	return r
}
func (f *faultyNode) AddMember(ctx context.Context, m frame.Member, opts raftnode.MemberOptions) (string, error) {
	if f.level != 0 {
		m.FeatureLevel = f.level
	}
	return f.Node.AddMember(ctx, m, opts)
}
func (f *faultyNode) Autopilot() (verdict raftnode.AutopilotVerdict, leads bool) {
	if f.full.Load() {
		fill(reflect.ValueOf(&verdict).Elem())
		return verdict, true
	}
	return f.Node.Autopilot()
}
func (f *faultyNode) LeadingTerm() uint64 {
	if f.leader != "" {
		return 0
	}
	return f.Node.LeadingTerm()
}
func (f *faultyNode) Status() raftnode.Status {
	if f.panics.Load() {
		panic("planted")
	}
	st := f.Node.Status()
	if f.full.Load() {
		id := st.NodeID // a member that the state machine knows
		fill(reflect.ValueOf(&st).Elem())
		st.Members[0].ID = id
		return st
	}
	st.Diverged = f.diverged.Load()
	if f.leader != "" {
		st.Role, st.LeaderID, st.LeaderHTTP = raftnode.RoleFollower, "other", f.leader
	}
	return st
}

func TestADivergedNodeServesNobody(t *testing.T) {
	t.Parallel()
	f := &faultyNode{}
	s := newSite(t, func(c *Config) { c.Node, c.Heartbeat = f, 20*time.Millisecond })
	lines, _ := s.follow(t.Context(), "/v1/events?follow=true")
	s.ok("PUT", "/v1/cursors/c", "")
	waits := s.wait(t.Context(), "?offset=99&cursors=c&timeout=1m")
	eventually(t, "both are under way", func() bool { return len(s.server.streams.places) == 2 })
	// What is under way ends as well.
	f.diverged.Store(true)
	if a := <-waits; a.status != 503 || !strings.Contains(a.body, "differs from the majority") {
		t.Errorf("a wait: %d %s", a.status, a.body)
	}
	if rest := ends(t, lines); len(rest) != 1 || !strings.Contains(rest[0], "differs from the majority") {
		t.Errorf("%q", rest)
	}
	for _, path := range []string{"/v1/events", "/v1/events/1", "/v1/cursors", "/readyz"} {
		a := s.do("GET", path, "")
		if e := a.err(t); a.status != 503 || e.Code != api.Unavailable || !strings.Contains(e.Message, "majority") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	// An operator still sees what is wrong.
	if a := s.ok("GET", "/status", ""); !strings.Contains(a.body, `"diverged":true`) {
		t.Errorf("%s", a.body)
	}
}

// A node that is found to differ while the message of a call arrives does not serve that call.
func TestANodeThatDivergesWhileItReadsAMessageServesNobody(t *testing.T) {
	t.Parallel()
	f := &faultyNode{}
	s := newSite(t, func(c *Config) { c.Node = f })
	// The client sends the body once the node has begun to read it, which is after the node's first check.
	_, before := s.node.Machine().Log().Bounds()
	continued := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
	t.Cleanup(continued.CloseIdleConnections)
	message := strings.NewReader(`{"events":[{"type":"A","payload":"e30="}]}`)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		s.url+ringlogv1connect.LogServicePublishProcedure,
		readerFunc(func(p []byte) (int, error) {
			f.diverged.Store(true)
			return message.Read(p)
		}))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentJSON)
	r.Header.Set("Expect", "100-continue")
	resp, err := continued.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 503 || !strings.Contains(string(body), "majority") {
		t.Errorf("%d %s %v", resp.StatusCode, body, err)
	}
	if _, last := s.node.Machine().Log().Bounds(); last != before {
		t.Errorf("the event is at offset %d", last)
	}
}

// readerFunc is an io.Reader.
type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A stream whose time is up before it could begin is answered like any other call, and not as a fault of the node.
func TestAStreamThatCannotBeginInTimeIsAnswered(t *testing.T) {
	t.Parallel()
	f := &faultyNode{}
	s := newSite(t, func(c *Config) { c.Node = f })
	f.hangs.Store(true)
	for _, path := range []string{
		"/v1/events?consistency=linearizable&timeout=50ms",
		"/v1/cursors/c/events?generation=1&timeout=50ms",
		"/v1/events/1?consistency=linearizable&timeout=50ms",
	} {
		if a := s.do(
			"GET", path, "",
		); a.status != api.Timeout.Status() || a.err(t).Code != api.Timeout || a.err(t).Remedy == "" {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

func TestAPanicIsAnsweredAndTheServerContinues(t *testing.T) {
	t.Parallel()
	var seen atomic.Int32
	f := &faultyNode{}
	s := newSite(t, func(c *Config) { c.Node, c.OnPanic = f, func(any) { seen.Add(1) } })
	f.panics.Store(true)
	a := s.do("GET", "/status", "")
	e := a.err(t)
	if a.status != 500 || e.Code != api.Internal || strings.Contains(a.body, "planted") || seen.Load() != 1 {
		t.Errorf("%d %s", a.status, a.body)
	}
	f.panics.Store(false)
	s.ok("GET", "/status", "")
}

// How a request of unknown outcome can be repeated depends on the request.
func TestAnUnknownOutcomeSaysHowToRepeatTheRequest(t *testing.T) {
	t.Parallel()
	f := &faultyNode{}
	s := newSite(t, func(c *Config) { c.Node = f })
	f.loses.Store(true)
	for _, one := range []struct {
		method, path, body, remedy string
		headers                    []string
	}{
		{"POST", "/v1/events", `{"type":"A"}`, "repeat it within its dedup window: ", nil},
		{"POST", "/v1/events", `{"type":"A"}`, "repeat it with the same producer and sequence: ",
			[]string{headerProducer, "p", headerSequence, "1"}},
		{"PUT", "/v1/cursors/c", "", "look whether it has happened, or repeat it", nil},
	} {
		a := s.do(one.method, one.path, one.body, one.headers...)
		if e := a.err(t); e.Code != api.OutcomeUnknown || !strings.HasPrefix(e.Remedy, one.remedy) {
			t.Errorf("%s %v: %d %s", one.path, one.headers, a.status, a.body)
		}
	}
}

// A node that is in no cluster yet says so where it is asked for events, rather than that its log is short.
func TestANodeWithoutAClusterHasNoEventsYet(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := startSite(t, l, nil, raftnode.Config{ID: "n1", Dir: t.TempDir(), BootstrapExpect: 3})
	for _, path := range []string{"/v1/events/1", "/v1/events?from=2", "/v1/dedup/1"} {
		a := s.do("GET", path, "")
		if e := a.err(t); a.status != 503 || e.Reason != api.ReasonNotFormed || e.Remedy == "" {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// A setting that is a duration takes days and weeks, as ages do elsewhere; any other does not.
func TestASettingTakesDaysAndWeeks(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	for value, want := range map[string]string{"7d": "168h0m0s", "1.5d": "36h0m0s", "2w": "336h0m0s", "90s": "90s"} {
		var set api.Setting
		s.ok("PUT", "/v1/settings/retention.age", `{"value":"`+value+`"}`).decode(t, &set)
		if set.Value != want {
			t.Errorf("%s is %s, want %s", value, set.Value, want)
		}
	}
	for key, value := range map[string]string{"cursor.max": "7d", "dedup.window": "7d", "retention.age": "7q"} {
		a := s.do("PUT", "/v1/settings/"+key, `{"value":"`+value+`"}`)
		if e := a.err(t); a.status != 400 || e.Field != "value" {
			t.Errorf("%s %s: %d %s", key, value, a.status, a.body)
		}
	}
}

// A path without a wildcard has its own methods alone, though a route with a wildcard matches it as well.
func TestALiteralPathHasItsOwnMethodsAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	for path, want := range map[string]string{
		"/v1/dlq/purge":          "POST",
		"/v1/dlq/import":         "POST",
		"/v1/catalogue/validate": "POST",
		"/v1/catalogue":          "GET, HEAD, POST",
		"/v1/dedup/policies":     "GET, HEAD",
	} {
		for _, method := range []string{"GET", "OPTIONS", "DELETE"} {
			a := s.do(method, path, "")
			if method == "GET" && strings.Contains(want, "GET") {
				continue
			}
			if allow := a.header.Get("Allow"); a.status != 405 || allow != want {
				t.Errorf("%s %s: %d, Allow is %q, want %q", method, path, a.status, allow, want)
			}
		}
	}
}

func TestMethodsAndPathsThatAreNot(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	a := s.do("PATCH", "/v1/cursors/c", "")
	allow := strings.Split(strings.ReplaceAll(a.header.Get("Allow"), " ", ""), ",")
	slices.Sort(allow)
	if a.status != 405 || !slices.Equal(allow, []string{"DELETE", "GET", "HEAD", "PUT"}) ||
		a.err(t).Code != api.MethodNotAllowed {
		t.Errorf("%d %v %s", a.status, allow, a.body)
	}
	if a := s.do("GET", "/v1/nothing/here", ""); a.status != 404 || a.err(t).Code != api.NotFound {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A reader that reads nothing of a long answer is cut off once a write takes too long.
func TestASlowReaderIsCutOff(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.WriteTimeout = 100 * time.Millisecond })
	body := `{"type":"A","dedup":false,"payload":{"x":"` + strings.Repeat("x", 900_000) + `"}}`
	for range 40 {
		s.ok("POST", "/v1/events", body)
	}
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprint(c, "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stream began", func() bool { return len(s.server.streams.places) == 1 })
	eventually(t, "the stream was given up", func() bool { return len(s.server.streams.places) == 0 })
	// What the buffers of both ends hold may still arrive, but not all 36 MB.
	n, err := io.Copy(io.Discard, c)
	if n >= 36_000_000 {
		t.Errorf("%d bytes came, %v", n, err)
	}
}

// A body whose next bytes do not arrive in time is answered with a timeout.
func TestABodyThatTricklesIsCutOff(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.BodyTimeout = 100 * time.Millisecond })
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprint(c, "POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusRequestTimeout {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
}

func TestStreamsAndBodiesAreBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.MaxStreams, c.MaxBodies = 1, 20_000 })
	lines, _ := s.follow(t.Context(), "/v1/events?follow=true&timeout=1h")
	_ = lines
	a := s.do("GET", "/v1/events?follow=true", "")
	if e := a.err(t); a.status != 429 || e.Code != api.Overloaded || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	large := `{"type":"A","payload":{"x":"` + strings.Repeat("x", 1500) + `"}}`
	s.ok("POST", "/v1/events", large)
	// Another address holds all but 1000 bytes of the memory.
	others := s.server.memory.openHold("192.0.2.1:1")
	if err := others.reserve(s.server.memory.most - 1000); err != nil {
		t.Fatal(err)
	}
	if a := s.do("POST", "/v1/events", large); a.status != 429 || a.err(t).Code != api.Overloaded {
		t.Errorf("%d %s", a.status, a.body)
	}
	// of unknown length
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/v1/events", io.MultiReader(strings.NewReader(large)))
	if err != nil {
		t.Fatal(err)
	}
	if a := s.send(r); a.status != 429 || a.err(t).Code != api.Overloaded {
		t.Errorf("%d %s", a.status, a.body)
	}
	others.close()
	s.ok("POST", "/v1/events", `{"type":"A"}`)
	if held := s.server.memory.held.Load(); held != 0 {
		t.Errorf("%d bytes of bodies are still counted", held)
	}
}

// TestEveryFieldOfStatusIsFilled has a node that reports a value in each field of its status, and a state machine to
// which everything has happened once. It requires that /status has a value in each field of its own.
func TestEveryFieldOfStatusIsFilled(t *testing.T) {
	t.Parallel()
	f := &faultyNode{}
	store, _, files := tlsSite(t)
	s := newSite(t, func(c *Config) { c.Node, c.TLS, c.TLSMode = f, store, certs.Allow })
	if err := os.Remove(files.CA); err != nil {
		t.Fatal(err)
	}
	_, _ = store.Reload() // it keeps what it has, and /status says why
	s.knowsGroups()
	offset := s.publish("A", 1, 5)[0]
	s.publish("A", 1, 5)
	for range 2 { // the second is answered from the first one's result
		s.ok("POST", "/v1/events", `{"type":"A","payload":{"n":9},"dedup_id":"d"}`, headerProducer, "p", headerSequence, "1")
	}
	s.do("POST", "/v1/events", `{"type":"A","payload":{"n":10},"dedup_id":"d"}`) // refused
	s.ok("PUT", "/v1/cursors/c", `{"from":"start"}`)
	s.ok("POST", "/v1/cursors/c/open", "")
	for _, at := range []uint64{offset, offset + 1} {
		s.letter("c", at)
	}
	s.ok("POST", "/v1/dlq/redrive", `{"ids":[1]}`)
	s.ok("PUT", "/v1/settings/dlq.stale_after", `{"value":"1ns"}`)
	s.propose(frame.Pressure{Active: true, Requests: 1})
	s.propose(frame.ClockStep{To: time.Now().Add(time.Hour), Agreed: []string{"n1"}})
	f.full.Store(true)
	var st api.Status
	s.ok("GET", "/status", "").decode(t, &st)

	got := map[string]bool{}
	noteFields(reflect.ValueOf(st), "", got)
	for path, filled := range got {
		if _, elsewhere := statusElsewhere[path]; !filled && !elsewhere {
			t.Errorf("nothing fills %s", path)
		}
	}
	for path := range statusElsewhere {
		if _, there := got[path]; !there {
			t.Errorf("there is no field %s", path)
		}
	}
}

// statusElsewhere has what that test does not look into, and the tests that do.
var statusElsewhere = map[string]string{
	"cursors":                   "TestStatusNamesSomeCursors",
	"cursors_left_out":          "TestStatusNamesSomeCursors",
	"event_subscription_status": "TestWhoListensIsKnownEverywhere",
	"handler_timeouts":          "TestWhoListensIsKnownEverywhere",
	"overdue_chains":            "TestAnOverdueRunIsReportedOnce",
	"log.result_bytes":          "TestResultsOfProducersAreBoundedInBytes (fsm)",
}

// fill sets each exported field below v to a value that is not zero, with one element in each list.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if at, ok := v.Field(i).Addr().Interface().(*time.Time); ok {
				*at = time.Unix(1_700_000_000+int64(i), 0).UTC() // later fields have later times
			} else {
				fill(v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(1)
	default:
		v.Set(reflect.ValueOf(1).Convert(v.Type()))
	}
}

// noteFields notes for each field below v whether it has a value. A field of a list's elements has one if any element
// does.
func noteFields(v reflect.Value, path string, filled map[string]bool) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			at := path
			if !f.Anonymous {
				at = strings.TrimPrefix(path+"."+name, ".")
				filled[at] = filled[at] || !v.Field(i).IsZero()
			}
			if _, elsewhere := statusElsewhere[at]; !elsewhere && f.Type != reflect.TypeFor[time.Time]() {
				noteFields(v.Field(i), at, filled)
			}
		}
	case reflect.Pointer:
		if v.IsNil() {
			v = reflect.New(v.Type().Elem())
		}
		noteFields(v.Elem(), path, filled)
	case reflect.Slice:
		if v.Len() == 0 {
			v = reflect.MakeSlice(v.Type(), 1, 1)
		}
		for i := range v.Len() {
			noteFields(v.Index(i), path, filled)
		}
	}
}
