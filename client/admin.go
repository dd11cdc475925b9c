package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// Admin administers the cluster: its status, settings, members and leadership, its dead letters, what processes have
// registered to listen to, and any other call of the HTTP interface by Do. It is of its Client, and safe for
// concurrent use as that is.
type Admin struct{ c *Client }

// Admin returns what administers the cluster.
func (c *Client) Admin() *Admin { return &Admin{c} }

// What nodes answer about the cluster is declared in package api, beside the HTTP interface that these are the
// shapes of.
type (
	Status         = api.Status         // of a node and its cluster, of Admin.Status
	Member         = api.Member         // of Status and Membership
	Quorum         = api.Quorum         // likewise
	Digest         = api.Digest         // of Status
	Setting        = api.Setting        // of Admin.Settings
	DedupPolicy    = api.DedupPolicy    // of Admin.DedupPolicies
	NewDedupPolicy = api.NewDedupPolicy // for Admin.SetDedupPolicy
	Membership     = api.Membership     // of Admin.Members
	NewMember      = api.NewMember      // for Admin.AddMember
	MemberChange   = api.MemberChange   // of Admin.AddMember, Promote, Demote and RemoveMember
	StepDownResult = api.StepDownResult // of Admin.StepDown
	TrimResult     = api.TrimResult     // of Admin.Compact
)

// Status asks the node that this client would ask for anything.
func (a *Admin) Status(ctx context.Context) (Status, error) {
	var s Status
	err := a.Do(ctx, http.MethodGet, "/status", nil, nil, &s)

	// The next call that needs the leader goes there at once.
	if err == nil && s.LeaderHTTP != "" {
		a.c.cluster.LearnLeader(s.LeaderHTTP)
	}
	return s, err
}

// StatusOf asks one node, by its URL or host:port, once.
func (a *Admin) StatusOf(ctx context.Context, node string) (Status, error) {
	var s Status
	err := a.DoAt(ctx, node, http.MethodGet, "/status", nil, nil, &s)
	return s, err
}

// Settings returns all settings, by key.
func (a *Admin) Settings(ctx context.Context) ([]Setting, error) {
	var answer struct {
		Settings []Setting `json:"settings"`
	}
	err := a.Do(ctx, http.MethodGet, "/v1/settings", nil, nil, &answer)
	return answer.Settings, err
}

// Setting returns one setting.
func (a *Admin) Setting(ctx context.Context, key string) (Setting, error) {
	var s Setting
	err := a.Do(ctx, http.MethodGet, "/v1/settings/"+url.PathEscape(key), nil, nil, &s)
	return s, err
}

// SetSetting changes one setting on all nodes; an empty value restores its default.
func (a *Admin) SetSetting(ctx context.Context, key, value string) (Setting, error) {
	var s Setting
	err := a.Do(ctx, http.MethodPut, "/v1/settings/"+url.PathEscape(key), nil, map[string]string{"value": value}, &s)
	return s, err
}

// DedupPolicies returns the dedup policies of types, by type: those that were set, and the catalogue's.
func (a *Admin) DedupPolicies(ctx context.Context) ([]DedupPolicy, error) {
	var answer struct {
		Policies []DedupPolicy `json:"policies"`
	}
	err := a.Do(ctx, http.MethodGet, dedupPolicies, nil, nil, &answer)
	return answer.Policies, err
}

// DedupPolicy returns the dedup policy in force for a type, which may be the default.
func (a *Admin) DedupPolicy(ctx context.Context, eventType event.Type) (DedupPolicy, error) {
	var p DedupPolicy
	err := a.Do(ctx, http.MethodGet, dedupPolicies+"/"+url.PathEscape(string(eventType)), nil, nil, &p)
	return p, err
}

// SetDedupPolicy says which events of a type are duplicates, for those that do not say so by their DedupID or NoDedup.
func (a *Admin) SetDedupPolicy(ctx context.Context, eventType event.Type, p NewDedupPolicy) (DedupPolicy, error) {
	var set DedupPolicy
	err := a.Do(ctx, http.MethodPut, dedupPolicies+"/"+url.PathEscape(string(eventType)), nil, p, &set)
	return set, err
}

// RemoveDedupPolicy removes the policy that was set for a type, and returns the one that is in force without it.
func (a *Admin) RemoveDedupPolicy(ctx context.Context, eventType event.Type) (DedupPolicy, error) {
	var left DedupPolicy
	err := a.Do(ctx, http.MethodDelete, dedupPolicies+"/"+url.PathEscape(string(eventType)), nil, nil, &left)
	return left, err
}

// dedupPolicies is the route of the dedup policies; that of a type is below it.
const dedupPolicies = "/v1/dedup/policies"

// Members returns who belongs to the cluster.
func (a *Admin) Members(ctx context.Context) (Membership, error) {
	var m Membership
	err := a.Do(ctx, http.MethodGet, "/v1/members", nil, nil, &m)
	return m, err
}

// AddMember admits a node to the cluster: with a vote, unless n.Voter is false.
func (a *Admin) AddMember(ctx context.Context, n NewMember) (MemberChange, error) {
	return a.changeMembers(ctx, http.MethodPost, "/v1/members", n)
}

// Promote gives a member a vote. Force allows more than five voters.
func (a *Admin) Promote(ctx context.Context, id string, force bool) (MemberChange, error) {
	return a.changeMembers(
		ctx,
		http.MethodPost,
		"/v1/members/"+url.PathEscape(id)+"/promote",
		map[string]bool{"force": force},
	)
}

// Demote takes a member's vote.
func (a *Admin) Demote(ctx context.Context, id string) (MemberChange, error) {
	return a.changeMembers(ctx, http.MethodPost, "/v1/members/"+url.PathEscape(id)+"/demote", nil)
}

// RemoveMember takes a node out of the cluster for good.
func (a *Admin) RemoveMember(ctx context.Context, id string) (MemberChange, error) {
	return a.changeMembers(ctx, http.MethodDelete, "/v1/members/"+url.PathEscape(id), nil)
}

// changeMembers makes a change and returns the members after it.
func (a *Admin) changeMembers(ctx context.Context, method, path string, in any) (MemberChange, error) {
	var m MemberChange
	err := a.Do(ctx, method, path, nil, in, &m)
	return m, err
}

// StepDown makes the leader hand over to a voter, "" being any.
func (a *Admin) StepDown(ctx context.Context, to string) (StepDownResult, error) {
	var h StepDownResult
	err := a.Do(ctx, http.MethodPost, "/v1/cluster/step-down", nil, map[string]string{"to": to}, &h)
	if err == nil && h.LeaderHTTP != "" {
		a.c.cluster.LearnLeader(h.LeaderHTTP)
	}
	return h, err
}

// Compaction says what to trim: at most one of Before, OlderThan and Keep; with none
// the retention settings apply. Before and Keep are pointers, as 0 is a value of them.
type Compaction struct {
	Before    *uint64       // the first offset to keep
	OlderThan time.Duration // events appended longer ago than that; 0 is none
	Keep      *uint64       // how many events to keep
	DryRun    bool          // report what would be trimmed
	Force     bool          // past cursors that still hold events
}

// Compact trims the log.
func (a *Admin) Compact(ctx context.Context, what Compaction) (TrimResult, error) {
	body := api.Compaction{Before: what.Before, Keep: what.Keep, DryRun: what.DryRun, Force: what.Force}
	if what.OlderThan != 0 {
		body.OlderThan = what.OlderThan.String()
	}
	var t TrimResult
	err := a.Do(ctx, http.MethodPost, "/v1/compact", nil, body, &t)
	return t, err
}
