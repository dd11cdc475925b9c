package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/ringrift/ringlog/router/breaker"
	"github.com/ringrift/ringlog/sinks"
)

// tellOutcome prints one attempt.
func (sh *shell) tellOutcome(o sinks.Outcome) {
	if sh.json {
		sh.noteLine(struct {
			sinks.Outcome
			DurationMs float64 `json:"duration_ms"`
			WaitMs     float64 `json:"wait_ms,omitempty"`
		}{o, millis(o.Took), millis(o.Wait)})
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%8d  %s  %s in %s", o.Offset, o.Type, o.Result, short(o.Took))
	if o.Delivery > 1 || o.Attempt > 1 {
		fmt.Fprintf(&b, ", attempt %d of delivery %d", o.Attempt, o.Delivery)
	}
	if o.Wait > 0 {
		fmt.Fprintf(&b, ", again in %s", short(o.Wait))
	}
	if o.Lost {
		b.WriteString(", but the group has given it to another member meanwhile")
	}
	if o.Error != "" {
		fmt.Fprintf(&b, ": %s", oneLine(o.Error))
	}
	sh.say("%s", b.String())
}

// tellBreaker prints what the circuit breaker does, which is why nothing else is printed
// while it is open.
func (sh *shell) tellBreaker(openFor time.Duration) func(breaker.Change) {
	return func(ch breaker.Change) {
		switch {
		case sh.json:
			line := struct {
				Breaker string  `json:"breaker"`
				ForMs   float64 `json:"for_ms,omitempty"`
			}{Breaker: ch.To.String()}
			if ch.To == gobreaker.StateOpen {
				line.ForMs = millis(openFor)
			}
			sh.noteLine(line)
		case ch.To == gobreaker.StateOpen:
			sh.say("the circuit breaker is open: nothing is taken for %s", short(openFor))
		case ch.To == gobreaker.StateHalfOpen:
			sh.say("the circuit breaker is half open: the next event decides")
		default:
			sh.say("the circuit breaker is closed")
		}
	}
}

// oneLine is an error as it fits on a line: what failed, and the end of what was said of it.
func oneLine(text string) string {
	const front, back = 100, 200
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= front+back {
		return text
	}
	return strings.ToValidUTF8(text[:front], "") + " … " + strings.ToValidUTF8(text[len(text)-back:], "")
}

// noteLine prints a notice as JSON, for whoever reads stderr by line.
func (sh *shell) noteLine(v any) { _ = writeLine(sh.err, v) } // as with say: nobody is left to tell

// reactLine prints the lines of commands: as they are, or where several run at once with
// the offset in front.
func (sh *shell) reactLine(concurrency int) func(sinks.Line) {
	var mu sync.Mutex
	return func(l sinks.Line) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case sh.json:
			sh.noteLine(l)
		case concurrency > 1:
			sh.say("%8d | %s", l.Offset, l.Text)
		default:
			sh.say("%s", l.Text)
		}
	}
}

// printReacted prints what a run did.
func (sh *shell) printReacted(sum sinks.Summary) error {
	out := struct {
		sinks.Summary
		MedianMs  float64 `json:"median_ms"`
		P95Ms     float64 `json:"p95_ms"`
		LongestMs float64 `json:"longest_ms"`
	}{sum, millis(sum.Median), millis(sum.P95), millis(sum.Longest)}
	return sh.emit(out, func() error {
		pairs := []any{"handled", sum.Handled, "failed", sum.Failed, "dead", sum.Dead, "retried", sum.Retried, "timed out", sum.TimedOut}
		for _, extra := range []struct {
			name string
			n    uint64
		}{{"filtered", sum.Filtered}, {"released", sum.Released}, {"lost", sum.Lost}, {"gaps", sum.Gaps}, {"not published", sum.Untold}} {
			if extra.n > 0 {
				pairs = append(pairs, extra.name, extra.n)
			}
		}
		if sum.Attempts > 0 {
			pairs = append(pairs, "duration", fmt.Sprintf("median %s, p95 %s, longest %s", short(sum.Median), short(sum.P95), short(sum.Longest)))
		}
		return sh.facts(pairs...)
	})
}
