// Package server answers for one node: the HTTP routes that people and daemons
// call, the Connect services that the Go client and the other nodes call, and
// what monitors ask for, all on one port.
//
// It promises:
//
//   - Both protocols are thin codecs over the operations of package
//     internal/service, so a rule holds on both or on neither.
//
//   - Every error says what failed, where, and what to do: an *api.Error, made of the
//     errors of the packages below in internal/service/errors.go and nowhere else.
//
//   - Nothing a caller sends makes it hold memory without bound or wait without
//     end: bodies, headers, streams and writes to slow readers are limited.
//
//   - A call that only the leader can do is passed on once, never twice.
//
// A request goes through these, in this order:
//
//	serveHTTP      count it, open its hold in memory, bound its body and its writes
//	admission      the cross-site rule
//	callers        who calls: by a token, a certificate, or as another node says
//	mux            the row of the table in routes.go; else 404 or 405
//	admit          the permission that the row needs, then the cluster that is meant
//	handler        refused where the state has diverged, then by the row
//	  operation      HTTP: time, turn, leader, consistency
//	  interceptor    Connect: the message within its bounds; time, streams, errors
//	*Handlers      decode, call package service, encode: one type a subject, http_*.go
//	*Service       the same for Connect: connect*.go
//
// Errors go back the same way and are written by errorWriter, in the form of the protocol. Reads that follow go through
// tailWriter, which both protocols share. A publish stream leaves net/http after its 101 and is served by
// publish_stream.go, within the same bounds.
//
// Calls between nodes use the same port: Peers sends them, peerService answers them, and by proof.go each end proves
// that it has the token before it is sent. What a node passes on carries the name of the caller's token, and is believed
// from a node alone.
//
//	s, err := server.New(server.Config{Node: node, Peers: peers, Logger: logger})
//	go s.Serve(listener)
//	err = s.Close(ctx)
package server
