package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/tail"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
)

// h2c returns a client that speaks HTTP/2 without TLS.
func h2c(t testing.TB) *http.Client {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func wireEvents(from, to int) (list []*ringlogv1.Event) {
	for i := from; i <= to; i++ {
		list = append(list, &ringlogv1.Event{
			Type:         "A",
			Payload:      fmt.Appendf(nil, `{"n": %d}`, i),
			Source:       "s",
			Key:          "k",
			TimeUnixNano: 1_700_000_000_000_000_000,
		})
	}
	return list
}

// received is what a stream delivered: offsets in order, gaps, and the last next.
type received struct {
	offsets []uint64
	times   []int64 // when each was appended
	gaps    []*ringlogv1.Gap
	next    uint64
	after   uint64   // one more than the last offset
	skips   []uint64 // how far each message's next is past its last event
	wrong   []string
	largest int // bytes of the largest message
	count   int // messages
}

func (r *received) take(m *ringlogv1.TailResponse) {
	r.count++
	r.largest = max(r.largest, proto.Size(m))
	r.next = m.Next
	if m.Gap != nil {
		r.gaps = append(r.gaps, m.Gap)
	}
	for _, run := range m.Runs {
		for _, e := range run.Events {
			r.offsets = append(r.offsets, e.Offset)
			r.times = append(r.times, run.AppendedAtUnixNano)
			r.after = e.Offset + 1
		}
	}
	if (len(m.Runs) > 0 && m.Next < r.after) || m.Next > m.LastOffset+1 {
		r.wrong = append(r.wrong, fmt.Sprintf("next is %d after offset %d of %d", m.Next, r.after-1, m.LastOffset))
	}
	r.skips = append(r.skips, m.Next-r.after)
}

func TestConnectPublishesAndTails(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	for name, httpClient := range map[string]*http.Client{"HTTP/1.1": s.http, "h2c": h2c(t)} {
		for protocol, option := range map[string]connect.ClientOption{
			"connect":  connect.WithProtoJSON(),
			"protobuf": connect.WithSendMaxBytes(0),
			"grpc":     connect.WithGRPC(),
		} {
			if protocol == "grpc" && name == "HTTP/1.1" {
				continue
			}
			t.Run(name+" "+protocol, func(t *testing.T) {
				c := ringlogv1connect.NewLogServiceClient(httpClient, s.url, option)
				_, before := s.node.Machine().Log().Bounds()
				events := wireEvents(1, 20)
				for _, e := range events {
					e.DedupId = name + protocol + string(e.Payload)
				}
				events = append(events, events[3])
				resp, err := c.Publish(t.Context(), connect.NewRequest(&ringlogv1.PublishRequest{Events: events}))
				if err != nil {
					t.Fatal(err)
				}
				if m := resp.Msg; m.First != before+1 || len(m.Duplicates) != 1 || m.Duplicates[0].Row != 20 ||
					m.Duplicates[0].Offset != before+4 || m.AppendedAtUnixNano == 0 || len(m.Warnings) != 1 ||
					len(m.Warnings[0].MoreRows) != 20 {
					t.Errorf("%v", m)
				}
				stream, err := c.Tail(
					t.Context(),
					connect.NewRequest(
						&ringlogv1.TailRequest{From: &ringlogv1.Position{At: &ringlogv1.Position_Offset{Offset: before + 1}}},
					),
				)
				if err != nil {
					t.Fatal(err)
				}
				defer stream.Close()
				var got received
				for stream.Receive() {
					got.take(stream.Msg())
				}
				if stream.Err() != nil || len(got.offsets) != 20 || got.offsets[0] != before+1 || got.next != before+21 {
					t.Errorf("%+v %v", got, stream.Err())
				}
			})
		}
	}
}

func TestATailOfThePastComesInLargeMessagesAndTheTailInSmallOnes(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	c := ringlogv1connect.NewLogServiceClient(h2c(t), s.url)
	for i := range 10 {
		if _, err := c.Publish(
			t.Context(),
			connect.NewRequest(&ringlogv1.PublishRequest{Events: wireEvents(i*1000+1, i*1000+1000)}),
		); err != nil {
			t.Fatal(err)
		}
	}
	big := &ringlogv1.Event{Type: "A", Payload: []byte(`{"x": "` + strings.Repeat("x", 700_000) + `"}`), NoDedup: true}
	if _, err := c.Publish(
		t.Context(),
		connect.NewRequest(&ringlogv1.PublishRequest{Events: []*ringlogv1.Event{big, big, big, big}}),
	); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := c.Tail(
		ctx,
		connect.NewRequest(&ringlogv1.TailRequest{
			From:   &ringlogv1.Position{At: &ringlogv1.Position_Start{Start: true}},
			Follow: true,
		}),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var got received
	for len(got.offsets) < 10_005 && stream.Receive() {
		got.take(stream.Msg())
	}
	// The past comes in few messages, none much larger than a batch.
	if got.count > 40 || got.largest > tail.BatchBytes+64<<10 {
		t.Errorf("%d messages, the largest of %d bytes", got.count, got.largest)
	}
	for i, offset := range got.offsets {
		e, err := s.node.Machine().Log().Get(offset)
		if err != nil || offset != uint64(i+1) || got.times[i] != e.AppendedAt.UnixNano() {
			t.Fatalf("offset %d of %d at place %d, %v", offset, got.times[i], i, err)
		}
	}
	if len(got.wrong) > 0 || slices.Max(got.skips[1:]) > 0 {
		t.Errorf("%v, next past the last event by %v", got.wrong, got.skips)
	}
	// What is appended now comes at once, event by event.
	for i := range 3 {
		if _, err := c.Publish(
			t.Context(),
			connect.NewRequest(&ringlogv1.PublishRequest{Events: wireEvents(20_000+i, 20_000+i)}),
		); err != nil {
			t.Fatal(err)
		}
		for {
			if !stream.Receive() {
				t.Fatal(stream.Err())
			}
			if len(stream.Msg().Runs) > 0 {
				break
			}
		}
		if runs := stream.Msg().Runs; len(runs) != 1 || len(runs[0].Events) != 1 || runs[0].Term == 0 {
			t.Errorf("%v", runs)
		}
	}
}

// detail returns the error in the detail of a Connect error, whose code it checks.
func detail(t *testing.T, err error, code connect.Code) *api.Error {
	t.Helper()
	e, ok := apiError(err)
	if !ok || connect.CodeOf(err) != code {
		t.Fatalf("%v of code %v, want %v", err, connect.CodeOf(err), code)
	}
	return e
}

func TestConnectErrorsCarryTheirDetail(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	c := ringlogv1connect.NewLogServiceClient(s.http, s.url)
	publish := func(events ...*ringlogv1.Event) error {
		_, err := c.Publish(t.Context(), connect.NewRequest(&ringlogv1.PublishRequest{Events: events}))
		return err
	}
	if e := detail(
		t, publish(wireEvents(1, 1)[0], &ringlogv1.Event{Type: "A", Payload: []byte("[1]")}),
		connect.CodeInvalidArgument,
	); e.Code != api.InvalidArgument || e.Field != "events[1].payload" || e.Remedy == "" {
		t.Errorf("%+v", e)
	}
	if e := detail(t, publish(), connect.CodeInvalidArgument); e.Field != "events" {
		t.Errorf("%+v", e)
	}
	if e := detail(
		t, publish(&ringlogv1.Event{Type: "VOTER_ONLINE"}), connect.CodePermissionDenied,
	); e.Code != api.Reserved {
		t.Errorf("%+v", e)
	}
	_, err := c.GetEvent(t.Context(), connect.NewRequest(&ringlogv1.GetEventRequest{Offset: 99}))
	if e := detail(t, err, connect.CodeOutOfRange); e.Code != api.PastTail || e.Offset != 1 {
		t.Errorf("%+v", e)
	}
	_, err = c.ExplainDedup(t.Context(), connect.NewRequest(&ringlogv1.ExplainDedupRequest{}))
	if e := detail(t, err, connect.CodeInvalidArgument); e.Field != "offset" {
		t.Errorf("%+v", e)
	}
	tail := func(r *ringlogv1.TailRequest) error {
		stream, err := c.Tail(t.Context(), connect.NewRequest(r))
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		for stream.Receive() {
		}
		return stream.Err()
	}
	err = tail(&ringlogv1.TailRequest{From: &ringlogv1.Position{At: &ringlogv1.Position_Offset{Offset: 99}}})
	if e := detail(t, err, connect.CodeOutOfRange); e.Code != api.PastTail {
		t.Errorf("%+v", e)
	}
	typo := &ringlogv1.Filter{Categories: []string{"trainign"}}
	cursors := ringlogv1connect.NewCursorServiceClient(s.http, s.url)
	_, err = cursors.CreateCursor(t.Context(), connect.NewRequest(&ringlogv1.CreateCursorRequest{Name: "c", Filter: typo}))
	for _, err := range []error{err, tail(&ringlogv1.TailRequest{Filter: typo})} {
		if e := detail(
			t, err, connect.CodeInvalidArgument,
		); e.Field != "categories[0]" || !strings.Contains(e.Remedy, "training") {
			t.Errorf("%+v", e)
		}
	}
}

func TestConnectCursors(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.publish("A", 1, 3)
	s.publish("B", 4, 6)
	c := ringlogv1connect.NewCursorServiceClient(h2c(t), s.url)
	ctx := t.Context()
	made, err := c.CreateCursor(
		ctx,
		connect.NewRequest(&ringlogv1.CreateCursorRequest{Name: "c", Filter: &ringlogv1.Filter{Types: []string{"B"}}}),
	)
	if err != nil || made.Msg.Cursor.LagEvents != 3 {
		t.Fatalf("%v %v", made, err)
	}
	opened, err := c.OpenCursor(ctx, connect.NewRequest(&ringlogv1.OpenCursorRequest{Name: "c"}))
	if err != nil || opened.Msg.Cursor.Generation != 1 {
		t.Fatalf("%v %v", opened, err)
	}
	read := func(from uint64) (got received, first *ringlogv1.Cursor, err error) {
		stream, err := c.ReadCursor(
			ctx,
			connect.NewRequest(&ringlogv1.ReadCursorRequest{Name: "c", Generation: 1, From: from}),
		)
		if err != nil {
			return got, nil, err
		}
		defer stream.Close()
		for stream.Receive() {
			if first == nil {
				first = stream.Msg().Cursor
			}
			got.take(stream.Msg())
		}
		return got, first, stream.Err()
	}
	got, first, err := read(0)
	if err != nil || first.GetName() != "c" || fmt.Sprint(got.offsets) != "[5 6 7]" || got.next != 8 {
		t.Errorf("%+v %v %v", got, first, err)
	}
	if got, _, err := read(6); err != nil || fmt.Sprint(got.offsets) != "[6 7]" {
		t.Errorf("resumed: %+v %v", got, err)
	}
	commit, err := c.CommitCursor(
		ctx,
		connect.NewRequest(&ringlogv1.CommitCursorRequest{Name: "c", Generation: 1, Offset: 6}),
	)
	if err != nil || commit.Msg.Committed != 6 {
		t.Fatalf("%v %v", commit, err)
	}
	if _, err := c.SeekCursor(
		ctx,
		connect.NewRequest(&ringlogv1.SeekCursorRequest{
			Name: "c",
			To:   &ringlogv1.Position{At: &ringlogv1.Position_Last{Last: 3}},
		}),
	); err != nil {
		t.Fatal(err)
	}
	listed, err := c.ListCursors(ctx, connect.NewRequest(&ringlogv1.ListCursorsRequest{}))
	if err != nil || len(listed.Msg.Cursors) != 1 || listed.Msg.Cursors[0].Committed != 4 {
		t.Fatalf("%v %v", listed, err)
	}
	// Opening the cursor again fences off the reader with the first generation.
	if _, err := c.OpenCursor(ctx, connect.NewRequest(&ringlogv1.OpenCursorRequest{Name: "c"})); err != nil {
		t.Fatal(err)
	}
	_, _, err = read(0)
	if e := detail(t, err, connect.CodeFailedPrecondition); e.Code != api.Fenced || e.Offset != 2 {
		t.Errorf("%+v", e)
	}
	if _, err := c.DeleteCursor(ctx, connect.NewRequest(&ringlogv1.DeleteCursorRequest{Name: "c"})); err != nil {
		t.Fatal(err)
	}
	_, err = c.GetCursor(ctx, connect.NewRequest(&ringlogv1.GetCursorRequest{Name: "c"}))
	if e := detail(t, err, connect.CodeNotFound); e.Code != api.NotFound {
		t.Errorf("%+v", e)
	}
}

// A reader whose filter matches nothing still learns how far the read has come.
func TestAFilterThatMatchesNothingStillShowsHowFarItCame(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Heartbeat = 20 * time.Millisecond })
	c := ringlogv1connect.NewLogServiceClient(h2c(t), s.url)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := c.Tail(
		ctx,
		connect.NewRequest(&ringlogv1.TailRequest{Follow: true, Filter: &ringlogv1.Filter{Types: []string{"NEVER"}}}),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	s.publish("A", 1, 50)
	for stream.Receive() && stream.Msg().Next < 52 {
	}
	if stream.Err() != nil || len(stream.Msg().Runs) != 0 {
		t.Errorf("%v %v", stream.Msg(), stream.Err())
	}
	closing, done := context.WithTimeout(context.Background(), 10*time.Second)
	defer done()
	if err := s.server.Close(closing); err != nil {
		t.Fatal(err)
	}
	for stream.Receive() {
	}
	if e := detail(
		t, stream.Err(), connect.CodeUnavailable,
	); e.Code != api.Unavailable || errors.Is(stream.Err(), context.Canceled) {
		t.Errorf("%+v", e)
	}
}

// What is published over one protocol reads the same over the other.
func TestBothProtocolsStoreTheSame(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	c := ringlogv1connect.NewLogServiceClient(s.http, s.url)
	body := `{"type":"promotion_complete","payload":{"b":1,"a":"ü"},"source":"s","key":"k","correlation_id":"c",
		"causation_id":"x","dedup_id":"d","time":"2026-01-05T10:00:00.000000001Z"}`
	s.ok("POST", "/v1/events", body)
	sent := &ringlogv1.Event{
		Type:          "promotion_complete",
		Payload:       []byte(`{"b":1,"a":"ü"}`),
		Source:        "s",
		Key:           "k",
		CorrelationId: "c",
		CausationId:   "x",
		DedupId:       "d",
		TimeUnixNano:  time.Date(2026, 1, 5, 10, 0, 0, 1, time.UTC).UnixNano(),
	}
	again, err := c.Publish(t.Context(), connect.NewRequest(&ringlogv1.PublishRequest{Events: []*ringlogv1.Event{sent}}))
	if err != nil || len(again.Msg.Duplicates) != 1 || again.Msg.Duplicates[0].Offset != 2 {
		t.Fatalf("%v %v", again, err)
	}
	got, err := c.GetEvent(t.Context(), connect.NewRequest(&ringlogv1.GetEventRequest{Offset: 2}))
	if err != nil {
		t.Fatal(err)
	}
	e := got.Msg.Run.Events[0]
	if e.Type != "MODEL_PROMOTED" || e.OriginalType != "promotion_complete" ||
		!bytes.Equal(e.Payload, []byte(`{"a": "\u00fc", "b": 1}`)) || e.Source != "s" || e.Key != "k" ||
		e.CorrelationId != "c" || e.CausationId != "x" || e.DedupId != "d" || e.TimeUnixNano != sent.TimeUnixNano ||
		got.Msg.Run.AppendedAtUnixNano == 0 {
		t.Errorf("%v", got.Msg)
	}
	explained, err := c.ExplainDedup(
		t.Context(),
		connect.NewRequest(&ringlogv1.ExplainDedupRequest{Subject: &ringlogv1.ExplainDedupRequest_Offset{Offset: 2}}),
	)
	if web := s.ok("GET", "/v1/dedup/2", "").body; err != nil || explained.Msg.ExplanationJson+"\n" != web {
		t.Errorf("%v %v, over HTTP %s", explained, err, web)
	}
}
