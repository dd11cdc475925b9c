package server

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/access"
	"github.com/ringrift/ringlog/internal/service"
	"github.com/ringrift/ringlog/snapshots"
)

func verifySnapshot(t *testing.T, data string, last uint64) {
	t.Helper()
	meta, err := snapshots.Verify(strings.NewReader(data))
	if err != nil || meta.LastOffset != last {
		t.Errorf("%+v, %v", meta, err)
	}
}

// open opens a cursor and returns its generation.
func (s *site) open(name string) (generation uint64) {
	s.t.Helper()
	var c struct{ Generation uint64 }
	s.ok("POST", "/v1/cursors/"+name+"/open", "").decode(s.t, &c)
	return c.Generation
}

func TestAPositionMayBeANumber(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.publish("A", 1, 4)
	for _, in := range []struct {
		method, path, body string
		committed          uint64
	}{
		{"PUT", "/v1/cursors/c1", `{"from":1}`, 0},
		{"PUT", "/v1/cursors/c3", `{"from":3}`, 2},
		{"PUT", "/v1/cursors/c4", `{"from":"4"}`, 3},
		{"POST", "/v1/cursors/c1/seek", `{"to":3}`, 2},
		{"POST", "/v1/cursors/c1/seek", `{"to":"4"}`, 3},
		{"POST", "/v1/cursors/c1/seek", `{"to":0}`, 0},
		{"POST", "/v1/cursors/c1/seek", `{"to":"end"}`, 5},
	} {
		var c struct{ Committed uint64 }
		s.ok(in.method, in.path, in.body).decode(t, &c)
		if c.Committed != in.committed {
			t.Errorf("%s %s %s: committed %d, want %d", in.method, in.path, in.body, c.Committed, in.committed)
		}
	}
}

