package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/platform/stages"
)

// step publishes one event of a run.
func (s *site) step(id, kind string) {
	s.t.Helper()
	s.ok(
		"POST", "/v1/events",
		fmt.Sprintf(`{"type":%q,"payload":{"n":%d},"correlation_id":%q}`, kind, time.Now().UnixNano(), id),
	)
}

// chain returns how far a run has come.
func (s *site) chain(id, query string) (c stages.Chain) {
	s.t.Helper()
	s.ok("GET", "/v1/chain/"+id+query, "").decode(s.t, &c)
	return c
}

func TestAChainIsFollowedThroughTheLog(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	for _, kind := range []string{"SELFPLAY_COMPLETE", "NEW_GAMES_AVAILABLE"} {
		s.step("a/1 x", kind)
		s.step("other", kind)
	}
	s.step("a/1 x", "TRAINING_STARTED")
	c := s.chain("a%2F1%20x", "")
	run := c.Flows[0]
	if c.CorrelationID != "a/1 x" || len(c.Events) != 3 || c.Events[2].Offset != 6 || len(c.Flows) != 1 ||
		run.Complete || c.BeginningTrimmed {
		t.Fatalf("%+v", c)
	}
	states := []string{}
	for _, e := range run.Edges {
		states = append(states, e.State)
	}
	if !slices.Equal(states, []string{stages.Taken, stages.Skipped, stages.Skipped, stages.Skipped}) {
		t.Errorf("%v", states)
	}
	if len(run.Next) != 1 || run.Next[0].To != "TRAINING_COMPLETED" || run.Next[0].FromOffset != 6 {
		t.Errorf("%+v", run.Next)
	}
	late := s.chain("a%2F1%20x", "?deadline=training_pipeline:TRAINING_STARTED-%3ETRAINING_COMPLETED=1ns&min_offset=6")
	if late.Overdue != 1 || !late.Flows[0].Next[0].Overdue {
		t.Errorf("%+v", late)
	}
	if none := s.chain(
		"a%2F1%20x", "?flow=health_recovery",
	); len(none.Flows) != 1 || none.Flows[0].Complete || len(none.Outside) != 3 {
		t.Errorf("%+v", none)
	}
	text := s.ok("GET", "/v1/chain/a%2F1%20x?format=text", "")
	if !strings.Contains(text.body, "missing  TRAINING_STARTED 6 -> TRAINING_COMPLETED") ||
		!strings.HasPrefix(text.header.Get("Content-Type"), "text/plain") {
		t.Errorf("%s", text.body)
	}
	if drawing := s.ok("GET", "/v1/chain/a%2F1%20x?format=mermaid", "").body; !strings.HasPrefix(drawing, "flowchart LR") {
		t.Errorf("%s", drawing)
	}
	// A run whose beginning is trimmed is followed from what is left.
	s.ok("POST", "/v1/compact", `{"before":4}`)
	if c = s.chain("a%2F1%20x", ""); !c.BeginningTrimmed || c.Scope.KeptFrom != 4 || len(c.Events) != 2 {
		t.Errorf("%+v", c)
	}
	s.ok("POST", "/v1/compact", `{"before":6}`)
	e := s.do("GET", "/v1/chain/other", "").err(t)
	if e.Code != api.NotFound || !strings.Contains(e.Message, "what was before is trimmed") {
		t.Errorf("%+v", e)
	}
}

