package bench

import (
	"context"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/dev"
	"github.com/ringrift/ringlog/event"
)

// benchPublish appends the events from many callers, each waiting for its answer.
func benchPublish(ctx context.Context, r *round) error {
	// Connections are open and the first files are made before the counting begins.
	if err := r.warmUp(ctx); err != nil {
		return err
	}
	return r.publishLoad(ctx, amount{events: r.opts.events}, "publishing", &r.tally)
}

// warmUp publishes what is not measured.
func (r *round) warmUp(ctx context.Context) error {
	// --warmup 0 asks for none.
	if r.opts.warmup == (amount{}) {
		return nil
	}
	// It is not the round's, so the report has nothing of it.
	var t tally
	// The warm-up is the same load, counted elsewhere.
	err := r.publishLoad(ctx, r.opts.warmup, "warming up", &t)
	r.warmed = int(t.events.Load())
	return err
}

// publishLoad publishes an amount of events from many callers, and counts in t those that were acknowledged.
func (r *round) publishLoad(ctx context.Context, much amount, what string, t *tally) error {
	// A warm-up may last a time instead of a number of events.
	total := int64(much.events)
	if much.lasts > 0 {
		total = -1
	}
	defer startMeter(r.sh, what, total, &t.events)()
	// The first error ends all callers, and is the cause that is returned.
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	// Callers claim batches from one counter until it is used up.
	var taken atomic.Int64
	var callers sync.WaitGroup
	// From before the first request to after the last answer.
	t.start()
	defer t.stop()
	for caller := range r.opts.callers {
		callers.Go(func() {
			// A source for each caller: sources are not safe for concurrent use.
			random := rand.New(rand.NewPCG(uint64(caller), uint64(time.Now().UnixNano())))
			for ctx.Err() == nil {
				n := much.take(&taken, r.opts.batch, t.began)
				if n == 0 {
					return
				}
				if err := r.publishRequest(ctx, random, n, t); err != nil {
					// The figures would lack what this request should have published.
					fail(err)
					return
				}
			}
		})
	}
	callers.Wait()
	return context.Cause(ctx)
}

// take claims the next events for a caller, 0 when there are no more.
func (a amount) take(taken *atomic.Int64, batch int, began time.Time) int {
	// A time has no last batch: whoever asks in time gets a whole one.
	if a.lasts > 0 {
		if time.Since(began) >= a.lasts {
			return 0
		}
		return batch
	}
	// The last batch may be smaller, and those claimed after it are empty.
	end := int(taken.Add(int64(batch)))
	return max(0, min(batch, a.events-(end-batch)))
}

// publishRequest publishes n new events as one request and counts them once acknowledged.
func (r *round) publishRequest(ctx context.Context, random *rand.Rand, n int, t *tally) error {
	events, bytes := make([]event.Event, n), 0
	for i := range events {
		events[i] = r.newEvent(random)
		bytes += len(events[i].Payload)
	}
	sent := time.Now()
	var err error
	// Single events go through Publish, so the client batches those of concurrent callers.
	if n == 1 {
		_, err = r.client.Publish(ctx, events[0])
	} else {
		_, err = r.client.PublishBatch(ctx, events)
	}
	if err != nil {
		return err
	}
	// One latency for the request, however many events it has.
	t.latencies.add(time.Since(sent))
	t.count(n, bytes)
	return nil
}

// newEvent makes up a training event that is unlike all others.
func (r *round) newEvent(random *rand.Rand) event.Event {
	// Unique in this run; it becomes a part of the payload.
	n := r.made.Add(1)
	// Types and boards vary as in the platform's log.
	types := []event.Type{event.TrainingStarted, event.TrainingProgress, event.TrainingCompleted,
		event.EvaluationCompleted, event.NewGamesAvailable}
	config := dev.Boards()[random.IntN(len(dev.Boards()))]
	ev := event.New(types[n%int64(len(types))], trainingPayload(random, r.size, n, config, r.run))
	ev.Source, ev.Key = benchSource, r.keyOf(n, config)
	return ev
}

// Below these sizes a payload leaves out what it has no room for.
const (
	// room for the list of losses, with which a payload is filled up
	roomForLosses = 76
	// room for every field
	roomForAll = 256
)

// trainingPayload is the payload of training event n of a run, in about size bytes, never
// more, of the canonical form that Python's json.dumps gives.
func trainingPayload(random *rand.Rand, size int, n int64, config, run string) []byte {
	// Keys are appended in alphabetical order.
	p := append(make([]byte, 0, size+64), '{')
	if size >= roomForAll {
		p = append(append(append(p, `"config_key": "`...), config...), `", "elo": `...)
		p = appendRounded(p, 1200+random.Float64()*800, 2)
		p = strconv.AppendInt(append(p, `, "epoch": `...), int64(random.IntN(200)), 10)
		p = strconv.AppendInt(append(p, `, "host": "gpu-`...), int64(random.IntN(64)), 10)
		p = append(p, `", `...)
	}
	// iteration and run are in payloads of every size: they make the event unlike all others.
	p = strconv.AppendInt(append(p, `"iteration": `...), n, 10)
	if size >= roomForAll {
		p = appendRounded(append(p, `, "loss": `...), random.Float64()*3, 4)
		p = append(append(append(p, `, "model_path": "models/`...), config...), "/candidate-"...)
		p = append(strconv.AppendInt(p, int64(random.IntN(5000)), 10), `.pth"`...)
	}
	p = append(append(append(p, `, "run": "`...), run...), '"')
	// A small payload has no more than what makes it unlike the others.
	if size < roomForLosses {
		return append(p, '}')
	}
	p = append(p, `, "val_losses": [`...)
	// Losses fill the rest: one more takes at most 7 bytes, the end 2.
	for first := true; first || len(p) < size-8; first = false {
		if !first {
			p = append(p, ", "...)
		}
		p = appendRounded(p, random.Float64()*2, 3)
	}
	return append(p, "]}"...)
}

// appendRounded prints v to a number of places, without zeros at the end, as Python does.
func appendRounded(b []byte, v float64, places int) []byte {
	// A whole number keeps one zero, as in 3.0.
	scale := math.Pow10(places)
	// Rounded first: 2.999 to two places is 3, which is printed as 3.0.
	v = math.Round(v*scale) / scale
	if v == math.Trunc(v) {
		return strconv.AppendFloat(b, v, 'f', 1, 64)
	}
	return strconv.AppendFloat(b, v, 'f', -1, 64)
}
