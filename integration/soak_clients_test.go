package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// soakClients are the programs that use the cluster while it is broken. They speak plain HTTP, as a
// daemon in any language does, but for the members of the group, which use the Go client.
type soakClients struct {
	h    *history
	c    *cluster
	web  *http.Client
	seed uint64

	round atomic.Int64 // part of the names of cursors and dedup ids
	group groupLedger
	lease leaseLedger

	users, members       sync.WaitGroup // members of the group outlive the other clients of a round
	endUsers, endMembers context.CancelFunc
}

// soakWindow is the dedup window, long enough that what is repeated within a quarter of it arrives in time
// on a machine that is slow as well.
const soakWindow = 4 * time.Minute

// requestTimeout is how long a client waits for an answer.
const requestTimeout = 3 * time.Second

// newSoakClients returns clients that have not started yet. They dial as the cluster's own do.
func newSoakClients(h *history, c *cluster, seed uint64) *soakClients {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	if c.web != nil {
		transport.DialContext = c.web.Transport.(*http.Transport).DialContext
	}
	return &soakClients{
		h: h, c: c, seed: seed, web: &http.Client{Transport: transport, Timeout: requestTimeout}, group: newGroupLedger(h),
		lease: newLeaseLedger(h),
	}
}

// start begins another round of all clients.
func (s *soakClients) start(ctx context.Context) {
	users, endUsers := context.WithCancel(ctx)
	members, endMembers := context.WithCancel(ctx)
	s.endUsers, s.endMembers = endUsers, endMembers
	round := s.round.Add(1)
	for number, use := range []func(context.Context, *rand.Rand, int){
		s.publishUnique, s.publishUnique, s.publishSequences, s.publishSequences, s.publishTwice, s.publishTwice,
		s.readLinearizable, s.readLinearizable, s.changeSettings, s.useCursor, s.useCursor, s.useCursor, s.useCursor,
		s.holdRole, s.holdRole, s.holdRole, s.holdAllocation, s.holdAllocation, s.holdAllocation, s.run, s.run,
	} {
		rng := rand.New(rand.NewPCG(s.seed+uint64(round), uint64(number)))
		s.users.Go(func() { use(users, rng, number) })
	}
	for _, p := range s.c.nodes {
		s.users.Go(func() { s.follow(users, p) })
	}
	for i := range 3 {
		s.members.Go(func() { s.shareGroup(members, i) })
	}
}

// end ends all clients at once.
func (s *soakClients) end() {
	if s.endUsers != nil {
		s.endUsers()
		s.endMembers()
	}
	s.users.Wait()
	s.members.Wait()
}

// pause ends all clients of the round, the members of the group once it has passed the last event,
// which is returned. Nothing is under way then.
func (s *soakClients) pause() (tail uint64) {
	s.endUsers()
	s.users.Wait()
	tail = s.c.converged().LastOffset
	s.awaitGroup(tail)
	s.endMembers()
	s.members.Wait()
	return s.c.converged().LastOffset
}

// node is one of the cluster's, drawn at random.
func (s *soakClients) node(rng *rand.Rand) *process { return s.c.nodes[rng.IntN(len(s.c.nodes))] }

// answer is what a node said to a request.
type answer struct {
	outcome outcome
	code    api.Code
	text    []byte
}

// call makes a request and judges its answer. A request that was sent is waited for even when the
// round is over, so nothing is under way afterwards.
func (s *soakClients) call(method, url string, body []byte, header http.Header) answer {
	req, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		panic(err) // the soak made a bad request
	}
	req.Header = http.Header{"Content-Type": {"application/json"}}
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := s.web.Do(req)
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return answer{outcome: refused} // it was never sent
	}
	if err != nil {
		return answer{outcome: unknown}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{outcome: unknown}
	}
	if resp.StatusCode == http.StatusOK {
		return answer{outcome: acknowledged, text: text}
	}
	var refusal struct{ Error api.Error }
	if json.Unmarshal(text, &refusal) != nil || refusal.Error.Code == "" {
		s.h.violation("%s %s: status %d without an error code: %.200s", method, url, resp.StatusCode, text)
		return answer{outcome: unknown}
	}
	switch code := refusal.Error.Code; code {
	case api.OutcomeUnknown, api.Timeout:
		return answer{outcome: unknown, code: code}
	case api.Internal:
		s.h.violation("%s %s: an internal error: %s", method, url, refusal.Error.Message)
		return answer{outcome: unknown, code: code}
	default:
		return answer{outcome: refused, code: code}
	}
}

