package quietlog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
)

func TestWhatRepeatsIsShownOnceAMinute(t *testing.T) {
	now := time.Now()
	var r Repeats
	for _, step := range []struct {
		after time.Duration
		key   string
		want  string // "" is not shown, else the number held back
	}{
		{0, "a", "0"},
		{time.Second, "a", ""},
		{time.Second, "b", "0"}, // a new one at once
		{57 * time.Second, "a", ""},
		{time.Second, "a", "2"}, // a minute after it was shown
		{time.Second, "a", ""},
		{2 * time.Minute, "a", "1"}, // it had ended: it is new, and what was held is not lost
		{time.Second, "a", ""},
	} {
		now = now.Add(step.after)
		state, show := r.See(step.key, now)
		if got := map[bool]string{true: fmt.Sprint(state.held)}[show]; got != step.want {
			t.Errorf("%+v: %q", step, got)
		}
	}
	for i := range 2 * maxRepeats {
		r.See(fmt.Sprint(i), now)
	}
	if len(r.runs) > maxRepeats {
		t.Errorf("%d lines are remembered", len(r.runs))
	}
}

func TestALineIsHeldOnlyIfTheVerySameWasShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out hclogBuffer
		l := New(hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Info}), nil)
		disk := l.Named("disk")
		for range 100 { // five a second
			l.Warn("keeping the journal", "error", errors.New("write: no space left on device"))
			l.Error("keeping the journal", "error", &os.PathError{Op: "write", Path: "j", Err: syscall.EIO})
			disk.Warn("keeping the journal", "error", errors.New("write: no space left on device"))
			l.Warn("reading from", "error", errors.New("127.0.0.1:40312: reset"))
			l.Warn("reading from", "error", errors.New("127.0.0.1:40313: reset"))
			l.Info("leading")
			time.Sleep(200 * time.Millisecond)
		}
		for text, want := range map[string]int{"no space": 2, "input/output error": 1, "reset": 1, "leading": 100} {
			if got := len(out.lines(text)); got != want {
				t.Errorf("%d lines with %q, want %d", got, text, want)
			}
		}
		for term := range 3 { // each of these is another outage
			l.Error("quorum lost", "cause", "majority_unreachable", "since", time.Now().UTC().Format(time.RFC3339Nano),
				"unreachable", "n2")
			l.Warn("leadership ended before its start", "term", term, "error", errors.New("no leader"))
			time.Sleep(time.Second)
		}
		if lost, ended := out.lines("quorum lost"), out.lines("leadership ended"); len(lost) != 3 || len(ended) != 3 {
			t.Errorf("%q %q", lost, ended)
		}
		time.Sleep(time.Minute)
		l.Warn("keeping the journal", "error", errors.New("write: no space left on device"))
		if found := out.lines("repeated=99"); len(found) != 1 {
			t.Errorf("the held ones are not counted: %q", found)
		}
	})
}

// hclogBuffer takes the lines of several loggers.
type hclogBuffer struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (b *hclogBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

func (b *hclogBuffer) lines(with string) (found []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.out.String()) {
		if strings.Contains(line, with) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}
