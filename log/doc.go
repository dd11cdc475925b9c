// Package log is the stored event log: blocks under dense offsets in a Pebble
// database, written by the state machine and read by everybody else.
//
// It promises that an offset names one event for ever, that a reader sees events
// in offset order without a gap it is not told of, and that a block is checked
// before anything in it is handed out.
//
//	for from := first; ; {
//		chunk, err := l.Read(from, &matcher, 1000)
//		…
//		from = chunk.Next
//	}
//
// # Keys and values
//
// An event's place is the block with the largest first offset not above it.
//
//	'b' first offset, big endian   the block as readers need it:
//	         1        version: 1, or 2 with what is marked so
//	         4        CRC-32C of what follows, up to the body, little endian
//	         uvarint  live events
//	         uvarint  raft index, then raft term
//	         varint   append time, Unix nanoseconds
//	         bytes    dead rows: a bitmap, empty when every row is live
//	         2:
//	         bytes    target: the cursor that its events are for, and nobody else
//	         uvarint  number of its dead letters, which is that of the live events
//	         uvarint  … each one's id, in the order of the live events
//	         bytes    block header  ┐ as in package frame; the body brings
//	         rest     block body    ┘ a checksum of its own
//
//	'k' first offset, big endian   the block as deduplication and retention need it:
//	         1        version (1)
//	         4        CRC-32C of what follows, little endian
//	         uvarint  live events
//	         uvarint  raft index, then raft term
//	         varint   append time, Unix nanoseconds
//	         uvarint  bytes of all blocks ever stored before this one
//	         uvarint  bytes of this block's 'b' value
//	         uvarint  rows, types and sources of the block
//	         bytes    dead rows
//	         rest     columns, as in package frame
//
// A row that was suppressed or refused stays in the block and is dead; live rows
// have the offsets first, first+1, and so on. The 'k' value outlives a trimmed
// block for as long as its keys are in the dedup window.
package log
