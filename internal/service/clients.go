package service

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/platform/audit"
)

// Clients holds the operations on registered clients and their subscriptions.
type Clients struct{ *core }

// Bounds of what a client may say of one subscription.
const (
	maxWhereBytes     = 4096
	maxHandlerTimeout = 365 * 24 * time.Hour
)

// The words for how a subscription gets its events, and for its state. The first of each is the default.
func clientModes() []string { return []string{"live", "durable", "direct", "group"} }

// clientStates are those that a client may report; see clientModes.
func clientStates() []string {
	return []string{fsm.StateAttached, "connecting", "fenced", stateRefused, "closed"}
}

// stateRefused is a subscription that the log has refused.
const stateRefused = "refused"

// Put registers what a client listens to. Without subscriptions it removes the client, and returns nil if there was
// none.
func (cl *Clients) Put(ctx context.Context, c frame.ClientPut) (*fsm.Client, error) {
	// Fields that were left out get their defaults here.
	if err := cl.checkClient(ctx, &c); err != nil {
		return nil, err
	}
	// The command replaces everything that was registered under the id.
	result, err := cl.proposeAndApply(ctx, c)
	return result.Client, err
}

// checkClient refuses a client that is not valid, and fills in what was left out.
func (cl *Clients) checkClient(ctx context.Context, c *frame.ClientPut) error {
	limit := cl.Machine().Settings().Limits.NameBytes
	if c.ID == "" {
		return api.Missing("id", "a name for the client")
	}
	for _, one := range []struct{ field, text string }{{"id", c.ID}, {"host", c.Host}, {"version", c.Version},
		{"coordinator", c.Coordinator}} {
		if err := api.CheckName(one.field, one.text, limit); err != nil {
			return err
		}
	}
	// The registry's own name is kept, so that all processes of a coordinator have one.
	if c.Coordinator != "" {
		// A name, a class or a file of a module.
		entry, err := audit.FindCoordinator(cl.Machine().Catalogue(), c.Coordinator)
		if err != nil {
			return api.Refuse(api.InvalidArgument, "coordinator", err.Error(),
				"name one of them, or leave the field out; they are listed by GET /v1/audit?only=components, "+
					"or ringlog audit --only components")
		}
		c.Coordinator = entry.Name
	}
	*c = clientAt(*c, cl.Machine().FeatureLevel())
	// The number of subscriptions is bounded before any is looked at.
	if n := len(c.Subscriptions); n > frame.MaxClientSubscriptions {
		return api.Refuse(api.TooLarge, "subscriptions",
			fmt.Sprintf("%d subscriptions, the limit is %d", n, frame.MaxClientSubscriptions),
			"register those that matter")
	}
	names := map[string]bool{}
	// Errors name a subscription by its index, since its name may be what is wrong.
	for i := range c.Subscriptions {
		one := &c.Subscriptions[i]
		err := cl.checkSubscription(ctx, one, limit)
		// Two subscriptions of one name could not be distinguished in the status.
		if err == nil && names[one.Name] {
			err = api.Refuse(api.InvalidArgument, "name",
				fmt.Sprintf("%q is given twice", one.Name),
				"give each subscription a name of its own")
		}
		if err != nil {
			return Within(fmt.Sprintf("subscriptions[%d]", i), err)
		}
		names[one.Name] = true
	}
	// Subscriptions that are within bounds may still be too much together.
	if n := c.Size(); n > frame.MaxClientBytes {
		return api.Refuse(api.TooLarge, "subscriptions",
			fmt.Sprintf("the client takes %d bytes, the limit is %d", n, frame.MaxClientBytes),
			"register fewer or shorter subscriptions")
	}
	return nil
}

// clientAt returns what members of a feature level know of a client. It is registered all the same while some do not
// know coordinators and the health of handlers, and with these when it is renewed.
func clientAt(c frame.ClientPut, level uint32) frame.ClientPut {
	if level >= frame.LevelClients {
		return c
	}
	c.Coordinator = ""
	return c.WithoutHealth()
}

// checkSubscription refuses a subscription that is not valid, and fills in mode and state. limit bounds names, in
// bytes.
func (cl *Clients) checkSubscription(ctx context.Context, one *frame.ClientSubscription, limit int) error {
	if one.Name == "" {
		return api.Missing("name", "a name for the subscription")
	}
	for _, text := range []struct {
		field, text string
		limit       int
	}{{"name", one.Name, limit}, {"cursor", one.Cursor, limit}} {
		if err := api.CheckName(text.field, text.text, text.limit); err != nil {
			return err
		}
	}
	if err := checkWhere(one.Where); err != nil {
		return err
	}
	// Mode and state are of a few words, and have defaults.
	if err := checkChoice("mode", &one.Mode, clientModes()); err != nil {
		return err
	}
	if err := checkChoice("state", &one.State, clientStates()); err != nil {
		return err
	}
	if one.HandlerTimeout < 0 || one.HandlerTimeout > maxHandlerTimeout {
		return api.BadValue("handler_timeout_seconds", fmt.Sprint(one.HandlerTimeout.Seconds()), "from 0 to a year")
	}
	// A filter has to match something, as far as this node's catalogue knows.
	check := cl.checkFilter
	if one.State == stateRefused { // perhaps for that: it is shown, and keeps no other from being so
		check = func(_ context.Context, f event.Filter) error { return f.Validate() }
	}
	if err := check(ctx, one.Filter); err != nil {
		return Within("filter", err)
	}
	return nil
}

// checkWhere refuses what is too long for a condition, or no text. It may have line breaks and tabs.
func checkWhere(text string) error {
	return api.CheckName("where", strings.NewReplacer("\n", " ", "\t", " ").Replace(text), maxWhereBytes)
}

