package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/ringrift/ringlog/internal/fields"
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

// appendStrings appends a list of strings, after its length.
func appendStrings(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = fields.Append(b, s)
	}
	return b
}

// decoder is a reader of fields that also knows those of this package.
type decoder struct {
	fields.Reader
	view string // when set, the same bytes as Rest at its start: strings then share them

	texts   bool // strings are checked for UTF-8
	notUTF8 bool // one of them is not

	kinds *[256]kind // of commands inside commands; the table cannot name itself
}

// copied returns bytes that do not share memory with the input.
func (d *decoder) copied() []byte { return append([]byte(nil), d.Bytes()...) }

// string reads a string of at most maxString bytes, which shares memory with view where that is set.
func (d *decoder) string() string {
	p := d.Bytes()
	if len(p) > maxString {
		d.Fail("a string of %d bytes", len(p))
		return ""
	}
	if d.texts && !utf8.Valid(p) {
		d.notUTF8 = true
	}
	if d.view != "" && d.Err == nil { // the string at the same place in view
		at := len(d.view) - len(d.Rest) - len(p)
		return d.view[at : at+len(p)]
	}
	return string(p)
}

// strings reads what appendStrings wrote; an empty list is nil.
func (d *decoder) strings() []string {
	n := d.Count(1)
	if n == 0 {
		return nil
	}
	// Count has bounded n by what is left of the input.
	list := make([]string, 0, n)
	for range n {
		list = append(list, d.string())
	}
	return list
}

// end returns the first error; bytes after the last field are one.
func (d *decoder) end(what string) error {
	d.End()
	return d.failure(what)
}

// failure is end for a part that more may follow.
func (d *decoder) failure(what string) error {
	if d.Err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w: %w", what, ErrCorrupt, d.Err)
}
