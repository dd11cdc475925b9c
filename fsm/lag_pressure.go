package fsm

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// Throttle records that BACKPRESSURE_ACTIVATED was reported of a cursor or group, and when.
type Throttle struct {
	Since time.Time `json:"since"`
}

// Why backpressure of a cursor or group is released.
const (
	releasedLag     = "lag"     // it lags by no more than the lower limit
	releasedSetting = "setting" // no limit is set for it any more
	releasedRemoved = "removed" // it was deleted, or has expired
)

// LagLimit says at which lag, in events, a cursor or group is throttled, and at which lower one it no longer is.
type LagLimit struct {
	Pattern           string // a name, or the start of names and a *
	Activate, Release uint64 // Release + 2 <= Activate
}

// matches reports whether the limit is for a cursor or group of that name. A pattern without a star is the name itself.
func (l LagLimit) matches(name string) bool {
	start, open := strings.CutSuffix(l.Pattern, "*")
	return name == l.Pattern || (open && strings.HasPrefix(name, start))
}

// LagLimitOf returns the first limit that is for a cursor or group of that name.
func (s *Settings) LagLimitOf(name string) (limit LagLimit, found bool) {
	at := slices.IndexFunc(s.LagLimits, func(l LagLimit) bool { return l.matches(name) })
	if at < 0 {
		return LagLimit{}, false
	}
	return s.LagLimits[at], true
}

// Throttles reports whether a cursor or group is to be throttled that lags by that many events. Between the limits
// it stays what it is. Without a limit for it, it is not throttled.
func (s *Settings) Throttles(c *Cursor, lag uint64) bool {
	limit, limited := s.LagLimitOf(c.Name)
	switch {
	case !limited:
		return false
	case c.Throttled != nil:
		return lag > limit.Release
	}
	return lag >= limit.Activate
}

// LagPressure says at which lag, in events, a cursor or group is throttled and released, and since when it is
// throttled. Both limits are 0 where none is set any more.
type LagPressure struct {
	ActivateAt, ReleaseAt uint64
	Since                 time.Time
}

// PressureOf returns the limits and the backpressure of a cursor or group; nil if it has neither.
func (s *Settings) PressureOf(c *Cursor) *LagPressure {
	limit, limited := s.LagLimitOf(c.Name)
	p := &LagPressure{ActivateAt: limit.Activate, ReleaseAt: limit.Release}
	switch {
	case c.Throttled != nil:
		p.Since = c.Throttled.Since
	case !limited:
		return nil
	}
	return p
}

// Bounds of the setting backpressure.lag.
const (
	maxLagLimits     = 256
	maxLagLimitsText = 16 << 10
)

// lagLimits takes PATTERN=ACTIVATE/RELEASE, comma separated. Spaces around names and numbers do not count. An error
// changes nothing.
func lagLimits(s *Settings, value string) error {
	list := strings.Split(value, ",")
	// Split makes one empty element of an empty value.
	if value == "" {
		list = nil
	}
	if len(list) > maxLagLimits || len(value) > maxLagLimitsText {
		return fmt.Errorf("%d limits in %d bytes, the bounds are %d and %d", len(list), len(value), maxLagLimits,
			maxLagLimitsText)
	}

	var limits []LagLimit
	for _, one := range list {
		// A name may have an equals sign, the numbers have none.
		at := max(0, strings.LastIndexByte(one, '='))
		pattern, numbers := strings.TrimSpace(one[:at]), strings.TrimSpace(one[min(at+1, len(one)):])
		high, low, _ := strings.Cut(numbers, "/")
		activate, errHigh := strconv.ParseUint(high, 10, 63)
		release, errLow := strconv.ParseUint(low, 10, 63)
		stars := strings.Count(strings.TrimSuffix(pattern, "*"), "*")
		// BACKPRESSURE_RELEASED is an event that a cursor without a filter gets. It must not reach the upper limit.
		if pattern == "" || stars > 0 || errHigh != nil || errLow != nil || activate < release+2 {
			return fmt.Errorf("%q is not NAME=HIGH/LOW or START*=HIGH/LOW with LOW at least 2 below HIGH, "+
				"such as selfplay-*=10000/2000", one)
		}
		limits = append(limits, LagLimit{Pattern: pattern, Activate: activate, Release: release})
	}
	s.LagLimits = limits
	return nil
}

// reportLag takes in what the leader measured of a cursor or group, and emits one event when its lag reaches the upper
// limit, and one when it has fallen to the lower one. A report that changes nothing, which may be that of an earlier
// leader, is answered as a replay.
func (a *cursorApplier) reportLag(c frame.LagReport) Result {
	cur := a.s.cursors[c.Cursor]
	// It is about a cursor that was removed meanwhile.
	if cur == nil || cur.Created.UnixNano() != c.Created {
		return Result{Replayed: true}
	}
	before, after := cur.Throttled != nil, a.s.settings.Throttles(cur, c.Lag)
	switch {
	case before == after:
		return Result{Replayed: true}
	case after:
		cur.Throttled = &Throttle{Since: a.time()}
		a.s.ranks.throttled[cur.Name] = cur
		a.late = append(a.late, event.New(event.BackpressureActivated, a.lagPressure(cur, c.Lag)))
	default:
		// It is released because it has caught up, or because nothing limits it any more.
		reason := releasedSetting
		if _, limited := a.s.settings.LagLimitOf(cur.Name); limited {
			reason = releasedLag
		}
		a.reportRelease(cur, c.Lag, reason)
		cur.Throttled = nil
		delete(a.s.ranks.throttled, cur.Name)
	}
	return a.saveCursor(cur)
}

// reportRelease reports that a throttled cursor or group no longer is. The caller stores that.
func (a *cursorApplier) reportRelease(c *Cursor, lag uint64, reason string) {
	p := a.lagPressure(c, lag)
	p["active_ms"], p["reason"] = a.time().Sub(c.Throttled.Since).Milliseconds(), reason
	a.late = append(a.late, event.New(event.BackpressureReleased, p))
}

// lagPressure returns the fields that both events have. The platform's subscribers read queue_depth.
func (a *cursorApplier) lagPressure(c *Cursor, lag uint64) map[string]any {
	p := map[string]any{"cursor": c.Name, "group": c.Group != nil, "lag_events": lag, "queue_depth": lag}
	if limit, limited := a.s.settings.LagLimitOf(c.Name); limited {
		p["activate_at"], p["release_at"] = limit.Activate, limit.Release
	}
	return p
}

// ThrottleCandidates returns up to n cursors and groups that are throttled, or have so many offsets left that they may
// have to be, in the order of their names: those after a name first.
func (v *views) ThrottleCandidates(after string, n int) []Cursor {
	return read(v, func(s *state) (list []Cursor) {
		// Those that are throttled have to be measured, to be released.
		names := slices.Collect(maps.Keys(s.ranks.throttled))
		// Cursors near the tail reach no limit, and are not looked at.
		least := uint64(math.MaxUint64)
		for _, l := range s.settings.LagLimits {
			least = min(least, l.Activate)
		}
		if least <= s.meta.Last {
			for at, c := range s.ranks.byPassed.Ascend(atLeast[uint64](0), below(s.meta.Last-least+1)) {
				if c.Throttled == nil {
					names = append(names, at.name)
				}
			}
		}
		for _, name := range roundAfter(names, after, n) {
			list = append(list, *s.view(s.cursors[name]))
		}
		return list
	})
}
