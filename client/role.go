package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client/internal/calls"
	"github.com/ringrift/ringlog/event"
)

// ErrRoleLost says that the lease of a role is over, or could not be renewed in time: another process may hold the
// role.
var ErrRoleLost = errors.New("the role is lost")

// RoleInfo is who holds a role and who waits for it.
type RoleInfo = api.Role

// RoleOptions say how a role is acquired. The zero value is useful.
type RoleOptions struct {
	Holder string        // a name for people; "" is host:pid
	TTL    time.Duration // how long the lease lasts unless it is renewed, 2 s to 1 h; 0 is 15 s
	// NoWait has AcquireRole return ErrRoleHeld while another process holds the role.
	NoWait bool
	// Reserve is for how long the lease can still be used when Context is done because no renewal has succeeded: what
	// the role allows may take that long to stop. At most MaxReserve(TTL).
	Reserve time.Duration
}

// MaxReserve returns the longest Reserve for a TTL: a longer one leaves too little time to repeat a renewal that fails.
func MaxReserve(ttl time.Duration) time.Duration { return ttl / 3 }

// ErrRoleHeld says that another process holds a role.
var ErrRoleHeld = errors.New("another process holds the role")

// Role is a role that this process holds. It renews its lease until Release, or until the role is lost. It is safe for
// concurrent use.
type Role struct {
	lease
	c       *Client
	name    string
	session string // of this acquisition: the cluster knows the claim by it
	fence   uint64 // set once the role is acquired

	// publishing has one fenced request at a time: they are numbered, by a producer of this role's own.
	publishing sync.Mutex
	producer   string // replaced when nobody knows whether its next number was used
	sequence   uint64 // of the last request that was accepted
}

