package canon

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strconv"
	"unicode/utf8"
)

// Verifier reports whether JSON is in canonical form, without allocating. It does not say why not: what it rejects
// goes to a Rewriter, which either fixes it or reports the error.
//
//	v := canon.Verifier{Data: payload, MaxDepth: 128}
//	for v.Next() {
//		use(v.Key, v.Value)
//	}
//	canonical := v.Payload()
//
// What Next returned of an object that turns out not to be canonical is void.
// Its work is what an event costs at every gate, so it compares eight bytes at a time and converts no number that
// it need not.
type Verifier struct {
	Data     []byte
	Pos      int
	MaxDepth int
	Like     *Outline // of a payload verified before, updated to this one's; nil for none

	// The member of the outermost object that Next has read, as in Data.
	Key   []byte // without quotes
	Hash  uint64 // of the key, by a seed of this process; 0 without Like
	Value []byte

	state verifierState
	count int // members read
}

// verifierState is where in the outermost object a Verifier is.
// A failed one stays failed, so a caller need not look at each result.
type verifierState uint8

const (
	atStart verifierState = iota
	inside                // after a member
	atEnd                 // after the object, which is canonical
	failed
)

// Payload reads the rest of the object and reports whether Data is one canonical object and nothing else.
func (v *Verifier) Payload() bool { return v.Object() && v.Pos == len(v.Data) }

// Object reads the rest of the object at Pos and reports whether it is canonical. Pos then is after it.
func (v *Verifier) Object() bool {
	for v.Next() {
	}
	return v.state == atEnd
}

// Next reads the next member of the outermost object. It returns false after the last one, and if the object is not
// canonical.
func (v *Verifier) Next() bool {
	// What is before a member: a brace or a comma. Until the member is read whole, the object counts as failed.
	before := v.state
	v.state = failed
	switch before {
	case atStart:
		if v.MaxDepth < 1 || !v.skip("{") {
			return false
		}
		if v.skip("}") {
			v.state = atEnd
			return false
		}
	case inside:
		if v.skip("}") {
			v.state = atEnd
			return false
		}
		if !v.skip(", ") {
			return false
		}
	case atEnd:
		v.state = atEnd
		return false
	case failed:
		return false
	}
	// The key, then the value.
	if !v.outerKey() {
		return false
	}
	// Values of the outermost object are on level 2.
	start := v.Pos
	if !v.value(2) {
		return false
	}
	v.Value = v.Data[start:v.Pos]
	v.count++
	v.state = inside
	return true
}

// outerKey reads the next key of the outermost object.
func (v *Verifier) outerKey() bool {
	if v.Like == nil {
		// v.Key is still the key of the member before.
		key, ok := v.key(v.count > 0, v.Key)
		v.Key = key
		return ok
	}
	// A key that equals the one at its position in the outline was checked when the outline stored it.
	// An outline of another type's payload costs a comparison, and nothing else.
	text, hash := v.Like.at(v.count)
	// The comparison has quotes, colon and space, so a longer key does not match.
	if len(text) > 0 && bytes.HasPrefix(v.Data[v.Pos:], text) {
		v.Key, v.Hash = v.Data[v.Pos+1:v.Pos+len(text)-len(`": `)], hash
		v.Pos += len(text)
		return true
	}
	// Any other key is checked, and stored for the next payload.
	start := v.Pos
	key, ok := v.key(v.count > 0, v.Key)
	if !ok {
		return false
	}
	v.Key, v.Hash = key, hashKey(key)
	v.Like.put(v.count, v.Data[start:v.Pos], v.Hash)
	return true
}

// peek returns the byte at Pos, 0 at the end.
func (v *Verifier) peek() byte {
	if v.Pos < len(v.Data) {
		return v.Data[v.Pos]
	}
	return 0
}

// skip reads w if the input continues with it. Unlike Scanner, a Verifier skips no white space: the canonical form
// has none but the space after a comma or a colon.
func (v *Verifier) skip(w string) bool {
	if len(v.Data)-v.Pos < len(w) || string(v.Data[v.Pos:v.Pos+len(w)]) != w {
		return false
	}
	v.Pos += len(w)
	return true
}

// value reads one canonical value; depth is the level of an object or an array that begins here.
func (v *Verifier) value(depth int) bool {
	// The first byte decides what it has to be.
	switch c := v.peek(); {
	case c == '"':
		_, ok := v.quoted()
		return ok
	case c == '{':
		return v.object(depth)
	case c == '[':
		return v.array(depth)
	case c == '-' || isDigit(c):
		return v.number()
	}
	// The three words are all that is left.
	return v.skip("true") || v.skip("false") || v.skip("null")
}

