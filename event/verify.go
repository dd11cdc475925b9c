package event

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strconv"
	"unicode/utf8"
)

// verifier tells whether JSON is in canonical form, without allocating. It does not say why not: what it refuses goes
// to the canonicalizer, which either mends it or says what is wrong.
type verifier struct {
	data     []byte
	pos      int
	maxDepth int
	check    fieldCheck // told of each member of the outermost object
	like     *outline   // of a payload verified before, nil for none
}

// payload reports whether data is one canonical object and nothing else.
func (v *verifier) payload() bool {
	return v.peek() == '{' && v.object(1) && v.pos == len(v.data)
}

func (v *verifier) peek() byte {
	if v.pos < len(v.data) {
		return v.data[v.pos]
	}
	return 0
}

func (v *verifier) skip(w string) bool {
	if len(v.data)-v.pos < len(w) || string(v.data[v.pos:v.pos+len(w)]) != w {
		return false
	}
	v.pos += len(w)
	return true
}

func (v *verifier) value(depth int) bool {
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
	return v.skip("true") || v.skip("false") || v.skip("null")
}

func (v *verifier) array(depth int) bool {
	if depth > v.maxDepth {
		return false
	}
	v.pos++
	if v.skip("]") {
		return true
	}
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

func (v *verifier) object(depth int) bool {
	if depth > v.maxDepth {
		return false
	}
	v.pos++
	if v.skip("}") {
		return true
	}
	var before []byte
	for i := 0; ; i++ {
		key, hash, ok := v.key(depth, i, before)
		if !ok {
			return false
		}
		before = key
		start := v.pos
		if !v.value(depth + 1) {
			return false
		}
		if depth == 1 {
			v.check.see(key, hash, v.data[start:v.pos])
		}
		if v.skip("}") {
			return true
		}
		if !v.skip(", ") {
			return false
		}
	}
}

// key reads the i-th key of an object, which follows after the one before, and its colon; of the outermost object's
// it returns the hash, where there is an outline.
func (v *verifier) key(depth, i int, before []byte) (key []byte, hash uint64, ok bool) {
	outer := depth == 1
	if outer && v.like != nil {
		if text, hash := v.like.at(i); len(text) > 0 && bytes.HasPrefix(v.data[v.pos:], text) {
			key = v.data[v.pos+1 : v.pos+len(text)-len(`": `)]
			v.pos += len(text)
			return key, hash, true
		}
	}
	start := v.pos
	if key, ok = v.quoted(); !ok || i > 0 && compareQuoted(before, key) >= 0 || !v.skip(": ") {
		return nil, 0, false
	}
	if outer && v.like != nil {
		hash = hashKey(key)
		v.like.put(i, v.data[start:v.pos], hash)
	}
	return key, hash, true
}

// quoted reads a string and returns what is between its quotes.
func (v *verifier) quoted() ([]byte, bool) {
	if v.peek() != '"' {
		return nil, false
	}
	data, start := v.data, v.pos+1
	for i := start; i < len(data); {
		if len(data)-i >= 8 {
			special := notPlain(binary.LittleEndian.Uint64(data[i:]))
			if special == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(special) / 8
		}
		switch c := data[i]; {
		case plain[c]:
			i++
		case c == '"':
			v.pos = i + 1
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

// notPlain marks bytes of eight, the first the lowest, by their highest bits. What it marks first is the first that is
// not plain; from there a borrow or a carry may mark others too.
func notPlain(eight uint64) uint64 {
	const (
		each    = 0x0101010101010101
		highest = 0x80 * each
	)
	quote, escape := eight^'"'*each, eight^'\\'*each
	return ((eight - ' '*each) | (quote - each) | (escape - each) | eight | (eight + each)) & highest
}

// canonicalEscape reads the escape b begins with, a surrogate pair as one; size 0 if it is not the canonical one.
func canonicalEscape(b []byte) (r rune, size int) {
	if len(b) < 2 {
		return 0, 0
	}
	if b[1] != 'u' {
		if b[1] == '/' {
			return 0, 0
		}
		return rune(unescape(b[1])), 2 * min(1, int(unescape(b[1])))
	}
	r, ok := hex4(b[2:], true)
	switch {
	case !ok, r < utf8.RuneSelf && plain[r], shortEscape(r) != 0:
		return 0, 0
	case !isSurrogate(r):
		return r, 6
	case r >= lowSurrogate || !bytes.HasPrefix(b[6:], []byte(`\u`)):
		return 0, 0
	}
	low, ok := hex4(b[8:], true)
	if !ok || low < lowSurrogate || low > maxSurrogate {
		return 0, 0
	}
	return joinSurrogates(r, low), 12
}

// compareQuoted orders two canonical strings, given without their quotes, by code points.
func compareQuoted(a, b []byte) int {
	same := 0
	for same < len(a) && same < len(b) && a[same] == b[same] {
		same++
	}
	if same == len(a) || same == len(b) {
		return len(a) - len(b)
	}
	if a[same] != '\\' && b[same] != '\\' && bytes.IndexByte(a[:same], '\\') < 0 {
		return int(a[same]) - int(b[same]) // both are plain characters, not the inside of an escape
	}
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

func firstRune(b []byte) (rune, int) {
	if b[0] != '\\' {
		return rune(b[0]), 1
	}
	return canonicalEscape(b)
}

// number reads a number that is written the canonical way.
func (v *verifier) number() bool {
	data, start := v.data, v.pos
	whole := start
	if data[whole] == '-' {
		whole++
	}
	point := digits(data, whole)
	if point == whole || data[whole] == '0' && point-whole > 1 {
		return false
	}
	end := point
	if point < len(data) && data[point] == '.' {
		if end = digits(data, point+1); end == point+1 {
			return false
		}
	}
	v.pos = end
	switch {
	case end < len(data) && data[end] == 'e':
		return v.exponent() && isRepr(data[start:v.pos])
	case end == point:
		return point-whole <= maxIntDigits && (whole == start || data[whole] != '0')
	}
	return isShortDecimal(data[whole:point], data[point+1:end]) || isRepr(data[start:end])
}

func (v *verifier) exponent() bool {
	v.pos++
	if c := v.peek(); c == '+' || c == '-' {
		v.pos++
	}
	first := v.pos
	v.pos = digits(v.data, first)
	return v.pos > first
}

// digits is where the digits end that stand at i.
func digits(data []byte, i int) int {
	for i < len(data) && isDigit(data[i]) {
		i++
	}
	return i
}

// isShortDecimal reports whether a decimal is certainly its own repr. Decimals of up to 15 significant digits survive
// the way through a double, so two of them never share one, and none shorter than the literal can stand for it.
func isShortDecimal(whole, fraction []byte) bool {
	if len(whole)+len(fraction) > 15 {
		return false
	}
	if len(fraction) == 1 && fraction[0] == '0' {
		return true
	}
	if fraction[len(fraction)-1] == '0' {
		return false
	}
	return whole[0] != '0' || !bytes.HasPrefix(fraction, []byte("0000"))
}

// isRepr reports whether a literal is what Python prints for the float it reads.
func isRepr(literal []byte) bool {
	const longest = len("-1.7976931348623157e+308")
	if len(literal) > longest {
		return false
	}
	f, err := strconv.ParseFloat(string(literal), 64)
	if err != nil {
		return false
	}
	var buf [longest]byte
	return bytes.Equal(appendFloat(buf[:0], f), literal)
}
