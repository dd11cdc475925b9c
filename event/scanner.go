package event

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"
)

// scanner reads strict JSON (RFC 8259) with a place for every complaint. Its methods expect pos at the first byte of
// what they read and leave it behind the last.
type scanner struct {
	data []byte
	pos  int
	key  int    // where the member being read by members has its key
	buf  []byte // holds the text of a string with escapes
}

func (s *scanner) fail(pos int, reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...), Position: int64(pos)}
}

// unexpected complains of the byte at pos.
func (s *scanner) unexpected(want string) *Error {
	if s.pos >= len(s.data) {
		return s.fail(s.pos, ReasonInvalidJSON, "the input ends where %s is expected", want)
	}
	r, size := utf8.DecodeRune(s.data[s.pos:])
	if r == utf8.RuneError && size == 1 {
		return s.fail(s.pos, ReasonInvalidUTF8, "byte 0x%02x is not valid UTF-8", s.data[s.pos])
	}
	return s.fail(s.pos, ReasonInvalidJSON, "unexpected %q where %s is expected", r, want)
}

// peek is the byte at pos, 0 at the end.
func (s *scanner) peek() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// end complains of anything but white space up to the end.
func (s *scanner) end() *Error {
	if s.space(); s.pos < len(s.data) {
		return s.fail(s.pos, ReasonTrailingBytes, "%d bytes after the end of the JSON value", len(s.data)-s.pos)
	}
	return nil
}

// members reads an object. each is called with pos at a member's value and must read it; key is valid until then.
func (s *scanner) members(each func(key []byte) *Error) *Error {
	s.pos++
	if s.space(); s.peek() == '}' {
		s.pos++
		return nil
	}
	for {
		s.space()
		if s.peek() != '"' {
			return s.unexpected("a key in double quotes")
		}
		at := s.pos
		key, err := s.text()
		if err != nil {
			return err
		}
		if s.space(); s.peek() != ':' {
			return s.unexpected("':'")
		}
		s.pos++
		s.space()
		s.key = at
		if err := each(key); err != nil {
			return err
		}
		if more, err := s.next('}'); !more {
			return err
		}
	}
}

// elements reads an array. each is called with pos at an element and must read it.
func (s *scanner) elements(each func(i int) *Error) *Error {
	s.pos++
	if s.space(); s.peek() == ']' {
		s.pos++
		return nil
	}
	for i := 0; ; i++ {
		s.space()
		if err := each(i); err != nil {
			return err
		}
		if more, err := s.next(']'); !more {
			return err
		}
	}
}

// next reads a comma, or the end of the container.
func (s *scanner) next(end byte) (more bool, err *Error) {
	s.space()
	switch s.peek() {
	case ',':
		s.pos++
		return true, nil
	case end:
		s.pos++
		return false, nil
	}
	return false, s.unexpected("',' or '" + string(end) + "'")
}

// text reads a string and returns what it means, valid until the next call.
func (s *scanner) text() ([]byte, *Error) {
	start := s.pos + 1
	for i := start; i < len(s.data); {
		switch c := s.data[i]; {
		case c == '"':
			s.pos = i + 1
			return s.data[start:i], nil
		case c == '\\':
			s.buf = append(s.buf[:0], s.data[start:i]...)
			s.pos = i
			return s.escapedText(start - 1)
		case c < 0x20:
			return nil, s.controlError(i)
		case c < utf8.RuneSelf:
			i++
		default:
			r, size := utf8.DecodeRune(s.data[i:])
			if r == utf8.RuneError && size == 1 {
				return nil, s.fail(i, ReasonInvalidUTF8, "byte 0x%02x is not valid UTF-8", c)
			}
			i += size
		}
	}
	return nil, s.fail(len(s.data), ReasonInvalidJSON, "the input ends inside a string that began at byte %d", start-1)
}

// escapedText goes on with a string from its first escape on.
func (s *scanner) escapedText(start int) ([]byte, *Error) {
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return s.buf, nil
		case c == '\\':
			if err := s.escape(); err != nil {
				return nil, err
			}
		case c < 0x20:
			return nil, s.controlError(s.pos)
		case c < utf8.RuneSelf:
			s.buf = append(s.buf, c)
			s.pos++
		default:
			r, size := utf8.DecodeRune(s.data[s.pos:])
			if r == utf8.RuneError && size == 1 {
				return nil, s.fail(s.pos, ReasonInvalidUTF8, "byte 0x%02x is not valid UTF-8", c)
			}
			s.buf = append(s.buf, s.data[s.pos:s.pos+size]...)
			s.pos += size
		}
	}
	return nil, s.fail(s.pos, ReasonInvalidJSON, "the input ends inside a string that began at byte %d", start)
}

func (s *scanner) controlError(pos int) *Error {
	return s.fail(pos, ReasonInvalidJSON, "control character 0x%02x inside a string, write it as \\u%04x", s.data[pos], s.data[pos])
}

