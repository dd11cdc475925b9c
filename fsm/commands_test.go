package fsm

import (
	"testing"

	"github.com/ringrift/ringlog/internal/frame"
)

// Every command that can be decoded is decided, and no other.
func TestEveryCommandHasADecision(t *testing.T) {
	for k := range 256 {
		if decoded, decided := frame.Kind(k).Level() > 0, decisions[k] != nil; decoded != decided {
			t.Errorf("kind %d: decoded %v, decided %v", k, decoded, decided)
		}
	}
}
