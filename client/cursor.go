package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/client/internal/calls"
	"github.com/ringrift/ringlog/event"
)

// CursorOptions say how to open a cursor. From, Filter and Policy count if it is
// made; if it exists, what is given here of Filter and Policy must be its own, and what is left
// out is not compared.
type CursorOptions struct {
	From   Position // by default the start
	Filter event.Filter
	Policy CursorPolicy
	// Change gives a cursor that has another filter or policy these ones, from its commit on:
	// events before that are not redelivered, and none after it is lost. What is left out is then
	// all events and the cluster's settings.
	Change   bool
	NoCreate bool // a cursor that does not exist is an error with the code not_found
	// NoScanCommit leaves every commit to the caller. Otherwise Next, while it waits, commits
	// the events that do not match once the caller has committed all that it was given,
	// so a quiet cursor holds nothing back.
	NoScanCommit bool
	// UntilEnd ends the reading with io.EOF after the events that were there when the cursor
	// was opened.
	UntilEnd bool
	// Lease is the lease of a role, as of Role.Lease: commits and dead letters count only if it is not over when the
	// cluster decides. Otherwise the error is an *api.Error with the code fenced and the field fence.
	Lease Lease
}

// Cursor reads as a durable subscriber: events that it has committed are not delivered again
// when it is opened next. One goroutine calls Next and NextBatch; Commit, Scanned
// and Close may be called from any.
type Cursor struct {
	c *Client
	// as it was opened, with the generation that reads and commits name
	info CursorInfo
	// CursorOptions.NoScanCommit, UntilEnd and Lease
	noScan  bool
	toEnd   bool
	lease   Lease
	batches chan delivery      // closed after the last
	stop    context.CancelFunc // ends reading
	joined  chan struct{}      // closed once reading has ended
	closed  atomic.Bool        // Close was called

	// Of Next's goroutine.
	failed error // what ended the reading

	mu        sync.Mutex
	waiting   []event.Event // received, not handed out
	next      uint64        // after waiting: everything before it was received
	delivered uint64        // the last offset handed out
	committed uint64        // the highest offset that the cluster has confirmed
}

// delivery is what the reading goroutine hands over.
type delivery struct {
	events []event.Event
	gap    *Gap   // nil for none
	next   uint64 // everything before it is in this or an earlier one; 0 if that is not known
	err    error  // the end of the reading; what else is set does not count then
}

// OpenCursor opens a cursor, creating it if it does not exist, and fences off those that
// had it open before: their commits and reads fail with the code fenced.
func (c *Client) OpenCursor(ctx context.Context, name string, o CursorOptions) (*Cursor, error) {
	info, err := c.openCursor(ctx, name, o)
	if err != nil {
		return nil, err
	}
	cur := &Cursor{c: c, info: info, noScan: o.NoScanCommit, toEnd: o.UntilEnd, lease: o.Lease,
		batches: make(chan delivery, 1), joined: make(chan struct{}),
		next: info.Committed + 1, delivered: info.Committed, committed: info.Committed}

	// The reading goroutine ends with the cursor or the client.
	reading, stop := c.whileOpen(context.Background())
	cur.stop = stop
	c.readers.Go(func() {
		defer close(cur.joined)
		defer stop()
		cur.read(reading)
	})
	return cur, nil
}

// openCursor creates or changes the cursor if the options ask for it, and starts a new
// generation.
func (c *Client) openCursor(ctx context.Context, name string, o CursorOptions) (CursorInfo, error) {
	spec := CursorSpec{From: o.From, Filter: o.Filter, Policy: o.Policy}

	// A filter or policy that is given must be the cursor's own, which CreateCursor checks, or is changed.
	stated, create := !o.Filter.Empty() || o.Policy != CursorPolicy{}, c.CreateCursor
	if o.Change {
		stated, create = true, c.createCursor
	}
	if stated && !o.NoCreate {
		_, err := create(ctx, name, spec)
		if o.Change && calls.IsAnswer(err, api.Exists) {
			err = c.ChangeCursor(ctx, name, o.Filter, o.Policy)
		}
		if err != nil {
			return CursorInfo{}, err
		}
	}

	// A new generation fences off those that had the cursor open.
	info, err := c.startGeneration(ctx, name)
	if !o.NoCreate && calls.IsAnswer(err, api.NotFound) {
		if _, err := c.CreateCursor(ctx, name, spec); err != nil {
			return CursorInfo{}, err
		}
		info, err = c.startGeneration(ctx, name)
	}
	return info, err
}

