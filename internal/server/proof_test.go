package server

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/service"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/raftnode"
)

// stranger answers in its own way and keeps all that it was sent.
type stranger struct {
	*httptest.Server
	mu  sync.Mutex
	got strings.Builder
}

func newStranger(t *testing.T, answer http.Handler) *stranger {
	s := &stranger{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := httputil.DumpRequest(r, true)
		s.mu.Lock()
		s.got.Write(text)
		s.mu.Unlock()
		answer.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *stranger) seen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.String()
}

const sesame = "sesame-cluster-token"

// Anybody who names an address makes this node call it. What the node sends there does not reveal the token, even
// if that address passes it on to a node that has the token.
func TestAStrangerIsNeverSentTheToken(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Token = sesame })
	target, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	for name, answer := range map[string]http.Handler{
		"of no kind": http.NotFoundHandler(),
		"that is lax": http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Content-Type", "application/proto") },
		),
		"that echoes": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/proto")
			_, _ = io.Copy(w, r.Body)
		}),
		"that passes it on": &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }},
	} {
		evil := newStranger(t, answer)
		a := s.do("POST", "/v1/members", `{"id":"n9","http":"`+strings.TrimPrefix(evil.URL, "http://")+`"}`)
		if a.status == http.StatusOK {
			t.Errorf("a stranger %s was admitted: %s", name, a.body)
		}
		_, _ = s.peers.Identify(t.Context(), evil.URL, raftnode.Question{})
		_, _ = s.peers.Forward(t.Context(), evil.URL, batchOf(event.Event{Type: "A", Payload: []byte("{}")}).Encode())
		_, _ = s.peers.ReadIndex(t.Context(), evil.URL)
		if _, err := newTransport(sesame, Security{}).RoundTrip(mustRequest(t, evil.URL)); err == nil {
			t.Errorf("a stranger %s proved itself", name)
		}
		got := evil.seen()
		if got == "" || strings.Contains(got, sesame) || strings.Contains(got, "Authorization") ||
			strings.Contains(got, "/Forward") {
			t.Errorf("a stranger %s got: %q", name, got)
		}
	}
}

func mustRequest(t *testing.T, url string) *http.Request {
	r, err := http.NewRequestWithContext(t.Context(), "GET", url+"/v1/settings", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+sesame)
	return r
}

// Nodes with the same token reach each other, also by a name that is not the advertised one.
func TestNodesOfOneTokenReachEachOther(t *testing.T) {
	t.Parallel()
	sites := newSites(t, 3, func(c *Config) { c.Token = sesame })
	other := strings.Replace(sites[1].url, "127.0.0.1", "localhost", 1)
	report, err := sites[0].peers.Identify(t.Context(), other, raftnode.Question{})
	if err != nil || report.ID != "n2" {
		t.Errorf("%s: %v", report.ID, err)
	}
	for _, s := range sites {
		s.ok("POST", "/v1/events", `{"type":"A"}`)
		s.ok("GET", "/v1/groups", "") // passed on to the leader
	}
}

// A node whose address somebody else takes over has to prove itself again.
func TestAnAddressThatAnotherTookProvesNothing(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	real := newSite(t, func(c *Config) { c.Token, c.Node = sesame, &faultyNode{address: address} })
	node := &http.Server{Handler: real.server.Handler()}
	go func() { _ = node.Serve(l) }()
	p := NewPeers(sesame, Security{})
	defer p.Close()
	if _, err := p.ReadIndex(t.Context(), "http://"+address); err != nil {
		t.Fatal(err)
	}
	if err := node.Close(); err != nil {
		t.Fatal(err)
	}
	// The address was proved before; now somebody without the token has it.
	evil := newStranger(t, http.NotFoundHandler())
	if l, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { _ = http.Serve(l, evil.Config.Handler) }()
	for range 3 {
		if _, err := p.ReadIndex(t.Context(), "http://"+address); err == nil {
			t.Error("it was believed")
		}
	}
	if got := evil.seen(); strings.Contains(got, sesame) {
		t.Errorf("it got %q", got)
	}
}

func TestAChallengeTakesNoTokenAndAnswersNothingElse(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Token = sesame })
	anybody := ringlogv1connect.NewPeerServiceClient(s.http, s.url)
	asked := newChallenge()
	answer, err := anybody.Challenge(t.Context(), connect.NewRequest(asked))
	if err != nil || !provesToken(sesame, asked, answer.Msg) || provesToken("another", asked, answer.Msg) ||
		provesToken(sesame, newChallenge(), answer.Msg) {
		t.Errorf("%v %v", answer, err)
	}
	if _, err := anybody.Challenge(
		t.Context(), connect.NewRequest(&ringlogv1.ChallengeRequest{Nonce: []byte("short")}),
	); err == nil {
		t.Error("a short nonce was taken")
	}
	_, err = anybody.Identify(t.Context(), connect.NewRequest(&ringlogv1.IdentifyRequest{}))
	if e, ok := apiError(err); !ok || e.Code != api.Unauthenticated {
		t.Errorf("%v", err)
	}
}

// Programs compare reasons: another node recognizes an error whatever its message.
func TestReasonsSurviveAnotherSentence(t *testing.T) {
	t.Parallel()
	for _, refused := range append(
		raftnode.JoinRefusals(), raftnode.ErrFeatureLevel, raftnode.ErrLastVoter,
		raftnode.ErrBreaksQuorum, raftnode.ErrNoTarget,
	) {
		e := service.ToAPI(refused)
		if e.Reason == "" {
			t.Errorf("%v has no reason", refused)
		}
		e.Message = "said in other words"
		if !errors.Is(fromPeer(connectError(e)), refused) {
			t.Errorf("%v is not known again by %q", refused, e.Reason)
		}
	}
	s := newSite(t, func(c *Config) { c.Token = sesame })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	if e := s.do("POST", "/v1/members", `{"http":"`+nobody+`"}`).err(t); e.Reason != api.ReasonUnreachable {
		t.Errorf("%+v", e)
	}
}
