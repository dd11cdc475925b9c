package router

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/eventlog"
)

// Router gives events to the log and to handlers. It is safe for concurrent use.
type Router struct {
	log        Log          // where events go, and come from
	options    Options      // complete
	gate       event.Policy // of all events that are published here
	localTypes event.Matcher
	recent     *recent
	notices    *notices
	letters    *liveLetters   // nil: abandoned events of subscriptions without a cursor are counted alone
	keeper     *client.Keeper // nil: the subscriptions are not registered
	events     *eventlog.Log  // nil: events that pass are not shown
	busy       busy           // publishing, handling, and events of the router's own

	ctx     context.Context // of the router's own events; ended when Close runs out of time
	cut     context.CancelFunc
	quit    chan struct{} // closed by close, when nothing is in flight or its time is over
	noticed chan struct{} // closed when notices has ended

	subs atomic.Pointer[[]*subscriber] // replaced under mu

	mu      sync.Mutex
	closed  bool          // takes events from handlers only
	ended   bool          // takes none
	changed chan struct{} // closed when a subscription's state changes
	closing sync.Once
	err     error // of Close
}

// New returns a router in front of a log, which it does not call yet.
func New(log Log, o Options) (*Router, error) {
	events := eventlog.New(o.Logger)
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("router: options: %w", err)
	}
	var live LiveLetters
	switch {
	case o.Drop:
		o.DeadLetters = nil
	case o.DeadLetters == nil:
		// Letters without a cursor of their own go to the log alone, and not to a DeadLetters of the caller's.
		o.DeadLetters, _ = log.(DeadLetters)
		live, _ = log.(LiveLetters)
	}

	// Nothing runs before the options are known to be right.
	r := &Router{log: log, options: o, events: events,
		quit: make(chan struct{}), noticed: make(chan struct{}), changed: make(chan struct{}),
		recent: newRecent(o.Recent), localTypes: event.Filter{Types: o.LocalTypes}.Compile(o.Catalogue)}
	// Limits are the log's to set.
	r.gate = event.Policy{Catalogue: o.Catalogue, Reserved: event.ReservedForeign, Limits: event.Limits{
		EventBytes: math.MaxInt, NameBytes: math.MaxInt, Depth: 1024,
		RequestEvents: math.MaxInt, RequestBytes: math.MaxInt,
	}}
	r.subs.Store(new([]*subscriber))
	r.ctx, r.cut = context.WithCancel(context.Background())
	r.notices = newNotices(r)
	if live != nil && o.DeadLetters != nil {
		r.letters = newLiveLetters(r, live)
	}
	if err := r.keepRegistered(); err != nil {
		r.cut()
		return nil, fmt.Errorf("router: options: %w", err)
	}

	// Close joins these goroutines by noticed.
	go func() {
		defer close(r.noticed)
		var both sync.WaitGroup
		if r.letters != nil {
			both.Go(func() { r.letters.run(r.ctx, r.quit) })
		}
		r.notices.run(r.ctx, r.quit)
		both.Wait()
	}()
	return r, nil
}

// Subscriber is a subscription at work.
type Subscriber struct{ s *subscriber }

// Subscribe begins to give events to a handler. It returns once the subscription is
// attached to the log, so no event that is acknowledged after that is missed, and
// tries for as long as ctx allows, unless the log refuses. With Background it returns at
// once, and tries for as long as the router is open. ctx bounds Subscribe alone.
func (r *Router) Subscribe(ctx context.Context, spec Subscription) (*Subscriber, error) {
	flows, err := r.flowsFor(ctx, &spec)
	if err != nil {
		return nil, fmt.Errorf("router: subscribe %s: %w", spec.Name, err)
	}
	flow, err := spec.completeStages(r.options.Catalogue, flows)
	if err != nil {
		return nil, fmt.Errorf("router: subscribe %s: %w", spec.Name, err)
	}
	if err := r.completeCoordinator(&spec); err != nil {
		return nil, fmt.Errorf("router: subscribe %s: %w", spec.Name, err)
	}

	// By here a flow or a coordinator has given it its types, which complete checks.
	condition, err := spec.complete(&r.options)
	if err == nil {
		err = joinable(r.log, &spec)
	}
	if err != nil {
		return nil, fmt.Errorf("router: subscribe %s: %w", spec.Name, err)
	}

	// The subscriber is known before it starts, so Close ends it in any case.
	s := newSubscriber(r, spec, condition)
	if flow != nil {
		s.runs = newRuns(r, *flow, &spec)
	}
	if err := r.add(s); err != nil {
		s.cut()
		return nil, fmt.Errorf("router: subscribe %s: %w", spec.Name, err)
	}

	// In the background it attaches when it can; else the caller waits, and a subscription that
	// does not attach in time is removed.
	s.start()
	if spec.Background {
		return &Subscriber{s}, nil
	}
	if err := r.until(ctx, s.attached); err != nil {
		r.remove(s)
		ended, cancel := context.WithCancel(ctx)
		cancel() // nothing was handled that is worth a wait
		err = fmt.Errorf("router: subscribe %s: %w", spec.Name, err)
		if unclosed := s.close(ended); unclosed != nil {
			err = fmt.Errorf("%w; %w", err, unclosed)
		}
		return nil, err
	}
	return &Subscriber{s}, nil
}

