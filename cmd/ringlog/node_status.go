package main

import (
	"context"
	"encoding/json"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// nodeStatus is GET /status.
// It is a type of its own for the methods that a sweep needs.
type nodeStatus struct{ api.Status }

// statusOf asks one node for its status.
func statusOf(ctx context.Context, sh *shell.Shell, url string) (s nodeStatus, err error) {
	return s, sh.Ask(ctx, url, "/status", &s)
}

// anyStatus returns the status of a node that knows a leader, or of one that answers. raw is its text,
// which holds more than this program reads.
func anyStatus(ctx context.Context, sh *shell.Shell) (s nodeStatus, raw json.RawMessage, err error) {
	// The text is kept: with -o json it is printed as it came.
	raw, _, err = sh.AnyStatus(ctx)
	if err != nil {
		return s, nil, err
	}
	return s, raw, json.Unmarshal(raw, &s)
}
