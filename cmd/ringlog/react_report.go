package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/router/breaker"
	"github.com/ringrift/ringlog/router/sinks"
)

// printOutcome prints one attempt.
// With -o json it is an object a line on stderr, where people get a line of text.
func printOutcome(sh *shell.Shell, o sinks.Outcome) {
	if sh.JSON {
		noteLine(sh, struct {
			sinks.Outcome
			DurationMs float64 `json:"duration_ms"`
			WaitMs     float64 `json:"wait_ms,omitempty"`
		}{o, shell.Millis(o.Took), shell.Millis(o.Wait)})
		return
	}
	// For people: one line, with only what is out of the ordinary after the result.
	var b strings.Builder
	fmt.Fprintf(&b, "%8d  %s  %s after %s", o.Offset, o.Type, o.Result, shell.Short(o.Took))
	if o.Delivery > 1 || o.Attempt > 1 {
		fmt.Fprintf(&b, ", attempt %d of delivery %d", o.Attempt, o.Delivery)
	}
	if o.Wait > 0 {
		fmt.Fprintf(&b, ", next attempt in %s", shell.Short(o.Wait))
	}
	if o.Lost {
		b.WriteString(", but the group has redelivered it to another member")
	}
	if o.Error != "" {
		fmt.Fprintf(&b, ": %s", oneLine(o.Error))
	}
	// One call, so lines of several attempts do not mix.
	sh.Say("%s", b.String())
}

// printBreaker returns what prints the changes of the circuit breaker: while it is open nothing else is printed,
// and this says why.
func printBreaker(sh *shell.Shell, openFor time.Duration) func(breaker.Change) {
	return func(ch breaker.Change) {
		// For programs one object for each change; people get what it means for the events.
		switch {
		case sh.JSON:
			line := struct {
				Breaker string  `json:"breaker"`
				ForMs   float64 `json:"for_ms,omitempty"`
			}{Breaker: ch.To.String()}
			// Only the open state ends by time.
			if ch.To == gobreaker.StateOpen {
				line.ForMs = shell.Millis(openFor)
			}
			noteLine(sh, line)
		case ch.To == gobreaker.StateOpen:
			sh.Say("the circuit breaker is open: no event is taken for %s", shell.Short(openFor))
		case ch.To == gobreaker.StateHalfOpen:
			sh.Say("the circuit breaker is half open: the next event decides")
		default:
			sh.Say("the circuit breaker is closed")
		}
	}
}

// oneLine returns an error as one line of at most about 300 bytes: its beginning, which names what failed, and its
// end, where commands print the cause. A character cut in two is dropped.
func oneLine(text string) string {
	const front, back = 100, 200
	// White space shrinks to single spaces, so a stack trace is one line.
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= front+back {
		return text
	}
	return strings.ToValidUTF8(text[:front], "") + " … " + strings.ToValidUTF8(text[len(text)-back:], "")
}

// noteLine prints a notice as JSON, for whoever reads stderr by line.
func noteLine(sh *shell.Shell, v any) { _ = shell.WriteLine(sh.Err, v) } // as with Say: nobody is left to report it to

// printLine returns what prints the lines of commands: as they are, or preceded by the event's offset if several
// commands run at once. The commands call it concurrently; a lock keeps lines whole.
func printLine(sh *shell.Shell, concurrency int) func(sinks.Line) {
	var mu sync.Mutex
	return func(l sinks.Line) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case sh.JSON:
			noteLine(sh, l)
		// Lines of several commands mix, so each says whose it is.
		case concurrency > 1:
			sh.Say("%8d | %s", l.Offset, l.Text)
		default:
			sh.Say("%s", l.Text)
		}
	}
}

// printReacted prints what a run did.
func printReacted(sh *shell.Shell, sum sinks.Summary) error {
	// Durations are in milliseconds for programs, and rounded for people.
	out := struct {
		sinks.Summary
		MedianMs  float64 `json:"median_ms"`
		P95Ms     float64 `json:"p95_ms"`
		LongestMs float64 `json:"longest_ms"`
	}{sum, shell.Millis(sum.Median), shell.Millis(sum.P95), shell.Millis(sum.Longest)}
	return sh.Emit(out, func() error {
		// People see the counts that are always of interest, then those that are not zero.
		pairs := []any{"handled", sum.Handled, "failed", sum.Failed, "dead", sum.Dead, "retried", sum.Retried,
			"timed out", sum.TimedOut}
		for _, extra := range []struct {
			name string
			n    uint64
		}{{"filtered", sum.Filtered}, {"released", sum.Released}, {"lost", sum.Lost}, {"gaps", sum.Gaps},
			{"not published", sum.Unpublished}} {
			if extra.n > 0 {
				pairs = append(pairs, extra.name, extra.n)
			}
		}
		// Without an attempt there is no duration.
		if sum.Attempts > 0 {
			pairs = append(pairs, "duration",
				fmt.Sprintf("median %s, p95 %s, longest %s", shell.Short(sum.Median), shell.Short(sum.P95),
					shell.Short(sum.Longest)))
		}
		return sh.Facts(pairs...)
	})
}
