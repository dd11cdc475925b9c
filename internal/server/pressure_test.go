package server

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/raftnode"
)

// A node with a small queue is flooded: publishers are refused and retry, nothing that was acknowledged is lost,
// nothing that was refused appears, cursors still commit, and the log reports once that the queue was full and
// once that it no longer is.
func TestAFloodIsRefusedAndReported(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := startSite(t, l, nil, raftnode.Config{
		ID:              "n1",
		Dir:             filepath.Join(t.TempDir(), "n1"),
		BootstrapExpect: 1,
		Limits:          raftnode.Limits{QueueRequests: 4},
	})
	if err := s.node.WaitLeader(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.ok("PUT", "/v1/cursors/c", "")
	s.open("c")
	const publishers, want = 32, 20 // events that each gets in
	var mu sync.Mutex
	acknowledged, refused := map[int]uint64{}, 0
	var all sync.WaitGroup
	for p := range publishers {
		all.Go(func() {
			for n := 0; n < want; {
				number := p*1000 + n
				a := s.do("POST", "/v1/events", fmt.Sprintf(`{"type":"FLOOD","payload":{"n":%d},"dedup":false}`, number))
				mu.Lock()
				switch a.status {
				case http.StatusOK:
					var got struct{ Results []struct{ Offset uint64 } }
					if err := json.Unmarshal([]byte(a.body), &got); err != nil || len(got.Results) != 1 {
						t.Errorf("%s: %v", a.body, err)
					} else {
						acknowledged[number] = got.Results[0].Offset
					}
					n++
				case http.StatusTooManyRequests:
					if refused++; a.header.Get("Retry-After") != "1" || !strings.Contains(a.body, `"code":"overloaded"`) ||
						!strings.Contains(a.body, "at most 4") {
						t.Errorf("%v %s", a.header, a.body)
					}
				default:
					t.Errorf("%d %s", a.status, a.body)
					n = want
				}
				mu.Unlock()
			}
		})
	}
	all.Go(func() { // commits free room, and are not refused for want of it
		eventually(t, "there are two events", func() bool { return s.node.Machine().Stats().Last >= 2 })
		for i := range 20 {
			s.ok("POST", "/v1/cursors/c/commit", fmt.Sprintf(`{"offset":%d,"generation":1}`, 1+i%2))
		}
	})
	all.Wait()
	if refused == 0 || len(acknowledged) != publishers*want {
		t.Fatalf("%d acknowledged, %d refused", len(acknowledged), refused)
	}
	type stored struct {
		Type    event.Type
		Source  string
		Offset  uint64
		Payload map[string]any
	}
	read := func() (list []stored) {
		events, _ := s.ok("GET", "/v1/events?from=start", "").stream(t)
		for line := range strings.Lines(events) {
			var e stored
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			list = append(list, e)
		}
		return list
	}
	pressed := func(e stored) bool { return strings.HasPrefix(string(e.Type), "BACKPRESSURE_") }
	eventually(t, "the end of it", func() bool {
		list := read()
		return slices.ContainsFunc(list, func(e stored) bool { return e.Type == event.BackpressureReleased })
	})
	var words []string
	for _, e := range read() {
		switch {
		case e.Type == "FLOOD":
			number := int(e.Payload["n"].(float64))
			if acknowledged[number] != e.Offset {
				t.Errorf("%d is at offset %d, acknowledged was %d", number, e.Offset, acknowledged[number])
			}
			delete(acknowledged, number)
		case pressed(e):
			words = append(words, string(e.Type)+" "+e.Source)
			if e.Payload["leader_id"] != "n1" || e.Payload["queue_depth"] == nil || e.Payload["refused"] == nil {
				t.Errorf("%+v", e)
			}
		}
	}
	if len(acknowledged) > 0 {
		t.Errorf("lost: %v", acknowledged)
	}
	if got := strings.Join(words, ", "); got != "BACKPRESSURE_ACTIVATED ringlog, BACKPRESSURE_RELEASED ringlog" {
		t.Error(got)
	}
	var st api.Status
	s.ok("GET", "/status", "").decode(t, &st)
	if q := st.Queue; q.MaxRequests != 4 || q.Refused < uint64(refused) || q.Requests != 0 || st.Backpressure.Active ||
		st.Backpressure.Since.IsZero() {
		t.Errorf("%+v %+v", q, st.Backpressure)
	}
}

// A client may publish the backpressure of a queue of its own.
func TestBackpressureOfAClientIsItsOwn(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	a := s.ok("POST", "/v1/events", `{"type":"BACKPRESSURE_ACTIVATED","payload":{"queue_depth":7},"source":"selfplay"}`)
	if strings.Contains(a.body, "warnings\":[{") {
		t.Error(a.body)
	}
	var st api.Status
	if s.ok("GET", "/status", "").decode(t, &st); st.Backpressure.Active {
		t.Errorf("%+v", st.Backpressure)
	}
}
