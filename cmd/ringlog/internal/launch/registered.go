package launch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
)

// Clients register with the cluster, by host and process id. The launcher knows the process group of each command.
// Whether one has registered is found by comparing the two, so that a command may be a script that starts the
// client.

// fetchClients returns what clients have registered. With local it is what the node has that answers.
func fetchClients(ctx context.Context, c *client.Client, consistency string) (all []api.Client, err error) {
	query := url.Values{"limit": {"1000"}, "consistency": {consistency}}
	// The list comes in pages; Next is the id after which the next one begins, "" after the last.
	for {
		var page api.ClientPage
		if err := c.Admin().Do(ctx, http.MethodGet, "/v1/clients", query, nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Clients...)
		if page.Next == "" {
			return all, nil
		}
		query.Set("after", page.Next)
	}
}

// registrations are what clients have registered, fetched once for all daemons that wait to be registered.
type registrations struct {
	c    *client.Client
	turn chan struct{} // holds one value while nobody uses what follows
	list []api.Client  // of the newest fetch; valid if err is nil
	err  error         // of the newest fetch
	at   time.Time     // when it was fetched
}

func newRegistrations(c *client.Client) *registrations {
	r := &registrations{c: c, turn: make(chan struct{}, 1)}
	r.turn <- struct{}{}
	return r
}

// check returns nil if a process of a group has registered.
func (r *registrations) check(ctx context.Context, group int) error {
	// The turn is a lock whose wait ends with ctx: a fetch may take as long as the cluster needs.
	select {
	case <-r.turn:
		defer func() { r.turn <- struct{}{} }()
	case <-ctx.Done():
		return errors.New("the clients are not known yet")
	}
	// Daemons that wait at the same time share a fetch. One that waited for the turn finds it just fetched.
	if time.Since(r.at) >= readyEvery {
		r.list, r.err = fetchClients(ctx, r.c, "local")
		r.at = time.Now()
	}
	switch {
	case r.err != nil:
		return r.err
	case !slices.ContainsFunc(r.list, func(c api.Client) bool { return ofGroup(c, group) }):
		return errors.New("its client has not registered")
	}
	return nil
}

// ofGroup reports a client that is a process of a group on this host.
func ofGroup(c api.Client, group int) bool {
	of, err := groupOf(c)
	return err == nil && of == group
}

// groupOf returns the process group of a client, an error if it is no process of this host that runs.
func groupOf(c api.Client) (int, error) {
	// Process ids are those of one host, and have at most 31 bits. 0 is a client that has not given its own.
	if host, err := os.Hostname(); err != nil || c.Host != host || c.PID == 0 || c.PID > 1<<31 {
		return 0, syscall.ESRCH
	}
	return syscall.Getpgid(int(c.PID))
}

// Audit compares the coordinators of a launcher with what is registered, and returns a warning for each difference: one
// that runs here and subscribes to nothing, and a process of this host that is registered as one and was not started by
// the launcher.
func Audit(ctx context.Context, c *client.Client, s Status) (warnings []string, err error) {
	// A follower that lags would have warnings about clients that have just registered.
	clients, err := fetchClients(ctx, c, "linearizable")
	if err != nil {
		return nil, err
	}
	// A subscription counts for the coordinator that its client is registered as, and for one of its own name.
	subscribes := map[string]bool{} // by coordinator, or by name of a subscription
	for _, c := range clients {
		for _, sub := range c.Subscriptions {
			subscribes[c.Coordinator], subscribes[sub.Name] = true, true
		}
	}
	// The launcher makes each command the leader of a process group, so its children are found by the group.
	groups := map[int]bool{}
	for _, row := range s.Daemons {
		groups[row.PID] = true
		if row.Coordinator != "" && row.State == Ready && !subscribes[row.Coordinator] {
			warnings = append(warnings, fmt.Sprintf("%s runs, and no client subscribes as the coordinator %s", row.Name,
				row.Coordinator))
		}
	}
	// Clients of other hosts are another launcher's, and those that have ended are nobody's: groupOf returns an
	// error.
	for _, c := range clients {
		if c.Coordinator == "" {
			continue
		}
		if group, err := groupOf(c); err == nil && !groups[group] {
			warnings = append(warnings, fmt.Sprintf("the process %d of this host is registered as the coordinator %s, "+
				"and this launcher has not started it", c.PID, c.Coordinator))
		}
	}
	return warnings, nil
}
