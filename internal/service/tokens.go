package service

import (
	"context"
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/access"
	"github.com/ringrift/ringlog/internal/frame"
)

// Tokens holds the operations on tokens. They are in the state of every node, with a hash of their secret: nobody can
// read the secret there.
type Tokens struct{ *core }

// tokenName is the form of a token's name, which is that of a client's name in a certificate.
var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Create makes a token. Its secret is in the answer, and nowhere else.
func (t *Tokens) Create(ctx context.Context, name string, n api.NewToken) (api.TokenMade, error) {
	// What is wrong with the request, before anything is proposed.
	if err := checkNewToken(name, &n); err != nil {
		return api.TokenMade{}, err
	}
	var ttl time.Duration
	if n.Expires != "" {
		var err error
		if ttl, err = api.ParseAge("expires", n.Expires); err != nil {
			return api.TokenMade{}, err
		}
		if ttl <= 0 || ttl > fsm.MaxTokenTTL {
			return api.TokenMade{}, api.BadValue("expires", n.Expires, "an age up to ten years, such as 90d")
		}
	}
	// The secret is drawn here. Only its hash is proposed, so no log has it.
	bearer, id, secret := api.MakeToken("")
	result, err := t.proposeAndApply(ctx, frame.TokenCreate{Name: name, ID: id, Secret: sha256.Sum256([]byte(secret)),
		Roles: n.Roles, Types: n.Types, Cursors: n.Cursors, TTL: ttl, By: access.Of(ctx).String()})
	if err != nil {
		return api.TokenMade{}, err
	}
	made := api.TokenMade{Token: t.view(result.Token, name), Bearer: bearer}
	// A pattern that matches nothing is allowed, as the type or cursor may come later, and most likely is a slip.
	for _, w := range t.FilterWarnings(event.Filter{Types: n.Types}) {
		made.Warnings = append(made.Warnings, w.Message)
	}
	for _, pattern := range n.Cursors {
		_, _, matching := t.Machine().CursorsAfter("", 1, func(name string) bool { return event.Glob(pattern, name) })
		if matching == 0 {
			made.Warnings = append(made.Warnings, fmt.Sprintf("there is no cursor or group %s yet", pattern))
		}
	}
	return made, nil
}

// checkNewToken refuses a token that nobody can mean. The errors name the field.
func checkNewToken(name string, n *api.NewToken) error {
	if !tokenName.MatchString(name) {
		return api.BadValue("name", name, "up to 64 letters, digits, dots, dashes and underscores")
	}
	if len(n.Roles) == 0 {
		return api.Missing("roles", "one or more of "+roleNames())
	}
	// A role without a scope would have the patterns do nothing, while its owner counts on them.
	scoped := len(n.Types)+len(n.Cursors) > 0
	for i, role := range n.Roles {
		field := fmt.Sprintf("roles[%d]", i)
		switch {
		case !slices.Contains(access.Roles(), access.Role(role)):
			return api.BadValue(field, role, "one of "+roleNames())
		case slices.Index(n.Roles, role) < i:
			return api.BadValue(field, role, "each role once")
		case scoped && !access.Role(role).Scoped():
			return api.Refuse(api.InvalidArgument, field,
				fmt.Sprintf("what the role %s sees and does is about all types and cursors", role),
				"leave types and cursors out, or make a token of its own for that role")
		}
	}
	if err := (event.Filter{Types: n.Types}).Validate(); err != nil {
		return err
	}
	// Patterns are stored in the state, so their length is bounded.
	for i, pattern := range n.Cursors {
		if pattern == "" || len(pattern) > fsm.MaxTokenText {
			return api.BadValue(fmt.Sprintf("cursors[%d]", i), pattern,
				fmt.Sprintf("1 to %d bytes, in which * is any run of characters and ? one", fsm.MaxTokenText))
		}
	}
	return nil
}

// roleNames lists the roles.
func roleNames() string {
	var names []string
	for _, r := range access.Roles() {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}

// Rotate gives a token another secret, which is in the answer and nowhere else. The one before counts for the grace.
func (t *Tokens) Rotate(ctx context.Context, name string, r api.TokenRotation) (api.TokenMade, error) {
	// How long both secrets count, for clients that have the older one.
	grace := api.DefaultTokenGrace
	if r.Grace != "" {
		var err error
		if grace, err = api.ParseAge("grace", r.Grace); err != nil {
			return api.TokenMade{}, err
		}
	}
	// The id stays, so it is needed to make the new one.
	known := t.Machine().Tokens().ByName(name)
	if known == nil {
		// It may have been made on another node a moment ago.
		if err := t.node.ReadBarrier(ctx); err != nil {
			return api.TokenMade{}, err
		}
		if known = t.Machine().Tokens().ByName(name); known == nil {
			return api.TokenMade{}, api.Refuse(api.NotFound, "name", fmt.Sprintf("there is no token %q", name),
				"list them: GET /v1/tokens, or ringlog token ls")
		}
	}
	bearer, _, secret := api.MakeToken(known.ID)
	result, err := t.proposeAndApply(ctx,
		frame.TokenRotate{Name: name, Secret: sha256.Sum256([]byte(secret)), Grace: grace})
	if err != nil {
		return api.TokenMade{}, err
	}
	return api.TokenMade{Token: t.view(result.Token, name), Bearer: bearer}, nil
}

// Revoke removes a token, and returns it as it was. Every node that hears the leader refuses it within a second.
func (t *Tokens) Revoke(ctx context.Context, name string) (api.Token, error) {
	result, err := t.proposeAndApply(ctx, frame.TokenRevoke{Name: name})
	if err != nil {
		return api.Token{}, err
	}
	return t.view(result.Token, name), nil
}

// List returns all tokens, by name.
func (t *Tokens) List() api.Tokens {
	list := api.Tokens{Tokens: []api.Token{}}
	for name, one := range t.Machine().Tokens().All() {
		list.Tokens = append(list.Tokens, t.view(one, name))
	}
	return list
}

// view is a token as callers see it.
func (t *Tokens) view(one *fsm.Token, name string) api.Token {
	// 0 is a time that there is not.
	at := func(ns int64) time.Time {
		if ns == 0 {
			return time.Time{}
		}
		return time.Unix(0, ns).UTC()
	}
	// As nodes judge a token when it is shown: by the later of both clocks.
	now := max(time.Now().UnixNano(), t.Machine().StoredTime())
	v := api.Token{Name: name, ID: one.ID, Roles: one.Roles, Types: one.Types, Cursors: one.Cursors, By: one.By,
		Made: at(one.Made), Expires: at(one.Expires), Expired: one.Expired(now), Rotated: at(one.Rotated)}
	// The secret before the last one counts until then.
	if one.BeforeUntil > now {
		v.BeforeUntil = at(one.BeforeUntil)
	}
	return v
}