// array reads a canonical array.
func (v *Verifier) array(depth int) bool {
	if depth > v.MaxDepth {
		return false
	}
	v.Pos++
	if v.skip("]") {
		return true
	}
	// At least one element; a value that is not canonical ends the loop.
	for v.value(depth + 1) {
		if v.skip("]") {
			return true
		}
		if !v.skip(", ") {
			return false
		}
	}
	return false
}

// object reads an object inside the outermost one.
func (v *Verifier) object(depth int) bool {
	if depth > v.MaxDepth {
		return false
	}
	v.Pos++
	if v.skip("}") {
		return true
	}
	// Each key is compared with the one before it, which finds both wrong order and duplicates.
	// It is nil for the first key, which follows none.
	var before []byte
	for i := 0; ; i++ {
		key, ok := v.key(i > 0, before)
		if !ok || !v.value(depth+1) {
			return false
		}
		before = key
		if v.skip("}") {
			return true
		}
		if !v.skip(", ") {
			return false
		}
	}
}

// key reads a key and its colon. If the key is not the first, it must sort after the one before.
func (v *Verifier) key(follows bool, before []byte) (key []byte, ok bool) {
	key, ok = v.quoted()
	if !ok || (follows && compareQuoted(before, key) >= 0) || !v.skip(": ") {
		return nil, false
	}
	return key, true
}

// quoted reads a canonical string and returns what is between its quotes.
func (v *Verifier) quoted() ([]byte, bool) {
	if v.peek() != '"' {
		return nil, false
	}
	// A local copy of the slice header saves a load at each byte.
	data, start := v.Data, v.Pos+1
	for i := start; i < len(data); {
		// Eight bytes at a time, up to the first one that is not plain.
		if len(data)-i >= 8 {
			special := notPlain(binary.LittleEndian.Uint64(data[i:]))
			if special == 0 {
				i += 8
				continue
			}
			// The special byte itself is looked at below.
			i += bits.TrailingZeros64(special) / 8
		}
		// One byte, or one escape.
		switch c := data[i]; {
		case plain[c]:
			i++
		case c == '"':
			v.Pos = i + 1
			return data[start:i], true
		case c == '\\':
			_, size := canonicalEscape(data[i:])
			if size == 0 {
				return nil, false
			}
			i += size
		default:
			return nil, false
		}
	}
	return nil, false
}

// notPlain sets the highest bit of each byte of eight that is not plain; the first byte is the lowest. A byte is
// not plain if it is below ' ', a quote, a backslash, or above '~'. Only the lowest mark is exact: a borrow or a
// carry out of a marked byte may mark plain bytes after it.
func notPlain(eight uint64) uint64 {
	const (
		each    = 0x0101010101010101
		highest = 0x80 * each
	)
	// Subtracting 1 from a byte that is 0 sets its highest bit, and the XOR makes the byte looked for 0.
	quote, escape := eight^'"'*each, eight^'\\'*each
	// In order: below ' ', quote, backslash, 0x80 and above, 0x7f.
	return ((eight - ' '*each) | (quote - each) | (escape - each) | eight | (eight + each)) & highest
}

// canonicalEscape reads the escape that b begins with, a surrogate pair as one. size is 0 if it is not canonical:
// \/, an upper-case digit, or a \u escape of a character that is plain or has a two-byte escape.
func canonicalEscape(b []byte) (r rune, size int) {
	if len(b) < 2 {
		return 0, 0
	}
	if b[1] != 'u' {
		meaning := unescape(b[1])
		if meaning == 0 || meaning == '/' {
			return 0, 0
		}
		return rune(meaning), 2
	}
	// An escape is canonical only where the character cannot be written otherwise.
	r, ok := hex4(b[2:], true)
	if !ok || (r < utf8.RuneSelf && plain[r]) || shortEscape(r) != 0 {
		return 0, 0
	}
	if !isSurrogate(r) {
		return r, 6
	}
	// A surrogate has to be the first half of a pair.
	if r >= lowSurrogate || !bytes.HasPrefix(b[6:], []byte(`\u`)) {
		return 0, 0
	}
	low, ok := hex4(b[8:], true)
	if !ok || low < lowSurrogate || low > maxSurrogate {
		return 0, 0
	}
	return joinSurrogates(r, low), 12
}

