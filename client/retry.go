package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"github.com/cenkalti/backoff/v5"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
)

var errSilent = errors.New("the node shows no life")

// repeat says what may follow an attempt whose outcome is unknown.
type repeat int

const (
	once      repeat = iota // nothing: the call fails
	reading                 // the same again: nothing can have happened
	anew                    // the same again: doing it twice is doing it once, and the last answer counts
	sequenced               // the same again under its sequence: it happens once, but a refusal may be of the repetition alone
)

// attempt is one try at one node. The header is the answer's, nil without one.
type attempt func(ctx context.Context, e *endpoint) (http.Header, error)

// tries is a call on its way from one node to the next, until one answers for good,
// its context is done, or nothing more may be tried. Its errors are *callError.
type tries struct {
	c       *Client
	op      string
	repeat  repeat
	began   time.Time
	backoff *backoff.ExponentialBackOff

	tried    []*endpoint // of this round
	refused  bool        // in this round, by a node that answered
	unknown  bool
	answered bool // by any node
	internal int  // answers that are a node's fault
	last     error

	foreign      []*endpoint // nodes that are of another cluster
	otherCluster error       // what the newest of them said
}

func (c *Client) newTries(op string, r repeat) *tries {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval, b.Multiplier = firstPause, maxPause, 1+overshoot
	return &tries{c: c, op: op, repeat: r, began: time.Now(), backoff: b}
}

// Pauses between rounds grow so that each is about overshoot of the time waited so
// far: that is how much longer than the cluster a caller is without a leader.
const (
	firstPause = 20 * time.Millisecond
	maxPause   = time.Second
	overshoot  = 0.1
)

// maxRepeat bounds how long after its first attempt a sequence is sent again. Nodes keep a
// producer's results for 15 minutes, and take a first sequence for a new producer's afterwards.
const maxRepeat = 10 * time.Minute

var errTooLate = fmt.Errorf("%s have passed since the first attempt, and nodes forget results", maxRepeat)

// elapsed is how long ago t was by the clock that says more: the monotonic clock stands still
// while the machine sleeps, and the wall clock may be set back.
func elapsed(t time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
}

// call makes attempts of at most Config.AttemptTimeout each, for at most
// Config.Timeout. The error is a *callError.
func (c *Client) call(ctx context.Context, op string, r repeat, try attempt) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	t := c.newTries(op, r)
	for {
		e, err := t.next(ctx)
		if err != nil {
			return err
		}
		if done, err := t.run(ctx, e, try); done {
			return err
		}
	}
}

// next waits for its turn and returns whom to ask.
func (t *tries) next(ctx context.Context) (*endpoint, error) {
	for {
		if ctx.Err() != nil {
			return nil, t.end(context.Cause(ctx))
		}
		if t.repeat == sequenced && elapsed(t.began) > maxRepeat {
			return nil, t.end(errTooLate)
		}
		e := t.c.endpoints.pick(t.tried, t.refused)
		if e == nil {
			t.wait(ctx, 0)
			continue
		}
		t.tried = append(t.tried, e)
		err := t.c.learn(ctx, e)
		if err == nil {
			return e, nil
		}
		if done, err := t.judge(ctx, e, classify(causeOf(ctx, err), false)); done {
			return nil, err
		}
	}
}

// wait begins a new round after a pause.
func (t *tries) wait(ctx context.Context, atLeast time.Duration) {
	t.tried, t.refused = t.tried[:0], false
	timer := time.NewTimer(max(t.backoff.NextBackOff(), atLeast))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (t *tries) run(ctx context.Context, e *endpoint, try attempt) (done bool, err error) {
	attemptCtx, cancel := context.WithTimeout(ctx, t.c.cfg.AttemptTimeout)
	defer cancel()
	attemptCtx, sent := traced(attemptCtx)
	header, err := try(attemptCtx, e)
	if err == nil {
		t.c.endpoints.worked(e, header.Get(leaderHeader))
		return true, nil
	}
	return t.judge(ctx, e, classify(causeOf(attemptCtx, err), sent.Load()))
}

// causeOf is err, or why ctx ended where err only tells that somebody cut it short: a
// caller who did not cancel is not told that he had.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		return cause
	}
	return err
}

