package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/event"
)

// withToken is a cluster that lets nobody in without a token.
func withToken(c *Config) { c.Token = "root's" }

// token makes a token, and returns the header that shows it.
func (s *site) tokenOf(name string, n api.NewToken) []string {
	s.t.Helper()
	var body strings.Builder
	fmt.Fprintf(&body, `{"roles":[%s]`, quoted(n.Roles))
	if len(n.Types) > 0 {
		fmt.Fprintf(&body, `,"types":[%s]`, quoted(n.Types))
	}
	if len(n.Cursors) > 0 {
		fmt.Fprintf(&body, `,"cursors":[%s]`, quoted(n.Cursors))
	}
	var made api.TokenMade
	s.ok("PUT", "/v1/tokens/"+name, body.String()+"}").decode(s.t, &made)
	return []string{"Authorization", "Bearer " + made.Bearer}
}

func quoted(list []string) string { return `"` + strings.Join(list, `","`) + `"` }

// wants is a request and how it is answered: with a status, and with parts that are in the body or, after !, are not.
type wants struct {
	method, path, body string
	status             int
	parts              []string
}

// hold makes requests with a token.
func (s *site) hold(header []string, list ...wants) {
	s.t.Helper()
	for _, w := range list {
		a := s.do(w.method, w.path, w.body, header...)
		if a.status != w.status {
			s.t.Errorf("%s %s: %d %s, want %d", w.method, w.path, a.status, a.body, w.status)
		}
		for _, part := range w.parts {
			text, absent := strings.CutPrefix(part, "!")
			if strings.Contains(a.body, text) == absent {
				s.t.Errorf("%s %s: %q in %s is not %t", w.method, w.path, text, a.body, !absent)
			}
		}
	}
}

