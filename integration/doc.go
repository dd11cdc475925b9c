// Package integration runs the built ringlog binary as real processes and breaks
// them: kills, pauses, power loss, lost folders, cut-off followers. After each it
// compares what was acknowledged with what every node has.
//
// Its tests hold for any build of the binary; they know nothing of its inside but
// the API.
package integration
