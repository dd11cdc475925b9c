package devcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// Status is what the waits need of GET /status.
// It has the names of the whole answer, of which it is a part: this package imports nothing of the module.
type Status struct {
	NodeID       string `json:"node_id"`
	Role         string `json:"role"`
	LeaderID     string `json:"leader_id"`
	Term         uint64 `json:"term"`
	LastOffset   uint64 `json:"last_offset"`
	AppliedIndex uint64 `json:"applied_index"`
	Digest       struct {
		Index uint64 `json:"index"`
		Hex   string `json:"hex"`
	} `json:"digest"`
}

const (
	// how often a condition is checked
	pollEvery = 25 * time.Millisecond
	// how long one node may take to answer
	statusBound = time.Second
)

// Status asks a node.
func (c *Cluster) Status(ctx context.Context, n Node) (s Status, err error) {
	// A node that was stopped with SIGSTOP takes connections and does not answer.
	ctx, cancel := context.WithTimeout(ctx, statusBound)
	defer cancel()
	// Package client is not used: it would follow the leader, and this asks one node.
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.URL()+"/status", nil)
	if err != nil {
		return s, err
	}
	if c.opts.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.opts.Token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return s, fmt.Errorf("devcluster: status of %s: %s", n.ID, resp.Status)
	}
	return s, json.NewDecoder(resp.Body).Decode(&s)
}

// WaitLeader returns the leader's status once every running node names it and has
// applied an entry of its term.
func (c *Cluster) WaitLeader(ctx context.Context) (leader Status, err error) {
	err = c.Until(ctx, "a leader that all running nodes follow", func() bool {
		leader = Status{}
		names := map[string]bool{}
		for _, n := range c.nodes {
			if c.PID(n.ID) == 0 {
				continue
			}
			s, err := c.Status(ctx, n)
			// Last offset 0 is a node that has applied no event of the new cluster yet.
			if err != nil || s.LeaderID == "" || s.LastOffset == 0 {
				return false
			}
			names[s.LeaderID] = true
			if s.Role == "leader" {
				leader = s
			}
		}
		// All name one leader, and that one says so itself.
		return len(names) == 1 && names[leader.NodeID]
	})
	return leader, err
}

// WaitEqual returns the digest once all running nodes have the same at the same
// index, at least at index.
func (c *Cluster) WaitEqual(ctx context.Context, index uint64) (digest Status, err error) {
	err = c.Until(ctx, "equal state on all running nodes", func() bool {
		digest = Status{}
		for _, n := range c.nodes {
			if c.PID(n.ID) == 0 {
				continue
			}
			s, err := c.Status(ctx, n)
			// A stopped node is left out; one that runs and does not answer is waited for.
			if err != nil || s.Digest.Index < index {
				return false
			}
			// Digests say something only at the same index. Nodes that have theirs at different ones are waited
			// for.
			if digest.NodeID != "" && s.Digest != digest.Digest {
				return false
			}
			digest = s
		}
		return digest.NodeID != ""
	})
	return digest, err
}

// Until polls ok until it holds, ctx is done or a node ends by itself. what is for the error. ok is called from
// this goroutine alone.
func (c *Cluster) Until(ctx context.Context, what string, ok func() bool) error {
	// The condition is checked at once, and after each tick.
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		// The exit is taken from Exits: it is reported here instead.
		case x := <-c.exits:
			return fmt.Errorf("devcluster: wait for %s: %w", what, x)
		case <-ctx.Done():
			return fmt.Errorf("devcluster: wait for %s: %w", what, context.Cause(ctx))
		}
	}
	return nil
}

// Error says how the process ended, with the end of its log.
func (x Exit) Error() string {
	how := "ended"
	if x.Err != nil {
		how = "ended with " + x.Err.Error()
	}
	return fmt.Sprintf("%s %s; the end of %s:\n%s", x.Node.ID, how, x.Node.Log, x.Tail)
}
