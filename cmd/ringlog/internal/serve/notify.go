package serve

import (
	"context"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
)

// supervisor is who started the process, if it wants to know how the process is: systemd, by sd_notify(3). Its unit has
// Type=notify, and WatchdogSec if it restarts a node that hangs.
type supervisor struct {
	socket string        // "" is nobody
	within time.Duration // in which it wants a sign of life; 0 is never
	logger hclog.Logger
}

// newSupervisor reads what systemd has put into the environment.
func newSupervisor(getenv func(string) string, logger hclog.Logger) supervisor {
	s := supervisor{socket: getenv("NOTIFY_SOCKET"), logger: logger}
	// The variables may be inherited from a process that they were meant for.
	if pid := getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return s
	}
	if us, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64); err == nil && us > 0 {
		s.within = time.Duration(us) * time.Microsecond
	}
	return s
}

// notify sends a state, such as READY=1. An error is logged alone: the node runs without its supervisor, too.
func (s supervisor) notify(state string) {
	if s.socket == "" {
		return
	}
	// A name that begins with @ is in the abstract namespace, which package net knows.
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.socket, Net: "unixgram"})
	if err == nil {
		_, err = conn.Write([]byte(state))
		_ = conn.Close()
	}
	if err != nil {
		s.logger.Warn("the supervisor was not notified", "state", state, "error", err)
	}
}

// watch sends signs of life, twice in the time in which one is wanted, as long as alive returns. A node that hangs in
// alive sends none, and is restarted.
func (s supervisor) watch(ctx context.Context, alive func()) {
	if s.socket == "" || s.within == 0 {
		return
	}
	tick := time.NewTicker(s.within / 2)
	defer tick.Stop()
	for {
		// First whether the node is alive, then the sign of it.
		alive()
		s.notify("WATCHDOG=1")
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
