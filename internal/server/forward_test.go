package server

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
)

// forward sends a request to a node as another node would. It returns the result, or the code of the refusal.
func (s *site) forward(r frame.Request) (result fsm.Result, code api.Code) {
	s.t.Helper()
	c := ringlogv1connect.NewPeerServiceClient(s.http, s.url)
	resp, err := c.Forward(s.t.Context(), connect.NewRequest(&ringlogv1.ForwardRequest{Request: r.Encode()}))
	if err != nil {
		e, known := apiError(err)
		if !known {
			s.t.Fatal(err)
		}
		return result, e.Code
	}
	if result, err = fsm.DecodeResult(resp.Msg.Result); err != nil {
		s.t.Fatal(err)
	}
	return result, ""
}

// batchOf returns a request to publish events, with their own hashes.
func batchOf(events ...event.Event) frame.Request {
	b := &frame.Batch{}
	for i := range events {
		b.Add(&events[i], events[i].Hash())
	}
	return frame.Request{Command: frame.Publish{Count: b.Len()}, Batch: b}
}

// Commands that only a leader may propose are refused from anybody who reaches the port.
func TestANodePassesOnNoCommandOfALeadersOwn(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	before := s.node.Status().AppliedIndex
	far := time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []frame.Command{
		frame.Tick{},
		frame.TermStart{Cause: "forged"},
		frame.TermStart{Cause: "forged", Silence: time.Second},
		frame.Intent{Target: "n1"},
		frame.IntentAbort{},
		frame.MemberPut{Member: frame.Member{ID: "n9"}},
		frame.MemberRemove{ID: "n1"},
		frame.ClockStep{To: far, Agreed: []string{"n1"}},
		frame.GroupSettle{Name: "g", Term: 1},
		frame.GroupDead{Term: 1},
		frame.Pressure{},
		frame.LagReport{},
		frame.ChainOverdue{},
		frame.Publish{},
	} {
		if _, code := s.forward(frame.Request{Command: c}); code != api.InvalidArgument {
			t.Errorf("%T: %q", c, code)
		}
	}
	if applied := s.node.Status().AppliedIndex; applied != before {
		t.Errorf("%d entries were appended", applied-before)
	}
}

// A forwarded batch is checked as a client's is: readers would otherwise get what is no JSON, or believe what the
// cluster never emitted.
func TestForwardedEventsPassTheGate(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	_, last := s.node.Machine().Log().Bounds()
	for _, one := range []struct {
		event event.Event
		code  api.Code
	}{
		{event.Event{Type: "LEADER_ELECTED", Payload: []byte(`{"leader_id":"evil","term":999}`)}, api.Reserved},
		{event.Event{Type: "LEADER_ELECTED", Payload: []byte(`{}`), Foreign: true}, api.Reserved},
		{event.Event{Type: "TRAINING_COMPLETED", Payload: []byte("this is \n no JSON")}, api.InvalidJSON},
		{event.Event{Type: "TRAINING_COMPLETED", Payload: []byte(`{"b":1,  "a":2}`)}, api.InvalidArgument},
		{event.Event{Type: "TRAINING_COMPLETED", Payload: []byte(`{}`), Foreign: true}, api.InvalidArgument},
		{event.Event{Type: "training.completed", Payload: []byte(`{}`)}, api.InvalidArgument},
		{event.Event{Type: "TRAINING_COMPLETED", Payload: []byte(`{}`), Key: strings.Repeat("k", 10_000)}, api.TooLarge},
	} {
		if _, code := s.forward(batchOf(event.Event{
			Type:    "TRAINING_COMPLETED",
			Payload: []byte(`{}`),
		}, one.event)); code != one.code {
			t.Errorf("%s %s: %q, want %q", one.event.Type, one.event.Payload, code, one.code)
		}
	}
	if _, now := s.node.Machine().Log().Bounds(); now != last {
		t.Errorf("%d events were appended", now-last)
	}
}

// Deduplication keys are computed from the events, not taken from the sender: a forged key would make a duplicate
// of another event.
func TestForwardedEventsBringNoKeysOfTheirOwn(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	victim := event.Event{Type: "TRAINING_COMPLETED", Payload: []byte(`{"n": 1}`)}
	forged := &frame.Batch{}
	forged.Add(&event.Event{Type: "TRAINING_COMPLETED", Payload: []byte(`{"n": 2}`)}, victim.Hash())
	if _, code := s.forward(frame.Request{Command: frame.Publish{Count: 1}, Batch: forged}); code != "" {
		t.Fatal(code)
	}
	if result, code := s.forward(batchOf(victim)); code != "" || len(result.Duplicates) > 0 {
		t.Errorf("%q, duplicates %v", code, result.Duplicates)
	}
	if result, code := s.forward(batchOf(victim)); code != "" || len(result.Duplicates) != 1 {
		t.Errorf("the same again: %q, duplicates %v", code, result.Duplicates)
	}
}

