package client

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/client/internal/calls"
	"github.com/ringrift/ringlog/client/internal/prefetch"
)

// coordinator is a group with one member: events of a key are given in order, and a failed
// one takes back those after it. It settles and it answers at two times between a request
// and the answer's arrival.
type coordinator struct {
	session uint64
	keys    []string        // of the events, by offset-1
	open    map[uint64]bool // not settled
	given   map[uint64]bool
	count   map[uint64]uint64
	dead    map[uint64]bool
	deliver uint64
	revoked []uint64
}

// fail is a delivery that failed, or with counted false one that was given back.
func (c *coordinator) fail(offset uint64, counted bool) {
	c.given[offset] = false
	switch {
	case !counted:
		c.count[offset]--
	case c.count[offset] >= c.deliver:
		delete(c.open, offset)
		c.dead[offset] = true
		return
	}
	for later := offset + 1; later <= uint64(len(c.keys)); later++ {
		if c.given[later] && c.keys[later-1] == c.keys[offset-1] && c.keys[offset-1] != "" {
			c.given[later] = false
			c.count[later]--
			c.revoked = append(c.revoked, later)
		}
	}
}

func one(offset uint64) *ringlogv1.OffsetRange {
	return &ringlogv1.OffsetRange{From: offset, To: offset}
}

// join begins a session; what the member does not hold is as if it had been given back.
func (c *coordinator) join(req *ringlogv1.ExchangeRequest) *ringlogv1.ExchangeResponse {
	c.session++
	claimed := map[uint64]bool{}
	resp := &ringlogv1.ExchangeResponse{}
	prefetch.EachOffset(req.Holding, func(offset uint64) { claimed[offset] = true })
	for offset := uint64(1); offset <= uint64(len(c.keys)); offset++ {
		if c.given[offset] && !claimed[offset] {
			c.fail(offset, false)
		}
	}
	c.revoked = nil
	for offset := range claimed {
		if !c.given[offset] {
			resp.Revoked = append(resp.Revoked, one(offset))
		}
	}
	req.Session = c.session
	said := c.settle(req)
	for _, offset := range c.revoked {
		resp.Revoked = append(resp.Revoked, one(offset))
	}
	c.revoked = nil
	resp.Session, resp.Refused = c.session, said.Refused
	return resp
}

// settle returns nil if the session is over.
func (c *coordinator) settle(req *ringlogv1.ExchangeRequest) *ringlogv1.ExchangeResponse {
	if req.Session != c.session {
		return nil
	}
	resp := &ringlogv1.ExchangeResponse{Session: c.session}
	prefetch.EachOffset(req.Acks, func(offset uint64) {
		if !c.given[offset] {
			resp.Refused = append(resp.Refused, one(offset))
			return
		}
		c.given[offset] = false
		delete(c.open, offset)
	})
	for _, n := range req.Nacks {
		if !c.given[n.Offset] {
			resp.Refused = append(resp.Refused, one(n.Offset))
			continue
		}
		c.fail(n.Offset, !n.Released)
	}
	return resp
}

// answer adds events, and what was taken back.
func (c *coordinator) answer(req *ringlogv1.ExchangeRequest, resp *ringlogv1.ExchangeResponse) {
	if resp == nil || resp.Session != c.session {
		return
	}
	for i := 0; i < len(c.keys) && req.Want > 0; i++ {
		offset := uint64(i + 1)
		if !c.open[offset] || c.given[offset] {
			continue
		}
		c.given[offset] = true
		c.count[offset]++
		req.Want--
		resp.Runs = append(
			resp.Runs,
			&ringlogv1.Run{Events: []*ringlogv1.Event{{Type: "X", Key: c.keys[i], Offset: offset, Payload: []byte("{}")}}},
		)
		resp.Deliveries = append(resp.Deliveries, &ringlogv1.Delivery{Offset: offset, Count: c.count[offset]})
	}
	for _, offset := range c.revoked {
		resp.Revoked = append(resp.Revoked, one(offset))
	}
	c.revoked = nil
}

// membership is a member and its group, with the calls between them taken apart.
type membership struct {
	t    *rapid.T
	c    *coordinator
	m    *GroupMember
	out  []uint64 // handed out
	done map[uint64]bool

	settling, fetching *call
	happened           map[string]int
}

// call is an exchange on its way.
type call struct {
	req              *ringlogv1.ExchangeRequest
	settled, decided bool
	resp             *ringlogv1.ExchangeResponse // nil is fenced
}

var errCut = &calls.Error{Op: "group", Unknown: true}

func newMembership(t *rapid.T, happened map[string]int) *membership {
	c := &coordinator{
		session: 1,
		open:    map[uint64]bool{},
		given:   map[uint64]bool{},
		count:   map[uint64]uint64{},
		dead:    map[uint64]bool{},
		deliver: rapid.Uint64Range(1, 4).Draw(t, "max deliver"),
	}
	for i := range rapid.IntRange(1, 12).Draw(t, "events") {
		c.keys = append(c.keys, rapid.SampledFrom([]string{"a", "a", "b", ""}).Draw(t, "key"))
		c.open[uint64(i+1)] = true
	}
	return &membership{
		t:        t,
		c:        c,
		m:        testMember(rapid.IntRange(1, 8).Draw(t, "prefetch")),
		done:     map[uint64]bool{},
		happened: happened,
	}
}

// testMember is a member without goroutines and connections.
func testMember(prefetched int) *GroupMember {
	m := newGroupMember(
		&Client{cfg: Config{AttemptTimeout: time.Second}},
		"g",
		GroupOptions{Member: "m", Prefetch: prefetched},
	)
	m.session = session{id: 1, cancel: func() {}, timeout: time.Hour, ackWait: time.Hour, heard: time.Now()}
	return m
}

