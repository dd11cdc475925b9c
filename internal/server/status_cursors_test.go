package server

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
)

// /status and /metrics name a bounded number of cursors: those that are stalled or throttled, then those that lag most.
// All are counted.
func TestStatusNamesSomeCursors(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.publish("TRAINING_COMPLETED", 1, 10)
	const many = 3 * notableCursors
	for i := range many {
		start := frame.Position{Kind: frame.AtEnd}
		if i == 7 {
			start.Kind = frame.AtStart
		}
		if _, err := s.node.Propose(
			t.Context(),
			frame.Request{Command: frame.CursorCreate{Name: fmt.Sprintf("c%03d", i), Start: start}},
		); err != nil {
			t.Fatal(err)
		}
	}
	var status struct {
		Cursors []struct{ Name string }
		Total   int `json:"cursors_total"`
		Left    int `json:"cursors_left_out"`
	}
	s.ok("GET", "/status", "").decode(t, &status)
	named := false
	for _, c := range status.Cursors {
		named = named || c.Name == "c007"
	}
	if len(status.Cursors) != notableCursors || status.Total != many || status.Left != many-notableCursors || !named {
		t.Errorf(
			"%d cursors of %d, %d left out; the one that lags: %v", len(status.Cursors), status.Total,
			status.Left, named,
		)
	}
	text := s.ok("GET", "/metrics", "").body
	if n := strings.Count(text, "ringlog_cursor_lag_events{"); n != notableCursors {
		t.Errorf("%d series of lags", n)
	}
	for _, want := range []string{
		fmt.Sprintf("ringlog_cursors %d\n", many),
		"ringlog_cursors_stalled 0\n",
		"ringlog_cursors_throttled 0\n",
		`ringlog_cursor_lag_events{cursor="c007"}`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	// Stalled and throttled cursors are chosen before any that lags more; the chosen ones are ordered by name.
	list := make([]fsm.Cursor, 10)
	for i := range list {
		list[i] = fsm.Cursor{Name: fmt.Sprint(i), Committed: uint64(i)}
	}
	list[8].Stalled, list[9].Throttled = &fsm.Stall{}, &fsm.Throttle{}
	three := notable(list, 3, func(*fsm.Cursor) int { return 1 })
	if len(three) != 3 || three[0].Name != "0" || three[1].Name != "8" || three[2].Name != "9" {
		t.Errorf("%+v", three)
	}
}

// With 10 000 cursors whose names and filters are as long as allowed, and need escapes, a scrape and /status have less
// than 200 kB each, and say what they leave out.
func TestAnswersStaySmallHoweverManyCursorsThereAre(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.publish("TRAINING_COMPLETED", 1, 10)
	const many = 10_000
	long := strings.Repeat(`"<`, 120)
	filter := event.Filter{}
	for i := range 30 {
		filter.Keys = append(filter.Keys, fmt.Sprintf("%03d%s", i, long))
	}
	var makers errgroup.Group
	makers.SetLimit(256)
	for i := range many {
		makers.Go(func() error {
			create := frame.CursorCreate{Name: fmt.Sprintf("%s%05d", long, i), Start: frame.Position{Kind: frame.AtStart}}
			// Those with a filter are the first by name, and chosen first among equals.
			if i < notableCursors {
				create.Filter = filter
			}
			_, err := s.node.Propose(t.Context(), frame.Request{Command: create})
			return err
		})
	}
	if err := makers.Wait(); err != nil {
		t.Fatal(err)
	}
	var status api.Status
	answer := s.ok("GET", "/status", "")
	answer.decode(t, &status)
	scrape := s.ok("GET", "/metrics", "").body
	t.Logf("/status has %d bytes, a scrape %d", len(answer.body), len(scrape))
	if len(answer.body) >= 200_000 || len(scrape) >= 200_000 {
		t.Errorf("/status has %d bytes, a scrape %d", len(answer.body), len(scrape))
	}
	if n := len(status.Cursors); n == 0 || status.CursorsLeft != many-n || status.CursorsTotal != many {
		t.Errorf("%d cursors of %d, %d left out", n, status.CursorsTotal, status.CursorsLeft)
	}
	named := strings.Count(scrape, "ringlog_cursor_lag_events{")
	last := s.node.Machine().Stats().Last
	for _, want := range []string{
		fmt.Sprintf("ringlog_cursors_unnamed %d\n", many-named),
		fmt.Sprintf("ringlog_cursors_unnamed_lag_events %d\n", uint64(many-named)*last),
	} {
		if named == 0 || !strings.Contains(scrape, want) {
			t.Errorf("%d cursors have series, and the scrape lacks %s", named, want)
		}
	}
}

// Cursors are listed by name and in pages, over both protocols. Lag is measured only for the page.
func TestCursorsComeInPages(t *testing.T) {
	t.Parallel()
	node := &faultyNode{}
	s := newSite(t, func(c *Config) { c.Node = node })
	const many = pageItemsMost + 50
	var makers errgroup.Group
	makers.SetLimit(64)
	for i := range many {
		makers.Go(func() error {
			_, err := s.node.Propose(
				t.Context(),
				frame.Request{
					Command: frame.CursorCreate{Name: fmt.Sprintf("c%04d", i), Filter: event.Filter{Types: []string{"A"}}},
				},
			)
			return err
		})
	}
	if err := makers.Wait(); err != nil {
		t.Fatal(err)
	}
	s.publish("A", 1, 3)
	var page api.CursorPage
	names, query := []string{}, "?limit=300"
	for query != "" {
		page = api.CursorPage{}
		s.ok("GET", "/v1/cursors"+query, "").decode(t, &page)
		for _, c := range page.Cursors {
			names = append(names, c.Name)
		}
		if page.Total != many || len(page.Cursors) > 300 {
			t.Fatalf("%d cursors of %d", len(page.Cursors), page.Total)
		}
		if query = ""; page.Next != "" {
			query = "?limit=300&after=" + page.Next
		}
	}
	if len(names) != many || !slices.IsSorted(names) || len(slices.Compact(names)) != many {
		t.Errorf("%d names", len(names))
	}
	// What the node does beside the request looks at the state, too: the least of some tries counts.
	least := int64(math.MaxInt64)
	for range 10 {
		before := node.looked.Load()
		s.ok("GET", "/v1/cursors?limit=2&after=c0007", "").decode(t, &page)
		if len(page.Cursors) != 2 || page.Cursors[0].Name != "c0008" || page.Cursors[1].LagEvents != 3 {
			t.Errorf("%+v", page)
		}
		least = min(least, node.looked.Load()-before)
	}
	if least > 100 {
		t.Errorf("%d looks at the state for a page of two cursors", least)
	}
	if s.ok("GET", "/v1/cursors", "").decode(t, &page); len(page.Cursors) != pageItems {
		t.Errorf("%d cursors without a limit", len(page.Cursors))
	}
	if e := s.do("GET", "/v1/cursors?limit=1001", "").err(t); e.Field != "limit" {
		t.Errorf("%+v", e)
	}
	c, err := client.New(client.Config{Endpoints: []string{s.url}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	all, err := c.Cursors(t.Context())
	if err != nil || len(all) != many || all[many-1].Name != fmt.Sprintf("c%04d", many-1) {
		t.Errorf("the client has %d cursors: %v", len(all), err)
	}
}
