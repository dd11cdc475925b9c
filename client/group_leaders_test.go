package client

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/client/internal/calls"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/group"
)

// colleague is a member, with the calls between it and the leader taken apart.
type colleague struct {
	m                  *GroupMember
	settling, fetching *errand  // a joining call is a settling one
	out                []uint64 // handed out
}

// company is a group with its members and its leaders.
type company struct {
	t       *rapid.T
	o       *office
	all     []*colleague
	late    []*errand         // nobody waits for them
	with    map[uint64]string // who handles it
	handled map[uint64]string
	failed  map[uint64]uint64 // nacks so far
	did     map[string]int
}

func newCompany(t *rapid.T, did map[string]int) *company {
	o := &office{
		now:     time.Unix(1_000_000, 0),
		done:    map[uint64]bool{},
		dead:    map[uint64]bool{},
		retries: map[uint64]frame.GroupRetry{},
		round:   1,
		policy: group.Policy{
			AckWait:    1000 * time.Hour,
			Session:    10 * time.Second,
			MaxPending: 1000,
			MaxDeliver: rapid.SampledFrom([]uint64{0, 2, 5}).Draw(t, "max deliver"),
		},
	}
	for range rapid.IntRange(1, 12).Draw(t, "events") {
		o.keys = append(o.keys, rapid.SampledFrom([]string{"a", "a", "b", ""}).Draw(t, "key"))
	}
	o.elect()
	w := &company{t: t, o: o, with: map[uint64]string{}, handled: map[uint64]string{},
		failed: map[uint64]uint64{}, did: did}
	for i := range rapid.IntRange(1, 3).Draw(t, "members") {
		m := testMember(rapid.IntRange(1, 8).Draw(t, "prefetch"))
		m.member, m.session.id = fmt.Sprint("m", i), 0
		w.all = append(w.all, &colleague{m: m})
	}
	return w
}

// hand hands an event out: nobody handles it now, or has handled it, all of its key in
// front of it were handled or are dead, and its number of deliveries counts every nack.
func (w *company) hand(c *colleague) bool {
	sh := c.m.buffer.Next()
	if sh == nil {
		return false
	}
	if by := w.with[sh.Offset] + w.handled[sh.Offset]; by != "" {
		w.t.Fatalf("%d is handed to %s, and was to %s", sh.Offset, c.m.member, by)
	}
	if failed := w.failed[sh.Offset]; sh.Count <= failed {
		w.t.Fatalf("%d is handed to %s as delivery %d, after %d nacks", sh.Offset, c.m.member, sh.Count, failed)
	}
	for before := uint64(1); before < sh.Offset && sh.Key != ""; before++ {
		if w.o.keys[before-1] == sh.Key && w.handled[before] == "" && !w.o.dead[before] {
			w.t.Fatalf("%d is handed to %s in front of %d, both of key %q", sh.Offset, c.m.member, before, sh.Key)
		}
	}
	w.with[sh.Offset] = c.m.member
	c.out = append(c.out, sh.Offset)
	return true
}

