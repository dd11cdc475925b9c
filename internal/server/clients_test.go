package server

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/longtest"
	"github.com/ringrift/ringlog/internal/platform/audit"
)

// atLevel waits until the cluster has a feature level, which all members have to report first.
func (s *site) atLevel(level uint32) {
	s.t.Helper()
	eventually(
		s.t, fmt.Sprintf("feature level %d", level),
		func() bool { return s.node.Machine().FeatureLevel() >= level },
	)
}

// What a client registers at one node is shown by the others, in /status and in the audit, until the client
// removes itself.
func TestWhoListensIsKnownEverywhere(t *testing.T) {
	t.Parallel()
	sites := newSites(t, 3, nil)
	sites[0].atLevel(frame.LevelDelivery)
	_, others := leading(t, sites)
	here, there := others[0], others[1]
	var made api.Client
	here.ok("PUT", "/v1/clients/trainer-3%2Fa", `{"host":"gpu-1","pid":7,"ttl":"90s","subscriptions":[
		{"name":"loss","filter":{"types":["training.*"]},"where":"payload.epoch > 3\n&& true",
		 "mode":"durable","cursor":"loss","handler_timeout_seconds":0.25},
		{"name":"registered_alarm","filter":{"types":["AUDIT_UNKNOWN"]},"critical":true,"state":"connecting"}]}`).decode(
		t, &made,
	)
	if made.ID != "trainer-3/a" || made.TTL != "1m30s" || made.Expires.Sub(made.Seen).String() != made.TTL ||
		len(made.Subscriptions) != 2 ||
		made.Subscriptions[0].TimeoutSeconds != 0.25 || made.Subscriptions[1].Mode != "live" {
		t.Errorf("%+v", made)
	}
	type status struct {
		Subscriptions api.SubscriptionStatus `json:"event_subscription_status"`
		Timeouts      api.HandlerTimeouts    `json:"handler_timeouts"`
	}
	var st status
	eventually(t, "the client at another node", func() bool {
		st = status{}
		there.ok("GET", "/status", "").decode(t, &st)
		return st.Subscriptions.Clients == 1
	})
	one := st.Subscriptions.ByClient["trainer-3/a"]
	if st.Subscriptions.Healthy || st.Subscriptions.CriticalDetached != 1 || one.Host != "gpu-1" ||
		one.Subscriptions["registered_alarm"].State != "connecting" ||
		len(one.Subscriptions) != 2 || len(st.Timeouts.Handlers) != 1 ||
		st.Timeouts.Handlers[0].TimeoutSeconds != 0.25 || st.Timeouts.Handlers[0].TimedOut != 0 {
		t.Errorf("%+v %+v", st.Subscriptions, st.Timeouts)
	}
	there.publish("AUDIT_UNKNOWN", 1, 1)
	var report audit.Report
	there.ok("GET", "/v1/audit", "").decode(t, &report)
	heard := false
	for _, e := range report.Types {
		for _, w := range e.Subscribers {
			heard = heard || e.Name == "AUDIT_UNKNOWN" && w.Component == "registered_alarm" && w.Basis == audit.ByClient
		}
	}
	if !heard || report.Scope.Subscriptions != 2 {
		t.Errorf("the audit has not heard of it: %+v", report.Scope)
	}
	there.ok("PUT", "/v1/clients/trainer-3%2Fa", `{"subscriptions":[{"name":"registered_alarm","critical":true}]}`)
	there.ok("GET", "/status", "").decode(t, &st)
	if st.Subscriptions.CriticalDetached != 0 || !st.Subscriptions.Healthy {
		t.Errorf("%+v", st.Subscriptions)
	}
	there.ok("PUT", "/v1/clients/trainer-3%2Fa", `{"subscriptions":[]}`)
	if e := here.do("DELETE", "/v1/clients/trainer-3%2Fa", "").err(t); e.Code != api.NotFound || e.Remedy == "" {
		t.Errorf("%+v", e)
	}
}

