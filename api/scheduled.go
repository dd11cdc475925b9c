package api

import (
	"time"

	"github.com/ringrift/ringlog/event"
)

// The states of a scheduled event.
const (
	ScheduleWaiting   = "waiting"
	SchedulePublished = "published"
)

// Schedule asks for an event to be published at a time.
type Schedule struct {
	At    time.Time   `json:"at"`
	Event event.Event `json:"event"`
}

// Scheduled is an event that is to be published at a time, or was.
type Scheduled struct {
	ID    string    `json:"id"`
	At    time.Time `json:"at"`
	Made  time.Time `json:"made_at"`
	State string    `json:"state"` // ScheduleWaiting or SchedulePublished
	Type  string    `json:"type"`
	Key   string    `json:"key,omitempty"`
	// Event is there while it waits, where one schedule is asked for.
	Event *event.Event `json:"event,omitempty"`
	// Offset is the event's, once it was published; Duplicate says that it is that of an earlier event that it repeats.
	Offset    uint64    `json:"offset,omitempty"`
	Duplicate bool      `json:"duplicate,omitempty"`
	Published time.Time `json:"published_at,omitzero"`

	Existing bool            `json:"existing,omitempty"` // answers a schedule that was there before
	Warnings []event.Warning `json:"warnings,omitempty"` // of the event
}

// ScheduledPage is a page of what is scheduled, by id.
type ScheduledPage struct {
	Scheduled []Scheduled `json:"scheduled"`
	Next      string      `json:"next,omitempty"` // parameter "after" for the next page; "" on the last
}
