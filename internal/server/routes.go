package server

import (
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
)

// route is one row of the table: one operation of the HTTP interface, or one method of a Connect service. A field
// at its zero value stands for the usual: the caller needs the token, the body has up to maxAdminBody bytes, the answer
// comes within the request timeout, and any node answers unless its state has diverged.
//
// The cross-site rule has no field: it follows from the method (admission.fromBrowser) and holds for all routes.
type route struct {
	method  string       // "" for a Connect method, which refuses other methods than its own by itself
	path    string       // as http.ServeMux has it
	handle  handlerFunc  // of an operation of the HTTP interface
	service http.Handler // of a Connect method

	// What follows is at its zero value for most routes.
	access access
	body   func(event.Limits) int // how many bytes the body may have; nil: maxAdminBody
	stream bool                   // ends by itself: it has no request timeout unless the caller asks for one
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

// bodyLimit returns how many bytes the body of a call may have, by the limits in force.
func (r *route) bodyLimit(m *fsm.Machine) int {
	if r.body == nil {
		return maxAdminBody
	}
	// The limits may change while the node runs, so each call asks for them.
	return r.body(m.Policy().Limits)
}

// access says who may call a route.
type access int

const (
	withToken access = iota // callers that have the token, where there is one
	open                    // anybody
)

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
	tails := &tailWriter{metrics: s.metrics, errors: s.errors}
	// The publisher serves Connect and publish streams; POST /v1/events has a codec of its own.
	publisher := &publisher{log: s.ops.Log, node: node, metrics: s.metrics, advertised: advertised}

	// The handlers of the HTTP interface, by subject.
	events := &eventHandlers{
		log:      s.ops.Log,
		bodies:   bodies,
		streams:  s.streams,
		tails:    tails,
		metrics:  s.metrics,
		identity: s.identity,
	}
	cursors := &cursorHandlers{cursors: s.ops.Cursors, bodies: bodies, streams: s.streams, tails: tails}
	groups := &groupHandlers{groups: s.ops.Groups, bodies: bodies, metrics: s.metrics}
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
	members := &memberHandlers{node: node, peers: s.cfg.Peers, bodies: bodies, view: view}
	reports := &reportHandlers{
		reports:   s.ops.Reports,
		bodies:    bodies,
		node:      node,
		streams:   s.streams,
		heartbeat: s.cfg.Heartbeat,
		view:      view,
	}
	status := &statusHandlers{
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
	publishStreams := &publishStreams{
		cfg:       s.cfg,
		publisher: publisher,
		bodies:    bodies,
		messages:  s.messages,
		streams:   s.streams,
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
		&groupService{groups: s.ops.Groups, node: node, forward: s.forward, metrics: s.metrics, stopping: s.ctx}, options)
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
		{method: post, path: "/v1/events", handle: events.postEvents, body: eventsLimit},
		{method: get, path: api.PublishStreamPath, handle: publishStreams.open, stream: true},
		{method: get, path: "/v1/events", handle: events.getEvents, stream: true},
		{method: get, path: "/v1/events/{offset}", handle: events.getEvent},
		{method: get, path: "/v1/dedup/{subject}", handle: events.getDedup},
		{method: get, path: "/v1/wait", handle: events.getWait, stream: true},
		{method: post, path: "/v1/compact", handle: events.postCompact},

		// Cursors.
		{method: get, path: "/v1/cursors", handle: cursors.getCursors},
		{method: get, path: "/v1/cursors/{name}", handle: cursors.getCursor},
		{method: put, path: "/v1/cursors/{name}", handle: cursors.putCursor},
		{method: put, path: "/v1/cursors/{name}/filter", handle: cursors.putCursorFilter},
		{method: remove, path: "/v1/cursors/{name}", handle: cursors.deleteCursor},
		{method: post, path: "/v1/cursors/{name}/open", handle: cursors.postCursorOpen},
		{method: get, path: "/v1/cursors/{name}/events", handle: cursors.getCursorEvents, stream: true},
		{method: post, path: "/v1/cursors/{name}/commit", handle: cursors.postCursorCommit},
		{method: post, path: "/v1/cursors/{name}/seek", handle: cursors.postCursorSeek},
		{method: post, path: "/v1/cursors/{name}/deadletter", handle: letters.postDeadLetter},
		{method: get, path: "/v1/explain", handle: cursors.getExplain, scan: true},

		// Groups. Their state is the leader's, which alone keeps it.
		{method: get, path: "/v1/groups", handle: groups.getGroups, leader: true},
		{method: get, path: "/v1/groups/{name}", handle: groups.getGroup, leader: true},
		{method: put, path: "/v1/groups/{name}", handle: groups.putGroup},
		{method: remove, path: "/v1/groups/{name}", handle: groups.deleteGroup},
		{method: get, path: "/v1/groups/{name}/members", handle: groups.getGroupMembers, leader: true},
		{
			method: post,
			path:   "/v1/groups/{name}/exchange",
			handle: groups.postExchange,
			body:   exchangeLimit,
			leader: true,
			stream: true,
		},

		// Dead letters.
		{method: get, path: "/v1/dlq", handle: letters.getLetters},
		{method: get, path: "/v1/dlq/errors", handle: letters.getLetterErrors, scan: true},
		{method: get, path: "/v1/dlq/{id}", handle: letters.getLetter},
		{method: post, path: "/v1/dlq/redrive", handle: letters.postRedrive},
		{method: post, path: "/v1/dlq/purge", handle: letters.postPurge},
		{method: post, path: "/v1/dlq/import", handle: letters.postLetterImport, body: eventsLimit},

		// Settings, the catalogue, dedup policies, registered clients.
		{method: get, path: "/v1/settings", handle: settings.getSettings},
		{method: get, path: "/v1/settings/{key}", handle: settings.getSetting},
		{method: put, path: "/v1/settings/{key}", handle: settings.putSetting},
		{method: get, path: "/v1/catalogue", handle: catalogue.getCatalogue},
		{method: post, path: "/v1/catalogue", handle: catalogue.postCatalogue, body: eventsLimit},
		{method: post, path: "/v1/catalogue/validate", handle: catalogue.postCatalogueValidate, body: eventsLimit},
		{method: get, path: "/v1/catalogue/{type}", handle: catalogue.getCatalogueType},
		{method: get, path: "/v1/catalogue/{type}/schema", handle: catalogue.getCatalogueSchema},
		{method: get, path: "/v1/flows", handle: catalogue.getFlows},
		{method: post, path: "/v1/flows", handle: catalogue.postFlows, body: eventsLimit},
		{method: get, path: "/v1/flows/{name}", handle: catalogue.getFlow},
		{method: remove, path: "/v1/flows/{name}", handle: catalogue.deleteFlow},
		{method: get, path: "/v1/dedup/policies", handle: dedup.getPolicies},
		{method: get, path: "/v1/dedup/policies/{type}", handle: dedup.getPolicy},
		{method: put, path: "/v1/dedup/policies/{type}", handle: dedup.putPolicy},
		{method: remove, path: "/v1/dedup/policies/{type}", handle: dedup.deletePolicy},
		{method: get, path: "/asyncapi.json", handle: asyncAPI.getAsyncAPI, scan: true},
		{method: get, path: "/v1/readiness", handle: clients.getReadiness},
		{method: get, path: "/v1/clients", handle: clients.getClients},
		{method: put, path: "/v1/clients/{id}", handle: clients.putClient},
		{method: remove, path: "/v1/clients/{id}", handle: clients.deleteClient},

		// Roles. A call may wait for one.
		{method: get, path: "/v1/roles", handle: roles.getRoles},
		{method: put, path: "/v1/roles", handle: roles.putRoles},
		{method: get, path: "/v1/roles/{role}", handle: roles.getRole},
		{method: put, path: "/v1/roles/{role}", handle: roles.putRole, stream: true},
		{method: remove, path: "/v1/roles/{role}", handle: roles.deleteRole},

		// Events that are published at a time.
		{method: get, path: "/v1/scheduled", handle: schedule.getSchedule},
		{method: get, path: "/v1/scheduled/{id}", handle: schedule.getScheduled},
		{method: put, path: "/v1/scheduled/{id}", handle: schedule.putScheduled},
		{method: remove, path: "/v1/scheduled/{id}", handle: schedule.deleteScheduled},
		// Resources, and allocations of them. A call may wait for one.
		{method: get, path: "/v1/resources", handle: allocations.getResources},
		{method: get, path: "/v1/resources/{resource}", handle: allocations.getResource},
		{method: put, path: "/v1/resources/{resource}", handle: allocations.putResource},
		{method: remove, path: "/v1/resources/{resource}", handle: allocations.deleteResource},
		{method: get, path: "/v1/allocations", handle: allocations.getAllocations},
		{method: put, path: "/v1/allocations", handle: allocations.putAllocations},
		{method: get, path: "/v1/allocations/{allocation}", handle: allocations.getAllocation},
		{method: put, path: "/v1/allocations/{allocation}", handle: allocations.putAllocation, stream: true},
		{method: remove, path: "/v1/allocations/{allocation}", handle: allocations.deleteAllocation},

		// Views.
		{method: get, path: "/v1/views", handle: views.getViews},
		{method: get, path: "/v1/views/{name}", handle: views.getView},
		{method: put, path: "/v1/views/{name}", handle: views.putView},
		{method: remove, path: "/v1/views/{name}", handle: views.deleteView},
		{method: get, path: "/v1/views/{name}/rows", handle: views.getRows},
		{method: get, path: "/v1/views/{name}/watch", handle: views.watchRows, stream: true},

		// Transfers between hosts, and what is where.
		{method: get, path: "/v1/transfers", handle: transfers.getTransfers},
		{method: get, path: "/v1/where", handle: transfers.getHeld},
		{method: get, path: "/v1/where/{name}", handle: transfers.getWhere},

		// Reports that are computed from the log, and from this node's journal of outages.
		{method: get, path: "/v1/audit", handle: reports.getAudit, scan: true},
		{method: post, path: "/v1/audit", handle: reports.postAudit, scan: true, body: sourcesLimit},
		{method: get, path: "/v1/audit/coordinators/{name}", handle: reports.getAuditCoordinator, scan: true},
		{method: get, path: "/v1/chain/{correlation_id}", handle: reports.getChain, scan: true},
		{method: get, path: "/v1/cluster/history", handle: reports.getHistory, scan: true},
		{method: get, path: "/v1/cluster/outage", handle: reports.getOutage, about: true, stream: true},

		// Members. Only the leader changes them.
		{method: get, path: "/v1/members", handle: members.getMembers, about: true},
		{method: post, path: "/v1/members", handle: members.postMember, leader: true},
		{method: remove, path: "/v1/members/{id}", handle: members.deleteMember, leader: true},
		{method: post, path: "/v1/members/{id}/promote", handle: members.postPromote, leader: true},
		{method: post, path: "/v1/members/{id}/demote", handle: members.postDemote, leader: true},
		{method: post, path: "/v1/cluster/step-down", handle: members.postStepDown, leader: true},

		// The node itself. Health checks know no token.
		{method: get, path: "/v1/cluster", handle: status.getCluster, about: true},
		{method: get, path: "/v1/snapshot", handle: status.getSnapshot, stream: true, backup: true},
		{method: get, path: "/status", handle: status.getStatus, about: true},
		{method: get, path: "/healthz", handle: status.getHealth, about: true, access: open},
		{method: get, path: "/readyz", handle: status.getReady, about: true, access: open},
		{method: get, path: "/metrics", handle: status.getMetrics, about: true},
		{method: get, path: "/openapi.json", handle: status.getOpenAPI, about: true},
		{method: get, path: "/{$}", handle: status.getRoot, about: true},

		// The Python package, for pip, which knows no token.
		{method: get, path: pythonIndex + "{$}", handle: getPythonIndex, about: true, access: open},
		{method: get, path: pythonIndex + "{project}/{$}", handle: getPythonProject, about: true, access: open},
		{method: get, path: pythonIndex + "{project}/{file}", handle: getPythonFile, about: true, access: open},

		// The console, which asks for the token itself.
		{method: get, path: consolePath + "{$}", handle: getConsole, about: true, access: open},
		{method: get, path: consolePath + "assets/{file}", handle: getConsoleAsset, about: true, access: open},

		// Connect: the log.
		{path: ringlogv1connect.LogServicePublishProcedure, service: logs, body: publishLimit},
		{path: ringlogv1connect.LogServiceTailProcedure, service: logs, stream: true},
		{path: ringlogv1connect.LogServiceGetEventProcedure, service: logs},
		{path: ringlogv1connect.LogServiceExplainDedupProcedure, service: logs},

		// Connect: cursors and groups.
		{path: ringlogv1connect.CursorServiceCreateCursorProcedure, service: cursorCalls},
		{path: ringlogv1connect.CursorServiceGetCursorProcedure, service: cursorCalls},
		{path: ringlogv1connect.CursorServiceListCursorsProcedure, service: cursorCalls},
		{path: ringlogv1connect.CursorServiceDeleteCursorProcedure, service: cursorCalls},
		{path: ringlogv1connect.CursorServiceOpenCursorProcedure, service: cursorCalls},
		{path: ringlogv1connect.CursorServiceCommitCursorProcedure, service: cursorCalls},
		{path: ringlogv1connect.CursorServiceSeekCursorProcedure, service: cursorCalls},
		{path: ringlogv1connect.CursorServiceDeadLetterProcedure, service: cursorCalls},
		{path: ringlogv1connect.CursorServiceReadCursorProcedure, service: cursorCalls, stream: true},
		{path: ringlogv1connect.GroupServiceCreateGroupProcedure, service: groupCalls},
		{path: ringlogv1connect.GroupServiceExchangeProcedure, service: groupCalls, body: exchangeLimit},

		// Connect: calls of other nodes. By the first two a node finds out what another one is.
		{path: ringlogv1connect.PeerServiceIdentifyProcedure, service: peers, about: true},
		{path: ringlogv1connect.PeerServiceChallengeProcedure, service: peers, about: true, access: open},
		{path: ringlogv1connect.PeerServiceForwardProcedure, service: peers, body: forwardLimit},
		{path: ringlogv1connect.PeerServiceReadIndexProcedure, service: peers},
		{path: ringlogv1connect.PeerServiceJoinProcedure, service: peers},
	}
}
