package emit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Timestamp is a time in a payload. It is sent as the platform's daemons send it, as the result of Python's
// time.time(): seconds since 1970 as a float, which today has a resolution of a quarter of a microsecond. RFC 3339
// is read as well. The zero Timestamp is not set.
type Timestamp struct{ time.Time }

// At returns a time as a Timestamp.
func At(t time.Time) Timestamp { return Timestamp{t} }

// MarshalJSON prints seconds since 1970, always with a decimal point, so it is a float in Python too.
func (t Timestamp) MarshalJSON() ([]byte, error) {
	if !sendable(t.Time) {
		return nil, fmt.Errorf("%s is outside the years 1678 to 2261", t.Format(time.RFC3339))
	}
	// As Python computes it, in one double.
	seconds := float64(t.Unix()) + float64(t.Nanosecond())/1e9
	out := strconv.AppendFloat(nil, seconds, 'f', -1, 64)
	if seconds == math.Trunc(seconds) {
		out = append(out, ".0"...)
	}
	return out, nil
}

// UnmarshalJSON reads seconds since 1970 or an RFC 3339 time.
func (t *Timestamp) UnmarshalJSON(data []byte) error {
	var v any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	// null leaves the Timestamp as it is, as encoding/json does for other types.
	err := dec.Decode(&v)
	if err != nil || v == nil {
		return err
	}
	read, ok := timestamp(v)
	if !ok {
		return fmt.Errorf("%.64s is neither seconds since 1970 nor an RFC 3339 time", data)
	}
	*t = read
	return nil
}

// timestamp reads a decoded JSON value.
func timestamp(v any) (Timestamp, bool) {
	// An RFC 3339 time, or seconds since 1970.
	var t time.Time
	var err error
	switch v := v.(type) {
	case string:
		t, err = time.Parse(time.RFC3339Nano, v)
	case json.Number:
		var seconds float64
		seconds, err = v.Float64()
		if math.Abs(seconds) > math.MaxInt64/1e9 {
			return Timestamp{}, false
		}
		// Rounded, since 0.1 as a double is a little more than a tenth.
		whole, fraction := math.Modf(seconds)
		t = time.Unix(int64(whole), int64(math.Round(fraction*1e9)))
	default:
		return Timestamp{}, false
	}
	// A time outside of what an event can have is taken for no time at all.
	if err != nil || !sendable(t) {
		return Timestamp{}, false
	}
	return Timestamp{t.UTC()}, true
}

// sendable reports whether a time is one that an event could have too.
func sendable(t time.Time) bool { return time.Unix(0, t.UnixNano()).Equal(t) }
