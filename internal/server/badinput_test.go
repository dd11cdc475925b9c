package server

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// badRequest is a request, and how it has to be refused.
type badRequest struct {
	name         string
	method, path string
	headers      []string
	body         string
	status       int
	code         api.Code
	field        string
	says         string // in the message or the remedy
}

func badEvents() []badRequest {
	post := func(name, body string, status int, code api.Code, field, says string) badRequest {
		return badRequest{
			name:   name,
			method: "POST",
			path:   "/v1/events",
			body:   body,
			status: status,
			code:   code,
			field:  field,
			says:   says,
		}
	}
	good := `{"type":"TRAINING_COMPLETED","payload":{"n":1}}`
	hundred := strings.Repeat(good+",", 60) + `{"type":"TRAINING_COMPLETED","payload":{"n":NaN}},` +
		strings.Repeat(good+",", 38) + good
	list := []badRequest{
		post("empty body", "", 400, api.InvalidJSON, "body", "send an event"),
		post("only blanks", " \n ", 400, api.InvalidJSON, "body", "send an event"),
		post("cut JSON", `{"type":"TRAINING_COMPLETED","payload":{"a":1`, 400, api.InvalidJSON, "payload", "at byte 45"),
		post("unknown key", `{"type":"A","colour":"red"}`, 400, api.InvalidJSON, "colour", "put it into payload"),
		post("misspelt key", `{"type":"A","corelation_id":"x"}`, 400, api.InvalidJSON, "corelation_id", "correlation_id?"),
		post("doubled key", `{"type":"A","source":"a","source":"b"}`, 400, api.InvalidJSON, "source", "given twice"),
		post("doubled key in the payload", `{"type":"A","payload":{"a":1,"a":2}}`, 400, api.InvalidJSON, "payload.a", "once"),
		post(
			"10 000 levels",
			`{"type":"A","payload":{"a":`+strings.Repeat("[", 10_000)+strings.Repeat("]", 10_000)+`}}`,
			400, api.InvalidJSON, "", "limits.depth",
		),
		post("trailing bytes", good+` x`, 400, api.InvalidJSON, "body", "ndjson"),
		post("invalid UTF-8", "{\"type\":\"A\",\"source\":\"\xff\"}", 400, api.InvalidJSON, "source", "UTF-8"),
		post("lone surrogate", `{"type":"A","payload":{"a":"\ud83d"}}`, 400, api.InvalidJSON, "payload.a", "surrogate"),
		post("type with a newline", `{"type":"A\nB"}`, 400, api.InvalidArgument, "type", "letters, digits"),
		post("no type", `{"payload":{}}`, 400, api.InvalidArgument, "type", "missing"),
		post("empty type", `{"type":"","payload":{}}`, 400, api.InvalidArgument, "type", "name the event type"),
		post("payload not an object", `{"type":"A","payload":[1]}`, 400, api.InvalidArgument, "payload", "object"),
		post(
			"NaN", `{"type":"A","payload":{"metrics":{"loss":NaN}}}`, 400, api.InvalidJSON,
			"payload.metrics.loss", "null or a string",
		),
		post("empty batch", `[]`, 400, api.InvalidJSON, "body", "no event"),
		post("one bad of a hundred", "["+hundred+"]", 400, api.InvalidJSON, "events[60].payload.n", "null or a string"),
		post(
			"bad name in a batch", `[`+good+`,{"type":"A","source":"`+strings.Repeat("s", 257)+`"}]`,
			413, api.TooLarge, "events[1].source", "256",
		),
		post(
			"event of 1 MiB and 1", `{"type":"A","payload":{"a":"`+strings.Repeat("x", 1<<20)+`"}}`,
			413, api.TooLarge, "payload", "1048576",
		),
		post(
			"request over 4 MiB", `{"type":"A","payload":{"a":"`+strings.Repeat("x", 4<<20)+`"}}`,
			413, api.TooLarge, "body", "4194304",
		),
		post("10 001 events", strings.Repeat(`{"type":"A"}`+"\n", 10_001), 413, api.TooLarge, "body", "10000"),
		post(
			"reserved type", `{"type":"LEADER_ELECTED"}`, 403, api.Reserved, "type",
			"ringlog settings set catalogue.reserved accept-as-foreign",
		),
		post("a time that is none", `{"type":"A","time":"yesterday"}`, 400, api.InvalidArgument, "time", "2026-01-05"),
		post("the time of nothing", `{"type":"A","time":"0001-01-01T00:00:00Z"}`, 400, api.InvalidArgument, "time", "1678"),
		post("a time too far", `{"type":"A","time":"9999-01-01T00:00:00Z"}`, 400, api.InvalidArgument, "time", "1678"),
	}
	for i := range list {
		if list[i].name == "10 001 events" {
			list[i].headers = []string{"Content-Type", contentNDJSON}
		}
	}
	headers := func(name string, status int, code api.Code, field, says string, h ...string) badRequest {
		return badRequest{
			name:    name,
			method:  "POST",
			path:    "/v1/events",
			body:    good,
			headers: h,
			status:  status,
			code:    code,
			field:   field,
			says:    says,
		}
	}
	return append(list,
		headers(
			"form content type", 415, api.UnsupportedMedia, "Content-Type", "application/json",
			"Content-Type", "application/x-www-form-urlencoded",
		),
		headers(
			"other charset", 415, api.UnsupportedMedia, "Content-Type", "application/json",
			"Content-Type", "application/json; charset=latin1",
		),
		headers("compressed", 415, api.UnsupportedMedia, "Content-Encoding", "identity", "Content-Encoding", "gzip"),
		headers("producer without sequence", 400, api.InvalidArgument, "sequence", "send both", headerProducer, "p"),
		headers("sequence without producer", 400, api.InvalidArgument, "producer", "send both", headerSequence, "1"),
		headers(
			"sequence zero", 400, api.InvalidArgument, headerSequence, "from 1", headerProducer, "p",
			headerSequence, "0",
		),
		headers(
			"sequence from nowhere", 409, api.UnknownProducer, "sequence", "new producer id",
			headerProducer, "p", headerSequence, "7",
		),
	)
}

