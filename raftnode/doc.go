// Package raftnode drives one node of the cluster: it opens the data folder,
// runs raft over it, turns callers' requests into log entries and returns what
// became of them.
//
// It is the only package that knows hashicorp/raft. It promises:
//
//   - Propose answers success only for what a majority has on disk and this
//     node's state machine has decided. An error that wraps ErrOutcomeUnknown may
//     have been appended; after any other the request was not.
//   - The first entry of a leader's term is applied before anything else of that term is admitted.
//   - ReadBarrier returns once the local state includes everything that was
//     acknowledged, by any node, before the call.
//   - A data folder that was lost, emptied, swapped or damaged does not vote
//     under its old name.
//   - Memory is bounded: past Limits.QueueRequests and QueueBytes requests are refused.
//
// Packages below it hold what needs no Node: membership (changes of members, autopilot), health (how they are),
// roster (who they are), lifetime (until when to wait), batcher (group commit), clock (replicated time), statestore
// (the state as raft sees it), raftstore, rafttransport, datadir, blackbox, and upstream (what exists because of
// hashicorp/raft's issues). Node holds the parts, and only opens, closes and connects them. The parts here:
//
//   - leader.go: what a leader does in its term, from the first entry to stepping down.
//
//   - forming.go, address.go, belonging.go: this node comes into its cluster.
//
//   - handover.go: leadership goes to another.
//
//   - diskguard.go, rollback.go: a full disk, an old folder.
//
//   - recover.go: a cluster that lost its majority.
//
//     n, err := raftnode.Open(ctx, raftnode.Config{ID: "n1", Dir: dir, RaftBind: ":9770",
//     HTTPAdvertise: "n1:8770", BootstrapExpect: 1, Fatal: exit, Logger: logger})
//     result, err := n.Propose(ctx, frame.Request{Command: frame.Publish{Count: batch.Len()}, Batch: &batch})
//     err = n.Close(ctx)
package raftnode
