package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/frame"
)

// worker is a member of a group that speaks HTTP.
type worker struct {
	s       *site
	group   string
	name    string
	session uint64
}

// workAnswer is what an exchange answers.
type workAnswer struct {
	Session uint64
	Events  []struct {
		Offset, Delivery uint64
		Type, Key        string
	}
	Revoked, Refused []frame.Range
	Gaps             []struct{ From, To uint64 }
	AckWaitMs        int64  `json:"ack_wait_ms"`
	SessionMs        int64  `json:"session_timeout_ms"`
	Committed        uint64 `json:"committed"`
	Last             uint64 `json:"last_offset"`
}

func (a workAnswer) offsets() (list []uint64) {
	for _, e := range a.Events {
		list = append(list, e.Offset)
	}
	return list
}

// try makes an exchange; rest is the body besides member and session.
func (w *worker) try(rest string) answer {
	w.s.t.Helper()
	if rest != "" {
		rest = "," + rest
	}
	return w.s.do(
		"POST", "/v1/groups/"+w.group+"/exchange",
		fmt.Sprintf(`{"member":%q,"session":%d%s}`, w.name, w.session, rest),
	)
}

// say makes an exchange, which must succeed, and keeps its session.
func (w *worker) say(rest string) (out workAnswer) {
	w.s.t.Helper()
	a := w.try(rest)
	if a.status != 200 {
		w.s.t.Fatalf("%s says %s: %d %s", w.name, rest, a.status, a.body)
	}
	a.decode(w.s.t, &out)
	w.session = out.Session
	return out
}

func acks(from, to uint64) string { return fmt.Sprintf(`"acks":[{"from":%d,"to":%d}]`, from, to) }

// group makes a group and returns a maker of its members.
func (s *site) group(name, body string) func(member string) *worker {
	s.t.Helper()
	s.knowsGroups()
	s.ok("PUT", "/v1/groups/"+name, body)
	return func(member string) *worker { return &worker{s: s, group: name, name: member} }
}

// knowsGroups waits for the feature level of groups, which all members have to report first.
func (s *site) knowsGroups() {
	s.t.Helper()
	eventually(s.t, "the level of groups", func() bool { return s.node.Machine().FeatureLevel() >= frame.LevelDelivery })
}

func (s *site) set(key, value string) {
	s.t.Helper()
	s.knowsGroups()
	s.ok("PUT", "/v1/settings/"+key, fmt.Sprintf(`{"value":%q}`, value))
}

func TestMembersShareEventsAndAcksAreDurable(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	offsets := s.publish("A", 1, 30) // keys k0, k1, k2
	join := s.group("g", `{"from":1,"filter":{"types":["A"]}}`)
	one, two := join("one"), join("two")
	got1, got2 := one.say(`"ahead":true,"want":10`), two.say(`"want":100`)
	if len(got1.Events) != 10 || got1.AckWaitMs != 30_000 || got1.SessionMs != 10_000 || got1.Last != offsets[29] {
		t.Fatalf("%+v", got1)
	}
	// Each key is with one member, and all events are first deliveries in order.
	owner := map[string]string{}
	for _, got := range []struct {
		name string
		workAnswer
	}{{"one", got1}, {"two", got2}} {
		if !slices.IsSorted(got.offsets()) {
			t.Errorf("%v", got.offsets())
		}
		for _, e := range got.Events {
			if owner[e.Key] != "" && owner[e.Key] != got.name {
				t.Errorf("key %s is with both", e.Key)
			}
			if owner[e.Key] = got.name; e.Delivery != 1 {
				t.Errorf("%+v", e)
			}
		}
	}
	all := append(got1.offsets(), got2.offsets()...)
	// Acknowledging makes room for the rest; none is delivered twice.
	for len(all) < len(offsets) {
		rest := one.say(`"ahead":true,"want":100,` + acks(all[0], 1000))
		all = append(all, rest.offsets()...)
		rest = two.say(`"ahead":true,"want":100,` + acks(all[0], 1000))
		all = append(all, rest.offsets()...)
	}
	one.say(acks(1, 1000))
	two.say(acks(1, 1000))
	slices.Sort(all)
	if !slices.Equal(all, offsets) {
		t.Errorf("delivered %v, want %v", all, offsets)
	}
	if got := s.committed("g"); got < offsets[29] {
		t.Errorf("committed %d, want %d", got, offsets[29])
	}
}

