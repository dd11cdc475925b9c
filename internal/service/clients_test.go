package service

import (
	"testing"

	"github.com/ringrift/ringlog/internal/frame"
)

// Members of any level get a client as a command that all of them know.
func TestAClientIsRegisteredAtEveryLevel(t *testing.T) {
	c := frame.ClientPut{ID: "a", Coordinator: "health_manager",
		Subscriptions: []frame.ClientSubscription{{Name: "s", Health: &frame.HandlerHealth{TimedOut: 1}}}}
	for level := uint32(frame.LevelDelivery); level <= frame.LevelNewest; level++ {
		got := clientAt(c, level)
		if known := got.Kind().Level(); known > level || got.Subscriptions[0].Name != "s" {
			t.Errorf("level %d gets a command of level %d: %+v", level, known, got)
		}
		if whole := got.Subscriptions[0].Health != nil; whole != (level >= frame.LevelClients) {
			t.Errorf("level %d gets the health: %v", level, whole)
		}
	}
	if c.Subscriptions[0].Health == nil {
		t.Error("the caller's list was changed")
	}
}
