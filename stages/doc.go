// Package stages follows a run through the documented flows by its correlation id: which
// edges it has taken and how long each took, which it has skipped, and what is missing
// next. It is pure: it knows the flows and the events it is handed, and reads no clock.
//
// It promises:
//
//   - An event takes an edge from the newest earlier event of the edge's cause that has not
//     taken it yet; where its causation id names an event of the chain (by offset,
//     dedup id or content hash), from that one.
//
//   - Where no direct cause came before, but one that leads there over other edges did,
//     these are skipped. An effect that was appended before its cause is early.
//
//   - Missing next are the edges out of every last stage: one from which nothing was taken
//     or skipped since. Conditions in words can not be judged and are shown with their edge;
//     an edge straight back to where the stage was reached from is not expected. Where
//     one of several edges was taken the others may follow, and are never overdue.
//
//   - Equal input gives equal bytes in every format.
//
//     chain := stages.Follow(event.Builtin().Flows(), id, events, stages.Options{Now: now})
//     err := chain.Write(os.Stdout, stages.Text)
package stages
