package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/internal/frame"
)

// trainingPayload looks like the platform's and differs each time.
func trainingPayload(n int64) []byte {
	const form = `{"config_key": "hex8_%dp", "elo": %d.25, "epoch": %d, "loss": 0.%06d, ` +
		`"model_path": "/models/canonical_hex8_%d.pth", "node": "gpu-node-%d", "run": "%d", "samples": %d}`
	return fmt.Appendf(nil, form, n%4, 1500+n%300, n%50, n%1_000_000, n, n%32, n, n*64)
}

// BenchmarkPublish sends batches over both protocols, to one voter and to three.
func BenchmarkPublish(b *testing.B) {
	for _, voters := range []int{1, 3} {
		sites := newSites(b, voters, nil)
		leader, _ := leading(b, sites)
		for _, batch := range []int{1, 256, 1000} {
			b.Run(
				fmt.Sprintf("connect/voters=%d/batch=%d", voters, batch),
				func(b *testing.B) { benchConnect(b, leader, leader.http, batch) },
			)
			b.Run(
				fmt.Sprintf("connect-h2c/voters=%d/batch=%d", voters, batch),
				func(b *testing.B) { benchConnect(b, leader, h2c(b), batch) },
			)
			b.Run(fmt.Sprintf("json/voters=%d/batch=%d", voters, batch), func(b *testing.B) { benchJSON(b, leader, batch) })
		}
	}
}

func reportEvents(b *testing.B, batch int) {
	b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "events/s")
}

func benchConnect(b *testing.B, s *site, httpClient *http.Client, batch int) {
	c := ringlogv1connect.NewLogServiceClient(httpClient, s.url)
	var number atomic.Int64
	run := uuid.NewString()
	b.SetParallelism(4)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			request := &ringlogv1.PublishRequest{Events: make([]*ringlogv1.Event, batch)}
			for i := range request.Events {
				n := number.Add(1)
				request.Events[i] = &ringlogv1.Event{
					Type:          "TRAINING_COMPLETED",
					Payload:       trainingPayload(n),
					Source:        "trainer",
					Key:           "hex8",
					CorrelationId: run,
				}
			}
			if _, err := c.Publish(b.Context(), connect.NewRequest(request)); err != nil {
				b.Error(err)
				return
			}
		}
	})
	reportEvents(b, batch)
}

func benchJSON(b *testing.B, s *site, batch int) {
	var number atomic.Int64
	run := uuid.NewString()
	b.SetParallelism(4)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			var body strings.Builder
			for range batch {
				fmt.Fprintf(
					&body,
					`{"type":"TRAINING_COMPLETED","payload":%s,"source":"trainer","correlation_id":%q}`+"\n",
					trainingPayload(number.Add(1)), run,
				)
			}
			if a := s.do("POST", "/v1/events", body.String(), "Content-Type", contentNDJSON); a.status != 200 {
				b.Error(a.body)
				return
			}
		}
	})
	reportEvents(b, batch)
}

// BenchmarkRenewRoles renews 10 000 leases at the leader of three voters, by how many of them a request has. core-% is the
// share of one core that all three, and the callers, take while leases of 15 s are renewed three times within that.
func BenchmarkRenewRoles(b *testing.B) {
	const roles, callers, every = 10_000, 16, 5 * time.Second
	sites := newSites(b, 3, nil)
	leader, _ := leading(b, sites)
	leader.atLevel(frame.LevelRoles)
	// share has callers do all numbers below count.
	share := func(count int, do func(n int)) {
		var next atomic.Int64
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for n := int(next.Add(1)) - 1; n < count; n = int(next.Add(1)) - 1 {
					do(n)
				}
			})
		}
		all.Wait()
	}
	leases := make([]api.RoleLease, roles)
	share(roles, func(n int) {
		name := fmt.Sprintf("ROLE_%05d", n)
		leases[n] = api.RoleLease{Role: name, Fence: leader.claimRole(name, fmt.Sprintf("gpu-%d:4711", n%300), "").Fence}
	})
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for _, perRequest := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("leases=%d", perRequest), func(b *testing.B) {
			var bodies []string
			for batch := range slices.Chunk(leases, perRequest) {
				body, err := json.Marshal(api.RoleRenewal{Leases: batch})
				if err != nil {
					b.Fatal(err)
				}
				bodies = append(bodies, string(body))
			}
			before := used()
			for b.Loop() {
				share(len(bodies), func(n int) {
					if a := leader.do("PUT", "/v1/roles", bodies[n]); a.status != 200 || !strings.Contains(a.body, `"lost":[]`) {
						b.Error(a.body)
					}
				})
			}
			b.ReportMetric(100*float64(used()-before)/float64(b.N)/float64(every), "core-%")
		})
	}
}

// BenchmarkTail reads a log of a hundred thousand events.
func BenchmarkTail(b *testing.B) {
	const events = 100_000
	s := newSite(b, nil)
	c := ringlogv1connect.NewLogServiceClient(h2c(b), s.url)
	for i := range events / 1000 {
		request := &ringlogv1.PublishRequest{}
		for n := range 1000 {
			request.Events = append(request.Events, &ringlogv1.Event{
				Type:    "TRAINING_COMPLETED",
				Payload: trainingPayload(int64(i*1000 + n)),
				Source:  "trainer",
			})
		}
		if _, err := c.Publish(b.Context(), connect.NewRequest(request)); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("connect", func(b *testing.B) {
		for b.Loop() {
			stream, err := c.Tail(b.Context(), connect.NewRequest(&ringlogv1.TailRequest{}))
			if err != nil {
				b.Fatal(err)
			}
			got := 0
			for stream.Receive() {
				for _, run := range stream.Msg().Runs {
					got += len(run.Events)
				}
			}
			if stream.Close(); got != events+1 {
				b.Fatal(got, stream.Err())
			}
		}
		reportEvents(b, events)
	})
	b.Run("ndjson", func(b *testing.B) {
		for b.Loop() {
			if a := s.do("GET", "/v1/events", ""); strings.Count(a.body, "\n") != events+2 {
				b.Fatal(len(a.body))
			}
		}
		reportEvents(b, events)
	})
}
