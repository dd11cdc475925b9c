package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// wireError is an error as nodes send it.
func wireError(e *api.Error) *connect.Error {
	out := connect.NewError(e.Code.Connect(), errors.New(e.Message))
	detail, err := connect.NewErrorDetail(
		&ringlogv1.ErrorDetail{Code: string(e.Code), Message: e.Message, Reason: e.Reason, Field: e.Field,
			Remedy: e.Remedy, Offset: e.Offset, LeaderHttp: e.LeaderHTTP},
	)
	if err == nil {
		out.AddDetail(detail)
	}
	return out
}

func refuse(w http.ResponseWriter, r *http.Request, e *api.Error) {
	if strings.HasPrefix(r.URL.Path, "/ringlog.v1.") {
		_ = connect.NewErrorWriter().Write(w, r, wireError(e))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Code.Status())
	_ = json.NewEncoder(w).Encode(map[string]any{"error": e})
}

// peer speaks the protocol of a node and says what a test makes it say, where a real
// node cannot be brought to say it.
type peer struct {
	ringlogv1connect.UnimplementedLogServiceHandler
	mu    sync.Mutex
	asked []*ringlogv1.PublishRequest
	say   func(n int, req *ringlogv1.PublishRequest) (*ringlogv1.PublishResponse, error) // n counts requests from 0
}

func (p *peer) Publish(
	_ context.Context,
	r *connect.Request[ringlogv1.PublishRequest],
) (*connect.Response[ringlogv1.PublishResponse], error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.asked)
	p.asked = append(p.asked, r.Msg)
	resp, err := p.say(n, r.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(resp), nil
}

func openPeer(
	t testing.TB,
	say func(n int, req *ringlogv1.PublishRequest) (*ringlogv1.PublishResponse, error),
) (*peer, *door) {
	p := &peer{say: say}
	mux := http.NewServeMux()
	mux.Handle(ringlogv1connect.NewLogServiceHandler(p))
	return p, openDoor(t, mux)
}

// sequenceOf names requests by producer and sequence: a1 a1 b1.
func (p *peer) sequences() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	names, out := map[string]string{}, ""
	for _, r := range p.asked {
		if names[r.ProducerId] == "" {
			names[r.ProducerId] = string(rune('a' + len(names)))
		}
		out += fmt.Sprintf(" %s%d", names[r.ProducerId], r.Sequence)
	}
	return out
}

