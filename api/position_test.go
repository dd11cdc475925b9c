package api_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
)

// Every way in reads the same positions: internal/server and cmd/ringlog go through this table, too.
func TestPositionsAreReadAsWritten(t *testing.T) {
	table, err := os.ReadFile("testdata/positions.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		text, want := strings.TrimSpace(line[:32]), strings.TrimSpace(line[32:])
		p, err := api.ParsePosition("from", text, time.UTC)
		problem, wrong := strings.CutPrefix(want, "! ")
		if !wrong {
			if err != nil || p.String() != want {
				t.Errorf("%q is read as %v, %v; want %s", text, p, err, want)
			}
			if again, err := api.ParsePosition("from", p.String(), time.UTC); err != nil || again.String() != want {
				t.Errorf("%q is read as %v, %v", p, again, err)
			}
			continue
		}
		var bad *api.Error
		if !errors.As(err, &bad) || bad.Code != api.InvalidArgument || bad.Field != "from" || bad.Remedy == "" ||
			!strings.Contains(bad.Message, "from=") || !strings.Contains(bad.Message+bad.Remedy, problem) {
			t.Errorf("%q is read as %v, %#v; want an error that says %q", text, p, bad, problem)
		}
	}
}

// Dates without a zone are in the zone of whoever writes them.
func TestPositionsWithoutAZoneAreInTheCallers(t *testing.T) {
	zone := time.FixedZone("two hours east", 7200)
	for _, text := range []string{
		"@2026-01-05", "2026-01-05", "@2026-01-05T00:00", "2026-01-05T00:00:00",
		"@2026-01-05 00:00:00",
	} {
		if p, err := api.ParsePosition("from", text, zone); err != nil || p.String() != "@2026-01-04T22:00:00Z" {
			t.Errorf("%q is %v, %v", text, p, err)
		}
	}
}

func TestAgesAreReadAsWritten(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0s":   0,
		"90s":  90 * time.Second,
		"7d":   168 * time.Hour,
		"0.5d": 12 * time.Hour,
		"1w":   168 * time.Hour,
	} {
		if age, err := api.ParseAge("older_than", text); err != nil || age != want {
			t.Errorf("%q is %s, %v; want %s", text, age, err, want)
		}
	}
	for _, text := range []string{"", "d", "7", "-1d", "-1s", "soon", "200000000w"} {
		age, err := api.ParseAge("older_than", text)
		var bad *api.Error
		if !errors.As(err, &bad) || bad.Field != "older_than" || !strings.Contains(bad.Remedy, "7d") {
			t.Errorf("%q is %s, %v", text, age, err)
		}
	}
}

// timeline is a log whose events were appended a minute apart, the one at offset 10 at noon.
type timeline struct{ first, last uint64 }

var noon = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

func (l timeline) Bounds() (first, last uint64) { return l.first, l.last }

func (l timeline) OffsetAt(t time.Time) (uint64, error) {
	at := 10 + (t.Sub(noon)+time.Minute-1)/time.Minute
	return min(max(uint64(max(at, 0)), l.first), l.last+1), nil
}

func TestPositionsResolve(t *testing.T) {
	log := timeline{first: 5, last: 20}
	for text, want := range map[string]uint64{
		"":                      5,
		"start":                 5,
		"end":                   21,
		"3":                     3,
		"12":                    12,
		"99":                    99,
		"-1":                    20,
		"-10":                   11,
		"-16":                   5,
		"-1000":                 5,
		"@2026-01-05T12:00:00Z": 10,
		"@2026-01-05T12:00:01Z": 11,
		"@2000-01-01":           5,
		"@2100-01-01":           21,
		"0s":                    15,
		"2m":                    13,
		"1w":                    5,
	} {
		p, err := api.ParsePosition("from", text, time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		if offset, err := p.Resolve(log, noon.Add(5*time.Minute)); err != nil || offset != want {
			t.Errorf("%q is at %d, %v; want %d", text, offset, err, want)
		}
	}
	empty := timeline{first: 1, last: 0}
	for _, text := range []string{"start", "end", "-5", "1h"} {
		p, _ := api.ParsePosition("from", text, time.UTC)
		if offset, err := p.Resolve(empty, noon); err != nil || offset != 1 {
			t.Errorf("%q of an empty log is at %d, %v", text, offset, err)
		}
	}
}
