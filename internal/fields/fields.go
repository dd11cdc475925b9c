// Package fields appends and reads the fields of binary forms: varints, bytes preceded by their
// length, counts, flags. The forms themselves are drawn above their codecs.
//
// A [Reader] never panics and allocates nothing by what its input claims.
//
//	b := fields.Append(binary.AppendUvarint(nil, offset), name)
//
//	r := fields.Reader{Rest: b}
//	offset, name := r.Uvarint(), string(r.Bytes())
//	err := r.End()
package fields

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// Append appends the length of a field as a uvarint, and the field.
func Append[T ~string | ~[]byte](b []byte, field T) []byte {
	b = binary.AppendUvarint(b, uint64(len(field)))
	return append(b, field...)
}

// AppendBool appends one byte, 0 or 1.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// AppendTime appends a time as a varint of Unix nanoseconds, 0 for the zero time.
func AppendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return binary.AppendVarint(b, 0)
	}
	return binary.AppendVarint(b, t.UnixNano())
}

// Reader reads fields off the front of Rest. The first error sticks: every field read after it is
// zero, so callers check Err once, at the end.
type Reader struct {
	Rest []byte // what has not been read yet; nil after an error
	Err  error
}

// Fail sets the error, unless there is one already.
func (r *Reader) Fail(format string, args ...any) {
	if r.Err == nil {
		r.Err = fmt.Errorf(format, args...)
	}
	r.Rest = nil
}

// Take returns the next n bytes; their capacity ends with them.
func (r *Reader) Take(n int) []byte {
	if r.Err != nil || n < 0 || n > len(r.Rest) {
		r.Fail("%d bytes wanted, %d left", n, len(r.Rest))
		return nil
	}
	out := r.Rest[:n:n]
	r.Rest = r.Rest[n:]
	return out
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if p := r.Take(1); p != nil {
		return p[0]
	}
	return 0
}

// Bool reads what AppendBool appended.
func (r *Reader) Bool() bool {
	v := r.Byte()
	if v > 1 {
		r.Fail("flag %d is neither 0 nor 1", v)
	}
	return v == 1
}

// Form reads one byte that must be the one given.
func (r *Reader) Form(known byte) {
	if form := r.Byte(); r.Err == nil && form != known {
		r.Fail("form %d, this build knows %d", form, known)
	}
}

var errNumber = errors.New("a number is cut or too large")

// Uvarint reads an unsigned varint.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.Rest)
	if n <= 0 {
		r.fail(errNumber)
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Varint reads a signed varint.
func (r *Reader) Varint() int64 {
	v, n := binary.Varint(r.Rest)
	if n <= 0 {
		r.fail(errNumber)
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// fail is Fail for an error that is made already.
func (r *Reader) fail(err error) {
	if r.Err == nil {
		r.Err = err
	}
	r.Rest = nil
}

// Time reads what AppendTime appended.
func (r *Reader) Time() time.Time {
	if n := r.Varint(); n != 0 {
		return time.Unix(0, n).UTC()
	}
	return time.Time{}
}

// Count reads how many items follow, each of at least size bytes. It refuses a count that Rest
// cannot hold, before anything is allocated for it.
func (r *Reader) Count(size int) int {
	n := r.Uvarint()
	if n > uint64(len(r.Rest)/size) {
		r.Fail("%d items do not fit in %d bytes", n, len(r.Rest))
		return 0
	}
	return int(n)
}

// Bytes reads what Append appended. The result shares the input's memory.
func (r *Reader) Bytes() []byte { return r.Take(r.Count(1)) }

// End returns the error. Bytes after the last field are one.
func (r *Reader) End() error {
	if r.Err == nil && len(r.Rest) > 0 {
		r.Fail("%d bytes after the end", len(r.Rest))
	}
	return r.Err
}
