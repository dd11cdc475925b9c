package server

import (
	"net/http"

	"github.com/ringrift/ringlog/api"
)

// routes lists the HTTP interface, which /openapi.json documents.
func (s *Server) routes() []route {
	return append(s.logRoutes(), s.clusterRoutes()...)
}

// logRoutes are the routes of events and of what reads, describes or configures them. Those of a group's state are
// the leader's, which alone keeps it.
func (s *Server) logRoutes() []route {
	return []route{
		{method: http.MethodPost, path: "/v1/events", handle: s.postEvents},
		{method: http.MethodGet, path: api.LinePath, handle: s.openLine, stream: true},
		{method: http.MethodGet, path: "/v1/events", handle: s.getEvents, stream: true},
		{method: http.MethodGet, path: "/v1/events/{offset}", handle: s.getEvent},
		{method: http.MethodGet, path: "/v1/cursors", handle: s.getCursors},
		{method: http.MethodGet, path: "/v1/cursors/{name}", handle: s.getCursor},
		{method: http.MethodPut, path: "/v1/cursors/{name}", handle: s.putCursor},
		{method: http.MethodPut, path: "/v1/cursors/{name}/filter", handle: s.putCursorFilter},
		{method: http.MethodDelete, path: "/v1/cursors/{name}", handle: s.deleteCursor},
		{method: http.MethodPost, path: "/v1/cursors/{name}/open", handle: s.postCursorOpen},
		{method: http.MethodGet, path: "/v1/cursors/{name}/events", handle: s.getCursorEvents, stream: true},
		{method: http.MethodPost, path: "/v1/cursors/{name}/commit", handle: s.postCursorCommit},
		{method: http.MethodPost, path: "/v1/cursors/{name}/seek", handle: s.postCursorSeek},
		{method: http.MethodPost, path: "/v1/cursors/{name}/deadletter", handle: s.postDeadLetter},
		{method: http.MethodGet, path: "/v1/groups", handle: s.getGroups, leader: true},
		{method: http.MethodGet, path: "/v1/groups/{name}", handle: s.getGroup, leader: true},
		{method: http.MethodPut, path: "/v1/groups/{name}", handle: s.putGroup},
		{method: http.MethodDelete, path: "/v1/groups/{name}", handle: s.deleteGroup},
		{method: http.MethodGet, path: "/v1/groups/{name}/members", handle: s.getGroupMembers, leader: true},
		{method: http.MethodPost, path: "/v1/groups/{name}/exchange", handle: s.postExchange, leader: true, stream: true},
		{method: http.MethodGet, path: "/v1/dlq", handle: s.getLetters},
		{method: http.MethodGet, path: "/v1/dlq/errors", handle: s.getLetterErrors, scan: true},
		{method: http.MethodGet, path: "/v1/dlq/{id}", handle: s.getLetter},
		{method: http.MethodPost, path: "/v1/dlq/redrive", handle: s.postRedrive},
		{method: http.MethodPost, path: "/v1/dlq/purge", handle: s.postPurge},
		{method: http.MethodPost, path: "/v1/dlq/import", handle: s.postLetterImport},
		{method: http.MethodGet, path: "/v1/dedup/{subject}", handle: s.getDedup},
		{method: http.MethodGet, path: "/v1/settings", handle: s.getSettings},
		{method: http.MethodGet, path: "/v1/settings/{key}", handle: s.getSetting},
		{method: http.MethodPut, path: "/v1/settings/{key}", handle: s.putSetting},
		{method: http.MethodPost, path: "/v1/compact", handle: s.postCompact},
		{method: http.MethodGet, path: "/v1/catalogue", handle: s.getCatalogue},
		{method: http.MethodPost, path: "/v1/catalogue", handle: s.postCatalogue},
		{method: http.MethodPost, path: "/v1/catalogue/validate", handle: s.postCatalogueValidate},
		{method: http.MethodGet, path: "/v1/catalogue/{type}", handle: s.getCatalogueType},
		{method: http.MethodGet, path: "/v1/catalogue/{type}/schema", handle: s.getCatalogueSchema},
		{method: http.MethodGet, path: "/v1/clients", handle: s.getClients},
		{method: http.MethodPut, path: "/v1/clients/{id}", handle: s.putClient},
		{method: http.MethodDelete, path: "/v1/clients/{id}", handle: s.deleteClient},
		{method: http.MethodGet, path: "/v1/audit", handle: s.getAudit, scan: true},
		{method: http.MethodGet, path: "/v1/chain/{correlation_id}", handle: s.getChain, scan: true},
		{method: http.MethodGet, path: "/v1/wait", handle: s.getWait, stream: true},
		{method: http.MethodGet, path: "/v1/explain", handle: s.getExplain, scan: true},
	}
}

// clusterRoutes are the routes of members, backups and monitoring. Those that describe the node are answered even
// where its state has diverged.
func (s *Server) clusterRoutes() []route {
	return []route{
		{method: http.MethodGet, path: "/v1/members", handle: s.getMembers, about: true},
		{method: http.MethodPost, path: "/v1/members", handle: s.postMember, leader: true},
		{method: http.MethodDelete, path: "/v1/members/{id}", handle: s.deleteMember, leader: true},
		{method: http.MethodPost, path: "/v1/members/{id}/promote", handle: s.postPromote, leader: true},
		{method: http.MethodPost, path: "/v1/members/{id}/demote", handle: s.postDemote, leader: true},
		{method: http.MethodGet, path: "/v1/cluster", handle: s.getCluster, about: true},
		{method: http.MethodGet, path: "/v1/cluster/history", handle: s.getHistory, scan: true},
		{method: http.MethodGet, path: "/v1/cluster/outage", handle: s.getOutage, about: true, stream: true},
		{method: http.MethodPost, path: "/v1/cluster/step-down", handle: s.postStepDown, leader: true},
		{method: http.MethodGet, path: "/v1/snapshot", handle: s.getSnapshot, stream: true, backup: true},
		{method: http.MethodGet, path: "/status", handle: s.getStatus, about: true},
		{method: http.MethodGet, path: "/healthz", handle: s.getHealth, about: true},
		{method: http.MethodGet, path: "/readyz", handle: s.getReady, about: true},
		{method: http.MethodGet, path: "/metrics", handle: s.getMetrics, about: true},
		{method: http.MethodGet, path: "/openapi.json", handle: s.getOpenAPI, about: true},
		{method: http.MethodGet, path: "/{$}", handle: s.getRoot, about: true},
	}
}

const greeting = `ringlog: a replicated event log.

/status         this node and its cluster
/openapi.json   everything that can be asked for here
/v1/events      POST to publish, GET to read
`

func (s *Server) getRoot(w http.ResponseWriter, _ *http.Request) error {
	return writeBytes(w, http.StatusOK, "text/plain; charset=utf-8", []byte(greeting))
}
