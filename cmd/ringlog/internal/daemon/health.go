package daemon

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ringrift/ringlog/internal/procgroup"
)

// maxMisses is how many checks in a row fail before the command is restarted.
const maxMisses = 3

// watchReady sends one value once the command is ready: nil, or why it is not.
// The end of ctx ends it, as it does watchHealth.
func (d *daemon) watchReady(ctx context.Context) <-chan error {
	found := make(chan error, 1)
	if d.AwaitReady == nil {
		found <- nil
		return found
	}
	// The pid is copied, as the goroutine may outlast the run.
	p := Process{PID: d.pid, Check: d.check}
	go func() {
		ctx, cancel := context.WithTimeoutCause(ctx, d.ReadyTimeout, fmt.Errorf("not ready within %s", d.ReadyTimeout))
		defer cancel()
		err := d.AwaitReady(ctx, p)
		// Why the time is over comes first, then what the last check has found.
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		found <- err
	}()
	return found
}

// watchHealth checks the command's health each HealthInterval, and sends the last error once maxMisses checks in a row
// have failed. The end of ctx ends it. Nobody waits for a check that is under way then: one that waits for a disk
// cannot be killed, and must not keep the command running.
func (d *daemon) watchHealth(ctx context.Context) <-chan error {
	found := make(chan error, 1)
	if d.Health == "" {
		return found
	}
	go func() {
		tick := time.NewTicker(d.HealthInterval)
		defer tick.Stop()
		for misses := 0; misses < maxMisses; {
			// The first check is one interval after the command is ready.
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			err := d.checkHealth(ctx)
			// Only checks in a row count.
			if err == nil {
				misses = 0
				continue
			}
			misses++
			if misses == maxMisses {
				found <- err
			}
		}
	}()
	return found
}

// IsURL reports whether a check of health is a URL, and no shell command.
func IsURL(health string) bool {
	return strings.HasPrefix(health, "http://") || strings.HasPrefix(health, "https://")
}

// CheckURL returns an error about a check that begins as a URL and is none.
func CheckURL(check string) error {
	if u, err := url.Parse(check); IsURL(check) && (err != nil || u.Host == "") {
		return fmt.Errorf("%q is not a URL such as http://127.0.0.1:8080/healthz", check)
	}
	return nil
}

// checkHealth checks once, within HealthInterval. nil is healthy.
func (d *daemon) checkHealth(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.HealthInterval)
	defer cancel()
	err := d.check(ctx, d.Health)
	// The error of a shell command is that of the context alone. That of a URL names the request.
	if ctx.Err() != nil && !IsURL(d.Health) {
		err = fmt.Errorf("%q takes longer than %s", d.Health, d.HealthInterval)
	}
	return err
}

// check runs a shell command or asks a URL, until ctx is done.
func (d *daemon) check(ctx context.Context, check string) error {
	if IsURL(check) {
		return getHealth(ctx, check)
	}
	// A process group of its own, so that the check can be killed together with what it has started.
	g, err := procgroup.Start(d.command("/bin/sh", "sh", "-c", check), true)
	if err != nil {
		return err
	}
	// Whichever comes first. A check that ctx has ended is killed below, and its exit code does not count.
	select {
	case <-g.Ended():
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	g.Kill() // what it has left in the background, too
	if err == nil {
		err = g.Wait()
	}
	return err
}

// healthClient follows no redirect: the answer of the daemon itself counts.
var healthClient = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
	return http.ErrUseLastResponse
}}

// getHealth asks a URL, which answers 2xx if the command is healthy.
func getHealth(ctx context.Context, where string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err != nil {
		return err
	}
	resp, err := healthClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	// The body says nothing that would count.
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s answers %s", where, resp.Status)
	}
	return nil
}
