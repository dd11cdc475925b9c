package sinks

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// Nothing reaches this host or its link, in whatever form the address is written, and the error says how to allow it.
// A literal is refused before anything is posted.
func TestLocalReceiversAreRefused(t *testing.T) {
	t.Parallel()
	for _, host := range []string{
		"127.0.0.1", "127.9.9.9", "0.0.0.0", "0.1.2.3", "[::1]", "[::]", "169.254.169.254", "[fe80::1]", "[fe80::1%25eth0]",
		"224.0.0.1", "[ff02::1]", "[ff01::1]", "localhost", "LOCALHOST.", "a.localhost",
		"[::ffff:127.0.0.1]", "[::ffff:a9fe:a9fe]", "[::127.0.0.1]", "[64:ff9b::127.0.0.1]",
		"[64:ff9b::a9fe:a9fe]", "[2002:7f00:1::]", "[2002:a9fe:a9fe::1]",
		"[64:ff9b:1:7f00:0:100::]", "[64:ff9b:1:0:7f:0:100::]", "[64:ff9b:1::7f00:1]", "[2001:0:c000:201::80ff:fffe]",
	} {
		_, err := NewWebhook(WebhookOptions{URL: "http://" + host + ":80/"})
		if local, is := errors.AsType[*LocalError](err); !is || !strings.Contains(err.Error(), local.Host) ||
			!strings.Contains(err.Error(), "--allow-local") {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, host := range []string{"192.0.2.1", "10.0.0.1", "[2001:db8::1]", "[64:ff9b::c000:201]", "[2002:c000:201::]",
		"[64:ff9b:1::c000:201]", "[2001:0:c000:201::3fff:fdfe]",
		"[::ffff:192.0.2.1]", "hooks.example.org", "localhost.example.org"} {
		if _, err := NewWebhook(WebhookOptions{URL: "http://" + host + "/"}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// What a name means is judged when it is dialled: one that resolves to this host is refused there, and nothing
// connects. With the allowance it is posted to.
func TestAReceiverIsJudgedWhenItIsDialled(t *testing.T) {
	t.Parallel()
	var connected, posted atomic.Int32
	receiver := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { posted.Add(1) }))
	receiver.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connected.Add(1)
		}
	}
	receiver.Start()
	t.Cleanup(receiver.Close)
	// The name is not looked up here: what it resolved to is put in its place.
	post := func(o WebhookOptions, dialled string) error {
		o.URL = "http://hooks.example.org/hook"
		w, err := NewWebhook(o)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		w.o.URL = dialled
		return w.Handle(t.Context(), client.Delivery{Event: event.New("A", nil)})
	}

	err := post(WebhookOptions{}, receiver.URL)
	if local, is := errors.AsType[*LocalError](err); !is || local.Host != "127.0.0.1" || connected.Load() != 0 {
		t.Errorf("%v, after %d connections", err, connected.Load())
	}
	if err := post(WebhookOptions{AllowLocal: true}, receiver.URL); err != nil || posted.Load() != 1 {
		t.Errorf("%v, after %d posts", err, posted.Load())
	}

	// A proxy may be anywhere: whoever configures it means it. It gets the whole address of the receiver.
	var asked string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.RequestURI
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	t.Cleanup(proxy.Close)
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := post(WebhookOptions{Proxy: at}, "http://hooks.example.org/hook"); err != nil ||
		asked != "http://hooks.example.org/hook" {
		t.Errorf("%v, the proxy was asked for %q", err, asked)
	}
}
