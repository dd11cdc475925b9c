package service

import (
	"testing"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// A panic while a part of a packet is checked is the request's, not the process's end.
func TestAPanicInAPartIsTheRequests(t *testing.T) {
	r := &PublishRequest{}
	events := make([]event.Event, 4*partRows)
	for i := range events {
		events[i] = event.New(event.TrainingCompleted, nil)
	}
	p := frame.Pack(events)
	opened, err := p.Open(frame.MaxBlockBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a panic in a part was ignored")
		}
	}()
	r.normalizeParts(nil, opened) // without a policy every part panics
}