func TestANackIsRedeliveredBeforeTheRestOfItsKey(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.ok("POST", "/v1/events", `[{"type":"A","payload":{"n":1},"key":"k"},{"type":"A","payload":{"n":2},"key":"k"},
		{"type":"A","payload":{"n":3}},{"type":"A","payload":{"n":4},"key":"k"}]`)
	w := s.group("g", `{"from":1,"filter":{"types":["A"]}}`)("w")
	got := w.say(`"ahead":true,"want":10`).offsets()
	if len(got) != 4 {
		t.Fatal(got)
	}
	// The failed event takes the later one of its key back with it; an event of no key stays. An offset that is
	// not held is refused.
	after := w.say(fmt.Sprintf(`"nacks":[{"offset":%d,"error":"no","delay_ms":300},{"offset":9999}],`, got[1]) +
		acks(got[0], got[0]))
	if !slices.Equal(after.Revoked, []frame.Range{{From: got[3], To: got[3]}}) ||
		!slices.Equal(after.Refused, []frame.Range{{From: 9999, To: 9999}}) || after.Committed != got[0] {
		t.Fatalf("%+v", after)
	}
	// Neither is delivered before the delay has passed.
	if none := w.say(`"ahead":true,"want":10`); len(none.Events) != 0 {
		t.Errorf("before its time came %+v", none)
	}
	again := w.say(`"ahead":true,"want":10,"wait_ms":20000`)
	if !slices.Equal(again.offsets(), []uint64{got[1], got[3]}) || again.Events[0].Delivery != 2 ||
		again.Events[1].Delivery != 1 {
		t.Errorf("%+v", again)
	}
	if view := s.ok(
		"GET", "/v1/groups/g", "",
	).body; !strings.Contains(view, `"pending":3,"redelivering":0,"members":1,"coordinator":"n1"`) {
		t.Errorf("%s", view)
	}
	if last := w.say(acks(got[1], got[3])); last.Committed != got[3] || len(last.Refused) != 0 {
		t.Errorf("%+v", last)
	}
	refused := w.say(fmt.Sprintf(`"nacks":[{"offset":%d}],`, got[0]) + acks(got[2], got[2]))
	if !slices.Equal(refused.Refused, []frame.Range{{From: got[0], To: got[0]}, {From: got[2], To: got[2]}}) {
		t.Errorf("of what is committed: %+v", refused)
	}
}

func TestTheLastDeliveryThatFailsIsADeadLetter(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.publish("A", 1, 3)
	w := s.group("g", `{"from":1,"filter":{"types":["A"]},"group":{"max_deliver":2}}`)("w")
	got := w.say(`"ahead":true,"want":10`).offsets()
	// One event fails and is retried, the other is a dead letter at once.
	w.say(fmt.Sprintf(
		`"nacks":[{"offset":%d,"error":"first"},{"offset":%d,"dead":true,"error":"broken","handler":"h"}]`,
		got[0], got[1],
	))
	again := w.say(`"ahead":true,"want":10,"wait_ms":20000`)
	if len(again.Events) != 1 || again.Events[0].Delivery != 2 {
		t.Fatalf("%+v", again)
	}
	// The second failure is the last that max_deliver allows.
	last := w.say(fmt.Sprintf(`"nacks":[{"offset":%d,"error":"second"}],`, got[0]) + acks(got[2], got[2]))
	if last.Committed != got[2] {
		eventually(t, "all is settled", func() bool { return s.committed("g") == got[2] })
	}
	letters := s.ok("GET", "/v1/dlq?limit=10", "").body
	for _, want := range []string{
		`"error":"second"`, `"attempts":2`, `"handler":"w"`, `"error":"broken"`, `"handler":"h"`,
	} {
		if !strings.Contains(letters, want) {
			t.Errorf("no %s in %s", want, letters)
		}
	}
}

func TestWhatIsNotAcknowledgedInTimeIsRedelivered(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.publish("A", 1, 2)
	s.publish("B", 3, 3)
	join := s.group("g", `{"from":1,"filter":{"types":["A","B"]},"group":{"ack_wait":"1s","max_deliver":2}}`)
	slow, busy := join("slow"), join("busy")
	got := slow.say(`"ahead":true,"want":2`).offsets()
	own := busy.say(`"ahead":true,"want":10`).offsets()
	if len(got) != 2 || len(own) != 1 {
		t.Fatal(got, own)
	}
	var again workAnswer
	for len(again.Events) < 2 { // reported progress keeps the event that is being worked on
		next := busy.say(fmt.Sprintf(`"ahead":true,"want":10,"wait_ms":300,"progress":[{"from":%d,"to":%d}]`, own[0], own[0]))
		again.Events = append(again.Events, next.Events...)
	}
	if !slices.Equal(again.offsets(), got) || again.Events[0].Delivery != 2 {
		t.Errorf("%+v, want %v", again, got)
	}
	if late := slow.say(acks(got[0], got[1])); len(late.Revoked) != 1 || !slices.Equal(late.Refused, late.Revoked) {
		t.Errorf("%+v", late)
	}
	busy.say(acks(own[0], own[0]))
	eventually(t, "both are dead letters", func() bool { return s.committed("g") >= own[0] })
	if letters := s.ok(
		"GET", "/v1/dlq?limit=10", "",
	).body; strings.Count(letters, "not acknowledged within 1s by busy") != 2 {
		t.Errorf("%s", letters)
	}
}

