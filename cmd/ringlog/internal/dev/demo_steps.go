package dev

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
)

// demoCursor is the cursor of the tour: opened twice, before the failover and after it.
const demoCursor = "demo-trainer"

// trainingFlow is the platform's documented pipeline.
const trainingFlow = "training_pipeline"

// publishFlow publishes the events of the documented pipeline.
func (t *tour) publishFlow(ctx context.Context) (string, error) {
	c := event.Builtin()
	i := slices.IndexFunc(c.Flows(), func(f event.Flow) bool { return f.Name == trainingFlow })
	if i < 0 {
		return "", fmt.Errorf("the catalogue has no flow %s", trainingFlow)
	}
	// A fixed seed makes the same payloads in each demo, but for times.
	r := rand.New(rand.NewPCG(8, 2))
	for n, d := range flowSteps(c, c.Flows()[i]) {
		payload := samplePayload(d, r, "hex8_2p")
		// The step number makes payloads differ that are made up alike.
		payload["step"] = n + 1
		ev := event.New(d.Name, payload)
		ev.Source, ev.Key, ev.CorrelationID = "demo", "hex8_2p", t.chain
		res, err := t.client.Publish(ctx, ev)
		if err != nil {
			return "", err
		}
		if res.Duplicate {
			return "", fmt.Errorf("%s was taken for a duplicate of offset %d", d.Name, res.Offset)
		}
		// Later steps compare with what was published and acknowledged here.
		t.flow, t.offsets = append(t.flow, ev), append(t.offsets, res.Offset)
	}
	// Nobody else publishes here, so the offsets follow each other.
	first, last := t.offsets[0], t.offsets[len(t.offsets)-1]
	if int(last-first)+1 != len(t.flow) {
		return "", fmt.Errorf("offsets %v are not dense", t.offsets)
	}
	return fmt.Sprintf("%d events, %s to %s, at the offsets %d to %d; correlation id %s", len(t.flow),
		t.flow[0].Type, t.flow[len(t.flow)-1].Type, first, last, t.chain), nil
}

// read takes n events through the cursor and commits the last.
func (t *tour) read(ctx context.Context, n int) (events []event.Event, generation uint64, err error) {
	// Each reading opens the cursor, so its generation rises and its position has to come from the cluster.
	cur, err := t.client.OpenCursor(ctx, demoCursor,
		client.CursorOptions{Filter: event.Filter{CorrelationIDs: []string{t.chain}}})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, cur.Close()) }()
	// The filter passes the chain alone: the cluster's own events are not counted.
	for len(events) < n {
		ev, err := cur.Next(ctx)
		if err != nil {
			return nil, 0, err
		}
		events = append(events, ev)
	}
	// The generation was handed out when the cursor was opened.
	return events, cur.Info().Generation, cur.Commit(ctx, events[n-1].Offset)
}

// readCursor reads the pipeline through a cursor.
func (t *tour) readCursor(ctx context.Context) (string, error) {
	// The client reads from any node: the order is that of the log in any case.
	events, generation, err := t.read(ctx, len(t.flow))
	if err != nil {
		return "", err
	}
	// Each event has the offset that was acknowledged for it.
	for i, ev := range events {
		if ev.Offset != t.offsets[i] || ev.Type != t.flow[i].Type {
			return "", fmt.Errorf("event %d is %s at %d, not %s at %d", i+1, ev.Type, ev.Offset, t.flow[i].Type,
				t.offsets[i])
		}
	}
	return fmt.Sprintf("%d events in order; cursor %s, generation %d, committed %d", len(events), demoCursor,
		generation, events[len(events)-1].Offset), nil
}

// duplicate publishes an event of the pipeline a second time. The tour does so before and after the failover.
func (t *tour) duplicate(ctx context.Context) (string, error) {
	// The same event as before, with the same content.
	again := t.flow[len(t.flow)/2]
	res, err := t.client.Publish(ctx, again)
	if err != nil {
		return "", err
	}
	// A duplicate is answered with the offset of the first one.
	if want := t.offsets[len(t.flow)/2]; !res.Duplicate || res.Offset != want {
		return "", fmt.Errorf("%s was appended again at %d; it is at %d", again.Type, res.Offset, want)
	}
	return fmt.Sprintf("%s answered with offset %d and duplicate: true; its hash is %.16s…", again.Type,
		res.Offset, res.Hash()), nil
}

// killLeader kills the leader and waits for the next one.
func (t *tour) killLeader(ctx context.Context) (string, error) {
	// SIGKILL: the leader cannot hand over.
	pid := t.cluster.PID(t.leader.NodeID)
	// The time runs from before the kill to when another node leads.
	began := time.Now()
	if err := t.cluster.Kill(t.leader.NodeID); err != nil {
		return "", err
	}
	leader, err := t.cluster.WaitLeader(ctx)
	if err != nil {
		return "", err
	}
	// The killed node cannot lead, and its term is over.
	if leader.NodeID == t.leader.NodeID || leader.Term <= t.leader.Term {
		return "", fmt.Errorf("%s leads term %d after %s in term %d", leader.NodeID, leader.Term, t.leader.NodeID,
			t.leader.Term)
	}
	// killed is needed when the node is started again.
	t.killed, t.leader = t.leader, leader
	return fmt.Sprintf("%s (pid %d) is gone; %s leads term %d after %s", t.killed.NodeID, pid, leader.NodeID,
		leader.Term, shell.Short(time.Since(began))), nil
}

