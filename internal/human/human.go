// Package human prints counts and durations for people, everywhere in the same form.
package human

import (
	"fmt"
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

// Short prints a duration, everywhere in the same form: 177ms, 5.2s, 1m29s, 2d1h.
func Short(d time.Duration) string {
	// As many digits as a person compares at a glance.
	switch {
	case d < 0: // clocks differ
		return "-" + Short(-d)
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return withoutZeros(d.Round(100 * time.Millisecond))
	case d < 48*time.Hour:
		return withoutZeros(d.Round(time.Second))
	default:
		// Package time has no days: 49h reads as 2d1h.
		days := d.Round(time.Hour) / (24 * time.Hour)
		return strings.TrimSuffix(fmt.Sprintf("%dd%s", days, withoutZeros(d.Round(time.Hour)%(24*time.Hour))), "0s")
	}
}

// Exact prints a duration without rounding it, as a setting has it: 90s is 1m30s, 24h0m0s is 24h. It has no days, which
// a setting does not take.
func Exact(d time.Duration) string { return withoutZeros(d) }

// ExactText prints a text that is a duration as Exact does, and returns any other. 0 has no unit: it may be a count.
func ExactText(text string) string {
	if d, err := time.ParseDuration(text); err == nil && text != "0" {
		return Exact(d)
	}
	return text
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
