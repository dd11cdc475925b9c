package client_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// toEnd handles a cursor's events up to the end: it dead-letters those that bad selects
// and commits the others. It returns their numbers in the order in which they came.
func toEnd(t *testing.T, c *client.Client, name string, bad func(event.Event) bool) (numbers []int, again int) {
	t.Helper()
	cur, err := c.OpenCursor(t.Context(), name, client.CursorOptions{UntilEnd: true})
	if err != nil {
		t.Fatal(err)
	}
	defer cur.Close()
	for {
		ev, err := cur.Next(t.Context())
		if errors.Is(err, io.EOF) {
			if err := cur.Commit(t.Context(), cur.Scanned()); err != nil {
				t.Fatal(err)
			}
			return numbers, again
		}
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type == event.TrainingProgress {
			numbers = append(numbers, numberOf(ev))
		}
		if ev.Redrive != 0 {
			again++
		}
		if bad(ev) {
			err = cur.DeadLetter(
				t.Context(),
				ev.Offset,
				client.Failure{Handler: "test", Error: "bad", Attempts: 2, FirstFailed: time.Now()},
			)
		} else {
			err = cur.Commit(t.Context(), ev.Offset)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Each event that a handler dead-letters over a network that loses answers is one letter. A
// redrive delivers it again, to the cursor that it belongs to and to no other reader.
func TestDeadLettersComeAgainToTheirCursor(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	lossy, steady := openDoor(t, n.server.Handler()), openDoor(t, n.server.Handler())
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(7, 7))
	lossy.faults(func(r *http.Request) fault {
		mu.Lock()
		defer mu.Unlock()
		losable := strings.HasSuffix(r.URL.Path, "/DeadLetter") || strings.HasSuffix(r.URL.Path, "/CommitCursor") ||
			strings.HasPrefix(r.URL.Path, "/v1/dlq")
		return fault{cutAfter: losable && rng.IntN(4) == 0}
	})
	c := dial(t, client.Config{}, lossy, steady)
	for _, name := range []string{"trainer", "other"} {
		if _, err := c.CreateCursor(t.Context(), name, client.CursorSpec{}); err != nil {
			t.Fatal(err)
		}
	}
	publishN(t, c, 0, 60)
	fifth := func(ev event.Event) bool { return ev.Type == event.TrainingProgress && numberOf(ev)%5 == 0 }
	never := func(event.Event) bool { return false }
	if got, _ := toEnd(t, c, "trainer", fifth); len(got) != 60 {
		t.Errorf("%d events", len(got))
	}
	var letters []client.Letter
	for l, err := range c.Admin().DeadLetters(t.Context(), client.LetterFilter{Cursor: "trainer", Type: "training.*"}) {
		if err != nil {
			t.Fatal(err)
		}
		letters = append(letters, l)
	}
	if len(letters) != 12 || letters[0].Attempts != 2 || letters[0].State != "dead" {
		t.Fatalf("%d letters: %+v", len(letters), letters)
	}
	l, ev, err := c.Admin().DeadLetter(t.Context(), letters[3].ID)
	if err != nil || l.Error != "bad" || numberOf(ev) != 15 {
		t.Errorf("%+v %+v %v", l, ev, err)
	}
	if done, err := c.Admin().Redrive(t.Context(), client.LetterSelector{All: true, MaxEvents: 7}, ""); err != nil ||
		done.Done != 7 && done.Matched != 5 ||
		done.Done == 7 && (done.Last != 7 || !done.More) {
		t.Fatalf("%+v %v", done, err)
	}
	if _, err := c.Admin().Redrive(t.Context(), client.LetterSelector{Cursor: "trainer"}, ""); err != nil {
		t.Fatal(err)
	}
	got, again := toEnd(t, c, "trainer", func(ev event.Event) bool { return ev.Redrive != 0 && numberOf(ev) == 10 })
	if !slices.Equal(got, []int{0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55}) || again != 12 {
		t.Errorf("came again: %v, %d as letters", got, again)
	}
	if got, again := toEnd(t, c, "other", never); len(got) != 60 || again != 0 {
		t.Errorf("another cursor: %d events, %d letters", len(got), again)
	}
	if got := mine(t, c); len(got) != 60 {
		t.Errorf("a tail: %d events", len(got))
	}
	young := client.LetterSelector{OlderThan: time.Hour}
	if done, err := c.Admin().Purge(t.Context(), young); err != nil || done.Matched != 0 {
		t.Errorf("%+v %v", done, err)
	}
	if done, err := c.Admin().Purge(t.Context(), client.LetterSelector{Cursor: "trainer"}); err != nil || done.Done > 1 {
		t.Errorf("%+v %v", done, err)
	}
	_, _, err = c.Admin().DeadLetter(t.Context(), letters[2].ID)
	wantCode(t, err, api.NotFound)
}
