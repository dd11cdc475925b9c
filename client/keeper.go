package client

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/ringrift/ringlog/client/internal/calls"
)

// Times of a Keeper.
const (
	defaultTTL    = 5 * time.Minute        // how long the cluster keeps a registration that is not repeated
	keepsPerTTL   = 3                      // how often a registration is sent within its TTL
	changesWait   = 200 * time.Millisecond // how long changes are gathered before they are sent
	keeperRetry   = 2 * time.Second        // after a call that failed
	keeperTimeout = 10 * time.Second       // of one call
)

// Register registers what a process listens to, as Admin.RegisterSubscriptions does.
type Register func(ctx context.Context, r Registration) error

// Keeper keeps a registration alive: it sends it again before it expires, and changes of it a
// moment after they were made. It is safe for concurrent use.
type Keeper struct {
	// how a registration is sent; a router passes its log's
	register Register
	logger   *slog.Logger

	mu sync.Mutex
	// what should be registered, guarded by mu; list, unless it is nil, makes its subscriptions
	current Registration
	list    func() []SubscriptionInfo

	changed chan struct{} // holds one
	// ends with Close, and so does a call of run that is in flight
	ctx     context.Context
	stop    context.CancelFunc
	done    chan struct{}
	closing sync.Once
	// of Close, guarded by closing
	err error
}

// NewKeeper begins to keep a registration, whose subscriptions may come later: nothing is
// sent while there are none. A nil logger disables logging.
func NewKeeper(register Register, r Registration, logger *slog.Logger) *Keeper {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	r.TTL = cmp.Or(r.TTL, defaultTTL)

	// A registration that has subscriptions already is due at once.
	k := &Keeper{register: register, logger: logger, current: r,
		changed: make(chan struct{}, 1), done: make(chan struct{})}
	k.ctx, k.stop = context.WithCancel(context.Background())
	if len(r.Subscriptions) > 0 {
		k.changed <- struct{}{}
	}

	// Close joins this goroutine by done.
	go func() {
		defer close(k.done)
		k.run()
	}()
	return k
}

// KeepRegistered is NewKeeper for this client, which outlives the keeper.
func (c *Client) KeepRegistered(r Registration) *Keeper {
	return NewKeeper(c.Admin().RegisterSubscriptions, r, c.cfg.Logger)
}

// Set replaces the subscriptions. It does not wait for the cluster.
func (k *Keeper) Set(list []SubscriptionInfo) {
	k.mu.Lock()
	k.current.Subscriptions, k.list = list, nil
	k.mu.Unlock()
	signal(k.changed)
}

// SetAs replaces the subscriptions, and the coordinator that the process is; "" is none. The keeper calls list, one
// call at a time, whenever it sends the registration: a renewal has the health of that moment.
func (k *Keeper) SetAs(coordinator string, list func() []SubscriptionInfo) {
	k.mu.Lock()
	k.current.Coordinator, k.list = coordinator, list
	k.mu.Unlock()
	signal(k.changed)
}

// run sends the registration when it has changed, when it is due again, and again a moment
// after a failure, until Close.
func (k *Keeper) run() {
	// The timer runs while something is registered, or has to be tried again. sent says that
	// the cluster may have subscriptions of this process, so an empty list has to be sent
	// as well.
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	sent := false
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-k.changed:
			calls.Sleep(k.ctx, changesWait)
			select { // what has changed meanwhile is sent along
			case <-k.changed:
			default:
			}
		case <-timer.C:
		}

		// Without subscriptions there is nothing to send, unless it removes what was sent
		// before.
		r := k.registration()
		if k.ctx.Err() != nil || (len(r.Subscriptions) == 0 && !sent) {
			continue
		}
		if err := k.send(k.ctx, r); err != nil {
			k.logger.Warn("what is listened to here is not registered", "client", r.ID, "error", err)
			timer.Reset(keeperRetry)
			continue
		}

		// A registration expires unless it is repeated; an empty list has removed it.
		sent = len(r.Subscriptions) > 0
		if sent {
			timer.Reset(r.TTL / keepsPerTTL)
		} else {
			timer.Stop()
		}
	}
}

// registration returns what should be registered now.
func (k *Keeper) registration() Registration {
	k.mu.Lock()
	r, list := k.current, k.list
	k.mu.Unlock()

	// list may take locks of its caller, who may hold them while it calls the keeper.
	if list != nil {
		r.Subscriptions = list()
	}
	return r
}

// send makes one call, so a node that does not answer does not hold up the changes that
// follow.
func (k *Keeper) send(ctx context.Context, r Registration) error {
	ctx, cancel := context.WithTimeout(ctx, keeperTimeout)
	defer cancel()
	return k.register(ctx, r)
}

// Close removes the registration, for as long as ctx allows: after that it expires by itself.
// It may be called again.
func (k *Keeper) Close(ctx context.Context) error {
	k.closing.Do(func() {
		// run must have ended: a call of it that comes later would register the process again.
		k.stop()
		<-k.done
		r := k.registration()
		if len(r.Subscriptions) == 0 {
			return
		}

		// A list without subscriptions removes the process at once.
		r.Subscriptions = nil
		k.err = k.send(ctx, r)
	})
	return k.err
}
