// Package tail reads the log forward for one reader: up to where it ends, or following it as it grows.
//
// It promises:
//
//   - Every event is returned once and in order, or does not pass the reader's filter or meet its condition, or was
//     trimmed and is reported as a gap.
//
//   - A reader that finds nothing gets an empty batch once in a heartbeat, with how far the read has come.
//
//   - A type that is registered while a reader is open reaches it: its filter is compiled against the
//     newest catalogue.
//
// A read looks like this:
//
//	t := tail.New(machine, tail.Options{Filter: filter, Next: 1, Follow: true, …})
//	for {
//		batch, err := t.Read(ctx) // io.EOF after the last one
//	}
package tail
