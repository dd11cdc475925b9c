package shell

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// Printer prints events, as text or as one JSON object a line. Several goroutines may use
// it.
type Printer struct {
	Sh *Shell // form, width and colours of the output
	// what was printed shows a moment later, and after Flush for certain
	Out *lazyWriter

	// mu guards buf, which is reused, so an event costs no allocation.
	mu  sync.Mutex
	buf []byte
}

// NewPrinter prints to sh's output; its buffer must be flushed at the end.
func NewPrinter(sh *Shell) *Printer {
	return &Printer{Sh: sh, Out: newLazyWriter(sh.Out)}
}

// Event prints an event of the log.
func (p *Printer) Event(ev *event.Event) error {
	// The lock is held over the write, so lines of two goroutines do not mix.
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Sh.JSON {
		// The form that the HTTP interface has.
		p.buf = append(ev.AppendJSON(p.buf[:0]), '\n')
	} else {
		p.buf = p.appendText(p.buf[:0], ev)
	}
	_, err := p.Out.Write(p.buf)
	return err
}

// Local prints a record of a node's journal, which has no offset: as the node sent it, or
// marked as local.
func (p *Printer) Local(line json.RawMessage, at time.Time, kind event.Type, node string,
	payload json.RawMessage) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	// The record is printed as it came, so no field is lost.
	if p.Sh.JSON {
		p.buf = append(append(p.buf[:0], line...), '\n')
	} else {
		p.buf = fmt.Appendf(p.buf[:0], "%8s  %s  %s  node=%s  %s", "local", p.time(at), p.bold(kind), node, payload)
		p.buf = p.cut(p.buf)
	}
	_, err := p.Out.Write(p.buf)
	return err
}

// bold makes a type stand out on a terminal.
func (p *Printer) bold(t event.Type) string { return p.Sh.Paint(Strong, string(t)) }

// time prints when an event was appended: on a terminal without its date, so more of the line is left.
func (p *Printer) time(t time.Time) string {
	if p.Sh.OutTerminal {
		return Clock(t)
	}
	return Moment(t)
}

// cut ends a line, cut to the width of the terminal: -o json and get print the whole event.
func (p *Printer) cut(line []byte) []byte {
	// Snip counts columns and cuts no escape sequence.
	if width := p.Sh.Width(); width > 0 && len(line) > width {
		line = append(line[:0], text.Snip(string(line), width, "…")...)
	}
	return append(line, '\n')
}

// Whole prints one event: as Event does for programs, and on a terminal field by field, with its payload indented.
func (p *Printer) Whole(ev *event.Event) error {
	if p.Sh.JSON || !p.Sh.OutTerminal {
		// A program gets the line that tail prints.
		return p.Event(ev)
	}
	facts := []any{"offset", ev.Offset, "type", p.bold(ev.Type), "appended", Moment(ev.AppendedAt)}
	for _, f := range labels(ev) {
		facts = append(facts, f.label, f.value)
	}
	if err := p.Sh.Facts(facts...); err != nil {
		return err
	}
	// A payload that is no JSON does not get into the log.
	var payload bytes.Buffer
	if err := json.Indent(&payload, ev.Payload, "", "  "); err != nil {
		return err
	}
	_, err := fmt.Fprintf(p.Sh.Out, "%s\n", payload.Bytes())
	return err
}

// label is a field of an event that is not always set.
type label struct{ label, value string }

// labels are those fields of an event that are set.
func labels(ev *event.Event) (list []label) {
	for _, f := range [...]label{{"source", ev.Source}, {"key", ev.Key}, {"correlation", ev.CorrelationID}} {
		if f.value != "" {
			list = append(list, f)
		}
	}
	// An event that was redriven names its dead letter, and the cursor that alone receives it.
	// 0 is no redrive; letters are numbered from 1.
	if ev.Redrive != 0 {
		list = append(list, label{"letter", strconv.FormatUint(ev.Redrive, 10)}, label{"for", ev.Target})
	}
	return list
}

// appendText prints offset, time, type, where from, and the payload.
func (p *Printer) appendText(b []byte, ev *event.Event) []byte {
	// The offset is aligned for logs of up to a hundred million events.
	b = fmt.Appendf(b, "%8d  %s  %s", ev.Offset, p.time(ev.AppendedAt), p.bold(ev.Type))
	for _, f := range labels(ev) {
		b = fmt.Appendf(b, "  %s=%s", f.label, f.value)
	}
	return p.cut(append(append(b, "  "...), ev.Payload...))
}

// Gap reports what can no longer be read: as data for programs, as a notice for
// people.
func (p *Printer) Gap(g client.Gap) error {
	if !p.Sh.JSON {
		// The events before the gap are printed before the notice on stderr.
		if err := p.Out.Flush(); err != nil {
			return err
		}
		p.Sh.Say("%s: offsets %d to %d are gone (%s)", p.Sh.PaintErr(Warn, "gap"), g.From, g.To, g.Reason)
		return nil
	}
	// An event has no member gap, so a program can distinguish the two.
	return WriteLine(p.Out, map[string]client.Gap{"gap": g})
}

// flushAfter bounds how long printed output may stay in the buffer.
const flushAfter = 20 * time.Millisecond

// lazyWriter buffers, and flushes flushAfter after the first write into an empty buffer.
type lazyWriter struct {
	mu sync.Mutex
	// mu guards what follows: the timer flushes on a goroutine of its own.
	out   *bufio.Writer
	timer *time.Timer
	err   error // of a flush by itself
}

// newLazyWriter returns a writer to w. Call Flush at the end: it reports the error of earlier flushes, too.
func newLazyWriter(w io.Writer) *lazyWriter {
	// 64 KiB, so a long tail takes few system calls.
	l := &lazyWriter{out: bufio.NewWriterSize(w, 64<<10)}
	// Write arms the timer; here it is only made.
	l.timer = time.AfterFunc(time.Hour, func() { _ = l.Flush() })
	l.timer.Stop()
	return l
}

// Write implements io.Writer.
func (l *lazyWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A flush on the timer's goroutine may have failed: whoever writes next learns of it.
	if l.err != nil {
		return 0, l.err
	}
	// The time runs from the first write after a flush; later writes do not extend it.
	if l.out.Buffered() == 0 {
		l.timer.Reset(flushAfter)
	}
	return l.out.Write(p)
}

// Flush writes out everything, and fails when an earlier flush did.
func (l *lazyWriter) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A timer that fires meanwhile waits for mu, and finds an empty buffer.
	l.timer.Stop()
	// After an error nothing more is written: what follows a gap would look whole.
	if l.err == nil {
		l.err = l.out.Flush()
	}
	return l.err
}
