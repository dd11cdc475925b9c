package server

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
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
