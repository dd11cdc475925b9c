// Package audit reports who emits which event and who subscribes to it: orphan events, dead subscriptions, unknown
// names and spellings that drift apart. It is pure: it knows the catalogue and the evidence that a running cluster
// hands it, and reads nothing.
//
// It promises:
//
//   - Its lists are computed from declarations (Declarations: emitters, the coordinators' own lists, handler index,
//     runbook and architecture tables) and from Evidence (types in the log, filters of cursors, subscriptions of
//     clients). The findings that the platform's own audit recorded have no part in them: they have another type,
//     Recorded, which only Judge reads.
//
//   - Every name is in exactly one class, and the totals add up.
//
//   - A recorded finding is confirmed only if the computed lists have it, contradicted only if a declaration says
//     otherwise, which is then named, and not derivable if nothing but the finding itself supports it.
//
//   - Equal input gives equal bytes in every format.
//
//     report := audit.Run(event.Builtin(), audit.Evidence{})
//     err := report.Write(os.Stdout, audit.Text)
package audit
