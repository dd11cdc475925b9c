package service

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/access"
	"github.com/ringrift/ringlog/internal/frame"
)

// What operators and admins do is an event of the log. A command takes it along, so that what is done and what is
// reported are one entry. What no entry does, as a backup, is reported before it is done.

// maxActText bounds a text of an act where it is made: an event has to stay small.
const maxActText = 256

// actWait bounds how long an act that no entry does waits for its event.
const actWait = 3 * time.Second

// attributed returns a command with who has it done, if that is an act of an operator or admin. Members of an older
// build know no acts. The context has both, from the route that was called.
func (c *core) attributed(ctx context.Context, command frame.Command) frame.Command {
	action, by := access.Act(ctx)
	if action == "" || c.Machine().FeatureLevel() < frame.LevelActs {
		return command
	}
	// A command that operators share with programs is an act only in some forms.
	target, detail, is := describeAct(command)
	if !is {
		return command
	}
	return frame.Act{By: by.String(), Action: action, Target: actText(target), Detail: actText(detail), Of: command}
}

// Begin reports an act that no entry of the log does, before it is done. The caller reports with the function that it
// returns how that went. The error is one of Propose.
func (c *core) Begin(ctx context.Context, target, detail string) (ended func(error), err error) {
	action, by := access.Act(ctx)
	if action == "" || c.Machine().FeatureLevel() < frame.LevelActs {
		return func(error) {}, nil
	}
	// Without a command in it: the entry only reports.
	act := frame.Act{By: by.String(), Action: action, Target: actText(target), Detail: actText(detail),
		Outcome: fsm.ActStarted}
	// Where the cluster cannot decide, the caller learns that within actWait.
	propose := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, actWait)
		defer cancel()
		_, err := c.Propose(ctx, frame.Request{Command: act})
		return err
	}
	// What cannot be reported is not done.
	if err := propose(ctx); err != nil {
		return nil, fmt.Errorf("record %s: %w", action, err)
	}
	return func(err error) {
		if err == nil {
			return
		}
		// Success is not reported: the first event says what was done unless another says that it failed.
		refusal := ToAPI(err)
		act.Outcome, act.Reason = fsm.ActFailed, cmp.Or(refusal.Reason, string(refusal.Code))
		// The caller may be gone, which may be why.
		if err := propose(context.WithoutCancel(ctx)); err != nil {
			c.logger.Warn("an act that failed was not recorded", "act", action, "by", act.By, "target", act.Target,
				"error", err)
		}
	}, nil
}

// actText is a text of an act, cut where it is too long.
func actText(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= maxActText {
		return text
	}
	const rest = "…"
	// Not within a character.
	end := maxActText - len(rest)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + rest
}

// describeAct returns what a command is done to and what else there is to say of it. is is false for commands that are
// nobody's act: those of programs, which come over the same routes.
func describeAct(command frame.Command) (target, detail string, is bool) {
	// How many letters, as their ids would take too much.
	letters := func(n int) string { return fmt.Sprintf("letters: %d", n) }
	switch c := command.(type) {
	case frame.SettingSet:
		return c.Key, c.Value, true
	case frame.Register:
		return typeNames(c.Definitions), "", true
	case frame.FlowPut:
		return flowNames(c.Flows), "", true
	case frame.FlowRemove:
		return c.Name, "", true
	case frame.DedupPolicySet:
		return c.Type, string(c.Policy.Mode), true
	case frame.Trim:
		switch {
		case c.Retention:
			return "", "by the settings", true
		case c.Force:
			return "", fmt.Sprintf("before %d, forced", c.Before), true
		}
		return "", fmt.Sprintf("before %d", c.Before), true
	case frame.TokenCreate:
		return c.Name, strings.Join(c.Roles, ","), true
	case frame.TokenRotate:
		return c.Name, "", true
	case frame.TokenRevoke:
		return c.Name, "", true
	case frame.ResourceSet:
		return c.Name, fmt.Sprint(c.Capacity), true
	case frame.ResourceRemove:
		return c.Name, "", true
	case frame.ViewDefine:
		return c.Name, "", true
	case frame.ViewRemove:
		return c.Name, "", true
	case frame.Redrive:
		return c.To, letters(len(c.Letters)), true
	case frame.Purge:
		return "", letters(len(c.Letters)), true
	case frame.LetterImport:
		return "", letters(len(c.Letters)), true
	case frame.CursorSeek:
		return c.Name, seekText(c.To), true
	case frame.CursorChange:
		return c.Name, "", true
	case frame.CursorDelete:
		return c.Name, "", true
	case frame.RoleRelease:
		// With a session, its holder gives the role back.
		return c.Role, fmt.Sprintf("fence %d", c.Fence), c.Session == ""
	}
	return "", "", false
}

// typeNames are the names of the types that are registered.
func typeNames(definitions []byte) string {
	defs, _ := event.ParseDefinitions(definitions) // they were checked
	var names []string
	for i := range defs {
		names = append(names, string(defs[i].Name))
	}
	return strings.Join(names, ",")
}

// flowNames are the names of the flows that are registered.
func flowNames(definitions []byte) string {
	flows, _ := event.ParseFlows(definitions)
	var names []string
	for i := range flows {
		names = append(names, flows[i].Name)
	}
	return strings.Join(names, ",")
}

// seekText is where a cursor is moved to.
func seekText(p frame.Position) string {
	switch p.Kind {
	case frame.AtStart:
		return "start"
	case frame.AtEnd:
		return "end"
	}
	return fmt.Sprint(p.Offset)
}
