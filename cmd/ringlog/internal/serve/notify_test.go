package serve

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// A supervisor gets what it is sent, and signs of life as long as the node is alive.
func TestASupervisorIsNotified(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	next := func() string {
		t.Helper()
		if err := listener.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		state := make([]byte, 100)
		n, err := listener.Read(state)
		if err != nil {
			t.Fatal(err)
		}
		return string(state[:n])
	}
	env := map[string]string{"NOTIFY_SOCKET": socket, "WATCHDOG_USEC": "2000", "WATCHDOG_PID": strconv.Itoa(os.Getpid())}
	getenv := func(name string) string { return env[name] }
	s := newSupervisor(getenv, hclog.NewNullLogger())
	s.notify("READY=1")
	if got := next(); got != "READY=1" {
		t.Errorf("%q", got)
	}
	// A node that hangs in its third look sends no third sign.
	ctx, cancel := context.WithCancel(t.Context())
	looks, hang, done := 0, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		s.watch(ctx, func() {
			if looks++; looks == 3 {
				<-hang
			}
		})
	}()
	for range 2 {
		if got := next(); got != "WATCHDOG=1" {
			t.Errorf("%q", got)
		}
	}
	if err := listener.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := listener.Read(make([]byte, 100)); err == nil {
		t.Errorf("%d bytes of a node that hangs", n)
	}
	cancel()
	close(hang)
	<-done

	// Whoever was not asked for signs of life, or not this process, sends none and returns at once.
	env["WATCHDOG_PID"] = "1"
	newSupervisor(getenv, hclog.NewNullLogger()).watch(t.Context(), func() { t.Error("looked") })
	newSupervisor(func(string) string { return "" }, hclog.NewNullLogger()).notify("READY=1")
}
