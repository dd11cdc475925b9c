// Package certs makes certificates of a private CA, reads those of a node or a client from files, and says who a
// certificate is of. It knows neither raft nor HTTP.
//
// Who a certificate is of is one URI in its subject alternative name:
//
//	ringlog://node/<id>      a member of the cluster, by its node id
//	ringlog://client/<name>  somebody who calls the cluster
//
// Between nodes this is what counts, and not the host names: a node may move, and must not be taken for another one.
// A client's certificate is none of a node's, whoever has signed both.
//
//	ca, err := certs.NewCA("ringlog", 10*365*24*time.Hour)
//	n1 := certs.Identity{Kind: certs.Node, Name: "n1"}
//	pair, err := ca.Issue(certs.Request{Identity: n1, Hosts: hosts, Valid: year})
//
//	files := certs.Files{Cert: "node-n1.pem", Key: "node-n1-key.pem", CA: "ca.pem"}
//	store, err := certs.Open(files, certs.ForNode("n1"))
//	listener = tls.NewListener(listener, store.ServerConfig())
//	changed, err := store.Reload() // connections that are open stay as they are
package certs
