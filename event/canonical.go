package event

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxIntDigits is the longest integer Python reads or prints without being told otherwise
// (sys.int_info.default_max_str_digits).
const maxIntDigits = 4300

// Canonicalize returns the canonical form of a payload, the payload itself if it already is. The payload must be one
// JSON object within the limits.
//
// The canonical form is what Python's json.dumps(json.loads(payload), sort_keys=True) prints:
//
//	{"a": [1, 2.5, 1e+16], "b": "caf\u00e9 \ud83d\ude00"}
//
// keys in code point order, each once; ": " and ", "; everything outside printable ASCII as \n \r \t \b \f or \uxxxx
// in lower case; integers as written, of any size; floats as Python's repr.
func Canonicalize(payload []byte, lim Limits) ([]byte, error) {
	lim = lim.orDefault()
	if v := (verifier{data: payload, maxDepth: lim.Depth}); v.payload() && len(payload) <= lim.EventBytes {
		return payload, nil
	}
	out, err := canonicalPayload(payload, lim)
	if err != nil {
		return nil, err
	}
	return out, nil
}

func canonicalPayload(payload []byte, lim Limits) ([]byte, *Error) {
	c := canonicalizer{scanner: scanner{data: payload}, maxDepth: lim.Depth, maxBytes: lim.EventBytes}
	c.space()
	out, err := c.payload()
	if err == nil {
		err = c.end()
	}
	if err != nil {
		return nil, err.under("payload")
	}
	return out, nil
}

// canonicalizer rewrites JSON into canonical form.
type canonicalizer struct {
	scanner
	maxDepth int
	maxBytes int
	depth    int
	out      []byte
	open     []member // of all objects around pos; each object's are contiguous, in input order
	keys     []byte   // texts of the open members' keys
	swap     []byte
}

// member is one member of an open object: where its key's text is in keys, and where it is in out.
type member struct {
	keyStart, keyEnd int
	start, end       int
	pos              int // of the key in the input
}

func (c *canonicalizer) keyOf(m member) []byte { return c.keys[m.keyStart:m.keyEnd] }

// payload reads an object and returns its canonical form in memory of its own.
func (c *canonicalizer) payload() ([]byte, *Error) {
	start, kind := c.pos, c.kind()
	c.reserve()
	if err := c.value(); err != nil {
		if err.Reason == ReasonTooLarge && err.Position < 0 {
			err.Field = "" // it is the whole that is too large
		}
		return nil, err
	}
	if kind != "an object" {
		e := c.fail(start, ReasonInvalidPayload, "a payload is a JSON object, not %s", kind)
		e.Remedy = "wrap it, as in {\"value\": …}; {} for none"
		return nil, e
	}
	if len(c.out) > c.maxBytes {
		return nil, c.tooLarge()
	}
	return bytes.Clone(c.out), nil
}

// reserve makes room for a payload of common size, so that one costs a few allocations and not dozens.
func (c *canonicalizer) reserve() {
	if c.out == nil {
		c.out = make([]byte, 0, min(len(c.data)-c.pos+64, 4096))
		c.open = make([]member, 0, 16)
		c.keys = make([]byte, 0, 160)
	}
	c.out = c.out[:0]
}

func (c *canonicalizer) tooLarge() *Error {
	return fieldError(ReasonTooLarge, "", "%d bytes or more in canonical form, the limit is %d", len(c.out), c.maxBytes)
}

func (c *canonicalizer) value() *Error {
	if len(c.out) > c.maxBytes {
		return c.tooLarge()
	}
	switch ch := c.peek(); {
	case ch == '"':
		text, err := c.text()
		if err != nil {
			return err
		}
		c.out = appendQuoted(c.out, text)
		return nil
	case ch == '{':
		return c.nested(c.object)
	case ch == '[':
		return c.nested(c.array)
	case ch == '-' || isDigit(ch):
		return c.canonicalNumber()
	}
	word, err := c.word()
	c.out = append(c.out, word...)
	return err
}

func (c *canonicalizer) nested(read func() *Error) *Error {
	if c.depth++; c.depth > c.maxDepth {
		return c.fail(c.pos, ReasonTooDeep, "nested deeper than the limit of %d levels", c.maxDepth)
	}
	err := read()
	c.depth--
	return err
}

func (c *canonicalizer) array() *Error {
	c.out = append(c.out, '[')
	err := c.elements(func(i int) *Error {
		if i > 0 {
			c.out = append(c.out, ", "...)
		}
		if err := c.value(); err != nil {
			return err.under("[" + strconv.Itoa(i) + "]")
		}
		return nil
	})
	c.out = append(c.out, ']')
	return err
}

