// Package raftnode drives one node of the cluster: it opens the data folder,
// runs raft over it, turns callers' requests into log entries and tells them
// what became of them.
//
// It is the only package that knows hashicorp/raft. It promises:
//
//   - Propose answers success only for what a majority has on disk and this
//     node's state machine has decided. An error that wraps ErrOutcomeUnknown may
//     have been appended; after any other the request was not.
//   - A leader's hello is applied before anything else of its term is let in.
//   - ReadBarrier returns once the local state includes everything that was
//     acknowledged, by any node, before the call.
//   - A data folder that was lost, emptied, swapped or damaged does not vote
//     under its old name.
//   - Memory is bounded: past Limits.QueueRequests and QueueBytes requests are refused.
//
// The parts: proposer (group commit), clock (replicated time), leadership (hello,
// ticks, stepping down), machineAdapter and snapshotStore (raft's view of the
// state), watch (pings: what the other members say of themselves), vigil (what this
// voter sees of an outage), care and pilot (what a leader tells of the voters and does
// about them), and the acts on members, disks and divergence.
//
//	n, err := raftnode.Open(ctx, raftnode.Config{ID: "n1", Dir: dir, RaftBind: ":9770",
//		HTTPAdvertise: "n1:8770", BootstrapExpect: 1, Fatal: exit, Logger: logger})
//	result, err := n.Propose(ctx, frame.Request{Command: frame.Publish{Count: batch.Len()}, Batch: &batch})
//	err = n.Close(ctx)
package raftnode
