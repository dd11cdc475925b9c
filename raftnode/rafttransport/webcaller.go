package rafttransport

import (
	"bytes"
	"fmt"
)

// wrongPort is what a client of HTTP gets that has the raft port as its endpoint: an error in the form of the HTTP
// interface, whose clients take it for a node of another cluster and ask the next one. Code and message are repeated
// for other nodes, which expect an error of Connect.
const wrongPort = `{"code":"failed_precondition","message":"` + wrongPortMessage + `; ` + wrongPortRemedy + `",` +
	`"error":{"code":"other_cluster","reason":"raft_port","field":"endpoints",` +
	`"message":"` + wrongPortMessage + `","remedy":"` + wrongPortRemedy + `"}}` + "\n"

const (
	wrongPortMessage = "this is the raft port of a ringlog node, at which only other nodes call"
	wrongPortRemedy  = "give the port of the node's --http, by default 8770"
)

// isWebRequest reports whether bytes are the first of a request of HTTP.
func isWebRequest(head []byte) bool {
	method, _, found := bytes.Cut(head, []byte(" "))
	return found && len(method) >= len("GET") && bytes.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == nil
}

// answerWeb answers a request of HTTP, which need not have arrived as a whole.
func (h *handshake) answerWeb() {
	_, _ = fmt.Fprintf(h.rw, "HTTP/1.1 421 Misdirected Request\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n\r\n%s", len(wrongPort), wrongPort)
}
