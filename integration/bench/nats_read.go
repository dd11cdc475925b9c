package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// pullAhead is how many messages a pull consumer has asked for in advance, and maxAckPending
// how many may be unacknowledged; both tuned for throughput.
const (
	pullAhead     = 10_000
	maxAckPending = 20_000
)

// readWays has both kinds of ordered consumer; the better one counts.
func (n *natsSession) readWays() []string {
	return []string{"ordered pull consumer", "ordered push consumer"}
}

func (n *natsSession) read(ctx context.Context, way string, count int) error {
	if way == n.readWays()[1] {
		return n.readPushed(ctx, count)
	}
	// An ordered consumer is not durable and begins at the start of the stream.
	c, err := n.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	return consumed(ctx, c, count, func(jetstream.Msg, int) error { return nil })
}

// consumed calls handle for count messages, numbered from 1, in the goroutine of the consumer.
func consumed(ctx context.Context, c jetstream.Consumer, count int, handle func(m jetstream.Msg, i int) error) error {
	// done holds the first result. seen needs no lock: the client calls back for one message at a time.
	seen, done := 0, make(chan error, 1)
	finish := func(err error) {
		select {
		case done <- err:
		default: // it is already known
		}
	}
	reading, err := c.Consume(func(m jetstream.Msg) {
		seen++
		if seen > count {
			// More arrive than were asked for, since pullAhead of them are under way.
			return
		}
		if err := handle(m, seen); err != nil {
			finish(err)
		}
		if seen == count {
			finish(nil)
		}
	}, jetstream.PullMaxMessages(pullAhead))
	if err != nil {
		return err
	}
	// After Closed no callback runs, so none disturbs the next measurement.
	defer func() {
		reading.Stop()
		<-reading.Closed()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// readPushed reads through an ordered push consumer, by the older of the two client APIs.
func (n *natsSession) readPushed(ctx context.Context, count int) error {
	js, err := n.conn.JetStream()
	if err != nil {
		return err
	}
	// The callback counts; this goroutine reads the count if ctx ends.
	var seen atomic.Int64
	done := make(chan struct{})
	sub, err := js.Subscribe("events.>", func(*nats.Msg) {
		// Exactly one message has this number, so the channel is closed once.
		if seen.Add(1) == int64(count) {
			close(done)
		}
	}, nats.OrderedConsumer(), nats.BindStream(streamName))
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	// Without limits: a slow reader is to be slow, not to lose messages.
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d of %d messages: %w", seen.Load(), count, ctx.Err())
	}
}

func (n *natsSession) consumeWays() []string {
	return []string{"AckAll every 1000", "AckAll every 1000, ack awaited" + forInformation, "AckExplicit" + forInformation}
}

// forInformation ends the name of a way that is no part of a ratio.
const forInformation = " (for information)"

// consume makes a durable consumer for each call, so each begins at the start of the stream.
func (n *natsSession) consume(ctx context.Context, way string, count int) error {
	n.consumers++
	policy := jetstream.AckAllPolicy
	if way == n.consumeWays()[2] {
		policy = jetstream.AckExplicitPolicy
	}
	c, err := n.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable:       fmt.Sprintf("bench-%d", n.consumers),
		AckPolicy:     policy,
		DeliverPolicy: jetstream.DeliverAllPolicy,
		MaxAckPending: maxAckPending,
	})
	if err != nil {
		return err
	}
	// With AckAll one ack is for all messages up to it.
	return consumed(ctx, c, count, func(m jetstream.Msg, i int) error {
		switch {
		case policy == jetstream.AckExplicitPolicy:
			// An ack for each message, and none of them is awaited.
			return m.Ack()
		case i%ackEvery != 0 && i != count:
			// One ack is for 1000 messages. The last message has one in any case.
			return nil
		case way == n.consumeWays()[1]:
			// DoubleAck waits until the server has confirmed the ack.
			return m.DoubleAck(ctx)
		default:
			return m.Ack()
		}
	})
}
