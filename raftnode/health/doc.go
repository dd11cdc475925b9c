// Package health finds out how the other members are, and what this voter can say of an outage.
//
// It holds, from the single question to what the log gets to know:
//
//   - report.go: what a node reports of itself when it is asked.
//   - watch.go: the pings. Watch.Absence decides for everybody whether a member is there.
//   - contacts.go: raft's own requests, which are evidence of their own.
//   - terms.go: who led when, as this node saw it.
//   - outagemonitor.go, outagejournal.go: an outage of the quorum as this voter observes it, leader or not.
//   - holdings.go, divergence.go: members whose folders are older copies, and a state that differs.
//   - reporter.go: what a leader proposes of all that to the log.
//
// It promises that nothing of it waits for a disk but OutageMonitor.KeepJournal, so a disk that hangs is
// not taken for the silence of others; and that a pause of this process does not
// count as silence of the others.
package health
