package service

import (
	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// verdicts is what is to be said of events that were not published.
type verdicts struct {
	Valid  bool      `json:"valid"`
	Events []verdict `json:"events"`
}

type verdict struct {
	Type     event.Type      `json:"type"`
	Hash     string          `json:"hash,omitempty"`
	Warnings []event.Warning `json:"warnings,omitempty"`
	Error    *api.Error      `json:"error,omitempty"`
}

func Validate(policy *event.Policy, events []event.Event) verdicts {
	all := verdicts{Valid: true}
	for i := range events {
		hash, warnings, err := policy.Normalize(&events[i])
		v := verdict{Type: events[i].Type, Warnings: warnings}
		if err != nil {
			v.Error, all.Valid = ToAPI(&rowError{i, err}), false
		} else {
			v.Hash = hash.String()
		}
		all.Events = append(all.Events, v)
	}
	return all
}