func badReads() []badRequest {
	get := func(name, path string, status int, code api.Code, field, says string) badRequest {
		return badRequest{name: name, method: "GET", path: path, status: status, code: code, field: field, says: says}
	}
	return []badRequest{
		get("from 2^64", "/v1/events?from=18446744073709551616", 400, api.InvalidArgument, "from", "18446744073709551615"),
		get("from 1e3", "/v1/events?from=1e3", 400, api.InvalidArgument, "from", "start, end"),
		get("from 0", "/v1/events?from=0", 400, api.InvalidArgument, "from", "begin at 1"),
		get("from -0", "/v1/events?from=-0", 400, api.InvalidArgument, "from", "-N"),
		get("from @never", "/v1/events?from=@never", 400, api.InvalidArgument, "from", "RFC 3339"),
		get("from past the tail", "/v1/events?from=4711", 416, api.PastTail, "from", "tail"),
		get(
			"min_offset past the tail", "/v1/events?min_offset=4711&timeout=20ms", 408, api.Timeout,
			"min_offset", "another node",
		),
		get("misspelt category", "/v1/events?category=trainign", 400, api.InvalidArgument, "categories[0]", "training"),
		get(
			"misspelt category among others", "/v1/events?category=TRAINING&category=x", 400,
			api.InvalidArgument, "categories[1]", "training",
		),
		get("condition that is cut", "/v1/events?where=payload.n+%3E", 400, api.InvalidArgument, "where", "line 1, column"),
		get("condition that gives no bool", "/v1/events?where=payload.n%2B1", 400, api.InvalidArgument, "where", "not bool"),
		get("condition on nothing known", "/v1/events?where=paylod.n%3E1", 400, api.InvalidArgument, "where", "paylod"),
		get("long condition", "/v1/events?where="+strings.Repeat("x", 4097), 413, api.TooLarge, "where", "4096"),
		get("limit -1", "/v1/events?limit=-1", 400, api.InvalidArgument, "limit", "digits"),
		get("misspelt parameter", "/v1/events?folow=true", 400, api.InvalidArgument, "folow", "follow"),
		get("follow maybe", "/v1/events?follow=maybe", 400, api.InvalidArgument, "follow", "true or false"),
		get("consistency strong", "/v1/events?consistency=strong", 400, api.InvalidArgument, "consistency", "linearizable"),
		get("bad pattern", "/v1/events?type=a%0Ab", 400, api.InvalidArgument, "types[0]", ""),
		get("bad timeout", "/v1/events/1?timeout=soon", 400, api.InvalidArgument, "timeout", "5s"),
		get("event 0", "/v1/events/0", 400, api.InvalidArgument, "offset", "from 1"),
		get("event x", "/v1/events/x", 400, api.InvalidArgument, "offset", "from 1"),
		get("event past the tail", "/v1/events/4711", 416, api.PastTail, "offset", "up to the tail"),
		get("explain 0", "/v1/dedup/0", 400, api.InvalidArgument, "offset", "from 1"),
		get("unknown cursor", "/v1/cursors/nobody", 404, api.NotFound, "cursor", "cursor create nobody"),
		get("cursor with a newline", "/v1/cursors/a%0Ab", 400, api.InvalidArgument, "cursor", "printable"),
		get("cursor name too long", "/v1/cursors/"+strings.Repeat("x", 257), 413, api.TooLarge, "cursor", "256"),
		get("cursor events without generation", "/v1/cursors/c/events", 400, api.InvalidArgument, "generation", "open"),
		get("unknown setting", "/v1/settings/colour", 404, api.NotFound, "key", "settings ls"),
		get("unknown type", "/v1/catalogue/TRAINING_COMPLETE_D", 404, api.NotFound, "type", "TRAINING_COMPLETED"),
		get("hash that is none", "/v1/dedup/xyz", 400, api.InvalidArgument, "hash", "64"),
		get("hash of nothing", "/v1/dedup/"+strings.Repeat("0", 64), 404, api.NotFound, "hash", "64 hex"),
		get("explain past the tail", "/v1/dedup/4711", 416, api.PastTail, "offset", "up to the tail"),
		get("nothing there", "/v2/events", 404, api.NotFound, "path", "openapi"),
	}
}

