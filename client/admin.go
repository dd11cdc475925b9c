package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/ringrift/ringlog/client/internal/calls"
)

// Status is what a node says of itself and its cluster: GET /status. Raw has all of
// it.
type Status struct {
	NodeID       string          `json:"node_id"`
	ClusterID    string          `json:"cluster_id"`
	Role         string          `json:"role"` // leader, follower, candidate, non-voter
	LeaderID     string          `json:"leader_id"`
	LeaderHTTP   string          `json:"leader_http"`
	Term         uint64          `json:"term"`
	FirstOffset  uint64          `json:"first_offset"`
	LastOffset   uint64          `json:"last_offset"`
	AppliedIndex uint64          `json:"applied_index"`
	CommitIndex  uint64          `json:"commit_index"`
	Digest       Digest          `json:"digest"`
	Members      []Member        `json:"members"`
	Quorum       Quorum          `json:"quorum"`
	Raw          json.RawMessage `json:"-"`
}

// Digest is that of a node's state at a Raft index.
type Digest struct {
	Index uint64 `json:"index"`
	Hex   string `json:"hex"`
}

// Member is one node as another sees it.
type Member struct {
	ID              string `json:"id"`
	Raft            string `json:"raft"`
	HTTP            string `json:"http"`
	Voter           bool   `json:"voter"`
	Healthy         bool   `json:"healthy"`
	LastContactMs   int64  `json:"last_contact_ms"` // -1: never heard of
	TrailingEntries uint64 `json:"trailing_entries"`
	Incarnation     string `json:"incarnation,omitempty"`
	Version         string `json:"version,omitempty"`
	FeatureLevel    uint32 `json:"feature_level,omitempty"`
}

// Quorum counts voters; Margin is Healthy minus Needed.
type Quorum struct {
	Voters  int `json:"voters"`
	Needed  int `json:"needed"`
	Healthy int `json:"healthy"`
	Margin  int `json:"margin"`
}

// Status asks the node that this client would ask for anything.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var raw []byte
	if err := c.Do(ctx, http.MethodGet, "/status", nil, nil, &raw); err != nil {
		return Status{}, err
	}
	s, err := statusOf(raw)
	if err == nil && s.LeaderHTTP != "" {
		c.cluster.LearnLeader(s.LeaderHTTP)
	}
	return s, err
}

// StatusOf asks one node, by its URL or host:port, once.
func (c *Client) StatusOf(ctx context.Context, node string) (Status, error) {
	var raw []byte
	if err := c.DoAt(ctx, node, http.MethodGet, "/status", nil, nil, &raw); err != nil {
		return Status{}, err
	}
	return statusOf(raw)
}

// statusOf decodes an answer and keeps it whole in Raw.
func statusOf(raw []byte) (Status, error) {
	var s Status
	if err := decodeAnswer(&s, raw); err != nil {
		return Status{}, &calls.Error{Op: "GET /status", Err: err}
	}
	s.Raw = raw
	return s, nil
}

// Setting is one replicated setting.
type Setting struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Default string `json:"default"`
	Doc     string `json:"doc"`
}

// Settings returns all settings, by key.
func (c *Client) Settings(ctx context.Context) ([]Setting, error) {
	var answer struct {
		Settings []Setting `json:"settings"`
	}
	err := c.Do(ctx, http.MethodGet, "/v1/settings", nil, nil, &answer)
	return answer.Settings, err
}

// Setting returns one setting.
func (c *Client) Setting(ctx context.Context, key string) (Setting, error) {
	var s Setting
	err := c.Do(ctx, http.MethodGet, "/v1/settings/"+url.PathEscape(key), nil, nil, &s)
	return s, err
}

// SetSetting changes one setting on all nodes; an empty value restores its default.
func (c *Client) SetSetting(ctx context.Context, key, value string) (Setting, error) {
	var s Setting
	err := c.Do(ctx, http.MethodPut, "/v1/settings/"+url.PathEscape(key), nil, map[string]string{"value": value}, &s)
	return s, err
}

// Membership is who belongs to the cluster.
type Membership struct {
	Members    []Member `json:"members"`
	Quorum     Quorum   `json:"quorum"`
	LeaderID   string   `json:"leader_id"`
	LeaderHTTP string   `json:"leader_http"`
	Warning    string   `json:"warning,omitempty"` // of a change: what should be looked at
}