// hand hands an event out, and checks that its turn has come.
func (s *membership) hand() bool {
	sh := s.m.buffer.Next()
	if sh == nil {
		return false
	}
	for before := uint64(1); before < sh.Offset && sh.Key != ""; before++ {
		if s.c.keys[before-1] == sh.Key && !s.done[before] && !s.c.dead[before] {
			s.t.Fatalf("%d is handed out in front of %d, both of key %q", sh.Offset, before, sh.Key)
		}
	}
	if s.done[sh.Offset] {
		s.t.Fatalf("%d is redelivered after its acknowledgement", sh.Offset)
	}
	s.out = append(s.out, sh.Offset)
	return true
}

func (s *membership) settle(nack bool) bool {
	if len(s.out) == 0 {
		return false
	}
	i := rapid.IntRange(0, len(s.out)-1).Draw(s.t, "which")
	offset := s.out[i]
	s.out = slices.Delete(s.out, i, i+1)
	if nack {
		if err := SettlerOf(s.m).Nack(offset, NackOptions{}); err != nil {
			s.t.Fatal(err)
		}
		return true
	}
	if err := SettlerOf(s.m).Ack(offset); err != nil {
		s.t.Fatal(err)
	}
	s.done[offset] = true
	return true
}

// decide has a call settled first, and answered the next time.
func (s *membership) decide(c *call) bool {
	switch {
	case c == nil || c.decided:
		return false
	case !c.settled:
		c.settled, c.resp = true, s.c.settle(c.req)
	default:
		c.decided = true
		s.c.answer(c.req, c.resp)
	}
	return true
}

// end brings an answer, or loses it.
func (s *membership) end(
	c **call,
	end func(*ringlogv1.ExchangeRequest, *ringlogv1.ExchangeResponse, error),
	lost bool,
) bool {
	ended := *c
	if ended == nil || !ended.decided && !lost || lost && rapid.IntRange(1, 8).Draw(s.t, "luck") > 1 {
		return false
	}
	*c = nil
	switch {
	case lost:
		end(ended.req, nil, errCut)
	case ended.resp == nil:
		end(ended.req, nil, &calls.Error{Op: "group", Answer: true, Err: &api.Error{Code: api.Fenced}})
	default:
		end(ended.req, ended.resp, nil)
	}
	return true
}

func (s *membership) step(what string) (did bool) {
	m := s.m
	switch what {
	case "hand":
		return s.hand()
	case "ack", "nack":
		return s.settle(what == "nack")
	case "send settling":
		if s.settling == nil && !m.acks.Empty() {
			if req := m.beginAcks(); req != nil {
				s.settling, did = &call{req: req}, true
			}
		}
	case "send fetching":
		if s.fetching == nil {
			if req, _ := m.beginFetch(); req != nil {
				s.fetching, did = &call{req: req}, true
			}
		}
	case "join":
		if did = s.settling == nil && s.fetching == nil && m.session.id == 0; did {
			m.endJoin(s.c.join(m.beginJoin()))
		}
	case "decide settling":
		return s.decide(s.settling)
	case "decide fetching":
		return s.decide(s.fetching)
	case "end settling", "lose settling":
		if what == "end settling" && s.fetching != nil && s.fetching.decided && s.settling != nil && s.settling.decided {
			s.happened["overtaken"]++
		}
		return s.end(&s.settling, m.endAcks, what == "lose settling")
	case "end fetching", "lose fetching":
		return s.end(&s.fetching, func(req *ringlogv1.ExchangeRequest, resp *ringlogv1.ExchangeResponse, err error) {
			_ = m.endFetch(req, resp, err)
		}, what == "lose fetching")
	}
	return did
}

// A settling and a fetching call overtake each other in every way, and their answers are
// lost. Whatever comes when, an event is handed out only when all of its key before
// it were acknowledged or are dead; none is redelivered after its acknowledgement, and none is
// left lying.
func TestAnswersThatOvertakeEachOtherKeepTheOrderOfAKey(t *testing.T) {
	t.Parallel()
	happened := map[string]int{}
	proceed := []string{
		"hand",
		"ack",
		"send settling",
		"send fetching",
		"join",
		"decide settling",
		"decide fetching",
		"end settling",
		"end fetching",
	}
	all := slices.Concat(
		proceed,
		proceed,
		proceed,
		[]string{"nack", "nack", "nack", "hand", "hand", "hand", "lose settling", "lose fetching"},
	)
	for range 50 { // each is a hundred histories
		rapid.Check(t, func(t *rapid.T) { overtake(t, proceed, all, happened) })
	}
	t.Log(happened)
	for _, what := range append(all, "overtaken") {
		if happened[what] == 0 {
			t.Errorf("never: %s", what)
		}
	}
}

func overtake(t *rapid.T, proceed, all []string, happened map[string]int) {
	s := newMembership(t, happened)
	for range rapid.IntRange(0, 150).Draw(t, "steps") {
		what := rapid.SampledFrom(all).Draw(t, "step")
		if s.step(what) {
			happened[what]++
		}
	}
	for range 200 {
		for _, what := range proceed {
			s.step(what)
		}
	}
	if len(s.c.open) > 0 {
		t.Fatalf("left lying: %v open, %v given, held %v", s.c.open, s.c.given, s.m.buffer.Offsets())
	}
	if err := s.m.takeRefused(); err != nil {
		t.Fatal(err)
	}
	if left := s.m.buffer.String(); left != "0 held, 0 waiting, 0 bytes, 0 keys" {
		t.Fatalf("at the end %s", left)
	}
}
