package eventlog_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/eventlog"
)

func TestShow(t *testing.T) {
	var out bytes.Buffer
	debug := slog.HandlerOptions{Level: slog.LevelDebug}
	logger := slog.New(slog.NewTextHandler(&out, &debug))
	for _, off := range []string{"", "0", "false", "No"} {
		t.Setenv(eventlog.Variable, off)
		if eventlog.New(logger) != nil {
			t.Errorf("%q asks for a log", off)
		}
	}
	t.Setenv(eventlog.Variable, "true")
	ev := event.New(event.TrainingCompleted, map[string]any{"text": strings.Repeat("ä", 1000)})
	ev.Offset, ev.Key = 7, "k"
	eventlog.New(logger).Show("handled", &ev, "subscription", "trainer")
	for _, want := range []string{"level=DEBUG", "msg=handled", "type=TRAINING_COMPLETED", "offset=7", "key=k",
		"subscription=trainer", "ä …"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in %s", want, out.String())
		}
	}
	if out.Len() > 2*512 || strings.Contains(out.String(), "source") || strings.Contains(out.String(), `\ufffd`) {
		t.Error(out.String())
	}

	// A logger that is not interested gets nothing.
	out.Reset()
	eventlog.New(slog.New(slog.NewTextHandler(&out, nil))).Show("handled", &ev)
	if out.Len() > 0 {
		t.Error(out.String())
	}
}
