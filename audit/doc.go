// Package audit tells who emits what and who listens to it: orphan events, dead
// subscriptions, unknown names and spellings that drift apart. It is pure: it knows
// the catalogue and what it is handed of a running cluster, and reads nothing.
//
// It promises:
//
//   - Its lists are computed from what is declared (Declarations: who emits, the
//     coordinators' own lists, handler index, runbook and architecture tables) and from
//     Evidence (types in the log, filters of cursors, subscriptions of clients). The
//     findings that the platform's own audit recorded have no part in that: they are
//     of another type, Recorded, which only Judge reads.
//
//   - Every name is in exactly one class, and the totals add up.
//
//   - A recorded finding is confirmed only where the computed lists have it,
//     contradicted only where a declaration says otherwise, which is then named, and
//     not derivable where what it rests on stands in the finding alone.
//
//   - Equal input gives equal bytes in every format.
//
//     report := audit.Run(event.Builtin(), audit.Evidence{})
//     err := report.Write(os.Stdout, audit.Text)
package audit
