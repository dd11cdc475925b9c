package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringrift/ringlog/api"
)

// Ask gets a route of one certain node, whoever leads.
// base is a URL without a slash at the end; path begins with one.
func (sh *Shell) Ask(ctx context.Context, base, path string, out any) error {
	// The answer of a node is small, so it is decoded as it comes.
	body, err := sh.Open(ctx, base, path)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(out); err != nil {
		return fmt.Errorf("%s%s: %w", base, path, err)
	}
	return nil
}

// Open gets a route of one node as a stream, which the caller closes. A token that is refused is read from its file
// again: a verb that runs for long outlives a change of it.
func (sh *Shell) Open(ctx context.Context, base, path string) (io.ReadCloser, error) {
	body, err := sh.open(ctx, base, path, sh.Token)
	var answer *api.Error
	if sh.Token == "" || !errors.As(err, &answer) || answer.Code != api.Unauthenticated {
		return body, err
	}
	renewed, failed := ReadToken(sh.TokenFile, sh.Token)
	// Without another token in the file the refusal stands.
	if failed != nil || renewed == sh.Token {
		return nil, err
	}
	return sh.open(ctx, base, path, renewed)
}

// open gets a route of one node with a token, "" for none.
func (sh *Shell) open(ctx context.Context, base, path, token string) (io.ReadCloser, error) {
	// This asks one node itself: the client would follow the leader.
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return nil, err
	}
	// The same headers as the client sends, so a node of another cluster refuses.
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if sh.clusterID != "" {
		req.Header.Set(api.ClusterHeader, sh.clusterID)
	}
	// ctx alone bounds it, since a backup takes as long as it takes.
	secure, err := sh.TLS()
	if err != nil {
		return nil, err
	}
	// Each question is one connection, as a sweep asks each node once.
	asking := &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure, DisableKeepAlives: true,
	}}
	resp, err := asking.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	// A node says what is wrong in JSON; a proxy in front of it may not.
	var answer struct {
		Error *api.Error `json:"error"`
	}
	// No error of a node is longer than 1 MiB.
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&answer); err != nil || answer.Error == nil {
		return nil, fmt.Errorf("%s%s: %s, which no node answered: check the address, and whether it needs https",
			base, path, resp.Status)
	}
	return nil, fmt.Errorf("%s: %w", base, answer.Error)
}

// MoreTelling returns which of two errors of nodes says more: whatever was answered says more than that nothing was.
// Otherwise it is the first. nil is no error.
func MoreTelling(first, next error) error {
	if first == nil || (next != nil && errors.Is(first, ErrUnreachable) && !errors.Is(next, ErrUnreachable)) {
		return next
	}
	return first
}

// NodeWithin bounds how long one node may take to answer if several are asked.
const NodeWithin = 3 * time.Second

// clustersWithin bounds how long a command waits for its endpoints to name their clusters.
const clustersWithin = 500 * time.Millisecond

// checkClusters refuses endpoints of more than one cluster: the command could go to any of them. Nothing is
// asked where the cluster is given or there is one endpoint, and endpoints that do not answer are left out.
func (sh *Shell) checkClusters(ctx context.Context) error {
	if len(sh.Endpoints) < 2 || sh.clusterID != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, clustersWithin)
	defer cancel()
	// Without the token: an endpoint may be of a foreign cluster.
	stranger := *sh
	stranger.Token = ""
	// All endpoints are asked at once: the wait is that for the slowest, and bounded.
	var asking sync.WaitGroup
	clusters := make([]string, len(sh.Endpoints))
	for i, e := range sh.Endpoints {
		asking.Go(func() {
			var health struct {
				Cluster string `json:"cluster_id"`
			}
			if stranger.Ask(ctx, e, "/healthz", &health) == nil {
				clusters[i] = health.Cluster
			}
		})
	}
	asking.Wait()
	// In the order of the endpoints: the first is the likeliest to be meant.
	var ids, parts []string
	for i, id := range clusters {
		if id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
		if id != "" {
			parts = append(parts, sh.Endpoints[i]+" of "+id)
		}
	}
	if len(ids) > 1 {
		return Usagef("the endpoints are of %d clusters, and this command could go to any of them: %s\n"+
			"name endpoints of one cluster, or give --cluster-id", len(ids), strings.Join(parts, ", "))
	}
	return nil
}

// AnyStatus is the status of the first endpoint that answers and knows a leader; if none
// knows one, of the first that answers. leader is the id of who leads, "" if nobody does.
func (sh *Shell) AnyStatus(ctx context.Context) (raw json.RawMessage, leader string, err error) {
	// The first that knows a leader wins; else the first that answered.
	// One after the other: the first endpoint answers nearly always.
	for _, e := range sh.Endpoints {
		text, id, failed := sh.statusWithin(ctx, e)
		switch {
		case failed != nil:
			err = MoreTelling(err, failed)
		case raw == nil || id != "":
			raw, leader = text, id
		}
		if leader != "" {
			break
		}
	}
	// One answer is enough, whatever the others had.
	if raw != nil {
		err = nil
	}
	return raw, leader, err
}

// statusWithin asks one node for its status, for as long as one of several may take.
func (sh *Shell) statusWithin(ctx context.Context, url string) (raw json.RawMessage, leader string, err error) {
	// A node that hangs must not keep the next one from being asked.
	ctx, cancel := context.WithTimeout(ctx, NodeWithin)
	defer cancel()
	if err := sh.Ask(ctx, url, "/status", &raw); err != nil {
		return nil, "", err
	}
	// The whole text is returned, too: verbs print it, and read more of it than who leads.
	var s struct {
		LeaderID string `json:"leader_id"`
	}
	err = json.Unmarshal(raw, &s)
	return raw, s.LeaderID, err
}
