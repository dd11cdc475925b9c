// Package fsm is the deterministic state machine of the replicated log. It applies Raft entries
// and decides which events are duplicates, which offset an event gets, where each cursor is, and
// who leads.
//
// It promises that the same entries give the same answers, the same events and the same stored
// bytes on every node: it reads no clock, no randomness, no local setting and no map order.
// Everything it has decided is stored in one Pebble database. Each entry is one atomic batch,
// which includes the applied index, so a restart resumes exactly where the state is.
//
// commands.go has a row for each command; DESIGN.md says how the decisions work.
//
//	m, err := fsm.Open(fsm.Options{Dir: dir, Fatal: fatal})
//	out, err := m.Apply(index, term, data)
//	events, err := m.Log().Read(1, &matcher, 100)
//
// # One entry
//
// Apply decides an entry with an applier, which consists of parts. Each part has what it alone
// changes; what all of them read and change is the applying that they share.
//
//	decideFrame   time, what is due by it, the term, the commands, the clients' block, redrives
//	complete      the events that the cluster itself emits, trims, the digest
//	commit        one Pebble batch; then readers see the entry, and watches are woken
//
//	publishApplier    which records of the clients' block get offsets, and the dedup policies of types
//	producerApplier   retries of producers, answered from their results
//	cursorApplier     where cursors are, and who holds them
//	groupApplier      what members of groups have settled, and what is redelivered
//	stallApplier      cursors that do not move although something is open
//	letterApplier     dead letters: stored, redriven, resolved, purged
//	trimApplier       which blocks are removed, and what is stored about them
//	lossApplier       what cursors have lost by trims
//	memberApplier     members, terms, the health of the voters, replicated time
//	roleApplier       who holds which role, and who waits for it
//	scheduleApplier   events that are published at a time
//	viewApplier       which views there are, and what of their firings was published
//	tokenApplier      which tokens there are
//	allocationApplier who has how much of which resource, and who waits for it
//	clientApplier     registered clients, and what the leader reports of its queue and of runs
//
// Whoever only reads does so through views, which cannot write.
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
//	'f' + type             a dedup policy that was set (JSON)
//	'j' + type + 0 + offset  the key of an event that the policy has accepted, see policy.go
//	't' + name             an event type added at run time (JSON)
//	'F' + name             a flow added at run time (JSON)
//	'd' + slot             one of the last 1024 digests: index, sum
//	'r' + raft index       the receipts of one entry's suppressed events, see receipts.go
//	'h'                    health of the voters, outages (JSON)
//	'w' + id               whether a member is to have a vote (JSON)
//	'o' + edge of a run    that it was reported as overdue (JSON)
//	'x'                    whether the leader's queue is full (JSON)
//	'u' + id               a client that registered what it listens to (JSON)
//	'L' + id               a client that was lost, see lost_clients.go (JSON)
//	'S' + id               an event that is to be published at a time, or was a moment ago (JSON)
//	'V' + id               the copy of it, until it is published, see package frame
//	'W' + name             a view: its declaration and since when it is there (JSON)
//	'E' + name             up to which offset its firings were published (a number)
//	'T' + name             a token: the digest of its secret and what it is good for (JSON)
//	'R' + name             a role that is held, and the claim of its holder (JSON)
//	'Q' + name + 0 + number  a claim that waits for it (JSON)
//	'C' + name             a resource with its capacity (JSON)
//	'A' + id               an allocation of resources, granted or waiting (JSON)
//	'U' + name             a critical subscription that has no listener since (JSON)
//	'l' + id               a dead letter (JSON)
//	'e' + id               the copy of its event, see package frame
//	'i' …                  dead letters by place, copy, age and origin, see letters.go
//	'g' + name             what a group has settled after its commit: ranges, see package frame
//	'y' + name + 0 + offset  an event of a group whose delivery failed: one retry, see package frame
//	'v'                    the Raft configuration, as Raft encodes it, its members, and the
//	                       clusters that this one was recovered from (JSON)
package fsm
