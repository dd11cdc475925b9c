package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/event"
)

// traceparent is one of a span of a number.
func traceparent(span int) string {
	return fmt.Sprintf("00-4bf92f3577b34da6a3ce929d0e0e4736-%016x-01", span)
}

// The trace context of an event is stored, however it comes in, and read, however it is read. The header counts for the
// events that have none.
func TestATraceIsKeptWithTheEvent(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	body := fmt.Sprintf(`[{"type":"A","payload":{"n":1},"traceparent":%q},{"type":"A","payload":{"n":2}}]`, traceparent(1))
	s.ok(http.MethodPost, "/v1/events", body, "traceparent", traceparent(2))
	s.ok(http.MethodPost, "/v1/events", `{"type":"A","payload":{"n":3}}`)

	c := ringlogv1connect.NewLogServiceClient(s.http, s.url)
	for _, req := range []*ringlogv1.PublishRequest{
		{Events: []*ringlogv1.Event{{Type: "A", Payload: []byte(`{"n":4}`), Traceparent: traceparent(4)}}},
		{Packet: packetOf(tracedEvent(t, 5), event.New("A", []byte(`{"n": 6}`)))},
		// Its second event is not in the stored form, so all are encoded again.
		{Packet: packetOf(tracedEvent(t, 7), event.New("A", []byte(`{"n":8}`)))},
	} {
		if _, err := c.Publish(t.Context(), connect.NewRequest(req)); err != nil {
			t.Fatal(err)
		}
	}
	// A retry in another span is a duplicate, and the first's span stays.
	again := s.ok(http.MethodPost, "/v1/events", `{"type":"A","payload":{"n":1}}`, "traceparent", traceparent(9))
	if !strings.Contains(again.body, `"duplicate":true`) {
		t.Errorf("%s", again.body)
	}

	want := map[float64]string{1: traceparent(1), 2: traceparent(2), 4: traceparent(4), 5: traceparent(5),
		7: traceparent(7)}
	seen := 0
	for _, line := range s.ok(http.MethodGet, "/v1/events?from=start&type=A", "").lines(t) {
		payload, ok := line["payload"].(map[string]any)
		if !ok {
			continue
		}
		n := payload["n"].(float64)
		if got, _ := line["traceparent"].(string); got != want[n] {
			t.Errorf("event %v: %q, want %q", n, got, want[n])
		}
		seen++
	}
	if seen != 8 {
		t.Errorf("%d events, want 8", seen)
	}

	// As whole blocks, and one by one.
	for _, packets := range []bool{true, false} {
		stream, err := c.Tail(t.Context(), connect.NewRequest(&ringlogv1.TailRequest{Packets: packets,
			From: &ringlogv1.Position{At: &ringlogv1.Position_Start{Start: true}}}))
		if err != nil {
			t.Fatal(err)
		}
		traced := 0
		for stream.Receive() {
			for _, run := range stream.Msg().Runs {
				for _, e := range run.Events {
					if e.Traceparent != "" {
						traced++
					}
				}
				if len(run.Span.GetPacket().GetTraces()) > 0 {
					traced++ // each request is a block of its own
				}
			}
		}
		if err := stream.Err(); err != nil {
			t.Fatal(err)
		}
		if blocks := 4; packets && traced != blocks {
			t.Errorf("%d blocks with traces, want %d", traced, blocks)
		} else if !packets && traced != len(want) {
			t.Errorf("%d events with traces, want %d", traced, len(want))
		}
	}
}

// tracedEvent is an event of a number, in a span of the same number, as it is stored.
func tracedEvent(t *testing.T, n int) event.Event {
	e := event.New("A", fmt.Appendf(nil, `{"n": %d}`, n))
	var err error
	if e.Trace, err = event.ParseTrace(traceparent(n)); err != nil {
		t.Fatal(err)
	}
	return e
}

// A trace context that an event names and nobody can read is refused. One that the header brings is not the
// publisher's, perhaps, and is ignored.
func TestATraceThatCannotBeRead(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	c := ringlogv1connect.NewLogServiceClient(s.http, s.url)
	for _, bad := range []string{"x", "01" + traceparent(1)[2:], traceparent(0), strings.ToUpper(traceparent(10)) + "é"} {
		refused := s.do(http.MethodPost, "/v1/events", fmt.Sprintf(`[{"type":"A","traceparent":%q}]`, bad)).err(t)
		if refused.Code != api.InvalidArgument || refused.Field != "events[0].traceparent" || refused.Remedy == "" {
			t.Errorf("%q: %+v", bad, refused)
		}
		_, err := c.Publish(t.Context(), connect.NewRequest(&ringlogv1.PublishRequest{
			Events: []*ringlogv1.Event{{Type: "A", Traceparent: bad}}}))
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%q: %v", bad, err)
		}
		s.ok(http.MethodPost, "/v1/events", `{"type":"A","dedup":false}`, "traceparent", strings.ReplaceAll(bad, "é", ""))
	}
	packet := packetOf(tracedEvent(t, 1))
	packet.Traces = packet.Traces[:len(packet.Traces)-1]
	_, err := c.Publish(t.Context(), connect.NewRequest(&ringlogv1.PublishRequest{Packet: packet}))
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("%v", err)
	}
}
