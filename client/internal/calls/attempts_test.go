package calls

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"time"
)

// A machine that slept finds its calls unfinished. Nodes may have forgotten the producer by then,
// and would append the events of a first sequence again.
func TestASequenceIsNotRepeatedAfterTenMinutes(t *testing.T) {
	c := New(Config{Endpoints: []string{"http://127.0.0.1:1"}, HTTP: http.DefaultClient, Timeout: time.Minute,
		AttemptTimeout: time.Second, Logger: slog.New(slog.DiscardHandler)})
	for _, test := range []struct {
		repeat Repeat
		asleep time.Duration
		ends   bool
	}{
		{Sequenced, maxRepeat - time.Minute, false},
		{Sequenced, maxRepeat + time.Minute, true},
		{Reading, maxRepeat + time.Minute, false},
	} {
		a := c.newAttempts(Op{Name: "publish"}, test.repeat)
		a.began, a.unknown = time.Now().Round(0).Add(-test.asleep), true
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := a.nextNode(ctx)
		cancel()
		if ended := errors.Is(err, errTooLate); ended != test.ends {
			t.Errorf("repeat %d, asleep for %s: %v", test.repeat, test.asleep, err)
		}
		if test.ends && !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("the outcome is not called unknown: %v", err)
		}
	}
}
