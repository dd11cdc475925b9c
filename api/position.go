package api

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// PositionForms lists how a position is written, for help texts and remedies.
const PositionForms = "start, end, an offset, -N (the last N events), " +
	"@TIME (2026-01-05T10:00:00Z, 2026-01-05 or seconds since 1970) or an age such as 90s, 36h, 7d or 2w"

// PositionKind says how a Position is meant.
type PositionKind int

// The kinds of a position, with the text that ParsePosition reads as each.
const (
	AtDefault PositionKind = iota // "": what the operation takes when nothing is said
	AtStart                       // start: the first retained event
	AtEnd                         // end: after the last event
	AtOffset                      // N: the event at Offset
	AtLast                        // -N: the last N events
	AtTime                        // @TIME: the first event appended at Time or later
	AtAge                         // 90s, 7d: the first event appended at most Age ago
)

// Position is a place in the log as people and programs write it, on the command line and over HTTP
// alike. Where it is, Resolve says; an age stays an age until then, so the clock of the node that
// has the log decides.
type Position struct {
	Kind   PositionKind
	Offset uint64        // of AtOffset, from 1
	Last   uint64        // of AtLast, from 1
	Time   time.Time     // of AtTime
	Age    time.Duration // of AtAge, not negative
}

// ParsePosition reads a position:
//
//	start, end                     the first retained event; after the last one
//	17                             the event at an offset, from 1
//	-20                            the last twenty events
//	@2026-01-05T10:00:00Z          events appended then or later; see ParseTime
//	2026-01-05                     the same, without the @; seconds need it
//	90s, 36h, 7d, 2w               events appended at most that long ago; see ParseAge
//
// An empty text is AtDefault. start and end may be in capitals. zone is for times without one. Errors
// are of type *Error, with field as their Field.
func ParsePosition(field, text string, zone *time.Location) (Position, error) {
	switch {
	case text == "":
		return Position{}, nil
	case strings.EqualFold(text, "start"):
		return Position{Kind: AtStart}, nil
	case strings.EqualFold(text, "end"):
		return Position{Kind: AtEnd}, nil
	case text[0] == '@':
		at, err := ParseTime(field, text[1:], zone)
		if err != nil {
			return Position{}, err
		}
		return Position{Kind: AtTime, Time: at}, nil
	case isDigits(text):
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || n == 0 {
			return Position{}, invalid(field, text, "an offset: offsets begin at 1",
				"use start, or an offset from 1 to 18446744073709551615")
		}
		return Position{Kind: AtOffset, Offset: n}, nil
	case text[0] == '-' && isDigits(text[1:]):
		n, err := strconv.ParseUint(text[1:], 10, 64)
		if err != nil || n == 0 {
			return Position{}, badPosition(field, text)
		}
		return Position{Kind: AtLast, Last: n}, nil
	}

	// What is left is an age or a date.
	if age, err := ParseAge(field, text); err == nil {
		return Position{Kind: AtAge, Age: age}, nil
	}
	// A date needs no @: nothing else has dashes inside.
	if at, err := parseDate(text, zone); err == nil {
		return Position{Kind: AtTime, Time: at}, nil
	}
	return Position{}, badPosition(field, text)
}

// ParseTime reads an RFC 3339 time, a date with or without a time of day, which is in zone, or seconds
// since 1970 with or without a fraction, up to the year 2255. A + that a query string turned into a
// space is read as a +. Errors are of type *Error, with field as their Field.
func ParseTime(field, text string, zone *time.Location) (time.Time, error) {
	// A number is seconds: no other form is one.
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(seconds) <= maxSeconds {
		whole, fraction := math.Modf(seconds)
		return time.Unix(int64(whole), int64(fraction*1e9)).UTC(), nil
	}
	at, err := parseDate(text, zone)
	if err != nil {
		return at, invalid(field, text, "a time",
			"use an RFC 3339 time such as 2026-01-05T10:00:00Z, a date such as 2026-01-05, or seconds since 1970")
	}
	return at, nil
}

