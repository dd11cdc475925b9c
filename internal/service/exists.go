package service

import (
	"context"
	"errors"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
)

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
	named := *refusal
	has := api.CursorSettings{Filter: old.Filter, Policy: api.CursorPolicy(old.Policy)}
	wants := api.CursorSettings{Filter: c.Filter, Policy: api.CursorPolicy(c.Policy)}
	if group != nil {
		ofOld, ofNew := api.GroupPolicy(old.Group.Policy), api.GroupPolicy(*group)
		has.Group, wants.Group = &ofOld, &ofNew
		named.Field = "group"
	}
	named.Message = has.DifferenceText(c.Name, wants)
	// The cursor has changed since it was refused.
	if named.Message == "" {
		return err
	}
	return &named
}
