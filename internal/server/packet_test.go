package server

import (
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

func packetOf(events ...event.Event) *ringlogv1.Packet {
	p := frame.Pack(events)
	return &ringlogv1.Packet{Rows: uint32(p.Rows), Types: p.Types, Sources: p.Sources, NoDedup: p.NoDedup, Body: p.Body,
		Traces: p.Traces}
}

// strayEvents returns events that are not in the form in which they are stored, each in another way. Only the last
// is in that form.
func strayEvents() []event.Event {
	made := func(t event.Type, payload string, change func(*event.Event)) event.Event {
		e := event.New(t, []byte(payload))
		e.Source, e.Time = "s", time.Unix(7, 0).UTC()
		change(&e)
		return e
	}
	return []event.Event{
		made("training.completed", `{"n": 1}`, func(*event.Event) {}),
		made("PROMOTION_COMPLETE", `{"n": 2}`, func(*event.Event) {}),
		made(event.TrainingCompleted, `{"n":3}`, func(*event.Event) {}),
		made(event.TrainingCompleted, ``, func(*event.Event) {}),
		made(event.TrainingCompleted, `{"n": 5}`, func(e *event.Event) { e.Value = "training_completed" }),
		made(event.TrainingCompleted, `{"correlation_id": "c", "n": 6}`, func(*event.Event) {}),
		made(event.TrainingCompleted, `{"n": 7}`, func(e *event.Event) { e.Original, e.Foreign = "LEADER_LOST", true }),
		made(event.TrainingCompleted, `{"n": 8}`, func(e *event.Event) { e.NoDedup = true }),
		made(event.TrainingCompleted, `{"n": 9}`, func(e *event.Event) { e.DedupID, e.Key = "d", "k" }),
	}
}

// The events of a packet are stored as if they were published one by one, and are duplicates of those: alone,
// together, and however their form differs.
func TestAPacketIsStoredAsItsEventsAre(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	c := ringlogv1connect.NewLogServiceClient(s.http, s.url)
	policy := s.node.Machine().Policy()
	send := func(events ...event.Event) {
		t.Helper()
		resp, err := c.Publish(t.Context(), connect.NewRequest(&ringlogv1.PublishRequest{Packet: packetOf(events...)}))
		if err != nil {
			t.Fatal(err)
		}
		want := make([]event.Event, 0, len(events))
		for _, e := range events {
			e.Original, e.Foreign = "", false
			if _, _, err := policy.Normalize(&e); err != nil {
				t.Fatal(err)
			}
			e.NoDedup = false // the columns have it
			want = append(want, e)
		}
		l := s.node.Machine().Log()
		stored := make([]event.Event, len(want))
		for i := range stored {
			if stored[i], err = l.Get(resp.Msg.First + uint64(i)); err != nil {
				t.Fatal(err)
			}
		}
		ignored := cmpopts.IgnoreFields(event.Event{}, "Offset", "AppendedAt", "Term")
		if diff := cmp.Diff(want, stored, ignored, cmpopts.IgnoreUnexported(event.Event{})); diff != "" {
			t.Error(diff)
		}
	}
	events := strayEvents()
	for _, e := range events {
		send(e)
	}
	for i := range events { // other content, or all but one would be duplicates
		events[i].Source, events[i].NoDedup = "together", true
	}
	send(events...)
	again := strayEvents()[:3]
	resp, err := c.Publish(t.Context(), connect.NewRequest(&ringlogv1.PublishRequest{Packet: packetOf(again...)}))
	if err != nil || len(resp.Msg.Duplicates) != len(again) {
		t.Errorf("%v %v", resp, err)
	}
}

// A packet that is large enough to be checked in parts is answered as a small one: rows keep their places, a
// warning that rows share is sent once, and the first row that is wrong is named.
func TestALargePacketIsLookedAtInParts(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	c := ringlogv1connect.NewLogServiceClient(s.http, s.url)
	const rows = 8 * 24 // which are four parts
	events := make([]event.Event, rows)
	for i := range events {
		listed := []string{"", `"config_key": "hex8_2p", `}[i%2] // two shapes with the same warning
		events[i] = event.New(event.TrainingCompleted, fmt.Appendf(nil, `{%s"of_no_catalogue": %d}`, listed, i))
	}
	publish := func() (*ringlogv1.PublishResponse, error) {
		resp, err := c.Publish(t.Context(), connect.NewRequest(&ringlogv1.PublishRequest{Packet: packetOf(events...)}))
		if err != nil {
			return nil, err
		}
		return resp.Msg, nil
	}
	m, err := publish()
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Warnings) != 1 || m.Warnings[0].Row != 0 || len(m.Warnings[0].MoreRows) != rows-1 ||
		m.Warnings[0].MoreRows[rows-2] != rows-1 {
		t.Errorf("warnings: %v", m.Warnings)
	}
	for i := range events {
		if e, err := s.node.Machine().Log().Get(m.First +
			uint64(i)); err != nil || string(e.Payload) != string(events[i].Payload) {
			t.Fatalf("row %d: %s %v", i, e.Payload, err)
		}
	}
	for _, row := range []int{rows - 1, rows / 2, rows / 8} {
		events[row].Type = event.LeaderLost
		_, err := publish()
		if got, ok := apiError(err); !ok || got.Code != api.Reserved || got.Field != fmt.Sprintf("events[%d].type", row) {
			t.Errorf("row %d: %v", row, err)
		}
	}
}

