package canon

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Scanner reads strict JSON (RFC 8259) and knows the position of every error. Its methods expect Pos at the first byte
// of what they read and leave it after the last.
// It keeps no state but Pos, so a caller may set Pos back and read again.
type Scanner struct {
	Data []byte
	Pos  int
	Key  int    // position of the key of the member that Members is reading
	buf  []byte // holds the text of a string with escapes
}

// Fail returns an Error at a position.
func (s *Scanner) Fail(pos int, reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...), Position: int64(pos)}
}

// Unexpected returns an Error about the byte at Pos.
func (s *Scanner) Unexpected(want string) *Error {
	if s.Pos >= len(s.Data) {
		return s.Fail(s.Pos, ReasonInvalidJSON, "the input ends where %s is expected", want)
	}
	// DecodeRune returns RuneError also for a valid U+FFFD, which has size 3.
	r, size := utf8.DecodeRune(s.Data[s.Pos:])
	if r == utf8.RuneError && size == 1 {
		return s.Fail(s.Pos, ReasonInvalidUTF8, "byte 0x%02x is not valid UTF-8", s.Data[s.Pos])
	}
	return s.Fail(s.Pos, ReasonInvalidJSON, "unexpected %q where %s is expected", r, want)
}

// Peek returns the byte at Pos, 0 at the end.
func (s *Scanner) Peek() byte {
	if s.Pos < len(s.Data) {
		return s.Data[s.Pos]
	}
	return 0
}

// Space skips white space.
func (s *Scanner) Space() {
	for s.Pos < len(s.Data) {
		switch s.Data[s.Pos] {
		case ' ', '\t', '\n', '\r':
			s.Pos++
		default:
			return
		}
	}
}

// End reports anything but white space between Pos and the end of the data.
func (s *Scanner) End() *Error {
	s.Space()
	if s.Pos < len(s.Data) {
		return s.Fail(s.Pos, ReasonTrailingBytes, "%d bytes after the end of the JSON value", len(s.Data)-s.Pos)
	}
	return nil
}

// Members reads an object. It calls each with Pos at the value of a member, which each must read; key is valid until
// then.
func (s *Scanner) Members(each func(key []byte) *Error) *Error {
	// The caller has seen the brace.
	s.Pos++ // '{'
	s.Space()
	if s.Peek() == '}' {
		s.Pos++
		return nil
	}
	for {
		// The key and its colon.
		s.Space()
		if s.Peek() != '"' {
			return s.Unexpected("a key in double quotes")
		}
		at := s.Pos
		key, err := s.Text()
		if err != nil {
			return err
		}
		s.Space()
		if s.Peek() != ':' {
			return s.Unexpected("':'")
		}
		s.Pos++
		s.Space()
		s.Key = at
		// The value, then a comma or the end.
		if err := each(key); err != nil {
			return err
		}
		if more, err := s.next('}'); !more {
			return err
		}
	}
}

// Elements reads an array. It calls each with Pos at an element, which each must read.
func (s *Scanner) Elements(each func(i int) *Error) *Error {
	// The caller has seen the bracket.
	s.Pos++ // '['
	s.Space()
	if s.Peek() == ']' {
		s.Pos++
		return nil
	}
	for i := 0; ; i++ {
		s.Space()
		if err := each(i); err != nil {
			return err
		}
		if more, err := s.next(']'); !more {
			return err
		}
	}
}

// next reads a comma, or the end of the container.
// An error is about the byte that is neither.
func (s *Scanner) next(end byte) (more bool, err *Error) {
	s.Space()
	// White space before the comma is read, that after it is left to the caller.
	switch s.Peek() {
	case ',':
		s.Pos++
		return true, nil
	case end:
		s.Pos++
		return false, nil
	}
	return false, s.Unexpected("',' or '" + string(end) + "'")
}

