package sinks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/internal/attempt"
)

// trial is a delivery's way through its attempts. Each of its ends settles the delivery.
type trial struct {
	// of the delivery
	rd    *round
	d     client.Delivery
	now   Outcome // the attempt that runs
	last  Outcome // the last attempt that failed
	began time.Time
}

// Ends of a trial that are not failures of the sink.
var (
	errRefused = errors.New("no attempt may follow")
	errSettled = errors.New("settled")
)

// handle takes a delivery through its attempts and settles it.
func (rd *round) handle(d client.Delivery) {
	defer rd.finished()
	t := &trial{rd: rd, d: d}
	err := attempt.Run(rd.base, attempt.Limits{Timeout: rd.o.Timeout, TimedOut: ErrTimeout, CutOff: errCutOff}, t)

	// A delivery that Failed has settled needs nothing more.
	switch {
	case err == nil:
		rd.succeed(d, t.now)
	case errors.Is(err, errRefused):
		rd.refuse(d, t.last)
	}
}

// succeed ends a delivery that was handled, once its answer is in the log.
func (rd *round) succeed(d client.Delivery, o Outcome) {
	o.Result = Handled
	err := rd.answerUntilTaken(d, o)
	switch {
	case err == nil:
		o.Lost = d.Ack() != nil
		rd.tally.countAttempt(o)
	case final(err):
		// Another delivery would end the same way.
		o.Error = unanswered("handled", err)
		o.Result, o.Wait = Dead, 0
		rd.tally.countAttempt(rd.report(d, o, true))
	default:
		rd.release(d, o, errors.New(unanswered("handled", err)))
	}
}

// unanswered is the error of an event whose answer the cluster did not take: somebody waits for it.
func unanswered(outcome string, err error) string {
	return bounded(fmt.Sprintf("%s, but not answered: %v", outcome, err), maxError)
}

// Enter implements attempt.Task.
func (t *trial) Enter() (leave func(error), err error) {
	leave, err = t.rd.breaker.Enter(t.rd.base, t.d.Offset, false, nil)
	if err != nil {
		err = errRefused
	}
	return leave, err
}

// Attempt implements attempt.Task.
func (t *trial) Attempt(ctx context.Context, n int) error {
	t.now = Outcome{Offset: t.d.Offset, Type: t.d.Type, Key: t.d.Key, Delivery: t.d.Count, Attempt: n}
	t.began = time.Now()
	err := t.rd.o.Sink.Handle(ctx, t.d)
	t.now.Took = time.Since(t.began)

	// If not its own timeout has ended the attempt, the end of the process has.
	if cause := context.Cause(ctx); err != nil && cause != nil && cause != ErrTimeout {
		err = fmt.Errorf("%w: %w", errCutOff, err)
	}
	return err
}

// Failed implements attempt.Task: it decides whether another attempt follows, or the end of
// the delivery.
func (t *trial) Failed(n int, err error) (wait time.Duration, end error) {
	rd, o := t.rd, t.now
	if errors.Is(err, errCutOff) { // which says nothing of the sink
		rd.release(t.d, o, err)
		return 0, errSettled
	}

	// Report the failure, with how long the sink wants to be left alone.
	f := failureOf(err)
	o.Error, o.TimedOut, o.Wait = bounded(err.Error(), maxError), errors.Is(err, ErrTimeout), rd.o.wait(n, f)
	if o.TimedOut {
		rd.notices.timedOut(t.d, o)
	}

	// Another attempt follows in this delivery while the process runs and the breaker lets it:
	// a longer wait is for the group, which then delivers the event again.
	again := !f.Dead && n <= rd.o.Retries && o.Wait <= longestHold
	if again && rd.taking.Err() == nil && rd.state.Load() != int32(gobreaker.StateOpen) {
		o.Result = Retried
		t.last = o
		rd.tally.countAttempt(o)
		return o.Wait, nil
	}
	rd.tally.countAttempt(rd.nack(t.d, o, f.Dead))
	return 0, errSettled
}

// Pause implements attempt.Task.
func (t *trial) Pause(wait time.Duration) error {
	if !attempt.Sleep(t.rd.taking, wait) {
		return errRefused
	}
	return nil
}

// refuse ends a delivery that may not have its next attempt here: the breaker is open, or the
// process ends. One without any attempt goes back as it came.
func (rd *round) refuse(d client.Delivery, last Outcome) {
	if last.Attempt == 0 {
		rd.release(d, Outcome{Offset: d.Offset, Type: d.Type, Key: d.Key, Delivery: d.Count}, nil)
		return
	}
	rd.tally.countDelivery(rd.nack(d, last, false))
}

// nack ends a delivery that failed. A dead letter follows its answer, which says that there is one.
func (rd *round) nack(d client.Delivery, o Outcome, dead bool) Outcome {
	o.Result = Failed
	// The group makes a dead letter of the last delivery that it allows, and nothing is waited for after that.
	if dead || (rd.o.MaxDeliver > 0 && d.Count >= rd.o.MaxDeliver) {
		o.Result, o.Wait = Dead, 0
		err := rd.answerUntilTaken(d, o)
		if err != nil {
			o.Error = unanswered(o.Error, err)
		}

		// If the process ends before the answer is in the log, the event is redelivered, so that another one gives it.
		if err != nil && !final(err) {
			return rd.giveBack(d, o)
		}
	}
	return rd.report(d, o, dead)
}

// report ends a delivery as one that failed.
func (rd *round) report(d client.Delivery, o Outcome, dead bool) Outcome {
	// The group keeps the error with the event, shorter than it is reported.
	nack := client.NackOptions{Delay: o.Wait, Err: bounded(o.Error, maxKept), Dead: dead, Handler: rd.o.Group}
	o.Lost = d.Nack(nack) != nil
	rd.notices.failed(d, o)
	return o
}

// release gives an event back as it came.
func (rd *round) release(d client.Delivery, o Outcome, err error) {
	if err != nil {
		o.Error = bounded(err.Error(), maxError)
	}

	// Without an attempt there is no duration to count.
	o = rd.giveBack(d, o)
	if o.Attempt > 0 {
		rd.tally.countAttempt(o)
	} else {
		rd.tally.countDelivery(o)
	}
}

// giveBack releases a delivery. It does not count, neither for the group nor for Options.Count.
func (rd *round) giveBack(d client.Delivery, o Outcome) Outcome {
	// takeEvents has counted it as begun; adding the highest number takes one off.
	rd.begun.Add(^uint64(0))
	o.Result = Released
	o.Lost = d.Nack(client.NackOptions{Released: true}) != nil
	return o
}

// How much of an error is reported, and how much the group keeps.
const (
	maxError = 4 << 10
	maxKept  = 1 << 10
)

// bounded cuts a text in its middle: it begins with what failed, and the output of a command
// ends with why.
func bounded(text string, most int) string {
	const front = 128
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= most {
		return text
	}
	const mark = " … "

	// The cuts may fall into a character: its rest is dropped.
	end := text[len(text)-(most-front-len(mark)):]
	return strings.ToValidUTF8(text[:front], "") + mark + strings.ToValidUTF8(end, "")
}
