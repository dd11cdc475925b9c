package server

import (
	"slices"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/platform/audit"
)

// The audit counts what is in the log and takes the filters of cursors for subscriptions. A subscriber to
// everything connects nothing.
func TestTheAuditSeesTheLogAndTheCursors(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.publish("HOST_ONLINE", 1, 4)
	s.publish("AUDIT_UNKNOWN", 1, 2)
	s.ok("PUT", "/v1/cursors/follower", `{"filter":{"types":["leader.*","AUDIT_UNKNOWN","NEW_GAMES"]}}`)
	s.ok("PUT", "/v1/cursors/archive", `{}`)
	read := func(query string) (r audit.Report) {
		s.ok("GET", "/v1/audit"+query, "").decode(t, &r)
		return r
	}
	find := func(r audit.Report, name event.Type) audit.Entry {
		i := slices.IndexFunc(r.Types, func(e audit.Entry) bool { return e.Name == name })
		if i < 0 {
			t.Fatalf("no %s", name)
		}
		return r.Types[i]
	}
	whole := read("")
	online := find(whole, event.HostOnline)
	if online.Class != audit.Connected || !slices.Equal(emitters(online), []string{"s0 log 2", "s1 log 2"}) {
		t.Errorf("%+v", online)
	}
	if e := find(
		whole, "AUDIT_UNKNOWN",
	); e.Class != audit.Unknown || len(e.Subscribers) != 1 || e.Subscribers[0].Component != "follower" {
		t.Errorf("%+v", e)
	}
	if e := find(
		whole, event.LeaderElected,
	); e.Class != audit.Connected || !slices.Contains(emitters(e), "ringlog log 1") {
		t.Errorf("%+v", e)
	}
	if !slices.Equal(whole.CatchAll, []string{"archive"}) || whole.Scope.Subscriptions != 2 ||
		whole.Scope.Events != whole.Scope.LastOffset || whole.Scope.FirstOffset != 1 {
		t.Errorf("%v %+v", whole.CatchAll, whole.Scope)
	}
	if e := find(read("?from=-2"), event.HostOnline); e.Class != audit.Dead {
		t.Errorf("of the last two events none is one: %+v", e)
	}
	if r := read(
		"?from=end&only=orphans,drift",
	); len(r.Types) == 0 || r.Scope.Events != 0 || len(r.Findings) != 0 ||
		slices.ContainsFunc(r.Types, func(e audit.Entry) bool { return e.Class != audit.Orphan }) {
		t.Errorf("%+v", r)
	}
	live := read("?live=true")
	for name, want := range map[event.Type]audit.Class{
		event.HostOnline: audit.Orphan, event.NewGamesAvailable: audit.Dead, event.LeaderElected: audit.Connected,
	} {
		if e := find(live, name); e.Class != want {
			t.Errorf("%s is %s, not %s: %+v", name, e.Class, want, e)
		}
	}
	if !live.Live || live.Totals[audit.Unwired] != 0 || live.Scope != whole.Scope {
		t.Errorf("%v %v %+v", live.Live, live.Totals, live.Scope)
	}
	if r := read("?coordinator=follower"); len(r.Components) != 1 || len(r.Types) < 4 {
		t.Errorf("%+v", r)
	}
	for format, begins := range map[string]string{
		"text":    "Wiring audit of what is declared, of offsets 1 to ",
		"dot":     "digraph wiring {",
		"mermaid": "flowchart LR\n",
	} {
		if a := s.ok(
			"GET", "/v1/audit?format="+format, "",
		); !strings.HasPrefix(a.body, begins) || !strings.HasPrefix(a.header.Get("Content-Type"), "text/") {
			t.Errorf("%s: %.60q", format, a.body)
		}
	}
}

func emitters(e audit.Entry) (list []string) {
	for _, w := range e.Emitters {
		if w.Events > 0 {
			list = append(list, w.Component+" "+string(w.Basis)+" "+string('0'+rune(w.Events)))
		}
	}
	return list
}

func TestABadAuditIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	for query, want := range map[string]struct {
		code  api.Code
		field string
	}{
		"format=xml":         {api.InvalidArgument, "format"},
		"only=orphans,other": {api.InvalidArgument, "only"},
		"coordinator=nobody": {api.NotFound, "coordinator"},
		"from=nowhere":       {api.InvalidArgument, "from"},
		"from=999999":        {api.PastTail, "from"},
		"consistency=any":    {api.InvalidArgument, "consistency"},
		"form=text":          {api.InvalidArgument, "form"},
	} {
		if e := s.do("GET", "/v1/audit?"+query, "").err(t); e.Code != want.code || e.Field != want.field || e.Remedy == "" {
			t.Errorf("%s: %+v", query, e)
		}
	}
}