// However events are read, a token for some types shows no other; however they are published, it takes no other.
func TestATokenForSomeTypesSeesNoOther(t *testing.T) {
	t.Parallel()
	s := newSite(t, withToken)
	shown, hidden := s.publish("SEEN_A", 1, 3), s.publish("HIDDEN_B", 1, 3)
	reader := s.tokenOf("reader", api.NewToken{Roles: []string{"subscriber", "publisher"}, Types: []string{"SEEN_*"}})
	writer := s.tokenOf("writer", api.NewToken{Roles: []string{"publisher"}})
	s.ok("PUT", "/v1/cursors/c", "")
	s.ok("PUT", "/v1/cursors/g-all", "")
	s.ok("PUT", "/v1/groups/wide", `{"filter":{"types":["*_A"]}}`)
	s.ok("PUT", "/v1/groups/fit", `{"filter":{"types":["SEEN_A"]}}`)
	generation := s.open("c")
	// A dead letter of each type.
	for _, offset := range []uint64{shown[0], hidden[0]} {
		s.ok("POST", "/v1/cursors/c/deadletter",
			fmt.Sprintf(`{"offset":%d,"generation":%d,"handler":"h","error":"e","attempts":1}`, offset, generation))
	}
	hash := s.dedupOf(hidden[0]).Hash
	member := `{"member":"m","want":10,"wait_ms":0}`
	s.hold(reader, []wants{
		{"GET", "/v1/events", "", 200, []string{"SEEN_A", "!HIDDEN_B"}},
		{"GET", "/v1/events?type=HIDDEN_B", "", 200, []string{"!HIDDEN_B"}},
		{"GET", "/v1/events?type=*_B&type=*_A", "", 200, []string{"SEEN_A", "!HIDDEN_B"}},
		{"GET", fmt.Sprintf("/v1/events/%d", shown[1]), "", 200, []string{"SEEN_A"}},
		{"GET", fmt.Sprintf("/v1/events/%d", hidden[1]), "", 404, []string{"!HIDDEN_B"}},
		{"GET", fmt.Sprintf("/v1/dedup/%d", shown[1]), "", 200, nil},
		{"GET", fmt.Sprintf("/v1/dedup/%d", hidden[1]), "", 404, []string{"!HIDDEN_B"}},
		{"GET", "/v1/dedup/" + hash, "", 404, []string{"!HIDDEN_B"}},
		{"GET", fmt.Sprintf("/v1/cursors/c/events?generation=%d", generation), "", 200, []string{"!HIDDEN_B"}},
		{"GET", fmt.Sprintf("/v1/explain?cursor=c&offset=%d", hidden[1]), "", 404, []string{"!HIDDEN_B"}},
		{"POST", "/v1/cursors/c/deadletter", fmt.Sprintf(
			`{"offset":%d,"generation":%d,"handler":"h","error":"e","attempts":1}`, hidden[2], generation), 404, nil},
		{"GET", "/v1/dlq?limit=10", "", 200, []string{"SEEN_A", "!HIDDEN_B"}},
		{"GET", "/v1/dlq", "", 200, []string{"SEEN_A", "!HIDDEN_B", `"dead":1`}},
		{"GET", "/v1/dlq/errors", "", 200, []string{"SEEN_A", "!HIDDEN_B"}},
		{"GET", "/v1/dlq/1", "", 200, []string{"SEEN_A"}},
		{"GET", "/v1/dlq/2", "", 404, []string{"!HIDDEN_B"}},
		{"GET", "/v1/chain/x", "", 403, []string{"out_of_scope"}},
		{"POST", "/v1/groups/fit/exchange", member, 200, []string{"SEEN_A"}},
		{"POST", "/v1/groups/wide/exchange", member, 403, []string{"out_of_scope"}},
		{"POST", "/v1/events", `{"type":"SEEN_A","payload":{"n":9}}`, 200, nil},
		{"POST", "/v1/events", `{"type":"HIDDEN_B","payload":{"n":9}}`, 403, []string{"out_of_scope"}},
		{"POST", "/v1/events", `[{"type":"SEEN_A","payload":{"n":8}},{"type":"hidden_b","payload":{}}]`, 403,
			[]string{`"field":"events[1].type"`}},
		{"PUT", "/v1/scheduled/x", `{"at":"2099-01-01T00:00:00Z","event":{"type":"HIDDEN_B","payload":{}}}`, 403, nil},
		{"PUT", "/v1/scheduled/y", `{"at":"2099-01-01T00:00:00Z","event":{"type":"SEEN_A","payload":{}}}`, 200, nil},
	}...)
	s.ok("PUT", "/v1/scheduled/z", `{"at":"2099-01-01T00:00:00Z","event":{"type":"HIDDEN_B","payload":{}}}`)
	s.hold(reader, []wants{
		{"GET", "/v1/scheduled", "", 200, []string{`"y"`, "!HIDDEN_B"}},
		{"GET", "/v1/scheduled/z", "", 404, nil},
		{"DELETE", "/v1/scheduled/z", "", 404, nil},
	}...)

	// Blocks that travel as they are stored have all types in them.
	authorized := connect.WithInterceptors(bearerOf(reader[1]))
	logs := ringlogv1connect.NewLogServiceClient(s.http, s.url, authorized)
	for _, packets := range []bool{true, false} {
		got := typesOf(t, logs, &ringlogv1.TailRequest{Packets: packets,
			From: &ringlogv1.Position{At: &ringlogv1.Position_Start{Start: true}}})
		if slices.Contains(got, "HIDDEN_B") || !slices.Contains(got, "SEEN_A") {
			t.Errorf("with packets %t: %v", packets, got)
		}
	}
	other := event.New("HIDDEN_B", []byte(`{"n": 5}`))
	for _, request := range []*ringlogv1.PublishRequest{
		{Packet: packetOf(event.New("SEEN_A", []byte(`{"n": 4}`)), other)},
		{Events: []*ringlogv1.Event{{Type: "HIDDEN_B", Payload: []byte(`{"n": 6}`)}}},
	} {
		_, err := logs.Publish(t.Context(), connect.NewRequest(request))
		if refusal, ok := apiError(err); !ok || refusal.Reason != api.ReasonScope {
			t.Errorf("%v, want the reason %s", err, api.ReasonScope)
		}
	}
	// The same over a publish stream, which continues.
	c := s.streamAs(reader)
	c.send(&ringlogv1.PublishRequest{Packet: packetOf(other)})
	if got := c.reply(); got.Error == nil || got.Error.Reason != api.ReasonScope {
		t.Errorf("%v, want the reason %s", got, api.ReasonScope)
	}
	c.send(&ringlogv1.PublishRequest{Packet: packetOf(event.New("SEEN_A", []byte(`{"n": 7}`)))})
	if got := c.reply(); got.Error != nil {
		t.Error(got.Error)
	}

	// Whoever reads nothing does not learn where an earlier event is.
	again := `{"type":"SEEN_A","payload":{"n":1},"source":"s1","key":"k1"}`
	s.hold(writer, wants{"POST", "/v1/events", again, 200, []string{`"duplicate":true`, `"offset":0`}})
	s.hold(reader, wants{"POST", "/v1/events", again, 200, []string{`"duplicate":true`,
		fmt.Sprintf(`"offset":%d`, shown[0])}})
	id := `{"type":"SEEN_A","payload":{"n":%d},"dedup_id":"one"}`
	s.ok("POST", "/v1/events", fmt.Sprintf(id, 1))
	s.hold(writer, wants{"POST", "/v1/events", fmt.Sprintf(id, 2), 409, []string{"!\"offset\""}})

	// A gap names no type that is not the reader's.
	s.ok("POST", "/v1/compact", `{"keep":1,"force":true}`)
	s.hold(reader, []wants{
		{"GET", "/v1/cursors/c", "", 200, []string{`"gap"`, "!HIDDEN_B"}},
		{"GET", "/v1/cursors", "", 200, []string{`"gap"`, "SEEN_A", "!HIDDEN_B"}},
		{"GET", fmt.Sprintf("/v1/cursors/c/events?generation=%d", generation), "", 200, []string{`"gap"`, "!HIDDEN_B"}},
		{"GET", "/v1/events?from=1", "", 200, []string{`"gap"`, "!HIDDEN_B"}},
	}...)
}