// startGeneration opens the cursor as the cluster knows it. The opener's random id makes a
// retry of this call return the same generation instead of fencing itself off.
func (c *Client) startGeneration(ctx context.Context, name string) (CursorInfo, error) {
	resp, err := cursorCall(ctx, c, calls.Op{Name: "open cursor", Subject: name},
		ringlogv1connect.CursorServiceClient.OpenCursor,
		&ringlogv1.OpenCursorRequest{Name: name, Opener: uuid.NewString()})
	return cursorOf(resp.GetCursor()), err
}

// Info is the cursor as it was opened.
func (cur *Cursor) Info() CursorInfo { return cur.info }

// Next returns the next event, or a *GapError for events that are not kept any more;
// reading continues after them, and a commit of Gap.To acknowledges the gap. An event with a
// Redrive is delivered again, to this cursor alone, after it was dead-lettered. Any other
// error but one of ctx is the end.
func (cur *Cursor) Next(ctx context.Context) (event.Event, error) {
	if err := cur.fill(ctx); err != nil {
		return event.Event{}, err
	}

	// fill has seen an event, and no other goroutine takes any.
	cur.mu.Lock()
	defer cur.mu.Unlock()
	ev := cur.waiting[0]
	cur.waiting, cur.delivered = cur.waiting[1:], ev.Offset
	return ev, nil
}

// NextBatch returns all events that are there, at least one, as Next would one by one.
func (cur *Cursor) NextBatch(ctx context.Context) ([]event.Event, error) {
	if err := cur.fill(ctx); err != nil {
		return nil, err
	}
	cur.mu.Lock()
	defer cur.mu.Unlock()
	events := cur.waiting
	cur.waiting, cur.delivered = nil, events[len(events)-1].Offset
	return events, nil
}

// fill waits until an event is there.
func (cur *Cursor) fill(ctx context.Context) error {
	for {
		switch {
		case cur.closed.Load():
			return cur.errClosed()
		case cur.failed != nil:
			return cur.failed
		case cur.has():
			return nil
		}

		// Nothing is there: wait for what the reading goroutine hands over next. It closes
		// batches when the cursor or the client was closed.
		select {
		case d, ok := <-cur.batches:
			if !ok {
				d.err = cur.errClosed()
			}
			if err := cur.accept(ctx, d); err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("client: cursor %s: %w", cur.info.Name, context.Cause(ctx))
		}
	}
}

// errClosed is the error of a cursor that was closed, or whose client was.
func (cur *Cursor) errClosed() error {
	return fmt.Errorf("client: cursor %s: %w", cur.info.Name, ErrClosed)
}

// has reports whether an event waits to be handed out.
func (cur *Cursor) has() bool {
	cur.mu.Lock()
	defer cur.mu.Unlock()
	return len(cur.waiting) > 0
}

// accept makes a delivery the present one. The error is for Next to return.
func (cur *Cursor) accept(ctx context.Context, d delivery) error {
	if d.err != nil {
		cur.failed = d.err
		return d.err
	}

	if cur.c.events != nil {
		for i := range d.events {
			cur.c.showReceived("cursor "+cur.info.Name, &d.events[i])
		}
	}

	// A gap counts as delivered: a commit may follow it.
	cur.mu.Lock()
	cur.waiting, cur.next = d.events, max(cur.next, d.next)
	if d.gap != nil {
		cur.delivered = max(cur.delivered, d.gap.To)
	}
	cur.mu.Unlock()
	switch {
	case d.gap != nil:
		return &GapError{*d.gap}
	case len(d.events) == 0:
		return cur.commitScanned(ctx)
	}
	return nil
}

// Scanned returns the offset up to which everything was handed out or does not match
// the filter.
func (cur *Cursor) Scanned() uint64 {
	cur.mu.Lock()
	defer cur.mu.Unlock()
	return cur.scanned()
}

// scanned is Scanned for callers that hold mu: the offset before the first event that waits, or
// all that was received.
func (cur *Cursor) scanned() uint64 {
	if len(cur.waiting) > 0 {
		return cur.waiting[0].Offset - 1
	}
	return cur.next - 1
}

