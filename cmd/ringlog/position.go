package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
)

// parsePosition reads the position that a flag gives. Times without a zone are local.
func parsePosition(flag, text string) (api.Position, error) {
	p, err := api.ParsePosition("--"+flag, text, time.Local)
	if err == nil && p.Kind == api.AtDefault {
		return p, usagef("--%s is empty\nuse %s", flag, api.PositionForms)
	}
	return p, usageOf(err)
}

// parseAge reads the age that a flag gives, which is above 0.
func parseAge(flag, text string) (time.Duration, error) {
	age, err := api.ParseAge("--"+flag, text)
	if err == nil && age == 0 {
		return 0, usagef("--%s %s: it must be above 0", flag, text)
	}
	return age, usageOf(err)
}

// usageOf makes what the parsers of package api report an error of the command line.
func usageOf(err error) error {
	if bad, ok := errors.AsType[*api.Error](err); ok {
		return usagef("%s\n%s", bad.Message, bad.Remedy)
	}
	return err
}

// clientPosition is a position as the client takes it.
func clientPosition(p api.Position) client.Position {
	switch p.Kind {
	case api.AtStart:
		return client.FromStart()
	case api.AtEnd:
		return client.FromEnd()
	case api.AtOffset:
		return client.FromOffset(p.Offset)
	case api.AtLast:
		return client.FromLast(p.Last)
	case api.AtTime:
		return client.FromTime(p.Time)
	default:
		return client.FromAge(p.Age)
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
