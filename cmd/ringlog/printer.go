package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// printer prints events, as text or as one JSON object a line. Several goroutines may use
// it.
type printer struct {
	sh  *shell
	out *lazyWriter

	mu  sync.Mutex
	buf []byte
}

func newPrinter(sh *shell) *printer {
	return &printer{sh: sh, out: newLazyWriter(sh.out)}
}

func (p *printer) event(ev *event.Event) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sh.json {
		p.buf = append(ev.AppendJSON(p.buf[:0]), '\n')
	} else {
		p.buf = p.appendText(p.buf[:0], ev)
	}
	_, err := p.out.Write(p.buf)
	return err
}

// local prints a record of a node's journal, which has no offset: as the node sent it, or
// marked as local.
func (p *printer) local(line json.RawMessage, r localRecord, payload json.RawMessage) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sh.json {
		p.buf = append(append(p.buf[:0], line...), '\n')
	} else {
		p.buf = fmt.Appendf(p.buf[:0], "%8s  %s  %s  node=%s  %s\n", "local", momentText(r.Time), p.bold(r.Type), r.NodeID, payload)
	}
	_, err := p.out.Write(p.buf)
	return err
}

func (p *printer) bold(t event.Type) string {
	if p.sh.colour {
		return text.Bold.Sprint(string(t))
	}
	return string(t)
}

// appendText prints offset, time, type, where from, and the payload.
func (p *printer) appendText(b []byte, ev *event.Event) []byte {
	b = fmt.Appendf(b, "%8d  %s  %s", ev.Offset, momentText(ev.AppendedAt), p.bold(ev.Type))
	for _, f := range []struct{ label, value string }{{"source", ev.Source}, {"key", ev.Key}, {"correlation", ev.CorrelationID}} {
		if f.value != "" {
			b = fmt.Appendf(b, "  %s=%s", f.label, f.value)
		}
	}
	if ev.Redrive != 0 {
		b = fmt.Appendf(b, "  letter=%d for=%s", ev.Redrive, ev.Target)
	}
	return append(append(append(b, "  "...), ev.Payload...), '\n')
}

// gap tells what can not be read any more: in the data for programs, beside it for
// people.
func (p *printer) gap(g client.Gap) error {
	if !p.sh.json {
		if err := p.out.Flush(); err != nil {
			return err
		}
		p.sh.say("gap: offsets %d to %d are gone (%s)", g.From, g.To, g.Reason)
		return nil
	}
	return writeLine(p.out, map[string]client.Gap{"gap": g})
}

// flushAfter is how long a reader of the output may wait for what was printed.
const flushAfter = 20 * time.Millisecond

// lazyWriter buffers, and flushes by itself a moment after the last write.
type lazyWriter struct {
	mu    sync.Mutex
	out   *bufio.Writer
	timer *time.Timer
	err   error // of a flush by itself
}

func newLazyWriter(w io.Writer) *lazyWriter {
	l := &lazyWriter{out: bufio.NewWriterSize(w, 64<<10)}
	l.timer = time.AfterFunc(time.Hour, func() { _ = l.Flush() })
	l.timer.Stop()
	return l
}

// Write implements io.Writer.
func (l *lazyWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return 0, l.err
	}
	if l.out.Buffered() == 0 {
		l.timer.Reset(flushAfter)
	}
	return l.out.Write(p)
}

// Flush writes out everything, and fails when an earlier flush did.
func (l *lazyWriter) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer.Stop()
	if l.err == nil {
		l.err = l.out.Flush()
	}
	return l.err
}
