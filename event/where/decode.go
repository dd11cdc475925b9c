package where

import (
	"errors"
	"strconv"

	"github.com/ringrift/ringlog/event/canon"
)

// maxDepth bounds the nesting of a payload that is decoded. The gate of the log refuses less deep ones.
const maxDepth = 1000

// maxText is how long a text of a payload may be in a Language, in bytes.
const maxText = 4096

var (
	errNotObject = errors.New("the payload is not a JSON object")
	errDepth     = errors.New("the payload is nested too deep")
)

// decoder decodes a payload into what CEL and its callers take: nil, bool, string, int64 and float64, []any,
// map[string]any. It walks the text once and decodes only what is wanted of it.
type decoder struct {
	canon.Scanner
	inLanguage bool  // whole numbers are float64 as well, and longer texts than maxText are nil: as in a Language
	depth      int   // how many objects and arrays below the payload are open
	failure    error // says more than the error of the scanner, if it is set
}

// object decodes the members of the payload that are wanted into members; nil wants all. After an error, members has
// what was decoded before it.
func (d *decoder) object(members map[string]any, wanted map[string]bool) error {
	d.Space()
	if d.Peek() != '{' {
		return errNotObject
	}
	err := d.Members(func(key []byte) *canon.Error {
		// A member that no expression names is read past.
		if wanted != nil && !wanted[string(key)] {
			return d.skip()
		}
		name := string(key) // before the value is read: key is valid until then
		v, err := d.value()
		members[name] = v
		return err
	})
	// The scanner knows only that it was stopped.
	if d.failure != nil {
		return d.failure
	}
	if err != nil {
		return errNotObject
	}
	return nil
}

// value decodes the value at Pos.
func (d *decoder) value() (any, *canon.Error) {
	switch c := d.Peek(); c {
	case '"':
		text, err := d.Text()
		// A text that is too long is null, with the scanner's error if it has one.
		if d.inLanguage && len(text) > maxText {
			return nil, err
		}
		return string(text), err
	case '{', '[':
		return d.nested(c)
	case 't', 'f', 'n':
		// true, false or null.
		word, err := d.Word()
		if err != nil || word[0] == 'n' {
			return nil, err
		}
		return word[0] == 't', nil
	}
	literal, float, err := d.Number()
	if err != nil {
		return nil, err
	}
	// A whole number that no int64 holds becomes a float64, an infinite one beyond that, as in Python.
	if !float && !d.inLanguage {
		if n, err := strconv.ParseInt(string(literal), 10, 64); err == nil {
			return n, nil
		}
	}
	f, _ := strconv.ParseFloat(string(literal), 64)
	return f, nil
}

// nested decodes an object or an array.
func (d *decoder) nested(open byte) (v any, err *canon.Error) {
	d.depth++
	defer func() { d.depth-- }()
	// The error stops the scanner. It is reported as errDepth.
	if d.depth > maxDepth {
		d.failure = errDepth
		return nil, d.Unexpected("a value that is nested less deep")
	}
	if open == '{' {
		members := map[string]any{}
		err = d.Members(func(key []byte) *canon.Error {
			name := string(key)
			v, err := d.value()
			members[name] = v
			return err
		})
		return members, err
	}
	list := []any{}
	err = d.Elements(func(int) *canon.Error {
		v, err := d.value()
		list = append(list, v)
		return err
	})
	return list, err
}

// skip reads the value at Pos and keeps nothing of it.
func (d *decoder) skip() (err *canon.Error) {
	switch d.Peek() {
	case '"':
		_, err = d.Text()
		return err
	case 't', 'f', 'n':
		_, err = d.Word()
		return err
	// Nested values are decoded and dropped, which checks their depth as well.
	case '{', '[':
		_, err = d.value()
		return err
	}
	_, _, err = d.Number()
	return err
}