// A client whose TTL passes is reported once, and what only it listened to makes the platform unready until somebody
// listens to it, or the client is removed. The node itself stays ready.
func TestALostClientIsReported(t *testing.T) {
	if !longtest.Enabled() {
		t.Skip("waits for the shortest TTL, 30 s: set RINGLOG_LONG_TESTS")
	}
	t.Parallel()
	s := newSite(t, nil)
	s.atLevel(frame.LevelClients)
	register := func(id, subscriptions string) {
		s.ok("PUT", "/v1/clients/"+id, `{"host":"gpu-1","ttl":"30s","subscriptions":[`+subscriptions+`]}`)
	}
	reported := func() (list []string) {
		for _, e := range s.ok("GET", "/v1/events?from=start&type=DAEMON_STATUS_CHANGED", "").lines(t) {
			p := e["payload"].(map[string]any)
			if p["new"] == "registered" {
				list = append(list, fmt.Sprint(p["client"], " of ", p["host"], " is back"))
			} else {
				list = append(list, fmt.Sprint(p["client"], " of ", p["host"], " was ", p["new"], ": ",
					p["critical"], " ", p["subscriptions"], " ", p["unheard"]))
			}
		}
		return list
	}

	register("trainer", `{"name":"loss"},{"name":"alarm","filter":{"types":["HEALTH_ALERT"]},"critical":true}`)
	register("watcher", `{"name":"guard","critical":true}`)
	s.ok("GET", "/v1/readiness", "")
	eventually(t, "both are reported", func() bool { return len(reported()) == 2 })
	e := s.do("GET", "/v1/readiness", "").err(t)
	if e.Code != api.Unavailable || !strings.Contains(e.Message, `"alarm" of the lost client "trainer", "guard" of`) ||
		!strings.Contains(e.Remedy, "clients rm") {
		t.Errorf("%+v", e)
	}
	s.ok("GET", "/readyz", "")
	var st struct {
		Subscriptions api.SubscriptionStatus `json:"event_subscription_status"`
	}
	s.ok("GET", "/status", "").decode(t, &st)
	if got := st.Subscriptions; got.Healthy || got.CriticalUnheard != 2 || got.Lost != 2 || len(got.Unheard) != 2 ||
		got.Unheard[0].Name != "alarm" || got.Unheard[0].Client != "trainer" || got.Unheard[0].Host != "gpu-1" {
		t.Errorf("%+v", got)
	}
	var page api.ClientPage
	s.ok("GET", "/v1/clients", "").decode(t, &page)
	if !reflect.DeepEqual(page.Unheard, st.Subscriptions.Unheard) || page.Total.CriticalUnheard != 2 {
		t.Errorf("%+v", page)
	}

	// Another process listens to the one, and the client of the other is removed.
	register("trainer-2", `{"name":"alarm","critical":true}`)
	s.do("GET", "/v1/readiness", "").err(t)
	var was api.Client
	s.ok("DELETE", "/v1/clients/watcher", "").decode(t, &was)
	if was.Host != "gpu-1" || len(was.Subscriptions) != 1 || was.Subscriptions[0].State != "lost" {
		t.Errorf("%+v", was)
	}
	s.ok("GET", "/v1/readiness", "")
	if e := s.do("DELETE", "/v1/clients/watcher", "").err(t); e.Code != api.NotFound {
		t.Errorf("%+v", e)
	}
	// A clean end is none that has to be reported.
	s.ok("DELETE", "/v1/clients/trainer-2", "")
	s.ok("GET", "/v1/readiness", "")
	register("trainer", `{"name":"alarm","critical":true}`)
	want := []string{
		"trainer of gpu-1 was lost: true [loss alarm] [alarm]",
		"watcher of gpu-1 was lost: true [guard] [guard]",
		"trainer of gpu-1 is back",
	}
	if got := reported(); !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}

func TestClientsComeInPages(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	for i := range 7 {
		s.ok("PUT", fmt.Sprintf("/v1/clients/c%d", i), `{"subscriptions":[{"name":"a"}]}`)
	}
	s.ok("DELETE", "/v1/clients/c3", "")
	var ids []string
	for path, pages := "/v1/clients?limit=2", 0; path != ""; pages++ {
		var page api.ClientPage
		s.ok("GET", path, "").decode(t, &page)
		if page.Total.Clients != 6 || len(page.Clients) != 2 {
			t.Fatalf("%+v", page)
		}
		for _, c := range page.Clients {
			ids = append(ids, c.ID)
		}
		if path = ""; page.Next != "" {
			path = "/v1/clients?limit=2&after=" + page.Next
		}
	}
	if got := strings.Join(ids, " "); got != "c0 c1 c2 c4 c5 c6" {
		t.Error(got)
	}
}

