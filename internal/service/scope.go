package service

import (
	"context"
	"fmt"
	"strings"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/access"
	"github.com/ringrift/ringlog/internal/tail"
	"github.com/ringrift/ringlog/log"
)

// The helpers here narrow what an operation takes and returns to what its caller may touch. A cursor that is not the
// caller's is refused, whether it exists or not. An event that is not the caller's is passed over where there is a next
// one, and else is not there.

// outOfScope refuses what a token is not good for.
func outOfScope(field, what string) *api.Error {
	return &api.Error{Code: api.Forbidden, Reason: api.ReasonScope, Field: field,
		Message: "the token is not good for " + what,
		Remedy:  "use what it is good for, or a token with other patterns: PUT /v1/tokens/NAME, or ringlog token create"}
}

// allowed returns what reports which types of events are the caller's.
func (c *core) allowed(ctx context.Context) func(event.Type) bool {
	m := access.Of(ctx).Matcher(c.Machine().Catalogue())
	return func(t event.Type) bool { return m == nil || m.MatchType(string(t)) }
}

// boundSource returns what a caller has to name as the source of its events, "" if it may name any. Only a token binds.
func (c *core) boundSource(ctx context.Context) string {
	who := access.Of(ctx)
	if who.IsNode() || !c.Machine().Settings().AuthBindSource {
		return ""
	}
	return who.String()
}

// bindSource gives an event without a source the bound one, and refuses any other that does not begin with it and a
// slash.
func bindSource(bound string, e *event.Event) error {
	switch {
	case bound == "", e.Source == bound, strings.HasPrefix(e.Source, bound+"/"):
		return nil
	case e.Source == "":
		e.Source = bound
		return nil
	}
	return &api.Error{Code: api.Forbidden, Reason: api.ReasonScope, Field: "source",
		Message: fmt.Sprintf("the token %q does not write as %q", bound, e.Source),
		Remedy:  "leave the source out, or begin it with the token's name and a slash, as the setting auth.bind_source asks"}
}

// noSuchEvent is the error for an event that is not the caller's: it says no more than where the log ends.
func (c *core) noSuchEvent(offset uint64) error {
	return &api.Error{Code: api.NotFound, Field: "offset", Message: fmt.Sprintf("there is no event for you at %d", offset),
		Remedy: "read on: what is not yours is passed over"}
}

// checkCursor refuses what cannot be the name of a cursor, by the settings in force, and what is not the caller's.
func (c *core) checkCursor(ctx context.Context, name string) error {
	return c.checkKind(ctx, "cursor", name)
}

// checkKind is checkCursor, for a group as well.
func (c *core) checkKind(ctx context.Context, kind, name string) error {
	if err := c.checkCursorName(kind, name); err != nil {
		return err
	}
	if !access.Of(ctx).Cursor(name) {
		return outOfScope(kind, fmt.Sprintf("the cursor or group %q", name))
	}
	return nil
}

// mine is a cursor as the caller may see it: without the types of a gap that are not the caller's.
func (c *core) mine(ctx context.Context, one api.Cursor) api.Cursor {
	if m := access.Of(ctx).Matcher(c.Machine().Catalogue()); m != nil && one.Gap != nil {
		one.Gap = (*api.Gap)(tail.FilterGap((*log.Gap)(one.Gap), m))
	}
	return one
}
