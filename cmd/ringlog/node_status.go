package main

import (
	"context"
	"encoding/json"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
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

// nodeDigest is the digest of the state at an index.
type nodeDigest struct {
	Index uint64 `json:"index"`
	Hex   string `json:"hex"`
}

// statusOf asks one node for its status.
func statusOf(ctx context.Context, sh *shell.Shell, url string) (s nodeStatus, err error) {
	return s, sh.Ask(ctx, url, "/status", &s)
}

// anyStatus is the status of a node that knows a leader, or of one that answers. Its text comes
// too, because it holds more than this program reads.
func anyStatus(ctx context.Context, sh *shell.Shell) (s nodeStatus, raw json.RawMessage, err error) {
	raw, _, err = sh.AnyStatus(ctx)
	if err != nil {
		return s, nil, err
	}
	return s, raw, json.Unmarshal(raw, &s)
}
