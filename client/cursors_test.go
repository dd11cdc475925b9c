package client_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
)

// A cursor that never was is not found, also where the first endpoint takes no connection: only
// an attempt that may have happened can have removed it.
func TestDeletingWhatNeverWasIsNotFoundWhoeverIsDown(t *testing.T) {
	n := startNode(t)
	d := openDoor(t, n.server.Handler())
	c := dial(t, client.Config{Endpoints: []string{"http://127.0.0.1:1"}}, d)
	wantCode(t, c.DeleteCursor(t.Context(), "never"), api.NotFound)
	if _, err := c.CreateCursor(t.Context(), "there", client.CursorSpec{}); err != nil {
		t.Fatal(err)
	}
	lost := false
	d.faults(func(r *http.Request) fault {
		cut := !lost && strings.HasSuffix(r.URL.Path, "/DeleteCursor")
		lost = lost || cut
		return fault{cutAfter: cut}
	})
	if err := c.DeleteCursor(t.Context(), "there"); err != nil || !lost {
		t.Errorf("deleted by an attempt whose answer was lost (%v): %v", lost, err)
	}
}
