package server

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/fsm"
)

// positionKind says how a position is meant.
type positionKind int

const (
	atDefault positionKind = iota // what the operation takes when nothing is said
	atStart
	atEnd
	atOffset
	atLast
	atTime
	atAge
)

// position is a place in the log as a caller names it.
type position struct {
	kind positionKind
	n    uint64 // atOffset: the next event; atLast: how many before the end
	time time.Time
	age  time.Duration
}

// parsePosition reads start, end, OFFSET, -N, @TIME or an age such as 90s or 7d;
// an empty text is the default.
func parsePosition(field, text string) (position, error) {
	switch {
	case text == "":
		return position{}, nil
	case strings.EqualFold(text, "start"):
		return position{kind: atStart}, nil
	case strings.EqualFold(text, "end"):
		return position{kind: atEnd}, nil
	case text[0] == '@':
		return parseTime(field, text[1:])
	case strings.Trim(text, "0123456789") == "":
		return parseFrom(field, text)
	case text[0] == '-' && strings.Trim(text[1:], "0123456789") == "":
		n, err := strconv.ParseUint(text[1:], 10, 64)
		if err != nil || n == 0 {
			return position{}, badPosition(field, text)
		}
		return position{kind: atLast, n: n}, nil
	}
	age, err := parseAge(field, text)
	if err != nil {
		return position{}, badPosition(field, text)
	}
	return position{kind: atAge, age: age}, nil
}

// parseJSONPosition reads a position of a body: a string as parsePosition takes it,
// or the offset of the next event as a number, where 0 is as good as 1.
func parseJSONPosition(field string, raw json.RawMessage) (position, error) {
	text := string(raw)
	switch {
	case text == "" || text == "null":
		return position{}, nil
	case text[0] == '"':
		if err := json.Unmarshal(raw, &text); err != nil {
			return position{}, badPosition(field, text)
		}
		return parsePosition(field, text)
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return position{}, badPosition(field, text)
	}
	return position{kind: atOffset, n: max(n, 1)}, nil
}

func badPosition(field, text string) *api.Error {
	return badParam(field, text, "start, end, an offset from 1 to 18446744073709551615, -N, @TIME or an age such as 90s")
}

func parseFrom(field, text string) (position, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return position{}, badPosition(field, text)
	}
	if n == 0 {
		return position{}, &api.Error{Code: api.InvalidArgument, Field: field, Message: "offsets begin at 1", Remedy: "send " + field + "=start"}
	}
	return position{kind: atOffset, n: n}, nil
}

// parseTime reads an RFC 3339 time or seconds since 1970. A + that a query turned
// into a space is taken for what it was.
func parseTime(field, text string) (position, error) {
	if t, err := time.Parse(time.RFC3339Nano, strings.ReplaceAll(text, " ", "+")); err == nil {
		return position{kind: atTime, time: t}, nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(seconds) || math.Abs(seconds) > math.MaxInt32*4 {
		return position{}, badParam(field, "@"+text, "@ and an RFC 3339 time, or @ and seconds since 1970")
	}
	whole, part := math.Modf(seconds)
	return position{kind: atTime, time: time.Unix(int64(whole), int64(part*1e9))}, nil
}

// parseAge reads a duration that may also count days: 7d, 36h, 1h30m.
func parseAge(field, text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); err != nil && ok {
		var n uint64
		if n, err = strconv.ParseUint(days, 10, 16); err == nil {
			d = time.Duration(n) * 24 * time.Hour
		}
	}
	if err != nil || d < 0 {
		return 0, badParam(field, text, "an age such as 90s, 36h or 7d")
	}
	return d, nil
}

// resolve returns the offset of the next event at a position, given that the
// default stands for fallback. It is never below the first retained event but for
// an offset that was asked for.
func (p position) resolve(m *fsm.Machine, fallback positionKind) (uint64, error) {
	first, last := m.Log().Bounds()
	kind := p.kind
	if kind == atDefault {
		kind = fallback
	}
	switch kind {
	case atStart:
		return first, nil
	case atEnd:
		return last + 1, nil
	case atOffset:
		return p.n, nil
	case atLast:
		return max(first, last+1-min(p.n, last)), nil
	case atTime:
		return m.Log().OffsetAt(p.time)
	case atAge:
		return m.Log().OffsetAt(time.Now().Add(-p.age))
	default:
		return 0, fmt.Errorf("server: position kind %d", kind)
	}
}
