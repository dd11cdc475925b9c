// Package engine folds the views of a cluster on one node, into a database of its own beside the state.
//
// It promises that the rows of a view at an offset are a fold of the log from the view's first offset up to that one,
// whatever was restarted on the way: rows and the offset that they are at are stored in one batch. What the rules of a
// view publish is kept in their order until the state says that it was published.
//
// One goroutine folds all views, some events of each in turn, and writes without a sync: after a crash it resumes from
// what is stored. Only before the log is trimmed must the rows be on the disk, since the events cannot be read again:
// BeforeTrim, which the state machine calls, waits for that.
//
//	e, err := engine.Open(engine.Options{Dir: dir, Fatal: fatal, Compile: compile})
//	machine, err := fsm.Open(fsm.Options{BeforeTrim: e.BeforeTrim, …})
//	e.Start(machine)
//	err = e.Read("elo", func(r *engine.Reader) error { row, found, err := r.Show("hex8_2p"); … })
//
// # Keys and values
//
// A number is the generation of a view, or an offset, as 8 bytes, big endian.
//
//	'm' + generation             what is known of a view (JSON)
//	'r' + generation + key       a row: the offset of its last change (uvarint), its value
//	'o' + generation + offset + number  what a rule publishes for the event at the offset, see frame.EncodeCopy
package engine
