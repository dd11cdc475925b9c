// Package log is the stored event log: blocks under dense offsets in a Pebble
// database, written by the state machine and read by everybody else.
//
// It promises that an offset names one event for ever, that a reader sees events
// in offset order and that every gap is reported to it, and that a block is
// verified before any event in it is returned.
//
//	for from := first; ; {
//		chunk, err := l.Read(from, &matcher, 1000)
//		…
//		from = chunk.Next
//	}
//
// # Keys and values
//
// An event is in the block with the largest first offset that is not above its own.
//
//	'b' first offset, big endian   the block as readers need it:
//	         1        version: 1, or 2 where the fields marked "2:" follow
//	         4        CRC-32C of what follows, up to the body, little endian
//	         uvarint  live events
//	         uvarint  raft index, then raft term
//	         varint   append time, Unix nanoseconds
//	         bytes    suppressed rows: a bitmap, empty when every row is live
//	         2:
//	         bytes    target: the one cursor that gets its events
//	         uvarint  number of dead letters that it redrives, one for each live event
//	         uvarint  … their ids, in the order of the live events
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
//	         bytes    suppressed rows
//	         rest     columns, as in package frame
//
// A row that was suppressed or refused stays in the block, marked as suppressed; the live rows
// have the offsets first, first+1, and so on. The 'k' value of a trimmed block is kept
// for as long as its keys are in the dedup window.
package log
