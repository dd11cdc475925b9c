// Package groups decides which member of a group gets which event: the part of a group
// that one leader keeps in memory. It reads no clock, no log and no network: whoever
// feeds it the same decides the same.
//
// A Coordinator is loaded with what the state machine knows of the group, fed with the
// group's events in order of their offsets, with what its members say, and with the
// time. It answers with deliveries, with what a member has lost, and with what is to be
// put into the log: ranges that are settled, deliveries that failed, dead letters, and up
// to where events may be handed out. It promises:
//
//   - An event is held by one member at a time, and by none before the log holds that it
//     may have been handed out.
//
//   - Events of one key that are held are held by one member, which got them in order: one
//     at a time, so that nothing it holds has to wait for anything else that it holds. A
//     member that works ahead gets more of a key. When a delivery fails, the later ones of
//     that key are revoked and follow it again, and the member must not have handled them.
//
//   - What a coordinator does not know of the one before it, nobody else has acted on: a
//     failed event is handed out again once the log has that it failed, a key goes to
//     another member once the log has what its member settled, and what follows a dead
//     event in its key is handed out once the letter is stored. So each member keeps what
//     it holds over a change of leader, if it joins within a session's time.
//
//   - What is settled is told to the log until the log has it; an event that is not
//     settled is handed out again.
//
//   - Memory is bounded by MaxPending events, MaxMembers members, and the words of their
//     failures.
//
// The way of one event through its states:
//
//	           reserved           taken            acked          in a settle       stored
//	unopened ----------> parked ---------> held ----------> acked ----------> sent -------> done
//	                       ^                 |                ^                 |
//	                       +-----------------+                +-----------------+
//	                  failed, released, revoked              the settle has failed
//	                                         |
//	                                         +--> dying --> acked
//	                                 its last delivery   its letter is stored
//
// The server drives one like this:
//
//	c := groups.New(now, state, policy, firstSession)
//	c.Feed(events, next)                       // what the log holds from c.Next() on
//	m, err := c.Join(now, "worker-1", nil, nil)
//	batch, ok := c.NextAckBatch(1000, false)   // reserve a thousand; propose it …
//	c.AckBatchDone(true)                       // … it is committed
//	deliveries := c.Take(now, m, groups.Demand{Events: 1000, Bytes: 1 << 20, Units: 1000}, nil)
//	refused := c.Ack(m, ranges, nil)
package groups
