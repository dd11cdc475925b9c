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

// source makes generators. No two events of any generators of any source are alike. Generating an
// event is part of what every publisher is measured at, so payloads are made in advance; each event
// gets a copy into which an iteration of its own is written.
// Several goroutines may ask it for generators.
type source struct {
	rand   *rand.Rand
	run    string // part of each payload: with the iteration it makes the event unlike any other
	drafts []draft
	// How many generators were made: each has the range of iterations of its number.
	given atomic.Int64
}

// draft is a payload with an iteration of as many digits as any has.
type draft struct {
	config  string
	payload []byte
	// Every event overwrites these digits, and no other byte.
	iteration int // where the digits of the iteration begin
}

const (
	drafts = 4096 // more than a batch holds
	// It has iterationDigits digits, as has every greater number that a run reaches.
	firstIteration  = 1e11
	iterationDigits = 12
	iterations      = 1e7 // of a generator
)

// The types, fields and values of RingRift's training events: real JSON is less regular than a test pattern.
var (
	trainingTypes = []event.Type{event.TrainingStarted, event.TrainingProgress, event.TrainingCompleted,
		event.EvaluationCompleted, event.NewGamesAvailable}
	configs = []string{
		"hex8_2p", "hex8_3p", "hex8_4p", "square8_2p",
		"square8_3p", "square19_2p", "hexagonal_2p", "hexagonal_4p",
	}
)

// newSource makes the drafts of a source. Its run is the time, which no other source has.
func newSource() *source {
	now := time.Now().UnixNano()
	// The second seed is the time, so each run has other values of the same kind.
	s := &source{run: fmt.Sprintf("%x", now), rand: rand.New(rand.NewPCG(1, uint64(now)))}
	for range drafts {
		s.drafts = append(s.drafts, s.draft())
	}
	return s
}

// draft makes up a payload in the form of Python's json.dumps with sorted keys.
func (s *source) draft() draft {
	// The keys are in their order, and after each colon and comma is a space.
	r, config := s.rand, configs[s.rand.IntN(len(configs))]
	// Room for the loss that exceeds the size.
	p := make([]byte, 0, payloadSize+32)
	p = append(append(append(p, `{"config_key": "`...), config...), `", "elo": `...)
	p = appendDecimal(p, 120_000+r.IntN(80_000), 2)
	p = strconv.AppendInt(append(p, `, "epoch": `...), int64(r.IntN(200)), 10)
	p = strconv.AppendInt(append(p, `, "host": "gpu-`...), int64(r.IntN(64)), 10)
	p = append(p, `", "iteration": `...)
	iteration := len(p)
	p = strconv.AppendInt(p, firstIteration, 10)
	p = appendDecimal(append(p, `, "loss": `...), r.IntN(30_000), 4)
	p = append(append(append(p, `, "model_path": "models/`...), config...), "/candidate-"...)
	p = strconv.AppendInt(p, int64(r.IntN(5000)), 10)
	p = append(append(append(p, `.pth", "run": "`...), s.run...), `", "val_losses": [`...)
	// Losses fill the payload up to its size.
	for first := true; first || len(p) < payloadSize-8; first = false {
		if !first {
			p = append(p, ", "...)
		}
		p = appendDecimal(p, r.IntN(2000), 3)
	}
	return draft{config, append(p, "]}"...), iteration}
}

// generator hands out events. It belongs to one goroutine.
type generator struct {
	*source
	n, to int // iterations
}

// generator returns a generator with a range of iterations of its own.
func (s *source) generator() *generator {
	// No other generator of this source has this number.
	from := firstIteration + int(s.given.Add(1))*iterations
	return &generator{s, from, from + iterations}
}

// next returns an event whose payload is not used again.
func (g *generator) next() event.Event {
	if g.n == g.to {
		// The range is used up: continue with a range that nobody has.
		*g = *g.source.generator()
	}
	d := &g.drafts[(g.n+g.n/iterations*997)%drafts] // each generator begins with another one
	// The publisher keeps the payload, so each event has a copy of its own.
	p := append(make([]byte, 0, len(d.payload)), d.payload...)
	digits := p[d.iteration : d.iteration+iterationDigits]
	// From the last digit to the first.
	for i, n := iterationDigits-1, g.n; i >= 0; i, n = i-1, n/10 {
		digits[i] = byte('0' + n%10)
	}
	ev := event.Event{Type: trainingTypes[g.n%len(trainingTypes)], Payload: p}
	ev.Source, ev.Key = benchSource, d.config
	g.n++
	return ev
}

// fill makes up all events of a batch.
func (g *generator) fill(events []event.Event) {
	for i := range events {
		events[i] = g.next()
	}
}

// appendDecimal prints v / 10^places as Python prints that float; places is at most 4,
// past which Python would turn to exponents.
func appendDecimal(b []byte, v, places int) []byte {
	scale := 1
	for range places {
		scale *= 10
	}
	b = append(strconv.AppendInt(b, int64(v/scale), 10), '.')
	// At least one digit follows the point, and no zero ends them.
	for v %= scale; ; v %= scale {
		scale /= 10
		b = append(b, byte('0'+v/scale))
		if v%scale == 0 {
			return b
		}
	}
}

// payloadBytes is the size of the payloads of events.
func payloadBytes(events []event.Event) (n int) {
	for i := range events {
		n += len(events[i].Payload)
	}
	return n
}