// TestAProducerIsGivenUpWhenItsSequenceIsInDoubt walks three publishes through
// answers that follow each other; the wire shows which producer and sequence each
// request had.
func TestAProducerIsGivenUpWhenItsSequenceIsInDoubt(t *testing.T) {
	t.Parallel()
	refusal := func(code api.Code, field string) error {
		return wireError(&api.Error{Code: code, Message: "no", Field: field})
	}
	unknown := refusal(api.OutcomeUnknown, "")
	for name, tt := range map[string]struct {
		answers []error // nil is success, as is everything after the last
		sent    string
		failed  int // which of the publishes fails, 0 is none
		doubt   bool
	}{
		"all well":               {nil, " a1 a2 a3", 0, false},
		"unknown, then answered": {[]error{unknown, nil}, " a1 a1 a2 a3", 0, false},
		"no leader for a while": {
			[]error{refusal(api.NoLeader, ""), refusal(api.NoQuorum, ""), nil},
			" a1 a1 a1 a2 a3",
			0,
			false,
		},
		"expired while idle": {
			[]error{nil, refusal(api.UnknownProducer, "sequence")},
			" a1 a2 b1 b2",
			0,
			false,
		},
		"out of sequence at first": {
			[]error{nil, refusal(api.OutOfSequence, "sequence")},
			" a1 a2 b1 b2",
			0,
			false,
		},
		"unknown, then expired": {
			[]error{nil, unknown, refusal(api.UnknownProducer, "sequence")},
			" a1 a2 a2 b1",
			2,
			true,
		},
		"unknown, then out of sequence": {
			[]error{unknown, refusal(api.OutOfSequence, "sequence")},
			" a1 a1 b1 b2",
			1,
			true,
		},
		"refused by the gate keeps the sequence": {[]error{refusal(api.Reserved, "events[0].type")}, " a1 a1 a2", 1, false},
		"refused by the gate after an unknown": {
			[]error{unknown, refusal(api.Unauthenticated, "")},
			" a1 a1 b1 b2",
			1,
			true,
		},
		"conflict is decided under the sequence": {
			[]error{unknown, refusal(api.Conflict, "events[0].dedup_id")},
			" a1 a1 a2 a3",
			1,
			false,
		},
		"disk full is no reason to continue": {[]error{refusal(api.DiskFull, "")}, " a1 a1 a2", 1, false},
		"a node that fails again and again": {
			[]error{refusal(api.Internal, ""), refusal(api.Internal, ""), refusal(api.Internal, ""), refusal(api.Internal, "")},
			" a1 a1 a1 a1 b1 b2",
			1,
			true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, d := openPeer(t, func(n int, req *ringlogv1.PublishRequest) (*ringlogv1.PublishResponse, error) {
				if n < len(tt.answers) && tt.answers[n] != nil {
					return nil, tt.answers[n]
				}
				return &ringlogv1.PublishResponse{First: uint64(n + 1), AppendedAtUnixNano: 1}, nil
			})
			c := dial(t, client.Config{MaxInFlight: 1}, d)
			for i := 1; i <= 3; i++ {
				_, err := c.Publish(t.Context(), numbered(i))
				if (err != nil) != (i == tt.failed) {
					t.Errorf("publish %d: %v", i, err)
				}
				if err != nil && errors.Is(err, client.ErrOutcomeUnknown) != tt.doubt {
					t.Errorf("publish %d: %v; outcome unknown should be %v", i, err, tt.doubt)
				}
			}
			if got := p.sequences(); got != tt.sent {
				t.Errorf("requests were%s, want%s", got, tt.sent)
			}
		})
	}
}

// An event that no node can have taken is refused for certain, after a lost answer too.
func TestARefusalOfWhatIsNoJSONIsCertain(t *testing.T) {
	t.Parallel()
	p, d := openPeer(t, func(n int, req *ringlogv1.PublishRequest) (*ringlogv1.PublishResponse, error) {
		switch n {
		case 0:
			return nil, wireError(&api.Error{Code: api.OutcomeUnknown, Message: "lost"})
		case 1:
			return nil, wireError(&api.Error{Code: api.InvalidJSON, Message: "no", Field: "events[5].payload"})
		}
		return &ringlogv1.PublishResponse{First: uint64(n + 1), AppendedAtUnixNano: 1}, nil
	})
	c := dial(t, client.Config{MaxInFlight: 1}, d)
	events := make([]event.Event, 10)
	for i := range events {
		events[i] = event.New(event.TrainingProgress, []byte(`{"n": 1}`))
	}
	events[5].Payload = []byte(`{"n": 1`)
	_, err := c.PublishBatch(t.Context(), events)
	if wantCode(t, err, api.InvalidJSON); errors.Is(err, client.ErrOutcomeUnknown) {
		t.Errorf("outcome unknown: %v", err)
	}
	if _, err := c.Publish(t.Context(), numbered(1)); err != nil {
		t.Error(err)
	}
	if got := p.sequences(); got != " a1 a1 a1" {
		t.Errorf("requests were%s", got)
	}
}

