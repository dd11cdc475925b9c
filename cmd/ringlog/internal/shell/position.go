package shell

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringrift/ringlog/api"
)

// ParsePosition reads the position that a flag gives. Times without a zone are local.
func ParsePosition(flag, text string) (api.Position, error) {
	// Errors name the flag as people type it.
	p, err := api.ParsePosition("--"+flag, text, time.Local)
	if err == nil && p.Kind == api.AtDefault {
		return p, Usagef("--%s is empty\nuse %s", flag, api.PositionForms)
	}
	return p, usageOf(err)
}

// ParseAge reads the age that a flag gives, which is above 0.
func ParseAge(flag, text string) (time.Duration, error) {
	// An age of 0 would mean everything, which has to be said in another way.
	age, err := api.ParseAge("--"+flag, text)
	if err == nil && age == 0 {
		return 0, Usagef("--%s %s must be above 0", flag, text)
	}
	return age, usageOf(err)
}

// ParseTime reads the time that a flag gives. One without a zone is local.
func ParseTime(flag, text string) (time.Time, error) {
	at, err := api.ParseTime("--"+flag, text, time.Local)
	return at, usageOf(err)
}

// usageOf makes what the parsers of package api report an error of the command line.
func usageOf(err error) error {
	if bad, ok := errors.AsType[*api.Error](err); ok {
		return Usagef("%s\n%s", bad.Message, bad.Remedy)
	}
	return err
}

// ParseSize reads the number of bytes that a flag or a setting gives: 1048576, 512KiB or 2 GiB.
func ParseSize(name, text string) (uint64, error) {
	// Without the letters of a unit and blanks at the end.
	digits := strings.TrimRight(text, "BKMGTibkmgt ")
	n, err := strconv.ParseUint(digits, 10, 64)
	// Its index is the power of 1024.
	unit := slices.IndexFunc(sizeUnits, func(u string) bool {
		return strings.EqualFold(u, strings.TrimSpace(text[len(digits):]))
	})
	if digits == text { // without a unit
		unit = 0
	}
	// The limit keeps the product within an int64.
	if err != nil || unit < 0 || n > math.MaxInt64>>(10*unit) {
		return 0, Usagef("%s %q: give a number of bytes, with a unit or without: %s (powers of 1024)", name, text,
			strings.Join(sizeUnits, ", "))
	}
	return n << (10 * unit), nil
}

// ParseOffset reads one offset.
func ParseOffset(s string) (uint64, error) {
	// 0 is no offset: the log begins at 1.
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 {
		return 0, Usagef("offset %q: offsets are whole numbers from 1", s)
	}
	return n, nil
}