// leadershipEvents finds the change of leaders in the log.
func (t *tour) leadershipEvents(ctx context.Context) (string, error) {
	// Both events have the new leader's term.
	lost, err := t.find(ctx, event.LeaderLost, t.leader.Term)
	if err != nil {
		return "", err
	}
	elected, err := t.find(ctx, event.LeaderElected, t.leader.Term)
	if err != nil {
		return "", err
	}
	// The new leader reports both at once, so nothing comes between them.
	if elected.Offset != lost.Offset+1 {
		return "", fmt.Errorf("%s at %d does not follow %s at %d", elected.Type, elected.Offset, lost.Type, lost.Offset)
	}
	return fmt.Sprintf("%d %s %s, %d %s %s", lost.Offset, lost.Type, lost.Payload, elected.Offset, elected.Type,
		elected.Payload), nil
}

// proceed publishes to the new leader, and continues reading with the cursor.
func (t *tour) proceed(ctx context.Context) (string, error) {
	// An event unlike all before: it must get an offset of its own.
	ev := event.New(event.CurriculumRebalanced, map[string]any{"config_key": "hex8_2p", "trigger": "demo continues"})
	ev.Source, ev.CorrelationID = "demo", t.chain
	res, err := t.client.Publish(ctx, ev)
	if err != nil {
		return "", err
	}
	// nothingLost and compact need it.
	t.after = res.Offset
	// The cursor resumes after what it committed before the failover: its next event is the new one.
	events, generation, err := t.read(ctx, 1)
	if err != nil {
		return "", err
	}
	if events[0].Offset != t.after {
		return "", fmt.Errorf("the cursor gave offset %d, the next one is %d", events[0].Offset, t.after)
	}
	return fmt.Sprintf("%s at offset %d; the cursor, now generation %d, gave it and nothing before it", ev.Type,
		t.after, generation), nil
}

// nothingLost reads the chain from the log, and compares it with what was acknowledged.
func (t *tour) nothingLost(ctx context.Context) (string, error) {
	options := client.TailOptions{From: client.FromStart(), NoFollow: true, Consistency: client.Linearizable,
		Filter: event.Filter{CorrelationIDs: []string{t.chain}}}
	// The whole log is read, from the start, by a node that has everything acknowledged.
	var found []uint64
	for ev, err := range t.client.Tail(ctx, options) {
		if err != nil {
			return "", err
		}
		found = append(found, ev.Offset)
	}
	// Each offset occurs once and in order, or the lists differ.
	if want := append(slices.Clone(t.offsets), t.after); !slices.Equal(found, want) {
		return "", fmt.Errorf("the chain is at %v, acknowledged was %v", found, want)
	}
	return fmt.Sprintf("all %d events of the chain once, at the offsets that were acknowledged", len(found)), nil
}

// restart starts the killed node and waits until it is equal.
func (t *tour) restart(ctx context.Context) (string, error) {
	// With the same folder and ports: it is the same node.
	if err := t.cluster.Restart(t.killed.NodeID); err != nil {
		return "", err
	}
	began := time.Now()
	if _, err := t.cluster.WaitLeader(ctx); err != nil {
		return "", err
	}
	// The index is the one at which the new leader took over: all nodes have at least that, and equal state.
	equal, err := t.cluster.WaitEqual(ctx, t.leader.AppliedIndex)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s has pid %d and is at index %d like the others after %s", t.killed.NodeID,
		t.cluster.PID(t.killed.NodeID), equal.Digest.Index, shell.Short(time.Since(began))), nil
}

// compact removes what the cursor has committed, and asks for an event before and after.
func (t *tour) compact(ctx context.Context) (string, error) {
	// Before the offset that was published last: the cursor has committed all before it.
	// An explicit offset. Without it, retention would decide.
	done, err := t.client.Admin().Compact(ctx, client.Compaction{Before: &t.after})
	if err != nil {
		return "", err
	}
	// It must remove something, and nothing from t.after on.
	if done.Removed == 0 || done.First > t.after {
		return "", fmt.Errorf("%d events removed, %d is the first kept", done.Removed, done.First)
	}
	// The last event removed is gone, and the first event that has to be kept is there.
	_, err = t.client.Get(ctx, done.First-1)
	if err == nil {
		return "", fmt.Errorf("offset %d is still there", done.First-1)
	}
	if _, err := t.client.Get(ctx, t.after); err != nil {
		return "", fmt.Errorf("offset %d should be kept: %w", t.after, err)
	}
	return fmt.Sprintf("%d events removed, %d is the first one kept; offset %d now answers: trimmed", done.Removed,
		done.First, done.First-1), nil
}

// compare compares all nodes.
func (t *tour) compare(ctx context.Context) (string, error) {
	// All findings have to hold; what they found is the evidence.
	words := ""
	for _, f := range t.compareNodes(ctx, t.sh, t.cluster.URLs()) {
		if !f.OK {
			return "", fmt.Errorf("%s: %s", f.Check, f.Found)
		}
		// One line for all findings.
		if words != "" {
			words += "; "
		}
		words += f.Found
	}
	return words, nil
}
