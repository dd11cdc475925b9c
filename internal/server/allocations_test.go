package server

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// allocate asks for an allocation of net:a.
func (s *site) allocate(id string, amount int, rest string) (got api.AllocationAnswer) {
	s.t.Helper()
	s.ok("PUT", "/v1/allocations/"+id, fmt.Sprintf(`{"holder":%q,"ttl":"1h","amounts":{"net:a":%d}%s}`, id, amount, rest)).
		decode(s.t, &got)
	return got
}

// A resource is shared by what fits. What waits is granted by priority, also in a call that waits at another node.
func TestAllocationsShareAResource(t *testing.T) {
	t.Parallel()
	sites := newSites(t, 3, nil)
	s := sites[0]
	for _, one := range sites {
		one.atLevel(frame.LevelAllocations)
	}
	s.ok("PUT", "/v1/resources/net:a", `{"capacity":100.0,"unit":"Mbit/s","preemptible":true}`)
	first := s.allocate("first", 80, "")
	if !first.Granted || first.Fence == 0 || first.TTL != "1h0m0s" {
		t.Fatalf("%+v", first)
	}
	if got := s.allocate("second", 30, ""); got.Granted || got.Waiting {
		t.Fatalf("%+v", got)
	}
	granted := map[string]chan api.AllocationAnswer{}
	resource := func() (r api.Resource) {
		s.ok("GET", "/v1/resources/net:a?consistency=linearizable", "").decode(t, &r)
		return r
	}
	for i, priority := range []string{"LOW", "high", "NORMAL"} {
		at, answer := sites[i], make(chan api.AllocationAnswer, 1)
		granted[priority] = answer
		go func() { answer <- at.allocate(strings.ToLower(priority), 60, `,"wait":"5m","priority":"`+priority+`"`) }()
		eventually(t, priority+" waits", func() bool { return resource().Waiting == i+1 })
	}
	if r := resource(); r.Granted != 80 || r.Allocations != 1 || r.Unit != "Mbit/s" || !r.Preemptible {
		t.Errorf("%+v", r)
	}
	last, order := first.Fence, []string{"high", "NORMAL", "LOW"}
	s.ok("DELETE", "/v1/allocations/first", "")
	for _, priority := range order {
		got := <-granted[priority]
		if !got.Granted || got.Fence <= last {
			t.Errorf("%s: %+v after the fence %d", priority, got, last)
		}
		last = got.Fence
		// One of LOW priority is held until a CRITICAL request ends it.
		if priority != "LOW" {
			s.ok("DELETE", "/v1/allocations/"+strings.ToLower(priority), "")
		}
	}
	if got := s.allocate("critical", 100, `,"priority":"CRITICAL"`); !got.Granted {
		t.Errorf("%+v", got)
	}
	var renewed api.AllocationRenewed
	s.ok("PUT", "/v1/allocations", fmt.Sprintf(`{"leases":[{"allocation":"low","fence":%d}]}`, last)).decode(t, &renewed)
	if len(renewed.Lost) != 1 || renewed.Renewed != 0 {
		t.Errorf("%+v", renewed)
	}
	var page api.AllocationPage
	s.ok("GET", "/v1/allocations?limit=1", "").decode(t, &page)
	if len(page.Allocations) != 1 || page.Next != "" || page.Allocations[0].Allocation != "critical" ||
		page.Allocations[0].Amounts["net:a"] != 100 || !page.Allocations[0].Granted {
		t.Errorf("%+v", page)
	}
}

// The renewal of a request that waits within a call does not put the request into its queues again, although it is
// released after the call has found that it has to be renewed.
func TestARenewalThatIsUnderWayMakesNoRequest(t *testing.T) {
	t.Parallel()
	node := &faultyNode{}
	s := newSite(t, func(c *Config) { c.Node = node })
	s.atLevel(frame.LevelFences)
	s.ok("PUT", "/v1/resources/net:a", `{"capacity":10}`)
	s.allocate("first", 10, "")
	var proposed atomic.Int32
	node.before = func(c frame.Command) {
		switch c.(type) {
		case frame.AllocationRequest, frame.AllocationRenewClaim:
			if proposed.Add(1) == 2 {
				s.ok("DELETE", "/v1/allocations/waits", "")
			}
		}
	}
	var got api.AllocationAnswer
	s.ok("PUT", "/v1/allocations/waits", `{"holder":"w","amounts":{"net:a":10},"ttl":"2s","wait":"10s"}`).decode(t, &got)
	var r api.Resource
	s.ok("GET", "/v1/resources/net:a", "").decode(t, &r)
	if proposed.Load() != 2 || got.Granted || got.Waiting || r.Waiting != 0 {
		t.Errorf("after %d commands %+v, and the resource %+v", proposed.Load(), got, r)
	}
}

