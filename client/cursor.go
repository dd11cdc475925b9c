package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/client/internal/calls"
	"github.com/ringrift/ringlog/event"
)

// CursorOptions say how to open a cursor. From, Filter and Policy count where it is
// made; if it exists, a Filter or Policy given here must be its own.
type CursorOptions struct {
	From   Position // the zero Position is the start
	Filter event.Filter
	Policy CursorPolicy
	// Change gives a cursor that has another filter or policy these, from behind its
	// commit: what is in front of that does not come again, and nothing behind is lost.
	Change   bool
	NoCreate bool // a cursor that is not there is an error with the code not_found
	// NoScanCommit leaves every commit to the caller. Else Next, while it waits,
	// commits what passed the cursor without a match once the caller has committed
	// all that it was given, so that a quiet cursor holds nothing back.
	NoScanCommit bool
	// UntilEnd ends the reading with io.EOF behind what was there when the cursor was
	// opened.
	UntilEnd bool
}

// Cursor reads as a durable subscriber: what it has committed is not delivered again
// to whoever opens it next. One goroutine calls Next and NextBatch; Commit, Scanned
// and Close may be called from any.
type Cursor struct {
	c       *Client
	info    CursorInfo
	noScan  bool
	toEnd   bool
	batches chan delivery // closed behind the last
	stop    context.CancelFunc
	joined  chan struct{}
	closed  atomic.Bool

	// Of Next's goroutine.
	failed error // what ended the reading

	mu        sync.Mutex
	waiting   []event.Event // received, not handed out
	next      uint64        // behind waiting: everything before it was received
	delivered uint64        // the last offset handed out
	committed uint64
}

// delivery is what the reading goroutine hands over.
type delivery struct {
	events []event.Event
	gap    *Gap
	next   uint64
	err    error
}

// OpenCursor opens a cursor, making it where it is not there, and fences off whoever
// had it open before: their commits and reads fail with the code fenced.
func (c *Client) OpenCursor(ctx context.Context, name string, o CursorOptions) (*Cursor, error) {
	info, err := c.openCursor(ctx, name, o)
	if err != nil {
		return nil, err
	}
	cur := &Cursor{c: c, info: info, noScan: o.NoScanCommit, toEnd: o.UntilEnd, batches: make(chan delivery, 1), joined: make(chan struct{}),
		next: info.Committed + 1, delivered: info.Committed, committed: info.Committed}
	reading, stop := c.whileOpen(context.Background())
	cur.stop = stop
	c.readers.Go(func() {
		defer close(cur.joined)
		defer stop()
		cur.read(reading)
	})
	return cur, nil
}

func (c *Client) openCursor(ctx context.Context, name string, o CursorOptions) (CursorInfo, error) {
	spec := CursorSpec{From: o.From, Filter: o.Filter, Policy: o.Policy}
	stated := o.Change || !o.Filter.Empty() || o.Policy != CursorPolicy{}
	if stated && !o.NoCreate {
		_, err := c.CreateCursor(ctx, name, spec)
		if o.Change && calls.IsAnswer(err, api.Exists) {
			err = c.ChangeCursor(ctx, name, o.Filter, o.Policy)
		}
		if err != nil {
			return CursorInfo{}, err
		}
	}
	info, err := c.startGeneration(ctx, name)
	if !o.NoCreate && calls.IsAnswer(err, api.NotFound) {
		if _, err := c.CreateCursor(ctx, name, spec); err != nil {
			return CursorInfo{}, err
		}
		info, err = c.startGeneration(ctx, name)
	}
	return info, err
}

func (c *Client) startGeneration(ctx context.Context, name string) (CursorInfo, error) {
	resp, err := cursorCall(ctx, c, "open cursor "+name, ringlogv1connect.CursorServiceClient.OpenCursor, &ringlogv1.OpenCursorRequest{Name: name, Opener: uuid.NewString()})
	return cursorOf(resp.GetCursor()), err
}

// Info is the cursor as it was opened.
func (cur *Cursor) Info() CursorInfo { return cur.info }

