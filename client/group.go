package client

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/event"
)

// GroupOptions say how to join a group. From to MaxPending count where it is made; if it
// exists, what is given here but From must be its own.
type GroupOptions struct {
	// Member is the name of this member, which no other may have at the same time: they
	// would end each other's sessions. "" is one made of host, process and chance.
	Member string

	From       Position // the zero Position is the start
	Filter     event.Filter
	Policy     CursorPolicy
	AckWait    time.Duration
	MaxDeliver uint64
	MaxPending uint64
	NoCreate   bool // a group that is not there is an error with the code not_found

	// Prefetch is how many events wait in memory, beside those handed out; 1024, at most
	// 10 000. They take about 8 MiB at most. Others of the group do not get them
	// meanwhile, so choose a small one where handling takes long.
	Prefetch int
	// AutoProgress tells the group, again and again, that what was handed out is still
	// worked on: it comes to others only when this process is gone.
	AutoProgress bool
}

// Bounds of what a member keeps in memory.
const (
	defaultPrefetch = 1024
	maxPrefetch     = 10_000
	maxStockBytes   = 8 << 20
	maxShares       = 1 << 20 // offsets of one answer that are looked at
	maxRefused      = 4096
)

// GroupMember shares the events of a group with the other members.
//
// It promises:
//
//   - At least once: an event that is not acknowledged comes again, to this member or to
//     another, through failures of clients, nodes and leaders.
//   - Events with the same key are handled in their order: of those that the group has
//     given to members, one is handed out, and the next once it is acknowledged. One that
//     fails comes again in front of the others.
//   - What was handed out stays with this member, and comes to nobody after its Ack, also
//     where the leader changes or answers are lost. It does come to others, or again, when
//     this process is killed before its acks are durable, when the group does not hear of
//     it for the session timeout, when it keeps an event for longer than the ack wait, and
//     what is behind the first 8192 ranges of offsets that it holds. A member that does not
//     hear of the group for the session timeout hands nothing more out.
//   - An ack or nack is durable once Flush or Close has returned, and not before. But where
//     the answer to a nack is lost with the leader, and the event had failed before, that
//     nack may not be counted: the event comes again as the same delivery.
//   - An event that was handed out may be held for the group's ack wait, counted from
//     when Next returned it or from the last Progress. What waits in memory for handlers
//     that have neither taken nor settled anything for an ack wait goes to others.
//
// All methods may be called from several goroutines.
type GroupMember struct {
	c      *Client
	group  string
	member string
	o      GroupOptions

	stop   context.CancelFunc
	joined sync.WaitGroup // of the two goroutines

	due  chan struct{} // there is something to settle, or to see to
	room chan struct{} // there may be room for more

	fetchMu sync.Mutex // held while a fetching call is under way and its answer taken in

	mu        sync.Mutex
	stock     *stock
	gaps      []Gap
	failed    error // what ended the membership
	closing   bool
	news      chan struct{} // closed when one of those that wait should look again
	waiters   int
	fetchIdle bool // the fetching goroutine waits for room

	// Whether the handlers move: what waits for handlers that do not is given back.
	takers  int  // wait in Next
	moved   bool // since the last tick
	movedAt time.Time
	stuck   bool // nothing is fetched until somebody comes for it

	session    uint64 // 0 while there is none
	inSession  context.Context
	cutSession context.CancelFunc
	ackWait    time.Duration
	timeout    time.Duration // of a session
	heard      time.Time     // the last answer
	ticked     time.Time
	committed  uint64

	taken, size uint64 // events so far and their bytes

	open      settlement  // gathers
	sent      *settlement // is under way, or must be sent again
	resend    bool
	held      []failure // lines that go on after the fetch under way
	given     uint64    // acks and nacks so far
	confirmed uint64    // of those, answered
	refused   RefusedError
}