// A call that waits ends once its request is released, or can never be granted.
func TestACallThatWaitsForAnAllocationEnds(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.atLevel(frame.LevelAllocations)
	s.ok("PUT", "/v1/resources/net:a", `{"capacity":100}`)
	s.allocate("first", 80, "")
	released := make(chan api.AllocationAnswer, 1)
	go func() { released <- s.allocate("second", 90, `,"wait":"5m"`) }()
	waits := func() bool {
		var x api.Resource
		s.ok("GET", "/v1/resources/net:a", "").decode(t, &x)
		return x.Waiting == 1
	}
	eventually(t, "the call waits", waits)
	s.ok("DELETE", "/v1/allocations/second", "")
	if got := <-released; got.Granted || got.Waiting {
		t.Errorf("%+v", got)
	}
	// One that will never fit is refused at once, long before its claim has to be renewed.
	refused := make(chan api.Error, 1)
	go func() {
		third := `{"holder":"h","amounts":{"net:a":90},"ttl":"1h","wait":"5s"}`
		refused <- s.do("PUT", "/v1/allocations/third", third).err(t)
	}()
	eventually(t, "the call waits", waits)
	s.ok("PUT", "/v1/resources/net:a", `{"capacity":50}`)
	if e := <-refused; e.Code != api.Conflict || e.Reason != api.ReasonOverCapacity {
		t.Errorf("%+v", e)
	}
	// Its wait is over: it keeps its place.
	began := time.Now()
	if got := s.allocate("fourth", 10, `,"wait":"10ms"`); got.Granted || !got.Waiting || time.Since(began) > time.Minute {
		t.Errorf("%+v", got)
	}
}

