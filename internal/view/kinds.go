package view

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"time"
)

// A kind of field folds values into its state, which are bytes of the row. Times are Unix nanoseconds, and at is the
// time of the row, which never falls.
//
// Every node has to compute the same bits, whatever its processor is. So a product that is added to is converted to
// float64 first, which keeps the compiler from rounding both at once, and nothing of package math is used whose result
// may differ between processors.
type kind interface {
	// fold appends the state after a value to b. state is what it appended before, at first nothing. It returns
	// false if the kind cannot take the value; what it appended then is void.
	fold(b, state []byte, at int64, value any) ([]byte, bool)

	// show returns what a state is at a time: nil, bool, float64, string, time.Time, []any, map[string]any or moreThan.
	show(state []byte, at int64) any

	// valid reports whether state may be one of the kind.
	valid(state []byte) bool

	// size returns how many bytes a state takes at most.
	size() int
}

// number returns a value as a finite number. It returns false for what is no number and for an infinite one: a state
// must never hold one, since no later value would change it.
func number(value any) (float64, bool) {
	x, ok := value.(float64)
	return x, ok && !math.IsNaN(x) && !math.IsInf(x, 0)
}

// finite returns x, nil if it is not a finite number, which no JSON has.
func finite(x float64) any {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return x
}

// appendFloat appends the bits of a float64, little-endian.
func appendFloat(b []byte, x float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
}

// floatAt returns the float64 at byte i.
func floatAt(b []byte, i int) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b[i:])) }

// appendInt appends an int64, little-endian.
func appendInt(b []byte, n int64) []byte { return binary.LittleEndian.AppendUint64(b, uint64(n)) }

// intAt returns the int64 at byte i.
func intAt(b []byte, i int) int64 { return int64(binary.LittleEndian.Uint64(b[i:])) }

// last keeps the latest value: a byte that says what it is, and the value.
type last struct{}

// The first byte of a last value.
const (
	lastNull   = iota
	lastFalse  // nothing follows
	lastTrue   // nothing follows
	lastNumber // 8 bytes
	lastTime   // 8 bytes, Unix nanoseconds
	lastText   // the text
	lastJSON   // a list or an object
)

func (last) fold(b, _ []byte, _ int64, value any) ([]byte, bool) {
	// Of a value that is refused the bytes are appended as well; the caller does not use them.
	switch v := value.(type) {
	case bool:
		if v {
			return append(b, lastTrue), true
		}
		return append(b, lastFalse), true
	case float64:
		return appendFloat(append(b, lastNumber), v), finite(v) != nil
	case time.Time:
		return appendInt(append(b, lastTime), v.UnixNano()), true
	case string:
		return append(append(b, lastText), v...), len(v) <= maxText
	}
	// A list or an object is kept as JSON, within the same bound as a text.
	text, err := json.Marshal(plain(value))
	return append(append(b, lastJSON), text...), err == nil && len(text) <= maxText
}

// show returns the value as it was, lists and objects decoded.
func (last) show(state []byte, _ int64) any {
	if len(state) == 0 {
		return nil
	}
	switch rest := state[1:]; state[0] {
	case lastFalse, lastTrue:
		return state[0] == lastTrue
	case lastNumber:
		return floatAt(rest, 0)
	case lastTime:
		return time.Unix(0, intAt(rest, 0)).UTC()
	case lastText:
		return string(rest)
	case lastJSON:
		var v any
		_ = json.Unmarshal(rest, &v) // valid has seen it
		return v
	}
	return nil
}

// valid checks what show relies on: that the bytes of the value are there, and that JSON is JSON.
func (last) valid(state []byte) bool {
	if len(state) == 0 {
		return true
	}
	switch state[0] {
	case lastFalse, lastTrue:
		return len(state) == 1
	case lastNumber, lastTime:
		return len(state) == 9
	case lastText:
		return true
	case lastJSON:
		return json.Valid(state[1:])
	}
	return false
}

func (last) size() int { return 1 + maxText }

// count counts events: a uvarint.
type count struct{}

