package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/raftnode"
)

// nodeStatus is GET /status, as far as this program reads it.
type nodeStatus struct {
	NodeID       string                  `json:"node_id"`
	ClusterID    string                  `json:"cluster_id"`
	Version      string                  `json:"version"`
	Role         string                  `json:"role"`
	LeaderID     string                  `json:"leader_id"`
	LeaderHTTP   string                  `json:"leader_http"`
	Term         uint64                  `json:"term"`
	FirstOffset  uint64                  `json:"first_offset"`
	LastOffset   uint64                  `json:"last_offset"`
	AppliedIndex uint64                  `json:"applied_index"`
	CommitIndex  uint64                  `json:"commit_index"`
	Digest       nodeDigest              `json:"digest"`
	Diverged     bool                    `json:"diverged"`
	Members      []raftnode.MemberStatus `json:"members"`
	Quorum       raftnode.Quorum         `json:"quorum"`
	Outage       *raftnode.Outage        `json:"outage"`
	Health       voterHealth             `json:"health"`
	Autopilot    *autopilotVerdict       `json:"autopilot"` // of a leader
	Cursors      []cursorInfo            `json:"cursors"`
	DeadLetters  fsm.LetterStats         `json:"dead_letters"`
	Backpressure fsm.Pressure            `json:"backpressure"`
	Overdue      struct {
		Count int `json:"count"`
		List  []struct {
			CorrelationID string `json:"correlation_id"`
		} `json:"list"`
	} `json:"overdue_chains"`
	Subscribed subscriptionReport            `json:"event_subscription_status"`
	Timeouts   map[string]map[string]float64 `json:"handler_timeouts"`
	Dedup      struct {
		Accepted   uint64 `json:"accepted"`
		Suppressed uint64 `json:"suppressed"`
	} `json:"dedup"`
}

type nodeDigest struct {
	Index uint64 `json:"index"`
	Hex   string `json:"hex"`
}

// ask gets a route of one certain node, whoever leads.
func (sh *shell) ask(ctx context.Context, base, path string, out any) error {
	body, err := sh.open(ctx, base, path)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(out); err != nil {
		return fmt.Errorf("%s%s: %w", base, path, err)
	}
	return nil
}

// open gets a route of one node as a stream, which the caller closes.
func (sh *shell) open(ctx context.Context, base, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return nil, err
	}
	if sh.token != "" {
		req.Header.Set("Authorization", "Bearer "+sh.token)
	}
	if sh.clusterID != "" {
		req.Header.Set(api.ClusterHeader, sh.clusterID)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnreachable, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	var answer struct {
		Error *api.Error `json:"error"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&answer); err != nil || answer.Error == nil {
		return nil, fmt.Errorf("%s%s: %s", base, path, resp.Status)
	}
	return nil, fmt.Errorf("%s: %w", base, answer.Error)
}

// answer is what one node said to a question put to all.
type answer[T any] struct {
	url   string
	value T
	err   error
}

// askAll puts a question to many nodes at once; the answers come in their order.
func askAll[T any](ctx context.Context, urls []string, question func(ctx context.Context, url string) (T, error)) []answer[T] {
	answers := make([]answer[T], len(urls))
	var asking sync.WaitGroup
	for i, url := range urls {
		asking.Go(func() {
			v, err := question(ctx, url)
			answers[i] = answer[T]{url: url, value: v, err: err}
		})
	}
	asking.Wait()
	return answers
}

// status asks one node for its status.
func (sh *shell) status(ctx context.Context, base string) (s nodeStatus, err error) {
	return s, sh.ask(ctx, base, "/status", &s)
}

// anyStatus is the status of the first endpoint that answers and knows a leader; where none
// knows one, of the first that answers. Its text comes too, because it holds more than this
// program reads.
func (sh *shell) anyStatus(ctx context.Context) (s nodeStatus, raw json.RawMessage, err error) {
	for _, e := range sh.endpoints {
		next, text, failed := sh.statusWithin(ctx, e)
		switch {
		case failed != nil:
			err = cmp.Or(err, failed)
		case raw == nil || next.LeaderID != "":
			s, raw = next, text
		}
		if s.LeaderID != "" {
			break
		}
	}
	if raw != nil {
		err = nil
	}
	return s, raw, err
}

// statusWithin asks one node for its status, for as long as one of several may take.
func (sh *shell) statusWithin(ctx context.Context, url string) (s nodeStatus, raw json.RawMessage, err error) {
	ctx, cancel := context.WithTimeout(ctx, sweepWithin)
	defer cancel()
	if err := sh.ask(ctx, url, "/status", &raw); err != nil {
		return s, nil, err
	}
	return s, raw, json.Unmarshal(raw, &s)
}
