package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

// The states of a check, which are its exit codes, as Nagios has them.
const (
	checkOK       = 0
	checkWarning  = 1
	checkCritical = 2
	checkUnknown  = 3
)

type checkOptions struct {
	warnLag, critLag uint64        // events a cursor may be behind
	warnAge, critAge time.Duration // how long its oldest event may wait
}

func checkCommand(sh *shell) *cli.Command {
	return &cli.Command{
		Name: "check", Usage: "health for a monitor: exit 0 ok, 1 warning, 2 critical, 3 unknown",
		Flags: []cli.Flag{
			&cli.Uint64Flag{Name: "warning-lag", Usage: "warn when a cursor is `N` events behind"},
			&cli.Uint64Flag{Name: "critical-lag", Usage: "critical when a cursor is `N` events behind"},
			&cli.DurationFlag{Name: "warning-age", Usage: "warn when a cursor's oldest event has waited so long"},
			&cli.DurationFlag{Name: "critical-age", Usage: "critical when a cursor's oldest event has waited so long"},
		},
		OnUsageError: func(_ *cli.Context, err error, _ bool) error { return checkDone(sh, checkUnknown, err.Error(), "") },
		Action: func(c *cli.Context) error {
			if err := exactly(c, 0, ""); err != nil {
				return checkDone(sh, checkUnknown, err.Error(), "")
			}
			return check(c.Context, sh, checkOptions{warnLag: c.Uint64("warning-lag"), critLag: c.Uint64("critical-lag"),
				warnAge: c.Duration("warning-age"), critAge: c.Duration("critical-age")})
		},
	}
}

func check(ctx context.Context, sh *shell, o checkOptions) error {
	ctx, cancel := context.WithTimeout(ctx, sh.timeout)
	defer cancel()
	s, _, err := sh.anyStatus(ctx)
	if err != nil && (errors.Is(err, errUnreachable) || errors.Is(err, context.DeadlineExceeded)) {
		return checkDone(sh, checkCritical, fmt.Sprintf("nobody answers at %s", strings.Join(sh.endpoints, ", ")), "")
	}
	if err != nil {
		return checkDone(sh, checkUnknown, err.Error(), "")
	}
	state, words := judge(s, o)
	if len(words) == 0 {
		words = []string{fmt.Sprintf("%s leads, %s", s.LeaderID, quorumText(s.Quorum))}
	}
	return checkDone(sh, state, strings.Join(words, "; "), performance(s))
}

// judge is the state that a status stands for, and why.
func judge(s nodeStatus, o checkOptions) (state int, words []string) {
	state = checkOK
	if words = problems(s); len(words) > 0 {
		state = checkWarning
	}
	if s.LeaderID == "" || s.Quorum.Margin < 0 || s.Diverged || s.DiskFull {
		state = checkCritical
	}
	for _, c := range s.Cursors {
		age := time.Duration(c.LagSeconds * float64(time.Second))
		level := checkOK
		switch {
		case over(c.LagEvents, o.critLag) || over(age, o.critAge):
			level = checkCritical
		case over(c.LagEvents, o.warnLag) || over(age, o.warnAge):
			level = checkWarning
		}
		if level != checkOK {
			words = append(words, fmt.Sprintf("cursor %s is %d events and %s behind", c.Name, c.LagEvents, c.lagTime()))
		}
		state = max(state, level)
	}
	return state, words
}

// over reports a value at or above a limit that was set.
func over[T uint64 | time.Duration](value, limit T) bool { return limit > 0 && value >= limit }

// performance is the data behind the bar that monitors draw.
func performance(s nodeStatus) string {
	lag := uint64(0)
	for _, c := range s.Cursors {
		lag = max(lag, c.LagEvents)
	}
	events := s.LastOffset - min(s.FirstOffset-min(s.FirstOffset, 1), s.LastOffset)
	return fmt.Sprintf("events=%d offset=%dc healthy_voters=%d max_cursor_lag=%d", events, s.LastOffset, s.Quorum.Healthy, min(lag, math.MaxInt64))
}

func checkDone(sh *shell, state int, words, performance string) error {
	name := [...]string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}[state]
	err := sh.emit(map[string]any{"state": name, "code": state, "message": words}, func() error {
		line := fmt.Sprintf("RINGLOG %s - %s", name, words)
		if performance != "" {
			line += " | " + performance
		}
		_, err := fmt.Fprintln(sh.out, line)
		return err
	})
	if err != nil || state == checkOK {
		return err
	}
	return codeError(state)
}
