package integration

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
)

// BenchmarkRenewRoles has 10 000 leases of 15 s renewed every 5 s, over the three nodes of a cluster, by how many a
// request has. core-% is the share of one core that the leader takes; leases=0 is a cluster without any.
func BenchmarkRenewRoles(b *testing.B) {
	const roles, every = 10_000, 5 * time.Second
	c := newCluster(b, b.TempDir(), 3).startAll()
	leases := make([]api.RoleLease, roles)
	var all sync.WaitGroup
	clients := make([]*client.Client, len(c.nodes)) // of one node each
	for i, p := range c.nodes {
		clients[i] = c.client(p.url())
	}
	do := func(n int, path string, body, answer any) {
		err := clients[n%len(clients)].Admin().Do(context.Background(), http.MethodPut, path, nil, body, answer)
		if err != nil {
			b.Error(err)
		}
	}
	for caller := range 64 {
		all.Go(func() {
			for n := caller; n < roles; n += 64 {
				name := fmt.Sprintf("ROLE_%05d", n)
				var got api.RoleAcquired
				do(n, "/v1/roles/"+name, api.RoleAcquire{Holder: "gpu:4711", Session: name, TTL: (3 * every).String()}, &got)
				leases[n] = api.RoleLease{Role: name, Fence: got.Fence}
			}
		})
	}
	all.Wait()
	for _, each := range []int{0, 1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("leases=%d", each), func(b *testing.B) {
			leader := c.leader()
			before, began := leader.cpu(), time.Now()
			for b.Loop() {
				// Each request has its moment in the cycle.
				for n := 0; each > 0 && n < roles/each; n++ {
					all.Go(func() {
						time.Sleep(every * time.Duration(n) / time.Duration(roles/each))
						var got api.RoleRenewed
						do(n, "/v1/roles", api.RoleRenewal{Leases: leases[n*each : (n+1)*each]}, &got)
					})
				}
				time.Sleep(every)
				all.Wait()
			}
			b.ReportMetric(100*float64(leader.cpu()-before)/float64(time.Since(began)), "core-%")
		})
	}
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
