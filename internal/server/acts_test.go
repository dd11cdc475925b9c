package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/access"
)

// acts are the events of what operators and admins have done, as a node has them: offset, and each field that is there.
func (s *site) acts() (list []string) {
	s.t.Helper()
	log := s.node.Machine().Log()
	first, _ := log.Bounds()
	filter := event.Filter{Types: []string{string(event.AdminAction)}}.Compile(event.Builtin())
	chunk, err := log.Read(first, &filter, 1000)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range chunk.Events {
		e := &chunk.Events[i]
		var p map[string]string
		if err := json.Unmarshal(e.Payload, &p); err != nil || e.Key != p["principal"] || e.Source != "ringlog" {
			s.t.Errorf("%s of key %q and source %q: %v", e.Payload, e.Key, e.Source, err)
		}
		text := fmt.Sprintf("%d", e.Offset)
		for _, field := range []string{"principal", "action", "target", "detail", "outcome", "reason"} {
			if p[field] != "" {
				text += " " + p[field]
			}
		}
		list = append(list, text)
	}
	return list
}

// done are acts without their offsets.
func done(acts []string) (list []string) {
	for _, a := range acts {
		_, rest, _ := strings.Cut(a, " ")
		list = append(list, rest)
	}
	return list
}

// Whatever an operator or admin does, at whichever node and over whichever protocol, is an event with their name, of
// the same offset at every node. What programs do is none, and neither is what nobody was let do.
func TestWhatAdminsDoIsAnEvent(t *testing.T) {
	t.Parallel()
	sites := newSites(t, 3, withToken)
	leader, followers := leading(t, sites)
	follower := followers[0]
	ada := leader.tokenOf("ada", api.NewToken{Roles: []string{"admin"}})
	ops := leader.tokenOf("ops", api.NewToken{Roles: []string{"operator"}})
	reader := leader.tokenOf("reader", api.NewToken{Roles: []string{"subscriber", "publisher"}})
	for _, s := range sites {
		eventually(t, "the tokens at every node", func() bool { return s.node.Machine().Tokens().Len() == 3 })
	}

	// A follower forwards the command, or passes the call on.
	follower.hold(reader, []wants{
		{"POST", "/v1/events", `{"type":"A","payload":{"n":1}}`, 200, nil},
		{"PUT", "/v1/cursors/c", "", 200, nil},
		{"POST", "/v1/cursors/c/seek", `{"to":"start"}`, 200, nil},
		{"PUT", "/v1/settings/group.ack_wait", `{"value":"1m"}`, 403, nil},
	}...)
	follower.hold(ops, []wants{
		{"PUT", "/v1/settings/group.ack_wait", `{"value":"1m"}`, 200, nil},
		{"PUT", "/v1/settings/group.ack_wait", `{"value":"a while"}`, 400, nil},
		{"PUT", "/v1/settings/retention.age", `{"value":"1h"}`, 403, nil},
		{"POST", "/v1/compact", `{"before":1,"dry_run":true}`, 200, nil},
		{"POST", "/v1/compact", `{"before":1}`, 200, nil},
		{"PUT", "/v1/resources/gpu", `{"capacity":4}`, 200, nil},
		{"DELETE", "/v1/resources/nothing", "", 404, nil},
		{"GET", "/v1/snapshot", "", 403, nil},
	}...)
	follower.hold(ada, []wants{
		{"GET", "/v1/snapshot", "", 200, nil},
		{"POST", "/v1/members/nobody/promote", "", 404, nil},
		{"PUT", "/v1/views/v", `{"type":["A"],"key":"event.source","fold":{"n":"count"}}`, 400, nil},
		{"POST", "/v1/catalogue", `[{"name":"LATE_TYPE"}]`, 200, nil},
		{"DELETE", "/v1/tokens/ops", "", 200, nil},
	}...)
	cursors := ringlogv1connect.NewCursorServiceClient(follower.http, follower.url,
		connect.WithInterceptors(bearerOf(ada[1])))
	seek := &ringlogv1.SeekCursorRequest{Name: "c", To: &ringlogv1.Position{At: &ringlogv1.Position_End{End: true}}}
	if _, err := cursors.SeekCursor(t.Context(), connect.NewRequest(seek)); err != nil {
		t.Fatal(err)
	}
	if _, err := cursors.DeleteCursor(t.Context(),
		connect.NewRequest(&ringlogv1.DeleteCursorRequest{Name: "c"})); err != nil {
		t.Fatal(err)
	}
	follower.hold(ada, wants{"POST", "/v1/cluster/step-down", "", http.StatusOK, nil})

	want := []string{
		"root token.create ada admin done",
		"root token.create ops operator done",
		"root token.create reader subscriber,publisher done",
		"ops setting.set group.ack_wait 1m done",
		"ops setting.set group.ack_wait a while refused invalid",
		"ops compact before 1 done",
		"ops resource.set gpu 4 done",
		"ops resource.remove nothing refused unknown_resource",
		"ada backup " + follower.node.Status().NodeID + " started",
		"ada member.promote nobody started",
		"ada member.promote nobody failed not_found",
		"ada type.register LATE_TYPE done",
		"ada token.revoke ops done",
		"ada cursor.seek c end done",
		"ada cursor.delete c done",
		"ada leader.step_down started",
	}
	for _, s := range sites {
		eventually(t, "the last act at every node", func() bool {
			got := done(s.acts())
			return len(got) > 0 && got[len(got)-1] == want[len(want)-1]
		})
		if got := done(s.acts()); !slices.Equal(got, want) {
			t.Errorf("%s has\n%s\nwant\n%s", s.node.Status().NodeID, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if !slices.Equal(s.acts(), leader.acts()) {
			t.Errorf("%s has other offsets:\n%s", s.node.Status().NodeID, strings.Join(s.acts(), "\n"))
		}
	}
	// The event of an act is the cluster's alone.
	leader.hold(ada, wants{"POST", "/v1/events", `{"type":"ADMIN_ACTION","payload":{"principal":"bob"}}`, 403, nil})
}

// A cluster that lets everybody in knows nobody who could have done something.
func TestAnOpenClusterRecordsNoActs(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.ok("PUT", "/v1/settings/group.ack_wait", `{"value":"1m"}`)
	s.ok("GET", "/v1/snapshot", "")
	if got := s.acts(); got != nil {
		t.Errorf("%v", got)
	}
}

// By a route with which operators change something, nothing is done that has no name in the log.
func TestARouteWithoutAnActDoesNotStart(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	names := map[string]bool{}
	for i := range s.server.routes {
		planted := s.server.routes[i]
		if planted.act == "" {
			continue
		}
		names[planted.act] = true
		planted.act = ""
		privileged := planted.needs == access.Operate || planted.needs == access.Administer
		changes := privileged && planted.method != http.MethodGet
		if refused := checkPermissions([]route{planted}) != nil; refused != changes {
			t.Errorf("%s without a name for what it does is refused: %t", planted.pattern(), refused)
		}
	}
	if len(names) < 25 {
		t.Errorf("%d acts have names", len(names))
	}
}
