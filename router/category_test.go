package router_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/router"
)

// A category that is none is refused where it is asked for, live as durable; one that is
// subscribed to in the background is reported, and keeps no other from being registered.
func TestACategoryThatIsNoneIsRefused(t *testing.T) {
	n := node(t)
	r := open(t, router.OnClient(n.Client()), router.Options{Register: true, Source: "p1"})
	none := router.Subscription{Name: "x", Handler: new(seen).handle, Categories: []string{"trainign"}}
	for _, s := range []router.Subscription{
		none,
		{Name: "x", Handler: none.Handler, Categories: none.Categories, Durable: true},
	} {
		if _, err := r.Subscribe(t.Context(), s); err == nil || !strings.Contains(err.Error(), `no category "trainign"`) {
			t.Errorf("durable %t: %v", s.Durable, err)
		}
	}
	none.Background = true
	sub := subscribe(t, r, none)
	subscribe(t, r, router.Subscription{Name: "good", Handler: none.Handler, Categories: []string{"training"}})
	eventually(t, "refused", func() bool { return sub.Status().State == router.Refused })
	eventually(t, "both are registered", func() bool {
		var states []string
		for c, err := range n.Client().Admin().RegisteredClients(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range c.Subscriptions {
				states = append(states, s.Name+" "+s.State)
			}
		}
		return slices.Equal(states, []string{"x refused", "good attached"})
	})
}