// wait begins a wait. Its answer arrives on the channel, which is then closed.
func (s *site) wait(ctx context.Context, query string) <-chan answer {
	s.t.Helper()
	r, err := http.NewRequestWithContext(ctx, "GET", s.url+"/v1/wait"+query, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	done := make(chan answer, 1)
	go func() {
		defer close(done)
		done <- s.send(r)
	}()
	return done
}

// A wait ends with a commit at another node, but not before the last of its cursors has reached the offset, which
// did not exist when the wait began.
func TestAWaitEndsWithTheLastCommit(t *testing.T) {
	t.Parallel()
	sites := newSites(t, 3, nil)
	leader, others := leading(t, sites)
	for _, name := range []string{"a", "b"} {
		leader.ok("PUT", "/v1/cursors/"+name, "")
		leader.open(name)
	}
	_, tail := leader.node.Machine().Log().Bounds()
	want := tail + 2
	done := others[0].wait(t.Context(), fmt.Sprintf("?offset=%d&cursors=a,b&timeout=20s", want))
	leader.publish("A", 1, 2)
	commit := func(name string, offset uint64) {
		leader.ok("POST", "/v1/cursors/"+name+"/commit", fmt.Sprintf(`{"offset":%d,"generation":1}`, offset))
	}
	commit("a", want)
	commit("b", want-1)
	early := others[0].ok("GET", fmt.Sprintf("/v1/wait?offset=%d&cursor=b&cursor=a&timeout=300ms", want), "")
	var v api.Wait
	early.decode(t, &v)
	if v.Reached || v.LastOffset != want || len(v.Cursors) != 2 ||
		v.Cursors[0] != (api.WaitedCursor{Name: "b", Committed: want - 1, Lag: 1}) ||
		v.Cursors[1] != (api.WaitedCursor{Name: "a", Committed: want, Reached: true}) {
		t.Errorf("%s", early.body)
	}
	select {
	case a := <-done:
		t.Fatalf("it did not wait: %s", a.body)
	default:
	}
	commit("b", want)
	select {
	case a := <-done:
		if a.decode(t, &v); a.status != 200 || !v.Reached {
			t.Errorf("%d %s", a.status, a.body)
		}
	case <-time.After(15 * time.Second):
		t.Fatal("no waiter noticed the last commit")
	}
	gone := others[0].wait(t.Context(), "?offset=99&cursors=a&timeout=20s")
	leader.ok("DELETE", "/v1/cursors/a", "")
	if a := <-gone; a.status != 404 {
		t.Errorf("a cursor that was removed: %d %s", a.status, a.body)
	}
}

// A wait for one cursor does not read the state when other cursors move.
func TestAWaitSleepsWhileOtherCursorsMove(t *testing.T) {
	t.Parallel()
	node := &faultyNode{}
	s := newSite(t, func(c *Config) { c.Node, c.Heartbeat = node, time.Hour })
	for _, name := range []string{"moves", "rests"} {
		s.ok("PUT", "/v1/cursors/"+name, "")
		s.open(name)
	}
	work := func(from int) (looks int64) {
		before := node.looked.Load()
		for i := range 20 {
			last := s.publish("TRAINING_COMPLETED", from+i, from+i)[0]
			s.ok("POST", "/v1/cursors/moves/commit", fmt.Sprintf(`{"offset":%d,"generation":1}`, last))
		}
		return node.looked.Load() - before
	}
	// How often the work itself looks at the state is the measure for what the waits add.
	alone := work(0)
	const waits = 50
	var waiting []<-chan answer
	for range waits {
		waiting = append(waiting, s.wait(t.Context(), "?offset=3&cursors=rests&timeout=1m"))
	}
	eventually(t, "all wait", func() bool { return len(s.server.streams.places) == waits })
	if beside := work(100); beside > 2*alone+10*waits {
		t.Errorf("%d looks at the state beside %d waits for another cursor, %d without", beside, waits, alone)
	}
	s.ok("POST", "/v1/cursors/rests/commit", `{"offset":3,"generation":1}`)
	for _, done := range waiting {
		var v api.Wait
		if a := <-done; a.status == 200 {
			a.decode(t, &v)
		}
		if !v.Reached {
			t.Fatalf("%+v", v)
		}
	}
}

// explained returns what became of an event for a cursor.
func (s *site) explained(cursor string, offset uint64) (v api.DeliveryFate) {
	s.t.Helper()
	a := s.ok("GET", fmt.Sprintf("/v1/explain?cursor=%s&offset=%d&consistency=linearizable", cursor, offset), "")
	a.decode(s.t, &v)
	return v
}

// fate checks what became of an event for a cursor, and a part of the reason.
func (s *site) fate(cursor string, offset uint64, want, says string) api.DeliveryFate {
	s.t.Helper()
	v := s.explained(cursor, offset)
	if v.Fate != want || !strings.Contains(v.Reason, says) {
		text, _ := json.Marshal(v)
		s.t.Errorf("%s %d: want %s (%s): %s", cursor, offset, want, says, text)
	}
	return v
}

func TestWhatBecameOfAnEventIsExplained(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil) // offset 1 is the cluster's own
	s.publish("HOST_ONLINE", 1, 5)
	s.publish("HOST_ONLINE", 1, 1) // again: suppressed, and answered with 2
	s.publish("A", 6, 7)           // 7 and 8
	s.ok("PUT", "/v1/cursors/c", `{"filter":{"types":["HOST_*"],"sources":["s0","s1"],"keys":["k0","k1"]}}`)
	s.ok("PUT", "/v1/cursors/late", `{"from":6}`)
	s.fate("c", 2, api.FatePending, "nobody has opened")
	s.fate("late", 3, api.FateBefore, "began after it")
	s.open("c")
	if v := s.fate(
		"c", 2, api.FatePending, "whether its reader has it",
	); v.InFront != 1 || v.Duplicates == nil || v.Duplicates.Suppressed != 1 || v.Event.Type != "HOST_ONLINE" {
		t.Errorf("%+v", v)
	}
	if v := s.fate(
		"c", 7, api.FateFiltered, "filter",
	); len(v.FilteredBy) != 1 || v.FilteredBy[0].Part != "types" || v.FilteredBy[0].Has != "A" {
		t.Errorf("%+v", v)
	}
	if v := s.fate(
		"c", 3, api.FateFiltered, "filter",
	); len(v.FilteredBy) != 1 || v.FilteredBy[0].Part != "keys" || v.FilteredBy[0].Has != "k2" {
		t.Errorf("%+v", v)
	}
	s.ok("POST", "/v1/cursors/c/commit", `{"offset":2,"generation":1}`)
	s.fate("c", 2, api.FateCommitted, "its reader has committed it")
	s.publish("HOST_ONLINE", 9, 9) // 9
	s.ok("POST", "/v1/cursors/c/seek", `{"to":5}`)
	if v := s.fate("c", 4, api.FateSkipped, "from 2 to 4"); v.Seek == nil {
		t.Errorf("%+v", v)
	}
	s.ok("POST", "/v1/cursors/c/commit", `{"offset":9,"generation":1}`)
	s.fate("c", 9, api.FateCommitted, "its reader has committed it")
	s.ok("POST", "/v1/cursors/late/seek", `{"to":2}`)
	s.open("late")
	s.fate("late", 1, api.FateBefore, "began after it") // the seek went back to 2, and not further
	s.fate("late", 3, api.FatePending, "whether its reader has it")
	s.ok("POST", "/v1/compact", `{"before":8,"force":true}`)
	if v := s.fate("late", 4, api.FateTrimmed, "gap"); v.Gap == nil || v.Gap.To != 6 || !v.Trimmed {
		t.Errorf("%+v", v)
	}
	s.fate("c", 4, api.FateSkipped, "from 2 to 4")
	s.fate("c", 6, api.FateCommitted, "so no more is known")
}