// A packet that is not what it says is refused by name, and nothing of it is kept.
func TestBadPacketsAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	c := ringlogv1connect.NewLogServiceClient(s.http, s.url)
	good := event.New(event.TrainingCompleted, []byte(`{"n": 1}`))
	changed := func(change func(*ringlogv1.Packet)) *ringlogv1.PublishRequest {
		p := packetOf(good, good)
		change(p)
		return &ringlogv1.PublishRequest{Packet: p}
	}
	large := make([]event.Event, 6)
	for i := range large {
		large[i] = event.New(event.TrainingCompleted, map[string]any{"text": string(make([]byte, 150_000)), "n": i})
	}
	for name, c2 := range map[string]struct {
		request *ringlogv1.PublishRequest
		code    api.Code
		field   string
	}{
		"no rows":       {changed(func(p *ringlogv1.Packet) { p.Rows = 0 }), api.InvalidArgument, "events"},
		"too many rows": {changed(func(p *ringlogv1.Packet) { p.Rows = 1 << 31 }), api.TooLarge, "events"},
		"more rows":     {changed(func(p *ringlogv1.Packet) { p.Rows = 3 }), api.InvalidArgument, "packet"},
		"fewer rows":    {changed(func(p *ringlogv1.Packet) { p.Rows = 1 }), api.InvalidArgument, "packet"},
		"no types":      {changed(func(p *ringlogv1.Packet) { p.Types = nil }), api.InvalidArgument, "packet"},
		"a flipped bit": {changed(func(p *ringlogv1.Packet) { p.Body[9] ^= 1 }), api.InvalidArgument, "packet"},
		"no body":       {changed(func(p *ringlogv1.Packet) { p.Body = nil }), api.InvalidArgument, "packet"},
		"unknown codec": {changed(func(p *ringlogv1.Packet) { p.Body[0] = 9 }), api.InvalidArgument, "packet"},
		"both": {
			&ringlogv1.PublishRequest{Packet: packetOf(good), Events: wireEvents(1, 1)},
			api.InvalidArgument,
			"packet",
		},
		"unfolds to more": {&ringlogv1.PublishRequest{Packet: packetOf(large...)}, api.TooLarge, "body"},
		"bad row": {
			&ringlogv1.PublishRequest{Packet: packetOf(good, event.New("X", []byte(`{"a": `)))},
			api.InvalidJSON,
			"events[1].payload.a",
		},
		"reserved": {
			&ringlogv1.PublishRequest{Packet: packetOf(good, event.New(event.LeaderLost, nil))},
			api.Reserved,
			"events[1].type",
		},
	} {
		_, err := c.Publish(t.Context(), connect.NewRequest(c2.request))
		got, ok := apiError(err)
		if !ok || got.Code != c2.code || got.Field != c2.field {
			t.Errorf("%s: %+v (%v)", name, got, err)
		}
	}
	if _, last := s.node.Machine().Log().Bounds(); last != 1 { // the election
		t.Errorf("the log ends at %d", last)
	}
}
