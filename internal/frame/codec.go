package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

var (
	// ErrCorrupt is wrapped by every error about bytes that are not what an
	// encoder of this package would have written.
	ErrCorrupt = errors.New("corrupt frame")
	// ErrUnsupported is wrapped by errors about a version, kind or codec that
	// this build does not know; a newer build wrote it.
	ErrUnsupported = errors.New("unsupported frame")
	// ErrTooLarge is wrapped by errors about a packet that decompresses to more than
	// the caller allows.
	ErrTooLarge = errors.New("packet too large")
)

// maxString bounds every string of a frame but payloads, in bytes.
const maxString = 1 << 16

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendStrings(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendString(b, s)
	}
	return b
}

func appendBytes(b, field []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(field)))
	return append(b, field...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// decoder reads fields off the front of b. The first error sticks: every field read
// after it is zero, so that callers check err once, at the end.
type decoder struct {
	b    []byte
	err  error
	view string // when set, the same bytes as b at its start: strings then share them

	texts   bool // strings are checked for UTF-8
	notUTF8 bool // one of them is not
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
	}
	d.b = nil
}

// take returns the next n bytes; its capacity ends with them.
func (d *decoder) take(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.b) {
		d.fail("%d bytes wanted, %d left", n, len(d.b))
		return nil
	}
	out := d.b[:n:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) u8() byte {
	if p := d.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (d *decoder) bool() bool {
	v := d.u8()
	if v > 1 {
		d.fail("flag %d is neither 0 nor 1", v)
	}
	return v == 1
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("a number is cut or too large")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail("a number is cut or too large")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count reads how many items follow, each of at least size bytes. A count that the
// rest cannot hold is refused before anything is allocated for it.
func (d *decoder) count(size int) int {
	n := d.uvarint()
	if n > uint64(len(d.b)/size) {
		d.fail("%d items do not fit in %d bytes", n, len(d.b))
		return 0
	}
	return int(n)
}

func (d *decoder) bytes() []byte { return d.take(d.count(1)) }

// copied returns bytes that do not share memory with the input.
func (d *decoder) copied() []byte { return append([]byte(nil), d.bytes()...) }

func (d *decoder) string() string {
	p := d.bytes()
	if len(p) > maxString {
		d.fail("a string of %d bytes", len(p))
		return ""
	}
	if d.texts && !utf8.Valid(p) {
		d.notUTF8 = true
	}
	if d.view != "" && d.err == nil { // the string at the same place in view
		at := len(d.view) - len(d.b) - len(p)
		return d.view[at : at+len(p)]
	}
	return string(p)
}

func (d *decoder) strings() []string {
	n := d.count(1)
	if n == 0 {
		return nil
	}
	list := make([]string, 0, n)
	for range n {
		list = append(list, d.string())
	}
	return list
}

// end returns the first error; bytes after the last field are one.
func (d *decoder) end(what string) error {
	if d.err == nil && len(d.b) > 0 {
		d.fail("%d bytes after the end", len(d.b))
	}
	if d.err != nil {
		return fmt.Errorf("frame: %s: %w", what, d.err)
	}
	return nil
}
