// Package engine drives the coordinators of package group on the node that leads: it feeds them from the
// log, lets time pass, proposes what they report, and does the exchanges of members. Package group has
// the words for all of it.
//
// It promises:
//
//   - An exchange is answered once the log has what it acknowledges and fails. Its error is
//     raftnode.ErrOutcomeUnknown where the log may have it, and an *api.Error of code fenced where the
//     session is over and nothing was recorded by this call.
//
//   - A group is driven in one term and generation. When either ends, all of its sessions end, and the
//     next exchange begins with what the log knows.
//
//   - Where nobody waits for an answer any more, its deliveries are released, and what it would have
//     reported as revoked is reported by the member's next exchange.
//
// Two goroutines belong to each group with members. feedLoop reads the log ahead of what members want.
// commitLoop proposes one ack batch at a time, while the exchanges of all members gather in the next:
//
//	exchange -> Coordinator.Ack, Nack -> the batch that gathers -> commitLoop -> log -> exchange answers
//	log -> feedLoop -> Coordinator.Feed -> Take for the exchanges that wait -> read again for the answer
//
// A liveGroup is a group while this node delivers its events. It has three parts: the groupTerm, which proposes
// and ends the group; the dispatcher, whose lock guards the coordinator and the exchanges that wait for events;
// and the commits, which are the acks that wait for the log.
package engine