func badWrites() []badRequest {
	call := func(name, method, path, body string, status int, code api.Code, field, says string) badRequest {
		return badRequest{
			name:   name,
			method: method,
			path:   path,
			body:   body,
			status: status,
			code:   code,
			field:  field,
			says:   says,
		}
	}
	return []badRequest{
		call("wrong method", "DELETE", "/v1/events", "", 405, api.MethodNotAllowed, "method", "GET"),
		call("commit without a body", "POST", "/v1/cursors/c/commit", "", 400, api.InvalidJSON, "body", "JSON object"),
		call(
			"commit without offset", "POST", "/v1/cursors/c/commit", `{"generation":1}`, 400,
			api.InvalidArgument, "offset", "last offset",
		),
		call(
			"commit of a text", "POST", "/v1/cursors/c/commit", `{"offset":"7","generation":1}`, 400,
			api.InvalidArgument, "offset", "openapi",
		),
		call(
			"commit of -1", "POST", "/v1/cursors/c/commit", `{"offset":-1,"generation":1}`, 400,
			api.InvalidArgument, "offset", "openapi",
		),
		call(
			"commit with another key", "POST", "/v1/cursors/c/commit", `{"ofset":7,"generation":1}`,
			400, api.InvalidJSON, "ofset", "openapi",
		),
		call(
			"commit with a doubled key", "POST", "/v1/cursors/c/commit",
			`{"offset":7,"offset":8,"generation":1}`, 400, api.InvalidJSON, "offset", "once",
		),
		call("commit cut off", "POST", "/v1/cursors/c/commit", `{"offset":7`, 400, api.InvalidJSON, "body", "at byte"),
		call(
			"commit with NaN", "POST", "/v1/cursors/c/commit", `{"offset":NaN}`, 400, api.InvalidJSON,
			"offset", "null or a string",
		),
		call("commit that is a list", "POST", "/v1/cursors/c/commit", `[7]`, 400, api.InvalidArgument, "body", "object"),
		call(
			"commit of no cursor", "POST", "/v1/cursors/nobody/commit", `{"offset":1,"generation":1}`,
			404, api.NotFound, "cursor", "create",
		),
		call("seek nowhere", "POST", "/v1/cursors/c/seek", `{}`, 400, api.InvalidArgument, "to", "start"),
		call("seek past the tail", "POST", "/v1/cursors/c/seek", `{"to":"4711"}`, 416, api.PastTail, "to", "up to 2"),
		call(
			"seek to a number past the tail", "POST", "/v1/cursors/c/seek", `{"to":4711}`, 416,
			api.PastTail, "to", "up to 2",
		),
		call(
			"seek to -3 as a number", "POST", "/v1/cursors/c/seek", `{"to":-3}`, 400,
			api.InvalidArgument, "to", "an offset",
		),
		call(
			"seek to half an event", "POST", "/v1/cursors/c/seek", `{"to":1.5}`, 400,
			api.InvalidArgument, "to", "an offset",
		),
		call("seek to yes", "POST", "/v1/cursors/c/seek", `{"to":true}`, 400, api.InvalidArgument, "to", "an offset"),
		call("seek to a list", "POST", "/v1/cursors/c/seek", `{"to":[1]}`, 400, api.InvalidArgument, "to", "an offset"),
		call("cursor from past the tail", "PUT", "/v1/cursors/c", `{"from":"4711"}`, 416, api.PastTail, "from", "up to 2"),
		call(
			"cursor with a misspelt category", "PUT", "/v1/cursors/c",
			`{"filter":{"categories":["trainign"]}}`, 400, api.InvalidArgument, "categories[0]",
			"training",
		),
		call(
			"cursor with a bad filter", "PUT", "/v1/cursors/c", `{"filter":{"types":["a b"]}}`, 400,
			api.InvalidArgument, "types[0]", "",
		),
		call(
			"cursor that holds for ever", "PUT", "/v1/cursors/c", `{"policy":{"hold_for":"ever"}}`,
			400, api.InvalidArgument, "policy.hold_for", "7d",
		),
		call(
			"setting out of range", "PUT", "/v1/settings/dedup.window", `{"value":"1h1"}`, 400,
			api.InvalidArgument, "value", "duration",
		),
		call(
			"setting without a value", "PUT", "/v1/settings/dedup.window", `{}`, 400,
			api.InvalidArgument, "value", "string",
		),
		call("unknown setting", "PUT", "/v1/settings/colour", `{"value":"red"}`, 404, api.NotFound, "key", "settings ls"),
		call(
			"compact two ways", "POST", "/v1/compact", `{"before":1,"keep":1}`, 400,
			api.InvalidArgument, "body", "one of them",
		),
		call(
			"compact past the tail", "POST", "/v1/compact", `{"before":4711}`, 416, api.PastTail,
			"before", "send 2 at most",
		),
		call("register nothing", "POST", "/v1/catalogue", ``, 400, api.InvalidJSON, "body", "definition"),
		call(
			"register a reserved name", "POST", "/v1/catalogue", `{"name":"LEADER_X"}`, 403,
			api.Reserved, "LEADER_X.name", "",
		),
		call(
			"add a member without an address", "POST", "/v1/members", `{"id":"n9"}`, 400,
			api.InvalidArgument, "http", "address",
		),
		call(
			"add nobody", "POST", "/v1/members", `{"http":"127.0.0.1:1"}`, 400, api.InvalidArgument,
			"http", "start the node",
		),
		call("remove nobody", "DELETE", "/v1/members/n9", "", 404, api.NotFound, "id", "members"),
		call("remove the last voter", "DELETE", "/v1/members/n1", "", 409, api.Conflict, "id", "another voter"),
		call("step down to nobody", "POST", "/v1/cluster/step-down", `{"to":"n9"}`, 404, api.NotFound, "id", "members"),
	}
}

