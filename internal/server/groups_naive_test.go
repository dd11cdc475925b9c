package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringrift/ringlog/internal/frame"
)

// naive is a member written by somebody who has read /openapi.json and nothing else: after any failure it joins
// again with session 0, and it handles whatever it is given.
type naive struct {
	name   string
	handle func(offset uint64, key string) error
}

func (n naive) run(t *testing.T, s *site, over func() bool) {
	type nack struct {
		Offset uint64 `json:"offset"`
		Delay  uint64 `json:"delay_ms"`
		Error  string `json:"error"`
	}
	session, acks, nacks := uint64(0), []frame.Range{}, []nack{}
	for !over() {
		body, err := json.Marshal(map[string]any{
			"member":  n.name,
			"session": session,
			"acks":    acks,
			"nacks":   nacks,
			"want":    4,
			"wait_ms": 200,
		})
		if err != nil {
			t.Error(err)
			return
		}
		a := s.do("POST", "/v1/groups/g/exchange", string(body))
		if a.status != 200 {
			session = 0
			time.Sleep(20 * time.Millisecond)
			continue
		}
		var got workAnswer
		if err := json.Unmarshal([]byte(a.body), &got); err != nil {
			t.Error(err)
			return
		}
		session, acks, nacks = got.Session, acks[:0], nacks[:0]
		for _, e := range got.Events {
			if err := n.handle(e.Offset, e.Key); err != nil {
				nacks = append(nacks, nack{e.Offset, 30, err.Error()})
			} else {
				acks = append(acks, frame.Range{From: e.Offset, To: e.Offset})
			}
		}
	}
}

// Two naive members handle all events once and in the order of their keys, although a third of the events fail at
// first and the leader changes in between.
func TestANaiveMemberKeepsTheOrderOfKeysAndHandlesNothingTwice(t *testing.T) {
	t.Parallel()
	const events, keys = 150, 5
	sites := newSites(t, 3, nil)
	leader, others := leading(t, sites)
	others[0].group("g", `{"from":1,"filter":{"types":["A"]}}`)
	var body strings.Builder
	for i := range events {
		fmt.Fprintf(&body, `{"type":"A","payload":{"n":%d},"key":"k%d"}`+"\n", i, i%keys)
	}
	leader.ok("POST", "/v1/events", body.String(), "Content-Type", contentNDJSON)

	var mu sync.Mutex
	handled, failed, failing, newest := 0, map[uint64]bool{}, map[string]uint64{}, map[string]uint64{}
	handle := func(offset uint64, key string) error {
		mu.Lock()
		defer mu.Unlock()
		switch before := failing[key]; {
		case before != 0 && before != offset:
			t.Errorf("%d of %s was delivered, and %d has failed", offset, key, before)
		case offset <= newest[key]:
			t.Errorf("%d of %s was delivered, and %d was handled already", offset, key, newest[key])
		}
		if offset%3 == 0 && !failed[offset] {
			failed[offset], failing[key] = true, offset
			return fmt.Errorf("not at first")
		}
		failing[key], newest[key] = 0, offset
		if handled++; handled == events/2 {
			others[0].ok("POST", "/v1/cluster/step-down", "")
		}
		return nil
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return handled }
	var members sync.WaitGroup
	defer members.Wait()
	for i, s := range others {
		members.Go(func() {
			naive{name: fmt.Sprintf("m%d", i), handle: handle}.run(t, s, func() bool { return t.Failed() || s.drainedBy("g") })
		})
	}
	eventually(t, "all are handled", func() bool { return t.Failed() || count() >= events })
	members.Wait()
	if got := count(); got != events || len(failed) < events/4 {
		t.Errorf("%d of %d handled, %d failed once", got, events, len(failed))
	}
}

// drainedBy reports whether a group has committed the whole log.
func (s *site) drainedBy(group string) bool {
	c, there := s.node.Machine().Group(group)
	_, last := s.node.Machine().Log().Bounds()
	return there && c.Committed >= last
}
