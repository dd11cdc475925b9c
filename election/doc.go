// Package election holds the pure decisions about who leads, which voters are
// healthy and what quorum is left. Its state machines are fed with (time,
// observation) and answer with decisions or events; they read no clock and start
// nothing, so that whoever feeds them the same decides the same.
//
// Two kinds stand here. Leadership and Health are part of the replicated state:
// the log feeds them, and what they answer is the same on every node. Detector,
// PauseClock, QuorumTracker and Pace belong to one node: it feeds them with what it sees itself,
// and they say when something is worth telling the others, or writing down.
//
// Health tells of an outage what its voters can testify to, each by its own clock. It
// tells none that no voter saw, because none ran or none was a voter yet; none that is
// proven for less than a second; and a leader of less than a second ends none.
package election