func TestForwardedDeadLettersAreOfWhatTheLogHas(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	offset := s.publish("TRAINING_COMPLETED", 1, 1)[0]
	s.ok("PUT", "/v1/cursors/c", `{}`)
	var opened struct{ Generation uint64 }
	s.ok("POST", "/v1/cursors/c/open", "").decode(t, &opened)
	stored, err := s.node.Machine().Log().Get(offset)
	if err != nil {
		t.Fatal(err)
	}
	letter := func(e event.Event) frame.Request {
		return frame.Request{
			Command: frame.DeadLetter{
				Cursor:     "c",
				Generation: opened.Generation,
				Offset:     offset,
				Handler:    "h",
				Attempts:   1,
				Event:      frame.EncodeCopy(&e),
			},
		}
	}
	// A letter has to have the event that the log has at its offset.
	other := stored
	other.Payload = []byte(`{"n": 2}`)
	if _, code := s.forward(letter(other)); code != api.InvalidArgument {
		t.Errorf("another event: %q", code)
	}
	imported := func(e event.Event) frame.Request {
		return frame.Request{
			Command: frame.LetterImport{Letters: []frame.ImportedLetter{{From: "f", Attempts: 1, Event: frame.EncodeCopy(&e)}}},
		}
	}
	for _, e := range []event.Event{
		{Type: "A", Payload: []byte("no JSON")},
		{Type: "LEADER_ELECTED", Payload: []byte("{}")},
	} {
		if _, code := s.forward(imported(e)); code != api.InvalidArgument && code != api.InvalidJSON {
			t.Errorf("import of %s: %q", e.Type, code)
		}
	}
	kept := func(e event.Event, offset uint64) frame.Request {
		return frame.Request{Command: frame.LetterKeep{Origin: [frame.OriginSize]byte{1}, Letter: frame.DeadLetter{
			Cursor: "live.h", Offset: offset, Event: frame.EncodeCopy(&e)}}}
	}
	for _, r := range []frame.Request{kept(other, stored.Offset), kept(event.Event{Type: "LEADER_ELECTED",
		Payload: []byte("{}")}, 0)} {
		if _, code := s.forward(r); code != api.InvalidArgument {
			t.Errorf("a letter of another event: %q", code)
		}
	}
	for _, r := range []frame.Request{letter(stored), imported(other), kept(stored, stored.Offset), kept(other, 0)} {
		if result, code := s.forward(r); code != "" || result.Refusal != nil {
			t.Errorf("%T: %q %v", r.Command, code, result.Refusal)
		}
	}
}

// A forwarded batch is decided by the policies that the leader knows, whatever the sender knew.
func TestForwardedEventsGoByTheLeadersPolicies(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.ok("PUT", "/v1/dedup/policies/TRAINING_COMPLETED", `{"mode":"fields","fields":["run"]}`)
	first := event.Event{Type: "TRAINING_COMPLETED", Payload: []byte(`{"at": 1, "run": 7}`)}
	again := event.Event{Type: "TRAINING_COMPLETED", Payload: []byte(`{"at": 2, "run": 7}`)}
	if result, code := s.forward(batchOf(first)); code != "" || len(result.Duplicates) > 0 {
		t.Fatalf("%q, duplicates %v", code, result.Duplicates)
	}
	if result, code := s.forward(batchOf(again)); code != "" || len(result.Duplicates) != 1 {
		t.Errorf("the same run: %q, duplicates %v", code, result.Duplicates)
	}
	again.NoDedup = true
	if result, code := s.forward(batchOf(again)); code != "" || len(result.Duplicates) > 0 {
		t.Errorf("dedup false: %q, duplicates %v", code, result.Duplicates)
	}
}

// A retry gets the first answer, also where the policy of its type has changed meanwhile: the producer cannot know of
// that.
func TestARetryIsOneUnderAnotherPolicy(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	send := func() answer {
		return s.do("POST", "/v1/events", `[{"type":"TRAINING_COMPLETED","payload":{"run":1}},{"type":"TASK_HEARTBEAT"}]`,
			"Ringlog-Producer", "p", "Ringlog-Sequence", "1")
	}
	first := send()
	for _, policy := range []string{
		`{"mode":"fields","fields":["run"]}`,
		`{"mode":"content","window":"1h"}`,
		`{"mode":"off"}`,
	} {
		for _, name := range []string{"TRAINING_COMPLETED", "TASK_HEARTBEAT"} {
			s.ok("PUT", "/v1/dedup/policies/"+name, policy)
		}
		again := send()
		if again.status != 200 || !strings.Contains(again.body, `"replayed":true`) ||
			!strings.Contains(again.body, `"offset":2`) {
			t.Errorf("%s: %d %s, first %s", policy, again.status, again.body, first.body)
		}
	}
}
