package sinks

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/ringrift/ringlog/client"
)

// handle takes a delivery through its attempts and settles it. Every attempt asks the
// breaker.
func (rd *round) handle(d client.Delivery) {
	defer rd.finished()
	var last Outcome
	for n := 1; ; n++ {
		leave, err := rd.breaker.Enter(rd.base, false, nil)
		if err != nil {
			rd.refused(d, last)
			return
		}
		o := Outcome{Offset: d.Offset, Type: d.Type, Key: d.Key, Delivery: d.Count, Attempt: n}
		began := time.Now()
		err = rd.attempt(d)
		o.Took = time.Since(began)
		if errors.Is(err, errCutOff) { // which says nothing of the sink
			rd.release(o, err)
			return
		}
		leave(err)
		if err == nil {
			rd.handled(o)
			return
		}
		last = rd.failed(d, o, err)
		if last.Result != Retried {
			return
		}
		if !sleep(rd.taking, last.Wait) {
			rd.refused(d, last)
			return
		}
	}
}

// attempt calls the sink once, for as long as an attempt may take.
func (rd *round) attempt(d client.Delivery) error {
	ctx, cancel := context.WithTimeoutCause(rd.base, rd.o.Timeout, ErrTimeout)
	defer cancel()
	return why(ctx, rd.o.Timeout, rd.o.Sink.Handle(ctx, d))
}

// handled settles an event whose attempt succeeded.
func (rd *round) handled(o Outcome) {
	o.Result = Handled
	o.Lost = rd.member.Ack(o.Offset) != nil
	rd.tally.attempt(o)
}

// failed decides what follows an attempt that failed: another, or the end of the delivery.
func (rd *round) failed(d client.Delivery, o Outcome, err error) Outcome {
	f := failureOf(err)
	o.Error, o.TimedOut, o.Wait = bounded(err.Error(), maxError), errors.Is(err, ErrTimeout), rd.o.wait(o.Attempt, f)
	if o.TimedOut {
		rd.notices.timedOut(d, o)
	}
	if !f.Dead && o.Attempt <= rd.o.Retries && o.Wait <= longestHold && rd.taking.Err() == nil && rd.state.Load() != int32(gobreaker.StateOpen) {
		o.Result = Retried
		rd.tally.attempt(o)
		return o
	}
	o = rd.giveBack(d, o, f.Dead)
	rd.tally.attempt(o)
	return o
}

// refused ends a delivery that may not have its next attempt here: the breaker is open, or
// the process ends. One without any goes back as it came.
func (rd *round) refused(d client.Delivery, last Outcome) {
	if last.Attempt == 0 {
		rd.release(Outcome{Offset: d.Offset, Type: d.Type, Key: d.Key, Delivery: d.Count}, nil)
		return
	}
	rd.tally.end(rd.giveBack(d, last, false))
}

// giveBack tells the group that a delivery failed.
func (rd *round) giveBack(d client.Delivery, o Outcome, dead bool) Outcome {
	o.Result = Failed
	if dead || rd.o.MaxDeliver > 0 && d.Count >= rd.o.MaxDeliver {
		o.Result, o.Wait = Dead, 0
	}
	o.Lost = rd.member.Nack(d.Offset, client.NackOptions{Delay: o.Wait, Err: bounded(o.Error, maxKept), Dead: dead, Handler: rd.o.Group}) != nil
	rd.notices.failed(d, o)
	return o
}

// release gives an event back as it came.
func (rd *round) release(o Outcome, err error) {
	rd.begun.Add(^uint64(0))
	o.Result = Released
	o.Lost = rd.member.Nack(o.Offset, client.NackOptions{Released: true}) != nil
	if err != nil {
		o.Error = bounded(err.Error(), maxError)
	}
	if o.Attempt > 0 {
		rd.tally.attempt(o)
	} else {
		rd.tally.end(o)
	}
}

// How much of an error is told, and how much the group keeps.
const (
	maxError = 4 << 10
	maxKept  = 1 << 10
)

// bounded cuts a text in its middle: what failed stands in front, and at the end of what a
// command prints stands why.
func bounded(text string, most int) string {
	const front = 128
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= most {
		return text
	}
	const mark = " … "
	return strings.ToValidUTF8(text[:front], "") + mark + strings.ToValidUTF8(text[len(text)-(most-front-len(mark)):], "")
}
