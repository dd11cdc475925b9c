// Package frame is the format of one Raft entry: the commands of many callers,
// with all of their events as one compressed block, and the small columns that
// the state machine needs to decide about them.
//
// It encodes and decodes; it decides nothing. For any input a decoder returns a
// value or an error that wraps [ErrCorrupt] or [ErrUnsupported]: it never panics
// and never allocates out of proportion to its input.
//
// A block is compressed once, by the client or the leader, and travels unchanged:
// Raft log, follower, store, reader.
//
// # The frame
//
//	offset  bytes    field
//	0       2        magic "RL"
//	2       1        version (1)
//	3       4        CRC-32C of everything after it, little endian
//	7       8        time, Unix nanoseconds, little endian
//	15      string   proposer, the node id of the leader that made the frame
//	        uvarint  index of the digest below; 0 when the frame carries none
//	        32       digest of the state at that index (only when index > 0)
//	        uvarint  number of commands, then each:
//	                   1        kind
//	                   uvarint  length of the body
//	                   body     see command.go
//	        uvarint  length of the block header, 0 when the frame has no event
//	        header   see block.go
//	        uvarint  length of the columns
//	        columns  see block.go
//	        uvarint  length of the block body
//	        body     see block.go
//
// A string is a uvarint length and that many bytes. The block has the events of the
// publish commands in the order of the commands.
package frame
