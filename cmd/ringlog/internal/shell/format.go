package shell

import (
	"fmt"
	"math"
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

// Short prints a duration to be read by people.
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
		return d.Round(time.Second).String()
	default:
		// Package time has no days: 49h reads as 2d1h0m0s.
		return fmt.Sprintf("%dd%s", d/(24*time.Hour), (d % (24 * time.Hour)).Round(time.Hour))
	}
}

// Millis is a time in milliseconds, to the microsecond.
func Millis(d time.Duration) float64 { return math.Round(float64(d)/1000) / 1000 }

// LocalTime prints a time for people.
func LocalTime(t time.Time) string {
	// The zero time means that it is not known, or did not happen.
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// MomentText prints a time to the millisecond.
func MomentText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05.000")
}