func (count) fold(b, state []byte, _ int64, _ any) ([]byte, bool) {
	// Of an empty state it is 0.
	n, _ := binary.Uvarint(state)
	return binary.AppendUvarint(b, n+1), true
}

func (count) show(state []byte, _ int64) any {
	n, _ := binary.Uvarint(state)
	return float64(n)
}

func (count) valid(state []byte) bool {
	_, n := binary.Uvarint(state)
	return n == len(state) && n >= 0
}

func (count) size() int { return binary.MaxVarintLen64 }

// tally keeps what sum, min, max and mean of all values need: a uvarint of how many there were, and one number. Of no
// values the state is empty. The number is what join makes of all: their sum, the least or the greatest.
type tally struct{ of statistic }

// statistic is what is computed of values, all of them or those of a window.
type statistic uint8

const (
	counted  statistic = iota // how many values there are
	summed                    // their sum
	least                     // the smallest
	greatest                  // the largest
	averaged                  // their sum, divided by how many there are when it is shown
)

// join joins two values, or what two sets of values are.
func (s statistic) join(a, b float64) float64 {
	switch s {
	case least:
		return min(a, b)
	case greatest:
		return max(a, b)
	}
	return a + b
}

// result returns the statistic of n values; nil if there is none of them. x is what join has made of them. A sum of no
// values is 0, but there is no least of none.
func (s statistic) result(n uint64, x float64) any {
	switch {
	case s == counted:
		return float64(n)
	case n == 0 && s == summed:
		return 0.0
	case n == 0:
		return nil
	case s == averaged:
		return finite(x / float64(n))
	}
	// Finite values may have an infinite sum.
	return finite(x)
}

func (t tally) fold(b, state []byte, _ int64, value any) ([]byte, bool) {
	x, ok := number(value)
	// The first value is the state by itself: joined with 0 it would change a min or max.
	if n, size := binary.Uvarint(state); size > 0 {
		return appendFloat(binary.AppendUvarint(b, n+1), t.of.join(floatAt(state, size), x)), ok
	}
	return appendFloat(binary.AppendUvarint(b, 1), x), ok
}

func (t tally) show(state []byte, _ int64) any {
	n, size := binary.Uvarint(state)
	if size <= 0 {
		return t.of.result(0, 0)
	}
	return t.of.result(n, floatAt(state, size))
}

// valid checks that both parts are there.
func (t tally) valid(state []byte) bool {
	_, n := binary.Uvarint(state)
	return len(state) == 0 || (n > 0 && len(state) == n+8)
}

func (tally) size() int { return binary.MaxVarintLen64 + 8 }

// ewma keeps a mean in which the weight of a value halves with each half-life: the time of the last value, the sum of
// the weighted values, and the sum of the weights. Values of the same time have the same weight. The state is an int64
// and two float64.
type ewma struct{ halfLife int64 }

func (e ewma) fold(b, state []byte, at int64, value any) ([]byte, bool) {
	x, ok := number(value)
	// A value counts with its full weight when it comes. Those before have lost theirs by the time since the last one.
	sum, weight := x, 1.0
	if len(state) > 0 {
		left := halved(at-intAt(state, 0), e.halfLife)
		sum = float64(floatAt(state, 8)*left) + x
		weight = float64(floatAt(state, 16)*left) + 1
	}
	return appendFloat(appendFloat(appendInt(b, at), sum), weight), ok
}

func (ewma) show(state []byte, _ int64) any {
	// All weights shrink alike, so the mean does not change until the next value.
	if len(state) == 0 {
		return nil
	}
	return finite(floatAt(state, 8) / floatAt(state, 16))
}

func (ewma) valid(state []byte) bool { return len(state) == 0 || len(state) == 24 }

func (ewma) size() int { return 24 }

