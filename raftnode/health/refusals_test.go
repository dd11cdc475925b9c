package health

import (
	"fmt"
	"testing"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// publish is a request of one event.
func publish(producer string, sequence uint64, e event.Event) frame.Request {
	r := frame.Request{Command: frame.Publish{Producer: producer, Sequence: sequence, Count: 1}, Batch: &frame.Batch{}}
	policy := event.Policy{}
	hash, _, err := policy.Normalize(&e)
	if err != nil {
		panic(err)
	}
	r.Batch.Add(&e, hash)
	return r
}

// An attempt that is repeated is the same request: of the same producer, sequence and events, or where there is no
// producer, of events that are the same to the log.
func TestARequestIsRefusedOnceHoweverOftenItIsRetried(t *testing.T) {
	first, other := event.New("A", map[string]int{"n": 1}), event.New("A", map[string]int{"n": 2})
	again := first
	again.NoDedup = true
	for _, one := range []struct {
		name     string
		requests []frame.Request
		count    uint64 // of each, made three times
	}{
		{"of a producer", []frame.Request{publish("p", 1, first)}, 1},
		{"of its next sequence", []frame.Request{publish("p", 1, first), publish("p", 2, first)}, 2},
		{"of a sequence that is free again", []frame.Request{publish("p", 1, first), publish("p", 1, other)}, 2},
		{"of two producers", []frame.Request{publish("p", 1, first), publish("q", 1, first)}, 2},
		{"of nobody", []frame.Request{publish("", 0, first), publish("", 0, other)}, 2},
		{"of nobody, never a duplicate", []frame.Request{publish("", 0, again)}, 3},
		{"of a producer, never a duplicate", []frame.Request{publish("p", 1, again)}, 1},
		{"of no events", []frame.Request{{Command: frame.Trim{Before: 1}}, {Command: frame.Trim{Before: 2}}}, 2},
	} {
		var r refusals
		for range 3 {
			for _, request := range one.requests {
				r.add(request)
			}
		}
		if got := r.load(); got != one.count {
			t.Errorf("%s: %d requests, want %d", one.name, got, one.count)
		}
		r.reset(0)
		r.add(one.requests[0])
		if got := r.load(); got != 1 {
			t.Errorf("%s: in the next outage %d, not 1", one.name, got)
		}
	}
}

func TestTheRequestsThatAreRememberedAreBounded(t *testing.T) {
	var r refusals
	for i := range maxRefusals + 10 {
		r.add(frame.Request{Command: frame.CursorOpen{Name: fmt.Sprint(i)}})
	}
	if r.load() != maxRefusals+10 || len(r.seen) > maxRefusals {
		t.Errorf("%d requests, %d remembered", r.load(), len(r.seen))
	}
}
