// Package eventlog logs the events that pass through a program, if the environment variable RINGRIFT_DEBUG asks for it.
// A nil Log is one that was not asked for: its owner checks that before each call, so it costs nothing.
package eventlog

import (
	"context"
	"log/slog"
	"os"
	"strings"

	"github.com/ringrift/ringlog/event"
)

// Variable names the environment variable.
const Variable = "RINGRIFT_DEBUG"

// Asked reports whether a value of the variable asks for more to be logged: any but "", 0, false and no.
func Asked(value string) bool {
	switch strings.ToLower(value) {
	case "", "0", "false", "no":
		return false
	}
	return true
}

// Log logs events.
type Log struct{ logger *slog.Logger }

// New returns what the environment asks for, nil if it does not. Lines have the level debug; without a logger they go
// to the standard error.
func New(logger *slog.Logger) *Log {
	if !Asked(os.Getenv(Variable)) {
		return nil
	}
	if logger == nil {
		logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return &Log{logger}
}

// maxPayload bounds what a line has of a payload, in bytes.
const maxPayload = 512

// Show logs an event and what has become of it, with attributes as slog has them. Those that the event lacks are left
// out, as is the offset of one that is not in the log.
func (l *Log) Show(what string, ev *event.Event, args ...any) {
	if !l.logger.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	attrs := []any{"type", ev.Type}
	if ev.Offset > 0 {
		attrs = append(attrs, "offset", ev.Offset)
	}
	for _, a := range [...]struct{ name, value string }{
		{"source", ev.Source}, {"key", ev.Key}, {"correlation_id", ev.CorrelationID},
	} {
		if a.value != "" {
			attrs = append(attrs, a.name, a.value)
		}
	}
	payload := string(ev.Payload[:min(len(ev.Payload), maxPayload)])
	if len(ev.Payload) > maxPayload {
		payload = strings.ToValidUTF8(payload, "") + " …"
	}
	l.logger.Debug(what, append(append(attrs, args...), "payload", payload)...)
}
