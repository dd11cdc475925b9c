package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/client"
)

// groupPeer speaks the group protocol of a node and says what a test makes it say, where a
// real one cannot be brought to say it. Its group has one member.
type groupPeer struct {
	ringlogv1connect.UnimplementedGroupServiceHandler
	mu       sync.Mutex
	group    bool // is there
	session  uint64
	last     uint64 // events given so far, or where there are no more
	stop     uint64
	held     map[uint64]bool
	payload  []byte
	timeout  time.Duration
	ackWait  time.Duration
	requests []*ringlogv1.ExchangeRequest
	say      func(req *ringlogv1.ExchangeRequest, resp *ringlogv1.ExchangeResponse) error // may change the answer
}

func openGroup(t testing.TB, events int) (*groupPeer, *door) {
	p := &groupPeer{
		group:   true,
		stop:    uint64(events),
		held:    map[uint64]bool{},
		payload: []byte("{}"),
		timeout: 10 * time.Second,
		ackWait: 30 * time.Second,
	}
	mux := http.NewServeMux()
	mux.Handle(ringlogv1connect.NewGroupServiceHandler(p))
	return p, openDoor(t, mux)
}

func (p *groupPeer) CreateGroup(
	context.Context,
	*connect.Request[ringlogv1.CreateGroupRequest],
) (*connect.Response[ringlogv1.CreateGroupResponse], error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.group = true
	return connect.NewResponse(&ringlogv1.CreateGroupResponse{}), nil
}

func (p *groupPeer) Exchange(
	ctx context.Context,
	r *connect.Request[ringlogv1.ExchangeRequest],
) (*connect.Response[ringlogv1.ExchangeResponse], error) {
	resp, empty, err := p.decide(r.Msg)
	if err != nil {
		return nil, err
	}
	if empty {
		select {
		case <-time.After(time.Duration(r.Msg.WaitMs) * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return connect.NewResponse(resp), nil
}

func (p *groupPeer) decide(req *ringlogv1.ExchangeRequest) (resp *ringlogv1.ExchangeResponse, empty bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, req)
	resp = &ringlogv1.ExchangeResponse{AckWait: durationpb.New(p.ackWait), SessionTimeout: durationpb.New(p.timeout)}
	switch {
	case !p.group:
		return nil, false, wireError(&api.Error{Code: api.NotFound, Message: "there is no such group"})
	case req.Session == 0:
		p.join(req, resp)
	case req.Session != p.session:
		return nil, false, wireError(&api.Error{Code: api.Fenced, Message: "the session is over"})
	}
	resp.Session = p.session
	if p.say != nil {
		if err := p.say(req, resp); err != nil {
			return nil, false, err
		}
	}
	each(req.Acks, func(offset uint64) { p.settle(offset, resp) })
	for _, n := range req.Nacks {
		p.settle(n.Offset, resp)
	}
	run := &ringlogv1.Run{}
	for n := uint32(0); n < req.Want && p.last < p.stop; n++ {
		p.last++
		p.held[p.last] = true
		run.Events = append(run.Events, &ringlogv1.Event{Type: "X", Offset: p.last, Payload: p.payload})
	}
	resp.Runs = append(resp.Runs, run)
	return resp, req.Want > 0 && len(run.Events) == 0, nil
}

// join gives what the member does not hold out again.
func (p *groupPeer) join(req *ringlogv1.ExchangeRequest, resp *ringlogv1.ExchangeResponse) {
	p.session++
	claimed := map[uint64]bool{}
	each(req.Holding, func(offset uint64) {
		claimed[offset] = true
		if !p.held[offset] {
			resp.Revoked = append(resp.Revoked, &ringlogv1.OffsetRange{From: offset, To: offset})
		}
	})
	for offset := range p.held {
		if !claimed[offset] {
			delete(p.held, offset)
			resp.Runs = append(resp.Runs, &ringlogv1.Run{})
			p.last = min(p.last, offset-1) // this peer's events have no key and no order
		}
	}
}

func (p *groupPeer) settle(offset uint64, resp *ringlogv1.ExchangeResponse) {
	if !p.held[offset] {
		resp.Refused = append(resp.Refused, &ringlogv1.OffsetRange{From: offset, To: offset})
	}
	delete(p.held, offset)
}

func (p *groupPeer) saw(what func(*ringlogv1.ExchangeRequest) bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.requests, what)
}

func each(list []*ringlogv1.OffsetRange, do func(uint64)) {
	for _, r := range list {
		for offset := r.From; offset <= r.To; offset++ {
			do(offset)
		}
	}
}

func joinGroup(t testing.TB, c *client.Client, o client.GroupOptions) *client.GroupMember {
	t.Helper()
	m, err := c.JoinGroup(t.Context(), "trainers", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = m.Close(ctx)
	})
	return m
}

