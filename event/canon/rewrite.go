package canon

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// MaxIntDigits is the longest integer that Python reads or prints by default (sys.int_info.default_max_str_digits).
const MaxIntDigits = 4300

// Rewrite returns the canonical form of a payload, which must be one JSON object nested at most maxDepth levels deep,
// and at most maxBytes long in canonical form. The result shares no memory with the payload. Paths of errors begin
// with "payload".
func Rewrite(payload []byte, maxDepth, maxBytes int) ([]byte, *Error) {
	r := Rewriter{Scanner: Scanner{Data: payload}, MaxDepth: maxDepth, MaxBytes: maxBytes}
	r.Space()
	out, err := r.Payload()
	// Nothing may follow the object.
	if err == nil {
		err = r.End()
	}
	if err != nil {
		return nil, err.Under("payload")
	}
	return out, nil
}

// Rewriter is a Scanner that can print what it reads in canonical form.
// It may read several values of one input, one after the other, and keeps its memory from one to the next.
type Rewriter struct {
	Scanner
	MaxDepth int // levels of nesting; the outermost object is level 1
	MaxBytes int // of a payload in canonical form

	// How many objects and arrays are open at Pos.
	depth int
	out   []byte   // what was printed
	open  []member // of all objects around Pos; each object's members are contiguous, in input order
	keys  []byte   // texts of the keys of the open members
	swap  []byte   // copy of the part of out that reorder sorts
}

// member is one member of an open object.
type member struct {
	keyStart, keyEnd int // where the text of its key is in keys
	start, end       int // where the member is in out
	pos              int // position of its key in the input
}

// keyOf returns the text of a member's key.
func (r *Rewriter) keyOf(m member) []byte { return r.keys[m.keyStart:m.keyEnd] }

// Payload reads an object and returns its canonical form, in memory of its own.
func (r *Rewriter) Payload() ([]byte, *Error) {
	// The kind is noted before the value is read, for the error below.
	start, kind := r.Pos, r.Kind()
	r.reserve()
	if err := r.value(); err != nil {
		if err.Reason == ReasonTooLarge && err.Position < 0 {
			err.Field = "" // the payload as a whole is too large, not the member that exceeded the limit
		}
		return nil, err
	}
	// Only now, so an error inside another value, such as NaN, is reported first.
	if kind != "an object" {
		e := r.Fail(start, ReasonInvalidPayload, "a payload is a JSON object, not %s", kind)
		e.Remedy = "wrap it, as in {\"value\": …}; {} for none"
		return nil, e
	}
	// value checks before each value, so what the last one added is checked here.
	if len(r.out) > r.MaxBytes {
		return nil, r.tooLarge()
	}
	// out is used for the next value.
	return bytes.Clone(r.out), nil
}

// Skip reads a value and checks it like one that is kept.
func (r *Rewriter) Skip() *Error {
	// What is printed is dropped; reading checks syntax, depth and size all the same.
	r.out = r.out[:0]
	return r.value()
}

// reserve allocates for a payload of common size at once, instead of growing dozens of times.
func (r *Rewriter) reserve() {
	if r.out == nil {
		// The canonical form is usually a little longer than the input. For a large payload out grows.
		r.out = make([]byte, 0, min(len(r.Data)-r.Pos+64, 4096))
		r.open = make([]member, 0, 16)
		r.keys = make([]byte, 0, 160)
	}
	r.out = r.out[:0]
}

// tooLarge returns the error for a payload beyond MaxBytes. It has no position, since no single byte is at fault.
func (r *Rewriter) tooLarge() *Error {
	return FieldError(ReasonTooLarge, "", "%d bytes or more in canonical form, the limit is %d", len(r.out), r.MaxBytes)
}