// maxSeconds since 1970 are in the year 2255; all up to there fit a duration from any time in the log.
const maxSeconds = 9e9

// parseDate reads a date with or without a time of day; one without a zone is in zone.
func parseDate(text string, zone *time.Location) (time.Time, error) {
	layouts := []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime, time.DateOnly}
	for _, layout := range layouts {
		if at, err := time.ParseInLocation(layout, text, zone); err == nil {
			return at, nil
		}
	}
	// A + in a query string that was not escaped arrives as a space.
	return time.Parse(time.RFC3339, strings.ReplaceAll(text, " ", "+"))
}

// ParseAge reads a duration as time.ParseDuration does, or a number of days or weeks such as 7d, 1.5d
// or 2w. It is not negative. Errors are of type *Error, with field as their Field.
func ParseAge(field, text string) (time.Duration, error) {
	// Go's durations have no days or weeks. No unit of theirs ends in d or w, so both readings never succeed.
	d, err := time.ParseDuration(text)
	for suffix, unit := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		if number, ok := strings.CutSuffix(text, suffix); ok {
			d, err = multiple(number, unit)
		}
	}
	if err != nil || d < 0 {
		return 0, invalid(field, text, "an age", "use a duration such as 90s, 15m, 36h, 7d or 2w")
	}
	return d, nil
}

// multiple reads a number of units.
func multiple(number string, unit time.Duration) (time.Duration, error) {
	n, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, err
	}
	// Not a number compares as false, so it is refused here, too.
	if total := n * float64(unit); total >= 0 && total < math.MaxInt64 {
		return time.Duration(total), nil
	}
	return 0, errors.New("out of range")
}

// isDigits reports whether text is one or more ASCII digits.
func isDigits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// badPosition is the error of a text that is in none of PositionForms.
func badPosition(field, text string) error {
	return invalid(field, text, "a position", "use "+PositionForms)
}

// invalid is the error of a text that is not what it should be.
func invalid(field, text, what, remedy string) *Error {
	return &Error{
		Code:    InvalidArgument,
		Message: fmt.Sprintf("%s=%q is not %s", field, text, what),
		Field:   field,
		Remedy:  remedy,
	}
}

// String returns the text that ParsePosition reads as p.
func (p Position) String() string {
	switch p.Kind {
	case AtStart:
		return "start"
	case AtEnd:
		return "end"
	case AtOffset:
		return strconv.FormatUint(p.Offset, 10)
	case AtLast:
		return "-" + strconv.FormatUint(p.Last, 10)
	case AtTime:
		// The zone was applied when the position was read: UTC needs none.
		return "@" + p.Time.UTC().Format(time.RFC3339Nano)
	case AtAge:
		return p.Age.String()
	default:
		return ""
	}
}

// Timeline is a log in which a position has a place.
type Timeline interface {
	// Bounds returns the offsets of the first retained event and of the last one.
	Bounds() (first, last uint64)
	// OffsetAt returns the offset of the first event appended at a time or later.
	OffsetAt(time.Time) (uint64, error)
}

// Resolve returns the offset of the next event at p. now is what an age counts back from. The result is
// not before the first retained event, unless p is an offset that is. AtDefault is the start.
func (p Position) Resolve(log Timeline, now time.Time) (uint64, error) {
	first, last := log.Bounds()
	switch p.Kind {
	case AtEnd:
		return last + 1, nil
	case AtOffset:
		return p.Offset, nil
	case AtLast:
		// More events than the log has ever had start at the first one, without underflow.
		return max(first, last+1-min(p.Last, last)), nil
	case AtTime:
		return log.OffsetAt(p.Time)
	case AtAge:
		return log.OffsetAt(now.Add(-p.Age))
	default:
		return first, nil
	}
}
