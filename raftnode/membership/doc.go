// Package membership changes who the members of a cluster are, and decides who may connect.
//
//   - changes.go: add, promote, demote and remove a member, one change at a time.
//   - records.go: the leader's duty to keep replicated time and the records of the members true.
//   - admission.go: whose connections this node accepts, and whose entries it takes.
//   - autopilot.go, verdict.go, promoter.go, routedraft.go, committrail.go: which members get their vote once they
//     are stable, and which are removed when they are dead, by hashicorp/raft-autopilot.
//
// It promises that a change is refused if without it too few voters would answer, that the log has the reason of a
// change before raft makes it, and that a change which was interrupted is finished by the next leader. An id belongs
// to one data folder: another folder under it has to be removed and added again.
package membership
