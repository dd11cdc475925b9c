package api

import "time"

// IncidentPlace is where the replay of an incident is: POST /v1/incident/step.
type IncidentPlace struct {
	ClusterID string `json:"cluster_id"`
	NodeID    string `json:"node_id"` // of which the incident was taken
	// The last entry that was applied, and the state after it.
	Index  uint64    `json:"index"`
	Term   uint64    `json:"term"`
	Time   time.Time `json:"time"` // replicated
	Digest string    `json:"digest"`
	// FirstOffset is the last one of the state before the slice, LastOffset that of the state now.
	FirstOffset uint64 `json:"first_offset"`
	LastOffset  uint64 `json:"last_offset"`
	LastIndex   uint64 `json:"last_index"` // of the slice
	Left        uint64 `json:"entries_left"`
}

// IncidentStep says how far a replay continues: by Entries, 1 if there is none, or up to the entry that has an offset.
type IncidentStep struct {
	Entries uint64 `json:"entries,omitempty"`
	Until   uint64 `json:"until,omitempty"`
}