// AcquireRole acquires a role and keeps it. It waits in the role's queue until ctx is done, also while the cluster
// cannot be reached or has no leader.
//
// Work that only the holder may do runs under Role.Context, which ends before another process can hold the role,
// as far as this one runs: a process that was paused learns of that late. What it publishes with Role.Publish is
// refused then.
func (c *Client) AcquireRole(ctx context.Context, name string, o RoleOptions) (*Role, error) {
	ttl := cmp.Or(o.TTL, defaultLeaseTTL)
	ask := api.RoleAcquire{
		Holder:  cmp.Or(o.Holder, thisProcess()),
		Session: uuid.NewString(),
		TTL:     ttl.String(),
	}
	if !o.NoWait {
		ask.Wait = c.waitOfCall()
	}

	// r.fence is set by the call below, before the lease is renewed or lost.
	r := &Role{c: c, name: name, session: ask.Session, producer: uuid.NewString()}
	r.lease = lease{ttl: ttl, reserve: o.Reserve, renew: r.renew, lost: ErrRoleLost, warn: func(err error) {
		c.cfg.Logger.Warn("the role is lost", "role", name, "fence", r.fence, "error", err)
	}}
	err := r.acquire(ctx, c, "acquire "+name, o.NoWait, func(ctx context.Context) (held bool, refused, err error) {
		var answer api.RoleAcquired
		err = c.putLease(ctx, rolePath(name), ask, &answer)
		if o.NoWait && !answer.Acquired {
			refused = fmt.Errorf("%w: %s, with fence %d", ErrRoleHeld, answer.Holder, answer.Fence)
		}
		r.fence = answer.Fence
		return answer.Acquired, refused, err
	}, r.release)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// rolePath is the resource of a role.
func rolePath(name string) string { return "/v1/roles/" + url.PathEscape(name) }

// Name returns the role's name.
func (r *Role) Name() string { return r.name }

// Fence returns the offset of the event with which the role was acquired. A later holder has a higher one.
func (r *Role) Fence() uint64 { return r.fence }

// Context is done once the lease is over, or RoleOptions.Reserve before. Its cause is ErrRoleLost, or context.Canceled
// after a Release.
func (r *Role) Context() context.Context { return r.ctx }

// renew renews the lease once, or finds that it is lost.
func (r *Role) renew(ctx context.Context) (lost bool, err error) {
	over, err := r.c.roles.Do(ctx, r.Lease())
	return len(over) > 0, err
}

// renewRoles renews leases of roles in one request, and returns those that are over.
func (c *Client) renewRoles(ctx context.Context, leases []Lease) (over []Lease, err error) {
	var answer api.RoleRenewed
	err = c.putLease(ctx, "/v1/roles", api.RoleRenewal{Leases: leases}, &answer)
	return answer.Lost, err
}

// Release gives the role to the next process that waits for it. Context is done before.
func (r *Role) Release(ctx context.Context) error {
	r.stop()
	return r.release(ctx)
}

// release ends the claim of the session, if there is one.
func (r *Role) release(ctx context.Context) error {
	return r.c.Admin().Do(ctx, http.MethodDelete, rolePath(r.name), url.Values{"session": {r.session}}, nil, nil)
}

// Lease is a lease of a role, for PublishUnder, CursorOptions and GroupOptions.
type Lease = api.RoleLease

// Lease returns the lease that this process has.
func (r *Role) Lease() Lease { return Lease{Role: r.name, Fence: r.fence} }

// leaseHeader is how a request names a lease without which it is refused.
func leaseHeader(l Lease) http.Header {
	return http.Header{"Ringlog-Role": {l.Role}, "Ringlog-Fence": {strconv.FormatUint(l.Fence, 10)}}
}

// Publish appends events, all or none, if this process still holds the role when the cluster decides. Otherwise the
// error is an *api.Error with the code fenced. Calls are made one after the other.
func (r *Role) Publish(ctx context.Context, events ...event.Event) ([]Result, error) {
	r.publishing.Lock()
	defer r.publishing.Unlock()
	results, err := r.c.publishFenced(ctx, r.Lease(), r.producer, r.sequence+1, events)
	switch {
	case err == nil:
		r.sequence++
	case errors.Is(err, ErrOutcomeUnknown):
		// The number may have been used. That of a refused request was not.
		r.producer, r.sequence = uuid.NewString(), 0
	}
	return results, err
}

// PublishUnder appends events, all or none, if the lease of a role is not over when the cluster decides. It is for
// those who know the role and its fence from another process; a process that holds the role uses Role.Publish.
func (c *Client) PublishUnder(ctx context.Context, lease Lease, events ...event.Event) ([]Result, error) {
	return c.publishFenced(ctx, lease, uuid.NewString(), 1, events)
}

// publishFenced makes one request. The producer and its sequence make a repeated one harmless.
func (c *Client) publishFenced(
	ctx context.Context, lease Lease, producer string, sequence uint64, events []event.Event,
) ([]Result, error) {
	events, ended := c.traced(ctx, events)
	results, err := c.publishTraced(ctx, lease, producer, sequence, events)
	if ended != nil {
		ended(results, err)
	}
	return results, err
}

// publishTraced is publishFenced for events that have all that they inherit.
func (c *Client) publishTraced(
	ctx context.Context, lease Lease, producer string, sequence uint64, events []event.Event,
) ([]Result, error) {
	body, err := json.Marshal(events)
	if err != nil {
		return nil, fmt.Errorf("client: publish as %s: %w", lease.Role, err)
	}

	// The lease fences the request, and the producer's number makes a repetition of it harmless.
	header := leaseHeader(lease)
	header.Set("Ringlog-Producer", producer)
	header.Set("Ringlog-Sequence", strconv.FormatUint(sequence, 10))
	req := &calls.Request{Method: http.MethodPost, Path: "/v1/events", ContentType: "application/json", Body: body,
		Header: header}
	ctx, cancel := c.whileOpen(ctx)
	defer cancel()
	var answer []byte
	op := calls.Op{Name: "publish", Subject: "as " + lease.Role, Events: len(events)}
	err = c.cluster.Call(ctx, op, calls.Sequenced, func(ctx context.Context, n *calls.Node) (h http.Header, err error) {
		answer, h, err = c.cluster.Exchange(ctx, n, req)
		return h, err
	})
	if err != nil {
		return nil, err
	}
	var out struct {
		Results []struct {
			Offset     uint64          `json:"offset"`
			Duplicate  bool            `json:"duplicate"`
			AppendedAt time.Time       `json:"appended_at"`
			Warnings   []event.Warning `json:"warnings"`
		} `json:"results"`
	}

	// Each event has its result, in the order of the request. Any other answer is a fault of the node.
	err = json.Unmarshal(answer, &out)
	if err == nil && len(out.Results) != len(events) {
		err = fmt.Errorf("%d results of %d events", len(out.Results), len(events))
	}
	if err != nil {
		return nil, fmt.Errorf("client: publish as %s: the answer: %w", lease.Role, err)
	}
	results := make([]Result, len(events))
	for i, one := range out.Results {
		results[i] = Result{Offset: one.Offset, Duplicate: one.Duplicate, AppendedAt: one.AppendedAt, Warnings: one.Warnings,
			gate: &c.gate, sent: content{events[i].Type, events[i].Value, events[i].Payload}}
	}
	return results, nil
}

// Roles goes through the roles that are held, by name, as the node that answers knows them. An error is the last that
// it yields.
func (a *Admin) Roles(ctx context.Context) iter.Seq2[RoleInfo, error] {
	open := func(p *api.RolePage) ([]RoleInfo, string) { return p.Roles, p.Next }
	return eachOfPages(ctx, a, "/v1/roles", url.Values{}, open)
}

// RevokeRole ends the lease of a role with that fence, whoever has it. The next process in the queue gets the role.
func (a *Admin) RevokeRole(ctx context.Context, name string, fence uint64) (RoleInfo, error) {
	var r RoleInfo
	query := url.Values{"fence": {strconv.FormatUint(fence, 10)}}
	err := a.Do(ctx, http.MethodDelete, rolePath(name), query, nil, &r)
	return r, err
}