// Members returns who belongs to the cluster.
func (c *Client) Members(ctx context.Context) (Membership, error) {
	var m Membership
	err := c.Do(ctx, http.MethodGet, "/v1/members", nil, nil, &m)
	return m, err
}

// NewMember is a node to let in. With only HTTP the rest is asked of the node itself.
type NewMember struct {
	ID          string `json:"id,omitempty"`
	Raft        string `json:"raft,omitempty"`
	HTTP        string `json:"http,omitempty"`
	Incarnation string `json:"incarnation,omitempty"`
	Voter       bool   `json:"voter"`
	Force       bool   `json:"force,omitempty"`
}

// AddMember lets a node into the cluster.
func (c *Client) AddMember(ctx context.Context, n NewMember) (Membership, error) {
	return c.changeMembers(ctx, http.MethodPost, "/v1/members", n)
}

// Promote gives a member a vote. Force allows more than five voters.
func (c *Client) Promote(ctx context.Context, id string, force bool) (Membership, error) {
	return c.changeMembers(
		ctx,
		http.MethodPost,
		"/v1/members/"+url.PathEscape(id)+"/promote",
		map[string]bool{"force": force},
	)
}

// Demote takes a member's vote.
func (c *Client) Demote(ctx context.Context, id string) (Membership, error) {
	return c.changeMembers(ctx, http.MethodPost, "/v1/members/"+url.PathEscape(id)+"/demote", nil)
}

// RemoveMember takes a node out of the cluster for good.
func (c *Client) RemoveMember(ctx context.Context, id string) (Membership, error) {
	return c.changeMembers(ctx, http.MethodDelete, "/v1/members/"+url.PathEscape(id), nil)
}

// changeMembers makes a change and returns the members after it.
func (c *Client) changeMembers(ctx context.Context, method, path string, in any) (Membership, error) {
	var m Membership
	err := c.Do(ctx, method, path, nil, in, &m)
	return m, err
}

// Handover is a leadership passed on.
type Handover struct {
	From       string `json:"from"`
	LeaderID   string `json:"leader_id"`
	LeaderHTTP string `json:"leader_http"`
	Term       uint64 `json:"term"`
}

// StepDown makes the leader hand over to a voter, "" being any.
func (c *Client) StepDown(ctx context.Context, to string) (Handover, error) {
	var h Handover
	err := c.Do(ctx, http.MethodPost, "/v1/cluster/step-down", nil, map[string]string{"to": to}, &h)
	if err == nil && h.LeaderHTTP != "" {
		c.cluster.LearnLeader(h.LeaderHTTP)
	}
	return h, err
}

// Compaction says what to trim: at most one of Before, OlderThan and Keep; with none
// the retention settings apply.
type Compaction struct {
	Before    *uint64
	OlderThan time.Duration // 0 is none
	Keep      *uint64
	DryRun    bool
	Force     bool // past cursors that still hold events
}

// Trimmed is what a compaction did, or would do.
type Trimmed struct {
	First   uint64   `json:"first"`             // the first offset kept
	Removed uint64   `json:"removed"`           // events
	HeldBy  string   `json:"held_by,omitempty"` // the cursor that kept more from being removed
	Passed  []string `json:"passed,omitempty"`  // cursors that lost events and get a gap
	DryRun  bool     `json:"dry_run"`
}

// Compact trims the log.
func (c *Client) Compact(ctx context.Context, what Compaction) (Trimmed, error) {
	// Before and Keep are pointers, as 0 is a value of them.
	body := struct {
		Before    *uint64 `json:"before,omitempty"`
		OlderThan string  `json:"older_than,omitempty"`
		Keep      *uint64 `json:"keep,omitempty"`
		DryRun    bool    `json:"dry_run"`
		Force     bool    `json:"force"`
	}{what.Before, "", what.Keep, what.DryRun, what.Force}
	if what.OlderThan != 0 {
		body.OlderThan = what.OlderThan.String()
	}
	var t Trimmed
	err := c.Do(ctx, http.MethodPost, "/v1/compact", nil, body, &t)
	return t, err
}
