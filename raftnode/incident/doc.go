// Package incident takes a slice of a node's past out of its data folder, and replays it elsewhere: the state as it was
// after any entry of the slice.
//
// An incident is a snapshot, as package snapshots has it, of the state before the slice, with one file more: the
// entries of raft's log that follow. What is replayed is the state machine itself, so that everything is as it was: the
// cursors, the members, the leader, the settings, the dead letters. It promises that nothing of the node that an
// incident is taken of is written to or waited for, and that a slice from which something is missing is refused.
//
//	gathered, err := incident.Gather(ctx, scratch, source, from, to)
//	err = gathered.Write(ctx, file)
//	replay, err := incident.Open(ctx, file, folder, incident.Options{})
//	err = replay.To(ctx, 4711)
//	replay.Machine().Cursors()
//
// # The file of the entries
//
// Its checksum is that of the snapshot. Integers are little endian.
//
//	each entry, in the order of their indexes, without a hole:
//	0       8      index
//	8       8      term
//	16      1      type, as raft numbers it
//	17      4      length of the data
//	21      n      data
package incident