func badClients() []badRequest {
	put := func(name, body string, status int, code api.Code, field, says string) badRequest {
		return badRequest{
			name:   "client: " + name,
			method: "PUT",
			path:   "/v1/clients/c",
			body:   body,
			status: status,
			code:   code,
			field:  field,
			says:   says,
		}
	}
	one := func(name, sub string, status int, code api.Code, field, says string) badRequest {
		return put(name, `{"subscriptions":[{"name":"good"},`+sub+`]}`, status, code, "subscriptions[1]."+field, says)
	}
	many := strings.TrimSuffix(strings.Repeat(`{"name":"x"},`, 1001), ",")
	long := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,{"name":"s%d","where":"%s"}`, i, strings.Repeat("x", 4000))
		}
		return b.String()[1:]
	}
	return []badRequest{
		put("no body", "", 400, api.InvalidJSON, "body", "JSON object"),
		put("no list", "{}", 400, api.InvalidArgument, "subscriptions", "may be empty"),
		put(
			"unknown key", `{"subscriptions":[{"name":"a","filters":{}}]}`, 400, api.InvalidJSON,
			"subscriptions[0].filters", "openapi",
		),
		put(
			"too short a time", `{"ttl":"29s","subscriptions":[{"name":"a"}]}`, 400,
			api.InvalidArgument, "ttl", "from 30s to 1h",
		),
		put("too long a time", `{"ttl":"2h","subscriptions":[{"name":"a"}]}`, 400, api.InvalidArgument, "ttl", "from 30s"),
		put("no time", `{"ttl":"soon","subscriptions":[{"name":"a"}]}`, 400, api.InvalidArgument, "ttl", "such as 5m"),
		put(
			"a host with a newline", `{"host":"a\nb","subscriptions":[{"name":"a"}]}`, 400,
			api.InvalidArgument, "host", "printable",
		),
		put("too many", `{"subscriptions":[`+many+`]}`, 413, api.TooLarge, "subscriptions", "the limit is 1000"),
		put("too large", `{"subscriptions":[`+long(17)+`]}`, 413, api.TooLarge, "subscriptions", "65536"),
		one("nameless", `{}`, 400, api.InvalidArgument, "name", "a name"),
		one("the same name", `{"name":"good"}`, 400, api.InvalidArgument, "name", "given twice"),
		one("a long name", `{"name":"`+strings.Repeat("x", 257)+`"}`, 413, api.TooLarge, "name", "256"),
		one("a bad filter", `{"name":"a","filter":{"types":["a b"]}}`, 400, api.InvalidArgument, "filter.types[0]", ""),
		one(
			"a category that is none", `{"name":"a","filter":{"categories":["trainign"]}}`, 400,
			api.InvalidArgument, "filter.categories[0]", "training",
		),
		one("a mode that is none", `{"name":"a","mode":"eager"}`, 400, api.InvalidArgument, "mode", "live, durable"),
		one("a state that is none", `{"name":"a","state":"fine"}`, 400, api.InvalidArgument, "state", "attached"),
		one(
			"a timeout below 0", `{"name":"a","handler_timeout_seconds":-1}`, 400,
			api.InvalidArgument, "handler_timeout_seconds", "from 0",
		),
		one(
			"a timeout without end", `{"name":"a","handler_timeout_seconds":1e300}`, 400,
			api.InvalidArgument, "handler_timeout_seconds", "a year",
		),
		one(
			"a breaker that is none", `{"name":"a","health":{"breaker":"ajar"}}`, 400,
			api.InvalidArgument, "health.breaker", "half-open",
		),
		one(
			"an error without a year", `{"name":"a","health":{"last_error_at":"0001-02-03T04:05:06Z"}}`, 400,
			api.InvalidArgument, "health.last_error_at", "1970",
		),
		one("a long condition", `{"name":"a","where":"`+strings.Repeat("x", 4097)+`"}`, 413, api.TooLarge, "where", "4096"),
		{
			name:   "client: unknown",
			method: "DELETE",
			path:   "/v1/clients/nobody",
			status: 404,
			code:   api.NotFound,
			field:  "id",
			says:   "ringlog clients",
		},
		{
			name:   "client: a long id",
			method: "DELETE",
			path:   "/v1/clients/" + strings.Repeat("x", 257),
			status: 413,
			code:   api.TooLarge,
			field:  "id",
			says:   "256",
		},
		{
			name:   "clients: a page too large",
			method: "GET",
			path:   "/v1/clients?limit=1001",
			status: 400,
			code:   api.InvalidArgument,
			field:  "limit",
			says:   "1000",
		},
	}
}
