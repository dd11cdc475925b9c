// Package prefetch is what the member of a group holds: the events it was given, and the acks
// and nacks that the group has not confirmed. It has no clock, no lock and no connection.
//
// A Buffer hands events out so that those of one key follow each other. Acks gathers what is
// done with them into batches, sends an unanswered batch again, and tells a group that is
// joined anew what the member holds.
//
//	buffer := prefetch.NewBuffer()
//	acks := prefetch.NewAcks(buffer)
//	buffer.Add(held)                  // of a fetch's answer
//	held := buffer.Next()             // to a handler
//	acks.Ack(held.Offset)             // by the handler
//	acks.BeginSend(request)           // the next call has it
//	acks.EndSend(answer)
package prefetch
