package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/raftnode"
	"github.com/ringrift/ringlog/raftnode/blackbox"
)

// Bounds of a history.
const (
	historyDefault = 1000
	historyMost    = 10_000
)

// getHistory answers GET /v1/cluster/history: how leaders and quorum changed, the newest chapters of what the log
// keeps.
func (h *reportHandlers) getHistory(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	from, err := parsePosition("from", p.text("from"))
	if err != nil {
		p.fail(err)
	}
	limit := p.uint("limit")
	if limit == 0 {
		limit = historyDefault
	}
	if limit > historyMost {
		p.fail(api.BadValue("limit", fmt.Sprint(limit), fmt.Sprintf("at most %d", historyMost)))
	}
	if err := p.done(); err != nil {
		return err
	}
	// The newest chapters count where there are more than the limit.
	chapters, err := h.reports.History(r.Context(), from, int(limit))
	if err != nil {
		return err
	}
	// The reader sees whether what it asked for was trimmed in part.
	first, _ := h.node.Machine().Log().Bounds()
	st := h.node.Status()
	return writeJSON(w, http.StatusOK, map[string]any{
		"history":      chapters,
		"first_offset": first,
		"leader_id":    st.LeaderID,
		"term":         st.Term,
		"outage":       outageOf(st),
	})
}

// localEvent is a record of a node's journal in the form of an event. It has no offset, as it is stored on this
// node alone.
type localEvent struct {
	Local  bool   `json:"local"`
	NodeID string `json:"node_id"`
	// Seq numbers the records of this node's journal.
	Seq     uint64          `json:"seq"`
	Settled bool            `json:"settled"` // the log has it, too
	Time    time.Time       `json:"time"`
	Type    event.Type      `json:"type"`
	Payload blackbox.Record `json:"payload"`
}

// localEvents returns the records of a journal after the one numbered after.
func (h *reportHandlers) localEvents(b raftnode.BlackBox, after uint64) (list []localEvent) {
	node := h.node.Status().NodeID
	// Records up to after were sent before.
	for _, r := range b.Records {
		if r.Seq > after {
			list = append(list, localEvent{
				Local:   true,
				NodeID:  node,
				Seq:     r.Seq,
				Settled: r.Seq <= b.Settled,
				Time:    r.At,
				Type:    raftnode.JournalType(r.Kind),
				Payload: r,
			})
		}
	}
	return list
}

// getOutage answers GET /v1/cluster/outage, with or without a leader: the current outage as this node sees it, the
// node's journal, and the outages that the log reports. With follow it is NDJSON: a line for each record after the
// given one, by default after those that the log has, then heartbeats and an end as in a read.
func (h *reportHandlers) getOutage(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	follow, given, after := p.bool("follow", false), r.URL.Query().Has("after"), p.uint("after")
	if err := p.done(); err != nil {
		return err
	}
	// The journal is this node's own, so it is shown without a quorum, too.
	b, _ := h.node.BlackBox()
	if follow && r.Method != http.MethodHead {
		// A reader of the log has the settled records from there.
		if !given {
			after = b.Settled
		}
		return h.followOutage(w, r, after)
	}
	// The answer without follow has everything at once.
	st := h.node.Status()
	records := h.localEvents(b, after)
	// JSON shows an empty list, not null.
	if records == nil {
		records = []localEvent{}
	}
	return writeJSON(w, http.StatusOK, map[string]any{
		"node_id":    st.NodeID,
		"cluster_id": st.ClusterID,
		"outage":     outageOf(st),
		"quorum":     api.Quorum(st.Quorum),
		"members":    h.view.members(st.Members),
		"journal":    b.Journal,
		"records":    records,
		"outages":    healthOf(st).Outages,
	})
}

// followOutage streams the records of the journal after the one numbered after, until the caller or the server
// ends it.
func (h *reportHandlers) followOutage(w http.ResponseWriter, r *http.Request, after uint64) error {
	// A reader of the journal takes the place of a stream.
	release, err := h.streams.enter(r.Context())
	if err != nil {
		return err
	}
	defer release()
	w.Header().Set("Content-Type", contentNDJSON)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	// A reader of a quiet journal sees that the stream is alive.
	heartbeat := time.NewTicker(h.heartbeat)
	defer heartbeat.Stop()
	for {
		// Both are of one moment: a record that is not in b closes grown.
		b, grown := h.node.BlackBox()
		for _, e := range h.localEvents(b, after) {
			// Each record is a line, as events are in a read.
			line, err := json.Marshal(e)
			if err != nil {
				return err
			}
			if _, err := w.Write(append(line, '\n')); err != nil {
				return err
			}
			// The next round resumes after what was written.
			after = e.Seq
		}
		// Whatever came is with the reader before this waits again.
		if err := out.Flush(); err != nil {
			return err
		}
		select {
		// The journal has grown: read it again.
		case <-grown:
		case <-heartbeat.C:
			if _, err := w.Write(ndjsonForm.heartbeat); err != nil {
				return err
			}
		case <-r.Context().Done():
			// The last record says after which one a reader resumes.
			end := fmt.Appendf(nil, `{"reason":%q,"seq":%d}`, endReason(context.Cause(r.Context())), after)
			_, err := w.Write(ndjsonForm.appendRecord(nil, recordEnd, end))
			return err
		}
	}
}
