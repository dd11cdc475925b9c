package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
)

// maxDifference bounds each value in the error of a cursor that exists with other settings, in bytes.
const maxDifference = 200

// nameDifferences adds to the refusal of a cursor that exists with other settings which ones differ, with the value
// that each has and the one that was sent; group is nil for a cursor of one reader. Other errors stay.
func (cs *Cursors) nameDifferences(ctx context.Context, err error, c CursorSpec, group *frame.GroupPolicy) error {
	refusal, ok := errors.AsType[*fsm.Refusal](err)
	if !ok || refusal.Code != fsm.Exists {
		return err
	}
	// The cursor may have been made on another node a moment ago. Where the barrier fails, the refusal says enough.
	if cs.node.ReadBarrier(ctx) != nil {
		return err
	}
	old, there := cs.Machine().Cursor(c.Name)
	if !there || (old.Group == nil) != (group == nil) {
		return err
	}
	found := differences(&old, c, group)
	// The cursor has changed since it was refused.
	if len(found) == 0 {
		return err
	}
	kind := "cursor"
	if group != nil {
		kind = "group"
	}
	named := *refusal
	named.Message = fmt.Sprintf("the %s %q exists with other settings: %s", kind, c.Name, strings.Join(found, "; "))
	return &named
}

// differences lists the settings that a cursor has otherwise than it was asked for, as "policy.hold_for is 1h0m0s, not
// 2h0m0s".
func differences(old *fsm.Cursor, c CursorSpec, group *frame.GroupPolicy) (found []string) {
	// Both texts are "" for a setting that is left to the cluster, and for a part of a filter that passes all. name is
	// as in the request.
	compare := func(name, has, wants string) {
		if has == wants {
			return
		}
		asked := ", and none was sent"
		if wants != "" {
			asked = ", not " + truncateText(wants, maxDifference)
		}
		found = append(found, name+" is "+truncateText(cmp.Or(has, "not set"), maxDifference)+asked)
	}
	// As JSON, so that no value can be taken for two.
	list := func(values []string) string {
		if len(values) == 0 {
			return ""
		}
		text, _ := json.Marshal(values) // of strings: it cannot fail
		return string(text)
	}
	compare("filter.types", list(old.Filter.Types), list(c.Filter.Types))
	compare("filter.categories", list(old.Filter.Categories), list(c.Filter.Categories))
	compare("filter.sources", list(old.Filter.Sources), list(c.Filter.Sources))
	compare("filter.keys", list(old.Filter.Keys), list(c.Filter.Keys))
	compare("filter.correlation_ids", list(old.Filter.CorrelationIDs), list(c.Filter.CorrelationIDs))
	compare("policy.hold_events", settingText(old.Policy.HoldEvents), settingText(c.Policy.HoldEvents))
	compare("policy.hold_bytes", settingText(old.Policy.HoldBytes), settingText(c.Policy.HoldBytes))
	compare("policy.hold_for", settingText(old.Policy.HoldFor), settingText(c.Policy.HoldFor))
	if group != nil {
		has := old.Group.Policy
		compare("group.ack_wait", settingText(has.AckWait), settingText(group.AckWait))
		compare("group.max_deliver", settingText(has.MaxDeliver), settingText(group.MaxDeliver))
		compare("group.max_pending", settingText(has.MaxPending), settingText(group.MaxPending))
	}
	return found
}

// settingText returns the text of a setting of a cursor, "" for the zero value, which leaves it to the cluster.
func settingText[T uint64 | time.Duration](value T) string {
	if value == 0 {
		return ""
	}
	return fmt.Sprint(value)
}
