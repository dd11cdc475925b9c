package dev

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/devcluster"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
)

// Boards are the platform's training configurations.
// Payloads and keys of samples and benchmarks use them.
func Boards() []string {
	return []string{"hex8_2p", "hex8_3p", "hex8_4p", "square8_2p", "square8_3p", "square19_2p", "hexagonal_2p",
		"hexagonal_4p"}
}

// samplePayload makes up a payload that fits a type's documented fields.
func samplePayload(d *event.Definition, r *rand.Rand, config string) map[string]any {
	// Every documented field gets a value of its type.
	payload := map[string]any{"config_key": config}
	for _, f := range d.Payload {
		// config_key is set already, and stays.
		if _, set := payload[f.Name]; !set {
			payload[f.Name] = sampleField(f, r, config)
		}
	}
	return payload
}

// sampleField makes up a value of a field's type.
func sampleField(f event.Field, r *rand.Rand, config string) any {
	// The types are those of the catalogue's documentation.
	switch f.Type {
	case "integer":
		return r.IntN(5000)
	case "number":
		// To three decimals.
		return float64(r.IntN(100_000)) / 1000
	case "boolean":
		return r.IntN(2) == 0
	case "timestamp":
		// In seconds, as the platform's events have it.
		return float64(time.Now().UnixMilli()) / 1000
	case "path":
		return fmt.Sprintf("models/%s/v%d.pth", config, r.IntN(90))
	default:
		return fmt.Sprintf("%s-%d", f.Name, r.IntN(100))
	}
}

// sampleEvents make a varied log: the documented flows, each as one chain, and
// an event of every category.
func sampleEvents(r *rand.Rand) []event.Event {
	// Only what the platform documents is made up.
	c := event.Builtin()
	var events []event.Event
	// The flows, so ringlog chain has something to show.
	for i, flow := range c.Flows() {
		// A flow is about one board, and its events share a correlation id.
		config, chain := Boards()[i%len(Boards())], uuid.NewString()
		for _, d := range flowSteps(c, flow) {
			ev := event.New(d.Name, samplePayload(d, r, config))
			ev.Source, ev.Key, ev.CorrelationID = "sample-"+flow.Name, config, chain
			events = append(events, ev)
		}
	}
	// One event of each category, so filters have something to choose from.
	seen := map[string]bool{}
	for _, d := range c.Definitions() {
		if seen[d.Category] || event.IsReserved(d.Name) {
			continue
		}
		// The first type of a category that clients may publish.
		seen[d.Category] = true
		config := Boards()[r.IntN(len(Boards()))]
		ev := event.New(d.Name, samplePayload(d, r, config))
		ev.Source, ev.Key = "sample-"+d.Category, config
		events = append(events, ev)
	}
	return events
}

// flowSteps returns a flow's types in the order of its edges, each once.
func flowSteps(c *event.Catalogue, flow event.Flow) []*event.Definition {
	var steps []*event.Definition
	seen := map[event.Type]bool{}
	for _, edge := range flow.Edges {
		for _, name := range edge {
			// A type may be in several edges; reserved types are the cluster's own.
			resolved, known := c.Resolve(string(name))
			if !known || seen[resolved.Type] || event.IsReserved(resolved.Type) {
				continue
			}
			seen[resolved.Type] = true
			steps = append(steps, resolved.Definition)
		}
	}
	return steps
}

// publishSamples publishes the sample events.
func publishSamples(ctx context.Context, sh *shell.Shell, cluster *devcluster.Cluster) (err error) {
	// The cluster of this verb, whatever --endpoints says.
	c, err := sh.Dial(func(cfg *client.Config) { cfg.Endpoints = cluster.URLs() })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shell.CloseClient(c)) }()
	// A fixed seed makes the same payloads each time, but for times and correlation ids.
	events := sampleEvents(rand.New(rand.NewPCG(1, 2)))
	if _, err := c.PublishBatch(ctx, events); err != nil {
		return fmt.Errorf("publish sample events: %w", err)
	}
	sh.Say("published %d sample events", len(events))
	return nil
}
