package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

func listening(t *testing.T, c *client.Client) (list []client.RegisteredClient) {
	t.Helper()
	for one, err := range c.Admin().RegisteredClients(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, one)
	}
	return list
}

func TestWhatIsRegisteredComesBackAsItWas(t *testing.T) {
	t.Parallel()
	c := dial(t, client.Config{}, openDoor(t, startNode(t).server.Handler()))
	sub := client.SubscriptionInfo{
		Name:           "loss",
		Filter:         event.Filter{Types: []string{"training.*"}, Keys: []string{"k"}},
		Where:          "payload.n > 1",
		Mode:           "durable",
		Critical:       true,
		State:          "connecting",
		TimeoutSeconds: 1.5,
		Cursor:         "loss",
	}
	if err := c.Admin().RegisterSubscriptions(
		t.Context(),
		client.Registration{
			ID:            "a b/c",
			Host:          "h",
			PID:           3,
			Version:       "v",
			TTL:           time.Minute,
			Subscriptions: []client.SubscriptionInfo{sub},
		},
	); err != nil {
		t.Fatal(err)
	}
	list := listening(t, c)
	if len(list) != 1 || list[0].ID != "a b/c" || list[0].PID != 3 || list[0].TTL != "1m0s" ||
		len(list[0].Subscriptions) != 1 {
		t.Fatalf("%+v", list)
	}
	if got := list[0].Subscriptions[0]; got.TimeoutSeconds != sub.TimeoutSeconds || got.Where != sub.Where ||
		!got.Critical ||
		got.State != sub.State ||
		got.Filter.Keys[0] != "k" {
		t.Errorf("%+v", got)
	}
	for range 2 {
		if err := c.Admin().UnregisterSubscriptions(t.Context(), "a b/c"); err != nil {
			t.Error(err)
		}
	}
	if list := listening(t, c); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}

// noted remembers what a keeper sends, and when.
type noted struct {
	mu   sync.Mutex
	sent []string
	fail error
}

func (n *noted) register(_ context.Context, r client.Registration) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	names := []string{}
	for _, s := range r.Subscriptions {
		names = append(names, s.Name)
	}
	text := "[" + strings.Join(names, " ") + "]"
	if n.fail != nil {
		text += "!"
	}
	n.sent = append(n.sent, text)
	return n.fail
}

func (n *noted) take() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	text := strings.Join(n.sent, " ")
	n.sent = nil
	return text
}

func (n *noted) failing(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fail = err
}

func subs(names ...string) (list []client.SubscriptionInfo) {
	for _, n := range names {
		list = append(list, client.SubscriptionInfo{Name: n})
	}
	return list
}

// A renewal has the list as it is then, and causes no further call.
func TestARenewalHasTheListOfItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &noted{}
		k := client.NewKeeper(n.register, client.Registration{ID: "p", TTL: time.Minute}, nil)
		calls := 0
		k.SetAs("", func() []client.SubscriptionInfo {
			calls++
			return subs(fmt.Sprint("a", calls))
		})
		time.Sleep(41 * time.Second)
		synctest.Wait()
		if got, want := n.take(), "[a1] [a2] [a3]"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if err := k.Close(t.Context()); err != nil || n.take() != "[]" {
			t.Errorf("it is not removed: %v", err)
		}
	})
}

// A keeper sends what has changed a moment later and at once, repeats it well within its
// time, resumes where a call failed, and removes it in the end.
func TestAKeeperKeepsARegistrationAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &noted{}
		k := client.NewKeeper(n.register, client.Registration{ID: "p", TTL: time.Minute}, nil)
		after := func(d time.Duration, want string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := n.take(); got != want {
				t.Errorf("after %s: %s, want %s", d, got, want)
			}
		}
		after(5*time.Minute, "")
		for _, list := range [][]client.SubscriptionInfo{subs("a"), subs("a", "b"), subs("a", "b", "c")} {
			k.Set(list)
		}
		after(time.Second, "[a b c]")
		after(time.Minute, "[a b c] [a b c] [a b c]")
		n.failing(errors.New("nobody answers"))
		k.Set(subs("d"))
		after(5*time.Second, "[d]! [d]! [d]!")
		n.failing(nil)
		after(5*time.Second, "[d]")
		k.Set(nil)
		after(time.Hour, "[]")
		k.Set(subs("e"))
		after(time.Second, "[e]")
		for range 2 {
			if err := k.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		after(time.Hour, "[]")
	})
}