// compareQuoted orders two canonical strings, given without their quotes, by the code points they mean.
func compareQuoted(a, b []byte) int {
	// Skip the common prefix. If one string is a prefix of the other, the shorter one is first: a string ends
	// between two characters.
	// Bytes that are equal mean the same, escaped or not.
	same := 0
	for same < len(a) && same < len(b) && a[same] == b[same] {
		same++
	}
	if same == len(a) || same == len(b) {
		return len(a) - len(b)
	}
	// Without an escape so far, the bytes that differ are characters.
	// An escape may be cut in two by the difference, so a backslash before it needs the slow way.
	if a[same] != '\\' && b[same] != '\\' && bytes.IndexByte(a[:same], '\\') < 0 {
		return int(a[same]) - int(b[same])
	}
	// Otherwise compare character by character.
	for len(a) > 0 && len(b) > 0 {
		ra, na := firstRune(a)
		rb, nb := firstRune(b)
		if ra != rb {
			return int(ra) - int(rb)
		}
		a, b = a[na:], b[nb:]
	}
	return len(a) - len(b)
}

// firstRune returns the first character of a canonical string and how many bytes it takes.
// What is no escape is one byte of ASCII.
func firstRune(b []byte) (rune, int) {
	if b[0] != '\\' {
		return rune(b[0]), 1
	}
	return canonicalEscape(b)
}

// number reads a canonical number.
func (v *Verifier) number() bool {
	data, start := v.Data, v.Pos
	whole := start
	// number is called at a minus or a digit, so there is a byte.
	if data[whole] == '-' {
		whole++
	}
	// The integer part: data[whole:point], without a leading 0.
	point := digits(data, whole)
	if point == whole || (data[whole] == '0' && point-whole > 1) {
		return false
	}
	// The fraction, if any: data[point+1:end].
	end := point
	if point < len(data) && data[point] == '.' {
		end = digits(data, point+1)
		if end == point+1 {
			return false
		}
	}
	v.Pos = end
	// With an exponent, the literal has to be what Python prints.
	if end < len(data) && data[end] == 'e' {
		return v.exponent() && isRepr(data[start:v.Pos])
	}
	// An integer is canonical unless it is too long or -0.
	if end == point {
		return point-whole <= MaxIntDigits && (whole == start || data[whole] != '0')
	}
	return isShortDecimal(data[whole:point], data[point+1:end]) || isRepr(data[start:end])
}

// exponent reads an exponent with whatever sign and digits.
// isRepr compares the literal with what Python prints, so all of them pass here.
func (v *Verifier) exponent() bool {
	v.Pos++
	if c := v.peek(); c == '+' || c == '-' {
		v.Pos++
	}
	first := v.Pos
	v.Pos = digits(v.Data, first)
	return v.Pos > first
}

// digits returns where the digits end that begin at i.
func digits(data []byte, i int) int {
	for i < len(data) && isDigit(data[i]) {
		i++
	}
	return i
}

// isShortDecimal reports whether a decimal is certainly its own repr, which spares most floats the conversion.
// Decimals of up to 15 significant digits survive the conversion to a double and back, so two of them never share
// one, and no shorter literal than this one means the same double.
func isShortDecimal(whole, fraction []byte) bool {
	if len(whole)+len(fraction) > 15 {
		return false
	}
	// fraction has a digit at least: number has checked that.
	// A trailing 0 is only printed where the fraction is nothing else.
	if len(fraction) == 1 && fraction[0] == '0' {
		return true
	}
	if fraction[len(fraction)-1] == '0' {
		return false
	}
	// Below 1e-4 Python prints an exponent.
	return whole[0] != '0' || !bytes.HasPrefix(fraction, []byte("0000"))
}

// isRepr reports whether a literal is what Python prints for the float it reads.
func isRepr(literal []byte) bool {
	const longest = len("-1.7976931348623157e+308")
	// No float is printed with more bytes: a longer literal need not be converted.
	if len(literal) > longest {
		return false
	}
	// To convert and print again is the slow way, for the few floats that isShortDecimal cannot decide.
	f, err := strconv.ParseFloat(string(literal), 64)
	if err != nil {
		return false
	}
	// longest is enough for every float, so appending does not allocate.
	var buf [longest]byte
	return bytes.Equal(appendFloat(buf[:0], f), literal)
}
