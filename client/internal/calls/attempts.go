package calls

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"github.com/cenkalti/backoff/v5"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/certs"
)

// Repeat says what may follow an attempt whose outcome is unknown.
type Repeat int

const (
	// Once: nothing. The call fails.
	Once Repeat = iota
	// Reading: the same again, as nothing can have happened.
	Reading
	// Idempotent: the same again. Doing it twice is doing it once, and the last answer counts.
	Idempotent
	// Sequenced: the same again under its sequence. It happens once, but a refusal may be of
	// the repetition alone.
	Sequenced
)

// attempts is a call on its way from one node to the next, until one answers for good, its
// context is done, or nothing more may be tried. Its errors are *Error.
type attempts struct {
	c      *Cluster
	op     Op
	asked  int // attempts made, of which Config.Observe learns
	repeat Repeat
	began  time.Time
	pauses *backoff.ExponentialBackOff

	tried   []*Node // of this round
	refused bool    // in this round, by a node that answered
	// An attempt may have happened, and no node has said what became of it.
	unknown  bool
	answered bool   // by any node
	internal int    // answers that are a node's fault
	token    string // of the newest attempt
	last     error

	foreign      []*Node // nodes of another cluster
	otherCluster error   // the answer of the newest of them
}

// newAttempts begins a call, whose rounds count from now.
func (c *Cluster) newAttempts(op Op, r Repeat) *attempts {
	return &attempts{c: c, op: op, repeat: r, began: time.Now(), pauses: NewPauses()}
}

// Pauses between rounds grow so that each is about overshoot of the time waited so
// far: that is how much longer than the cluster a caller is without a leader.
const (
	firstPause = 20 * time.Millisecond
	maxPause   = time.Second
	overshoot  = 0.1
)

// NewPauses returns the pauses between attempts.
func NewPauses() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	// With this factor each pause is about that share of all before it.
	b.InitialInterval, b.MaxInterval, b.Multiplier = firstPause, maxPause, 1+overshoot
	return b
}

// maxRepeat bounds how long after its first attempt a sequence is sent again. Nodes keep a
// producer's results for 15 minutes, and take a first sequence for a new producer's afterwards.
const maxRepeat = 10 * time.Minute

// Elapsed is how long ago t was by the clock that shows more: the monotonic clock stops
// while the machine sleeps, and the wall clock may be set back.
func Elapsed(t time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
}

// nextNode returns the node to ask. If all were asked it waits for the next round.
func (a *attempts) nextNode(ctx context.Context) (*Node, error) {
	for {
		if ctx.Err() != nil {
			// Why it ended: the caller's reason, or the time.
			return nil, a.end(context.Cause(ctx))
		}
		if a.repeat == Sequenced && Elapsed(a.began) > maxRepeat {
			return nil, a.end(errTooLate)
		}

		// Each node is asked once in a round.
		// Where a node has answered in this round, those that failed lately are left out.
		n := a.c.nodes.pick(a.tried, a.refused, a.op.Aside)
		if n == nil {
			a.beginRound(ctx, 0)
			continue
		}
		a.tried = append(a.tried, n)

		// Before anything is sent the cluster must be known, so it cannot be another one.
		err := a.c.learnCluster(ctx, n)
		if err == nil {
			a.token = a.c.token.current()
			return n, nil
		}
		// sent is false, since the call itself has not left.
		if done, err := a.judge(ctx, n, classify(causeOf(ctx, err), false)); done {
			return nil, err
		}
	}
}

// beginRound begins a new round after a pause.
func (a *attempts) beginRound(ctx context.Context, atLeast time.Duration) {
	a.tried, a.refused = a.tried[:0], false
	// Whichever is longer: the usual pause, or the time that a node asked for.
	Sleep(ctx, max(a.pauses.NextBackOff(), atLeast))
}

// Sleep waits until d has passed or ctx is done.
func Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// skip keeps a node for the next round.
func (a *attempts) skip(n *Node) {
	if !slices.Contains(a.tried, n) {
		a.tried = append(a.tried, n)
	}
}

// causeOf is err, or why ctx ended if err only reports that somebody canceled: a
// caller who did not cancel must not read that he had.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		return cause
	}
	return err
}