// judge notes a failed attempt and reports whether it was the last.
func (t *tries) judge(ctx context.Context, e *endpoint, f fault) (done bool, err error) {
	if f.answer != nil || ctx.Err() == nil || t.last == nil {
		t.last = fmt.Errorf("%s: %w", e.url, f.err) // an attempt that was cut short says less than the one before
	}
	t.answered = t.answered || f.answer != nil
	switch {
	case f.final:
		t.c.endpoints.worked(e, f.leader)
		return true, &callError{op: t.op, err: f.err, answer: true, unknown: t.unknown && t.repeat == sequenced, tried: t.unknown}
	case f.code() == api.OtherCluster:
		t.c.endpoints.failed(e)
		t.otherCluster = fmt.Errorf("%s: %w", e.url, f.err)
		if !has(t.foreign, e) {
			t.foreign = append(t.foreign, e)
		}
		if t.c.endpoints.within(t.foreign) {
			return true, &callError{op: t.op, err: t.otherCluster, answer: true, unknown: t.unknown}
		}
	case f.answer == nil && ctx.Err() == nil, f.code() == api.Unavailable:
		t.c.endpoints.failed(e)
		t.c.cfg.Logger.Debug("attempt failed", "op", t.op, "endpoint", e.url, "error", f.err)
	case f.answer != nil:
		t.refused = true
		t.c.endpoints.declined(e, f.leader)
	}
	t.unknown = t.unknown || f.unknown && t.repeat != reading
	if f.code() == api.Internal {
		t.internal++
	}
	if t.unknown && t.repeat == once || t.internal > maxInternal {
		return true, t.end(nil)
	}
	if f.code() == api.Overloaded {
		t.wait(ctx, f.after)
	}
	return false, nil
}

// maxInternal is how many answers that only tell a node's fault are taken for bad
// luck.
const maxInternal = 3

func (t *tries) end(why error) error {
	if why != nil && !t.answered && t.last != nil {
		why = fmt.Errorf("%w: %w", ErrUnreachable, why)
	}
	if t.otherCluster != nil {
		t.last = t.otherCluster // nobody else could serve the call
	}
	return &callError{op: t.op, unknown: t.unknown, err: t.last, ended: why}
}

// fault is a failed attempt, understood.
type fault struct {
	err     error
	answer  *api.Error // what a node said, nil where none did
	final   bool       // the same request will never be accepted
	unknown bool       // it may have happened
	leader  string
	after   time.Duration // how long the node asks to be left alone
}

func (f *fault) code() api.Code {
	if f.answer == nil {
		return ""
	}
	return f.answer.Code
}

// classify understands the error of an attempt that left for a node, or did not.
func classify(err error, sent bool) fault {
	f := fault{err: err}
	f.answer, f.after = answerOf(err)
	if f.answer == nil {
		f.unknown = sent
		return f
	}
	f.err, f.leader = f.answer, f.answer.LeaderHTTP
	switch code := f.answer.Code; {
	case code == api.OutcomeUnknown, code == api.Internal:
		f.unknown = true
	case code == api.Timeout, code == api.OtherCluster, code.Retryable():
	default:
		f.final = true
	}
	return f
}

// answerOf returns what a node said, nil where the error is of the way to it.
func answerOf(err error) (*api.Error, time.Duration) {
	if answer := (*answerError)(nil); errors.As(err, &answer) {
		return answer.api, retryAfter(answer.header)
	}
	var remote *connect.Error
	if !errors.As(err, &remote) {
		return nil, 0
	}
	for _, d := range remote.Details() {
		v, err := d.Value()
		if detail, ok := v.(*ringlogv1.ErrorDetail); err == nil && ok {
			return errorOf(detail), retryAfter(remote.Meta())
		}
	}
	if code := protocolCode(remote); code != "" {
		return &api.Error{Code: code, Message: remote.Message()}, retryAfter(remote.Meta())
	}
	return nil, 0
}

func errorOf(d *ringlogv1.ErrorDetail) *api.Error {
	return &api.Error{Code: api.Code(d.GetCode()), Message: d.GetMessage(), Reason: d.GetReason(), Field: d.GetField(),
		Remedy: d.GetRemedy(), Offset: d.GetOffset(), LeaderHTTP: d.GetLeaderHttp()}
}

// protocolCode names refusals of the protocol layer or of a proxy before a node,
// which carry no detail: the request never was a valid one.
func protocolCode(remote *connect.Error) api.Code {
	switch remote.Code() {
	case connect.CodeInvalidArgument:
		return api.InvalidArgument
	case connect.CodeUnauthenticated, connect.CodePermissionDenied:
		return api.Unauthenticated
	case connect.CodeUnimplemented, connect.CodeNotFound:
		return api.NotImplemented
	case connect.CodeResourceExhausted:
		return api.TooLarge
	}
	return ""
}

// retryAfter reads the header in seconds, the form nodes send.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.ParseFloat(h.Get("Retry-After"), 64)
	if err != nil || seconds < 0 || seconds > 3600 {
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}
