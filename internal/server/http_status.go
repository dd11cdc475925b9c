package server

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/access"
	"github.com/ringrift/ringlog/internal/service"
	"github.com/ringrift/ringlog/raftnode"
)

// statusHandlers answers what is asked of the node itself: status, health, metrics, a backup, and what can be asked
// for.
type statusHandlers struct {
	logger   hclog.Logger
	ops      *service.Service
	node     Node
	view     *clusterView
	metrics  *metrics
	identity *identity
	version  string    // of the program
	started  time.Time // of the server
	tls      func() *api.TLS
}

// getCluster answers GET /v1/cluster with the cluster as this node sees it.
func (h *statusHandlers) getCluster(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, h.view.cluster(h.node.Status()))
}

// getStatus answers GET /status. It names the cursors that matter most; /v1/cursors has all.
func (h *statusHandlers) getStatus(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	st := h.node.Status()
	stats := h.ops.Machine().Stats()
	// All of it is of this node's own state: a status has to be answered without a leader, too.
	view := api.Status{Cluster: h.view.cluster(st), Version: h.version,
		UptimeSeconds: time.Since(h.started).Seconds(), Clock: time.Now().UTC(),
		Waiting: st.Waiting, WaitingBytes: st.WaitingBytes, Log: logStats(stats),
		JoinRefused: st.JoinRefused, NotFormed: st.NotFormed, TLS: h.tls(), LastBackup: st.LastBackup,
		Queue: api.Queue(st.Queue), Backpressure: api.Pressure(h.ops.Machine().Pressure()), Overdue: h.ops.Reports.Overdue(),
		Dedup: api.DedupStatus{Window: h.ops.Machine().Settings().DedupWindow.String(), Keys: stats.DedupKeys,
			Bytes: stats.DedupBytes, Suppressed: stats.Suppressed},
		DeadLetters: api.LetterStats(stats.Letters)}
	cursors := h.ops.Machine().Cursors()
	shown := notable(cursors, statusBytes, statusSize)
	view.Cursors, view.CursorsTotal, view.CursorsLeft = h.ops.Cursors.Views(shown), len(cursors), len(cursors)-len(shown)
	view.Subscriptions, view.Timeouts = h.ops.Clients.Subscriptions()
	for _, refusal := range st.Refusals {
		view.Refusals = append(view.Refusals, api.Refusal(refusal))
	}
	return writeJSON(w, http.StatusOK, view)
}

// getHealth answers GET /healthz: the process runs and answers, whatever the state of the cluster.
func (h *statusHandlers) getHealth(w http.ResponseWriter, _ *http.Request) error {
	// Nothing is asked of raft: the answer says only that the process serves.
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ok", "cluster_id": h.identity.clusterID()})
}

// readyWait bounds how long /readyz waits for the leader to confirm what is committed, and for this node to apply
// it.
const readyWait = 2 * time.Second

// getReady answers GET /readyz: whether this node agrees with the majority, knows a leader, has caught up with it,
// and has room on its disk.
func (h *statusHandlers) getReady(w http.ResponseWriter, r *http.Request) error {
	st := h.node.Status()
	switch {
	case st.Diverged:
		return raftnode.ErrDiverged
	// Why there is no leader is known better where the cluster has refused this node.
	case errors.Is(h.node.NoLeaderError(), raftnode.ErrRemovedNode):
		return h.node.NoLeaderError()
	case st.LeaderID == "" && st.JoinRefused != "":
		return api.Refuse(api.NoLeader, "join_refused",
			"the cluster does not admit this node: "+st.JoinRefused,
			"see that, and the warnings of this node's own log")
	case st.LeaderID == "":
		return h.node.NoLeaderError()
	case st.Disk.Full:
		return raftnode.ErrDiskFull
	}
	// A barrier passes only once this node has applied all that was acknowledged before.
	ctx, cancel := context.WithTimeout(r.Context(), readyWait)
	defer cancel()
	if err := h.node.ReadBarrier(ctx); err != nil {
		return api.Refuse(api.Unavailable, "applied_index",
			fmt.Sprintf("this node has not caught up with its leader: %v", err),
			"wait, or ask another node")
	}
	// A node that the cluster refused says so, though it is ready.
	answer := map[string]string{"status": "ready", "cluster_id": st.ClusterID, "role": st.Role, "leader_id": st.LeaderID}
	if st.JoinRefused != "" {
		answer["join_refused"] = st.JoinRefused
	}
	return writeJSON(w, http.StatusOK, answer)
}

// getSnapshot streams a backup of this node's state. Its end carries a checksum: one
// that broke off does not pass ringlog snapshot verify. A cluster without a leader is backed up as well, and the node's
// log then says whose backup the event log does not have.
func (h *statusHandlers) getSnapshot(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	// From the first byte on, an error can only cut the connection.
	header := w.Header()
	header.Set("Content-Type", "application/octet-stream")
	header.Set("Content-Disposition", `attachment; filename="ringlog.snapshot"`)
	if r.Method == http.MethodHead {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxTimeout) // it keeps files that the log no longer needs
	defer cancel()
	return h.recorded(ctx, func() error {
		_, err := h.node.Backup(ctx, w)
		return err
	})
}

// recorded does what gives away all data of this node, and reports that before. Without a leader it is done all the
// same: that is when backups are needed.
func (h *statusHandlers) recorded(ctx context.Context, do func() error) error {
	ended, err := h.ops.Begin(ctx, h.node.Status().NodeID, "")
	if err != nil {
		h.logger.Warn("all data leave this node, which is no event of the log", "by", access.Of(ctx), "error", err)
		ended = func(error) {}
	}
	err = do()
	ended(err)
	return err
}

//go:embed openapi.json
var openAPI []byte

// getOpenAPI answers GET /openapi.json.
func (h *statusHandlers) getOpenAPI(w http.ResponseWriter, _ *http.Request) error {
	return writeBytes(w, http.StatusOK, contentJSON, openAPI)
}

// greeting is for people who open the node's address in a browser.
const greeting = `ringlog: a replicated event log.

/ui/            the console, for a browser
/status         this node and its cluster
/openapi.json   everything that can be asked for here
/asyncapi.json  the event types, who emits them and who listens
/v1/events      POST to publish, GET to read
/python/        the Python package: pip install --index-url URL/python/ ringlog
`

// getRoot answers GET /: browsers are led to the console.
func (h *statusHandlers) getRoot(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Vary", "Accept")
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		// Relative, so that it also leads there through a proxy with a path of its own.
		w.Header().Set("Location", strings.TrimPrefix(consolePath, "/"))
		w.WriteHeader(http.StatusSeeOther)
		return nil
	}
	return writeBytes(w, http.StatusOK, "text/plain; charset=utf-8", []byte(greeting))
}

// getMetrics answers GET /metrics in the format that Prometheus scrapes.
func (h *statusHandlers) getMetrics(w http.ResponseWriter, r *http.Request) error {
	h.metrics.handler.ServeHTTP(w, r)
	return nil
}
