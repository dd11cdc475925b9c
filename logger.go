package ringlog

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// nodeLogger returns a logger for the node, which logs with hclog, whose records go to to.
func nodeLogger(to *slog.Logger) hclog.Logger {
	// The logger itself writes nothing: its level answers IsDebug and the like, and the sink filters by itself.
	level := hclog.Off
	for _, l := range []hclog.Level{hclog.Error, hclog.Warn, hclog.Info, hclog.Debug, hclog.Trace} {
		if to.Enabled(context.Background(), slogLevel(l)) {
			level = l
		}
	}
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Output: io.Discard, Level: level})
	l.RegisterSink(slogSink{to})
	return l
}

// slogSink passes the records of an hclog logger to one of log/slog.
type slogSink struct{ to *slog.Logger }

// Accept implements hclog.SinkAdapter. The part of the node that logs is in the attribute part.
func (s slogSink) Accept(name string, level hclog.Level, msg string, args ...any) {
	ctx, at := context.Background(), slogLevel(level)
	if !s.to.Enabled(ctx, at) {
		return
	}

	// hclog formats such a value when it prints it. The arguments are a copy made for the sinks.
	for i, arg := range args {
		if f, ok := arg.(hclog.Format); ok && len(f) > 0 {
			args[i] = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
	}
	if name != "" {
		args = append(args, "part", name)
	}
	s.to.Log(ctx, at, msg, args...)
}

// slogLevel is the level of log/slog for one of hclog. slog has none below debug, but room for it.
func slogLevel(l hclog.Level) slog.Level {
	switch l {
	case hclog.Trace:
		return slog.LevelDebug - 4
	case hclog.Debug:
		return slog.LevelDebug
	case hclog.Warn:
		return slog.LevelWarn
	case hclog.Error:
		return slog.LevelError
	default:
		return slog.LevelInfo
	}
}
