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
	"github.com/ringrift/ringlog/client/internal/calls"
	"github.com/ringrift/ringlog/client/internal/prefetch"
	"github.com/ringrift/ringlog/event"
)

// GroupOptions say how to join a group. From to MaxPending count if it is made; if it
// exists, what is given here but From must be its own, and what is left out is not compared.
type GroupOptions struct {
	// Member is the name of this member, which no other may have at the same time: they
	// would end each other's sessions. "" is one made of host, process and a random part.
	Member string

	From       Position // the zero Position is the start
	Filter     event.Filter
	Policy     CursorPolicy
	AckWait    time.Duration
	MaxDeliver uint64
	MaxPending uint64
	NoCreate   bool // a group that does not exist is an error with the code not_found

	// Prefetch is how many events wait in memory, beside those handed out; 1024, at most
	// 10 000. They take about 8 MiB at most. Others of the group do not get them
	// meanwhile, so choose a small one if handling takes long.
	Prefetch int
	// Lease is the lease of a role, as of Role.Lease: acks and nacks count only if it is not over when the cluster
	// decides. Once it is over the membership ends with an *api.Error of the code fenced. The zero value is none.
	Lease Lease
	// AutoProgress extends the ack deadline of all events that are handed out, again and
	// again: they are redelivered to others only when this process is gone.
	AutoProgress bool
}

// Bounds of what a member keeps in memory.
const (
	defaultPrefetch  = 1024
	maxPrefetch      = 10_000
	maxPrefetchBytes = 8 << 20
)

// GroupMember shares the events of a group with the other members.
//
// It promises:
//
//   - At least once: an event that is not acknowledged is redelivered, to this member or to
//     another, through failures of clients, nodes and leaders.
//   - Events with the same key are handled in their order: of those that the group has
//     given to members, one is handed out, and the next once it is acknowledged. One that
//     fails is redelivered before the others.
//   - What was handed out stays with this member, and is delivered to nobody after its Ack,
//     even where the leader changes or answers are lost. An event is delivered to others, or
//     again, when this process is killed before its acks are durable, when the group is
//     without contact to it for the session timeout, when it keeps the event for longer than
//     the ack wait, and when the event comes after the first 8192 ranges of offsets that it
//     holds. A member that is without contact for the session timeout hands nothing more out.
//   - An ack or nack is durable once Flush or Close has returned, and not before.
//   - An event that was handed out may be held for the group's ack wait, counted from
//     when Next returned it or from the last Progress. Events that wait in memory for
//     handlers that have neither taken nor settled anything for an ack wait go to others.
//
// All methods may be called from several goroutines.
type GroupMember struct {
	c      *Client
	group  string
	member string
	o      GroupOptions

	stop       context.CancelFunc
	goroutines sync.WaitGroup // ackLoop and fetchLoop
	ackDue     chan struct{}  // holds one token when ackLoop has something to do
	room       chan struct{}  // holds one token when fetchLoop may have room for more
	fetchMu    sync.Mutex     // held while a fetching call is in flight and its answer taken in

	mu sync.Mutex
	// events that were given to the member and not settled; it has no lock of its own
	buffer *prefetch.Buffer
	// acks and nacks that the group has not confirmed; likewise
	acks      *prefetch.Acks
	session   session
	handlers  handlerActivity
	fetched   struct{ events, bytes uint64 } // so far
	fetchIdle bool                           // fetchLoop waits for room
	// the last tick, see tick
	ticked time.Time
	// the highest that any answer has named
	committed uint64
	// not yet returned by Next
	gaps []Gap

	failed  error // what ended the membership
	closing bool
	news    chan struct{} // closed when those that wait should look again
	waiters int           // for news
}

