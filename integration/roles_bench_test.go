package integration

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringrift/ringlog/client"
)

// BenchmarkRenewRoles has 10 000 roles with a TTL of 15 s held on a cluster of three nodes, by how many of them each
// client has. core-% is the share of one core that the leader takes to renew them; with roles=0 there are none.
func BenchmarkRenewRoles(b *testing.B) {
	const roles, ttl = 10_000, 15 * time.Second
	for _, each := range []int{0, 1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("roles=%d", each), func(b *testing.B) {
			c := newCluster(b, b.TempDir(), 3).startAll()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var callers sync.WaitGroup
			defer callers.Wait()
			var held sync.WaitGroup
			turns := make(chan struct{}, 64) // to acquire
			for n := 0; each > 0 && n < roles/each; n++ {
				held.Add(1)
				callers.Go(func() { holdRoles(ctx, b, c, n, each, turns, sync.OnceFunc(held.Done)) })
			}
			held.Wait()
			time.Sleep(ttl) // until what the acquisitions have left to do is done
			leader := c.leader()
			before, began := leader.cpu(), time.Now()
			for b.Loop() {
				time.Sleep(ttl)
			}
			b.ReportMetric(100*float64(leader.cpu()-before)/float64(time.Since(began)), "core-%")
			cancel()
		})
	}
}

// holdRoles holds roles until ctx is done, as client n from a host of its own. It calls held once it has them all, or
// has failed.
func holdRoles(
	ctx context.Context, b *testing.B, c *cluster, n, roles int, turns chan struct{}, held func(),
) {
	defer held()
	// Nodes bound the connections of one address.
	host := &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+n%64))}
	transport := &http.Transport{DialContext: (&net.Dialer{LocalAddr: host}).DialContext}
	defer transport.CloseIdleConnections()
	own, err := client.New(client.Config{Endpoints: c.endpoints(), HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		b.Error(err)
		return
	}
	defer func() { _ = own.Close(context.Background()) }()
	for i := range roles {
		turns <- struct{}{}
		role, err := own.AcquireRole(ctx, fmt.Sprintf("ROLE_%05d", n*roles+i), client.RoleOptions{})
		<-turns
		if err != nil {
			b.Error(err)
			return
		}
		defer func() {
			if role.Context().Err() != nil {
				b.Errorf("%s: %v", role.Name(), context.Cause(role.Context()))
			}
		}()
	}
	held()
	<-ctx.Done()
}

// cpu returns the time of a processor that the process has taken.
func (p *process) cpu() time.Duration {
	p.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	ticks := 0
	for _, field := range fields[11:13] { // of user and system
		n, err := strconv.Atoi(field)
		if err != nil {
			p.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
