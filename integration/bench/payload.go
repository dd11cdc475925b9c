package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ringrift/ringlog/event"
)

// payloadSize is about how many bytes a payload has.
const payloadSize = 256

// benchSource marks what this program published.
const benchSource = "bench-peers"

// source makes generators whose events are all unlike each other, and unlike those of
// any other source.
type source struct {
	run   string
	given atomic.Int64
}

func newSource() *source { return &source{run: fmt.Sprintf("%x", time.Now().UnixNano())} }

// generator makes up training events. It belongs to one goroutine.
type generator struct {
	rand    *rand.Rand
	run     string // with n: unlike any other event's
	n       int
	types   []event.Type
	configs []string
}

func (s *source) generator() *generator {
	id := s.given.Add(1)
	return &generator{
		rand: rand.New(rand.NewPCG(uint64(id), uint64(time.Now().UnixNano()))),
		run:  s.run + "-" + strconv.FormatInt(id, 10),
		types: []event.Type{event.TrainingStarted, event.TrainingProgress, event.TrainingCompleted,
			event.EvaluationCompleted, event.NewGamesAvailable},
		configs: []string{"hex8_2p", "hex8_3p", "hex8_4p", "square8_2p", "square8_3p", "square19_2p", "hexagonal_2p", "hexagonal_4p"},
	}
}

// next returns an event whose payload is in the form of Python's json.dumps with sorted
// keys and is not used again.
func (g *generator) next() event.Event {
	r, config := g.rand, g.configs[g.rand.IntN(len(g.configs))]
	p := make([]byte, 0, payloadSize+32)
	p = append(append(append(p, `{"config_key": "`...), config...), `", "elo": `...)
	p = appendDecimal(p, 120_000+r.IntN(80_000), 2)
	p = strconv.AppendInt(append(p, `, "epoch": `...), int64(r.IntN(200)), 10)
	p = strconv.AppendInt(append(p, `, "host": "gpu-`...), int64(r.IntN(64)), 10)
	p = strconv.AppendInt(append(p, `", "iteration": `...), int64(g.n), 10)
	p = appendDecimal(append(p, `, "loss": `...), r.IntN(30_000), 4)
	p = append(append(append(p, `, "model_path": "models/`...), config...), "/candidate-"...)
	p = strconv.AppendInt(p, int64(r.IntN(5000)), 10)
	p = append(append(append(p, `.pth", "run": "`...), g.run...), `", "val_losses": [`...)
	for first := true; first || len(p) < payloadSize-8; first = false {
		if !first {
			p = append(p, ", "...)
		}
		p = append(p, thousandths[r.Uint32N(uint32(len(thousandths)))]...)
	}
	ev := event.Event{Type: g.types[g.n%len(g.types)], Payload: append(p, "]}"...)}
	ev.Source, ev.Key = benchSource, config
	g.n++
	return ev
}

// batch returns n events.
func (g *generator) batch(n int) []event.Event {
	events := make([]event.Event, n)
	for i := range events {
		events[i] = g.next()
	}
	return events
}

// thousandths are 0.000 to 1.999 as Python prints them. Most numbers of a payload are such, and
// what making it up costs is measured with every publisher.
var thousandths = func() (printed [2000]string) {
	for v := range printed {
		printed[v] = string(appendDecimal(nil, v, 3))
	}
	return printed
}()

// appendDecimal prints v / 10^places as Python prints that float; places is at most 4,
// past which Python would turn to exponents.
func appendDecimal(b []byte, v, places int) []byte {
	scale := 1
	for range places {
		scale *= 10
	}
	b = append(strconv.AppendInt(b, int64(v/scale), 10), '.')
	for v %= scale; ; v %= scale {
		scale /= 10
		b = append(b, byte('0'+v/scale))
		if v%scale == 0 {
			return b
		}
	}
}

func payloadBytes(events []event.Event) (n int) {
	for i := range events {
		n += len(events[i].Payload)
	}
	return n
}