func (s *scanner) escape() *Error {
	if s.pos+1 >= len(s.data) {
		s.pos = len(s.data)
		return s.unexpected("an escape")
	}
	c := s.data[s.pos+1]
	if c == 'u' {
		return s.unicodeEscape()
	}
	meaning := unescape(c)
	if meaning == 0 {
		return s.fail(s.pos, ReasonInvalidJSON, "there is no escape \\%s", strconv.QuoteRune(rune(c)))
	}
	s.buf = append(s.buf, meaning)
	s.pos += 2
	return nil
}

// unescape is what a short escape means, 0 if it means nothing.
func unescape(c byte) byte {
	switch c {
	case '"', '\\', '/':
		return c
	case 'n':
		return '\n'
	case 't':
		return '\t'
	case 'r':
		return '\r'
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	}
	return 0
}

func (s *scanner) unicodeEscape() *Error {
	at := s.pos
	r, ok := hex4(s.data[min(at+2, len(s.data)):], false)
	if !ok {
		return s.fail(at, ReasonInvalidJSON, "\\u needs four hex digits")
	}
	s.pos += 6
	if !isSurrogate(r) {
		s.buf = utf8.AppendRune(s.buf, r)
		return nil
	}
	low, ok := rune(0), r < lowSurrogate && bytes.HasPrefix(s.data[s.pos:], []byte(`\u`))
	if ok {
		low, ok = hex4(s.data[s.pos+2:], false)
	}
	if !ok || low < lowSurrogate || low > maxSurrogate {
		e := s.fail(at, ReasonLoneSurrogate, "\\u%04x is half of a surrogate pair and stands alone", r)
		e.Remedy = "send the whole character, or replace it by \\ufffd"
		return e
	}
	s.pos += 6
	s.buf = utf8.AppendRune(s.buf, joinSurrogates(r, low))
	return nil
}

const (
	highSurrogate = 0xd800
	lowSurrogate  = 0xdc00
	maxSurrogate  = 0xdfff
)

func isSurrogate(r rune) bool { return highSurrogate <= r && r <= maxSurrogate }

func joinSurrogates(high, low rune) rune {
	return (high-highSurrogate)<<10 | (low - lowSurrogate) + 0x10000
}

// hex4 reads four hex digits.
func hex4(b []byte, lowerOnly bool) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case 'A' <= c && c <= 'F' && !lowerOnly:
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// number reads a number's literal.
func (s *scanner) number() (literal []byte, float bool, err *Error) {
	start := s.pos
	if s.peek() == '-' {
		s.pos++
	}
	if bytes.HasPrefix(s.data[s.pos:], []byte("Infinity")) {
		return nil, false, s.notANumber(start, "-Infinity")
	}
	if s.peek() == '0' {
		s.pos++
	} else if !s.digits() {
		return nil, false, s.unexpected("a digit")
	}
	if s.peek() == '.' {
		s.pos++
		float = true
		if !s.digits() {
			return nil, false, s.unexpected("a digit")
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.pos++
		float = true
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		if !s.digits() {
			return nil, false, s.unexpected("a digit")
		}
	}
	return s.data[start:s.pos], float, nil
}

func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.data) && isDigit(s.data[s.pos]) {
		s.pos++
	}
	return s.pos > start
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func (s *scanner) notANumber(pos int, literal string) *Error {
	e := s.fail(pos, ReasonNotANumber, "%s is not a JSON number", literal)
	e.Remedy = "send null or a string instead"
	return e
}

// word reads true, false or null, and refuses the literals Python prints for floats JSON has no form for.
func (s *scanner) word() ([]byte, *Error) {
	for _, w := range [...]string{"true", "false", "null"} {
		if s.skip(w) {
			return s.data[s.pos-len(w) : s.pos], nil
		}
	}
	for _, w := range [...]string{"NaN", "Infinity"} {
		if bytes.HasPrefix(s.data[s.pos:], []byte(w)) {
			return nil, s.notANumber(s.pos, w)
		}
	}
	return nil, s.unexpected("a value")
}

// skip reads exactly w, if it is there.
func (s *scanner) skip(w string) bool {
	if len(s.data)-s.pos < len(w) || string(s.data[s.pos:s.pos+len(w)]) != w {
		return false
	}
	s.pos += len(w)
	return true
}

// kind names the value at pos for a complaint.
func (s *scanner) kind() string {
	switch c := s.peek(); {
	case c == '{':
		return "an object"
	case c == '[':
		return "an array"
	case c == '"':
		return "a string"
	case c == 't' || c == 'f':
		return "a boolean"
	case c == 'n':
		return "null"
	case slices.Contains([]byte("-0123456789"), c):
		return "a number"
	}
	return "no JSON value"
}
