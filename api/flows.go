package api

import "github.com/ringrift/ringlog/event"

// Flows is what GET /v1/flows answers: the built-in flows, then the registered ones by name.
type Flows struct {
	Flows []event.Flow `json:"flows"`
}

// FlowsRegistered is what POST /v1/flows answers.
type FlowsRegistered struct {
	Registered []string `json:"registered"` // the names of the flows
	// Warnings are about stages whose types are not in the catalogue.
	Warnings []event.Warning `json:"warnings,omitempty"`
	DryRun   bool            `json:"dry_run"` // nothing was registered
}
