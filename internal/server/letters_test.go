package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/service"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/internal/frame"
)

// died dead-letters an event as a handler would, and returns the answer.
func (s *site) died(cursor string, offset, generation uint64, text string) answer {
	s.t.Helper()
	return s.do("POST", "/v1/cursors/"+cursor+"/deadletter",
		fmt.Sprintf(`{"offset":%d,"generation":%d,"handler":"train","error":%q,"attempts":3}`, offset, generation, text))
}

// committed returns a cursor's commit.
func (s *site) committed(cursor string) uint64 {
	s.t.Helper()
	var c struct{ Committed uint64 }
	s.ok("GET", "/v1/cursors/"+cursor, "").decode(s.t, &c)
	return c.Committed
}

// An event that was dead-lettered and redriven is delivered to its cursor, following or not, filtered or not, over
// both protocols. No other reader gets it.
func TestARedrivenLetterComesToItsCursorAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.ok("PUT", "/v1/cursors/trainer", `{"filter":{"types":["B"]}}`)
	s.ok("PUT", "/v1/cursors/other", `{}`)
	s.open("trainer")
	s.open("other")
	s.publish("A", 1, 3) // 2 to 4
	if a := s.died(
		"trainer", 3, 1, "out of memory",
	); a.status != 200 || !strings.Contains(a.body, `"state":"dead"`) || s.committed("trainer") != 3 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	everybody, _ := s.follow(t.Context(), "/v1/events?follow=true&from=end")
	mine, _ := s.follow(t.Context(), "/v1/cursors/trainer/events?follow=true&generation=1")
	if a := s.ok("POST", "/v1/dlq/redrive", `{"cursor":"trainer"}`); !strings.Contains(a.body, `"matched":1,"done":1`) {
		t.Fatal(a.body)
	}
	if line := next(
		t, mine,
	); !strings.Contains(line, `"offset":6`) || !strings.Contains(line, `"target":"trainer","redrive":1`) {
		t.Errorf("the cursor is given %s", line)
	}
	if line := next(t, everybody); !strings.Contains(line, `"DLQ_EVENTS_REPLAYED"`) {
		t.Errorf("everybody is given %s", line)
	}
	// Offset 5 reports the letter, 6 is the redriven event, which these readers skip.
	seen := map[string][]uint64{
		"the log":           offsetsIn(s.ok("GET", "/v1/events?from=1", "").lines(t)),
		"another cursor":    offsetsIn(s.ok("GET", "/v1/cursors/other/events?generation=1", "").lines(t)),
		"a reader of spans": spanOffsets(t, s, "", 0),
		"a cursor's spans":  spanOffsets(t, s, "other", 1),
	}
	for who, offsets := range seen {
		if !slices.Equal(offsets, []uint64{1, 2, 3, 4, 5, 7}) {
			t.Errorf("%s: %v", who, offsets)
		}
	}
	if e := s.ok("GET", "/v1/events/6", "").body; !strings.Contains(e, `"target":"trainer","redrive":1`) {
		t.Errorf("by its offset: %s", e)
	}
	if a := s.died(
		"other", 6, 1, "not mine",
	); a.status != 400 || !strings.Contains(a.body, "for the cursor \\\"trainer\\\" alone") {
		t.Errorf("%d %s", a.status, a.body)
	}
	// A redriven event that fails again is the same letter, with more attempts and offsets.
	if a := s.died(
		"trainer", 6, 1, "again",
	); a.status != 200 || !strings.Contains(a.body, `"attempts":6`) || !strings.Contains(a.body, `"lineage":[3,6]`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.ok("POST", "/v1/dlq/redrive", `{"ids":[1]}`)
	s.ok("POST", "/v1/cursors/trainer/commit", `{"offset":9,"generation":1}`)
	var sum api.LetterSummary
	if s.ok("GET", "/v1/dlq", "").decode(t, &sum); sum.Count != 0 || sum.Bytes != 0 || sum.Ever != 1 {
		t.Errorf("a letter that was handled is still there: %+v", sum)
	}
}

