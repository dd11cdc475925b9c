package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// acquired waits for a role in the background.
func acquired(t *testing.T, c *client.Client, name string, o client.RoleOptions) <-chan *client.Role {
	got := make(chan *client.Role, 1)
	go func() {
		defer close(got)
		r, err := c.AcquireRole(t.Context(), name, o)
		if err != nil {
			t.Error(err)
			return
		}
		got <- r
	}()
	return got
}

// A role passes from holder to holder in the order in which they asked, and only the holder's publishes are accepted.
func TestARolePassesOn(t *testing.T) {
	t.Parallel()
	c := dial(t, client.Config{}, openDoor(t, startNode(t).server.Handler()))
	first, err := c.AcquireRole(t.Context(), "PROMOTION_LEADER", client.RoleOptions{Holder: "a"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.AcquireRole(t.Context(), "PROMOTION_LEADER", client.RoleOptions{NoWait: true})
	if !errors.Is(err, client.ErrRoleHeld) {
		t.Fatalf("a second holder: %v", err)
	}
	next := acquired(t, c, "PROMOTION_LEADER", client.RoleOptions{Holder: "b"})
	until(t, "b waits", func() bool {
		for r, err := range c.Admin().Roles(t.Context()) {
			return err == nil && r.Holder == "a" && r.Fence == first.Fence() && r.Waiting == 1
		}
		return false
	})
	for n := range 2 {
		got, err := first.Publish(t.Context(), event.New(event.ModelPromoted, map[string]any{"n": n}), event.New("A", nil))
		if err != nil || len(got) != 2 || got[0].Offset <= first.Fence() {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if cause := context.Cause(first.Context()); !errors.Is(cause, context.Canceled) {
		t.Errorf("released: %v", cause)
	}
	second := <-next
	if second == nil || second.Fence() <= first.Fence() {
		t.Fatalf("%+v after the fence %d", second, first.Fence())
	}
	for range 2 {
		_, err = first.Publish(t.Context(), event.New(event.ModelPromoted, map[string]any{"n": 9}))
	}
	refused, ok := errors.AsType[*api.Error](err)
	if !ok || refused.Code != api.Fenced || refused.Offset != second.Fence() {
		t.Errorf("the first holder still publishes: %v", err)
	}

	// An operator takes the role away; the holder learns of it with its next renewal.
	if _, err := c.Admin().RevokeRole(t.Context(), "PROMOTION_LEADER", first.Fence()); err == nil {
		t.Error("a lease that is over was revoked")
	}
	if _, err := c.Admin().RevokeRole(t.Context(), "PROMOTION_LEADER", second.Fence()); err != nil {
		t.Error(err)
	}
	if err := second.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// A holder whose renewals do not arrive stops before its lease is another's; one whose publishes are cut off repeats
// them, and they are appended once.
func TestAHolderStopsBeforeItsLeaseEnds(t *testing.T) {
	t.Parallel()
	node := startNode(t).server.Handler()
	cut := openDoor(t, node)
	c, other := dial(t, client.Config{}, cut), dial(t, client.Config{}, openDoor(t, node))
	r, err := c.AcquireRole(t.Context(), "SYNC", client.RoleOptions{TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	once := true
	cut.faults(func(r *http.Request) fault {
		publish := strings.HasSuffix(r.URL.Path, "/v1/events")
		f := fault{cutAfter: publish && once, cutBefore: r.URL.Path == "/v1/roles"}
		once = once && !publish
		return f
	})
	got, err := r.Publish(t.Context(), event.Event{Type: "A", NoDedup: true})
	if err != nil || len(got) != 1 || got[0].Duplicate {
		t.Fatalf("%+v, %v", got, err)
	}
	next := acquired(t, other, "SYNC", client.RoleOptions{TTL: 2 * time.Second})
	select {
	case <-r.Context().Done():
	case <-next:
		t.Fatal("the role is another's while its holder may still work")
	}
	if cause := context.Cause(r.Context()); !errors.Is(cause, client.ErrRoleLost) {
		t.Error(cause)
	}
	second := <-next
	if second == nil {
		t.FailNow()
	}
	if tail, err := other.Get(t.Context(), got[0].Offset+1); err != nil || tail.Type == "A" {
		t.Errorf("the event was appended again: %+v, %v", tail, err)
	}
	if err := second.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// A client with a short timeout does not ask for a role again and again while it waits: each call is an entry of the
// log. When it stops waiting it leaves the queue.
func TestAShortTimeoutIsNoBusyWait(t *testing.T) {
	t.Parallel()
	node := startNode(t).server.Handler()
	door := openDoor(t, node)
	c := dial(t, client.Config{}, openDoor(t, node))
	held, err := c.AcquireRole(t.Context(), "SYNC", client.RoleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	asked := atomic.Int32{}
	door.faults(func(r *http.Request) fault {
		if r.Method == http.MethodPut {
			asked.Add(1)
		}
		return fault{}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
	defer cancel()
	hasty := dial(t, client.Config{Timeout: 200 * time.Millisecond}, door)
	if _, err := hasty.AcquireRole(ctx, "SYNC", client.RoleOptions{TTL: time.Hour}); err == nil {
		t.Error("another holds the role")
	}
	if n := asked.Load(); n > 2 {
		t.Errorf("asked %d times in less than a second", n)
	}
	for r, err := range c.Admin().Roles(t.Context()) {
		if err != nil || r.Waiting != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if err := held.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// With a reserve a holder stops earlier, while the lease can still be used for that time.
func TestAReserveIsLeftOfTheLease(t *testing.T) {
	t.Parallel()
	door := openDoor(t, startNode(t).server.Handler())
	c := dial(t, client.Config{}, door)
	const ttl = 3 * time.Second
	for _, reserve := range []time.Duration{-1, client.MaxReserve(ttl) + 1} {
		_, err := c.AcquireRole(t.Context(), "SYNC", client.RoleOptions{TTL: ttl, Reserve: reserve})
		if err == nil || !strings.Contains(err.Error(), "a third of the TTL") {
			t.Errorf("a reserve of %s: %v", reserve, err)
		}
	}
	o := client.RoleOptions{TTL: ttl, Reserve: client.MaxReserve(ttl)}
	r, err := c.AcquireRole(t.Context(), "SYNC", o)
	if err != nil {
		t.Fatal(err)
	}
	door.faults(func(r *http.Request) fault { return fault{cutBefore: r.URL.Path == "/v1/roles"} })
	before := r.Left()
	<-r.Context().Done()
	if left := r.Left(); before <= o.Reserve || left > o.Reserve || left < o.Reserve/2 {
		t.Errorf("%s, then %s are left, and the reserve is %s", before, left, o.Reserve)
	}

	// Of a lease that was revoked nothing is left.
	door.faults(func(*http.Request) fault { return fault{} })
	if err := r.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err = c.AcquireRole(t.Context(), "SYNC", o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Admin().RevokeRole(t.Context(), "SYNC", r.Fence()); err != nil {
		t.Fatal(err)
	}
	<-r.Context().Done()
	if left := r.Left(); left != 0 {
		t.Errorf("%s of a revoked lease are left", left)
	}
	if err := r.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// Who waits for a role waits through an outage that takes longer than a call, and keeps its place in the queue.
func TestAWaitForARoleOutlastsAnOutage(t *testing.T) {
	t.Parallel()
	node := startNode(t).server.Handler()
	door := openDoor(t, node)
	var warnings bytes.Buffer
	var mu sync.Mutex
	logged := func() int {
		mu.Lock()
		defer mu.Unlock()
		return strings.Count(warnings.String(), "waiting to acquire")
	}
	c := dial(t, client.Config{}, openDoor(t, node))
	waiting := dial(t, client.Config{Timeout: 300 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(&locked{w: &warnings, mu: &mu}, nil))}, door)
	first, err := c.AcquireRole(t.Context(), "SYNC", client.RoleOptions{Holder: "a"})
	if err != nil {
		t.Fatal(err)
	}
	next := acquired(t, waiting, "SYNC", client.RoleOptions{Holder: "b"})
	queue := func() (n int) {
		for r := range c.Admin().Roles(t.Context()) {
			n += r.Waiting
		}
		return n
	}
	until(t, "b waits", func() bool { return queue() == 1 })
	door.faults(func(*http.Request) fault { return fault{cutBefore: true} })
	until(t, "two calls have failed", func() bool { return logged() > 1 })
	door.faults(func(*http.Request) fault { return fault{} })
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := <-next
	if second == nil {
		t.FailNow()
	}
	if n := queue(); n != 0 {
		t.Errorf("%d claims wait beside that of the holder: b has come twice", n)
	}
	if err := second.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// locked is a writer for several goroutines.
type locked struct {
	w  io.Writer
	mu *sync.Mutex
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// The leases of a client are renewed together, and each for itself: one that is over is lost alone.
func TestRenewalsShareRequests(t *testing.T) {
	t.Parallel()
	const roles = 100
	node := openDoor(t, startNode(t).server.Handler())
	c := dial(t, client.Config{}, node)
	var all []*client.Role
	var acquiring []<-chan *client.Role
	for n := range roles {
		acquiring = append(acquiring, acquired(t, c, fmt.Sprintf("SHARD_%03d", n), client.RoleOptions{TTL: 2 * time.Second}))
	}
	for _, one := range acquiring {
		all = append(all, <-one)
	}
	var requests atomic.Int64
	node.faults(func(r *http.Request) fault {
		if r.URL.Path == "/v1/roles" && r.Method == http.MethodPut {
			requests.Add(1)
		}
		return fault{}
	})
	// renewed waits until every lease that there is was renewed once more.
	last := map[string]time.Time{}
	renewed := func(leases int) {
		t.Helper()
		before := maps.Clone(last)
		until(t, "every lease is renewed", func() bool {
			again := 0
			for r, err := range c.Admin().Roles(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if last[r.Role] = r.Renewed; r.Renewed.After(before[r.Role]) {
					again++
				}
			}
			return again == leases
		})
	}
	renewed(roles) // notes when each was
	before := requests.Load()
	for range 3 {
		renewed(roles)
	}
	if sent := requests.Load() - before; sent > 3*roles/4 {
		t.Errorf("%d requests renew %d leases three times", sent, roles)
	}

	if _, err := c.Admin().RevokeRole(t.Context(), all[7].Name(), all[7].Fence()); err != nil {
		t.Fatal(err)
	}
	<-all[7].Context().Done()
	renewed(roles - 1)
	for n, r := range all {
		if over := r.Context().Err() != nil; over != (n == 7) {
			t.Errorf("%s is over: %t", r.Name(), over)
		}
	}
}

// A call that is on its way when its caller stops waiting may be carried out after the release: what it claims is
// released as well.
func TestALateCallLeavesNoClaim(t *testing.T) {
	t.Parallel()
	node := startNode(t).server.Handler()
	came, released, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	slow := openDoor(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodPut:
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			r = r.WithContext(context.WithoutCancel(r.Context()))
			r.Body = io.NopCloser(bytes.NewReader(body))
			close(came)
			<-released
			defer close(done)
		case http.MethodDelete:
			defer release()
		}
		node.ServeHTTP(w, r)
	}))
	c := dial(t, client.Config{}, openDoor(t, node))
	if _, err := c.AcquireRole(t.Context(), "SYNC", client.RoleOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-came
		cancel()
	}()
	hasty := dial(t, client.Config{Timeout: time.Second}, slow)
	if _, err := hasty.AcquireRole(ctx, "SYNC", client.RoleOptions{TTL: time.Hour}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	<-done
	for r, err := range c.Admin().Roles(t.Context()) {
		if err != nil || r.Waiting != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	}
}
