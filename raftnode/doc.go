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
//   - node.go, open.go, parts.go: open and close; what is opened; which part is given what.
//
//   - propose.go, forwarded.go, readbarrier.go: requests, here and at the leader, and linearizable reads.
//
//   - leader.go, termlog.go: what a leader does in its term, from the first entry to stepping down.
//
//   - forming.go, address.go, belonging.go: this node comes into its cluster.
//
//   - handover.go: leadership goes to another.
//
//   - diskguard.go, rollback.go: a full disk, an old folder.
//
//   - members.go, peers.go: how callers change members; what nodes ask each other.
//
//   - status.go, pressure.go: what the node reports of itself, and to the log when its queue is full.
//
//   - recover.go: a cluster that lost its majority.
//
// # Goroutines
//
// Close joins all of them. Those of start run as long as the node:
//
//	leadership.run       opens and closes the intake; its duties run within one term and are joined before the next
//	watch.Run            pings; each ping has a goroutine of its own, which it joins
//	outages.Run          observes the quorum, without waiting for a disk
//	outages.KeepJournal  writes the journal of outages, and may wait for its disk
//	divergence.Run       compares digests; a hand-over in it may take long
//	joiner               form, join, correct the address; ask whether the folder belongs here
//	barrier.run          one proof of leadership after the other
//	disk.run             free space
//	logLife              reports what becomes of the node in its log
//	raft.Compact, raft.AnnounceCommits, failover: see upstream
//
// Parts have goroutines of their own, which their Close joins: the batcher's two, the transport's connections, the
// election edges, raft itself with the senders of package upstream, the state machine's syncs and watchdog, and views.
//
// # Locks
//
// lifetime.Exclusively is held for seconds: by a change of members, a hand-over, and a round of the records' upkeep.
// Every other lock guards a few fields, and is held briefly. Those that are taken within another are, in this order:
// autopilot's, the watch's, the contacts'; and the outage monitor's, its count of refusals. None is held while a
// function of another part is called that may wait, such as a proposal, a ping or a write to a disk; diskGuard.check
// alone measures and makes the reserve under its own.
//
//	n, err := raftnode.Open(ctx, raftnode.Config{ID: "n1", Dir: dir, RaftBind: ":9770",
//	HTTPAdvertise: "n1:8770", BootstrapExpect: 1, Fatal: exit, Logger: logger})
//	result, err := n.Propose(ctx, frame.Request{Command: frame.Publish{Count: batch.Len()}, Batch: &batch})
//	err = n.Close(ctx)
package raftnode
