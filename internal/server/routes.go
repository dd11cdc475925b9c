package server

import (
	"fmt"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/access"
)

// route is one row of the table: one operation of the HTTP interface, or one method of a Connect service. Except for
// needs, the zero value of a field is the usual case: the body has up to maxAdminBody bytes, the answer comes within
// the request timeout, and any node answers unless its state has diverged.
//
// The cross-site rule has no field: it follows from the method (admission.fromBrowser) and holds for all routes.
type route struct {
	method  string       // "" for a Connect method, which refuses other methods than its own by itself
	path    string       // as http.ServeMux has it
	handle  handlerFunc  // of an operation of the HTTP interface
	service http.Handler // of a Connect method

	// needs is the permission that the caller has to have. A route without one is not served.
	needs access.Permission

	// act is the name of what an operator or an admin does by the route. It is in the log, so it must not change.
	act string

	// What follows is at its zero value for most routes.
	whole  bool                   // refused to tokens that are limited to some types or cursors
	lasts  bool                   // ends with the caller's token, as streams do
	body   func(event.Limits) int // how many bytes the body may have; nil: maxAdminBody
	stream bool                   // ends by itself: it has no request timeout unless the caller asks for one
	many   bool                   // a stream of requests, whose parameter timeout is that of each
	leader bool                   // passed on to the leader
	scan   bool                   // reads the whole log or all that is registered: a few run at a time
	backup bool                   // streams a backup: one runs at a time
	about  bool                   // describes the node: answered also where its state has diverged
}

// pattern returns the route as http.ServeMux has it.
func (r *route) pattern() string {
	if r.method == "" {
		return r.path
	}
	return r.method + " " + r.path
}

// checkPermissions refuses a table with a route that does not say who may call it, and one by which operators and
// admins change something that has no name for that. It is called when the server is made, so a table that is wrong
// never serves.
func checkPermissions(routes []route) error {
	for _, r := range routes {
		if !r.needs.Declared() {
			return fmt.Errorf("route %s declares no permission", r.pattern())
		}
		// A Connect method has no method of HTTP, so it counts as one that may change something.
		privileged := r.needs == access.Operate || r.needs == access.Administer
		if privileged && r.method != http.MethodGet && r.act == "" {
			return fmt.Errorf("route %s names no act", r.pattern())
		}
	}
	return nil
}

// bodyLimit returns how many bytes the body of a call may have, by the limits in force.
func (r *route) bodyLimit(m *fsm.Machine) int {
	if r.body == nil {
		return maxAdminBody
	}
	// The limits may change while the node runs, so each call asks for them.
	return r.body(m.Policy().Limits)
}

// Bounds of bodies.
const (
	// maxAdminBody bounds, in bytes, the bodies of everything but events, definitions and exchanges.
	maxAdminBody = 256 << 10
	// maxExchangeBody bounds, in bytes, the body of an exchange, and of any call that is passed on to the leader.
	maxExchangeBody = 1 << 20
	// maxPeerMessage bounds, in bytes, what one node takes from another.
	maxPeerMessage = 40 << 20
	// publishSlack is added for what a publish has besides its events: types and sources, once each.
	publishSlack = 1 << 20
)

// eventsLimit is for events and definitions: the setting limits.request_bytes.
func eventsLimit(l event.Limits) int { return l.RequestBytes }

// publishLimit is for a publish as a message, in which a single event may exceed the limit of a request until it is
// in canonical form.
func publishLimit(l event.Limits) int { return max(l.RequestBytes, 2*l.EventBytes) + publishSlack }

// exchangeLimit is for an exchange of a group's member.
func exchangeLimit(event.Limits) int { return maxExchangeBody }

// sourcesLimit is for what source files show, some ten thousand uses of types.
func sourcesLimit(event.Limits) int { return maxExchangeBody }

// forwardLimit is for the request that a follower forwards, which may be a whole block of events.
func forwardLimit(event.Limits) int { return maxPeerMessage }

