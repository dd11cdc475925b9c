// Package raftstore holds what raft must never lose: the log of entries, and
// the term and vote. It wraps raft-boltdb so that damage is found before it is
// applied, served or voted with.
//
//	DIR/raft.db       the log
//	DIR/raft.journal  its newest entries, until raft.db has them
//	DIR/stable.db     term and vote, one checked record in a bolt file
//	DIR/tail          the last index that was stored
//
// It promises:
//   - every entry is checked against a CRC-32C over all its fields when read;
//   - a cut, emptied, zeroed or bit-flipped file is a named error, never a
//     panic, a SIGBUS or an empty log;
//   - a vote's term and candidate are written as one (hashicorp/raft#661);
//   - after a write or sync that failed or hung nothing continues: Options.Fatal
//     is called once and every later call fails (hashicorp/raft#503, hashicorp/raft#614);
//   - the log is dense: a crash at any point leaves first..last without holes.
//
// # The log
//
// To raft there is one log. Each part of it knows only the part below:
//
//	checkedLog     seals and checks entries, keeps them dense, caches the newest
//	  journaledLog   makes one log of two files
//	    journal        raft.journal: records, synced once each, of a megabyte in all
//	    boltLog        raft.db: each entry cut into pieces of a page
//
// The files overlap. What the journal holds before the first index that raft.db
// lacks is left over from earlier rounds:
//
//	              first                                      last
//	log             |==========================================|
//	raft.db         |=================================|
//	raft.journal                         - - - - - - -|========|
//	tail                                                       ^
//
// Entries are stored in this order, and the caller is answered after the last step:
//
//  1. a record is appended to the journal and synced; or, where it is too large or
//     the journal is full, raft.db gets it with all that only the journal has, in one
//     transaction, and the journal begins again at its start
//  2. the tail mark is raised, which is not synced
//
// The last entries are deleted in this order, so none comes back after a crash:
//
//  1. the tail mark is lowered and synced
//  2. raft.db gets what only the journal has, and the journal is zeroed
//  3. raft.db deletes them, the newest first
//
// So the tail mark never exceeds what the log has, unless the log lost its end.
//
// A snippet:
//
//	s, err := raftstore.Open(raftstore.Options{Dir: d.Path(datadir.RaftDir), Fatal: exit})
//	err = s.Check(stateIndex, installed) // before anything is dropped
//	dropped, err := s.DropContradicting(stateIndex, stateTerm)
//	raft.NewRaft(conf, fsm, s.Log(), s.Stable(), snaps, trans)
package raftstore