func (w *company) say(c *colleague, what string) bool {
	if len(c.out) == 0 {
		return false
	}
	i := rapid.IntRange(0, len(c.out)-1).Draw(w.t, "which")
	offset := c.out[i]
	c.out = slices.Delete(c.out, i, i+1)
	delete(w.with, offset)
	var err error
	switch what {
	case "ack":
		w.handled[offset] = c.m.member
		err = SettlerOf(c.m).Ack(offset)
	case "release":
		err = SettlerOf(c.m).Nack(offset, NackOptions{Released: true})
	default:
		w.failed[offset]++
		err = SettlerOf(c.m).Nack(offset, NackOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return true
}

func (w *company) step(c *colleague, what string) (did bool) {
	m := c.m
	switch what {
	case "hand":
		return w.hand(c)
	case "ack", "nack", "release":
		return w.say(c, what)
	case "give back":
		if c.settling != nil || c.fetching != nil {
			return false
		}
		return m.acks.ReleaseWaiting() > 0
	case "settle":
		switch {
		case c.settling != nil:
		case m.session.id == 0 && c.fetching == nil:
			c.settling, did = &errand{
				req: m.beginJoin(),
				end: func(_ *ringlogv1.ExchangeRequest, resp *ringlogv1.ExchangeResponse, err error) {
					if err == nil {
						m.endJoin(resp)
					}
				},
			}, true
		case !m.acks.Empty():
			if req := m.beginAcks(); req != nil {
				c.settling, did = &errand{req: req, end: m.endAcks}, true
			}
		}
	case "fetch":
		if c.fetching == nil {
			if req, _ := m.beginFetch(); req != nil {
				c.fetching, did = &errand{
					req: req,
					end: func(req *ringlogv1.ExchangeRequest, resp *ringlogv1.ExchangeResponse, err error) {
						_ = m.endFetch(req, resp, err)
					},
				}, true
			}
		}
	case "settling goes", "fetching goes":
		return w.proceed(w.of(c, what))
	case "settling is lost", "fetching is lost":
		return w.lose(w.of(c, what))
	case "commit":
		return w.o.commitStep(5)
	case "wait":
		return w.wait()
	case "late":
		if did = len(w.late) > 0; did {
			e := w.late[0]
			w.late = w.late[1:]
			if w.o.enter(e); !e.fenced {
				e.round = 0
				w.o.answer(e)
			}
		}
	case "leader":
		if did = rapid.IntRange(0, 3).Draw(w.t, "luck") == 0; did {
			w.o.elect()
		}
	}
	return did
}

func (w *company) of(c *colleague, what string) **errand {
	if what[0] == 's' {
		return &c.settling
	}
	return &c.fetching
}

// proceed brings a call to the leader, has it answered, or brings the answer.
func (w *company) proceed(at **errand) bool {
	e := *at
	switch {
	case e == nil:
		return false
	case e.term == 0:
		w.o.enter(e)
	case e.resp == nil && !e.fenced && e.term != w.o.term: // that leader is gone
		*at = nil
		e.end(e.req, nil, errCut)
	case e.resp == nil && !e.fenced:
		return w.o.answer(e)
	case e.fenced:
		*at = nil
		e.end(e.req, nil, &calls.Error{Op: "group", Answer: true, Err: &api.Error{Code: api.Fenced}})
	default:
		*at = nil
		e.end(e.req, e.resp, nil)
	}
	return true
}

func (w *company) lose(at **errand) bool {
	e := *at
	if e == nil || rapid.IntRange(1, 8).Draw(w.t, "luck") > 1 {
		return false
	}
	*at = nil
	err := errCut
	if e.term == 0 && e.req.Session != 0 {
		switch rapid.SampledFrom([]string{"lost", "late", "refused"}).Draw(w.t, "fate") {
		case "late":
			w.late = append(w.late, e)
		case "refused":
			err = &calls.Error{Op: "group"}
		}
	}
	e.end(e.req, nil, err)
	return true
}

// wait moves the clock past the time for which the leader waits for claims, once all
// members have reported what they hold.
func (w *company) wait() bool {
	for _, c := range w.all {
		if _, err := w.o.c.Enter(w.o.now, c.m.member, c.m.session.id); c.m.session.id == 0 || err != nil {
			return false
		}
	}
	w.o.now = w.o.now.Add(11 * time.Second)
	for _, c := range w.all {
		_, _ = w.o.c.Enter(w.o.now, c.m.member, c.m.session.id)
	}
	w.o.c.Tick(w.o.now)
	return true
}

// Leaders go while their members' calls are under way, and answers are lost. No event is
// handled twice or before an earlier one of its key, no nack goes uncounted, and none is left.
func TestNothingIsHandledTwiceAroundAChangeOfLeader(t *testing.T) {
	t.Parallel()
	did := map[string]int{}
	proceed := []string{"hand", "ack", "settle", "fetch", "settling goes", "fetching goes", "commit"}
	goes := []string{"settling goes", "fetching goes", "settling goes", "fetching goes", "commit"}
	all := slices.Concat(
		proceed,
		proceed,
		goes,
		goes,
		[]string{
			"hand",
			"hand",
			"nack",
			"nack",
			"release",
			"give back",
			"wait",
			"late",
			"leader",
			"settling is lost",
			"fetching is lost",
		},
	)
	for range 200 { // each is a hundred histories
		rapid.Check(t, func(t *rapid.T) { newCompany(t, did).work(proceed, all) })
	}
	t.Log(did)
	for _, what := range all {
		if did[what] == 0 {
			t.Errorf("never: %s", what)
		}
	}
}

func (w *company) work(proceed, all []string) {
	for range 3 {
		for _, c := range w.all {
			for _, what := range []string{
				"settle",
				"settling goes",
				"settling goes",
				"settling goes",
				"fetch",
				"commit",
				"commit",
				"commit",
			} {
				w.step(c, what)
			}
		}
	}
	for range rapid.SampledFrom([]int{100, 200, 300}).Draw(w.t, "steps") {
		i := rapid.IntRange(0, 2).Draw(w.t, "member")
		if what := rapid.SampledFrom(all).Draw(w.t, "step"); w.step(w.all[i%len(w.all)], what) {
			w.did[what]++
		}
	}
	for i := 0; i < 400 && w.o.floor < uint64(len(w.o.keys)); i++ {
		for _, c := range w.all {
			for _, what := range proceed {
				w.step(c, what)
			}
		}
		if i%20 == 19 {
			w.wait()
		}
	}
	if n := uint64(len(w.o.keys)); w.o.floor != n {
		w.t.Fatalf("left lying: the floor is %d of %d, done %v, retries %v", w.o.floor, n, w.o.done, w.o.retries)
	}
	for offset := uint64(1); offset <= uint64(len(w.o.keys)); offset++ {
		if w.handled[offset] == "" && !w.o.dead[offset] {
			w.t.Fatalf("%d was passed over", offset)
		}
	}
}