// value reads one value and appends its canonical form to out.
func (r *Rewriter) value() *Error {
	// Checked at each value, so out never grows far beyond the limit.
	if len(r.out) > r.MaxBytes {
		return r.tooLarge()
	}
	// Strings, numbers and words are printed at once; objects and arrays print their parts.
	switch ch := r.Peek(); {
	case ch == '"':
		text, err := r.Text()
		if err != nil {
			return err
		}
		r.out = AppendQuoted(r.out, text)
		return nil
	case ch == '{':
		return r.nested(r.object)
	case ch == '[':
		return r.nested(r.array)
	case ch == '-' || isDigit(ch):
		return r.canonicalNumber()
	}
	// Word refuses everything but true, false and null.
	word, err := r.Word()
	r.out = append(r.out, word...)
	return err
}

// nested reads an object or an array one level deeper.
// depth stays raised after an error, which ends the reading in any case.
func (r *Rewriter) nested(read func() *Error) *Error {
	r.depth++
	if r.depth > r.MaxDepth {
		return r.Fail(r.Pos, ReasonTooDeep, "nested deeper than the limit of %d levels", r.MaxDepth)
	}
	err := read()
	r.depth--
	return err
}

// array reads an array and appends its canonical form: elements separated by a comma and a space.
func (r *Rewriter) array() *Error {
	// The canonical form has a space after each comma.
	r.out = append(r.out, '[')
	err := r.Elements(func(i int) *Error {
		if i > 0 {
			r.out = append(r.out, ", "...)
		}
		// An error names the element, so callers get the whole path.
		if err := r.value(); err != nil {
			return err.Under("[" + strconv.Itoa(i) + "]")
		}
		return nil
	})
	r.out = append(r.out, ']')
	return err
}

// object prints the members in input order and remembers where each begins and ends; only if they were not in
// canonical order are they sorted afterwards.
func (r *Rewriter) object() *Error {
	// What is open belongs to the objects around this one, and is as it was when this one ends.
	first, firstKey, sorted := len(r.open), len(r.keys), true
	r.out = append(r.out, '{')
	err := r.Members(func(key []byte) *Error {
		// Compare with the member before. Equal keys count as unsorted: reorder reports the duplicate.
		if n := len(r.open); n > first {
			r.out = append(r.out, ", "...)
			sorted = sorted && bytes.Compare(r.keyOf(r.open[n-1]), key) < 0
		}
		// Copy the key, which is only valid until the value is read.
		m := member{keyStart: len(r.keys), keyEnd: len(r.keys) + len(key), start: len(r.out), pos: r.Key}
		r.keys = append(r.keys, key...)
		// Print the member. It joins the open ones after its value, which adds and removes members of its own.
		r.out = append(AppendQuoted(r.out, key), ": "...)
		if err := r.value(); err != nil {
			return err.Under(PathStep(r.keyOf(m)))
		}
		m.end = len(r.out)
		// Doubled: append grows a long list by a quarter at a time, and allocates five times its size until then.
		if len(r.open) == cap(r.open) {
			r.open = slices.Grow(r.open, len(r.open)+8)
		}
		r.open = append(r.open, m)
		return nil
	})
	if err == nil && !sorted {
		err = r.reorder(r.open[first:])
	}
	r.out = append(r.out, '}')
	// Without the members of this object; their memory is used for the next.
	r.open, r.keys = r.open[:first], r.keys[:firstKey]
	return err
}

// reorder sorts the members of the object that ends at the end of out.
func (r *Rewriter) reorder(members []member) *Error {
	start := members[0].start
	// Code point order is the byte order of UTF-8. Of equal keys the later one in the input comes second, so the
	// error has its position.
	slices.SortFunc(members, func(a, b member) int {
		if order := bytes.Compare(r.keyOf(a), r.keyOf(b)); order != 0 {
			return order
		}
		return a.pos - b.pos
	})
	// Print the members again in their new order, from a copy.
	r.swap = append(r.swap[:0], r.out[start:]...)
	r.out = r.out[:start]
	for i, m := range members {
		if i > 0 {
			if bytes.Equal(r.keyOf(members[i-1]), r.keyOf(m)) {
				err := r.Fail(m.pos, ReasonDuplicateKey, "the key occurs twice in its object")
				return err.Under(PathStep(r.keyOf(m)))
			}
			r.out = append(r.out, ", "...)
		}
		r.out = append(r.out, r.swap[m.start-start:m.end-start]...)
	}
	return nil
}

