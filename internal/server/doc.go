// Package server answers for one node: the HTTP routes that people and daemons
// call, the Connect services that the Go client and the other nodes call, and
// what monitors ask for, all on one port.
//
// It promises:
//
//   - Both protocols are thin codecs over the operations of package
//     internal/service, so that a rule holds on both or on neither.
//
//   - Every error says what failed, where, and what to do: an *api.Error, made of the
//     errors of the packages below in internal/service/errors.go and nowhere else.
//
//   - Nothing a caller sends makes it hold memory without bound or wait without
//     end: bodies, headers, streams and writes to slow readers are limited.
//
//   - A call that only the leader can do is passed on once, never twice.
//
//     s, err := server.New(server.Config{Node: node, Peers: peers, Logger: logger})
//     go s.Serve(listener)
//     err = s.Close(ctx)
package server
