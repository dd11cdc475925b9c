package service

import (
	"github.com/ringrift/ringlog/api"
)

// Reports holds what is computed from the events in the log: audit, chains of a run, history.
type Reports struct {
	*core
	log    *Log
	chains *chainWatch
}

// Overdue is what this node knows of runs that are overdue.
func (rs *Reports) Overdue() *api.OverdueRuns { return rs.chains.view.Load() }
