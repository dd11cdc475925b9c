package service

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/access"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/platform/stages"
)

// Settings holds the operations on the cluster's settings.
type Settings struct{ *core }

// List returns all settings in force, by key.
func (st *Settings) List() (list []api.Setting) {
	// The shapes have the same fields.
	for _, one := range st.Machine().ListSettings() {
		list = append(list, api.Setting(one))
	}
	return list
}

// Get returns one setting in force.
func (st *Settings) Get(key string) (api.Setting, error) {
	// There are about thirty settings, so a search is as good as an index.
	for _, one := range st.List() {
		if one.Key == key {
			return one, nil
		}
	}
	return api.Setting{}, api.Refuse(api.NotFound, "key",
		fmt.Sprintf("there is no setting %q", key),
		"list them: GET /v1/settings, or ringlog settings ls")
}

// Set changes a setting; an empty value restores the default.
func (st *Settings) Set(ctx context.Context, key, value string) (*api.Setting, error) {
	if restricted(key) && !access.Of(ctx).May(access.Administer) {
		return nil, &api.Error{Code: api.Forbidden, Reason: api.ReasonPermission, Field: "key",
			Message: fmt.Sprintf("%s decides what is kept or who may do what, and needs a token of the role admin", key),
			Remedy:  "ask somebody who has one"}
	}
	if err := checkSetting(st.Machine().Catalogue(), key, value); err != nil {
		return nil, err
	}
	// The state machine, which checks key and value equally on every node, reads durations as Go writes them.
	if one, err := st.Get(key); err == nil && isDuration(one.Default) {
		if age, err := api.ParseAge(key, value); err == nil && strings.TrimRight(value, "dw") != value {
			value = age.String()
		}
	}
	result, err := st.proposeAndApply(ctx, frame.SettingSet{Key: key, Value: value})
	return (*api.Setting)(result.Setting), err
}

// restricted reports whether a setting can lose data, or give power: it is no operator's.
func restricted(key string) bool {
	for _, prefix := range []string{"auth.", "tokens.", "retention.", "cursor.hold_", "cursor.idle_expiry", "dlq.max_age",
		"catalogue.reserved", "autopilot.cleanup_dead_servers"} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// isDuration reports whether a setting with that default is a duration: each of those has a default with a unit.
func isDuration(fallback string) bool {
	_, err := time.ParseDuration(fallback)
	return err == nil && fallback != "0"
}

// checkSetting refuses a value that only the catalogue shows to be wrong.
func checkSetting(c *event.Catalogue, key, value string) error {
	// The state machine checks the form of all other settings itself.
	if key != "chain.deadlines" || value == "" {
		return nil
	}
	if _, err := stages.ParseDeadlines(c, strings.Split(value, ",")); err != nil {
		return api.Refuse(api.InvalidArgument, "value",
			err.Error(),
			"send FLOW:CAUSE->EFFECT=DURATION, comma separated")
	}
	return nil
}

// deadlines returns those of the settings. The ones of flows that this node lacks are left out: a newer build may have
// them.
func (c *core) deadlines() stages.Deadlines {
	d, _ := stages.ParseEachDeadline(c.Machine().Catalogue(), c.Machine().Settings().ChainDeadlines)
	return d
}
