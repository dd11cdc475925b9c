// Package election holds the pure decisions about who leads, which voters are
// healthy and what quorum is left. Its state machines are fed with (time,
// observation) and answer with decisions or events; they read no clock and start
// nothing, so the same input gives the same decision.
//
// There are two kinds of them. Leadership and Health are part of the replicated state:
// the log feeds them, and their answers are the same on every node. Detector, PauseClock,
// QuorumTracker, Pace, Pressure and Rivals belong to one node: it feeds them with its own
// observations, and they decide when something has to be reported to the log, or recorded.
//
// Health reports an outage as far as its voters saw it, each by its own clock. It does not
// report an outage that no voter saw, because none ran or none was a voter yet, nor one that is
// proven for less than a second. A leadership of less than a second does not end an outage.
package election