// Text reads a string and returns its meaning, which is valid until the next call: a part of Data if the string has
// no escape.
func (s *Scanner) Text() ([]byte, *Error) {
	// The common case needs no copy: a string without an escape is a part of the input.
	start := s.Pos + 1
	for i := start; i < len(s.Data); {
		switch c := s.Data[i]; {
		case c == '"':
			s.Pos = i + 1
			return s.Data[start:i], nil
		case c == '\\':
			// From the first escape on the meaning is no longer a part of the input.
			s.buf = append(s.buf[:0], s.Data[start:i]...)
			s.Pos = i
			return s.escapedText(start - 1)
		case c < 0x20:
			return nil, s.controlError(i)
		case c < utf8.RuneSelf:
			i++
		default:
			r, size := utf8.DecodeRune(s.Data[i:])
			if r == utf8.RuneError && size == 1 {
				return nil, s.Fail(i, ReasonInvalidUTF8, "byte 0x%02x is not valid UTF-8", c)
			}
			i += size
		}
	}
	return nil, s.Fail(len(s.Data), ReasonInvalidJSON, "the input ends inside a string that began at byte %d", start-1)
}

// escapedText reads the rest of a string into buf, from its first escape on.
func (s *Scanner) escapedText(start int) ([]byte, *Error) {
	// The same cases as in Text, except that each character is copied.
	for s.Pos < len(s.Data) {
		switch c := s.Data[s.Pos]; {
		case c == '"':
			s.Pos++
			return s.buf, nil
		case c == '\\':
			if err := s.escape(); err != nil {
				return nil, err
			}
		case c < 0x20:
			return nil, s.controlError(s.Pos)
		case c < utf8.RuneSelf:
			s.buf = append(s.buf, c)
			s.Pos++
		default:
			r, size := utf8.DecodeRune(s.Data[s.Pos:])
			if r == utf8.RuneError && size == 1 {
				return nil, s.Fail(s.Pos, ReasonInvalidUTF8, "byte 0x%02x is not valid UTF-8", c)
			}
			s.buf = append(s.buf, s.Data[s.Pos:s.Pos+size]...)
			s.Pos += size
		}
	}
	return nil, s.Fail(s.Pos, ReasonInvalidJSON, "the input ends inside a string that began at byte %d", start)
}

// controlError returns the error for an unescaped control character at pos.
func (s *Scanner) controlError(pos int) *Error {
	c := s.Data[pos]
	return s.Fail(pos, ReasonInvalidJSON, "control character 0x%02x inside a string, write it as \\u%04x", c, c)
}

// escape appends the meaning of the escape at Pos to buf.
func (s *Scanner) escape() *Error {
	// The backslash is the last byte.
	if s.Pos+1 >= len(s.Data) {
		s.Pos = len(s.Data)
		return s.Unexpected("an escape")
	}
	// Six bytes or twelve for \u, two for all others.
	c := s.Data[s.Pos+1]
	if c == 'u' {
		return s.unicodeEscape()
	}
	meaning := unescape(c)
	if meaning == 0 {
		return s.Fail(s.Pos, ReasonInvalidJSON, "there is no escape \\%s", strconv.QuoteRune(rune(c)))
	}
	s.buf = append(s.buf, meaning)
	s.Pos += 2
	return nil
}

