package server

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// readWhere reads the events that meet a condition, and returns their offsets, the lines of what the condition could
// not be evaluated for, and how far the read came.
func (s *site) readWhere(where, rest string) (offsets []uint64, failures []string, scanned uint64) {
	s.t.Helper()
	answer := s.ok("GET", "/v1/events?where="+url.QueryEscape(where)+rest, "")
	for line := range strings.Lines(answer.body) {
		var l struct {
			Offset uint64
			Where  json.RawMessage
			End    *struct {
				Reason  string
				Scanned uint64
			}
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
		switch {
		case l.Offset > 0:
			offsets = append(offsets, l.Offset)
		case l.Where != nil:
			failures = append(failures, string(l.Where))
		case l.End != nil:
			scanned = l.End.Scanned
		}
	}
	return offsets, failures, scanned
}

// The events that a condition chooses are those that the reader itself would, in one read or in many.
func TestAReadHasWhatMeetsItsCondition(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	all := s.publish("TRAINING_PROGRESS", 1, 2500)
	odd := s.publish("TRAINING_COMPLETED", 1, 3)
	last := odd[len(odd)-1]
	var want []uint64
	for i, offset := range all {
		if n := i + 1; n%7 == 3 && n%3 == 1 {
			want = append(want, offset)
		}
	}
	const where = `payload.n % 7 == 3 && key == "k1" && type == "TRAINING_PROGRESS"`
	got, failures, scanned := s.readWhere(where, "&type=training.*")
	if fmt.Sprint(got) != fmt.Sprint(want) || failures != nil || scanned != last {
		t.Errorf("%v, failures %v, scanned %d: want %v and %d", got, failures, scanned, want, last)
	}

	// Pages of any size: where one ends is where the next begins.
	for _, limit := range []int{1, 2, 50, len(want), 1000} {
		var paged []uint64
		for from := uint64(1); from <= last; {
			got, _, scanned := s.readWhere(where, fmt.Sprintf("&type=training.*&limit=%d&from=%d", limit, from))
			if len(got) > limit || scanned < from {
				t.Fatalf("limit %d from %d: %d events, scanned %d", limit, from, len(got), scanned)
			}
			paged, from = append(paged, got...), scanned+1
		}
		if fmt.Sprint(paged) != fmt.Sprint(want) {
			t.Errorf("in pages of %d: %v, want %v", limit, paged, want)
		}
	}
}

// Without it a condition on a member that no event has would look like a quiet log.
func TestTheFirstEventThatAConditionFailsForIsReported(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	first := s.publish("TRAINING_PROGRESS", 1, 5)[0]
	want := fmt.Sprintf(`{"offset":%d,"error":"no such key: loss"}`, first)
	got, failures, _ := s.readWhere("payload.loss > 3", "&type=TRAINING_PROGRESS")
	if len(got) > 0 || len(failures) != 1 || failures[0] != want {
		t.Errorf("events %v, failures %v, want %s", got, failures, want)
	}

	// A reader that follows learns it at once, and gets what comes later.
	lines, _ := s.follow(t.Context(),
		"/v1/events?follow=true&from=start&type=TRAINING_PROGRESS&where="+url.QueryEscape("payload.loss > 3"))
	if line := next(t, lines); line != `{"where":`+want+`}` {
		t.Errorf("the first line is %s", line)
	}
	s.ok("POST", "/v1/events", `[{"type":"TRAINING_PROGRESS","payload":{"loss":2}},
		{"type":"TRAINING_PROGRESS","payload":{"loss":4}}]`)
	line := next(t, lines)
	for strings.HasPrefix(line, `{"scanned"`) {
		line = next(t, lines)
	}
	if !strings.Contains(line, `"payload":{"loss": 4}`) {
		t.Errorf("then %s", line)
	}
}
