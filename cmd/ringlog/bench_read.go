package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ringrift/ringlog/client"
)

// followed is how many events a tail benchmark follows one by one.
const followed = 200

// prepare publishes what is to be read and returns the position before it.
func (b *bench) prepare(ctx context.Context) (from uint64, result benchResult, err error) {
	res, err := b.client.Publish(ctx, b.makeEvent(rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano()))), -1))
	if err != nil {
		return 0, benchResult{}, err
	}
	b.sh.say("publishing %d events to read", b.opts.events)
	result, err = benchPublish(ctx, b)
	return res.Offset + 1, result, err
}

// benchTail reads the events at once, then a few as they are published.
func benchTail(ctx context.Context, b *bench) (benchResult, error) {
	from, published, err := b.prepare(ctx)
	if err != nil {
		return benchResult{}, err
	}
	began, n := time.Now(), 0
	for _, err := range b.client.Tail(ctx, client.TailOptions{From: client.FromOffset(from), Limit: uint64(b.opts.events), NoFollow: true, Consistency: client.Linearizable}) {
		if err != nil {
			return benchResult{}, err
		}
		n++
	}
	took := time.Since(began)
	if n < b.opts.events {
		return benchResult{}, fmt.Errorf("bench tail: %d events came of %d", n, b.opts.events)
	}
	latencies, err := b.follow(ctx)
	if err != nil {
		return benchResult{}, err
	}
	return benchResult{Events: n, Seconds: took.Seconds(), P50ms: latencies.quantile(0.5), P99ms: latencies.quantile(0.99), EventBytes: published.EventBytes}, nil
}

// follow publishes events one by one and times until each is read.
func (b *bench) follow(ctx context.Context) (*samples, error) {
	var reading sync.WaitGroup
	defer reading.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	arrived := make(chan uint64, followed)
	failed := make(chan error, 1)
	r := rand.New(rand.NewPCG(3, uint64(time.Now().UnixNano())))
	first, err := b.client.Publish(ctx, b.makeEvent(r, -2))
	if err != nil {
		return nil, err
	}
	reading.Go(func() {
		for ev, err := range b.client.Tail(ctx, client.TailOptions{From: client.FromOffset(first.Offset + 1)}) {
			if err != nil {
				failed <- err
				return
			}
			select {
			case arrived <- ev.Offset:
			case <-ctx.Done():
				failed <- ctx.Err()
				return
			}
		}
	})
	var latencies samples
	for i := range followed {
		sent := time.Now()
		res, err := b.client.Publish(ctx, b.makeEvent(r, -3-i))
		if err != nil {
			return nil, err
		}
		for seen := uint64(0); seen < res.Offset; {
			select {
			case seen = <-arrived:
			case err := <-failed:
				return nil, err
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		latencies.add(time.Since(sent))
	}
	return &latencies, nil
}

// benchCursor reads the events through a cursor of its own, which it removes.
func benchCursor(ctx context.Context, b *bench) (_ benchResult, err error) {
	from, published, err := b.prepare(ctx)
	if err != nil {
		return benchResult{}, err
	}
	name := "ringlog-bench-" + b.run
	cur, err := b.client.OpenCursor(ctx, name, client.CursorOptions{From: client.FromOffset(from)})
	if err != nil {
		return benchResult{}, err
	}
	defer func() {
		err = errors.Join(err, cur.Close(), b.client.DeleteCursor(context.WithoutCancel(ctx), name))
	}()
	var latencies samples
	began, n, open := time.Now(), 0, 0
	for n < b.opts.events {
		ev, err := cur.Next(ctx)
		if err != nil {
			return benchResult{}, err
		}
		n++
		if open++; open < b.opts.batch && n < b.opts.events {
			continue
		}
		sent := time.Now()
		if err := cur.Commit(ctx, ev.Offset); err != nil {
			return benchResult{}, err
		}
		latencies.add(time.Since(sent))
		open = 0
	}
	return benchResult{Events: n, Seconds: time.Since(began).Seconds(), P50ms: latencies.quantile(0.5), P99ms: latencies.quantile(0.99),
		EventBytes: published.EventBytes}, nil
}