// next takes the next event.
func next(t testing.TB, m *client.GroupMember) client.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	d, err := m.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestAGroupIsMadeUnlessThatIsNotWanted(t *testing.T) {
	t.Parallel()
	p, d := openGroup(t, 3)
	p.group = false
	c := dial(t, client.Config{}, d)
	_, err := c.JoinGroup(t.Context(), "trainers", client.GroupOptions{NoCreate: true})
	wantCode(t, err, api.NotFound)
	m := joinGroup(t, c, client.GroupOptions{})
	if d := next(t, m); d.Offset != 1 || d.Count != 1 {
		t.Errorf("%d, delivery %d", d.Offset, d.Count)
	}
	if _, err := c.JoinGroup(t.Context(), "trainers", client.GroupOptions{Prefetch: 10_001}); err == nil {
		t.Error("a prefetch above the limit is taken")
	}
}

func TestOnlyWhatIsHeldCanBeSettled(t *testing.T) {
	t.Parallel()
	_, d := openGroup(t, 3)
	m := joinGroup(t, dial(t, client.Config{}, d), client.GroupOptions{})
	first := next(t, m)
	for name, err := range map[string]error{
		"not handed out": client.SettlerOf(m).Ack(first.Offset + 1),
		"never there":    client.SettlerOf(m).Nack(99, client.NackOptions{}),
		"progress":       client.SettlerOf(m).Progress(99),
	} {
		if !errors.Is(err, client.ErrNotHeld) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := errors.Join(first.Progress(), first.Ack(), m.Flush(t.Context())); err != nil {
		t.Error(err)
	}
	if err := first.Ack(); !errors.Is(err, client.ErrNotHeld) {
		t.Errorf("twice: %v", err)
	}
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
	_, err := m.Next(t.Context())
	if late := client.SettlerOf(m).Ack(2); !errors.Is(err, client.ErrClosed) || !errors.Is(late, client.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

// Close sends what was settled, and then leaves.
func TestCloseFlushesAndLeaves(t *testing.T) {
	t.Parallel()
	p, d := openGroup(t, 100)
	m := joinGroup(t, dial(t, client.Config{}, d), client.GroupOptions{})
	for range 50 {
		if err := next(t, m).Ack(); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	left := p.saw(func(req *ringlogv1.ExchangeRequest) bool { return req.Leave })
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.held) != 50 || !left || p.held[50] {
		t.Errorf("%d are still held, the member has left: %v", len(p.held), left)
	}
}

func TestWhatCameTooLateIsToldOnce(t *testing.T) {
	t.Parallel()
	p, d := openGroup(t, 3)
	m := joinGroup(t, dial(t, client.Config{}, d), client.GroupOptions{})
	first := next(t, m)
	p.mu.Lock()
	delete(p.held, first.Offset) // its time is over
	p.mu.Unlock()
	if err := first.Ack(); err != nil {
		t.Fatal(err)
	}
	var late *client.RefusedError
	if err := m.Flush(t.Context()); !errors.As(err, &late) || !slices.Equal(late.Offsets, []uint64{first.Offset}) {
		t.Errorf("%v", err)
	}
	if err := m.Flush(t.Context()); err != nil {
		t.Errorf("reported again: %v", err)
	}
}

// What the group takes back is not handed out any more, and what was cannot be settled.
func TestRevokedEventsVanish(t *testing.T) {
	t.Parallel()
	p, d := openGroup(t, 3)
	m := joinGroup(t, dial(t, client.Config{}, d), client.GroupOptions{})
	first := next(t, m)
	until(t, "all to be fetched", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.last == 3 })
	p.mu.Lock()
	p.say = func(req *ringlogv1.ExchangeRequest, resp *ringlogv1.ExchangeResponse) error {
		if len(req.Progress) > 0 {
			resp.Revoked = []*ringlogv1.OffsetRange{{From: first.Offset, To: 2}}
			p.say = nil
		}
		return nil
	}
	p.mu.Unlock()
	if err := first.Progress(); err != nil {
		t.Fatal(err)
	}
	until(t, "the first to be taken back", func() bool { return errors.Is(first.Progress(), client.ErrNotHeld) })
	if d := next(t, m); d.Offset != 3 {
		t.Errorf("%d is handed out, 2 was taken back", d.Offset)
	}
}

// A member whose session is over begins another with what it holds, and what it settled
// meanwhile is not lost.
func TestAFencedMemberJoinsAgainWithWhatItHolds(t *testing.T) {
	t.Parallel()
	p, d := openGroup(t, 10)
	m := joinGroup(t, dial(t, client.Config{}, d), client.GroupOptions{})
	for range 3 {
		next(t, m)
	}
	p.mu.Lock()
	p.session += 7
	p.mu.Unlock()
	if err := client.SettlerOf(m).Ack(2); err != nil {
		t.Fatal(err)
	}
	if err := m.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	rejoined := p.saw(func(r *ringlogv1.ExchangeRequest) bool {
		return r.Session == 0 && len(r.Holding) == 1 && r.Holding[0].From == 1 && r.Holding[0].To == 10
	})
	if !rejoined || p.held[2] || !p.held[1] || !p.held[3] {
		t.Errorf("%v", p.requests)
	}
	if d := next(t, m); d.Offset != 4 {
		t.Errorf("continues at %d", d.Offset)
	}
}

// Through a network that loses requests and answers every event is handled and settled,
// and none is called refused that was settled before its answer was lost.
func TestAMemberGoesOnOverLostAnswers(t *testing.T) {
	t.Parallel()
	const total = 3000
	p, d := openGroup(t, total)
	var n int
	d.faults(func(*http.Request) fault {
		n++
		return fault{cutAfter: n%7 == 3, cutBefore: n%7 == 5}
	})
	m := joinGroup(t, dial(t, client.Config{}, d), client.GroupOptions{Prefetch: 64})
	seen := map[uint64]bool{}
	for len(seen) < total {
		d := next(t, m)
		seen[d.Offset] = true
		if err := d.Ack(); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	until(t, "all to be settled", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return len(p.held) == 0 })
}

// A group that is removed ends its members, with its answer.
func TestARemovedGroupEndsItsMembers(t *testing.T) {
	t.Parallel()
	p, d := openGroup(t, 1)
	m := joinGroup(t, dial(t, client.Config{}, d), client.GroupOptions{})
	first := next(t, m)
	p.mu.Lock()
	p.group = false
	p.mu.Unlock()
	_, err := m.Next(t.Context())
	wantCode(t, err, api.NotFound)
	wantCode(t, first.Ack(), api.NotFound)
}

// What waits in memory is reported as in progress, so it is not given to others before a
// handler had it; what a handler has is not, unless that is asked for.
func TestWhatWaitsIsKept(t *testing.T) {
	t.Parallel()
	for _, auto := range []bool{false, true} {
		t.Run(fmt.Sprint("auto ", auto), func(t *testing.T) {
			p, d := openGroup(t, 3)
			p.ackWait = 200 * time.Millisecond
			m := joinGroup(t, dial(t, client.Config{}, d), client.GroupOptions{AutoProgress: auto})
			next(t, m)
			// A request that is under way may still have the first event among those that wait.
			p.mu.Lock()
			p.requests = nil
			p.mu.Unlock()
			var last *ringlogv1.ExchangeRequest
			until(t, "what waits to be reported again and again", func() bool {
				_ = client.SettlerOf(m).Progress(99) // somebody is there
				p.mu.Lock()
				defer p.mu.Unlock()
				rounds := 0
				for _, r := range p.requests {
					if len(r.Progress) > 0 && r.Progress[len(r.Progress)-1].To == 3 {
						rounds++
						last = r
					}
				}
				return rounds >= 3
			})
			first := last.Progress[0].From == 1
			if first != auto {
				t.Errorf("what was handed out is reported as in progress: %v", first)
			}
		})
	}
}

// However many events a member may hold, their bytes are bounded: it asks for fewer where
// they are large.
func TestLargeEventsAreFetchedInSmallParts(t *testing.T) {
	t.Parallel()
	p, d := openGroup(t, 10_000)
	p.payload = slices.Concat([]byte(`{"x": "`), make([]byte, 256<<10), []byte(`"}`))
	m := joinGroup(t, dial(t, client.Config{AttemptTimeout: 5 * time.Second}, d), client.GroupOptions{Prefetch: 8})
	for range 200 {
		if err := next(t, m).Ack(); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if most := uint64(200 + 8<<20/(256<<10) + 1); p.last > most {
		t.Errorf("%d events were fetched for 200 that were handled, at most %d have room", p.last, most)
	}
}
