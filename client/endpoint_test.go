package client_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/raftnode"
)

// An endpoint that can never serve a request is refused, or reported, by its address and with what to do.
func TestAWrongEndpointIsNamed(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	d := openDoor(t, n.server.Handler())
	for _, path := range []string{"/v1", "/v1/", "/behind/a/proxy/v1"} {
		_, err := client.New(client.Config{Endpoints: []string{d.url + path}})
		if err == nil || !strings.Contains(err.Error(), d.url+path+`": leave /v1 out`) {
			t.Errorf("%s: %v", path, err)
		}
	}

	// A path may be that of a proxy, so the first request shows that it is not.
	c := dial(t, client.Config{Endpoints: []string{d.url + "/elsewhere"}})
	_, err := c.Publish(t.Context(), numbered(1))
	if answer, ok := errors.AsType[*api.Error](err); !ok || answer.Code != api.NotImplemented || answer.Message == "" ||
		!strings.Contains(answer.Remedy, "no path unless a proxy") {
		t.Errorf("%+v", err)
	}
}

// A web server of another kind is reported at once, and not asked again until the time is over.
func TestAForeignWebServerIsNoEndpoint(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusNotImplemented, http.StatusMethodNotAllowed} {
		asked := atomic.Int64{}
		foreign := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			http.Error(w, "unsupported method", status) // a page of text
		}))
		defer foreign.Close()
		c := dial(t, client.Config{Endpoints: []string{foreign.URL}, Timeout: time.Minute})
		_, publishing := c.Publish(t.Context(), numbered(1))
		_, getting := c.Get(t.Context(), 1)
		for name, err := range map[string]error{"publish": publishing, "get": getting} {
			answer, ok := errors.AsType[*api.Error](err)
			if !ok || answer.Code != api.NotImplemented || !strings.Contains(answer.Remedy, "is a ringlog node") {
				t.Errorf("%d: %s: %v", status, name, err)
			}
		}
		if n := asked.Load(); n > 10 {
			t.Errorf("%d: asked %d times", status, n)
		}
	}
}

// The port of raft is no endpoint: a call says so at once, and where others are given they serve it.
func TestTheRaftPortIsNoEndpoint(t *testing.T) {
	t.Parallel()
	n := startNode(t)
	raft := "http://" + n.raft.Report(raftnode.Question{}).RaftAddr
	c := dial(t, client.Config{Endpoints: []string{raft}, Timeout: time.Minute})
	began := time.Now()
	_, publishing := c.Publish(t.Context(), numbered(1))
	_, getting := c.Get(t.Context(), 1)
	_, asking := c.Admin().Status(t.Context())
	for name, err := range map[string]error{"publish": publishing, "get": getting, "status": asking} {
		answer, ok := errors.AsType[*api.Error](err)
		if !ok || answer.Reason != "raft_port" || !strings.Contains(answer.Remedy, "--http") ||
			!strings.Contains(err.Error(), "this is the raft port") || strings.Contains(err.Error(), "nil") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("reported after %s: no other node could have answered", took)
	}

	// With another endpoint the wrong one is a warning.
	proxy := httptest.NewServer(http.Handler(n.server.Handler()))
	t.Cleanup(proxy.Close)
	var warned []event.Warning
	c = dial(t, client.Config{Endpoints: []string{raft, proxy.URL},
		OnWarning: func(w event.Warning) { warned = append(warned, w) }})
	if _, err := c.Publish(t.Context(), numbered(1)); err != nil {
		t.Error(err)
	}
	if len(warned) != 1 || !strings.Contains(warned[0].Message, raft) ||
		!strings.Contains(warned[0].Message, "raft port") {
		t.Errorf("warned of %+v", warned)
	}
}
