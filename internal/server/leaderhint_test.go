package server

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// counted counts requests by path and node.
type counted struct {
	base http.RoundTripper
	mu   sync.Mutex
	got  map[string]int
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.got[r.URL.Path]++
	c.got[r.URL.Host]++
	c.mu.Unlock()
	return c.base.RoundTrip(r)
}

// A publisher learns who leads from the answers to its publishes, and sends no request to find out.
func TestPublishersAskNobodyWhoLeads(t *testing.T) {
	t.Parallel()
	sites := newSites(t, 3, nil)
	var endpoints []string
	leader := ""
	for _, s := range sites {
		if s.node.LeadingTerm() == 0 {
			endpoints = append(endpoints, s.url)
		} else {
			leader = s.url
		}
	}
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	c := &counted{base: base, got: map[string]int{}}
	publisher, err := client.New(client.Config{
		Endpoints:   append(endpoints, leader),
		HTTPClient:  &http.Client{Transport: c},
		MaxInFlight: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer publisher.Close(t.Context())
	for n := range 30 {
		if _, err := publisher.Publish(
			t.Context(), event.New(event.TrainingProgress, map[string]int{"epoch": n}),
		); err != nil {
			t.Fatal(err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.got["/status"]+c.got["/v1/cluster"] > 0 || c.got[strings.TrimPrefix(leader, "http://")] == 0 {
		t.Errorf("the leader is %s: %v", leader, c.got)
	}
}

// Thousands of processes renew leases: they leave the leader alone, whichever node that is by now.
func TestLeasesAreRenewedAtOtherNodesThanTheLeader(t *testing.T) {
	t.Parallel()
	sites := newSites(t, 3, nil)
	leads := func() int {
		return slices.IndexFunc(sites, func(s *site) bool { return s.node.LeadingTerm() != 0 })
	}
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	c := &counted{base: base, got: map[string]int{}}
	holder, err := client.New(client.Config{
		Endpoints:  []string{sites[0].url, sites[1].url, sites[2].url},
		ClusterID:  sites[0].node.Status().ClusterID, // which it would ask for
		HTTPClient: &http.Client{Transport: c},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close(t.Context())
	for _, node := range []int{(leads() + 1) % len(sites), (leads() + 2) % len(sites), leads()} {
		// Each node leads once. That it does, the client learns by one call at most.
		if err := sites[leads()].node.StepDown(t.Context(), fmt.Sprintf("n%d", node+1)); err != nil {
			t.Fatal(err)
		}
		leader := strings.TrimPrefix(sites[node].url, "http://")
		eventually(t, "it leads, and all know", func() bool {
			unaware := func(s *site) bool { return s.node.LeaderHTTP() != sites[node].url }
			return leads() == node && !slices.ContainsFunc(sites, unaware)
		})
		c.mu.Lock()
		before := c.got[leader]
		c.mu.Unlock()
		for range 2 {
			if _, err := holder.AcquireRole(t.Context(), uuid.NewString(), client.RoleOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		c.mu.Lock()
		if asked := c.got[leader] - before; asked > 1 {
			t.Errorf("%s leads, and was asked %d times: %v", leader, asked, c.got)
		}
		c.mu.Unlock()
	}
}

// A node may name its plain address though clients reach it through a proxy that speaks TLS. A client does not
// follow it there with its token.
func TestAClientOfTLSNeverContinuesInClear(t *testing.T) {
	t.Parallel()
	plainCalls := 0
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { plainCalls++ }))
	defer plain.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintf(w, `{"error":{"code":"no_leader","message":"this node does not lead","leader_http":%q}}`, plain.URL)
	}))
	defer secure.Close()
	c, err := client.New(client.Config{Endpoints: []string{secure.URL}, Token: sesame, HTTPClient: secure.Client()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := c.Admin().Do(ctx, "GET", "/v1/settings", nil, nil, nil); err == nil {
		t.Error("it was answered")
	}
	secure.Client().CloseIdleConnections()
	if plainCalls > 0 {
		t.Errorf("%d requests went in clear", plainCalls)
	}
}

// Removing a cursor that does not exist fails, even if another endpoint is down.
func TestRemovingWhatNeverWasIsAnError(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	for _, endpoints := range [][]string{{s.url}, {"http://127.0.0.1:1", s.url}} {
		c, err := client.New(client.Config{Endpoints: endpoints})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.DeleteCursor(t.Context(), "never-was"); err == nil {
			t.Errorf("%d endpoints: it was removed", len(endpoints))
		}
		_ = c.Close(t.Context())
	}
	a := s.do("GET", "/v1/events?follow=false", "", "Accept", "text/event-stream", "Last-Event-ID", "18446744073709551615")
	if a.status != http.StatusBadRequest {
		t.Errorf("a resume past all offsets: %d %s", a.status, a.body)
	}
}
