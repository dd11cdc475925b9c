package server

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// A group that nobody reads for long is still known as it is: what a member gave back is
// nobody's delivery, and what is pending are events that its filter lets through.
func TestAGroupThatNobodyReadsKeepsItsCounts(t *testing.T) {
	s := newSite(t, nil)
	join := s.group("g", `{"from":2,"filter":{"types":["WANTED"]}}`)
	var wanted []uint64
	for i := range 3 {
		wanted = append(wanted, s.publish("WANTED", i, i)...)
		s.publish("OTHER", 10*i, 10*i+9)
	}
	w := join("w")
	var given []uint64
	for len(given) < len(wanted) {
		given = append(given, w.say(`"ahead":true,"want":10,"wait_ms":20000`).offsets()...)
	}
	if !slices.Equal(given, wanted) {
		t.Fatalf("%v, want %v", given, wanted)
	}
	back := ""
	for _, offset := range wanted {
		back += fmt.Sprintf(`,{"offset":%d,"released":true}`, offset)
	}
	w.say(fmt.Sprintf(`"nacks":[%s]`, back[1:]))
	w.say(`"leave":true`)
	w.session = 0

	unused := func(crowded bool) *liveGroup {
		k := s.server.ops.groups
		k.mu.Lock()
		g := k.live["g"]
		k.mu.Unlock()
		g.mu.Lock()
		g.seen = g.seen.Add(-2 * groupIdle)
		counts := g.c.Counts()
		g.mu.Unlock()
		if counts.Members != 0 {
			t.Fatalf("%+v after the member has left", counts)
		}
		c, _ := s.node.Machine().Cursor("g")
		g.inUse(c.Group.Policy, crowded)
		return g
	}
	if g := unused(false); g.ctx.Err() != nil {
		t.Error("what was given back is forgotten after a while")
	}
	if again := w.say(`"ahead":true,"want":10,"wait_ms":20000`); again.Events[0].Delivery != 1 {
		t.Errorf("%+v: what was given back comes as another delivery", again)
	}
	w.say(fmt.Sprintf(`%s,"leave":true`, acks(wanted[0], wanted[0])))
	g := unused(true)
	select {
	case <-g.ended:
	case <-time.After(20 * time.Second):
		t.Fatal("among many a group without members goes on")
	}
	var view cursorView
	s.do("GET", "/v1/groups/g", "").decode(t, &view)
	if view.Group == nil || view.Group.Pending != 2 {
		t.Errorf("%+v: 2 events are pending", view.Group)
	}
}
