package sinks

import "bytes"

// Line is a line that a command has printed.
type Line struct {
	Offset uint64 `json:"offset"` // of the event it was run for
	Stream string `json:"stream"` // stdout or stderr
	Text   string `json:"line"`   // at most 4 KiB of it
}

// maxLine is how much of a line is reported.
const maxLine = 4 << 10

// lines cuts what is written into lines, and each line to its bound.
type lines struct {
	emit func([]byte)
	buf  []byte
	over bool // the rest of the line is dropped
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		// A write may end within a line, whose rest comes with the next one.
		part, rest, whole := bytes.Cut(p, []byte("\n"))
		l.add(part)
		p = rest
		if whole {
			l.end()
		}
	}
	return n, nil
}

// add appends to the line as much as it has room for.
func (l *lines) add(part []byte) {
	if room := maxLine - len(l.buf); len(part) > room {
		part, l.over = part[:room], true
	}
	l.buf = append(l.buf, part...)
}

// end reports the line, marked if it was cut, and begins another one.
func (l *lines) end() {
	if l.over {
		l.buf = append(l.buf, " …"...)
	}
	l.emit(bytes.TrimSuffix(l.buf, []byte("\r")))
	l.buf, l.over = l.buf[:0], false
}

// flush ends a last line without a line feed.
func (l *lines) flush() {
	if len(l.buf) > 0 {
		l.end()
	}
}

// tail keeps the last of what is written.
type tail struct{ buf []byte }

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	// A line longer than the tail replaces all of it.
	p = p[max(0, len(p)-maxError):]
	if over := len(t.buf) + len(p) - maxError; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	t.buf = append(t.buf, p...)
	return n, nil
}

// String is what was kept.
func (t *tail) String() string { return string(t.buf) }
