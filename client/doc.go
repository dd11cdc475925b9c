// Package client publishes to and reads from a ringlog cluster.
//
// A Client is safe for concurrent use. It promises:
//
//   - An event is appended at most once by one call, however often its request had
//     to be sent again: each worker of the client is a producer with numbered requests.
//     An error that wraps ErrOutcomeUnknown may have been appended; after any other
//     error nothing was.
//   - Concurrent calls of Publish share requests, without a wait to fill them, and
//     each caller gets the answer to its own event.
//   - Readers resume by offset after cut connections, dead or hanging nodes and
//     changes of leader: no event is left out and none is delivered twice. Events that
//     the log no longer keeps are reported as a *GapError.
//   - Members of a group share its events, each acknowledged by itself: see GroupMember.
//   - No call outlasts its context; none but a following reader outlasts
//     Config.Timeout by more than one attempt. Memory is bounded by Config.MaxBuffered.
//
// Errors that a node answered are *api.Error, for errors.As, with a stable Code and Reason.
//
// What publishes and reads is in Client, what administers the cluster in Admin. Config.Observe sees each request, for
// metrics and traces; Config.TracePublish gives events the trace of their caller.
//
// This package depends on few modules: connectrpc.com/connect, google.golang.org/protobuf,
// github.com/klauspost/compress, github.com/cespare/xxhash/v2, github.com/cenkalti/backoff/v5 and
// github.com/google/uuid.
//
//	c, err := client.New(client.Config{Endpoints: []string{"http://127.0.0.1:8770"}})
//	res, err := c.Publish(ctx, event.New(event.TrainingCompleted, payload))
//	m, err := c.JoinGroup(ctx, "trainers", client.GroupOptions{})
//	d, err := m.Next(ctx)
//	err = d.Ack()
//	for ev, err := range c.Tail(ctx, client.TailOptions{From: client.FromOffset(res.Offset)}) { … }
//	err = c.Close(ctx)
package client
