package election

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever the load, the two reports alternate, at most one in a hold-down: a full
// queue after one was seen, and the end of it after a quiet hold-down.
func TestPressureIsReportedInTurns(t *testing.T) {
	bounds := QueueBounds{Requests: 100, Bytes: 1000}
	reports := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		const look = 100 * time.Millisecond
		hold := lasting(t, look, 3*time.Second, "hold-down")
		active := rapid.Bool().Draw(t, "active")
		p, at := NewPressure(bounds, hold, active), start
		last, full, quiet := time.Time{}, false, 0 // looks in a row
		for range rapid.IntRange(1, 30).Draw(t, "phases") {
			l := Load{
				Requests: rapid.Uint64Range(0, 101).Draw(t, "requests"),
				Bytes:    rapid.Uint64Range(0, 1001).Draw(t, "bytes"),
			}
			if rapid.IntRange(0, 4).Draw(t, "refusals") == 0 {
				l.Refused = 1
			}
			if rapid.Bool().Draw(t, "idle") {
				l = Load{}
			}
			fails := rapid.IntRange(0, 3).Draw(t, "fails") == 0
			for range rapid.IntRange(1, 40).Draw(t, "looks") {
				at = at.Add(look)
				quiet++
				if l.Refused > 0 || l.Requests >= 50 || l.Bytes >= 500 {
					quiet = 0
				}
				full = full || l.Refused > 0 || l.Requests >= 80 || l.Bytes >= 800
				now, due := p.See(at, l)
				ripe := last.IsZero() || at.Sub(last) >= hold
				calm := look*time.Duration(quiet-1) >= hold
				if want := ripe && ((!active && full) || (active && calm)); due != want {
					t.Fatalf("due %v, want %v: active %v, full %v, %d quiet looks", due, want, active, full, quiet)
				}
				if !due || fails {
					continue // it is due until it was reported
				}
				if now == active {
					t.Fatalf("%v is reported twice", now)
				}
				p.NoteReport(at, now)
				reports[now]++
				active, last, full = now, at, false
			}
		}
	})
	if reports[true] == 0 || reports[false] == 0 {
		t.Errorf("reports: %v", reports)
	}
}