// Python prints 80.0 and 100.0 for floats that are whole, and JSON Schema takes them for integers.
func TestAWholeNumberMayBeWrittenWithAFraction(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	for _, number := range []string{"80", "80.0", "8e1", "800e-1", "80.00"} {
		s.ok("PUT", "/v1/groups/g", `{"group":{"max_deliver":`+number+`}}`)
		if got := s.ok("GET", "/v1/groups/g", "").body; !strings.Contains(got, `"max_deliver":80,`) {
			t.Errorf("max_deliver %s: %s", number, got)
		}
		s.ok("DELETE", "/v1/groups/g", "")
	}
	s.ok("PUT", "/v1/cursors/c", `{"from":1.0}`)
	s.ok("POST", "/v1/cursors/c/seek", `{"to":1e0,"seeker":"1.0"}`)
	if e := s.do("POST", "/v1/dlq/purge", `{"ids":[7.0]}`).err(t); e.Message != "there is no dead letter 7" ||
		e.Field != "ids" {
		t.Errorf("purge of 7.0: %+v", e)
	}
	// A double is not the number that was written, or there is none in whole.
	for _, number := range []string{"1.5", "-1.0", "9007199254740993.0", "1e17", "1e-1"} {
		a := s.do("POST", "/v1/dlq/purge", `{"ids":[`+number+`]}`)
		if e := a.err(t); a.status != 400 || e.Field != "ids" {
			t.Errorf("%s: %d %+v", number, a.status, e)
		}
	}
}

