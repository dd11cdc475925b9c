package shell

import (
	"fmt"
	"math"
	"time"

	"github.com/ringrift/ringlog/internal/human"
)

// Count is human.Count.
func Count[N ~int | ~uint64](n N, singular string, plural ...string) string {
	return human.Count(n, singular, plural...)
}

// Short is human.Short.
func Short(d time.Duration) string { return human.Short(d) }

// Seconds is human.Seconds.
func Seconds(s float64) string { return human.Seconds(s) }

// sizeUnits are units of bytes, each 1024 times the one before.
var sizeUnits = []string{"B", "KiB", "MiB", "GiB", "TiB"}

// Size prints a number of bytes for people, in powers of 1024: 512 B, 1.5 KiB, 8 GiB.
func Size[N ~int | ~int64 | ~uint64](n N) string {
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(sizeUnits)-1 {
		value, unit = value/1024, unit+1
	}
	// One decimal if it matters.
	if value < 10 && unit > 0 {
		value = math.Round(value*10) / 10
	} else {
		value = math.Round(value)
	}
	return fmt.Sprintf("%g %s", value, sizeUnits[unit])
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