// halved returns 2 to the power of -(d/unit) for d >= 0. It only multiplies, which every processor rounds alike;
// math.Exp2 has another implementation on some.
func halved(d, unit int64) float64 {
	whole, rest := d/unit, d%unit
	// The smallest number above 0 is 2 to the power of -1074.
	if whole > 1074 {
		return 0
	}
	// The bits of rest/unit, from 1/2 on; each multiplies by 2 to the power of its negative.
	x := 1.0
	for _, root := range roots {
		if rest == 0 {
			break
		}
		// A bit of the quotient, as in a long division.
		rest *= 2 // a half-life is short enough for it
		if rest >= unit {
			rest -= unit
			x *= root
		}
	}
	// Whole half-lives only change the exponent.
	return math.Ldexp(x, -int(whole))
}

// roots are 2 to the power of -1/2, -1/4, -1/8 and so on. The one after the last would be rounded to 1.
var roots = [...]float64{
	0x1.6a09e667f3bcdp-1, 0x1.ae89f995ad3adp-1, 0x1.d5818dcfba487p-1, 0x1.ea4afa2a490dap-1, 0x1.f50765b6e4540p-1,
	0x1.fa7c1819e90d8p-1, 0x1.fd3c22b8f71f1p-1, 0x1.fe9d96b2a23d9p-1, 0x1.ff4eaca4391b6p-1, 0x1.ffa74ea381efcp-1,
	0x1.ffd3a565efb65p-1, 0x1.ffe9d237fe372p-1, 0x1.fff4e8fd40081p-1, 0x1.fffa7476f029dp-1, 0x1.fffd3a398c1bbp-1,
	0x1.fffe9d1c4b0f3p-1, 0x1.ffff4e8e06c7fp-1, 0x1.ffffa746fbb40p-1, 0x1.ffffd3a37bee0p-1, 0x1.ffffe9d1bd7c0p-1,
	0x1.fffff4e8de9f4p-1, 0x1.fffffa746f47fp-1, 0x1.fffffd3a37a21p-1, 0x1.fffffe9d1bd09p-1, 0x1.ffffff4e8de82p-1,
	0x1.ffffffa746f41p-1, 0x1.ffffffd3a37a0p-1, 0x1.ffffffe9d1bd0p-1, 0x1.fffffff4e8de8p-1, 0x1.fffffffa746f4p-1,
	0x1.fffffffd3a37ap-1, 0x1.fffffffe9d1bdp-1, 0x1.ffffffff4e8dfp-1, 0x1.ffffffffa746fp-1, 0x1.ffffffffd3a38p-1,
	0x1.ffffffffe9d1cp-1, 0x1.fffffffff4e8ep-1, 0x1.fffffffffa747p-1, 0x1.fffffffffd3a3p-1, 0x1.fffffffffe9d2p-1,
	0x1.ffffffffff4e9p-1, 0x1.ffffffffffa74p-1, 0x1.ffffffffffd3ap-1, 0x1.ffffffffffe9dp-1, 0x1.fffffffffff4fp-1,
	0x1.fffffffffffa7p-1, 0x1.fffffffffffd4p-1, 0x1.fffffffffffeap-1, 0x1.ffffffffffff5p-1, 0x1.ffffffffffffap-1,
	0x1.ffffffffffffdp-1, 0x1.fffffffffffffp-1, 0x1.fffffffffffffp-1,
}

// slope keeps points, the oldest first, each of a time and a value: the newest few of a window.
type slope struct {
	window int64   // 0 is without end
	points int     // how many at most
	per    float64 // nanoseconds
}

// pointBytes is what a point takes: an int64 of Unix nanoseconds and a float64.
const pointBytes = 16

func (s slope) fold(b, state []byte, at int64, value any) ([]byte, bool) {
	x, ok := number(value)
	// Points that have left the window go first. The oldest of the others goes only if they are as many as there may
	// be.
	state = s.inside(state, at)
	if len(state) == s.points*pointBytes {
		state = state[pointBytes:]
	}
	return appendFloat(appendInt(append(b, state...), at), x), ok
}

// inside returns the points that the window still has at a time. They are a suffix of state, and share its memory.
func (s slope) inside(state []byte, at int64) []byte {
	for s.window > 0 && len(state) > 0 && intAt(state, 0) <= at-s.window {
		state = state[pointBytes:]
	}
	return state
}