// canonicalNumber reads a number. Integers keep their literal, whatever their size; floats get Python's repr.
func (r *Rewriter) canonicalNumber() *Error {
	start := r.Pos
	literal, float, err := r.Number()
	if err != nil {
		return err
	}
	if float {
		return r.float(start, literal)
	}
	// The sign does not count as a digit, for Python's limit.
	if len(bytes.TrimPrefix(literal, []byte("-"))) > MaxIntDigits {
		e := r.Fail(start, ReasonTooLarge, "an integer of %d digits, the limit is %d", len(literal), MaxIntDigits)
		e.Remedy = "send it as a string"
		return e
	}
	if string(literal) == "-0" {
		literal = literal[1:] // Python's integers have no negative zero
	}
	r.out = append(r.out, literal...)
	return nil
}

// float appends the canonical form of a number with a fraction or an exponent, which began at start.
func (r *Rewriter) float(start int, literal []byte) *Error {
	// ParseFloat fails only beyond the largest double: the literal's form was checked.
	f, err := strconv.ParseFloat(string(literal), 64)
	if err != nil {
		e := r.Fail(start, ReasonNotANumber,
			"%s is beyond the largest double, Python reads it as Infinity", Clip(literal))
		e.Remedy = "send null or a string instead"
		return e
	}
	r.out = appendFloat(r.out, f)
	return nil
}

// appendFloat prints a float as Python's repr does: the shortest digits that round-trip, an exponent below 1e-4 and
// from 1e16 on, ".0" where it would otherwise read as an integer.
func appendFloat(dst []byte, f float64) []byte {
	// Go prints the exponent with two digits at least, as Python does.
	if abs := math.Abs(f); abs != 0 && (abs < 1e-4 || abs >= 1e16) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	// Only what is appended here is looked at: dst may end with another number.
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	if bytes.IndexByte(dst[start:], '.') < 0 {
		dst = append(dst, ".0"...)
	}
	return dst
}

// plain marks the bytes that a canonical string contains unescaped.
var plain = func() (table [256]bool) {
	for c := byte(' '); c <= '~'; c++ {
		table[c] = c != '"' && c != '\\'
	}
	return table
}()

// AppendQuoted appends text as a canonical JSON string. Bytes that are not UTF-8 become \ufffd.
func AppendQuoted[T string | []byte](dst []byte, text T) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(text); {
		// Copy what needs no escape at once.
		run := i
		for run < len(text) && plain[text[run]] {
			run++
		}
		dst = append(dst, text[i:run]...)
		i = run
		if i == len(text) {
			break
		}
		// Escape one character.
		if text[i] < utf8.RuneSelf {
			dst = appendEscape(dst, rune(text[i]))
			i++
			continue
		}
		// Four bytes are enough for any character, so a long text is not converted as a whole.
		r, size := utf8.DecodeRuneInString(string(text[i:min(i+utf8.UTFMax, len(text))]))
		dst = appendEscape(dst, r)
		i += size
	}
	return append(dst, '"')
}

// appendEscape appends the canonical escape of a character: two bytes, six, or twelve for a surrogate pair.
func appendEscape(dst []byte, r rune) []byte {
	if short := shortEscape(r); short != 0 {
		return append(dst, '\\', short)
	}
	// A character beyond U+FFFF is two escapes in JSON.
	// The high half of the pair first.
	if r >= 0x10000 {
		r -= 0x10000
		dst = appendHex4(dst, highSurrogate+r>>10)
		r = lowSurrogate + r&0x3ff
	}
	return appendHex4(dst, r)
}

// appendHex4 appends a \uxxxx escape with lower-case digits, as Python prints it.
func appendHex4(dst []byte, r rune) []byte {
	const digits = "0123456789abcdef"
	return append(dst, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}

// shortEscape returns the letter of a character's two-byte escape, 0 if it has none.
func shortEscape(r rune) byte {
	// All other control characters have the long form.
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