// spanOffsets reads as the Go client does, in the form in which the log stores events. Without a cursor it reads
// the log.
func spanOffsets(t *testing.T, s *site, cursor string, generation uint64) (offsets []uint64) {
	t.Helper()
	var in *connect.ServerStreamForClient[ringlogv1.TailResponse]
	var err error
	if cursor == "" {
		in, err = ringlogv1connect.NewLogServiceClient(s.http, s.url).Tail(
			t.Context(),
			connect.NewRequest(&ringlogv1.TailRequest{
				From: &ringlogv1.Position{At: &ringlogv1.Position_Start{Start: true}}, Packets: true}),
		)
	} else {
		in, err = ringlogv1connect.NewCursorServiceClient(s.http, s.url).ReadCursor(
			t.Context(),
			connect.NewRequest(&ringlogv1.ReadCursorRequest{
				Name: cursor, Generation: generation, Packets: true}),
		)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for in.Receive() {
		for _, run := range in.Msg().Runs {
			for i := range run.GetSpan().GetTake() {
				offsets = append(offsets, run.Span.First+uint64(run.Span.Skip+i))
			}
			for _, e := range run.Events {
				offsets = append(offsets, e.Offset)
			}
		}
	}
	if in.Err() != nil {
		t.Fatal(in.Err())
	}
	return offsets
}

// A cursor without a filter reads spans, with the events redriven for it decoded in between.
func TestACursorsOwnStandBetweenSpans(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.ok("PUT", "/v1/cursors/trainer", `{}`)
	s.open("trainer")
	s.publish("A", 1, 3)
	s.died("trainer", 2, 1, "x")
	s.ok("POST", "/v1/dlq/redrive", `{"ids":[1]}`) // offset 6, reported at 7
	s.publish("A", 4, 5)
	if got := spanOffsets(t, s, "trainer", 1); !slices.Equal(got, []uint64{3, 4, 5, 6, 7, 8, 9}) {
		t.Errorf("%v", got)
	}
}

func TestDeadLettersInMany(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.ok("PUT", "/v1/cursors/a", `{"from":"start"}`)
	s.ok("PUT", "/v1/cursors/b", `{"from":"start"}`)
	s.publish("A", 1, 20)
	s.publish("B", 21, 30)
	for offset := uint64(2); offset <= 31; offset++ {
		text := fmt.Sprintf("timeout after %d ms\nat line %d", offset*7, offset)
		if offset%10 == 0 {
			text = "no such model"
		}
		if a := s.died("a", offset, 0, text); a.status != 200 {
			t.Fatal(a.body)
		}
	}
	s.died("b", 25, 0, "bad")
	var sum api.LetterSummary
	s.ok("GET", "/v1/dlq", "").decode(t, &sum)
	if sum.Count != 31 || sum.ByCursor["a"] != 30 || sum.ByCursor["b"] != 1 || sum.ByType["B"] != 11 ||
		sum.Oldest.IsZero() {
		t.Errorf("%+v", sum)
	}
	var page api.LetterPage
	s.ok("GET", "/v1/dlq?limit=4&type=B&cursor=a&after=22", "").decode(t, &page)
	if len(page.Letters) != 4 || page.Letters[0].ID != 23 || page.Next != 26 {
		t.Errorf("%+v", page)
	}
	var errs struct{ Errors []api.LetterErrors }
	s.ok("GET", "/v1/dlq/errors?cursor=a", "").decode(t, &errs)
	if len(errs.Errors) != 2 || errs.Errors[0].Error != "timeout after # ms" || errs.Errors[0].Count != 27 ||
		errs.Errors[1].Count != 3 {
		t.Errorf("%+v", errs)
	}
	var done api.LettersResult
	redrive := func(body string, matched, did, left int) {
		t.Helper()
		done = api.LettersResult{}
		s.ok("POST", "/v1/dlq/redrive", body).decode(t, &done)
		if done.Matched != matched || done.Done != did || done.Left != left {
			t.Errorf("%s: %+v", body, done)
		}
	}
	redrive(`{"type":"B","cursor":"a","dry_run":true}`, 10, 0, 10)
	redrive(`{"type":"B","cursor":"a","max_events":4}`, 4, 4, 0)
	if !done.More || done.Last == 0 {
		t.Errorf("%+v", done)
	}
	redrive(`{"type":"B","cursor":"a"}`, 6, 6, 0)
	redrive(`{"error":"no such"}`, 2, 2, 0)
	redrive(`{"all":true,"to":"b"}`, 19, 19, 0)
	redrive(`{"all":true}`, 0, 0, 0)
	redrive(`{"ids":[1,2,99]}`, 3, 0, 0)
	if done.Skipped != 2 || !slices.Equal(done.Missing, []uint64{99}) {
		t.Errorf("%+v", done)
	}
	s.ok("DELETE", "/v1/cursors/a", "")
	var purged api.LettersResult
	if s.ok("POST", "/v1/dlq/purge", `{"cursor":"a"}`).decode(t, &purged); purged.Done != 12 {
		t.Errorf("of a cursor that is gone: %+v", purged)
	}
	status := s.ok("GET", "/status", "").body
	if !strings.Contains(status, `"dead_letters":{"count":19,"redriven":19`) {
		t.Error(status)
	}
	if m := s.ok(
		"GET", "/metrics", "",
	).body; !strings.Contains(m, "ringlog_dead_letters 19\n") || !strings.Contains(m, "ringlog_dead_letters_total 31\n") {
		t.Error("the metrics do not show it")
	}
}

// A dead letter that is requested again is answered as it was the first time, even when its event is trimmed. Its
// error is bounded.
func TestADeadLetterIsOneHoweverOftenItIsAsked(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.ok("PUT", "/v1/cursors/c", `{"from":"start"}`)
	s.publish("A", 1, 1)
	s.publish("A", 2, 2)
	first := s.died("c", 2, 0, strings.Repeat("ü", 5000))
	s.ok("POST", "/v1/compact", `{"before":3}`)
	second := s.died("c", 2, 0, strings.Repeat("ü", 5000))
	var one, two api.DeadLettered
	first.decode(t, &one)
	second.decode(t, &two)
	if one.Replayed || !two.Replayed || one.Letter.ID != two.Letter.ID || two.Letter.Attempts != 3 ||
		len(one.Letter.Error) > service.MaxErrorText+40 {
		t.Errorf("%s\n%s", first.body, second.body)
	}
	var found struct {
		Event struct{ Payload struct{ N int } }
	}
	if s.ok("GET", "/v1/dlq/1", "").decode(t, &found); found.Event.Payload.N != 1 {
		t.Errorf("the letter has lost its event: %+v", found)
	}
}

func TestLettersOfAnotherSystem(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	const rows = `{"source":"queue.db","rows":[
		{"id":1,"event_type":"training_completed","event_data":"{\"config_key\":\"hex8_2p\"}","error":"timeout",
		 "created_at":1767607200.5,"retry_count":3},
		{"id":2,"event_type":"MODEL_PROMOTED","event_data":{"a":1},"error":"x",
		 "created_at":"2026-01-05 10:00:00","retry_count":0},
		{"id":"three","event_type":"MODEL_PROMOTED","event_data":"[1]","error":"x"},
		{"id":4,"event_type":"LEADER_ELECTED","event_data":"{}"},
		{"id":5,"event_type":"MODEL_PROMOTED","event_data":"{}","created_at":"yesterday"}]}`
	var got api.LettersImported
	s.ok("POST", "/v1/dlq/import", rows).decode(t, &got)
	var refused []string
	for _, r := range got.Refused {
		refused = append(refused, fmt.Sprintf("%s %s", r.ID, r.Error.Code))
	}
	if got.Imported != 2 ||
		got.Known != 0 || fmt.Sprint(refused) != `["three" invalid_argument 4 reserved 5 invalid_argument]` {
		t.Errorf("%+v %v", got, refused)
	}
	s.ok("POST", "/v1/dlq/purge", `{"ids":[2]}`)
	got = api.LettersImported{}
	if s.ok("POST", "/v1/dlq/import", rows).decode(t, &got); got.Imported != 0 || got.Known != 2 {
		t.Errorf("the second time: %+v", got)
	}
	l := s.ok("GET", "/v1/dlq/1", "").body
	for _, want := range []string{
		`"origin":"queue.db row 1"`, `"attempts":3`, `"first_failed":"2026-01-05T10:00:00.5Z"`,
		`"event":{"type":"TRAINING_COMPLETED","value":"training_completed","payload":{"config_key":"hex8_2p"}`,
	} {
		if !strings.Contains(l, want) {
			t.Errorf("no %s in %s", want, l)
		}
	}
	s.ok("PUT", "/v1/cursors/c", `{"from":"end","filter":{"types":["OTHER"]}}`)
	s.ok("POST", "/v1/dlq/redrive", `{"all":true,"to":"c"}`)
	s.open("c")
	lines := s.ok("GET", "/v1/cursors/c/events?generation=1", "").lines(t)
	if len(lines) != 1 || lines[0]["target"] != "c" {
		t.Errorf("%v", lines)
	}
}

// A row with a cursor is the event of a handler without one: it keeps what its event has, moves nothing, is stored
// once, and is redriven to that cursor.
func TestALetterOfAHandlerWithoutACursor(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.publish("A", 1, 1) // 2
	row := func(text string) string {
		return `{"source":"p1","rows":[{"cursor":"live.h","handler":"h","error":"x","retry_count":4,` + text + `}]}`
	}
	var got api.LettersImported
	inLog, local := row(`"id":"1","event_type":"A","offset":2`),
		row(`"id":"2","event_type":"B","event_data":{"a":1},"key":"k","event_source":"s","correlation_id":"run"`)
	for _, body := range []string{inLog, local, inLog} {
		got = api.LettersImported{}
		s.ok("POST", "/v1/dlq/import", body).decode(t, &got)
	}
	if got.Imported != 0 || got.Known != 1 {
		t.Errorf("the second time: %+v", got)
	}
	for id, wants := range map[string][]string{
		"1": {`"cursor":"live.h"`, `"lineage":[2]`, `"attempts":4`, `"source":"s1"`, `"origin":"p1"`},
		"2": {`"handler":"h"`, `"key":"k"`, `"source":"s"`, `"correlation_id":"run"`, `"payload":{"a":1}`},
	} {
		for _, want := range wants {
			if l := s.ok("GET", "/v1/dlq/"+id, "").body; !strings.Contains(l, want) {
				t.Errorf("no %s in %s", want, l)
			}
		}
	}
	for text, says := range map[string]string{
		`"id":"3","event_type":"A","offset":99`:                             "offset",
		`"id":"4","event_type":"LEADER_ELECTED","event_data":{}`:            "LEADER_ELECTED",
		`"id":"5","event_type":"A","event_data":[1]`:                        "payload",
		`"id":"6","event_type":"A","event_data":{},"created_at":"tomorrow"`: "created_at",
	} {
		got = api.LettersImported{}
		s.ok("POST", "/v1/dlq/import", row(text)).decode(t, &got)
		if got.Imported != 0 || len(got.Refused) != 1 || !strings.Contains(fmt.Sprint(got.Refused[0].Error), says) {
			t.Errorf("%s: %+v", text, got)
		}
	}
	s.ok("PUT", "/v1/cursors/live.h", `{"from":"end","filter":{"sources":["none"]}}`)
	s.ok("POST", "/v1/dlq/redrive", `{"all":true}`)
	s.open("live.h")
	if lines := s.ok("GET", "/v1/cursors/live.h/events?generation=1", "").lines(t); len(lines) != 2 {
		t.Errorf("%v", lines)
	}
}

// More letters than one entry takes are imported, redriven and handled all the same.
func TestMoreLettersThanAnEntryTakes(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.ok("PUT", "/v1/cursors/c", `{"from":"end"}`)
	s.open("c")
	const many = 2*frame.MaxLetters + 500
	var rows []string
	for i := range many {
		rows = append(rows, fmt.Sprintf(`{"id":%d,"event_type":"A","event_data":"{\"n\": %d}","error":"x"}`, i, i))
	}
	var got api.LettersImported
	s.ok("POST", "/v1/dlq/import", `{"rows":[`+strings.Join(rows, ",")+`]}`).decode(t, &got)
	if got.Imported != many || got.Last != many {
		t.Fatalf("%+v", got)
	}
	var done api.LettersResult
	if s.ok("POST", "/v1/dlq/redrive", `{"all":true,"to":"c"}`).decode(t, &done); done.Done != many || done.Left != 0 {
		t.Errorf("%+v", done)
	}
	given := map[any]bool{}
	for _, e := range s.ok("GET", "/v1/cursors/c/events?generation=1", "").lines(t) {
		if e["redrive"] != nil {
			given[e["redrive"]] = true
		}
	}
	if len(given) != many {
		t.Errorf("the cursor is given %d letters", len(given))
	}
	s.ok("POST", "/v1/cursors/c/commit", fmt.Sprintf(`{"offset":%d,"generation":1}`, s.server.ops.Machine().Stats().Last))
	if left := s.server.ops.Machine().Stats().Letters; left.Count != 0 || left.Bytes != 0 {
		t.Errorf("%+v", left)
	}
}

// What is due by time happens on a log to which nobody appends.
func TestLettersAgeOnAnIdleLog(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.ok("PUT", "/v1/cursors/c", `{"from":"start"}`)
	s.publish("A", 1, 1)
	lines, _ := s.follow(t.Context(), "/v1/events?follow=true&from=end")
	s.ok("PUT", "/v1/settings/dlq.stale_after", `{"value":"200ms"}`)
	s.died("c", 2, 0, "x")
	line := next(t, lines)
	if !strings.Contains(line, `"DLQ_EVENTS_STORED"`) || !strings.Contains(line, `"handler": "train"`) {
		t.Error(line)
	}
	if line := next(t, lines); !strings.Contains(line, `"DLQ_STALE_EVENTS"`) || !strings.Contains(line, `"count": 1`) {
		t.Error(line)
	}
	s.ok("PUT", "/v1/settings/dlq.max_age", `{"value":"400ms"}`)
	if line := next(t, lines); !strings.Contains(line, `"DLQ_EVENTS_PURGED"`) || !strings.Contains(line, `"max_age"`) {
		t.Error(line)
	}
	if left := s.server.ops.Machine().Stats().Letters; left.Count != 0 || left.Ever != 1 {
		t.Errorf("%+v", left)
	}
}

func TestBadRequestsAboutLetters(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.ok("PUT", "/v1/cursors/c", `{"from":"start"}`)
	s.publish("A", 1, 4)
	s.open("c")
	s.died("c", 2, 1, "x")
	s.died("c", 3, 1, "y")
	s.ok("POST", "/v1/dlq/purge", `{"ids":[2]}`)
	s.ok("POST", "/v1/dlq/import", `{"rows":[{"id":1,"event_type":"A"}]}`)
	for _, in := range []struct {
		method, path, body string
		status             int
		code               api.Code
		says               string
	}{
		{"POST", "/v1/cursors/c/deadletter", `{"offset":4,"generation":0}`, 409, api.Fenced, "generation 0"},
		{"POST", "/v1/cursors/c/deadletter", `{"offset":99,"generation":1}`, 416, api.PastTail, "the tail"},
		{"POST", "/v1/cursors/c/deadletter", `{"offset":1,"generation":1}`, 409, api.Conflict, "has committed 3"},
		{"POST", "/v1/cursors/c/deadletter", `{"offset":3,"generation":1}`, 409, api.Conflict, "has committed 3"}, // purged
		{"POST", "/v1/cursors/c/deadletter", `{"offset":0,"generation":1}`, 400, api.InvalidArgument, "offset"},
		{"POST", "/v1/cursors/c/deadletter", `{"generation":1}`, 400, api.InvalidArgument, "offset is missing"},
		{"POST", "/v1/cursors/c/deadletter", `{"offset":4}`, 400, api.InvalidArgument, "generation is missing"},
		{
			"POST", "/v1/cursors/c/deadletter", `{"offset":4,"generation":1,"attempts":-1}`, 400,
			api.InvalidArgument, "attempts",
		},
		{
			"POST", "/v1/cursors/c/deadletter", `{"offset":4,"generation":1,"first_failed":"soon"}`,
			400, api.InvalidArgument, "",
		},
		{"POST", "/v1/cursors/nobody/deadletter", `{"offset":4,"generation":1}`, 404, api.NotFound, "nobody"},
		{"GET", "/v1/dlq/99", "", 404, api.NotFound, "no dead letter 99"},
		{"GET", "/v1/dlq/2", "", 404, api.NotFound, "any more"},
		{"GET", "/v1/dlq/0", "", 400, api.InvalidArgument, "id"},
		{"GET", "/v1/dlq/x", "", 400, api.InvalidArgument, "id"},
		{"GET", "/v1/dlq?state=gone", "", 400, api.InvalidArgument, "dead or redriven"},
		{"GET", "/v1/dlq?limit=10001", "", 400, api.InvalidArgument, "limit"},
		{"GET", "/v1/dlq?typ=A", "", 400, api.InvalidArgument, "typ"},
		{"POST", "/v1/dlq/redrive", `{"ids":[99]}`, 404, api.NotFound, "no dead letter 99"},
		{"POST", "/v1/dlq/redrive", `{"ids":[2]}`, 404, api.NotFound, "purged"},
		{"POST", "/v1/dlq/redrive", `{"ids":[3]}`, 404, api.NotFound, "came from no cursor"},
		{"POST", "/v1/dlq/redrive", `{"ids":[1],"to":"nobody"}`, 404, api.NotFound, "nobody"},
		{"POST", "/v1/dlq/redrive", `{}`, 400, api.InvalidArgument, "which"},
		{"POST", "/v1/dlq/redrive", `{"ids":[1],"all":true}`, 400, api.InvalidArgument, "ids"},
		{"POST", "/v1/dlq/redrive", `{"type":"a b c"}`, 400, api.InvalidArgument, ""},
		{"POST", "/v1/dlq/redrive", `{"ids":[0]}`, 400, api.InvalidArgument, "ids"},
		{"POST", "/v1/dlq/purge", `{"older_than":"soon"}`, 400, api.InvalidArgument, "older_than"},
		{"POST", "/v1/dlq/purge", `{"ids":[99]}`, 404, api.NotFound, "99"},
		{"POST", "/v1/dlq/import", `{}`, 400, api.InvalidArgument, "rows is missing"},
		{"POST", "/v1/dlq/import", `{"rows":[1]}`, 400, api.InvalidArgument, ""},
		{"PUT", "/v1/settings/dlq.max_bytes", `{"value":"1"}`, 400, api.InvalidArgument, "dlq.max_bytes"},
	} {
		a := s.do(in.method, in.path, in.body)
		e := a.err(t)
		if a.status != in.status || e.Code != in.code || !strings.Contains(e.Message+e.Field, in.says) || e.Remedy == "" {
			t.Errorf("%s %s %s: %d %s", in.method, in.path, in.body, a.status, a.body)
		}
	}
	s.ok("PUT", "/v1/settings/dlq.max_bytes", `{"value":"1024"}`)
	s.died("c", 4, 1, "z")
	full := s.died("c", 5, 1, strings.Repeat("z", 1000))
	e := full.err(t)
	if full.status != 429 || e.Code != api.Overloaded || s.committed("c") != 4 || full.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", full.status, full.body)
	}
	var left json.RawMessage
	s.ok("GET", "/v1/dlq?limit=10", "").decode(t, &left)
	if strings.Count(string(left), `"state":"dead"`) != 3 {
		t.Errorf("%s", left)
	}
}
