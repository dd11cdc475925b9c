package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/ringrift/ringlog/client"
)

// sharer is a session of a system that hands events to members of a group, with an ack for
// each.
type sharer interface {
	shareWays() []string
	// share takes n events as the one member of a new durable group, acknowledges each by
	// itself and returns when the last ack is answered.
	share(ctx context.Context, way string, n int) error
}

// measureGroup measures how fast one member is handed events that it acknowledges one by one.
func measureGroup(ctx context.Context, t *turn) error {
	s, ok := t.session.(sharer)
	if !ok {
		return errNotOffered
	}
	return t.timed(ctx, "group", s.shareWays(), t.sizes.group, s.share)
}

// prefetch is how many events a member asks for in advance: the most that ringlog's client
// accepts. For JetStream's consumer it was the best number, too.
const prefetch = 10_000

func (r *ringlogSession) shareWays() []string {
	return []string{"Ack each", "Ack each, 1024 in advance"}
}

func (r *ringlogSession) share(ctx context.Context, way string, n int) (err error) {
	// A new group begins at the start of the log, whatever the last one acknowledged.
	r.cursors++
	// As many events may be unacknowledged as for JetStream's consumer.
	o := client.GroupOptions{From: client.FromStart(), Prefetch: prefetch, MaxPending: maxAckPending}
	if way == r.shareWays()[1] {
		o.Prefetch = 1024
	}
	m, err := r.client.JoinGroup(ctx, fmt.Sprintf("bench-group-%d", r.cursors), o)
	if err != nil {
		return err
	}
	// The member leaves, so no server works for it during the next measurement.
	defer func() { err = errors.Join(err, m.Close(ctx)) }()
	// Acks are sent without waiting; Flush waits until all are durable.
	for n > 0 {
		d, err := m.Next(ctx)
		if err != nil {
			return err
		}
		if err := d.Ack(); err != nil {
			return err
		}
		// An event that the cluster emitted is acknowledged, too, but does not count.
		if d.Source == benchSource {
			n--
		}
	}
	return m.Flush(ctx)
}

func (n *natsSession) shareWays() []string { return []string{"AckExplicit"} }

func (n *natsSession) share(ctx context.Context, _ string, count int) error {
	// A consumer of another name begins at the start of the stream.
	n.consumers++
	c, err := n.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable:       fmt.Sprintf("bench-group-%d", n.consumers),
		AckPolicy:     jetstream.AckExplicitPolicy,
		DeliverPolicy: jetstream.DeliverAllPolicy,
		MaxAckPending: maxAckPending,
		// As many as the stream has: ringlog's groups are replicated as well.
		Replicas: 3,
	})
	if err != nil {
		return err
	}
	// Only the last ack is awaited.
	// It is sent last on the one connection, so those before it have arrived.
	return consumed(ctx, c, count, func(m jetstream.Msg, i int) error {
		if i == count {
			return m.DoubleAck(ctx)
		}
		return m.Ack()
	})
}
