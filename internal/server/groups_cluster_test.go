package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/internal/frame"
)

// TestAGroupOutlivesItsLeader has members of a group on three voters, the leader of which
// hands over while they hold events.
func TestAGroupOutlivesItsLeader(t *testing.T) {
	t.Parallel()
	sites := newSites(t, 3, func(c *Config) { c.Token = "secret" })
	leader, others := leading(t, sites)
	leader.set("group.session_timeout", "3s")
	var body strings.Builder
	for i := range 12 {
		fmt.Fprintf(&body, `{"type":"A","payload":{"n":%d},"key":%q}`+"\n", i, map[bool]string{true: "k"}[i < 2])
	}
	leader.ok("POST", "/v1/events", body.String(), "Content-Type", contentNDJSON)
	join := others[0].group("g", `{"from":1,"filter":{"types":["A"]}}`)
	stays, leaves := join("stays"), join("leaves") // both ask a follower
	held, lost := stays.say(
		`"want":4,"ahead":true,"wait_ms":20000`,
	).offsets(), leaves.say(`"want":4,"wait_ms":20000`).offsets()
	if len(held) != 4 || len(lost) != 4 {
		t.Fatal(held, lost)
	}
	// The first event of the key is retried in an hour, and the second has to wait for it.
	said := stays.say(acks(held[2], held[2]) +
		fmt.Sprintf(`,"nacks":[{"offset":%d,"error":"e","delay_ms":3600000}]`, held[0]))
	if !slices.Equal(said.Revoked, []frame.Range{{From: held[1], To: held[1]}}) {
		t.Errorf("%+v", said)
	}
	others[0].ok("POST", "/v1/cluster/step-down", "")
	eventually(t, "another leads", func() bool { now, _ := leading(t, sites); return now != leader })
	now, _ := leading(t, sites)
	// The next leader knows no sessions: members join again and name what they hold.
	for _, w := range []*worker{stays, leaves} {
		a := w.try(acks(held[2], held[2]))
		if a.status != 409 || a.err(t).Code != api.Fenced {
			t.Errorf("%d %s", a.status, a.body)
		}
		w.session = 0
	}
	back := stays.say(fmt.Sprintf(`"holding":[{"from":%d,"to":%d}]`, held[2], held[3]))
	if !slices.Equal(back.Revoked, []frame.Range{{From: held[2], To: held[2]}}) {
		t.Errorf("of what it held and has acknowledged: %+v", back)
	}
	if got := stays.say(acks(held[3], held[3])); len(got.Refused) > 0 {
		t.Errorf("what a member holds stays its own: %+v", got)
	}
	// What no member claims is redelivered after the session timeout, as its second delivery.
	done := map[uint64]bool{}
	for len(done) < 8 {
		for _, e := range stays.say(`"ahead":true,"want":100,"wait_ms":1000`).Events {
			if again := slices.Contains(
				lost, e.Offset,
			); done[e.Offset] || slices.Contains(held, e.Offset) || (again && e.Delivery != 2) {
				t.Errorf("%+v", e)
			}
			done[e.Offset] = true
			stays.say(acks(e.Offset, e.Offset))
		}
	}
	c, _ := now.node.Machine().Group("g")
	if c.Committed != held[0]-1 || len(c.Group.Retries) != 1 || c.Group.Retries[0].Offset != held[0] ||
		c.Group.Retries[0].Deliveries != 1 {
		t.Errorf("%d %+v", c.Committed, c.Group)
	}
	if view := others[1].ok(
		"GET", "/v1/groups/g", "",
	).body; !strings.Contains(view, `"members":1,"coordinator":"`+now.node.Status().NodeID+`"`) {
		t.Errorf("%s", view)
	}
}

func TestAMemberSpeaksConnect(t *testing.T) {
	t.Parallel()
	sites := newSites(t, 3, nil)
	leader, others := leading(t, sites)
	leader.knowsGroups()
	offsets := leader.publish("A", 1, 5)
	for _, s := range []*site{leader, others[0]} {
		c := ringlogv1connect.NewGroupServiceClient(http.DefaultClient, s.url)
		name := "g-" + s.node.Status().NodeID
		if _, err := c.CreateGroup(
			t.Context(),
			connect.NewRequest(&ringlogv1.CreateGroupRequest{Name: name, Filter: &ringlogv1.Filter{Types: []string{"A"}},
				Group: &ringlogv1.GroupPolicy{MaxDeliver: 9}}),
		); err != nil {
			t.Fatal(err)
		}
		exchange := func(m *ringlogv1.ExchangeRequest) *ringlogv1.ExchangeResponse {
			t.Helper()
			m.Group, m.Member = name, "w"
			answer, err := c.Exchange(t.Context(), connect.NewRequest(m))
			if err != nil {
				t.Fatal(err)
			}
			return answer.Msg
		}
		first := exchange(&ringlogv1.ExchangeRequest{Want: 100, WaitMs: 20_000, Ahead: true})
		if got := offsetsOfRuns(first.Runs); !slices.Equal(got, offsets) || len(first.Deliveries) != 0 {
			t.Fatalf("%v, want %v", got, offsets)
		}
		again := exchange(&ringlogv1.ExchangeRequest{
			Session: first.Session,
			Want:    100,
			WaitMs:  20_000,
			Ahead:   true,
			Nacks:   []*ringlogv1.Nack{{Offset: offsets[0], Error: "e"}},
			Acks:    []*ringlogv1.OffsetRange{{From: offsets[1], To: offsets[2]}, {From: 1000, To: 1000}},
		})
		if len(again.Deliveries) == 0 || again.Deliveries[0].Offset != offsets[0] || again.Deliveries[0].Count != 2 ||
			len(again.Refused) != 1 {
			t.Errorf("of %v: %+v\n%s", offsets, again, s.ok("GET", "/v1/groups/"+name+"/members", "").body)
		}
		last := exchange(&ringlogv1.ExchangeRequest{
			Session: first.Session,
			Acks:    []*ringlogv1.OffsetRange{{From: offsets[0], To: offsets[4]}},
		})
		if last.Committed < offsets[4] || last.SessionTimeout.AsDuration() == 0 {
			t.Errorf("%+v", last)
		}
		_, err := c.Exchange(
			t.Context(),
			connect.NewRequest(&ringlogv1.ExchangeRequest{Group: name, Member: "w", Session: 1}),
		)
		if refusal, ok := apiError(err); !ok || refusal.Code != api.Fenced {
			t.Errorf("%v", err)
		}
		_, err = c.Exchange(t.Context(), connect.NewRequest(&ringlogv1.ExchangeRequest{Group: "none", Member: "w"}))
		if refusal, ok := apiError(err); !ok || refusal.Code != api.NotFound {
			t.Errorf("%v", err)
		}
	}
}

func offsetsOfRuns(runs []*ringlogv1.Run) (list []uint64) {
	for _, r := range runs {
		for _, e := range r.Events {
			list = append(list, e.Offset)
		}
	}
	return list
}
