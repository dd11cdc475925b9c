package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// hook: hook STATUS... starts a receiver of webhooks, at $HOOK, that answers with each
// status in turn and then with the last, and writes what it gets to hook.log.
func hook(ts *testscript.TestScript, _ bool, args []string) {
	log, err := os.OpenFile(ts.MkAbs("hook.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	ts.Check(err)
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_ = r.Header.Write(log)
		_, _ = io.Copy(log, r.Body)
		_, _ = fmt.Fprintln(log)
		status, err := strconv.Atoi(args[0])
		if err != nil {
			status = http.StatusNotImplemented
		}
		if len(args) > 1 {
			args = args[1:]
		}
		http.Error(w, "no good", status)
	}))
	ts.Defer(func() {
		server.Close()
		_ = log.Close()
	})
	ts.Setenv("HOOK", server.URL)
}
