package client

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/client/internal/calls"
)

const (
	defaultTTL     = 5 * time.Minute
	keepsPerTTL    = 3                      // a registration is sent so often in its time
	changesWait    = 200 * time.Millisecond // for more of them, before they are sent
	keeperRetry    = 2 * time.Second
	keeperPatience = 10 * time.Second // of one call
)

// Register says what a process listens to, as Client.RegisterSubscriptions does.
type Register func(ctx context.Context, r Registration) error

// Keeper keeps a registration alive: it sends it again before its time is over, and what
// has changed a moment after it did. It is safe for concurrent use.
type Keeper struct {
	register Register
	logger   hclog.Logger

	mu      sync.Mutex
	current Registration

	changed chan struct{} // holds one
	ctx     context.Context
	stop    context.CancelFunc
	done    chan struct{}
	closing sync.Once
	err     error
}

// NewKeeper begins to keep a registration, whose subscriptions may come later: nothing is
// sent while there are none. A nil logger is silence.
func NewKeeper(register Register, r Registration, logger hclog.Logger) *Keeper {
	if logger == nil {
		logger = hclog.NewNullLogger()
	}
	r.TTL = cmp.Or(r.TTL, defaultTTL)
	k := &Keeper{register: register, logger: logger, current: r, changed: make(chan struct{}, 1), done: make(chan struct{})}
	k.ctx, k.stop = context.WithCancel(context.Background())
	if len(r.Subscriptions) > 0 {
		k.changed <- struct{}{}
	}
	go func() {
		defer close(k.done)
		k.run()
	}()
	return k
}

// KeepRegistered is NewKeeper for this client, which outlives the keeper.
func (c *Client) KeepRegistered(r Registration) *Keeper {
	return NewKeeper(c.RegisterSubscriptions, r, c.cfg.Logger)
}

// Set replaces the subscriptions. It does not wait for the cluster.
func (k *Keeper) Set(list []SubscriptionInfo) {
	k.mu.Lock()
	k.current.Subscriptions = list
	k.mu.Unlock()
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

func (k *Keeper) run() {
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
		r := k.registration()
		if k.ctx.Err() != nil || len(r.Subscriptions) == 0 && !sent {
			continue
		}
		if err := k.send(k.ctx, r); err != nil {
			k.logger.Warn("what is listened to here is not registered", "client", r.ID, "error", err)
			timer.Reset(keeperRetry)
			continue
		}
		if sent = len(r.Subscriptions) > 0; sent {
			timer.Reset(r.TTL / keepsPerTTL)
		} else {
			timer.Stop()
		}
	}
}

func (k *Keeper) registration() Registration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current
}

func (k *Keeper) send(ctx context.Context, r Registration) error {
	ctx, cancel := context.WithTimeout(ctx, keeperPatience)
	defer cancel()
	return k.register(ctx, r)
}

// Close takes the registration away, for as long as ctx allows: after that it expires by
// itself. It may be called again.
func (k *Keeper) Close(ctx context.Context) error {
	k.closing.Do(func() {
		k.stop()
		<-k.done
		r := k.registration()
		if len(r.Subscriptions) == 0 {
			return
		}
		r.Subscriptions = nil
		k.err = k.send(ctx, r)
	})
	return k.err
}
