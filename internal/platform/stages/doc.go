// Package stages follows a run through flows, by its correlation id or by payload fields: which edges it has taken
// and how long each took, which it has skipped, and which are missing next. It is pure: it knows the flows and the
// events it is given, and reads no clock.
//
// It promises:
//
//   - An event takes an edge from the newest earlier event of the edge's cause that has not taken it yet. If its
//     causation id names an event of the chain (by offset, dedup id or content hash), it takes the edge from that one.
//
//   - If no direct cause came before, but one that leads there over other edges did, those edges are skipped. An
//     effect that was appended before its cause is early.
//
//   - Missing next are the edges out of every last stage: a stage from which nothing was taken or skipped since.
//     Conditions in words cannot be evaluated and are shown with their edge. An edge straight back to where the
//     stage was reached from is not expected. If one of several edges was taken, the others may follow and are
//     never overdue.
//
//   - Equal input gives equal bytes in every format.
//
//     chain := stages.Follow(event.Builtin().Flows(), id, events, stages.Options{Now: now})
//     err := chain.Write(os.Stdout, stages.Text)
package stages
