package server

import (
	"testing"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// Events are explained for a group too, whose events are acknowledged one by one.
func TestWhatAGroupDidWithAnEventIsExplained(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil) // offset 1 is the cluster's own
	m := s.node.Machine()
	eventually(t, "the level of groups", func() bool { return m.FeatureLevel() >= frame.LevelDelivery })
	s.publish("A", 1, 6) // 2 to 7
	s.propose(frame.GroupCreate{Name: "g", Filter: event.Filter{Types: []string{"A"}}})
	settle := func(c frame.GroupSettle) {
		t.Helper()
		g, _ := m.Group("g")
		c.Name, c.Generation, c.Term = "g", g.Generation, m.Term()
		s.propose(c)
	}
	s.fate("g", 2, api.FatePending, "not handed to a member yet")
	settle(frame.GroupSettle{Reserved: 6, Done: []frame.Range{{From: 1, To: 1}, {From: 4, To: 4}},
		Retries: []frame.GroupRetry{{Offset: 3, Deliveries: 2, Error: "boom"}, {Offset: 5}}})
	s.fate("g", 4, api.FateCommitted, "not yet others before it")
	if v := s.fate("g", 2, api.FatePending, "perhaps handed to a member"); v.Deliveries != 1 || v.InFront != 0 {
		t.Errorf("%+v", v)
	}
	if v := s.fate("g", 3, api.FatePending, "delivery 2 failed: boom"); v.Deliveries != 2 || v.InFront != 1 {
		t.Errorf("%+v", v)
	}
	if v := s.fate("g", 5, api.FatePending, "released"); v.Deliveries != 0 || v.InFront != 2 {
		t.Errorf("%+v", v)
	}
	s.fate("g", 7, api.FatePending, "not handed to a member yet")
	s.fate("g", 1, api.FateFiltered, "filter")
	e, err := m.Log().Get(6)
	if err != nil {
		t.Fatal(err)
	}
	g, _ := m.Group("g")
	s.propose(frame.GroupDead{
		Term: m.Term(),
		Letter: frame.DeadLetter{
			Cursor:     "g",
			Generation: g.Generation,
			Offset:     6,
			Handler:    "w1",
			Error:      "boom",
			Attempts:   5,
			Event:      frame.EncodeCopy(&e),
		},
	})
	if v := s.fate("g", 6, api.FateDead, "dead letter 1"); v.Letter == nil || v.Letter.Attempts != 5 {
		t.Errorf("%+v", v)
	}
	s.propose(frame.Redrive{Letters: []uint64{1}})
	s.fate("g", 6, api.FateRedriven, "appended again at offset 9")
	settle(frame.GroupSettle{Done: []frame.Range{{From: 9, To: 9}}})
	s.fate("g", 9, api.FateCommitted, "")
	s.fate("g", 6, api.FateCommitted, "")
}