// checkChoice checks one of several words, and takes the first where there is none.
func checkChoice(field string, word *string, words []string) error {
	// The default is stored, so a later build may have another one.
	if *word == "" {
		*word = words[0]
	}
	// Anything else would be shown to people who cannot know what it means.
	if !slices.Contains(words, *word) {
		return api.BadValue(field, *word, strings.Join(words, ", "))
	}
	return nil
}

// Within puts the place of a part in front of an error's field.
func Within(place string, err error) error {
	// The error may be shared, so a copy is changed.
	e := *ToAPI(err)
	// An error without a field is about the whole part.
	e.Field = strings.TrimSuffix(place+"."+e.Field, ".")
	return &e
}

// SubscriptionOf is a subscription as commands know it.
func SubscriptionOf(v *api.Subscription) (frame.ClientSubscription, error) {
	// Written so that it refuses what is not a number, too.
	if !(v.TimeoutSeconds >= 0 && v.TimeoutSeconds <= maxHandlerTimeout.Seconds()) {
		return frame.ClientSubscription{}, api.BadValue(
			"handler_timeout_seconds", fmt.Sprint(v.TimeoutSeconds), "from 0 to a year",
		)
	}
	health, err := healthOf(v.Health)
	if err != nil {
		return frame.ClientSubscription{}, Within("health", err)
	}
	return frame.ClientSubscription{
		Name:           v.Name,
		Filter:         v.Filter,
		Where:          v.Where,
		Mode:           v.Mode,
		Critical:       v.Critical,
		State:          v.State,
		HandlerTimeout: time.Duration(math.Round(v.TimeoutSeconds * float64(time.Second))),
		Cursor:         v.Cursor,
		Health:         health,
	}, nil
}

// breakerStates are those that a client may report.
func breakerStates() []string {
	return []string{api.BreakerClosed, api.BreakerHalfOpen, api.BreakerOpen, api.BreakerOff}
}

// healthOf is the health of a handler as commands know it, nil if there is none.
func healthOf(v *api.HandlerHealth) (*frame.HandlerHealth, error) {
	if v == nil {
		return nil, nil
	}
	if v.Breaker != "" {
		if err := checkChoice("breaker", &v.Breaker, breakerStates()); err != nil {
			return nil, err
		}
	}
	// The command has Unix nanoseconds, which have no other years.
	at := v.LastErrorAt.UTC()
	if !at.IsZero() && (at.Year() < 1970 || at.Year() > 2261) {
		return nil, api.BadValue("last_error_at", at.Format(time.RFC3339), "a time from 1970 to 2261")
	}
	health := frame.HandlerHealth(*v)
	health.LastError, health.LastErrorAt = api.ClipError(v.LastError), at
	return &health, nil
}

// ViewClient is a client as callers see it.
func ViewClient(c *fsm.Client) api.Client {
	v := api.Client{
		ID:          c.ID,
		Host:        c.Host,
		PID:         c.PID,
		Version:     c.Version,
		Coordinator: c.Coordinator,
		TTL:         c.TTL.String(),
		Registered:  c.Registered,
		Seen:        c.Seen,
		// The client is removed at this time, unless it registers again.
		Expires:       c.Seen.Add(c.TTL),
		Subscriptions: []api.Subscription{},
	}
	// Subscriptions stay in the order in which the client listed them.
	for _, s := range c.Subscriptions {
		v.Subscriptions = append(v.Subscriptions, api.Subscription{
			Name:           s.Name,
			Filter:         s.Filter,
			Where:          s.Where,
			Mode:           s.Mode,
			Critical:       s.Critical,
			State:          s.State,
			TimeoutSeconds: s.HandlerTimeout.Seconds(),
			Cursor:         s.Cursor,
			Health:         (*api.HandlerHealth)(s.Health),
		})
	}
	return v
}

// Remove removes a client and returns it as it was.
func (cl *Clients) Remove(ctx context.Context, id string) (*fsm.Client, error) {
	// A client without subscriptions is not registered.
	c, err := cl.Put(ctx, frame.ClientPut{ID: id})
	if err == nil && c == nil {
		err = api.Refuse(api.NotFound, "id",
			fmt.Sprintf("no client %q is registered", id),
			"list them: GET /v1/clients, or ringlog clients")
	}
	return c, err
}

// errEnough ends eachClient early.
var errEnough = errors.New("enough")

// eachClient calls do with the registered clients whose ids follow after, by id, until do fails; it returns that
// error.
func (c *core) eachClient(after string, do func(*fsm.Client) error) error {
	const atOnce = 256
	for {
		// In pages, so do does not hold up the state machine.
		// A page begins after an id, so no client is in two pages.
		page := c.Machine().Clients(after, atOnce)
		for _, one := range page {
			if err := do(one); err != nil {
				return err
			}
		}
		// A page that is not full is the last one.
		if len(page) < atOnce {
			return nil
		}
		after = page[len(page)-1].ID
	}
}

// clientsPageBytes bounds one page of clients, beside their number.
const clientsPageBytes = 4 << 20

// List returns the first clients whose ids follow after, up to limit.
func (cl *Clients) List(after string, limit int) api.ClientPage {
	view := api.ClientPage{Clients: []api.Client{}, Total: api.ClientStats(cl.Machine().ClientStats()),
		Unheard: cl.unheard(math.MaxInt)}
	bytes := uint64(0)
	_ = cl.eachClient(after, func(c *fsm.Client) error { // it fails with errEnough alone
		// A page has at least one client, however large that is.
		if len(view.Clients) == limit || bytes > clientsPageBytes {
			view.Next = view.Clients[len(view.Clients)-1].ID
			return errEnough
		}
		bytes += c.Bytes
		view.Clients = append(view.Clients, ViewClient(c))
		return nil
	})
	return view
}
