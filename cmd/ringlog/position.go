package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

type positionKind int

const (
	atStart positionKind = iota
	atEnd
	atOffset
	atLast
	atTime
	atAge
)

// position is a place in the log as people write it.
type position struct {
	kind positionKind
	n    uint64 // the offset, or how many events before the end
	time time.Time
	age  time.Duration
}

const positionForms = "start, end, an offset, -N (N events before the end), @TIME (2026-01-05T10:00:00Z, 2026-01-05 or epoch seconds) or an age such as 90s, 15m, 2h or 7d"

// parsePosition reads start|end|OFFSET|-N|@TIME|AGE; now is for dates without a
// zone, which are local.
func parsePosition(s string) (position, error) {
	switch {
	case s == "start":
		return position{kind: atStart}, nil
	case s == "end":
		return position{kind: atEnd}, nil
	case strings.HasPrefix(s, "-"):
		n, err := strconv.ParseUint(s[1:], 10, 63)
		if err != nil || n == 0 {
			return position{}, badPosition(s)
		}
		return position{kind: atLast, n: n}, nil
	case strings.HasPrefix(s, "@"):
		at, err := parseTime(s[1:])
		if err != nil {
			return position{}, err
		}
		return position{kind: atTime, time: at}, nil
	}
	if n, err := strconv.ParseUint(s, 10, 64); err == nil {
		if n == 0 {
			return position{}, usagef("position 0: offsets begin at 1; use start")
		}
		return position{kind: atOffset, n: n}, nil
	}
	if age, err := parseAge(s); err == nil {
		return position{kind: atAge, age: age}, nil
	}
	if at, err := parseTime(s); err == nil && strings.ContainsRune(s, '-') {
		return position{kind: atTime, time: at}, nil
	}
	return position{}, badPosition(s)
}

func badPosition(s string) error { return usagef("position %q: use %s", s, positionForms) }

// parseTime reads RFC 3339, a date with or without a time of day (local), or seconds since 1970.
func parseTime(s string) (time.Time, error) {
	if seconds, err := strconv.ParseFloat(s, 64); err == nil {
		if seconds < 0 || seconds > 9e9 || math.IsNaN(seconds) {
			return time.Time{}, usagef("time %q is outside the years 1970 to 2255", s)
		}
		whole, fraction := math.Modf(seconds)
		return time.Unix(int64(whole), int64(fraction*1e9)).UTC(), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return at, nil
		}
	}
	return time.Time{}, usagef("time %q: use 2026-01-05T10:00:00Z, 2026-01-05 or epoch seconds", s)
}

// parseAge reads a duration in which d stands for days and w for weeks, too.
func parseAge(s string) (time.Duration, error) {
	for suffix, unit := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		if number, ok := strings.CutSuffix(s, suffix); ok {
			n, err := strconv.ParseFloat(number, 64)
			if err != nil || !(n > 0) || n*float64(unit) > math.MaxInt64 {
				return 0, usagef("duration %q: use 90s, 15m, 2h or 7d", s)
			}
			return time.Duration(n * float64(unit)), nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, usagef("duration %q: use 90s, 15m, 2h or 7d", s)
	}
	return d, nil
}

// String is the form that HTTP takes for from.
func (p position) String() string {
	switch p.kind {
	case atStart:
		return "start"
	case atEnd:
		return "end"
	case atOffset:
		return strconv.FormatUint(p.n, 10)
	case atLast:
		return "-" + strconv.FormatUint(p.n, 10)
	case atTime:
		return "@" + p.time.UTC().Format(time.RFC3339Nano)
	default:
		return p.age.String()
	}
}

// parseOffset reads one offset.
func parseOffset(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 {
		return 0, usagef("offset %q: offsets are whole numbers from 1", s)
	}
	return n, nil
}

// short prints a duration to be read by people.
func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < 48*time.Hour:
		return d.Round(time.Second).String()
	default:
		return fmt.Sprintf("%dd%s", d/(24*time.Hour), (d % (24 * time.Hour)).Round(time.Hour))
	}
}
