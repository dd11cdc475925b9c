package server

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/service"
	"github.com/ringrift/ringlog/raftnode"
)

// metrics are the counters of the server itself; the state of the node is collected at each scrape.
type metrics struct {
	handler  http.Handler             // answers GET /metrics
	requests *prometheus.CounterVec   // by route and code
	seconds  *prometheus.HistogramVec // by route
	events   prometheus.Counter       // of publishes that were answered
	repeated prometheus.Counter       // of those, duplicates
	read     prometheus.Counter       // events sent to readers
	streams  prometheus.Gauge         // see Server.streams
	panics   prometheus.Counter       // of handlers
	plain    prometheus.Counter       // requests in clear to a node that has TLS
}

// newMetrics registers all metrics of a server in the registry of its configuration. An error says that one of them is
// registered already, as by a second server with the same registry.
func newMetrics(cfg Config, ops *service.Service) (*metrics, error) {
	// All metrics of this package begin with ringlog_.
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "ringlog", Name: name, Help: help})
	}
	// The histogram's buckets are seconds, from half a millisecond to ten.
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "ringlog",
			Name:      "http_requests_total",
			Help:      "Requests that this node answered, by route and HTTP status.",
		}, []string{"route", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "ringlog",
			Name:      "http_request_seconds",
			Help:      "Seconds that a request took to answer, streams not counted.",
			Buckets:   []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"route"}),
		// How many events came in and went out.
		events: counter("published_events_total", "Events of publishes that this node answered."),
		repeated: counter(
			"published_duplicates_total",
			"Events answered by this node with the offset of an earlier one.",
		),
		read: counter("delivered_events_total", "Events that this node sent to readers and group members."),
		// Faults of this node.
		panics: counter("panics_total", "Requests whose handler panicked on this node."),
		plain:  counter("tls_plain_requests_total", "Requests that came in clear, whether they were taken or refused."),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "ringlog",
			Name:      "streams",
			Help:      "Reads and publish streams that are open on this node.",
		}),
	}
	all := []prometheus.Collector{
		m.requests,
		m.seconds,
		m.events,
		m.repeated,
		m.read,
		m.panics,
		m.streams,
		&nodeCollector{cfg.Node, ops},
	}
	// Only what this node has is shown: spans, and TLS.
	if e := cfg.Spans; e != nil {
		of := func(name, help string, value func() uint64) prometheus.Collector {
			return prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "ringlog", Name: name, Help: help},
				func() float64 { return float64(value()) })
		}
		all = append(all,
			of("spans_exported_total", "Spans that the collector has taken from this node.", e.Exported),
			of("spans_dropped_total", "Spans that this node has dropped: no room, or the collector refused them.", e.Dropped))
	}
	if cfg.TLS != nil {
		all = append(append(all, m.plain), tlsMetrics(cfg.TLS)...)
	}
	for _, c := range all {
		if err := cfg.Registry.Register(c); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	// The program may have registered these before.
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		err := cfg.Registry.Register(c)
		if _, already := errors.AsType[prometheus.AlreadyRegisteredError](err); err != nil && !already {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	m.handler = promhttp.HandlerFor(cfg.Registry, promhttp.HandlerOpts{})
	return m, nil
}

// countPublished counts the events of a publish that was answered, and how many of them are duplicates.
func (m *metrics) countPublished(events, duplicates int) {
	m.events.Add(float64(events))
	m.repeated.Add(float64(duplicates))
}

// countDelivered counts events that were sent to a reader.
func (m *metrics) countDelivered(events int) { m.read.Add(float64(events)) }

// countRequest counts an answered request under its route's pattern, so names in paths create no series.
func (m *metrics) countRequest(w *response, r *http.Request, began time.Time) {
	// It is registered only where the node has TLS.
	if r.TLS == nil {
		m.plain.Inc()
	}
	route := r.Pattern
	// No route took the request.
	if route == "" {
		route = "none"
	}
	m.countAnswer(route, w.status, began, w.stream)
}

// countAnswer counts an answer, and measures how long it took unless it is a stream's.
func (m *metrics) countAnswer(route string, status int, began time.Time, stream bool) {
	// Streams are counted like any other request.
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	if !stream {
		m.seconds.WithLabelValues(route).Observe(time.Since(began).Seconds())
	}
}

// nodeCollector collects the state of the node at each scrape.
type nodeCollector struct {
	// The collector is asked at each scrape, and keeps nothing in between.
	node Node
	ops  *service.Service
}

// Describe implements prometheus.Collector: which series there are depends on the
// members and cursors of the moment.
func (c *nodeCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *nodeCollector) Collect(out chan<- prometheus.Metric) {
	c.collectState(gauges(out))
	c.collectCluster(gauges(out))
}

// gauges returns a function that sends one value. Its labels are name, value, and so on; a name that ends in
// _total makes it a counter. All values of one name must have the same labels.
func gauges(out chan<- prometheus.Metric) func(name, help string, value float64, labels ...string) {
	descs := map[string]*prometheus.Desc{} // each made once a scrape
	return func(name, help string, value float64, labels ...string) {
		// A label's name and value follow each other.
		var names, values []string
		for i := 0; i+1 < len(labels); i += 2 {
			names, values = append(names, labels[i]), append(values, labels[i+1])
		}
		kind := prometheus.GaugeValue
		if strings.HasSuffix(name, "_total") {
			kind = prometheus.CounterValue
		}
		desc := descs[name]
		if desc == nil {
			desc = prometheus.NewDesc("ringlog_"+name, help, names, nil)
			descs[name] = desc
		}
		// The collector is of this package, so a mismatch of labels is a fault of its own.
		out <- prometheus.MustNewConstMetric(desc, kind, value, values...)
	}
}

// collectState sends what the state machine holds: log, deduplication, producers, cursors and dead letters.
func (c *nodeCollector) collectState(send func(string, string, float64, ...string)) {
	// The figures of one call are of one moment.
	m := c.node.Machine()
	stats := m.Stats()
	send("events_accepted_total", "Events appended for clients since the log began.", float64(stats.Accepted))
	send(
		"events_suppressed_total", "Events answered with an earlier offset since the log began.",
		float64(stats.Suppressed),
	)
	send("events_emitted_total", "Events of the cluster's own since the log began.", float64(stats.Emitted))
	send(
		"requests_refused_total", "Requests that the state machine refused since the log began.",
		float64(stats.Refused),
	)
	send(
		"requests_replayed_total",
		"Retries answered from a producer's results since the log began.",
		float64(stats.Replayed),
	)
	// The log itself.
	send("log_first_offset", "First offset that the log keeps.", float64(stats.First))
	send("log_last_offset", "Last offset of the log on this node.", float64(stats.Last))
	send("log_bytes", "Bytes of the events that the log keeps, as they are stored.", float64(stats.Bytes))
	send("receipt_bytes", "Bytes of the receipts that the log keeps of suppressed events.", float64(stats.Receipts))
	// What deduplication and the producers' retries keep in memory and in the state.
	send("dedup_keys", "Keys in the deduplication window.", float64(stats.DedupKeys))
	send("dedup_bytes", "Bytes of memory that the deduplication window takes.", float64(stats.DedupBytes))
	send("dedup_policy_keys", "Keys that the dedup policies of types hold.", float64(stats.PolicyKeys))
	// Who publishes with a sequence, and what is kept for their retries.
	send("producers", "Producers whose results are kept.", float64(stats.Producers))
	send("producer_result_bytes", "Bytes of the larger results that are kept for producers.", float64(stats.Results))
	send("cursors", "Durable cursors, groups included.", float64(stats.Cursors))
	// Dead letters: those that are kept, and how many there have ever been.
	send("dead_letters", "Dead letters that are kept.", float64(stats.Letters.Count))
	send(
		"dead_letters_redriven", "Dead letters that were redriven and not committed since.",
		float64(stats.Letters.Redriven),
	)
	send("dead_letter_bytes", "Bytes of the dead letters that are kept.", float64(stats.Letters.Bytes))
	send("dead_letters_total", "Dead letters made since the log began.", float64(stats.Letters.Ever))
	// An age grows while nobody handles dead letters, which an alert can use.
	oldest := 0.0
	if at := stats.Letters.Oldest; !at.IsZero() {
		oldest = time.Since(at).Seconds()
	}
	send("dead_letter_oldest_seconds", "Age in seconds of the oldest dead letter; 0 if there is none.", oldest)
	c.collectCursors(send)
}

// collectGroup sends what the leader knows of a group; for a cursor without one, or on another node, nothing.
func (c *nodeCollector) collectGroup(cursor *fsm.Cursor, send func(string, string, float64, ...string)) {
	if cursor.Group == nil || c.node.LeadingTerm() == 0 {
		return
	}
	// Only the leader has a coordinator for the group.
	v, name := c.ops.Cursors.GroupOf(cursor), strings.ToValidUTF8(cursor.Name, "?")
	send(
		"group_pending", "Events of a group delivered and not acknowledged yet, on the leader.",
		float64(v.Pending), "group", name,
	)
	send(
		"group_redelivering", "Events of a group to be redelivered, on the leader.",
		float64(v.Redelivering), "group", name,
	)
	send("group_members", "Members of a group, on the leader.", float64(v.Members), "group", name)
}

// collectCluster sends what this node sees of raft, its disk, its queue and the other members.
func (c *nodeCollector) collectCluster(send func(string, string, float64, ...string)) {
	st := c.node.Status()
	is := asNumber
	// Raft and this node itself.
	send("leader", "Whether this node leads: 1 or 0.", is(st.Role == raftnode.RoleLeader))
	send("has_leader", "Whether this node knows a leader: 1 or 0.", is(st.LeaderID != ""))
	send("term", "Term of raft on this node.", float64(st.Term))
	send(
		"commit_index", "Index of the last entry of raft that this node knows to be committed.",
		float64(st.CommitIndex),
	)
	send("applied_index", "Index of the last entry of raft that this node has applied.", float64(st.AppliedIndex))
	send("diverged", "Whether this node's state differs from the majority's: 1 or 0.", is(st.Diverged))
	send("disk_full", "Whether this node refuses appends because its disk is nearly full: 1 or 0.", is(st.Disk.Full))
	send(
		"disk_free_bytes", "Free bytes of the data folder's volume, the reserve not counted.",
		float64(st.Disk.FreeBytes),
	)
	// An age that grows is what an alert needs, which computes it from the time.
	backup := 0.0
	if !st.LastBackup.IsZero() {
		backup = float64(st.LastBackup.UnixMilli()) / 1000
	}
	send(
		"last_backup_timestamp_seconds", "When this node last sent a whole backup, in seconds since 1970; 0 for never.",
		backup,
	)
	// Requests on their way into the log.
	send("waiting_requests", "Requests that wait on this node to be put into an entry of raft.", float64(st.Waiting))
	send("waiting_bytes", "Bytes of the requests that wait on this node to be put into an entry of raft.",
		float64(st.WaitingBytes))
	send(
		"queue_requests", "Requests that this node accepted as leader and has not answered.",
		float64(st.Queue.Requests),
	)
	send(
		"queue_bytes", "Bytes of the requests that this node accepted as leader and has not answered.",
		float64(st.Queue.Bytes),
	)
	send(
		"queue_refused_total", "Requests that this process refused because its queue was full.",
		float64(st.Queue.Refused),
	)
	send(
		"backpressure", "Whether the log reports that the leader's queue is full: 1 or 0.",
		is(c.node.Machine().Pressure().Active),
	)
	// The quorum as this node sees it now.
	send("quorum_voters", "Voters of the cluster.", float64(st.Quorum.Voters))
	send("quorum_needed", "Voters that a decision of the cluster needs.", float64(st.Quorum.Needed))
	send("quorum_healthy", "Voters that answer this node, itself included.", float64(st.Quorum.Healthy))
	send(
		"quorum_margin", "Voters that may fail until there is no quorum: healthy minus needed.",
		float64(st.Quorum.Margin),
	)
	// The current outage as this node sees it, which the log may not have yet.
	lost := 0.0
	if o := st.Outage; o != nil {
		lost = time.Since(o.Since).Seconds()
		send(
			"outage_refused_writes", "Requests that this node refused in the outage that lasts, each counted once.",
			float64(o.Refused),
		)
	}
	send("quorum_lost", "Whether this node sees no quorum now: 1 or 0.", is(st.Outage != nil))
	send("outage_seconds", "Seconds for which this node has seen no quorum; 0 if it sees one.", lost)
	// What the log records of voters: the same on all nodes that have applied it.
	send("outages_total", "Outages that the log reports.", float64(st.Voters.Incidents))
	send(
		"quorum_at_risk",
		"Whether the log reports that the loss of one more voter loses the quorum: 1 or 0.",
		is(st.Voters.AtRisk),
	)
	for _, v := range st.Voters.Voters {
		send("voter_online", "Whether the log reports a voter as online: 1 or 0.", is(v.Online), "voter", v.ID)
	}
	// Only the leader judges the servers.
	if verdict, leads := c.node.Autopilot(); leads {
		send(
			"autopilot_healthy", "Whether all members are healthy to autopilot: 1 or 0, on the leader.",
			is(verdict.Healthy),
		)
		send(
			"autopilot_failure_tolerance", "Healthy voters that may fail, on the leader.",
			float64(verdict.FailureTolerance),
		)
		for _, one := range verdict.Servers {
			send(
				"member_trailing_seconds", "Seconds by which a member lags the leader, on the leader.",
				one.TrailingSeconds, "member", one.ID,
			)
		}
	}
	// Each member, as this node sees it.
	for _, m := range st.Members {
		send("member_healthy", "Whether a member answers this node: 1 or 0.", is(m.Healthy), "member", m.ID)
		send(
			"member_trailing_entries", "Entries by which a member lags this node.",
			float64(m.TrailingEntries), "member", m.ID,
		)
	}
}