// Next returns the next event, or a *GapError for events that are not kept any more;
// reading goes on behind it, and a commit of Gap.To says that it is dealt with. An
// event with a Redrive comes again, for this cursor alone, after it was dead-lettered. Any
// other error but one of ctx is the end.
func (cur *Cursor) Next(ctx context.Context) (event.Event, error) {
	if err := cur.fill(ctx); err != nil {
		return event.Event{}, err
	}
	cur.mu.Lock()
	defer cur.mu.Unlock()
	ev := cur.waiting[0]
	cur.waiting, cur.delivered = cur.waiting[1:], ev.Offset
	return ev, nil
}

// NextBatch returns all events that are there, at least one, as Next would one by
// one.
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
		select {
		case d, ok := <-cur.batches:
			if !ok {
				d.err = cur.errClosed()
			}
			if err := cur.take(ctx, d); err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("client: cursor %s: %w", cur.info.Name, context.Cause(ctx))
		}
	}
}

func (cur *Cursor) errClosed() error {
	return fmt.Errorf("client: cursor %s: %w", cur.info.Name, ErrClosed)
}

func (cur *Cursor) has() bool {
	cur.mu.Lock()
	defer cur.mu.Unlock()
	return len(cur.waiting) > 0
}

// take makes a delivery the present one. The error is for Next to return.
func (cur *Cursor) take(ctx context.Context, d delivery) error {
	if d.err != nil {
		cur.failed = d.err
		return d.err
	}
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

func (cur *Cursor) scanned() uint64 {
	if len(cur.waiting) > 0 {
		return cur.waiting[0].Offset - 1
	}
	return cur.next - 1
}

// commitScanned commits what passed without a match, if nothing else is open. Only a
// refusal is an error: a failure is left to the next time.
func (cur *Cursor) commitScanned(ctx context.Context) error {
	cur.mu.Lock()
	offset, due := cur.scanned(), cur.committed >= cur.delivered && cur.scanned() > cur.committed
	cur.mu.Unlock()
	if cur.noScan || !due {
		return nil
	}
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
// never moves a cursor back. Where another reader has opened the cursor since, the
// code is fenced.
func (cur *Cursor) Commit(ctx context.Context, offset uint64) error {
	req := &ringlogv1.CommitCursorRequest{Name: cur.info.Name, Offset: offset, Generation: cur.info.Generation}
	_, err := cursorCall(ctx, cur.c, fmt.Sprintf("commit cursor %s at %d", cur.info.Name, offset), ringlogv1connect.CursorServiceClient.CommitCursor, req)
	if err != nil {
		return err
	}
	cur.mu.Lock()
	defer cur.mu.Unlock()
	cur.committed = max(cur.committed, offset)
	return nil
}

// Close ends the reading. What was not committed comes again to whoever opens the
// cursor next. It may be called again.
func (cur *Cursor) Close() error {
	cur.closed.Store(true)
	cur.stop()
	<-cur.joined
	return nil
}

// read fetches ahead of Next until ctx is done or nothing more can come.
func (cur *Cursor) read(ctx context.Context) {
	defer close(cur.batches)
	s := cur.c.cluster.NewStream("cursor "+cur.info.Name, false, func(ctx context.Context, n *calls.Node, next uint64) (*calls.Messages, error) {
		return n.Cursor.ReadCursor(ctx, calls.NewRequest(cur.c.cluster, &ringlogv1.ReadCursorRequest{
			Name: cur.info.Name, Generation: cur.info.Generation, Follow: !cur.toEnd, From: next, Packets: true}))
	})
	defer s.Disconnect()
	for {
		m, err := s.Receive(ctx)
		if errors.Is(err, io.EOF) && !cur.toEnd {
			continue
		}
		if ctx.Err() != nil {
			return
		}
		d := delivery{err: err}
		if err == nil {
			d = delivery{gap: gapOf(m.GetGap()), next: m.GetNext()}
			if d.events, err = eventsOf(m.GetRuns()); err != nil {
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
