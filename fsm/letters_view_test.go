package fsm

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/ringrift/ringlog/internal/frame"
)

// What closes or replaces a state waits for its readers; it must not wait for what a caller does
// with the letters.
func TestNobodyWaitsForWhoGoesThroughTheLetters(t *testing.T) {
	m := open(t, vfs.NewMem())
	copied := ev(1)
	letter := frame.ImportedLetter{Origin: [frame.OriginSize]byte{1}, Event: frame.EncodeCopy(&copied)}
	applyTo(t, m, entryOf(1, 1, "n1", epoch, do(frame.LetterImport{Letters: []frame.ImportedLetter{letter}})))
	seen := 0
	err := m.EachLetter(t.Context(), 0, func(LetterView) bool {
		seen++
		closed := make(chan error)
		go func() { closed <- m.Close() }()
		select {
		case err := <-closed:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Error("the state does not close while a letter is looked at")
		}
		return false
	})
	if err != nil || seen != 1 {
		t.Errorf("%d letters, %v", seen, err)
	}
}
