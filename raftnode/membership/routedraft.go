package membership

import (
	"strconv"
	"time"

	"github.com/hashicorp/raft"
	autopilot "github.com/hashicorp/raft-autopilot"
)

// routedRaft is raft as autopilot sees it. The node makes the changes of members that autopilot may make, and the
// others are refused.
type routedRaft struct{ *autopilotDriver }

var _ autopilot.Raft = routedRaft{}

// AddVoter implements autopilot.Raft. It blocks until the member has its vote or is refused it.
func (r routedRaft) AddVoter(id raft.ServerID, _ raft.ServerAddress, _ uint64, _ time.Duration) raft.IndexFuture {
	return ended{r.finishJoin(string(id))}
}

// AddNonvoter implements autopilot.Raft.
func (routedRaft) AddNonvoter(raft.ServerID, raft.ServerAddress, uint64, time.Duration) raft.IndexFuture {
	return ended{errNotByItself}
}

// DemoteVoter implements autopilot.Raft.
func (routedRaft) DemoteVoter(raft.ServerID, uint64, time.Duration) raft.IndexFuture {
	return ended{errNotByItself}
}

// RemoveServer implements autopilot.Raft.
func (routedRaft) RemoveServer(raft.ServerID, uint64, time.Duration) raft.IndexFuture {
	return ended{errNotByItself}
}

// LeadershipTransferToServer implements autopilot.Raft.
func (routedRaft) LeadershipTransferToServer(raft.ServerID, raft.ServerAddress) raft.Future {
	return ended{errNotByItself}
}

// LastIndex implements autopilot.Raft: the newest commit index sampled, by which the lag of others is measured.
func (r routedRaft) LastIndex() uint64 { return r.latest() }

// Leader implements autopilot.Raft.
func (r routedRaft) Leader() raft.ServerAddress {
	addr, _ := r.Raft.Load().LeaderWithID()
	return addr
}

// GetConfiguration implements autopilot.Raft.
func (r routedRaft) GetConfiguration() raft.ConfigurationFuture {
	return r.Raft.Load().GetConfiguration()
}

// State implements autopilot.Raft.
func (r routedRaft) State() raft.RaftState { return r.Raft.Load().State() }

// Stats implements autopilot.Raft, as far as the library asks: a leader's log ends
// in its own term.
func (r routedRaft) Stats() map[string]string {
	return map[string]string{"last_log_term": strconv.FormatUint(r.Raft.Load().CurrentTerm(), 10)}
}

// ended is a future that is over.
type ended struct{ err error }

// Error implements raft.Future.
func (e ended) Error() error { return e.err }

// Index implements raft.IndexFuture; nobody asks.
func (ended) Index() uint64 { return 0 }