func TestAnAnswerThatDoesNotFitIsNotTrusted(t *testing.T) {
	t.Parallel()
	for name, resp := range map[string]*ringlogv1.PublishResponse{
		"no offset":         {AppendedAtUnixNano: 1},
		"a row too many":    {First: 1, Duplicates: []*ringlogv1.Duplicate{{Row: 7, Offset: 3}}},
		"rows out of order": {First: 1, Duplicates: []*ringlogv1.Duplicate{{Row: 1, Offset: 3}, {Row: 0, Offset: 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, d := openPeer(t, func(int, *ringlogv1.PublishRequest) (*ringlogv1.PublishResponse, error) { return resp, nil })
			c := dial(t, client.Config{}, d)
			res, err := c.Publish(t.Context(), numbered(1))
			if !errors.Is(err, client.ErrOutcomeUnknown) {
				t.Errorf("got %+v, %v", res, err)
			}
		})
	}
}

// TestLeadersThatNameEachOtherAreAskedWithPauses bounds a storm of redirects, and
// the error of a call that ends in a pause says that nothing happened. Time may also run
// out while a request is on its way: that outcome is unknown, and the call made again.
func TestLeadersThatNameEachOtherAreAskedWithPauses(t *testing.T) {
	t.Parallel()
	var doors [2]*door
	var peers [2]*peer
	for i := range doors {
		peers[i], doors[i] = openPeer(t, func(int, *ringlogv1.PublishRequest) (*ringlogv1.PublishResponse, error) {
			return nil, wireError(&api.Error{Code: api.NoLeader, Message: "ask the other", LeaderHTTP: doors[1-i].url})
		})
	}
	for range 10 {
		before := doors[0].seen.Load() + doors[1].seen.Load()
		c := dial(t, client.Config{Timeout: time.Second}, doors[:]...)
		_, err := c.Publish(t.Context(), numbered(1))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error is %v", err)
		}
		if n := doors[0].seen.Load() + doors[1].seen.Load() - before; n < 4 || n > 100 {
			t.Errorf("%d requests in a second, want a few: without pauses there are thousands", n)
		}
		if !errors.Is(err, client.ErrOutcomeUnknown) {
			wantCode(t, err, api.NoLeader)
			return
		}
	}
	t.Error("ten calls ended with a request on its way")
}

func TestTheLeaderThatANodeNamesIsAskedFirst(t *testing.T) {
	t.Parallel()
	_, leader := openPeer(t, func(n int, _ *ringlogv1.PublishRequest) (*ringlogv1.PublishResponse, error) {
		return &ringlogv1.PublishResponse{First: uint64(n + 1)}, nil
	})
	_, follower := openPeer(t, func(int, *ringlogv1.PublishRequest) (*ringlogv1.PublishResponse, error) {
		return nil, wireError(&api.Error{Code: api.NoLeader, Message: "not me", LeaderHTTP: leader.url[len("http://"):]})
	})
	c := dial(t, client.Config{}, follower)
	for i := range 5 {
		if _, err := c.Publish(t.Context(), numbered(i)); err != nil {
			t.Fatal(err)
		}
	}
	if f, l := follower.seen.Load(), leader.seen.Load(); f != 1 || l != 5 {
		t.Errorf("the follower was asked %d times and the leader %d times, want 1 and 5", f, l)
	}
}

func TestAnOverloadedNodeIsLeftAloneForAsLongAsItAsks(t *testing.T) {
	t.Parallel()
	var first time.Time
	var waited time.Duration
	_, d := openPeer(t, func(n int, _ *ringlogv1.PublishRequest) (*ringlogv1.PublishResponse, error) {
		if n == 0 {
			first = time.Now()
			err := wireError(&api.Error{Code: api.Overloaded, Message: "later"})
			err.Meta().Set("Retry-After", "1")
			return nil, err
		}
		waited = time.Since(first)
		return &ringlogv1.PublishResponse{First: 1}, nil
	})
	c := dial(t, client.Config{}, d)
	if _, err := c.Publish(t.Context(), numbered(1)); err != nil || waited < time.Second {
		t.Errorf("came back after %s: %v", waited, err)
	}
}

func TestNobodyThereIsToldAsThat(t *testing.T) {
	t.Parallel()
	c := dial(t, client.Config{Endpoints: []string{"127.0.0.1:1"}, Timeout: 300 * time.Millisecond})
	_, err := c.Publish(t.Context(), numbered(1))
	if !errors.Is(err, client.ErrUnreachable) || errors.Is(err, client.ErrOutcomeUnknown) {
		t.Errorf("publish: %v", err)
	}
	for _, err := range c.Tail(t.Context(), client.TailOptions{}) {
		if !errors.Is(err, client.ErrUnreachable) {
			t.Errorf("tail: %v", err)
		}
	}
	if _, err := c.Admin().Status(t.Context()); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("status: %v", err)
	}
}