// table returns all routes, with handlers that answer for this server's node. /openapi.json documents those of
// the HTTP interface, and ringlog.proto the Connect methods. advertised is the address of this node.
func (s *Server) table(advertised string) []route {
	// What handlers of several subjects share.
	node := s.cfg.Node
	bodies := s.messages.bodies
	view := &clusterView{node: node}
	spans := newSpans(s.cfg.Spans)
	tails := &tailWriter{metrics: s.metrics, errors: s.errors, spans: spans}
	// The publisher serves Connect and publish streams; POST /v1/events has a codec of its own.
	publisher := &publisher{log: s.ops.Log, node: node, metrics: s.metrics, spans: spans}

	// The handlers of the HTTP interface, by subject.
	events := &eventHandlers{
		log:      s.ops.Log,
		bodies:   bodies,
		streams:  s.streams,
		tails:    tails,
		metrics:  s.metrics,
		spans:    spans,
		identity: s.identity,
	}
	cursors := &cursorHandlers{cursors: s.ops.Cursors, bodies: bodies, streams: s.streams, tails: tails}
	groups := &groupHandlers{groups: s.ops.Groups, bodies: bodies, metrics: s.metrics, spans: spans}
	letters := &letterHandlers{letters: s.ops.Letters, bodies: bodies}
	settings := &settingHandlers{settings: s.ops.Settings, bodies: bodies}
	catalogue := &catalogueHandlers{log: s.ops.Log, bodies: bodies}
	dedup := &dedupHandlers{log: s.ops.Log, bodies: bodies}
	clients := &clientHandlers{clients: s.ops.Clients, bodies: bodies}
	schedule := &scheduleHandlers{schedule: s.ops.Schedule, bodies: bodies}
	views := &viewHandlers{views: s.ops.Views, bodies: bodies, streams: s.streams, errors: s.errors}
	transfers := &transferHandlers{transfers: s.ops.Transfers}
	roles := &roleHandlers{roles: s.ops.Roles, bodies: bodies, streams: s.streams}
	allocations := &allocationHandlers{allocations: s.ops.Allocations, bodies: bodies, streams: s.streams}
	members := &memberHandlers{node: node, peers: s.cfg.Peers, bodies: bodies, view: view, begin: s.ops.Begin}
	reports := &reportHandlers{
		reports:   s.ops.Reports,
		bodies:    bodies,
		node:      node,
		streams:   s.streams,
		heartbeat: s.cfg.Heartbeat,
		view:      view,
	}
	status := &statusHandlers{
		logger:   s.logger,
		ops:      s.ops,
		node:     node,
		view:     view,
		metrics:  s.metrics,
		identity: s.identity,
		version:  s.cfg.Version,
		started:  time.Now(),
		tls:      func() *api.TLS { return tlsStatus(&s.cfg) },
	}
	asyncAPI := &asyncAPIHandler{
		reports: s.ops.Reports,
		node:    node,
		version: s.cfg.Version,
		token:   s.cfg.Token != "",
	}
	tokens := &tokenHandlers{tokens: s.ops.Tokens, callers: s.callers, bodies: bodies}
	incidents := &incidentHandlers{node: node, bodies: bodies, recorded: status.recorded}
	publishStreams := &publishStreams{
		cfg:       s.cfg,
		publisher: publisher,
		bodies:    bodies,
		messages:  s.messages,
		streams:   s.streams,
		callers:   s.callers,
		memory:    s.memory,
		metrics:   s.metrics,
		errors:    s.errors,
		stopping:  s.ctx,
	}

	// The Connect services. A service answers all of its methods, which are rows of their own, so that other paths
	// below it create no series in the metrics.
	options := connect.WithHandlerOptions(
		connect.WithInterceptors(&interceptor{
			timeout:  s.cfg.RequestTimeout,
			streams:  s.streams,
			errors:   s.errors,
			stopping: s.ctx,
		}),
		connect.WithCompressMinBytes(neverCompress),
		connect.WithCompression("gzip", nil, nil), // metered decompresses
		connect.WithCodec(protoCodec{}),
		connect.WithCodec(jsonCodec{"json"}),
		connect.WithCodec(jsonCodec{"json; charset=utf-8"}),
	)
	// Connect returns the path below which a service answers; the rows have the paths of its methods.
	_, logs := ringlogv1connect.NewLogServiceHandler(
		&logService{log: s.ops.Log, publisher: publisher, tails: tails}, options)
	_, cursorCalls := ringlogv1connect.NewCursorServiceHandler(
		&cursorService{cursors: s.ops.Cursors, letters: s.ops.Letters, tails: tails}, options)
	_, groupCalls := ringlogv1connect.NewGroupServiceHandler(
		&groupService{groups: s.ops.Groups, node: node, forward: s.forward, metrics: s.metrics, spans: spans,
			stopping: s.ctx}, options)
	_, peers := ringlogv1connect.NewPeerServiceHandler(
		&peerService{node: node, peers: s.cfg.Peers, token: s.cfg.Token, advertised: advertised}, options)

	const (
		// Short names keep most rows on one line.
		get    = http.MethodGet
		post   = http.MethodPost
		put    = http.MethodPut
		remove = http.MethodDelete
	)
	return []route{
		// Events: publish, read, follow, and what became of them.
		{method: post, path: "/v1/events", handle: events.postEvents, needs: access.Publish, body: eventsLimit},
		{method: get, path: api.PublishStreamPath, handle: publishStreams.open,
			needs: access.Publish, stream: true, many: true},
		{method: get, path: "/v1/events", handle: events.getEvents, needs: access.Subscribe, stream: true},
		{method: get, path: "/v1/events/{offset}", handle: events.getEvent, needs: access.Subscribe},
		{method: get, path: "/v1/dedup/{subject}", handle: events.getDedup, needs: access.Subscribe},
		{method: get, path: "/v1/wait", handle: events.getWait, needs: access.Subscribe, stream: true},
		{method: post, path: "/v1/compact", handle: events.postCompact, needs: access.Operate, act: "compact"},

		// Cursors.
		{method: get, path: "/v1/cursors", handle: cursors.getCursors, needs: access.Inspect},
		{method: get, path: "/v1/cursors/{name}", handle: cursors.getCursor, needs: access.Inspect},
		{method: put, path: "/v1/cursors/{name}", handle: cursors.putCursor, needs: access.Subscribe},
		{method: put, path: "/v1/cursors/{name}/filter", handle: cursors.putCursorFilter,
			needs: access.Subscribe, act: "cursor.change"},
		{method: remove, path: "/v1/cursors/{name}", handle: cursors.deleteCursor,
			needs: access.Subscribe, act: "cursor.delete"},
		{method: post, path: "/v1/cursors/{name}/open", handle: cursors.postCursorOpen, needs: access.Subscribe},
		{method: get, path: "/v1/cursors/{name}/events", handle: cursors.getCursorEvents,
			needs: access.Subscribe, stream: true},
		{method: post, path: "/v1/cursors/{name}/commit", handle: cursors.postCursorCommit, needs: access.Subscribe},
		{method: post, path: "/v1/cursors/{name}/seek", handle: cursors.postCursorSeek,
			needs: access.Subscribe, act: "cursor.seek"},
		{method: post, path: "/v1/cursors/{name}/deadletter", handle: letters.postDeadLetter, needs: access.Subscribe},
		{method: get, path: "/v1/explain", handle: cursors.getExplain, needs: access.Subscribe, scan: true},

		// Groups. Their state is the leader's, which alone keeps it.
		{method: get, path: "/v1/groups", handle: groups.getGroups, needs: access.Inspect, leader: true},
		{method: get, path: "/v1/groups/{name}", handle: groups.getGroup, needs: access.Inspect, leader: true},
		{method: put, path: "/v1/groups/{name}", handle: groups.putGroup, needs: access.Subscribe},
		{method: remove, path: "/v1/groups/{name}", handle: groups.deleteGroup,
			needs: access.Subscribe, act: "group.delete"},
		{method: get, path: "/v1/groups/{name}/members", handle: groups.getGroupMembers,
			needs: access.Inspect, leader: true},
		{
			method: post,
			path:   "/v1/groups/{name}/exchange",
			handle: groups.postExchange,
			needs:  access.Subscribe,
			body:   exchangeLimit,
			leader: true,
			stream: true,
		},

		// Dead letters.
		{method: get, path: "/v1/dlq", handle: letters.getLetters, needs: access.Letters},
		{method: get, path: "/v1/dlq/errors", handle: letters.getLetterErrors, needs: access.Letters, scan: true},
		{method: get, path: "/v1/dlq/{id}", handle: letters.getLetter, needs: access.Letters},
		{method: post, path: "/v1/dlq/redrive", handle: letters.postRedrive, needs: access.Operate, act: "dlq.redrive"},
		{method: post, path: "/v1/dlq/purge", handle: letters.postPurge, needs: access.Operate, act: "dlq.purge"},
		{method: post, path: "/v1/dlq/import", handle: letters.postLetterImport,
			needs: access.Operate, act: "dlq.import", body: eventsLimit},

		// Settings, the catalogue, dedup policies, registered clients.
		{method: get, path: "/v1/settings", handle: settings.getSettings, needs: access.Known},
		{method: get, path: "/v1/settings/{key}", handle: settings.getSetting, needs: access.Known},
		{method: put, path: "/v1/settings/{key}", handle: settings.putSetting, needs: access.Operate, act: "setting.set"},
		{method: get, path: "/v1/catalogue", handle: catalogue.getCatalogue, needs: access.Known},
		{method: post, path: "/v1/catalogue", handle: catalogue.postCatalogue,
			needs: access.Operate, act: "type.register", body: eventsLimit},
		{method: post, path: "/v1/catalogue/validate", handle: catalogue.postCatalogueValidate,
			needs: access.Known, body: eventsLimit},
		{method: get, path: "/v1/catalogue/{type}", handle: catalogue.getCatalogueType, needs: access.Known},
		{method: get, path: "/v1/catalogue/{type}/schema", handle: catalogue.getCatalogueSchema, needs: access.Known},
		{method: get, path: "/v1/flows", handle: catalogue.getFlows, needs: access.Known},
		{method: post, path: "/v1/flows", handle: catalogue.postFlows,
			needs: access.Operate, act: "flow.register", body: eventsLimit},
		{method: get, path: "/v1/flows/{name}", handle: catalogue.getFlow, needs: access.Known},
		{method: remove, path: "/v1/flows/{name}", handle: catalogue.deleteFlow, needs: access.Operate, act: "flow.remove"},
		{method: get, path: "/v1/dedup/policies", handle: dedup.getPolicies, needs: access.Known},
		{method: get, path: "/v1/dedup/policies/{type}", handle: dedup.getPolicy, needs: access.Known},
		{method: put, path: "/v1/dedup/policies/{type}", handle: dedup.putPolicy,
			needs: access.Operate, act: "dedup_policy.set"},
		{method: remove, path: "/v1/dedup/policies/{type}", handle: dedup.deletePolicy,
			needs: access.Operate, act: "dedup_policy.remove"},
		{method: get, path: "/asyncapi.json", handle: asyncAPI.getAsyncAPI, needs: access.Observe, scan: true},
		{method: get, path: "/v1/readiness", handle: clients.getReadiness, needs: access.Coordinate},
		{method: get, path: "/v1/clients", handle: clients.getClients, needs: access.Observe},
		{method: put, path: "/v1/clients/{id}", handle: clients.putClient, needs: access.Coordinate},
		{method: remove, path: "/v1/clients/{id}", handle: clients.deleteClient, needs: access.Coordinate},

		// Roles. A call may wait for one.
		{method: get, path: "/v1/roles", handle: roles.getRoles, needs: access.Coordinate},
		{method: put, path: "/v1/roles", handle: roles.putRoles, needs: access.Coordinate},
		{method: get, path: "/v1/roles/{role}", handle: roles.getRole, needs: access.Coordinate},
		{method: put, path: "/v1/roles/{role}", handle: roles.putRole, needs: access.Coordinate, stream: true},
		{method: remove, path: "/v1/roles/{role}", handle: roles.deleteRole, needs: access.Coordinate, act: "role.revoke"},

		// Events that are published at a time.
		{method: get, path: "/v1/scheduled", handle: schedule.getSchedule, needs: access.Publish},
		{method: get, path: "/v1/scheduled/{id}", handle: schedule.getScheduled, needs: access.Publish},
		{method: put, path: "/v1/scheduled/{id}", handle: schedule.putScheduled, needs: access.Publish},
		{method: remove, path: "/v1/scheduled/{id}", handle: schedule.deleteScheduled, needs: access.Publish},
		// Resources, and allocations of them. A call may wait for one.
		{method: get, path: "/v1/resources", handle: allocations.getResources, needs: access.Coordinate},
		{method: get, path: "/v1/resources/{resource}", handle: allocations.getResource, needs: access.Coordinate},
		{method: put, path: "/v1/resources/{resource}", handle: allocations.putResource,
			needs: access.Operate, act: "resource.set"},
		{method: remove, path: "/v1/resources/{resource}", handle: allocations.deleteResource,
			needs: access.Operate, act: "resource.remove"},
		{method: get, path: "/v1/allocations", handle: allocations.getAllocations, needs: access.Coordinate},
		{method: put, path: "/v1/allocations", handle: allocations.putAllocations, needs: access.Coordinate},
		{method: get, path: "/v1/allocations/{allocation}", handle: allocations.getAllocation,
			needs: access.Coordinate},
		{method: put, path: "/v1/allocations/{allocation}", handle: allocations.putAllocation,
			needs: access.Coordinate, stream: true},
		{method: remove, path: "/v1/allocations/{allocation}", handle: allocations.deleteAllocation,
			needs: access.Coordinate},

		// Views.
		{method: get, path: "/v1/views", handle: views.getViews, needs: access.Inspect},
		{method: get, path: "/v1/views/{name}", handle: views.getView, needs: access.Inspect},
		{method: put, path: "/v1/views/{name}", handle: views.putView, needs: access.Operate, act: "view.define"},
		{method: remove, path: "/v1/views/{name}", handle: views.deleteView, needs: access.Operate, act: "view.remove"},
		{method: get, path: "/v1/views/{name}/rows", handle: views.getRows, needs: access.Subscribe, whole: true},
		{method: get, path: "/v1/views/{name}/watch", handle: views.watchRows,
			needs: access.Subscribe, whole: true, stream: true},

		// Transfers between hosts, and what is where.
		{method: get, path: "/v1/transfers", handle: transfers.getTransfers, needs: access.Subscribe, whole: true},
		{method: get, path: "/v1/where", handle: transfers.getHeld, needs: access.Subscribe, whole: true},
		{method: get, path: "/v1/where/{name}", handle: transfers.getWhere, needs: access.Subscribe, whole: true},

		// Reports that are computed from the log, and from this node's journal of outages.
		{method: get, path: "/v1/audit", handle: reports.getAudit, needs: access.Observe, scan: true},
		{method: post, path: "/v1/audit", handle: reports.postAudit,
			needs: access.Observe, scan: true, body: sourcesLimit},
		{method: get, path: "/v1/audit/coordinators/{name}", handle: reports.getAuditCoordinator,
			needs: access.Observe, scan: true},
		{method: get, path: "/v1/chain/{correlation_id}", handle: reports.getChain,
			needs: access.Subscribe, whole: true, scan: true},
		{method: get, path: "/v1/cluster/history", handle: reports.getHistory, needs: access.Observe, scan: true},
		{method: get, path: "/v1/cluster/outage", handle: reports.getOutage,
			needs: access.Observe, about: true, stream: true},

		// Members. Only the leader changes them.
		{method: get, path: "/v1/members", handle: members.getMembers, needs: access.Observe, about: true},
		{method: post, path: "/v1/members", handle: members.postMember,
			needs: access.Administer, act: "member.add", leader: true},
		{method: remove, path: "/v1/members/{id}", handle: members.deleteMember,
			needs: access.Administer, act: "member.remove", leader: true},
		{method: post, path: "/v1/members/{id}/promote", handle: members.postPromote,
			needs: access.Administer, act: "member.promote", leader: true},
		{method: post, path: "/v1/members/{id}/demote", handle: members.postDemote,
			needs: access.Administer, act: "member.demote", leader: true},
		{method: post, path: "/v1/cluster/step-down", handle: members.postStepDown,
			needs: access.Operate, act: "leader.step_down", leader: true},

		// Tokens.
		{method: get, path: "/v1/tokens", handle: tokens.getTokens, needs: access.Administer},
		{method: put, path: "/v1/tokens/{name}", handle: tokens.putToken, needs: access.Administer, act: "token.create"},
		{method: post, path: "/v1/tokens/{name}/rotate", handle: tokens.postTokenRotate,
			needs: access.Administer, act: "token.rotate"},
		{method: remove, path: "/v1/tokens/{name}", handle: tokens.deleteToken,
			needs: access.Administer, act: "token.revoke"},

		// The session of a browser.
		{method: post, path: "/v1/session", handle: s.callers.sessions.postSession, needs: access.Known},
		{method: remove, path: "/v1/session", handle: s.callers.sessions.deleteSession, needs: access.Open},

		// The node itself. Health checks know no token.
		{method: get, path: "/v1/cluster", handle: status.getCluster, needs: access.Known, about: true},
		{method: get, path: "/v1/snapshot", handle: status.getSnapshot,
			needs: access.Administer, act: "backup", stream: true, backup: true},
		{method: get, path: "/v1/incident", handle: incidents.getIncident,
			needs: access.Administer, act: "incident.export", stream: true, backup: true},
		{method: post, path: "/v1/incident/step", handle: incidents.postIncidentStep,
			needs: access.Operate, act: "incident.step"},
		{method: get, path: "/status", handle: status.getStatus, needs: access.Observe, about: true},
		{method: get, path: "/healthz", handle: status.getHealth, needs: access.Open, about: true},
		{method: get, path: "/readyz", handle: status.getReady, needs: access.Open, about: true},
		{method: get, path: "/metrics", handle: status.getMetrics, needs: access.Metrics, about: true},
		{method: get, path: "/v1/debug/stacks", handle: status.getStacks, needs: access.Operate, about: true},
		{method: get, path: "/openapi.json", handle: status.getOpenAPI, needs: access.Known, about: true},
		{method: get, path: "/{$}", handle: status.getRoot, needs: access.Known, about: true},

		// The Python package, for pip, which knows no token.
		{method: get, path: pythonIndex + "{$}", handle: getPythonIndex, needs: access.Open, about: true},
		{method: get, path: pythonIndex + "{project}/{$}", handle: getPythonProject, needs: access.Open, about: true},
		{method: get, path: pythonIndex + "{project}/{file}", handle: getPythonFile, needs: access.Open, about: true},

		// The console, which asks for the token itself.
		{method: get, path: consolePath + "{$}", handle: getConsole, needs: access.Open, about: true},
		{method: get, path: consolePath + "assets/{file}", handle: getConsoleAsset, needs: access.Open, about: true},

		// Connect: the log.
		{path: ringlogv1connect.LogServicePublishProcedure, service: logs, needs: access.Publish, body: publishLimit},
		{path: ringlogv1connect.LogServiceTailProcedure, service: logs, needs: access.Subscribe, stream: true},
		{path: ringlogv1connect.LogServiceGetEventProcedure, service: logs, needs: access.Subscribe},
		{path: ringlogv1connect.LogServiceExplainDedupProcedure, service: logs, needs: access.Subscribe},

		// Connect: cursors and groups.
		{path: ringlogv1connect.CursorServiceCreateCursorProcedure, service: cursorCalls, needs: access.Subscribe},
		{path: ringlogv1connect.CursorServiceGetCursorProcedure, service: cursorCalls, needs: access.Inspect},
		{path: ringlogv1connect.CursorServiceListCursorsProcedure, service: cursorCalls, needs: access.Inspect},
		{path: ringlogv1connect.CursorServiceDeleteCursorProcedure, service: cursorCalls,
			needs: access.Subscribe, act: "cursor.delete"},
		{path: ringlogv1connect.CursorServiceOpenCursorProcedure, service: cursorCalls, needs: access.Subscribe},
		{path: ringlogv1connect.CursorServiceCommitCursorProcedure, service: cursorCalls, needs: access.Subscribe},
		{path: ringlogv1connect.CursorServiceSeekCursorProcedure, service: cursorCalls,
			needs: access.Subscribe, act: "cursor.seek"},
		{path: ringlogv1connect.CursorServiceDeadLetterProcedure, service: cursorCalls, needs: access.Subscribe},
		{path: ringlogv1connect.CursorServiceReadCursorProcedure, service: cursorCalls,
			needs: access.Subscribe, stream: true},
		{path: ringlogv1connect.GroupServiceCreateGroupProcedure, service: groupCalls, needs: access.Subscribe},
		{path: ringlogv1connect.GroupServiceExchangeProcedure, service: groupCalls,
			needs: access.Subscribe, body: exchangeLimit, lasts: true},

		// Connect: calls of other nodes. By the first two a node finds out what another one is.
		{path: ringlogv1connect.PeerServiceIdentifyProcedure, service: peers, needs: access.Peer, about: true},
		{path: ringlogv1connect.PeerServiceChallengeProcedure, service: peers, needs: access.Open, about: true},
		{path: ringlogv1connect.PeerServiceForwardProcedure, service: peers, needs: access.Peer, body: forwardLimit},
		{path: ringlogv1connect.PeerServiceReadIndexProcedure, service: peers, needs: access.Peer},
		{path: ringlogv1connect.PeerServiceJoinProcedure, service: peers, needs: access.Peer},
	}
}
