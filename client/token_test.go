package client_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/client/internal/calls"
	"github.com/ringrift/ringlog/internal/server"
)

// A token that is replaced in its file is used once the nodes want it, by requests and by readers that are open.
func TestATokenThatIsReplacedInItsFileIsUsed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var wanted atomic.Pointer[string]
	want := func(token string) { wanted.Store(&token) }
	d := openDoor(t, startNode(t).server.Handler())
	d.faults(func(r *http.Request) fault {
		if r.URL.Path != "/healthz" && r.Header.Get("Authorization") != "Bearer "+*wanted.Load() {
			return fault{answer: &api.Error{Code: api.Unauthenticated, Message: "a wrong token"}}
		}
		return fault{}
	})
	write("first\n")
	want("first")
	c := dial(t, client.Config{TokenFile: file}, d)
	publish := func(n int) error {
		_, err := c.Publish(t.Context(), numbered(n))
		return err
	}
	if err := publish(1); err != nil {
		t.Fatal(err)
	}

	// The file has the second one before the nodes do.
	write("second\n")
	if err := publish(2); err != nil {
		t.Errorf("with the token that the nodes have: %v", err)
	}
	want("second")
	if err := publish(3); err != nil {
		t.Errorf("with the token that the nodes have now: %v", err)
	}

	// A reader, a plain call and one of a single node find another one, too.
	reads := map[string]func() error{
		"tail": func() error {
			for _, err := range c.Tail(t.Context(), client.TailOptions{NoFollow: true}) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"get":    func() error { _, err := c.Get(t.Context(), 1); return err },
		"status": func() error { _, err := c.Admin().StatusOf(t.Context(), d.url); return err },
	}
	for name, read := range reads {
		write(name)
		want(name)
		if err := read(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	// A file that is being written, or has a wrong token, has no other one.
	for _, content := range []string{"", "wrong"} {
		write(content)
		want("unknown to the file")
		if err := publish(4); !calls.IsAnswer(err, api.Unauthenticated) {
			t.Errorf("a file with %q: %v", content, err)
		}
	}
	write("")
	if _, err := client.New(client.Config{Endpoints: []string{d.url}, TokenFile: file}); err == nil ||
		!strings.Contains(err.Error(), "TokenFile: "+file+" is empty") {
		t.Errorf("an empty file: %v", err)
	}
}

// A Go program with a wrong token learns where one can be given, whichever way it has called.
func TestARefusedTokenNamesTheFieldsOfConfig(t *testing.T) {
	t.Parallel()
	d := openDoor(t, startNode(t, func(c *server.Config) { c.Token = "right" }).server.Handler())
	c := dial(t, client.Config{Token: "wrong"}, d)
	var tailing error
	for _, err := range c.Tail(t.Context(), client.TailOptions{NoFollow: true}) {
		tailing = err
	}
	_, publishing := c.Publish(t.Context(), numbered(1))
	_, getting := c.Get(t.Context(), 1)
	_, asking := c.Admin().StatusOf(t.Context(), d.url)
	for name, err := range map[string]error{"publish": publishing, "get": getting, "status": asking, "tail": tailing} {
		answer, ok := errors.AsType[*api.Error](err)
		if !ok || answer.Remedy != "set the client's Config.Token, or name a file that has the token in Config.TokenFile" {
			t.Errorf("%s: %v, remedy %q", name, err, answer.Remedy)
		}
	}
}
