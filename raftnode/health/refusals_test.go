package health

import (
	"testing"

	"github.com/ringrift/ringlog/internal/frame"
)

func TestRetriesOfARequestAreRefusedOnce(t *testing.T) {
	var r refusals
	for range 25 {
		r.add(frame.Publish{Producer: "p", Sequence: 1, Count: 2})
	}
	r.add(frame.Publish{Producer: "p", Sequence: 2, Count: 2})
	r.add(frame.Publish{Count: 1}) // nobody knows whose
	r.add(frame.Publish{Count: 1})
	r.add(frame.Trim{Before: 1})
	if got := r.load(); got != 5 {
		t.Errorf("%d requests were refused, not 5", got)
	}
	r.reset(0)
	r.add(frame.Publish{Producer: "p", Sequence: 1, Count: 2})
	if got := r.load(); got != 1 {
		t.Errorf("in the next outage %d, not 1", got)
	}
}