func (c *canonicalizer) object() *Error {
	first, firstKey, sorted := len(c.open), len(c.keys), true
	c.out = append(c.out, '{')
	err := c.members(func(key []byte) *Error {
		if n := len(c.open); n > first {
			c.out = append(c.out, ", "...)
			sorted = sorted && bytes.Compare(c.keyOf(c.open[n-1]), key) < 0
		}
		m := member{keyStart: len(c.keys), keyEnd: len(c.keys) + len(key), start: len(c.out), pos: c.key}
		c.keys = append(c.keys, key...)
		c.out = append(appendQuoted(c.out, key), ": "...)
		if err := c.value(); err != nil {
			return err.under(pathStep(c.keyOf(m)))
		}
		m.end = len(c.out)
		c.open = append(c.open, m)
		return nil
	})
	if err == nil && !sorted {
		err = c.reorder(c.open[first:])
	}
	c.out = append(c.out, '}')
	c.open, c.keys = c.open[:first], c.keys[:firstKey]
	return err
}

// reorder sorts the members of the object that ends at the end of out. Code point order is UTF-8's byte order.
func (c *canonicalizer) reorder(members []member) *Error {
	start := members[0].start
	slices.SortFunc(members, func(a, b member) int {
		if order := bytes.Compare(c.keyOf(a), c.keyOf(b)); order != 0 {
			return order
		}
		return a.pos - b.pos
	})
	c.swap = append(c.swap[:0], c.out[start:]...)
	c.out = c.out[:start]
	for i, m := range members {
		if i > 0 {
			if bytes.Equal(c.keyOf(members[i-1]), c.keyOf(m)) {
				return c.fail(m.pos, ReasonDuplicateKey, "the key stands twice in its object").under(pathStep(c.keyOf(m)))
			}
			c.out = append(c.out, ", "...)
		}
		c.out = append(c.out, c.swap[m.start-start:m.end-start]...)
	}
	return nil
}

// pathStep prints a key for an error's path.
func pathStep(key []byte) string {
	const longest = 64
	s := string(key)
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:longest], "") + "…"
	}
	if s == "" || strings.ContainsAny(s, `.[]"`) || indexControl(s) >= 0 {
		return strconv.Quote(s)
	}
	return s
}

func (c *canonicalizer) canonicalNumber() *Error {
	start := c.pos
	literal, float, err := c.number()
	switch {
	case err != nil:
		return err
	case float:
		return c.float(start, literal)
	case len(bytes.TrimPrefix(literal, []byte("-"))) > maxIntDigits:
		e := c.fail(start, ReasonTooLarge, "an integer of %d digits, the limit is %d", len(literal), maxIntDigits)
		e.Remedy = "send it as a string"
		return e
	case string(literal) == "-0":
		literal = literal[1:]
	}
	c.out = append(c.out, literal...)
	return nil
}

func (c *canonicalizer) float(start int, literal []byte) *Error {
	f, err := strconv.ParseFloat(string(literal), 64)
	if err != nil {
		e := c.fail(start, ReasonNotANumber, "%s is beyond the largest double, Python reads it as Infinity", clip(literal))
		e.Remedy = "send null or a string instead"
		return e
	}
	c.out = appendFloat(c.out, f)
	return nil
}

func clip(literal []byte) string {
	if len(literal) > 32 {
		return string(literal[:32]) + "…"
	}
	return string(literal)
}

// appendFloat prints a float as Python's repr does: the shortest digits that round-trip, an exponent below 1e-4 and
// from 1e16 on, ".0" where it would read as an integer.
func appendFloat(dst []byte, f float64) []byte {
	if abs := math.Abs(f); abs != 0 && (abs < 1e-4 || abs >= 1e16) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	if bytes.IndexByte(dst[start:], '.') < 0 {
		dst = append(dst, ".0"...)
	}
	return dst
}

// plain marks the bytes a canonical string holds as they are.
var plain = func() (table [256]bool) {
	for c := byte(' '); c <= '~'; c++ {
		table[c] = c != '"' && c != '\\'
	}
	return table
}()

// appendQuoted prints text as a canonical JSON string.
func appendQuoted[T string | []byte](dst []byte, text T) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(text); {
		run := i
		for run < len(text) && plain[text[run]] {
			run++
		}
		dst = append(dst, text[i:run]...)
		if i = run; i == len(text) {
			break
		}
		if text[i] < utf8.RuneSelf {
			dst = appendEscape(dst, rune(text[i]))
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(string(text[i:min(i+utf8.UTFMax, len(text))]))
		dst = appendEscape(dst, r)
		i += size
	}
	return append(dst, '"')
}

func appendEscape(dst []byte, r rune) []byte {
	if short := shortEscape(r); short != 0 {
		return append(dst, '\\', short)
	}
	if r >= 0x10000 {
		r -= 0x10000
		dst = appendHex4(dst, highSurrogate+r>>10)
		r = lowSurrogate + r&0x3ff
	}
	return appendHex4(dst, r)
}

func appendHex4(dst []byte, r rune) []byte {
	const digits = "0123456789abcdef"
	return append(dst, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}

// shortEscape is the letter of a two-byte escape, 0 if there is none.
func shortEscape(r rune) byte {
	switch r {
	case '"', '\\':
		return byte(r)
	case '\n':
		return 'n'
	case '\r':
		return 'r'
	case '\t':
		return 't'
	case '\b':
		return 'b'
	case '\f':
		return 'f'
	}
	return 0
}
