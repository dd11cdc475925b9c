package fsm

import "time"

// LevelDelivery is the feature level from which on there are groups.
const LevelDelivery = 4

// Bounds of what a group's policy and the settings behind it may ask for. What one
// group keeps in the state is bounded by frame.MaxRanges and frame.MaxRetries, which
// maxMaxPending stays below.
const (
	minAckWait    = time.Second
	maxAckWait    = 24 * time.Hour
	maxMaxDeliver = 1_000_000
	maxMaxPending = 50_000
)
