// Package sinks does something with the events of a group: it runs a command for each, or
// posts each to a URL. For a handler in Go, see router.Subscription.Group.
//
//	sink, err := sinks.NewCommand(sinks.CommandOptions{Args: []string{"./train.sh"}, Group: "trainers"})
//	r, err := sinks.NewReactor(sinks.Options{Group: "trainers", Sink: sink, Join: join})
//	summary, err := r.Run(ctx)
//
// # What is promised
//
// An event is acknowledged once its sink has succeeded, so it comes at least once: again
// after an attempt that failed, and after a crash of this process or of the cluster. A
// sink that must not do a thing twice uses the idempotency key, which is the same in every
// delivery of an event.
//
// Each attempt has its time, after which it is cut off: a command is killed with all of
// its children, a request is dropped. One that failed is made again, after a wait that
// doubles each time. When the retries are exhausted the event is given back to the group,
// which counts that as one failed delivery, and gives it to one of its members after the
// next wait. After the group's last delivery it is a dead letter. A failure that cannot be
// mended by another attempt (Error.Dead) makes it one at once.
//
// Every attempt asks the circuit breaker, retries included. It counts events in a row that
// failed, each once: retries of a single event do not open it. While it is open this process
// is not a member of the group: it takes and holds nothing, and the others get everything.
// Then it takes one event, whose attempt closes the breaker or opens it again.
//
// When Run's context ends, attempts that run may finish within Options.Drain; then they are
// cut off, which does not count as a delivery. Everything else is given back at once.
//
// # What is published
//
// Every attempt is an Outcome; Run returns the Summary of all. The changes of the breaker
// are published, as the router does: CIRCUIT_BREAKER_*. With Options.Record so are failures:
// HANDLER_TIMEOUT for an attempt that ran out of time, HANDLER_FAILED for a delivery that
// failed. The catalogue has no event for a handler that succeeded; that is in Outcome only.
// A reaction to a HANDLER_ event does not report its own failures, or it would feed itself.
//
// # Memory
//
// As many events as run at once, what a command prints line by line, a few kilobytes of
// each error.
package sinks
