package client

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A machine that slept finds its calls unfinished. Nodes may have forgotten the producer by then,
// and would append the events of a first sequence again.
func TestASequenceIsNotRepeatedAfterTenMinutes(t *testing.T) {
	c, err := New(Config{Endpoints: []string{"http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	for _, test := range []struct {
		repeat repeat
		asleep time.Duration
		ends   bool
	}{
		{sequenced, maxRepeat - time.Minute, false},
		{sequenced, maxRepeat + time.Minute, true},
		{reading, maxRepeat + time.Minute, false},
	} {
		tries := c.newTries("publish", test.repeat)
		tries.began, tries.unknown = time.Now().Round(0).Add(-test.asleep), true
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := tries.next(ctx)
		cancel()
		if ended := errors.Is(err, errTooLate); ended != test.ends {
			t.Errorf("repeat %d, asleep for %s: %v", test.repeat, test.asleep, err)
		}
		if test.ends && !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("the outcome is not called unknown: %v", err)
		}
	}
}