func TestWhatASilentMemberHeldGoesToOthers(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.set("group.session_timeout", "1s")
	s.publish("A", 1, 4)
	join := s.group("g", `{"from":1,"filter":{"types":["A"]}}`)
	silent, other := join("silent"), join("other")
	got := silent.say(`"ahead":true,"want":10`).offsets()
	again := other.say(`"ahead":true,"want":10,"wait_ms":20000`)
	if !slices.Equal(again.offsets(), got) || again.Events[0].Delivery != 2 {
		t.Errorf("%+v, want %v", again, got)
	}
	// The session has ended, and joining again does not bring back what others hold.
	a := silent.try(acks(got[0], got[0]))
	e := a.err(t)
	if a.status != 409 || e.Code != api.Fenced || e.Field != "session" || !strings.Contains(e.Remedy, "session 0") {
		t.Errorf("%d %s", a.status, a.body)
	}
	silent.session = 0
	back := silent.say(fmt.Sprintf(`"holding":[{"from":%d,"to":%d}]`, got[0], got[3]))
	if !slices.Equal(back.Revoked, []frame.Range{{From: got[0], To: got[3]}}) {
		t.Errorf("%+v", back)
	}
	var list struct{ Members []api.GroupMember }
	s.ok("GET", "/v1/groups/g/members", "").decode(t, &list)
	if len(list.Members) != 2 || list.Members[0].Member != "other" || list.Members[0].Pending != 4 ||
		list.Members[0].Delivered != 4 {
		t.Errorf("%+v", list)
	}
	if left := other.say(`"leave":true`); len(left.Refused) != 0 {
		t.Errorf("%+v", left)
	}
	if got := silent.say(`"ahead":true,"want":10,"wait_ms":20000`); len(got.Events) != 4 || got.Events[0].Delivery != 2 {
		t.Errorf("what a member that left held: %+v", got)
	}
}

func TestASeekEndsTheSessionsOfAGroup(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.publish("A", 1, 3)
	w := s.group("g", `{"from":1,"filter":{"types":["A"]}}`)("w")
	got := w.say(`"ahead":true,"want":10`).offsets()
	w.say(acks(got[0], got[2]))
	s.ok("POST", "/v1/cursors/g/seek", `{"to":"start"}`)
	if a := w.try(`"ahead":true,"want":10`); a.status != 409 || a.err(t).Code != api.Fenced {
		t.Errorf("%d %s", a.status, a.body)
	}
	w.session = 0
	if again := w.say(`"ahead":true,"want":10`); !slices.Equal(again.offsets(), got) || again.Events[0].Delivery != 1 {
		t.Errorf("%+v", again)
	}
	// Removing the group ends an exchange that waits.
	done := make(chan answer, 1)
	go func() { done <- w.try(`"ahead":true,"want":10,"wait_ms":20000`) }()
	eventually(t, "it waits", func() bool {
		return strings.Contains(s.ok("GET", "/metrics", "").body, `ringlog_group_pending{group="g"} 3`)
	})
	s.ok("DELETE", "/v1/groups/g", "")
	if a := <-done; a.status != 404 {
		t.Errorf("of a group that is gone: %d %s", a.status, a.body)
	}
}

func TestAGroupThatWasPassedTellsItsGapToOneMember(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	join := s.group("g", `{"from":1,"filter":{"types":["A"]}}`)
	s.publish("A", 1, 3)
	w := join("w")
	w.say(`"ahead":true,"want":1`)
	s.publish("A", 4, 4) // offset 5
	s.ok("POST", "/v1/compact", `{"before":5,"force":true}`)
	var gaps []struct{ From, To uint64 }
	var got []uint64
	for len(got) == 0 || len(gaps) == 0 {
		next := w.say(`"ahead":true,"want":10,"wait_ms":1000`)
		got, gaps = append(got, next.offsets()...), append(gaps, next.Gaps...)
	}
	if len(gaps) != 1 || gaps[0].To != 4 || got[len(got)-1] != 5 {
		t.Errorf("%v, then %v", gaps, got)
	}
	if a := w.say(acks(5, 5)); a.Committed != 5 {
		t.Errorf("%+v", a)
	}
}

func TestAQuietGroupHoldsNothingBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	w := s.group("g", `{"from":1,"filter":{"types":["NEVER"]}}`)("w")
	offsets := s.publish("A", 1, 20)
	if got := w.say(`"ahead":true,"want":10`); len(got.Events) != 0 {
		t.Errorf("%+v", got)
	}
	eventually(t, "it has passed what does not match", func() bool { return s.committed("g") >= offsets[19] })
}

func TestBadExchanges(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	w := s.group("g", "")("w")
	s.ok("PUT", "/v1/cursors/plain", "")
	w.say("")
	for _, in := range []struct {
		rest  string
		code  api.Code
		field string
	}{
		{`"acks":[{"from":2,"to":1}]`, api.InvalidArgument, "acks[0]"},
		{`"acks":[{"from":0,"to":1}]`, api.InvalidArgument, "acks[0]"},
		{`"progress":[{"from":1,"to":1},{"from":5}]`, api.InvalidArgument, "progress[1]"},
		{`"holding":[{"from":1,"to":1}]`, api.InvalidArgument, "holding"},
		{`"nacks":[{"offset":0}]`, api.InvalidArgument, "nacks[0].offset"},
		{`"nacks":[{"offset":1,"delay_ms":18446744073709551615}]`, api.InvalidArgument, "nacks[0].delay_ms"},
		{`"nacks":[{"offset":1,"dead":true,"released":true}]`, api.InvalidArgument, "nacks[0].dead"},
		{`"want":10001`, api.InvalidArgument, "want"},
		{`"want":-1`, api.InvalidArgument, "want"},
		{`"wait_ms":30001`, api.InvalidArgument, "wait_ms"},
		{`"leave":true,"want":1`, api.InvalidArgument, "want"},
		{`"nonsense":1`, api.InvalidJSON, "nonsense"},
		{`"acks":[` + strings.Repeat(`{"from":1,"to":1},`, 10_000) + `{"from":1,"to":1}]`, api.TooLarge, "acks"},
	} {
		if e := w.try(in.rest).err(t); e.Code != in.code || e.Field != in.field || e.Remedy == "" {
			t.Errorf("%.60s: %+v", in.rest, e)
		}
	}
	if got := w.say(acks(1, 1<<63)); !slices.Equal(got.Refused, []frame.Range{{From: 1, To: 1 << 63}}) {
		t.Errorf("a huge range: %+v", got)
	}
	for path, want := range map[string]answer{
		"/v1/groups/none/exchange":  {status: 404},
		"/v1/groups/plain/exchange": {status: 400},
	} {
		if a := s.do("POST", path, `{"member":"w"}`); a.status != want.status || a.err(t).Field != "group" {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	for _, in := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/v1/groups/g/exchange", `{}`, 400},
		{"POST", "/v1/groups/g/exchange", `{"member":"a\nb"}`, 400},
		{"POST", "/v1/groups/g/exchange", `{"member":"w","session":1}`, 409},
		{"GET", "/v1/groups/plain", "", 400},
		{"GET", "/v1/groups/none/members", "", 404},
		{"DELETE", "/v1/groups/none", "", 404},
		{"DELETE", "/v1/groups/plain", "", 400},
		{"PUT", "/v1/groups/x", `{"group":{"ack_wait":"soon"}}`, 400},
		{"PUT", "/v1/groups/plain", "", 409},
		{"PUT", "/v1/cursors/g", "", 409},
		{"POST", "/v1/cursors/g/open", "", 400},
	} {
		if a := s.do(in.method, in.path, in.body); a.status != in.status || a.err(t).Remedy == "" {
			t.Errorf("%s %s %s: %d %s", in.method, in.path, in.body, a.status, a.body)
		}
	}
	var list struct{ Groups []json.RawMessage }
	if s.ok("GET", "/v1/groups", "").decode(t, &list); len(list.Groups) != 1 {
		t.Errorf("%s", list.Groups)
	}
}

func TestARedrivenLetterComesToItsGroup(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.publish("A", 1, 2)
	join := s.group("g", `{"from":1,"filter":{"types":["A"]}}`)
	w := join("w")
	got := w.say(`"ahead":true,"want":10`).offsets()
	w.say(fmt.Sprintf(`"nacks":[{"offset":%d,"dead":true,"error":"broken"}],`, got[0]) + acks(got[1], got[1]))
	s.ok("POST", "/v1/dlq/redrive", `{"all":true}`)
	copied := w.say(`"ahead":true,"want":10,"wait_ms":20000`)
	if len(copied.Events) != 1 || copied.Events[0].Offset <= got[1] || copied.Events[0].Delivery != 1 {
		t.Fatalf("%+v", copied)
	}
	w.say(acks(copied.Events[0].Offset, copied.Events[0].Offset))
	if letters := s.ok("GET", "/v1/dlq", "").body; !strings.Contains(letters, `"count":0`) {
		t.Errorf("%s", letters)
	}
}
