package daemon

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ringrift/ringlog/internal/procgroup"
)

// maxMisses is how many checks in a row fail before the command is restarted.
const maxMisses = 3

// watchHealth checks the command's health each HealthInterval, and sends the last error once maxMisses checks in a row
// have failed. stop ends it, and does not wait for a check that is under way: one that waits for a disk cannot be
// killed, and must not keep the command running.
func (d *daemon) watchHealth(ctx context.Context) (sick <-chan error, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	found := make(chan error, 1)
	if d.Health == "" {
		return found, cancel
	}
	go func() {
		tick := time.NewTicker(d.HealthInterval)
		defer tick.Stop()
		for misses := 0; misses < maxMisses; {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			err := d.checkHealth(ctx)
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
	return found, cancel
}

// IsURL reports whether a check of health is a URL, and no shell command.
func IsURL(health string) bool {
	return strings.HasPrefix(health, "http://") || strings.HasPrefix(health, "https://")
}

// checkHealth checks once, within HealthInterval. nil is healthy.
func (d *daemon) checkHealth(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.HealthInterval)
	defer cancel()
	if IsURL(d.Health) {
		return getHealth(ctx, d.Health)
	}
	g, err := procgroup.Start(d.command("/bin/sh", "sh", "-c", d.Health), true)
	if err != nil {
		return err
	}
	select {
	case <-g.Ended():
	case <-ctx.Done():
		err = fmt.Errorf("%q takes longer than %s", d.Health, d.HealthInterval)
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
func getHealth(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := healthClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return nil
}
