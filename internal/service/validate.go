package service

import (
	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// Validate says of each event what a publish would say, and appends nothing. It changes events to the form in which
// they would be stored.
func Validate(policy *event.Policy, events []event.Event) api.Validation {
	all := api.Validation{Valid: true}
	for i := range events {
		// Normalize is what a publish does as well; only deduplication is not tried.
		hash, warnings, err := policy.Normalize(&events[i])
		// An event that is refused does not keep the others from being judged.
		v := api.Verdict{Type: events[i].Type, Warnings: warnings}
		if err != nil {
			v.Error, all.Valid = ToAPI(&rowError{i, err}), false
		} else {
			v.Hash = hash.String()
		}
		all.Events = append(all.Events, v)
	}
	return all
}