// dedupOf is what deduplication did with an event.
func (s *site) dedupOf(offset uint64) (x api.Explanation) {
	s.t.Helper()
	s.ok("GET", fmt.Sprintf("/v1/dedup/%d", offset), "").decode(s.t, &x)
	return x
}

// streamAs opens a publish stream with a token.
func (s *site) streamAs(header []string) *dialer {
	s.t.Helper()
	answer, c := s.call("", "Connection: Upgrade\r\nUpgrade: "+api.PublishStreamProtocol, header[0]+": "+header[1])
	if answer.StatusCode != http.StatusSwitchingProtocols {
		s.t.Fatalf("a publish stream was answered with %s", answer.Status)
	}
	return c
}

// bearerOf adds a header to calls over Connect.
type bearerOf string

func (b bearerOf) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		r.Header().Set("Authorization", string(b))
		return next(ctx, r)
	}
}

func (b bearerOf) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		conn.RequestHeader().Set("Authorization", string(b))
		return conn
	}
}

func (b bearerOf) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// typesOf reads a tail to its end, and returns the types that it shows anywhere.
func typesOf(t *testing.T, logs ringlogv1connect.LogServiceClient, r *ringlogv1.TailRequest) (types []string) {
	t.Helper()
	stream, err := logs.Tail(t.Context(), connect.NewRequest(r))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for stream.Receive() {
		for _, run := range stream.Msg().Runs {
			for _, e := range run.Events {
				types = append(types, e.Type)
			}
			if run.Span != nil {
				types = append(types, run.Span.Packet.Types...)
			}
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	return types
}

// A cursor or group that is not a token's is refused, whether it exists or not, and no list has it.
func TestATokenForSomeCursorsSeesNoOther(t *testing.T) {
	t.Parallel()
	s := newSite(t, withToken)
	s.publish("A", 1, 2)
	for _, name := range []string{"mine-1", "other"} {
		s.ok("PUT", "/v1/cursors/"+name, "")
		s.ok("PUT", "/v1/groups/"+name+"-g", "")
	}
	reader := s.tokenOf("reader", api.NewToken{Roles: []string{"subscriber"}, Cursors: []string{"mine-*"}})
	member := `{"member":"m","want":1,"wait_ms":0}`
	for _, name := range []string{"other", "nothing"} {
		s.hold(reader, []wants{
			{"GET", "/v1/cursors/" + name, "", 403, []string{"out_of_scope"}},
			{"PUT", "/v1/cursors/" + name, "", 403, nil},
			{"PUT", "/v1/cursors/" + name + "/filter", `{"filter":{}}`, 403, nil},
			{"DELETE", "/v1/cursors/" + name, "", 403, nil},
			{"POST", "/v1/cursors/" + name + "/open", "", 403, nil},
			{"GET", "/v1/cursors/" + name + "/events?generation=1", "", 403, nil},
			{"POST", "/v1/cursors/" + name + "/commit", `{"offset":1,"generation":1}`, 403, nil},
			{"POST", "/v1/cursors/" + name + "/seek", `{"to":"start"}`, 403, nil},
			{"POST", "/v1/cursors/" + name + "/deadletter",
				`{"offset":1,"generation":1,"handler":"h","error":"e","attempts":1}`, 403, nil},
			{"GET", "/v1/explain?cursor=" + name + "&offset=1", "", 403, nil},
			{"GET", "/v1/wait?offset=1&cursors=mine-1," + name, "", 403, nil},
			{"GET", "/v1/groups/" + name + "-g", "", 403, nil},
			{"PUT", "/v1/groups/" + name + "-g", "", 403, nil},
			{"DELETE", "/v1/groups/" + name + "-g", "", 403, nil},
			{"GET", "/v1/groups/" + name + "-g/members", "", 403, nil},
			{"POST", "/v1/groups/" + name + "-g/exchange", member, 403, nil},
		}...)
	}
	s.hold(reader, []wants{
		{"GET", "/v1/cursors", "", 200, []string{"mine-1", "!other", `"cursors_total":2`}},
		{"GET", "/v1/groups", "", 200, []string{"mine-1-g", "!other"}},
		{"GET", "/v1/cursors/mine-1", "", 200, nil},
		{"POST", "/v1/groups/mine-1-g/exchange", member, 200, nil},
		{"GET", "/status", "", 403, nil},
		{"GET", "/metrics", "", 403, nil},
	}...)
}

// What an operator may not do is what loses data, or gives power.
func TestWhatIsLeftToAnAdmin(t *testing.T) {
	t.Parallel()
	s := newSite(t, withToken)
	operator := s.tokenOf("ops", api.NewToken{Roles: []string{"operator"}})
	worker := s.tokenOf("worker", api.NewToken{Roles: []string{"publisher"}})
	s.hold(operator, []wants{
		{"PUT", "/v1/settings/group.ack_wait", `{"value":"1m"}`, 200, nil},
		{"PUT", "/v1/settings/retention.age", `{"value":"1s"}`, 403, []string{"permission"}},
		{"PUT", "/v1/settings/auth.open_metrics", `{"value":"true"}`, 403, nil},
		{"POST", "/v1/compact", `{"keep":1}`, 200, nil},
		{"POST", "/v1/compact", `{"keep":1,"force":true}`, 403, []string{"permission"}},
		{"DELETE", "/v1/roles/R?fence=7", "", 409, nil},
	}...)
	s.hold(worker, []wants{
		{"PUT", "/v1/roles/R", `{"holder":"h","session":"s"}`, 200, nil},
		{"DELETE", "/v1/roles/R?fence=7", "", 403, []string{"permission"}},
		{"DELETE", "/v1/roles/R?session=s", "", 200, nil},
	}...)
	// Metrics are open where a setting says so.
	stranger := []string{"Authorization", ""}
	s.hold(stranger, wants{"GET", "/metrics", "", 401, nil})
	s.ok("PUT", "/v1/settings/auth.open_metrics", `{"value":"true"}`)
	s.hold(stranger, wants{"GET", "/metrics", "", 200, nil}, wants{"GET", "/status", "", 401, nil})
}

// Where sources are bound, a token writes under its own name, however it publishes.
func TestATokenWritesUnderItsOwnName(t *testing.T) {
	t.Parallel()
	s := newSite(t, withToken)
	header := s.tokenOf("trainer", api.NewToken{Roles: []string{"publisher"}})
	s.hold(header, wants{"POST", "/v1/events", `{"type":"A","source":"somebody","payload":{"n":0}}`, 200, nil})
	s.ok("PUT", "/v1/settings/auth.bind_source", `{"value":"true"}`)
	refused := []string{api.ReasonScope, "auth.bind_source"}
	s.hold(header,
		wants{"POST", "/v1/events", `{"type":"A","payload":{"n":1}}`, 200, nil},
		wants{"POST", "/v1/events", `{"type":"A","source":"trainer","payload":{"n":2}}`, 200, nil},
		wants{"POST", "/v1/events", `{"type":"A","source":"trainer/gpu-3","payload":{"n":3}}`, 200, nil},
		wants{"POST", "/v1/events", `{"type":"A","source":"trainers","payload":{"n":4}}`, 403, refused},
		wants{"POST", "/v1/events", `[{"type":"A","payload":{"n":5}},{"type":"A","source":"root"}]`, 403, refused},
		wants{"PUT", "/v1/scheduled/late", `{"at":"2099-01-01T00:00:00Z","event":{"type":"A","source":"b"}}`, 403, refused},
	)
	s.ok("POST", "/v1/events", `{"type":"A","source":"somebody","payload":{"n":6}}`) // with the cluster token

	// As a client's packet, whose event has the form in which it is stored but for the source.
	c := ringlogv1connect.NewLogServiceClient(s.http, s.url)
	policy := s.node.Machine().Policy()
	send := func(source string) error {
		e := event.New("A", []byte(`{"n":7}`))
		e.Time = time.Unix(7, 0).UTC()
		if _, _, err := policy.Normalize(&e); err != nil {
			return err
		}
		e.Source = source
		r := connect.NewRequest(&ringlogv1.PublishRequest{Packet: packetOf(e)})
		r.Header().Set(header[0], header[1])
		_, err := c.Publish(t.Context(), r)
		return err
	}
	if err := send("somebody"); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a packet of another source: %v", err)
	}
	if err := send(""); err != nil {
		t.Error(err)
	}
	var sources []string
	all := event.Filter{Types: []string{"A"}}.Compile(event.Builtin())
	chunk, err := s.node.Machine().Log().Read(1, &all, 100)
	for i := range chunk.Events {
		sources = append(sources, chunk.Events[i].Source)
	}
	want := []string{"somebody", "trainer", "trainer", "trainer/gpu-3", "somebody", "trainer"}
	if err != nil || !slices.Equal(sources, want) {
		t.Errorf("sources are %q, want %q: %v", sources, want, err)
	}
}

// One token has half of a node's streams and a quarter of its memory for bodies, and the others have theirs.
func TestATokenLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Token, c.MaxStreams, c.MaxBodies = "root's", 4, 40_000 })
	greedy := s.tokenOf("greedy", api.NewToken{Roles: []string{"subscriber", "publisher"}})
	other := s.tokenOf("other", api.NewToken{Roles: []string{"subscriber", "publisher"}})
	ctx, cancel := context.WithCancel(t.Context())
	for range 2 {
		s.follow(ctx, "/v1/events?follow=true", greedy...)
	}
	s.hold(greedy, wants{"GET", "/v1/events?follow=true&timeout=1s", "", 429, []string{"the token has half"}})
	s.hold(other, wants{"GET", "/v1/events?follow=true&timeout=10ms", "", 200, nil})
	cancel()
	eventually(t, "the streams to end", func() bool {
		s.server.streams.mu.Lock()
		defer s.server.streams.mu.Unlock()
		return len(s.server.streams.of) == 0 && len(s.server.streams.places) == 0
	})

	// A body of the greedy one is under way, from the address that the other one has as well.
	id := strings.Split(strings.TrimPrefix(greedy[1], "Bearer "), "_")[1]
	under := s.server.memory.openHold("token " + id)
	defer under.close()
	if err := under.receiveBody(int(s.server.memory.each) - 100); err != nil {
		t.Fatal(err)
	}
	large := `{"type":"A","payload":{"x":"` + strings.Repeat("x", 500) + `"}}`
	s.hold(greedy, wants{"POST", "/v1/events", large, 429, []string{"this caller's requests"}})
	s.hold(other, wants{"POST", "/v1/events", large, 200, nil})
}