func TestBadInputIsAnsweredWithWhatWhereAndWhatToDo(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.ok("PUT", "/v1/cursors/c", "")
	before := s.ok("GET", "/v1/cluster", "").body
	for _, in := range slices.Concat(badEvents(), badReads(), badWrites(), badClients()) {
		t.Run(in.name, func(t *testing.T) {
			a := s.do(in.method, in.path, in.body, in.headers...)
			e := a.err(t)
			if a.status != in.status || e.Code != in.code {
				t.Errorf("%d %s, want %d %s: %s", a.status, e.Code, in.status, in.code, a.body)
			}
			if in.field != "" && e.Field != in.field {
				t.Errorf("field %q, want %q: %s", e.Field, in.field, a.body)
			}
			if e.Message == "" || e.Remedy == "" || e.Field == "" {
				t.Errorf("something is missing in %s", a.body)
			}
			if !strings.Contains(e.Message+" "+e.Remedy, in.says) {
				t.Errorf("nothing about %q in %s", in.says, a.body)
			}
		})
	}
	if first, last := s.node.Machine().Log().Bounds(); first != 1 || last != 1 {
		t.Errorf("something was appended: %d to %d; before: %s", first, last, before)
	}
}

func TestStrictValidationNamesTheNearestTypes(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.ok("PUT", "/v1/settings/validation.strict", `{"value":true}`)
	a := s.do("POST", "/v1/events", `{"type":"TRAINING_COMPLETEDD"}`)
	if e := a.err(t); a.status != 400 || e.Code != api.UnknownType {
		t.Errorf("%d %s", a.status, a.body)
	}
	// Once, not in the message and in the remedy as well.
	if strings.Count(a.body, `TRAINING_COMPLETED"`) != 1 {
		t.Errorf("the nearest types are not named once: %s", a.body)
	}
}

func TestACategoryIsKnownOnceATypeOfItIsRegistered(t *testing.T) {
	t.Parallel()
	s := newSites(t, 3, nil)
	if a := s[1].do("GET", "/v1/events?category=forge", ""); a.status != 400 {
		t.Errorf("before: %d %s", a.status, a.body)
	}
	s[0].ok("POST", "/v1/catalogue", `{"name":"FORGE_LIT","category":"forge"}`)
	for _, each := range s { // including nodes that have not applied it yet
		each.ok("GET", "/v1/events?category=Forge", "")
	}
}