// letter makes a dead letter of the event at an offset.
func (s *site) letter(cursor string, offset uint64) {
	s.t.Helper()
	e, err := s.node.Machine().Log().Get(offset)
	if err != nil {
		s.t.Fatal(err)
	}
	s.propose(frame.DeadLetter{
		Cursor:     cursor,
		Generation: 1,
		Offset:     offset,
		Handler:    "h",
		Error:      "boom",
		Attempts:   3,
		Event:      frame.EncodeCopy(&e),
	})
}

// propose proposes a command, which must be accepted.
func (s *site) propose(c frame.Command) fsm.Result {
	s.t.Helper()
	r, err := s.node.Propose(s.t.Context(), frame.Request{Command: c})
	if err != nil || r.Refusal != nil {
		s.t.Fatal(err, r.Refusal)
	}
	return r
}

// An event is explained by its dead letter after redrives, after further failures and after the log was trimmed.
func TestADeadEventIsExplainedThroughItsLives(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	eventually(t, "the level of dead letters", func() bool { return s.node.Machine().FeatureLevel() >= 3 })
	s.publish("A", 1, 3) // 2 to 4
	s.ok("PUT", "/v1/cursors/c", `{"filter":{"types":["A"]}}`)
	s.ok("PUT", "/v1/cursors/d", "")
	s.open("c")
	s.letter("c", 2)
	if v := s.fate(
		"c", 2, api.FateDead, "dead letter 1",
	); v.Letter == nil || v.Letter.Attempts != 3 || v.Letter.Error != "boom" {
		t.Errorf("%+v", v)
	}
	s.propose(frame.Redrive{Letters: []uint64{1}})
	s.fate("c", 2, api.FateRedriven, "appended again at offset 6")
	if v := s.fate("c", 6, api.FatePending, "the copy of dead letter 1"); v.Event.Redrive != 1 {
		t.Errorf("%+v", v)
	}
	if v := s.fate("d", 6, api.FateFiltered, ""); v.FilteredBy[0].Part != "target" || v.FilteredBy[0].Has != "c" {
		t.Errorf("%+v", v)
	}
	s.letter("c", 6)
	s.fate("c", 6, api.FateDead, "dead letter 1")
	s.fate("c", 2, api.FateDead, "dead letter 1")
	s.publish("A", 4, 4)
	s.ok("POST", "/v1/compact", `{"before":7,"force":true}`)
	if v := s.fate("c", 2, api.FateDead, "dead letter 1"); !v.Trimmed {
		t.Errorf("%+v", v)
	}
	s.propose(frame.Purge{Letters: []uint64{1}})
	s.fate("c", 2, api.FateCommitted, "so no more is known")
}