// waitOrDone waits between two requests of a client, or until the round is over.
func waitOrDone(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// soakEvents are the JSON of events with these numbers.
func soakEvents(numbers []int, extra map[string]any) []byte {
	events := make([]map[string]any, len(numbers))
	for i, n := range numbers {
		events[i] = map[string]any{
			"type": "TRAINING_PROGRESS", "source": "soak", "key": fmt.Sprint("k", n%17),
			"payload": map[string]any{"config_key": "hex8_2p", "epoch": n},
		}
		for name, value := range extra {
			events[i][name] = value
		}
	}
	text, err := json.Marshal(events)
	if err != nil {
		panic(err)
	}
	return text
}

// publish makes one attempt.
func (s *soakClients) publish(node *process, numbers []int, extra map[string]any, header http.Header) answer {
	// The history knows of the attempt before it is made.
	s.h.sending(numbers)
	a := s.call(http.MethodPost, node.url()+"/v1/events", soakEvents(numbers, extra), header)
	var offsets []uint64
	duplicates := 0
	if a.outcome == acknowledged {
		var results struct {
			Results []struct {
				Offset    uint64
				Duplicate bool
			}
		}
		if err := json.Unmarshal(a.text, &results); err != nil || len(results.Results) != len(numbers) {
			s.h.violation("publishing %d events was answered by %.200s", len(numbers), a.text)
			a.outcome = unknown
		}
		for _, r := range results.Results {
			offsets = append(offsets, r.Offset)
			if r.Duplicate {
				duplicates++
			}
		}
	}
	s.h.answered(numbers, a.outcome, offsets, duplicates)
	return a
}

// publishUnique sends each event once and never again: with deduplication by content and without.
func (s *soakClients) publishUnique(ctx context.Context, rng *rand.Rand, _ int) {
	for ctx.Err() == nil {
		extra := map[string]any{}
		if rng.IntN(2) == 0 {
			extra["dedup"] = false
		}
		s.publish(s.node(rng), s.h.create(1+rng.IntN(20)), extra, nil)
		waitOrDone(ctx, time.Duration(rng.IntN(20))*time.Millisecond)
	}
}

// publishSequences is a producer that repeats a request at any node until its outcome is known.
func (s *soakClients) publishSequences(ctx context.Context, rng *rand.Rand, _ int) {
	producer, sequence := uuid.NewString(), 1
	for ctx.Err() == nil {
		numbers := s.h.create(1 + rng.IntN(20))
		header := http.Header{"Ringlog-Producer": {producer}, "Ringlog-Sequence": {fmt.Sprint(sequence)}}
		for { // until its outcome is known
			a := s.publish(s.node(rng), numbers, map[string]any{"dedup": false}, header)
			if a.outcome == acknowledged {
				sequence++
				break
			}
			if a.code == api.OutOfSequence || a.code == api.UnknownProducer || a.code == api.Conflict {
				s.h.violation("sequence %d of a producer that repeats each until it is acknowledged: %s", sequence, a.code)
				return
			}
			if ctx.Err() != nil {
				return
			}
			waitOrDone(ctx, 50*time.Millisecond)
		}
		waitOrDone(ctx, time.Duration(rng.IntN(20))*time.Millisecond)
	}
}

// publishTwice sends every event again, at another node and under the same dedup_id or with the
// same content, and sometimes other content under a dedup_id that is taken.
func (s *soakClients) publishTwice(ctx context.Context, rng *rand.Rand, number int) {
	for n := 0; ctx.Err() == nil; n++ {
		numbers, extra := s.h.create(1), map[string]any{}
		if rng.IntN(2) == 0 {
			extra["dedup_id"] = fmt.Sprintf("%d-%d-%d", s.round.Load(), number, n)
		}
		// The same event two or three times, within the window.
		began, jumps, stored := time.Now(), s.h.jumpsSoFar(), false
		for range 2 + rng.IntN(2) {
			stored = s.publish(s.node(rng), numbers, extra, nil).outcome == acknowledged || stored
			if time.Since(began) > soakWindow/4 {
				break
			}
		}
		// Other content under the same dedup_id is refused as long as the window lasts.
		if extra["dedup_id"] != nil && stored && rng.IntN(4) == 0 && time.Since(began) < soakWindow/4 {
			other := s.h.create(1)
			if a := s.publish(s.node(rng), other, extra, nil); a.outcome == acknowledged && s.h.steadySince(jumps) {
				s.h.violation("other content was acknowledged under a dedup_id in its window: %s", a.text)
			}
		}
		waitOrDone(ctx, time.Duration(rng.IntN(20))*time.Millisecond)
	}
}

// readLinearizable asks any node for the newest event: it has to be at least the newest that was
// acknowledged, or read, before.
func (s *soakClients) readLinearizable(ctx context.Context, rng *rand.Rand, _ int) {
	for ctx.Err() == nil {
		before := s.h.newest()
		a := s.call(http.MethodGet, s.node(rng).url()+"/v1/events?from=-1&consistency=linearizable&timeout=2s", nil, nil)
		if a.outcome == acknowledged {
			var last struct {
				Offset uint64
				End    struct{ Reason string }
			}
			err := json.NewDecoder(bytes.NewReader(a.text)).Decode(&last)
			if err == nil && last.End.Reason == "timeout" {
				continue // a node that is slow may say so: it promised no more than two seconds
			}
			if err != nil || last.Offset == 0 {
				s.h.violation("a read of the newest event was answered by %.200s", a.text)
				continue
			}
			s.h.noteRead(before, last.Offset)
		}
		waitOrDone(ctx, 10*time.Millisecond)
	}
}

// changeSettings writes a setting that changes nothing here, so entries of other kinds stand
// between the events.
func (s *soakClients) changeSettings(ctx context.Context, rng *rand.Rand, _ int) {
	for ctx.Err() == nil {
		body := fmt.Appendf(nil, `{"value":"%dh"}`, 24+rng.IntN(1000))
		s.call(http.MethodPut, s.node(rng).url()+"/v1/settings/dlq.stale_after", body, nil)
		waitOrDone(ctx, 200*time.Millisecond)
	}
}

// useCursor opens one of the round's cursors and commits to it until another client opens it.
func (s *soakClients) useCursor(ctx context.Context, rng *rand.Rand, number int) {
	name := fmt.Sprintf("soak-%d-%d", s.round.Load(), number%2)
	for ctx.Err() == nil { // until it exists
		a := s.call(http.MethodPut, s.node(rng).url()+"/v1/cursors/"+name, []byte(`{"from":"start"}`), nil)
		if a.outcome == acknowledged || a.code == api.Exists {
			break
		}
		waitOrDone(ctx, 50*time.Millisecond)
	}
	for ctx.Err() == nil {
		called := s.h.now()
		generation, _, ok := s.cursorCall(rng, number, called, cursorInput{cursor: name, open: true})
		for ok && ctx.Err() == nil && rng.IntN(20) != 0 {
			called, offset := s.h.now(), s.h.newest()
			_, fenced, answered := s.cursorCall(rng, number, called, cursorInput{
				cursor: name, generation: generation, offset: offset - min(offset, uint64(rng.IntN(100))),
			})
			ok = answered && !fenced
			waitOrDone(ctx, time.Duration(rng.IntN(30))*time.Millisecond)
		}
		waitOrDone(ctx, time.Duration(rng.IntN(100))*time.Millisecond)
	}
}

// cursorCall makes an operation on a cursor and notes it.
func (s *soakClients) cursorCall(
	rng *rand.Rand, number int, called int64, in cursorInput,
) (generation uint64, fenced, ok bool) {
	path, body := "/open", []byte("{}")
	if !in.open {
		path, body = "/commit", fmt.Appendf(nil, `{"generation":%d,"offset":%d}`, in.generation, in.offset)
	}
	a := s.call(http.MethodPost, s.node(rng).url()+"/v1/cursors/"+in.cursor+path, body, nil)
	var out struct{ Generation, Committed uint64 }
	switch {
	case a.outcome == acknowledged && json.Unmarshal(a.text, &out) == nil:
		s.h.cursor(number, in, called, cursorOutput{generation: out.Generation, committed: out.Committed})
		return out.Generation, false, true
	case a.code == api.Fenced:
		s.h.cursor(number, in, called, cursorOutput{fenced: true})
		return 0, true, true
	case a.outcome == unknown:
		s.h.cursor(number, in, called, cursorOutput{unknown: true})
	}
	return 0, false, false
}

// follow reads a node's log as it grows. Within a stream no offset is missing.
func (s *soakClients) follow(ctx context.Context, p *process) {
	from := "end"
	streams := &http.Client{Transport: s.web.Transport}
	for ctx.Err() == nil {
		err := s.followOnce(ctx, streams, p, &from)
		if err != nil && ctx.Err() == nil {
			waitOrDone(ctx, 100*time.Millisecond)
		}
	}
}

// followOnce follows one node until its stream ends, and sets from to where the next stream begins.
func (s *soakClients) followOnce(ctx context.Context, streams *http.Client, p *process, from *string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url()+"/v1/events?follow=true&from="+*from, nil)
	if err != nil {
		return err
	}
	resp, err := streams.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	silent := time.AfterFunc(requestTimeout, cancel) // a stream of a node that was paused ends only so
	defer silent.Stop()
	next := uint64(0)
	for lines := json.NewDecoder(resp.Body); ; {
		var e event.Event
		if err := lines.Decode(&e); err != nil {
			return err
		}
		silent.Reset(requestTimeout)
		if e.Offset == 0 {
			continue // a line that is no event: a gap, an error or the end
		}
		if next != 0 && e.Offset != next {
			s.h.violation("a stream of %s went from offset %d to %d", p.id, next-1, e.Offset)
		}
		next = e.Offset + 1
		*from = fmt.Sprint(next)
		stored := storedOf(&e)
		s.h.delivered(p.id, &stored)
	}
}
