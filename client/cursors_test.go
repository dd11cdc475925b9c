package client_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// A cursor that never was is not found, also if the first endpoint takes no connection: only
// an attempt that may have happened can have removed it.
func TestDeletingWhatNeverWasIsNotFoundWhoeverIsDown(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	d := openDoor(t, n.server.Handler())
	c := dial(t, client.Config{Endpoints: []string{"http://127.0.0.1:1"}}, d)
	untilNoCursor(t, c, "never")
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

// What a node warns about in a filter is reported once, whichever calls give the filter.
func TestAMisspeltTypeIsWarnedAboutOnce(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	var warned []event.Warning // calls follow each other
	c := dial(t, client.Config{OnWarning: func(w event.Warning) { warned = append(warned, w) }},
		openDoor(t, n.server.Handler()))
	misspelt := event.Filter{Types: []string{"TRAINNG_COMPLETED"}}
	tail := func(f event.Filter) error {
		for _, err := range c.Tail(t.Context(), client.TailOptions{NoFollow: true, Filter: f}) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	for _, give := range []struct {
		name string
		call func() error
	}{
		{"tail", func() error { return tail(misspelt) }},
		{"cursor", func() error {
			_, err := c.CreateCursor(t.Context(), "c", client.CursorSpec{Filter: misspelt})
			return err
		}},
		{"change", func() error { return c.ChangeCursor(t.Context(), "c", misspelt, client.CursorPolicy{}) }},
		{"group", func() error {
			_, err := c.CreateGroup(t.Context(), "g", client.GroupSpec{Filter: misspelt})
			return err
		}},
	} {
		if err := give.call(); err != nil {
			t.Fatal(give.name, err)
		}
		if len(warned) != 1 || warned[0].Reason != event.WarningUnknownType {
			t.Fatalf("after %s: %+v", give.name, warned)
		}
	}
	if err := tail(event.Filter{Types: []string{"*_PROMOTD"}}); err != nil || len(warned) != 2 {
		t.Errorf("%+v, %v", warned, err)
	}
}

// A bad name of a cursor or a group is refused as a node refuses it, by every call and without a request.
func TestABadNameIsRefusedWithoutARequest(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	var requests atomic.Int64
	d := openDoor(t, n.server.Handler())
	d.faults(func(*http.Request) fault { requests.Add(1); return fault{} })
	c := dial(t, client.Config{}, d)
	for _, name := range []string{"", "a\nb", "\xff"} {
		for call, err := range map[string]error{
			"create": second(c.CreateCursor(t.Context(), name, client.CursorSpec{})),
			"get":    second(c.Cursor(t.Context(), name)),
			"open":   second(c.OpenCursor(t.Context(), name, client.CursorOptions{})),
			"change": c.ChangeCursor(t.Context(), name, event.Filter{}, client.CursorPolicy{}),
			"seek":   second(c.SeekCursor(t.Context(), name, client.FromStart())),
			"delete": c.DeleteCursor(t.Context(), name),
			"group":  second(c.CreateGroup(t.Context(), name, client.GroupSpec{})),
			"join":   second(c.JoinGroup(t.Context(), name, client.GroupOptions{})),
		} {
			refusal, ok := errors.AsType[*api.Error](err)
			kind := "cursor"
			if call == "group" || call == "join" {
				kind = "group"
			}
			if !ok || refusal.Code != api.InvalidArgument || refusal.Field != kind ||
				(name == "" && !strings.HasPrefix(refusal.Message, "a "+kind+" without")) {
				t.Errorf("%s of %q: %v", call, name, err)
			} else if strings.Contains(err.Error(), "\n") {
				t.Errorf("%s of %q: more than one line: %v", call, name, err)
			}
		}
	}
	if requests.Load() > 0 {
		t.Errorf("%d requests were made", requests.Load())
	}
}

// second returns the error of a call with a result.
func second[T any](_ T, err error) error { return err }