func TestDedupIDWithOtherContentIsAConflictThatNamesTheFirst(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.ok("POST", "/v1/events", `{"type":"A","payload":{"n":1},"dedup_id":"d"}`)
	for body, field := range map[string]string{
		`{"type":"A","payload":{"n":2},"dedup_id":"d"}`:                "dedup_id",
		`[{"type":"B"},{"type":"A","payload":{"n":2},"dedup_id":"d"}]`: "events[1].dedup_id",
	} {
		a := s.do("POST", "/v1/events", body)
		if e := a.err(t); a.status != 409 || e.Code != api.Conflict || e.Offset != 2 || e.Field != field {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	if _, last := s.node.Machine().Log().Bounds(); last != 2 {
		t.Errorf("the tail is %d: a refused request left something in the log", last)
	}
}

// A client that reads nothing before it has written all of its body, as Python's standard library does, still gets
// the refusal.
func TestWhoWritesAllOfARequestFirstReadsWhyItIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Token = "secret" })
	const size = 32 << 20
	body := bytes.Repeat([]byte("x"), size)
	auth, fixed := "Authorization: Bearer secret\r\n", fmt.Sprintf("Content-Length: %d\r\n", size)
	for name, in := range map[string]struct {
		path, headers string
		status        int
	}{
		"too large":         {"/v1/events", auth + fixed, 413},
		"too large, chunks": {"/v1/events", auth + "Transfer-Encoding: chunked\r\n", 413},
		"no token":          {"/v1/events", fixed, 401},
		"another type":      {"/v1/events", auth + fixed + "Content-Type: text/csv\r\n", 415},
		"nothing there":     {"/v2/events", auth + fixed, 404},
		"nobody's call":     {"/ringlog.v1.LogService/Publish", fixed + "Content-Type: application/json\r\n", 401},
	} {
		t.Run(name, func(t *testing.T) {
			text := body
			if strings.Contains(in.headers, "chunked") {
				text = fmt.Appendf(nil, "%x\r\n%s\r\n0\r\n\r\n", size, body)
			}
			if got := s.speak(in.path, in.headers, text); got != in.status {
				t.Errorf("answered %d, want %d", got, in.status)
			}
		})
	}
	if got := s.speak("/v1/events", auth+fixed+"Expect: 100-continue\r\n", nil); got != 413 {
		t.Errorf("a caller that asks first was answered %d", got)
	}
	if held := s.server.memory.held.Load(); held != 0 {
		t.Errorf("%d bytes of refused bodies are held", held)
	}
}

// speak writes a POST to its end, and only then reads the status of the answer.
func (s *site) speak(path, headers string, body []byte) int {
	s.t.Helper()
	c, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(
		s.t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"),
	)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	request := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", path, headers)
	if _, err := c.Write(append(request, body...)); err != nil {
		s.t.Errorf("write: %v", err)
		return 0
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		s.t.Errorf("read: %v", err)
		return 0
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

// A client that sends header lines without end is cut off.
func TestHeadersWithoutEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stop := context.AfterFunc(t.Context(), func() { c.Close() })
	defer stop()
	sent := 0
	_, err = fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
	for line := []byte("X-Filler: " + strings.Repeat("y", 1000) + "\r\n"); err == nil && sent < 64<<20; sent += len(line) {
		_, err = c.Write(line)
	}
	if err == nil {
		t.Fatalf("%d bytes of headers were taken", sent)
	}
	var text bytes.Buffer
	_, _ = text.ReadFrom(c) // the answer may be lost with the connection
	if text.Len() > 0 && !strings.Contains(text.String(), fmt.Sprint(http.StatusRequestHeaderFieldsTooLarge)) {
		t.Errorf("answered %q", text.String())
	}
}

// A key that differs in case alone is refused: encoding/json would take it for the known key, and then that key
// could come twice.
func TestKeysOfOtherCaseAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.publish("TRAINING_COMPLETED", 1, 20)
	first, _ := s.node.Machine().Log().Bounds()
	for path, bodies := range map[string][]string{
		"/v1/compact":           {`{"keep":0,"Keep":1000}`, `{"KEEP":5}`, `{"keep":5,"FORCE":true}`},
		"/v1/dlq/import":        {`{"source":"s","rows":[{"ID":1}]}`},
		"/v1/cursors/c/seek":    {`{"To":"start"}`},
		"/v1/members":           {`{"hTTP":"127.0.0.1:1"}`},
		"/v1/groups/g/exchange": {`{"member":"m","nacks":[{"Offset":1}]}`},
	} {
		for _, body := range bodies {
			if a := s.do(
				"POST", path, body,
			); a.status != 400 || a.err(t).Code != api.InvalidJSON || a.err(t).Reason != event.ReasonUnknownKey ||
				a.err(t).Field == "" {
				t.Errorf("%s %s: %d %s", path, body, a.status, a.body)
			}
		}
	}
	if now, _ := s.node.Machine().Log().Bounds(); now != first {
		t.Errorf("trimmed to %d", now)
	}
}
