// Package router delivers the event log to handlers inside a process: an event that is
// published once goes to the log and to every handler that subscribed to it, in this
// process and in all others.
//
//	r, err := router.New(router.OnClient(c), router.Options{Source: "trainer-3"})
//	_, err = r.Subscribe(ctx, router.Subscription{
//		Name: "trainer", Types: []string{"training.*", "*_FAILED"}, Where: `payload.epoch > 3`,
//		Handler: func(ctx context.Context, ev event.Event) error { … },
//		Durable: true, Critical: true, Concurrency: 4,
//	})
//	err = r.Ready(ctx) // the critical subscriptions are attached
//	res, err := r.Publish(ctx, event.New(event.TrainingCompleted, payload))
//	res, err = r.Publish(ctx, event.New("HEARTBEAT", nil), router.Local())
//	err = r.Close(ctx)
//
// # Which handlers are called, and how often
//
// Handlers are fed from the log, also with what their own process publishes, so an
// event from elsewhere comes to them exactly as one from here, in the one order of the
// log, and once per subscription. A subscription is one of four kinds:
//
//   - Durable: it has a cursor of its name in the log, which is committed after the
//     events that were handled. None is skipped: an event that was not handled is
//     redelivered, to this process or to the next that subscribes under the name. A new cursor begins at
//     Subscription.From, by default the start of the log. Only one process has it at a time; another fences it off.
//   - with a Group: it is a member of the group of that name, whose events are shared with the
//     members in other processes. Each event is handled by one of them, those of a key in order. A new group
//     begins as a new cursor does.
//   - by default: it is fed from the log from where it subscribed (or Subscription.From)
//     for as long as the process lives. What was published before is not handled.
//   - Direct: it is called for what this router publishes, once the log has accepted it,
//     without the way back through the log, and never for what other processes publish or
//     the log has suppressed as a duplicate.
//
// A publish marked Local, or of a type in Options.LocalTypes, does not reach the log: all
// matching subscriptions of this process, of any kind, get it at once and only here.
//
// # Stages
//
// A subscription can be to stages of a flow, built in or registered (training_pipeline,
// health_recovery, backpressure, …). Its handler is called with the run so far: which
// stages came before, how long each took, and what was skipped. A run is the events of one
// correlation id, or those without one whose payloads agree in the flow's RunBy.
// It is of any kind but Direct: the run is what the log has of it, so it is whole also in
// a process that has just begun.
//
//	r.Subscribe(ctx, router.Subscription{
//		Name: "evaluator", Durable: true, Flow: "training_pipeline", Stages: []string{"TRAINING_COMPLETED"},
//		OnStage: func(ctx context.Context, at router.Stage) error { … at.Chain, at.Via() … },
//	})
//
// # What a handler can rely on
//
// Of one key at most one event is with a handler at a time, in order, and the next one
// waits while one is retried. Events without a key are in order only with Concurrency 1,
// which is the default. A handler that returns an error, panics or runs out of time is
// called again after 1, 2 and 4 s. When that is exhausted its event is a dead letter, and the
// next one is handled, but see the next section; with Options.Drop it is counted and reported alone. A durable
// subscription's letter is stored in the entry that moves the cursor past it. A handler's error
// can be Permanent. A group redelivers an event whose attempts were exhausted, to one of its
// members, after a delay; after its last delivery, or a Permanent error, the event is a dead
// letter.
//
// Of any other subscription, and of a local event, the letter is a copy that is stored soon
// afterwards and moves no cursor; at most 1024 wait for the log, and what does not fit, or waits
// when the process dies, is lost and counted as that. Redriven, it comes to this handler alone,
// through the cursor live.NAME, in the process that has stored a letter last or has begun
// since. What Router.Replay hands over is no letter: the caller has the error.
//
// A handler's context ends after its timeout: 30 s, or RINGRIFT_EVENT_HANDLER_TIMEOUT in
// seconds (the platform's reference says 30, its runbook 600; set it if handlers train).
// A handler that does not return keeps its place and its key until it returns: running the
// event again beside it would break the order. What it returns then counts.
//
// After 3 different events have failed, and no attempt succeeded in between, the circuit breaker of the
// subscription opens for 300 s: its handler is not called, retries included, and events wait in the log. Then
// one attempt is let through, in turn, and decides. An event that cannot wait, a direct or a local one,
// fails at once. With a Group the process leaves it while the breaker is open: the other members
// get the events.
//
// # Outages
//
// Without more, an outage of what a durable handler needs is seen as failures of its events: some become dead
// letters before the circuit breaker opens. With a MaxOutage, an attempt counts only if another event was begun
// and handled since the last one that counted. So an outage counts as one attempt, however often events
// are tried in it, and makes no dead letter; an event that always fails beside others that are handled becomes one
// after its usual attempts. After Retries attempts follow at twice the wait each, at most a minute, or as the
// circuit breaker lets them through. Once no place is free for others, each further attempt counts for it as a
// different event.
//
// While nothing is handled beside an event, it may be an outage or the event. So it is a dead letter once it
// has failed for MaxOutage, and that is the limit of both promises: an outage that lasts longer makes dead
// letters, and an event that always fails holds up others for that time where they cannot be handled
// meanwhile: with Concurrency 1, as by default, with one key, or with as many failing events as
// Concurrency. At worst, if others are rarely handled, that is the time for each of its attempts, beside the turns
// of the circuit breaker. Return a Permanent error where the event is wrong. If some events do without what is
// away, and are handled, the attempts of those that need it count. Without Retries, and in a Group, each attempt
// counts.
//
// # What the router publishes itself
//
// HANDLER_TIMEOUT, HANDLER_FAILED (when an event is abandoned), CIRCUIT_BREAKER_THRESHOLD
// (one failure more opens it), CIRCUIT_BREAKER_OPENED, CIRCUIT_BREAKER_HALF_OPEN,
// CIRCUIT_BREAKER_CLOSED and CIRCUIT_RESET (closed by hand) are published as events. A
// handler that fails on a HANDLER_ event is counted and not reported, so none feeds
// itself. Subscribers lists who listens to what, with counts, state and last error. With
// Options.Register the cluster knows it, too: see ringlog clients.
//
// # Memory
//
// Each subscription holds Queue events that wait or run, and remembers 16 times as many
// that were handled after one that was not; past that the reader waits, not the memory.
// One to stages remembers Runs runs, and of each the newest 256 stages
// and those that wait. Of a flow with RunBy it reads the stages among the newest 1 000 000 events
// when it attaches; for a run that it has forgotten for others, those among the 100 000 events before.
package router