// commitScanned commits the events that do not match, if nothing else is open. Only a refusal
// is an error: after a failure it is tried again the next time.
func (cur *Cursor) commitScanned(ctx context.Context) error {
	cur.mu.Lock()
	offset, due := cur.scanned(), cur.committed >= cur.delivered && cur.scanned() > cur.committed
	cur.mu.Unlock()
	if cur.noScan || !due {
		return nil
	}

	// A fenced or removed cursor is at its end. Anything else may pass.
	err := cur.Commit(ctx, offset)
	switch {
	case calls.IsAnswer(err, api.Fenced), calls.IsAnswer(err, api.NotFound):
		cur.failed = err
		return err
	case err != nil && ctx.Err() == nil:
		cur.c.cfg.Logger.Debug("commit of what was scanned", "cursor", cur.info.Name, "error", err)
	}
	return nil
}

// Commit says that everything up to offset is handled, durably once it returns. It
// never moves a cursor back. If another reader has opened the cursor since, the
// code is fenced.
func (cur *Cursor) Commit(ctx context.Context, offset uint64) error {
	op := calls.Op{Name: "commit cursor", Subject: fmt.Sprintf("%s at %d", cur.info.Name, offset)}
	var err error
	if cur.lease == (Lease{}) {
		req := &ringlogv1.CommitCursorRequest{Name: cur.info.Name, Offset: offset, Generation: cur.info.Generation}
		_, err = cursorCall(ctx, cur.c, op, ringlogv1connect.CursorServiceClient.CommitCursor, req)
	} else {
		err = cur.settleUnder(ctx, op, "/commit", map[string]any{"offset": offset, "generation": cur.info.Generation})
	}
	if err != nil {
		return err
	}

	// Only what is durable counts as committed: commitScanned relies on it. Concurrent commits
	// may return in any order.
	cur.mu.Lock()
	defer cur.mu.Unlock()
	cur.committed = max(cur.committed, offset)
	return nil
}

// settleUnder makes a call that the lease fences.
func (cur *Cursor) settleUnder(ctx context.Context, op calls.Op, path string, body map[string]any) error {
	// Over HTTP, since the lease is named by headers.
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("client: %s: %w", op, err)
	}
	req := &calls.Request{Method: http.MethodPost, Path: "/v1/cursors/" + url.PathEscape(cur.info.Name) + path,
		ContentType: "application/json", Body: raw, Header: leaseHeader(cur.lease)}
	ctx, cancel := cur.c.whileOpen(ctx)
	defer cancel()
	return cur.c.cluster.Call(ctx, op, calls.Idempotent, func(ctx context.Context, n *calls.Node) (http.Header, error) {
		_, h, err := cur.c.cluster.Exchange(ctx, n, req)
		return h, err
	})
}

// Close ends the reading. Events that were not committed are redelivered when the cursor is
// opened next. It may be called again.
func (cur *Cursor) Close() error {
	cur.closed.Store(true)
	cur.stop()
	<-cur.joined
	return nil
}

// read fetches ahead of Next until ctx is done or nothing more can come.
func (cur *Cursor) read(ctx context.Context) {
	defer close(cur.batches)
	open := func(ctx context.Context, n *calls.Node, next uint64) (*calls.Messages, error) {
		return n.Cursor.ReadCursor(ctx, calls.NewRequest(cur.c.cluster, &ringlogv1.ReadCursorRequest{
			Name: cur.info.Name, Generation: cur.info.Generation, Follow: !cur.toEnd, From: next, Packets: true}))
	}

	// The stream reconnects by itself and resumes after the last offset that it received.
	s := cur.c.cluster.NewStream(calls.Op{Name: "cursor", Subject: cur.info.Name}, false, open)
	defer s.Disconnect()
	for {
		m, err := s.Receive(ctx)
		if errors.Is(err, io.EOF) && !cur.toEnd {
			continue
		}
		if ctx.Err() != nil {
			return
		}

		// An error is handed over like events, so Next returns it after those before it.
		d := delivery{err: err}
		if err == nil {
			d = delivery{gap: gapOf(m.GetGap()), next: m.GetNext()}
			d.events, err = eventsOf(m.GetRuns())
			if err != nil {
				d.err = fmt.Errorf("client: cursor %s: %w", cur.info.Name, err)
			}
		}
		select {
		case cur.batches <- d:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}