// judge takes in a failed attempt and reports whether it was the last.
func (a *attempts) judge(ctx context.Context, n *Node, f fault) (done bool, err error) {
	// An attempt that was cut short says less than the one before.
	if f.answer != nil || ctx.Err() == nil || a.last == nil {
		a.last = fmt.Errorf("%s: %w", n.URL, f.err)
	}
	a.answered = a.answered || f.answer != nil

	// What the attempt says of the node, and whether it decides the call.
	switch {
	case f.code() == api.Unauthenticated && a.c.token.renew(a.token):
		// Nothing has happened, and the next attempt has another token.
		a.c.cfg.Logger.Debug("the cluster token was replaced", "op", a.op.String(), "file", a.c.cfg.TokenFile)
		return false, nil
	case f.final:
		// A refusal shows that the node works.
		a.c.nodes.worked(n, f.leader)
		// Without a sequence the refusal counts for all attempts.
		unknown := a.unknown && a.repeat == Sequenced
		return true, &Error{Op: a.op.String(), Err: f.err, Answer: true, Unknown: unknown, Tried: a.unknown}
	case f.code() == api.OtherCluster:
		a.c.nodes.failed(n)
		a.otherCluster = fmt.Errorf("%s: %w; %s", n.URL, f.err, a.c.pin.held.Load())
		if !slices.Contains(a.foreign, n) {
			a.foreign = append(a.foreign, n)
		}
		// No node is left that could serve the call.
		if a.c.nodes.allWithin(a.foreign) {
			return true, &Error{Op: a.op.String(), Err: a.otherCluster, Answer: true, Unknown: a.unknown}
		}
		// Another node may serve the call, and the list of endpoints is wrong all the same.
		if !n.foreign.Swap(true) {
			a.c.cfg.OnWarning(event.Warning{Reason: string(api.OtherCluster), Field: "endpoints",
				Message: fmt.Sprintf("an endpoint is passed over: %v", a.otherCluster)})
		}
	case f.answer == nil && ctx.Err() == nil, f.code() == api.Unavailable:
		// If ctx has ended, nothing was learned of the node.
		a.c.nodes.failed(n)
		a.c.cfg.Logger.Debug("attempt failed", "op", a.op.String(), "endpoint", n.URL, "error", f.err)
	case f.answer != nil:
		// It answers, and another node may serve the call.
		a.refused = true
		a.c.nodes.declined(n, f.leader)
	}

	// Whether another attempt may follow.
	a.unknown = a.unknown || (f.unknown && a.repeat != Reading)
	if f.code() == api.Internal {
		a.internal++
	}
	// What must not happen twice is not sent again.
	if (a.unknown && a.repeat == Once) || a.internal > maxInternal {
		return true, a.end(nil)
	}
	if f.code() == api.Overloaded {
		// The pause is for all nodes, since they append to the same log.
		a.beginRound(ctx, f.after)
	}
	return false, nil
}

// maxInternal is how many answers that report a node's own fault are taken for bad luck.
const maxInternal = 3

// end returns the error of a call that no node decided: why it ended, after the last attempt's
// error. ErrUnreachable is added if no node ever answered.
func (a *attempts) end(why error) error {
	if why != nil && !a.answered && a.last != nil {
		why = fmt.Errorf("%w: %w", ErrUnreachable, why)
	}
	if a.otherCluster != nil {
		a.last = a.otherCluster // no other node could serve the call
	}
	return &Error{Op: a.op.String(), Unknown: a.unknown, Err: a.last, Ended: why}
}

// fault is a failed attempt, understood.
type fault struct {
	err     error
	answer  *api.Error // of the node, nil if none answered
	final   bool       // the same request will never be accepted
	unknown bool       // it may have happened
	leader  string
	after   time.Duration // how long the node asks to be left alone
}

// code is the answer's code, "" if no node answered.
func (f *fault) code() api.Code {
	if f.answer == nil {
		return ""
	}
	return f.answer.Code
}

// classify understands the error of an attempt. sent says whether it may have left for a node.
func classify(err error, sent bool) fault {
	f := fault{err: err}
	f.answer, f.after = answerOf(err)
	if f.answer == nil {
		// What was sent may have happened.
		f.unknown = sent
		if remedy := certs.Remedy(err); remedy != "" {
			f.err = fmt.Errorf("%w: %s", err, remedy)
		}
		return f
	}

	// A node's remedy is for programs in any language.
	if f.answer.Code == api.Unauthenticated && f.answer.Field == "Authorization" {
		f.answer.Remedy = "set the client's Config.Token, or name a file that has the token in Config.TokenFile"
	}
	// Most answers are final: the same request is refused again. The others may pass.
	f.err, f.leader = f.answer, f.answer.LeaderHTTP
	switch code := f.answer.Code; {
	case code == api.OutcomeUnknown, code == api.Internal:
		// The node does not know either.
		f.unknown = true
	case code == api.Timeout, code == api.OtherCluster, code.Retryable():
		// These may pass: at another node, or later.
	default:
		// Also a code that only a later version knows.
		f.final = true
	}
	return f
}

// answerOf returns a node's answer, nil if the error is of the way to the node.
func answerOf(err error) (*api.Error, time.Duration) {
	if answer, ok := errors.AsType[*AnswerError](err); ok {
		return answer.API, retryAfter(answer.Header)
	}
	remote, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return nil, 0
	}

	// Nodes put their error into the details of Connect's.
	for _, d := range remote.Details() {
		v, err := d.Value()
		if detail, ok := v.(*ringlogv1.ErrorDetail); err == nil && ok {
			return ErrorOf(detail), retryAfter(remote.Meta())
		}
	}
	// What refused is a proxy, or a node's protocol layer.
	if code := protocolCode(remote); code != "" {
		refusal := &api.Error{Code: code, Message: remote.Message()}
		if code == api.NotImplemented {
			refusal.Message = cmp.Or(refusal.Message, "there is no such path")
			refusal.Remedy = "check that the endpoint is a ringlog node, and has no path unless a proxy has the node there"
		}
		return refusal, retryAfter(remote.Meta())
	}
	return nil, 0
}

// ErrorOf is an error as it comes over the wire.
func ErrorOf(d *ringlogv1.ErrorDetail) *api.Error {
	return &api.Error{Code: api.Code(d.GetCode()), Message: d.GetMessage(), Reason: d.GetReason(), Field: d.GetField(),
		Remedy: d.GetRemedy(), Offset: d.GetOffset(), LeaderHTTP: d.GetLeaderHttp()}
}

// protocolCode names refusals of the protocol layer, or of a proxy in front of a node,
// which carry no detail: the request never was a valid one.
func protocolCode(remote *connect.Error) api.Code {
	// Other codes, such as unavailable, say nothing final.
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
	// More than an hour is no advice of a node.
	seconds, err := strconv.ParseFloat(h.Get("Retry-After"), 64)
	if err != nil || seconds < 0 || seconds > 3600 {
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}
