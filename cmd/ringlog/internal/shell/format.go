package shell

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Count is a number with what it counts: 1 node, 3 nodes. plural is said where an s does not make it.
func Count[N ~int | ~uint64](n N, singular string, plural ...string) string {
	switch {
	// One is said without an s.
	case n == 1:
		return "1 " + singular
	case len(plural) > 0:
		return fmt.Sprintf("%d %s", n, plural[0])
	}
	return fmt.Sprintf("%d %ss", n, singular)
}

// Short prints a duration for people, everywhere in the same form: 177ms, 5.2s, 1m29s, 2d1h.
func Short(d time.Duration) string {
	// As many digits as a person compares at a glance.
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < 48*time.Hour:
		return withoutZeros(d.Round(time.Second))
	default:
		// Package time has no days: 49h reads as 2d1h.
		days := d.Round(time.Hour) / (24 * time.Hour)
		return strings.TrimSuffix(fmt.Sprintf("%dd%s", days, withoutZeros(d.Round(time.Hour)%(24*time.Hour))), "0s")
	}
}

// withoutZeros leaves out the last units of a duration that are 0: 1h0m0s is 1h.
func withoutZeros(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Seconds prints a number of seconds as Short does.
func Seconds(s float64) string { return Short(time.Duration(s * float64(time.Second))) }

// Size prints a number of bytes for people, in powers of 1024: 512 B, 1.5 KiB, 8 GiB.
func Size[N ~int | ~int64 | ~uint64](n N) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	// One decimal where it matters.
	if value < 10 && unit > 0 {
		value = math.Round(value*10) / 10
	} else {
		value = math.Round(value)
	}
	return fmt.Sprintf("%g %s", value, units[unit])
}

// Millis is a time in milliseconds, to the microsecond.
func Millis(d time.Duration) float64 { return math.Round(float64(d)/1000) / 1000 }

// Time prints a time for people, in UTC to the second: 2026-11-25T15:04:05Z. It can be given to --from after an @.
func Time(t time.Time) string { return inUTC(t, time.RFC3339) }

// Moment prints a time in UTC to the millisecond.
func Moment(t time.Time) string { return inUTC(t, "2006-01-02T15:04:05.000Z07:00") }

// Clock prints the time of the day in UTC to the millisecond, for lines that follow each other on a terminal.
func Clock(t time.Time) string { return inUTC(t, "15:04:05.000Z07:00") }

// inUTC prints a time, or - for the zero time, which means that it is not known, or did not happen.
func inUTC(t time.Time, layout string) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(layout)
}