// JoinGroup makes this process a member of a group, making the group if it is not
// there. Close ends the membership; if the process is killed, the group notices within
// its session timeout.
func (c *Client) JoinGroup(ctx context.Context, group string, o GroupOptions) (*GroupMember, error) {
	o.Prefetch = cmp.Or(o.Prefetch, defaultPrefetch)
	if o.Prefetch < 1 || o.Prefetch > maxPrefetch {
		return nil, fmt.Errorf("client: group %s: Prefetch is %d, not between 1 and %d", group, o.Prefetch, maxPrefetch)
	}

	if err := checkName("group", calls.Op{Name: "group", Subject: group}, group); err != nil {
		return nil, err
	}

	// The first session begins here, so errors of the options are returned to the caller.
	m := newGroupMember(c, group, o)
	open, cancel := c.whileOpen(ctx)
	defer cancel()
	if err := m.enter(open); err != nil {
		return nil, err
	}

	// Both loops end with the client. The membership ends with ackLoop, which still sends the
	// last acks after Close.
	running, stop := c.whileOpen(context.Background())
	m.stop = stop
	m.goroutines.Add(2)
	c.readers.Go(func() {
		defer m.goroutines.Done()
		defer stop()
		m.ackLoop(running)
	})
	c.readers.Go(func() {
		defer m.goroutines.Done()
		m.fetchLoop(running)
	})
	return m, nil
}

// newGroupMember returns a member without a session.
func newGroupMember(c *Client, group string, o GroupOptions) *GroupMember {
	m := &GroupMember{c: c, group: group, member: o.Member, o: o, buffer: prefetch.NewBuffer(),
		ackDue: make(chan struct{}, 1), room: make(chan struct{}, 1), news: make(chan struct{})}
	m.acks = prefetch.NewAcks(m.buffer)
	m.handlers.activeAt = time.Now()

	// Two members of one name would end each other's sessions.
	if m.member == "" {
		m.member = memberName()
	}
	return m
}

// enter joins, and makes the group before if that is asked for.
func (m *GroupMember) enter(ctx context.Context) error {
	o := &m.o
	spec := GroupSpec{From: o.From, Filter: o.Filter, Policy: o.Policy, AckWait: o.AckWait,
		MaxDeliver: o.MaxDeliver, MaxPending: o.MaxPending}
	stated := !o.Filter.Empty() || o.Policy != CursorPolicy{} ||
		o.AckWait != 0 || o.MaxDeliver != 0 || o.MaxPending != 0

	// Options that are given must be the group's own, which CreateGroup checks.
	if stated && !o.NoCreate {
		if _, err := m.c.CreateGroup(ctx, m.group, spec); err != nil {
			return err
		}
	}
	err := m.join(ctx)
	if !o.NoCreate && calls.IsAnswer(err, api.NotFound) {
		if _, err := m.c.CreateGroup(ctx, m.group, spec); err != nil {
			return err
		}
		err = m.join(ctx)
	}
	return err
}

// memberName returns a name that no other member has, of another run of this process either:
// host, pid and a random part.
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

// Committed is the offset up to which the group has settled everything, as of the last answer
// that this member had.
func (m *GroupMember) Committed() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.committed
}

// Close hands out nothing more, waits until all acks and nacks are durable as Flush does,
// and releases what the member still holds. When ctx is done before, what was not durable is
// redelivered. It may be called again.
func (m *GroupMember) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closing = true
	m.session.cancel() // what the fetch in flight brings is given back
	m.wakeAll()
	m.mu.Unlock()

	// Both loops look again: fetchLoop ends, ackLoop sends the last acks, leaves and ends.
	signal(m.ackDue)
	signal(m.room)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.goroutines.Wait()
	}()

	// Without more time the loops are cut off, and what is not confirmed is redelivered.
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

	// That everything is durable counts more than how the loops ended.
	switch {
	case m.acks.Confirmed() == m.acks.Given():
		return m.takeRefused()
	case late != nil:
		return late
	}
	return m.failed
}

// named wraps an error with the name of the group.
func (m *GroupMember) named(err error) error { return fmt.Errorf("client: group %s: %w", m.group, err) }

// signal leaves a token in a channel of size one unless one is there: several reasons to look
// again are one look.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// wakeAll wakes all that wait for news. The caller holds mu.
func (m *GroupMember) wakeAll() {
	if m.waiters > 0 {
		close(m.news)
		m.news, m.waiters = make(chan struct{}), 0
	}
}

// waitNews waits for news. The caller holds mu, and does again when it returns.
func (m *GroupMember) waitNews(ctx context.Context) error {
	// The channel is read while mu is held, so no wakeAll between here and the wait is
	// missed.
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

// fail ends the membership.
func (m *GroupMember) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()

	// The first reason is kept: what follows are its consequences.
	if m.failed == nil {
		m.failed = err
	}

	// Calls in flight end, and Next, Flush and fetchLoop look again.
	m.session.id = 0
	m.session.cancel()
	m.wakeAll()
	signal(m.room)
}
