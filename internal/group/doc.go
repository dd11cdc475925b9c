// Package group decides which member of a group gets which event: the part of a group
// that one leader keeps in memory. It reads no clock, no log and no network: the same
// input gives the same decisions.
//
// A Coordinator is loaded with what the state machine knows of the group. The caller feeds
// it the group's events in order of their offsets, the calls of its members, and the time.
// It answers with deliveries, with the events that a member has lost, and with what the log
// has to record: ranges of settled events, failed deliveries, dead letters, and the offset
// up to which events may be delivered. It promises:
//
//   - One member at a time holds an event, and none does before the log records that the
//     event may have been delivered.
//
//   - One member holds all held events of a key and received them in order, one at a time,
//     so that nothing it holds waits for anything else that it holds. A member that works
//     ahead receives more of a key. When a delivery fails, the later ones of that key are
//     revoked and redelivered after it, and the member must not have handled them.
//
//   - Nobody acts on what only one coordinator knows, so the next one decides the
//     same: a failed event is redelivered once the log records the failure, a key moves to
//     another member once the log records what its member settled, and the events after a
//     dead one of their key are delivered once its dead letter is stored. A member that
//     joins within a session's time therefore keeps what it holds over a change of leader.
//
//   - A settled event is reported to the log until the log has it; an event that is not
//     settled is redelivered.
//
//   - Memory is bounded by MaxPending events, MaxMembers members, and the errors of their
//     failures.
//
// # Words
//
//	held      delivered to a member that has neither acknowledged nor failed it
//	ack wait  how long a member may hold an event without reporting progress
//	settled   acknowledged, stored as a dead letter, or trimmed: never delivered again
//	parked    deliverable, or redeliverable, but not held: waits for its time or a member
//	pinned    settled by a member that keeps the key until the log has it
//	released  returned unhandled, which does not count as a delivery
//	revoked   taken from its member, since an earlier event of the key failed
//	reserved  the log records that the event may have been delivered
//	committed the offset up to which the log has every event as settled
//	ack batch what one command reports to the log: settled ranges and failed deliveries
//
// The states of one event:
//
//	           reserved           taken            acked        in an ack batch     stored
//	unopened ----------> parked ---------> held ----------> acked ----------> sent -------> done
//	                       ^                 |                ^                 |
//	                       +-----------------+                +-----------------+
//	                  failed, released, revoked               the ack batch failed
//	                                         |
//	                                         +--> dying --> acked
//	                                last delivery failed    its dead letter is stored
//
// The server drives a coordinator like this:
//
//	c := group.New(now, state, policy, firstSession)
//	c.Feed(events, next)                       // what the log holds from c.Next() on
//	m, err := c.Join(now, "worker-1", nil, nil)
//	batch, ok := c.NextAckBatch(1000, false)   // reserve a thousand; propose it …
//	c.AckBatchDone(true)                       // … it is committed
//	deliveries := c.Take(now, m, group.Demand{Events: 1000, Bytes: 1 << 20, Units: 1000}, nil)
//	refused := c.Ack(m, ranges, nil)
package group