// JoinGroup makes this process a member of a group, making the group where it is not
// there. Close ends the membership; if the process is killed, the group notices within
// its session timeout.
func (c *Client) JoinGroup(ctx context.Context, group string, o GroupOptions) (*GroupMember, error) {
	o.Prefetch = cmp.Or(o.Prefetch, defaultPrefetch)
	if o.Prefetch < 1 || o.Prefetch > maxPrefetch {
		return nil, fmt.Errorf("client: group %s: Prefetch is %d, not between 1 and %d", group, o.Prefetch, maxPrefetch)
	}
	m := &GroupMember{c: c, group: group, member: o.Member, o: o, stock: newStock(),
		due: make(chan struct{}, 1), room: make(chan struct{}, 1), news: make(chan struct{}), movedAt: time.Now()}
	if m.member == "" {
		m.member = memberName()
	}
	m.refused.Group = group
	open, cancel := c.whileOpen(ctx)
	defer cancel()
	if err := m.enter(open); err != nil {
		return nil, err
	}
	running, stop := c.whileOpen(context.Background())
	m.stop = stop
	m.joined.Add(2)
	c.readers.Go(func() {
		defer m.joined.Done()
		defer stop()
		m.settleLoop(running)
	})
	c.readers.Go(func() {
		defer m.joined.Done()
		m.fetchLoop(running)
	})
	return m, nil
}

// enter joins, and makes the group before where that is asked for.
func (m *GroupMember) enter(ctx context.Context) error {
	o := &m.o
	spec := GroupSpec{From: o.From, Filter: o.Filter, Policy: o.Policy, AckWait: o.AckWait, MaxDeliver: o.MaxDeliver, MaxPending: o.MaxPending}
	stated := !o.Filter.Empty() || o.Policy != CursorPolicy{} || o.AckWait != 0 || o.MaxDeliver != 0 || o.MaxPending != 0
	if stated && !o.NoCreate {
		if _, err := m.c.CreateGroup(ctx, m.group, spec); err != nil {
			return err
		}
	}
	err := m.join(ctx)
	if !o.NoCreate && isAnswer(err, api.NotFound) {
		if _, err := m.c.CreateGroup(ctx, m.group, spec); err != nil {
			return err
		}
		err = m.join(ctx)
	}
	return err
}

func memberName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%.200s-%d-%.8s", host, os.Getpid(), uuid.NewString())
}

// Name is the member's name.
func (m *GroupMember) Name() string { return m.member }

// Group is the group's name.
func (m *GroupMember) Group() string { return m.group }

// Committed is the offset up to which the group has settled everything, as this member
// was last told.
func (m *GroupMember) Committed() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.committed
}

// Close hands out nothing more, waits until all acks and nacks are durable as Flush does,
// and gives back what the member still holds. When ctx is done before, what was not
// durable comes again. It may be called again.
func (m *GroupMember) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closing = true
	m.cutSession() // what the fetch under way brings is given back
	m.wakeAll()
	m.mu.Unlock()
	signal(m.due)
	signal(m.room)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.joined.Wait()
	}()
	var late error
	select {
	case <-ended:
	case <-ctx.Done():
		late = m.named(context.Cause(ctx))
		m.stop()
		<-ended
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.confirmed == m.given:
		return m.takeRefused()
	case late != nil:
		return late
	}
	return m.failed
}

func (m *GroupMember) named(err error) error { return fmt.Errorf("client: group %s: %w", m.group, err) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// wakeAll lets everybody who waits look again. The caller holds mu.
func (m *GroupMember) wakeAll() {
	if m.waiters > 0 {
		close(m.news)
		m.news, m.waiters = make(chan struct{}), 0
	}
}

// await waits for news. The caller holds mu, and does again when it returns.
func (m *GroupMember) await(ctx context.Context) error {
	news := m.news
	m.waiters++
	m.mu.Unlock()
	defer m.mu.Lock()
	select {
	case <-news:
		return nil
	case <-ctx.Done():
		return m.named(context.Cause(ctx))
	}
}

// request begins an exchange. The caller holds mu.
func (m *GroupMember) request() *ringlogv1.ExchangeRequest {
	return &ringlogv1.ExchangeRequest{Group: m.group, Member: m.member, Session: m.session}
}
