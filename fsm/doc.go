// Package fsm is the deterministic state machine of the replicated log. It applies Raft entries
// and decides which events are duplicates, which offset an event gets, where each cursor is, and
// who leads.
//
// It promises that the same entries give the same answers, the same events and the same stored
// bytes on every node: it reads no clock, no randomness, no local setting and no map order.
// Everything it has decided is stored in one Pebble database. Each entry is one atomic batch,
// which includes the applied index, so that a restart resumes exactly where the state is.
//
// commands.go has a row for each command; DESIGN.md says how the decisions work.
//
//	m, err := fsm.Open(fsm.Options{Dir: dir, Fatal: fatal})
//	out, err := m.Apply(index, term, data)
//	events, err := m.Log().Read(1, &matcher, 100)
//
// # Keys and values
//
//	'm'                    meta: applied index, term, time, bounds, digest … (JSON)
//	'b' 'k' + offset       the event log, see package log
//	'c' + name             what a cursor is (JSON)
//	'a' + name             where it is, see cursor_store.go
//	'z' + offset           what was trimmed from there on, see losses.go
//	's' + key              a setting that was changed (its text)
//	'p' + id               a producer (JSON)
//	'q' + id + 0 + slot    one of a producer's last 64 results, see stored_result.go
//	'n' + id               a member (JSON)
//	't' + name             an event type added at run time (JSON)
//	'd' + slot             one of the last 1024 digests: index, sum
//	'r' + raft index       the receipts of one entry's suppressed events, see receipts.go
//	'h'                    health of the voters, outages (JSON)
//	'w' + id               whether a member is to have a vote (JSON)
//	'o' + edge of a run    that it was reported as overdue (JSON)
//	'x'                    whether the leader's queue is full (JSON)
//	'u' + id               a client that registered what it listens to (JSON)
//	'l' + id               a dead letter (JSON)
//	'e' + id               the copy of its event, see package frame
//	'i' …                  dead letters by place, copy, age and origin, see letters.go
//	'g' + name             what a group has settled after its commit: ranges, see package frame
//	'y' + name + 0 + offset  an event of a group whose delivery failed: one retry, see package frame
//	'v'                    the Raft configuration, as Raft encodes it, its members, and the
//	                       clusters that this one was recovered from (JSON)
package fsm