// attached reports whether it is decided that the subscription is attached, or cannot be; else
// the error is that of the last attempt.
func (s *subscriber) attached() (decided bool, err error) {
	state, err := s.stateNow()
	switch {
	case state == Attached:
		return true, nil
	case state.final():
		return true, because(fmt.Sprintf("it is %s", state), err)
	}
	return false, err
}

// because returns an error with what has caused it, if that is known.
func because(text string, cause error) error {
	if cause == nil {
		return errors.New(text)
	}
	return fmt.Errorf("%s: %w", text, cause)
}

// add makes a subscriber known, so Close ends it.
func (r *Router) add(s *subscriber) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}

	// The list is replaced and not changed: publishers read it without the lock.
	before := r.subscribers()
	if slices.ContainsFunc(before, func(b *subscriber) bool { return b.spec.Name == s.spec.Name }) {
		return errors.New("there is a subscription of that name")
	}
	if err := r.checkCoordinator(s); err != nil {
		return err
	}

	// Changed under mu alone, so two that subscribe at once do not lose each other.
	after := append(slices.Clone(before), s)
	r.subs.Store(&after)
	r.registerSubscriptions()
	return nil
}

// remove makes a subscriber unknown. It may be so already.
func (r *Router) remove(s *subscriber) {
	r.mu.Lock()
	defer r.mu.Unlock()
	after := slices.DeleteFunc(slices.Clone(r.subscribers()), func(b *subscriber) bool { return b == s })
	r.subs.Store(&after)
	r.registerSubscriptions()
}

// subscribers returns the present list, which must not be changed.
func (r *Router) subscribers() []*subscriber { return *r.subs.Load() }

// find returns the subscription of a name.
func (r *Router) find(name string) (*subscriber, error) {
	subs := r.subscribers()
	i := slices.IndexFunc(subs, func(s *subscriber) bool { return s.spec.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no subscription %q", name)
	}
	return subs[i], nil
}

// stateChanged wakes those that wait for a state.
func (r *Router) stateChanged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.changed)
	r.changed = make(chan struct{})
	if !r.ended {
		r.registerSubscriptions()
	}
}

// until waits until something about states is decided, and returns the decision. If ctx ends
// first, its error wraps the last one of decided.
func (r *Router) until(ctx context.Context, decided func() (bool, error)) error {
	for {
		r.mu.Lock()

		// changed is taken before the look, so no change in between is missed.
		changed := r.changed
		r.mu.Unlock()
		done, err := decided()
		if done {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if err != nil {
				return fmt.Errorf("%w: %w", context.Cause(ctx), err)
			}
			return context.Cause(ctx)
		}
	}
}

// Ready waits until all critical subscriptions are attached to the log. It returns at once
// where one never will be. The error names those that are not.
func (r *Router) Ready(ctx context.Context) error {
	err := r.until(ctx, func() (bool, error) {
		// All are asked, so the error names each that is missing.
		var errs []error
		decided := true
		for _, s := range r.subscribers() {
			if !s.spec.Critical {
				continue
			}
			if done, err := s.attached(); !done || err != nil {
				decided = decided && done
				errs = append(errs, because(fmt.Sprintf("subscription %s is not attached", s.spec.Name), err))
			}
		}
		return decided || len(errs) == 0, errors.Join(errs...)
	})
	if err != nil {
		return fmt.Errorf("router: not ready: %w", err)
	}
	return nil
}

// Subscribers lists the subscriptions, in the order they were made.
func (r *Router) Subscribers() []SubscriberStatus {
	subs := r.subscribers()
	list := make([]SubscriberStatus, len(subs))
	for i, s := range subs {
		list[i] = s.status()
	}
	return list
}

// ResetBreaker closes a subscription's circuit breaker by hand, and says in CIRCUIT_RESET
// by whom.
func (r *Router) ResetBreaker(subscription, by string) error {
	s, err := r.find(subscription)
	if err != nil {
		return fmt.Errorf("router: reset breaker: %w", err)
	}
	s.breaker.Reset()
	r.notices.reset(s, by)
	return nil
}

// Name is that of the subscription.
func (s *Subscriber) Name() string { return s.s.spec.Name }

// Status returns the state and the counts of the subscription.
func (s *Subscriber) Status() SubscriberStatus { return s.s.status() }

// Close ends the subscription as Router.Close ends all. It may be called again.
func (s *Subscriber) Close(ctx context.Context) error {
	s.s.r.remove(s.s)
	return s.s.close(ctx)
}
