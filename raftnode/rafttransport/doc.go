// Package rafttransport carries raft's RPCs between the voters of one cluster
// over TCP. It is hashicorp/raft's NetworkTransport on a stream layer of its
// own, and promises five things on top of it:
//
//   - No RPC before a handshake. Both sides state cluster, node and
//     incarnation, prove the cluster token where one is set, and ask membership
//     (Options.Admit). A refused side learns why, as a sentinel error that
//     errors.Is finds on either side.
//   - A node whose raft configuration is empty grants no vote: raft itself would
//     grant it to anyone.
//   - Heartbeats are handled by raft's main loop like every other RPC. While the
//     main loop is held up, an equivalent answer is sent instead.
//   - A follower commits only what its leader has proven to be the same in both logs.
//     Raft itself would commit whatever the follower has at those indexes.
//   - Memory and time are bounded for whoever connects: frames, pending handshakes,
//     connections and the record of refusals all have limits.
//
// Without Options.TLS the handshake authenticates who opened a connection; what follows is neither
// encrypted nor authenticated, so the token does not replace a trusted network. With it, a connection is TLS 1.3
// between two nodes of which each has shown the certificate of its own id, and the proofs of the token hold for this
// connection alone.
//
// A request passes these parts, from the node that sends it to the one that answers:
//
//	raft                                          raft's main loop
//	  Transport.AppendEntries …   retries            ^
//	  NetworkTransport            codec, pool        |  Transport.Consumer
//	  stream.Dial                                    |
//	  handshake.dial              once           heartbeat | pump    expire, refuse, trim
//	  conn                        deadlines      NetworkTransport    one goroutine per connection
//	      |                                      conn                deadlines
//	      |                                      handshake.accept    once
//	      +------------------------------------> stream.acceptLoop
//
// The registry of a stream holds every conn with its limits; refusals keeps what was
// refused, for status and logs.
//
//	t, err := rafttransport.New(rafttransport.Options{
//		Bind: "0.0.0.0:9770", Advertise: "n1.lan:9770",
//		Self: node.identity, Admit: members.admit, Resolve: members.at,
//		Configured: node.configured, Covers: node.covers, Secret: token, Logger: logger,
//	})
//	r, err := raft.NewRaft(config, fsm, logs, stable, snapshots, t)
package rafttransport
