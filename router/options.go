package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router/breaker"
)

// TimeoutVariable names the environment variable with the default handler timeout, in
// seconds.
const TimeoutVariable = "RINGRIFT_EVENT_HANDLER_TIMEOUT"

const (
	defaultTimeout     = 30 * time.Second
	defaultConcurrency = 1
	defaultQueue       = 256
	defaultRecent      = 256
	aheadOfQueue       = 16 // times the queue: how far handling may be ahead of the oldest event that is not settled
)

// Options say how a router works. Every zero field takes its default.
type Options struct {
	// Source names this process in the events that the router itself publishes; host
	// name and process id.
	Source string
	// Address is where this process can be reached, reported in CIRCUIT_RESET beside Source.
	Address string

	// Defaults of the subscriptions.
	Timeout     time.Duration   // of one attempt; RINGRIFT_EVENT_HANDLER_TIMEOUT, else 30 s
	Retries     []time.Duration // the waits between attempts; nil is 1, 2, 4 s, an empty slice is none
	MaxOutage   time.Duration   // of durable subscriptions, see there; 0 is none
	Concurrency int             // attempts at once; 1
	Queue       int             // events that wait or run; 256
	Breaker     Breaker

	LocalTypes  []string    // types, or patterns of them, that never go to the log
	DeadLetters DeadLetters // stores the events that durable subscriptions dead-letter; nil is the log's own, of all kinds
	Drop        bool        // events that would be dead letters are dropped, counted and reported
	Recent      int         // how many events Recent remembers; 256
	// Register registers the subscriptions with the cluster, and how their handlers fare, for /status and the
	// wiring audit, until Close. The log must be a Registrar.
	Register bool

	Catalogue *event.Catalogue // nil is event.Builtin()
	Logger    *slog.Logger     // nil disables logging, but for what RINGRIFT_DEBUG asks for

	// Observe, for metrics and traces, is called before each attempt of a handler. The handler has the context that it
	// returns, and end is called with the handler's error, nil for success. An event carries its trace in Trace. It
	// is called by many goroutines at once and must return soon; nil sees nothing.
	Observe func(ctx context.Context, a Attempt, ev *event.Event) (_ context.Context, end func(error))
}

// Breaker configures a circuit breaker. Every zero field takes its default.
type Breaker struct {
	Failures int           // events in a row that failed, each however often, and open it; 3
	OpenFor  time.Duration // until it is half open; 300 s
	Probes   int           // attempts at once while it is half open, all of which must succeed; 1
	Off      bool          // it never opens
}

// orDefault fills in the defaults.
func (b Breaker) orDefault() Breaker { return Breaker(breaker.Config(b).OrDefault()) }

// Backoff returns n waits, each twice the one before, for Retries. None with n = 0.
func Backoff(n int, first time.Duration) []time.Duration {
	waits := make([]time.Duration, n)
	for i := range waits {
		waits[i] = first << i
	}
	return waits
}

// validate sets the defaults and checks the options.
func (o *Options) validate() error {
	timeout, err := TimeoutFromEnvironment()
	if err != nil {
		return err
	}
	o.Timeout = cmp.Or(o.Timeout, timeout)
	o.Concurrency = cmp.Or(o.Concurrency, defaultConcurrency)
	o.Queue = cmp.Or(o.Queue, defaultQueue)
	o.Recent = cmp.Or(o.Recent, defaultRecent)
	o.Breaker = o.Breaker.orDefault()
	if o.Retries == nil {
		o.Retries = Backoff(3, time.Second)
	}
	if o.Catalogue == nil {
		o.Catalogue = event.Builtin()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Source == "" {
		host, _ := os.Hostname() // without one the process id alone has to do
		o.Source = fmt.Sprintf("%s:%d", host, os.Getpid())
	}

	// The filter is only made to judge both: Source must be one that events may have.
	if err := (event.Filter{Types: o.LocalTypes, Sources: []string{o.Source}}).Validate(); err != nil {
		return fmt.Errorf("option LocalTypes or Source: %w", err)
	}
	if o.Drop && o.DeadLetters != nil {
		return errors.New("both options Drop and DeadLetters: what is dropped becomes no dead letter")
	}
	if o.Recent < 0 {
		return fmt.Errorf("option Recent is %d", o.Recent)
	}
	return checkLimits(o.Timeout, o.MaxOutage, o.Retries, o.Concurrency, o.Queue, o.Breaker)
}

// checkLimits checks what the router's options and a subscription's have in common.
func checkLimits(timeout, maxOutage time.Duration, retries []time.Duration, concurrency, queue int, b Breaker) error {
	switch {
	case timeout < 0:
		return fmt.Errorf("option Timeout is %s", timeout)
	case maxOutage < 0:
		return fmt.Errorf("option MaxOutage is %s", maxOutage)
	case concurrency < 0:
		return fmt.Errorf("option Concurrency is %d", concurrency)
	// What runs counts in the queue: some workers would never have a task.
	case queue < concurrency:
		return fmt.Errorf("option Queue is %d, less than the concurrency, which is %d", queue, concurrency)
	}
	if err := breaker.Config(b).Validate(); err != nil {
		return err
	}
	for i, wait := range retries {
		if wait < 0 {
			return fmt.Errorf("option Retries[%d] is %s", i, wait)
		}
	}
	return nil
}

// TimeoutFromEnvironment is the default handler timeout: what TimeoutVariable says, else 30 s.
func TimeoutFromEnvironment() (time.Duration, error) {
	text := os.Getenv(TimeoutVariable)
	if text == "" {
		return defaultTimeout, nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	// The bound keeps the product below within what a time.Duration holds.
	const most = 365 * 24 * 3600
	if err != nil || !(seconds > 0 && seconds <= most) {
		return 0, fmt.Errorf("%s is %q, not a number of seconds above 0", TimeoutVariable, text)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}