// unescape returns the meaning of a two-byte escape by its letter, 0 if there is no such escape.
func unescape(c byte) byte {
	// The meaning is a single byte for each of them.
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

// unicodeEscape appends the character of a \uxxxx escape, or of two that form a surrogate pair.
func (s *Scanner) unicodeEscape() *Error {
	at := s.Pos
	// At the end of the data there are fewer than four digits, which hex4 refuses.
	r, ok := hex4(s.Data[min(at+2, len(s.Data)):], false)
	if !ok {
		return s.Fail(at, ReasonInvalidJSON, "\\u needs four hex digits")
	}
	// The backslash, the u and four digits.
	s.Pos += 6
	if !isSurrogate(r) {
		s.buf = utf8.AppendRune(s.buf, r)
		return nil
	}
	// The first half of a pair must be followed by the second.
	// A low half alone is refused by the same test: it is not below lowSurrogate.
	low, ok := rune(0), r < lowSurrogate && bytes.HasPrefix(s.Data[s.Pos:], []byte(`\u`))
	if ok {
		low, ok = hex4(s.Data[s.Pos+2:], false)
	}
	if !ok || low < lowSurrogate || low > maxSurrogate {
		e := s.Fail(at, ReasonLoneSurrogate, "\\u%04x is half of a surrogate pair without the other half", r)
		e.Remedy = "send the whole character, or replace it by \\ufffd"
		return e
	}
	s.Pos += 6
	s.buf = utf8.AppendRune(s.buf, joinSurrogates(r, low))
	return nil
}

// UTF-16 writes a character beyond U+FFFF as a high half followed by a low half.
const (
	highSurrogate = 0xd800
	lowSurrogate  = 0xdc00
	maxSurrogate  = 0xdfff
)

// isSurrogate reports whether r is half of a surrogate pair, which is not a character of its own.
func isSurrogate(r rune) bool { return highSurrogate <= r && r <= maxSurrogate }

// joinSurrogates returns the character that a surrogate pair means.
func joinSurrogates(high, low rune) rune {
	// Each half has ten bits of the character, less 0x10000.
	return (high-highSurrogate)<<10 | (low - lowSurrogate) + 0x10000
}

// hex4 reads four hex digits; lowerOnly refuses A to F.
func hex4(b []byte, lowerOnly bool) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	// Four bits a digit.
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

// Number reads a number and returns its literal. float reports a fraction or an exponent.
func (s *Scanner) Number() (literal []byte, float bool, err *Error) {
	// The literal is returned as it is spelled: callers decide how exact they read it.
	start := s.Pos
	if s.Peek() == '-' {
		s.Pos++
	}
	// Python prints -Infinity for a float, which JSON cannot express.
	if bytes.HasPrefix(s.Data[s.Pos:], []byte("Infinity")) {
		return nil, false, s.notANumber(start, "-Infinity")
	}
	// The integer part is 0, or has no leading 0.
	if s.Peek() == '0' {
		s.Pos++
	} else if !s.digits() {
		return nil, false, s.Unexpected("a digit")
	}
	// A fraction and an exponent, each with at least one digit.
	if s.Peek() == '.' {
		s.Pos++
		float = true
		if !s.digits() {
			return nil, false, s.Unexpected("a digit")
		}
	}
	if c := s.Peek(); c == 'e' || c == 'E' {
		s.Pos++
		float = true
		if c := s.Peek(); c == '+' || c == '-' {
			s.Pos++
		}
		if !s.digits() {
			return nil, false, s.Unexpected("a digit")
		}
	}
	return s.Data[start:s.Pos], float, nil
}

// digits skips decimal digits and reports whether there was one.
func (s *Scanner) digits() bool {
	start := s.Pos
	for s.Pos < len(s.Data) && isDigit(s.Data[s.Pos]) {
		s.Pos++
	}
	return s.Pos > start
}

// isDigit reports whether c is a decimal digit.
func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// notANumber returns the error for a float that JSON cannot express.
func (s *Scanner) notANumber(pos int, literal string) *Error {
	e := s.Fail(pos, ReasonNotANumber, "%s is not a JSON number", literal)
	e.Remedy = "send null or a string instead"
	return e
}

// Word reads true, false or null. It names the literals that Python prints for floats that JSON cannot express.
func (s *Scanner) Word() ([]byte, *Error) {
	// What follows a word is for the caller to check: it may be a comma, a bracket or the end.
	for _, w := range [...]string{"true", "false", "null"} {
		if s.skip(w) {
			return s.Data[s.Pos-len(w) : s.Pos], nil
		}
	}
	// What json.dumps prints for float("nan") and float("inf") gets an error that says so.
	for _, w := range [...]string{"NaN", "Infinity"} {
		if bytes.HasPrefix(s.Data[s.Pos:], []byte(w)) {
			return nil, s.notANumber(s.Pos, w)
		}
	}
	return nil, s.Unexpected("a value")
}

// at reports whether the input continues with w.
func (s *Scanner) at(w string) bool {
	return len(s.Data)-s.Pos >= len(w) && string(s.Data[s.Pos:s.Pos+len(w)]) == w
}

// skip reads w if the input continues with it.
func (s *Scanner) skip(w string) bool {
	if !s.at(w) {
		return false
	}
	s.Pos += len(w)
	return true
}

// Kind names the value at Pos for an error message.
func (s *Scanner) Kind() string {
	switch c := s.Peek(); {
	case c == '{':
		return "an object"
	case c == '[':
		return "an array"
	case c == '"':
		return "a string"
	case s.at("true"), s.at("false"):
		return "a boolean"
	case s.at("null"):
		return "null"
	case slices.Contains([]byte("-0123456789"), c):
		return "a number"
	}
	return "no JSON value"
}
