package daemon

import (
	"testing"
	"time"
)

// A crash loop is several restarts within a minute, whatever came before, and is reported once.
func TestACrashLoopIsFoundOnce(t *testing.T) {
	for name, test := range map[string]struct {
		gaps []time.Duration // before each restart
		at   int             // which restart begins the loop, from 1; 0 is none
	}{
		"at once":           {[]time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}, 3},
		"two only":          {[]time.Duration{0, time.Second}, 0},
		"just within":       {[]time.Duration{0, 30 * time.Second, 30 * time.Second}, 3},
		"too slow":          {[]time.Duration{0, 31 * time.Second, 30 * time.Second, 31 * time.Second, 30 * time.Second}, 0},
		"slow, then faster": {[]time.Duration{0, 2 * time.Minute, time.Second, time.Second, time.Second}, 4},
	} {
		var l crashLoop
		at, now := 0, time.Unix(1_700_000_000, 0)
		for i, gap := range test.gaps {
			now = now.Add(gap)
			if _, begins := l.add(now); begins {
				if at != 0 {
					t.Errorf("%s: reported at restart %d and %d", name, at, i+1)
				}
				at = i + 1
			}
		}
		if at != test.at {
			t.Errorf("%s: at restart %d, not %d", name, at, test.at)
		}
	}
}