// show computes the slope from all points each time, so no error of rounding adds up from one event to the next.
func (s slope) show(state []byte, at int64) any {
	state = s.inside(state, at)
	n := float64(len(state) / pointBytes)
	// One point has no slope.
	if n < 2 {
		return nil
	}
	// The means of both, of times since the first point: large numbers would lose digits.
	first := intAt(state, 0)
	var meanX, meanY float64
	for i := 0; i < len(state); i += pointBytes {
		meanX += float64(intAt(state, i)-first) / s.per
		meanY += floatAt(state, i+8)
	}
	meanX, meanY = meanX/n, meanY/n
	// The slope that has the least squares.
	var covariance, variance float64
	for i := 0; i < len(state); i += pointBytes {
		dx := float64(intAt(state, i)-first)/s.per - meanX
		covariance += float64(dx * (floatAt(state, i+8) - meanY))
		variance += float64(dx * dx)
	}
	if variance == 0 {
		return nil // all at one time
	}
	return finite(covariance / variance)
}

func (s slope) valid(state []byte) bool {
	return len(state)%pointBytes == 0 && len(state) <= s.points*pointBytes
}

func (s slope) size() int { return s.points * pointBytes }

// distinct keeps which values there were: the first 16 bytes of their SHA-256, sorted; if there were more than the
// limit, one byte. A value is known by its JSON, so 1 and the text "1" are two. Beyond the limit nothing is counted any
// further, and the state does not shrink again until a reset.
type distinct struct{ limit int }

// moreThan is the number of distinct values if it is known only to be greater. It has the limit as its value.
type moreThan int

// MarshalJSON implements json.Marshaler.
func (m moreThan) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]int{"more_than": int(m)})
}

// hashBytes is what a distinct keeps of the hash of a value, by which it distinguishes values.
const hashBytes = 16

func (d distinct) fold(b, state []byte, _ int64, value any) ([]byte, bool) {
	text, err := json.Marshal(plain(value))
	if err != nil {
		return b, false
	}
	// There were more than the limit already.
	if len(state)%hashBytes != 0 {
		return append(b, state...), true
	}
	// Names of members are sorted in JSON, so equal values have equal texts.
	sum := sha256.Sum256(text)
	hash := sum[:hashBytes]
	// Where it is, or would be.
	at, found := 0, false
	for end := len(state) / hashBytes; at < end && !found; {
		middle := (at + end) / 2
		switch order := bytes.Compare(state[middle*hashBytes:(middle+1)*hashBytes], hash); {
		case order < 0:
			at = middle + 1
		case order > 0:
			end = middle
		default:
			found = true
		}
	}
	switch {
	case found:
		return append(b, state...), true
	// One more than the limit: the hashes go, and one byte is left.
	case len(state) == d.limit*hashBytes:
		return append(b, 1), true
	}
	// The hash goes where it belongs, so the state stays sorted.
	return append(append(append(b, state[:at*hashBytes]...), hash...), state[at*hashBytes:]...), true
}

func (d distinct) show(state []byte, _ int64) any {
	if len(state)%hashBytes != 0 {
		return moreThan(d.limit)
	}
	return float64(len(state) / hashBytes)
}

func (d distinct) valid(state []byte) bool {
	return len(state) == 1 || (len(state)%hashBytes == 0 && len(state) <= d.limit*hashBytes)
}

func (d distinct) size() int { return d.limit * hashBytes }

// window keeps a statistic of the values of a window, in buckets of a sixtieth of it. The window of a time has the
// bucket of that time and the 59 before, so it covers between 59/60 of its length and all of it.
//
//	int64      the number of the newest bucket: its time divided by the width
//	then for each bucket that has values, the oldest first:
//	byte       how many buckets it is older than the newest
//	uint32     how many values it has
//	float64    what the statistic needs of them; not if they are only counted
//
// Values of one bucket are joined, so its size does not depend on how many events come. A bucket leaves as a whole.
type window struct {
	of     statistic // what is shown, and how values are joined
	width  int64     // of a bucket, in nanoseconds
	values bool      // what is counted has values
	per    float64   // nanoseconds; 0 is no rate
}