// What is wrong with a request is refused with a code and a reason that do not change.
func TestBadAllocationsAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.atLevel(frame.LevelAllocations)
	s.ok("PUT", "/v1/resources/net:a", `{"capacity":100}`)
	s.allocate("first", 80, "")
	long, many := strings.Repeat("x", 257), ""
	for i := range 17 {
		many += fmt.Sprintf(`,"r%d":1`, i)
	}
	amounts := func(list string) string { return `{"holder":"h","amounts":{` + list + `}}` }
	with := func(more string) string { return `{"holder":"h","amounts":{"net:a":1},` + more + `}` }
	leases := `{"leases":[` + strings.Repeat(`{"allocation":"a","fence":1},`, 1000) + `{"allocation":"a","fence":1}]}`
	for _, one := range []struct {
		method, path, body string
		code               api.Code
		reason, field      string
	}{
		{"PUT", "/v1/resources/net:b", ``, api.InvalidJSON, "", "body"},
		{"PUT", "/v1/resources/net:b", `{}`, api.InvalidArgument, "", "capacity"},
		{"PUT", "/v1/resources/net:b", `{"capacity":-1}`, api.InvalidArgument, "", "capacity"},
		{"PUT", "/v1/resources/net:b", `{"capacity":1.5}`, api.InvalidArgument, "", "capacity"},
		{"PUT", "/v1/resources/net:b", `{"capacity":9007199254740993}`, api.InvalidArgument, "", "capacity"},
		{"PUT", "/v1/resources/net:b", `{"capacity":1,"units":"x"}`, api.InvalidJSON, event.ReasonUnknownKey, "units"},
		{"PUT", "/v1/resources/net:b", `{"capacity":1,"unit":"` + long[:65] + `"}`, api.InvalidArgument, "", "unit"},
		{"PUT", "/v1/resources/net:b", `{"capacity":1,"unit":"a\nb"}`, api.InvalidArgument, "", "unit"},
		{"PUT", "/v1/resources/" + long, `{"capacity":1}`, api.TooLarge, "", "resource"},
		{"PUT", "/v1/resources/a%00b", `{"capacity":1}`, api.InvalidArgument, "", "resource"},
		{"GET", "/v1/resources/net:b", ``, api.NotFound, api.ReasonUnknownResource, "resource"},
		{"DELETE", "/v1/resources/net:b", ``, api.NotFound, api.ReasonUnknownResource, "resource"},
		{"DELETE", "/v1/resources/net:a", ``, api.Conflict, api.ReasonResourceInUse, "resource"},
		{"DELETE", "/v1/resources/net:a?force=true", ``, api.InvalidArgument, "", "force"},
		{"GET", "/v1/allocations/none", ``, api.NotFound, "", "allocation"},
		{"GET", "/v1/allocations?limit=-1", ``, api.InvalidArgument, "", "limit"},
		{"PUT", "/v1/allocations/a", `{"amounts":{"net:a":1}}`, api.InvalidArgument, "", "holder"},
		{"PUT", "/v1/allocations/a", `{"holder":"h"}`, api.InvalidArgument, "", "amounts"},
		{"PUT", "/v1/allocations/a", amounts(`"net:a":0`), api.InvalidArgument, "", "amounts"},
		{"PUT", "/v1/allocations/a", amounts(`"net:a":-1`), api.InvalidArgument, "", "amounts"},
		{"PUT", "/v1/allocations/a", amounts(`"net:a":"1"`), api.InvalidArgument, "", "amounts"},
		{"PUT", "/v1/allocations/a", amounts(`"net:a":1,"net:a":1`), api.InvalidJSON, event.ReasonDuplicateKey,
			"amounts.net:a"},
		{"PUT", "/v1/allocations/a", amounts(`"net:a":101`), api.Conflict, api.ReasonOverCapacity, "amounts"},
		{"PUT", "/v1/allocations/a", amounts(`"net:b":1`), api.NotFound, api.ReasonUnknownResource, "amounts"},
		{"PUT", "/v1/allocations/a", amounts(`"":1`), api.InvalidArgument, "", "amounts"},
		{"PUT", "/v1/allocations/a", amounts(many[1:]), api.InvalidArgument, "", "amounts"},
		{"PUT", "/v1/allocations/a", with(`"priority":"URGENT"`), api.InvalidArgument, "", "priority"},
		{"PUT", "/v1/allocations/a", with(`"ttl":"1s"`), api.InvalidArgument, "", "ttl"},
		{"PUT", "/v1/allocations/a", with(`"ttl":"25h"`), api.InvalidArgument, "", "ttl"},
		{"PUT", "/v1/allocations/a", with(`"wait":"6m"`), api.InvalidArgument, "", "wait"},
		{"PUT", "/v1/allocations/" + long, with(`"ttl":"15s"`), api.TooLarge, "", "allocation"},
		{"PUT", "/v1/allocations/first", amounts(`"net:a":79`), api.Conflict, api.ReasonOtherRequest, "id"},
		{"PUT", "/v1/allocations", `{"leases":[]}`, api.InvalidArgument, "", "leases"},
		{"PUT", "/v1/allocations", leases, api.InvalidArgument, "", "leases"},
		{"PUT", "/v1/allocations", `{"leases":[{"fence":1}]}`, api.InvalidArgument, "", "leases[0].allocation"},
		{"DELETE", "/v1/allocations/" + long, ``, api.TooLarge, "", "allocation"},
	} {
		e := s.do(one.method, one.path, one.body).err(t)
		if e.Code != one.code || e.Reason != one.reason || e.Field != one.field || e.Message == "" || e.Remedy == "" {
			t.Errorf("%s %s %.60s: %+v", one.method, one.path, one.body, e)
		}
	}
	// Python prints a whole float with a fraction.
	s.ok("PUT", "/v1/allocations/first", amounts(`"net:a":80.0`))

	// A retry of a release is no error.
	s.ok("DELETE", "/v1/allocations/first", "")
	s.ok("DELETE", "/v1/allocations/first", "")
	s.ok("DELETE", "/v1/resources/net:a", "")
}