// Whatever a token calls counts in its requests of a second, those of a publish stream too, and in nobody else's.
func TestATokenHasItsRequestsOfASecond(t *testing.T) {
	t.Parallel()
	s := newSite(t, withToken)
	busy := s.tokenOf("busy", api.NewToken{Roles: []string{"operator", "publisher"}})
	other := s.tokenOf("other", api.NewToken{Roles: []string{"publisher"}})
	line := s.streamAs(busy)
	s.ok("PUT", "/v1/settings/limits.requests_per_second", `{"value":"2"}`)
	refused := 0
	for range 10 {
		if s.do("GET", "/v1/settings", "", busy...).status == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused < 5 {
		t.Errorf("%d of 10 requests are refused, at 2 a second", refused)
	}
	a := s.do("GET", "/v1/settings", "", busy...)
	if e := a.err(t); e.Code != api.Overloaded || !strings.Contains(e.Remedy, "limits.requests_per_second") ||
		a.header.Get("Retry-After") == "" {
		t.Errorf("%v %v", e, a.header)
	}
	line.send(oneEvent("{}"))
	if reply := line.reply(); !strings.Contains(reply.String(), "requests a second") {
		t.Errorf("a publish stream is not bounded: %v", reply)
	}
	s.hold(other, wants{"POST", "/v1/events", `{"type":"A"}`, 200, nil})
	s.hold(busy, wants{"GET", "/healthz", "", 200, nil})
	s.ok("PUT", "/v1/settings/limits.requests_per_second", `{"value":"0"}`)
	s.hold(busy, wants{"GET", "/v1/settings", "", 200, nil})
}

// Streams, exchanges and publish streams end with their token, at every node within a second.
func TestWhatLastsEndsWithItsToken(t *testing.T) {
	t.Parallel()
	sites := newSites(t, 3, withToken)
	leader, others := leading(t, sites)
	header := leader.tokenOf("t", api.NewToken{Roles: []string{"subscriber", "publisher"}})
	kept := leader.tokenOf("kept", api.NewToken{Roles: []string{"subscriber"}})
	leader.ok("PUT", "/v1/groups/g", `{"from":"end"}`) // after the events of the tokens
	id := strings.Split(strings.TrimPrefix(header[1], "Bearer "), "_")[1]
	for _, s := range sites {
		eventually(t, "the tokens at every node", func() bool { return s.node.Machine().Tokens().Len() == 2 })
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stays, _ := leader.follow(ctx, "/v1/events?follow=true", kept...)
	type ending struct {
		what string
		done chan error
	}
	var all []ending
	for _, s := range sites {
		lines, _ := s.follow(ctx, "/v1/events?follow=true", header...)
		tail := ending{"a tail", make(chan error, 1)}
		go func() {
			last := ""
			for line := range lines {
				if line != "" {
					last = line
				}
			}
			if !strings.Contains(last, api.ReasonRevoked) {
				tail.done <- fmt.Errorf("a tail ends with %q", last)
				return
			}
			tail.done <- nil
		}()
		line := s.streamAs(header)
		lineEnd := ending{"a publish stream", make(chan error, 1)}
		go func() {
			_, err := io.ReadAll(line.in)
			lineEnd.done <- err
		}()
		exchange := ending{"an exchange", make(chan error, 1)}
		go func() {
			r, _ := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/groups/g/exchange",
				strings.NewReader(`{"member":"`+s.node.Status().NodeID+`","want":1,"wait_ms":30000}`))
			r.Header.Set(header[0], header[1])
			resp, err := s.http.Do(r)
			if err == nil {
				resp.Body.Close()
				if resp.StatusCode != http.StatusUnauthorized {
					err = fmt.Errorf("an exchange was answered with %s", resp.Status)
				}
			}
			exchange.done <- err
		}()
		all = append(all, tail, lineEnd, exchange)
	}
	// All of them are under way: at the leader also those that the followers have passed on.
	eventually(t, "everything under way", func() bool {
		n := 0
		for _, s := range sites {
			s.server.callers.mu.Lock()
			for one := range s.server.callers.lasting {
				if one.who.id == id {
					n++
				}
			}
			s.server.callers.mu.Unlock()
		}
		return n == 3*len(sites)+len(others)
	})
	began := time.Now()
	leader.ok("DELETE", "/v1/tokens/t", "")
	for _, one := range all {
		select {
		case err := <-one.done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s does not end", one.what)
		}
	}
	if took := time.Since(began); took > time.Second && raceEnabled == 0 {
		t.Errorf("it took %s", took)
	}
	for _, s := range sites {
		if got := s.do("GET", "/v1/cluster", "", header...); got.status != http.StatusUnauthorized {
			t.Errorf("a revoked token is answered with %d", got.status)
		}
	}
	// The others continue.
	leader.publish("A", 1, 1)
	for !strings.Contains(next(t, stays), `"A"`) {
	}
}

// A node that has not heard a leader for ten seconds does not know which tokens are revoked: whoever has one may only
// monitor there, so that the outage is seen.
func TestANodeThatHearsNoLeaderLetsTokensOnlyMonitor(t *testing.T) {
	t.Parallel()
	deaf := &faultyNode{}
	s := newSite(t, func(c *Config) { c.Token, c.Node = "root's", deaf })
	of := func(roles ...string) []string { return s.tokenOf(roles[0], api.NewToken{Roles: roles}) }
	monitor, admin, reader := of("monitor"), of("admin"), of("subscriber", "publisher")
	for _, one := range []struct {
		silent time.Duration
		status int
	}{{0, 200}, {cutOffAfter - time.Second, 200}, {cutOffAfter + time.Second, 503}, {0, 200}} {
		deaf.silent.Store(int64(one.silent))
		var reason []string
		if one.status == 503 {
			reason = []string{api.ReasonCutOff}
		}
		for _, path := range []string{"/status", "/metrics", "/v1/cluster", "/v1/cluster/outage", "/v1/members"} {
			s.hold(monitor, wants{"GET", path, "", 200, nil})
			s.hold(admin, wants{"GET", path, "", 200, nil})
		}
		s.hold(admin, wants{"GET", "/v1/events", "", one.status, reason},
			wants{"GET", "/v1/tokens", "", one.status, reason},
			wants{"PUT", "/v1/settings/dedup.window", `{"value":"5m"}`, one.status, reason})
		s.hold(reader, wants{"GET", "/v1/events", "", one.status, reason},
			wants{"POST", "/v1/events", `{"type":"A"}`, one.status, reason})
		s.hold(monitor, wants{"GET", "/v1/events", "", 403, []string{api.ReasonPermission}})
	}

	if t.Failed() {
		t.FailNow() // nothing below would end
	}

	// What lasts ends by the same rule, and a token that is known to be none gets nothing.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch, _ := s.follow(ctx, "/v1/cluster/outage?follow=true", monitor...)
	tail, _ := s.follow(ctx, "/v1/events?follow=true&from=end", reader...)
	line := s.streamAs(reader)
	deaf.silent.Store(int64(time.Hour))
	for range tail {
	}
	if _, err := io.ReadAll(line.in); err != nil {
		t.Errorf("a publish stream: %v", err)
	}
	for began := time.Now(); time.Since(began) < 3*lookEvery; {
		if _, open := <-watch; !open { // heartbeats, at least
			t.Fatal("the stream of outages ends")
		}
	}
	s.ok("GET", "/v1/events", "") // with the cluster token
	s.ok("DELETE", "/v1/tokens/monitor", "")
	s.hold(monitor, wants{"GET", "/status", "", 401, nil})
	for range watch {
	}
}

// What a follower passes on to the leader is done on its caller's behalf, over HTTP and over Connect.
func TestAFollowerSpeaksForItsCaller(t *testing.T) {
	t.Parallel()
	sites := newSites(t, 3, withToken)
	leader, others := leading(t, sites)
	leader.ok("PUT", "/v1/groups/mine", "")
	leader.ok("PUT", "/v1/groups/other", "")
	reader := leader.tokenOf("reader", api.NewToken{Roles: []string{"subscriber"}, Cursors: []string{"mine"}})
	monitor := leader.tokenOf("monitor", api.NewToken{Roles: []string{"monitor"}})
	member := `{"member":"m","want":1,"wait_ms":0}`
	for _, s := range others {
		eventually(t, "the tokens at a follower", func() bool { return s.node.Machine().Tokens().Len() == 2 })
		s.hold(reader, []wants{
			{"GET", "/v1/groups", "", 200, []string{`"mine"`, `!"other"`}},
			{"POST", "/v1/groups/mine/exchange", member, 200, nil},
			{"POST", "/v1/groups/other/exchange", member, 403, []string{"out_of_scope"}},
			{"POST", "/v1/members/n1/demote", "", 403, []string{"permission"}},
		}...)
		s.hold(monitor, wants{"POST", "/v1/groups/mine/exchange", member, 403, []string{"permission"}})
		groups := ringlogv1connect.NewGroupServiceClient(s.http, s.url, connect.WithInterceptors(bearerOf(reader[1])))
		_, err := groups.Exchange(t.Context(), connect.NewRequest(&ringlogv1.ExchangeRequest{Group: "mine", Member: "m2"}))
		if err != nil {
			t.Error(err)
		}
		_, err = groups.Exchange(t.Context(), connect.NewRequest(&ringlogv1.ExchangeRequest{Group: "other", Member: "m2"}))
		if refusal, ok := apiError(err); !ok || refusal.Reason != api.ReasonScope {
			t.Errorf("%v, want the reason %s", err, api.ReasonScope)
		}
	}
}