// buckets is how many a window has. They begin at multiples of the width since 1970, the same for all rows.
const buckets = 60

// bytes returns how many bytes a bucket takes.
func (w window) bytes() int {
	// The age and the count, and the number where there is one.
	if w.values {
		return 13
	}
	return 5
}

func (w window) fold(b, state []byte, at int64, value any) ([]byte, bool) {
	// A count takes any event: there is no value that could be refused.
	x, ok := 0.0, true
	if w.values {
		x, ok = number(value)
	}
	// The state begins with the bucket of this event. Time never falls, so none is newer.
	now := floorDiv(at, w.width)
	start := len(b) + 8
	b = w.inside(appendInt(b, now), state, now)
	// The value joins the newest bucket if that is its own.
	newest := len(b) - w.bytes()
	if newest < start || b[newest] != 0 {
		b = binary.LittleEndian.AppendUint32(append(b, 0), 1)
		if w.values {
			b = appendFloat(b, x)
		}
		return b, ok
	}
	// A count that is full stays so: it must not begin again at 0.
	n := binary.LittleEndian.Uint32(b[newest+1:])
	if n < math.MaxUint32 {
		n++
	}
	binary.LittleEndian.PutUint32(b[newest+1:], n)
	if w.values {
		binary.LittleEndian.PutUint64(b[newest+5:], math.Float64bits(w.of.join(floatAt(b, newest+5), x)))
	}
	return b, ok
}

// inside appends the buckets that the window has when now is the newest. Their ages are counted from now.
func (w window) inside(b, state []byte, now int64) []byte {
	if len(state) == 0 {
		return b
	}
	// How many buckets the newest has moved on since the state was written.
	shift := now - intAt(state, 0)
	for i := 8; i < len(state); i += w.bytes() {
		if age := int64(state[i]) + shift; age < buckets {
			b = append(append(b, byte(age)), state[i+1:i+w.bytes()]...)
		}
	}
	return b
}

func (w window) show(state []byte, at int64) any {
	// The row may be newer than the state, since an event need not be for this field: buckets that have left since are
	// not counted.
	now := floorDiv(at, w.width)
	var n uint64
	var x float64
	if len(state) > 0 {
		shift := now - intAt(state, 0)
		for i := 8; i < len(state); i += w.bytes() {
			if int64(state[i])+shift >= buckets {
				continue
			}
			// The first bucket is taken as it is. Joined with 0 it would change a min or max.
			if w.values && n == 0 {
				x = floatAt(state, i+5)
			} else if w.values {
				x = w.of.join(x, floatAt(state, i+5))
			}
			n += uint64(binary.LittleEndian.Uint32(state[i+1:]))
		}
	}
	// All but a rate are the statistic itself.
	if w.per == 0 {
		return w.of.result(n, x)
	}
	// The time that the window covers begins with its oldest bucket.
	if !w.values {
		x = float64(n)
	}
	covered := at - (now-buckets+1)*w.width
	return finite(x / (float64(max(covered, 1)) / w.per))
}

func (w window) valid(state []byte) bool {
	if len(state) == 0 {
		return true
	}
	if len(state) < 8 || (len(state)-8)%w.bytes() != 0 {
		return false
	}
	// The ages fall towards the newest bucket, and each occurs once: fold and show rely on it.
	older := buckets
	for i := 8; i < len(state); i += w.bytes() {
		if int(state[i]) >= older {
			return false
		}
		older = int(state[i])
	}
	return true
}

func (w window) size() int { return 8 + buckets*w.bytes() }

// floorDiv returns a/b, rounded down. Go's division rounds towards 0, which would make one bucket of the two around
// 1970.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// plain returns a value as JSON has it: a time is a text. It copies lists and objects on the way, and leaves value as
// it is.
func plain(value any) any {
	switch v := value.(type) {
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	case []any:
		list := slices.Clone(v)
		for i := range list {
			list[i] = plain(list[i])
		}
		return list
	case map[string]any:
		members := make(map[string]any, len(v))
		for name, member := range v {
			members[name] = plain(member)
		}
		return members
	}
	return value
}
