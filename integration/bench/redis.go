package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/ringrift/ringlog/cmd/ringlog/devcluster"
	"github.com/ringrift/ringlog/event"
)

// redisSystem is Redis with a primary, two replicas and one stream. It is here for its client for Python: the
// other works do not measure it.
type redisSystem struct{}

const redisServer = "redis-server"

func (redisSystem) name() string { return "redis" }

func (redisSystem) settings() []string {
	return []string{
		"a primary and two replicas, appendonly with appendfsync always; an acknowledgement says that the primary " +
			"has synced the event, and that a replica has received it (WAIT 1)",
		"one stream without a limit, no dedup, and no failover: this is less than the others do",
	}
}

// sizes is empty: only works of clients for Python use Redis.
func (redisSystem) sizes(bool) sizes { return sizes{} }

// start runs the primary and its replicas, and returns once both replicas answer.
// The folder has the logs and the append-only files of all three servers.
func (redisSystem) start(ctx context.Context, dir string) (_ session, err error) {
	if _, err := exec.LookPath(redisServer); err != nil {
		return nil, fmt.Errorf("%w: install Redis, or leave it out with --systems", err)
	}
	ports, err := devcluster.FreePorts(3)
	if err != nil {
		return nil, err
	}
	r := &redisSession{address: net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))}
	// A start that fails ends the servers that it has started.
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close(ctx))
		}
	}()
	for i, port := range ports {
		// The append-only files of the three share a folder under different names. --save "" turns snapshots
		// off.
		name := "n" + strconv.Itoa(i+1)
		args := []string{"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", dir, "--save", "",
			"--appendonly", "yes", "--appendfsync", "always", "--appenddirname", name}
		if i > 0 {
			args = append(args, "--replicaof", "127.0.0.1 "+strconv.Itoa(ports[0]))
		}
		c, err := spawn(dir, name, redisServer, args...)
		if err != nil {
			return nil, err
		}
		r.servers = append(r.servers, c)
	}
	// WAIT answers with how many replicas have acknowledged, here after at most 1 ms.
	// A replica may be loading yet; WAIT counts it once it follows the primary.
	return r, r.servers.until(ctx, "the replicas of Redis", func(ctx context.Context) error {
		n, err := r.ask(ctx, "WAIT 2 1")
		if err == nil && n < 2 {
			err = fmt.Errorf("%d replicas answer, want 2", n)
		}
		return err
	})
}

// redisSession is a primary and two replicas.
type redisSession struct {
	servers children
	address string
}

// ask sends a command to the primary and returns its answer, a number.
// A client library is not needed: a command is a line, and the answers to those used here are ":NUMBER".
// Each question has its own connection: they are few, and none is asked while something is measured.
func (r *redisSession) ask(ctx context.Context, command string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", r.address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	// ctx has a deadline, from above.
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return 0, err
	}
	if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
		return 0, err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return 0, err
	}
	// An error of Redis begins with "-" and is no number.
	n, err := strconv.Atoi(strings.TrimPrefix(strings.TrimSpace(answer), ":"))
	if err != nil {
		return 0, fmt.Errorf("%s: Redis answered %q", command, answer)
	}
	return n, nil
}

func (r *redisSession) pythonEndpoints() []string { return []string{r.address} }

func (r *redisSession) pythonWays() map[string][]pythonWay {
	return map[string][]pythonWay{
		"batch": {{"pipeline of 256 XADD and WAIT 1", "redis", "pipeline"}},
		"one":   {{"XADD and WAIT 1", "redis", "xadd"}},
		"read":  {{"XREADGROUP and XACK of 1000", "redis", "xreadgroup"}},
	}
}

func (r *redisSession) publishWays() []string { return nil }

func (r *redisSession) publish(context.Context, string, *source, *quota) (tally, error) {
	return tally{}, errNotOffered
}

func (r *redisSession) publishOne(context.Context, event.Event) error { return errNotOffered }

func (r *redisSession) stored(ctx context.Context) (int, error) { return r.ask(ctx, "XLEN events") }

func (r *redisSession) leaderPID(context.Context) (int, error) { return 0, errNotOffered }

func (r *redisSession) pids() []int { return r.servers.pids() }

func (r *redisSession) close(context.Context) error { return r.servers.stop() }
