package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ringrift/ringlog/event"
)

// CursorSettings are what a cursor is made with, or with Group a group. What is zero takes the cluster's setting, or
// passes all events.
type CursorSettings struct {
	Filter event.Filter
	Policy CursorPolicy
	Group  *GroupPolicy // nil for a cursor of one reader
}

// maxDifference bounds each value in the error of a cursor that exists with other settings, in bytes.
const maxDifference = 200

// DifferenceText says which settings a cursor has otherwise than it was asked for, such as "the cursor "a" exists with
// other settings: policy.hold_for is 1h0m0s, not 2h0m0s". It is "" if there are none. Both are cursors, or groups.
func (s CursorSettings) DifferenceText(name string, wants CursorSettings) string {
	var found []string
	// Both texts are "" for a setting that is left to the cluster, and for a part of a filter that passes all. field is
	// as in the request.
	compare := func(field, has, wants string) {
		if has == wants {
			return
		}
		asked := ", and none was sent"
		if wants != "" {
			asked = ", not " + TruncateText(wants, maxDifference)
		}
		found = append(found, field+" is "+TruncateText(cmp.Or(has, "not set"), maxDifference)+asked)
	}
	compare("filter.types", listText(s.Filter.Types), listText(wants.Filter.Types))
	compare("filter.categories", listText(s.Filter.Categories), listText(wants.Filter.Categories))
	compare("filter.sources", listText(s.Filter.Sources), listText(wants.Filter.Sources))
	compare("filter.keys", listText(s.Filter.Keys), listText(wants.Filter.Keys))
	compare("filter.correlation_ids", listText(s.Filter.CorrelationIDs), listText(wants.Filter.CorrelationIDs))
	compare("policy.hold_events", settingText(s.Policy.HoldEvents), settingText(wants.Policy.HoldEvents))
	compare("policy.hold_bytes", settingText(s.Policy.HoldBytes), settingText(wants.Policy.HoldBytes))
	compare("policy.hold_for", settingText(s.Policy.HoldFor), settingText(wants.Policy.HoldFor))
	kind := "cursor"
	if s.Group != nil {
		kind = "group"
		compare("group.ack_wait", settingText(s.Group.AckWait), settingText(wants.Group.AckWait))
		compare("group.max_deliver", settingText(s.Group.MaxDeliver), settingText(wants.Group.MaxDeliver))
		compare("group.max_pending", settingText(s.Group.MaxPending), settingText(wants.Group.MaxPending))
	}
	if len(found) == 0 {
		return ""
	}
	return fmt.Sprintf("the %s %q exists with other settings: %s", kind, name, strings.Join(found, "; "))
}

// FoundIn reports whether a cursor that exists has all that s gives, so that a caller can ignore refused, which nodes
// answer where it differs in anything from a new one. What s leaves out is not compared. Else refused then names what
// differs.
func (s CursorSettings) FoundIn(c *Cursor, refused *Error) bool {
	// A group is no cursor of one reader: the refusal says so.
	if (c.Group == nil) != (s.Group == nil) {
		return false
	}
	has := CursorSettings{Filter: c.Filter, Policy: c.Policy}
	f, p := &s.Filter, &s.Policy
	f.Types, f.Categories = given(f.Types, has.Filter.Types), given(f.Categories, has.Filter.Categories)
	f.Sources, f.Keys = given(f.Sources, has.Filter.Sources), given(f.Keys, has.Filter.Keys)
	f.CorrelationIDs = given(f.CorrelationIDs, has.Filter.CorrelationIDs)
	p.HoldEvents = cmp.Or(p.HoldEvents, has.Policy.HoldEvents)
	p.HoldBytes = cmp.Or(p.HoldBytes, has.Policy.HoldBytes)
	p.HoldFor = cmp.Or(p.HoldFor, has.Policy.HoldFor)
	if g := c.Group; g != nil {
		// What the group leaves to the cluster has the value of the settings here.
		wait, _ := time.ParseDuration(g.AckWait)
		has.Group = &GroupPolicy{AckWait: wait, MaxDeliver: g.MaxDeliver, MaxPending: g.MaxPending}
		s.Group = &GroupPolicy{AckWait: cmp.Or(s.Group.AckWait, wait),
			MaxDeliver: cmp.Or(s.Group.MaxDeliver, g.MaxDeliver), MaxPending: cmp.Or(s.Group.MaxPending, g.MaxPending)}
	}
	differs := has.DifferenceText(c.Name, s)
	if differs == "" {
		return true
	}
	refused.Message, refused.Remedy = differs, "give what it has, or leave it out; or "+refused.Remedy
	return false
}

// given returns what was given of a part of a filter, and else what there is.
func given(wants, has []string) []string {
	if len(wants) == 0 {
		return has
	}
	return wants
}

// listText returns a part of a filter as JSON, so that no value can be taken for two, and "" without values.
func listText(values []string) string {
	if len(values) == 0 {
		return ""
	}
	text, _ := json.Marshal(values) // of strings: it cannot fail
	return string(text)
}

// settingText returns the text of a setting of a cursor, "" for the zero value, which leaves it to the cluster.
func settingText[T uint64 | time.Duration](value T) string {
	if value == 0 {
		return ""
	}
	return fmt.Sprint(value)
}