func TestANewOpenFencesTheReaderBefore(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.ok("PUT", "/v1/cursors/c", `{"from":"end"}`)
	first := s.open("c")
	lines, _ := s.follow(t.Context(), "/v1/cursors/c/events?follow=true&generation=1")
	s.publish("A", 1, 1)
	if got := next(t, lines); !strings.Contains(got, `"offset":2`) {
		t.Errorf("%q", got)
	}
	if second := s.open("c"); second != first+1 {
		t.Fatalf("generation %d after %d", second, first)
	}
	s.publish("A", 2, 2)
	rest := ends(t, lines)
	if end := endOf(t, rest[len(rest)-1]); end.Reason != endError || end.Error.Code != api.Fenced {
		t.Errorf("the stream of the old generation ended with %q", rest)
	}
	for _, a := range []answer{
		s.do("POST", "/v1/cursors/c/commit", `{"offset":2,"generation":1}`),
		s.do("GET", "/v1/cursors/c/events?generation=1", ""),
	} {
		if e := a.err(t); a.status != 409 || e.Code != api.Fenced || e.Offset != 2 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if a := s.do("GET", "/v1/cursors/c/events?generation=3", ""); a.status != 400 {
		t.Errorf("a generation that does not exist: %d %s", a.status, a.body)
	}
	s.ok("POST", "/v1/cursors/c/commit", `{"offset":2,"generation":2}`)
	if got := offsetsIn(s.ok("GET", "/v1/cursors/c/events?generation=2", "").lines(t)); !slices.Equal(got, []uint64{3}) {
		t.Errorf("after the commit there are %v", got)
	}
	past := s.do("POST", "/v1/cursors/c/commit", `{"offset":4,"generation":2}`)
	if e := past.err(t); past.status != 416 || e.Code != api.PastTail || e.Offset != 3 {
		t.Errorf("%d %s", past.status, past.body)
	}
}

func TestACursorThatWasPassedGetsItsGapFirstAsItsFilterSeesIt(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.ok("PUT", "/v1/cursors/c", `{"filter":{"types":["A","C"]}}`)
	s.publish("A", 1, 3)
	s.publish("B", 4, 5)
	s.publish("C", 6, 6) // offset 7
	// A cursor keeps what it has not committed from a trim that is not forced.
	held := s.ok("POST", "/v1/compact", `{"before":7}`)
	if !strings.Contains(held.body, `"held_by":"c"`) || !strings.Contains(held.body, `"removed":0`) {
		t.Errorf("%s", held.body)
	}
	if forced := s.ok(
		"POST", "/v1/compact", `{"before":7,"force":true}`,
	); !strings.Contains(forced.body, `"passed":["c"]`) {
		t.Errorf("%s", forced.body)
	}
	s.open("c")
	got := s.ok("GET", "/v1/cursors/c/events?generation=1", "").lines(t)
	if gap, _ := json.Marshal(
		got[0],
	); string(gap) != `{"gap":{"from":1,"reason":"forced","to":6,"types":{"A":3}}}` || len(got) != 2 ||
		!slices.Equal(offsetsIn(got), []uint64{7}) {
		t.Errorf("%s then %v", gap, offsetsIn(got))
	}
	// After a commit past the gap it is not reported again.
	s.ok("POST", "/v1/cursors/c/commit", `{"offset":7,"generation":1}`)
	s.publish("A", 8, 8)
	if got := s.ok("GET", "/v1/cursors/c/events?generation=1", "").lines(t); len(got) != 1 || got[0]["gap"] != nil {
		t.Errorf("the gap came again: %v", got)
	}
}

func TestAReaderThatIsOverrunMidStreamGetsTheGap(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.publish("A", 1, 66) // offsets 2 to 67, of which a first read takes 64
	s.ok("PUT", "/v1/cursors/c", "")
	s.open("c")
	tail, _, err := s.server.ops.Cursors.OpenTail(access.With(t.Context(), access.Anybody()), service.ReadCursor{
		Name:       "c",
		Generation: 1,
		Limit:      0,
		Follow:     true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := tail.Read(t.Context()); err != nil || len(b.Events) != 64 {
		t.Fatalf("%+v %v", b, err)
	}
	s.publish("B", 67, 67) // offset 68
	s.ok("POST", "/v1/compact", `{"before":68,"force":true}`)
	b, err := tail.Read(t.Context())
	if err != nil || b.Gap == nil || b.Gap.To != 67 || b.Gap.Types["A"] != 66 || b.Next != 68 {
		t.Fatalf("%+v %+v %v", b, b.Gap, err)
	}
	if b, err = tail.Read(t.Context()); err != nil || len(b.Events) != 1 || b.Events[0].Offset != 68 {
		t.Fatalf("%+v %v", b, err)
	}
}

// What exists with other settings is refused with each that differs, on a node that may not have it yet as well.
func TestWhatExistsIsComparedWithWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	sites := newSites(t, 3, nil)
	sites[0].ok("PUT", "/v1/groups/g", `{"filter":{"types":["A","B"],"keys":["k"]},
		"policy":{"hold_for":"7d","hold_bytes":9},"group":{"ack_wait":"30s","max_deliver":5}}`)
	for body, want := range map[string]string{
		`{"filter":{"types":["A","B"],"keys":["k"]},"policy":{"hold_for":"2w","hold_bytes":9},
			"group":{"ack_wait":"30s","max_deliver":5}}`: "policy.hold_for is 168h0m0s, not 336h0m0s",
		`{"filter":{"types":["B"],"sources":["s"]},"policy":{"hold_for":"168h","hold_events":1},
			"group":{"max_deliver":6}}`: `filter.types is ["A","B"], not ["B"]; ` +
			`filter.sources is not set, not ["s"]; filter.keys is ["k"], and none was sent; ` +
			`policy.hold_events is not set, not 1; policy.hold_bytes is 9, and none was sent; ` +
			`group.ack_wait is 30s, and none was sent; group.max_deliver is 5, not 6`,
	} {
		for _, s := range sites {
			a := s.do("PUT", "/v1/groups/g", body)
			if e := a.err(t); e.Code != api.Exists || e.Field != "group" ||
				e.Message != `the group "g" exists with other settings: `+want {
				t.Errorf("%s\n%d %s", body, a.status, a.body)
			}
		}
	}
}

func TestCursorsAreMadeOnceSoughtAndRemoved(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.publish("A", 1, 5)
	made := s.ok("PUT", "/v1/cursors/a%2Fb%20c", `{"from":"-2"}`)
	if again := s.ok("PUT", "/v1/cursors/a%2Fb%20c", `{"from":"start"}`); steady(again.body) != steady(made.body) {
		t.Errorf("%s then %s", made.body, again.body)
	}
	// The same name with another filter is another cursor.
	other := s.do("PUT", "/v1/cursors/a%2Fb%20c", `{"filter":{"types":["A"]}}`)
	if e := other.err(t); other.status != 409 || e.Code != api.Exists ||
		!strings.HasSuffix(e.Message, `exists with other settings: filter.types is not set, not ["A"]`) {
		t.Errorf("%d %s", other.status, other.body)
	}
	for body, want := range map[string]uint64{
		`{"to":"start"}`: 0,
		`{"to":"end"}`:   6,
		`{"to":"3"}`:     2,
		`{"offset":5}`:   4,
		`{"to":"1h"}`:    0,
	} {
		var c struct {
			Committed uint64
			LagEvents uint64 `json:"lag_events"`
		}
		if s.ok("POST", "/v1/cursors/a%2Fb%20c/seek", body).decode(t, &c); c.Committed != want || c.LagEvents != 6-want {
			t.Errorf("%s: %+v, want %d", body, c, want)
		}
	}
	var list struct{ Cursors []struct{ Name string } }
	if s.ok("GET", "/v1/cursors", "").decode(t, &list); len(list.Cursors) != 1 || list.Cursors[0].Name != "a/b c" {
		t.Errorf("%+v", list)
	}
	s.ok("DELETE", "/v1/cursors/a%2Fb%20c", "")
	if a := s.do("DELETE", "/v1/cursors/a%2Fb%20c", ""); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestARemovedCursorEndsItsReader(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.ok("PUT", "/v1/cursors/c", `{"from":"end"}`)
	s.open("c")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lines, _ := s.follow(ctx, "/v1/cursors/c/events?follow=true&generation=1")
	s.ok("DELETE", "/v1/cursors/c", "")
	s.publish("A", 1, 1)
	if rest := ends(t, lines); len(rest) != 1 || !strings.Contains(rest[0], `"not_found"`) {
		t.Errorf("%q", rest)
	}
}