func TestBadQuestionsAboutRunsAndCursorsAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.ok("PUT", "/v1/cursors/c", "")
	many := strings.Repeat("x,", 300)
	for i := range 300 {
		many = strings.Replace(many, "x", fmt.Sprint("c", i), 1)
	}
	for _, b := range []struct {
		path   string
		status int
		field  string
		says   string
	}{
		{"/v1/chain/none", 404, "correlation_id", "no event"},
		{"/v1/chain/" + strings.Repeat("x", 257), 413, "correlation_ids[0]", "256"},
		{"/v1/chain/a%0Ab", 400, "correlation_ids[0]", "control character"},
		{"/v1/chain/none?flow=training", 400, "flow", "training_pipeline, health_recovery"},
		{"/v1/chain/none?deadline=training_pipeline:A-%3EB=1m", 400, "deadline", "has no edge"},
		{"/v1/chain/none?format=dot", 400, "format", "mermaid"},
		{"/v1/chain/none?from=-", 400, "from", "start, end"},
		{"/v1/chain/none?follow=true", 400, "follow", "there is no parameter"},
		{"/v1/chain/none?from=99", 416, "from", "past the tail"},
		{"/v1/wait?cursors=c", 400, "offset", "from 1"},
		{"/v1/wait?offset=0&cursors=c", 400, "offset", "from 1"},
		{"/v1/wait?offset=1e3&cursors=c", 400, "offset", "in digits"},
		{"/v1/wait?offset=1", 400, "cursors", "0 cursors"},
		{"/v1/wait?offset=1&cursors=" + many, 400, "cursors", "300 cursors"},
		{"/v1/wait?offset=1&cursors=c,none", 404, "cursor", `"none"`},
		{"/v1/wait?offset=1&cursors=c&timeout=soon", 400, "timeout", "duration"},
		{"/v1/explain?offset=1", 400, "cursor", "without a name"},
		{"/v1/explain?cursor=c", 400, "offset", "from 1"},
		{"/v1/explain?cursor=none&offset=1", 404, "cursor", `"none"`},
		{"/v1/explain?cursor=c&offset=99", 416, "offset", "past the tail"},
		{"/v1/explain?cursor=c&offset=-1", 400, "offset", "in digits"},
	} {
		a := s.do("GET", b.path, "")
		e := a.err(t)
		if a.status != b.status || e.Field != b.field || !strings.Contains(e.Message+e.Remedy, b.says) || e.Remedy == "" {
			t.Errorf("%.60s: %d %s", b.path, a.status, a.body)
		}
	}
}
