package membership

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	autopilot "github.com/hashicorp/raft-autopilot"
)

// Values of ServerVerdict.DesiredSuffrage.
const (
	DesiredVote   = "vote"
	DesiredNoVote = "no_vote"
)

// AutopilotVerdict is the leader's judgement of the servers.
type AutopilotVerdict struct {
	Healthy          bool            `json:"healthy"`           // all servers are
	FailureTolerance int             `json:"failure_tolerance"` // healthy voters that may fail
	Limiting         []string        `json:"limiting"`          // voters that lower it: "id: why"
	Servers          []ServerVerdict `json:"servers"`           // sorted by id
}

// ServerVerdict is the leader's judgement of one server.
type ServerVerdict struct {
	ID              string    `json:"id"`
	Voter           bool      `json:"voter"`
	Healthy         bool      `json:"healthy"`
	Since           time.Time `json:"since"` // of Healthy, in this leadership
	TrailingEntries uint64    `json:"trailing_entries"`
	// TrailingSeconds is how long ago the first entry was committed that the server has not applied. It counts
	// from this leadership on, so it is too low for an earlier entry.
	TrailingSeconds float64 `json:"trailing_seconds"`
	LastContactMs   int64   `json:"last_contact_ms"`            // -1: it never answered
	DesiredSuffrage string  `json:"desired_suffrage,omitempty"` // DesiredVote or DesiredNoVote; "" if none is recorded
	Why             string  `json:"why,omitempty"`              // it is unhealthy, lacks its desired vote or is kept though dead
}

// Autopilot judges the servers while this node leads, gives stable members their desired vote and, if the setting
// for that is on, removes dead ones.
type Autopilot struct {
	changes *Changes                         // by which every change is made
	verdict atomic.Pointer[AutopilotVerdict] // the newest; nil while this node does not lead
}

// NewAutopilot returns an autopilot that makes its changes by changes, and does nothing before Run.
func NewAutopilot(changes *Changes) *Autopilot { return &Autopilot{changes: changes} }

// Verdict is the newest verdict; false if this node does not lead.
func (a *Autopilot) Verdict() (AutopilotVerdict, bool) {
	// The verdict of a leadership that has just ended is not shown.
	v := a.verdict.Load()
	if v == nil || a.changes.o.Proposals.OpenTerm() == 0 {
		return AutopilotVerdict{}, false
	}
	return *v, true
}

// Run is a leader's duty until ctx ends with its leadership.
//
// The library computes health and decides what to do; every change is made by Changes, which happen one at a time,
// are recorded with their reason, and are refused if this node does not lead.
func (a *Autopilot) Run(ctx context.Context) {
	every := a.changes.o.Timing.Ping
	// Health and absence are judged within this leadership alone: another begins with a new driver.
	p := &autopilotDriver{
		Options: a.changes.o,
		a:       a,
		ctx:     ctx,
		every:   every,
		began:   time.Now(),
		absent:  make(map[string]time.Duration),
	}
	// The library asks for the newest index before it has the first sample made. With an index of 0 it would judge
	// everybody unhealthy, this leader included, until the next interval.
	p.commits.add(p.began, p.Raft.Load().CommitIndex())
	// The library judges at each interval, and promotes or removes at every second one.
	pilot := autopilot.New(routedRaft{p}, p,
		autopilot.WithLogger(a.changes.o.Logger),
		autopilot.WithPromoter(promoter{p}),
		autopilot.WithUpdateInterval(every),
		autopilot.WithReconcileInterval(2*every))
	defer a.verdict.Store(nil)
	pilot.Start(ctx)
	<-ctx.Done()
	// Its goroutines use the driver until then.
	<-pilot.Stop()
}

// autopilotSettings are the replicated settings of autopilot.
type autopilotSettings struct {
	cleanup       bool          // dead servers are removed
	deadAfter     time.Duration // without a sign of a server until it counts as dead
	minVoters     uint64        // that cleanup leaves
	stabilization time.Duration // that a member has to be healthy before it gets its vote
	maxTrailing   uint64        // entries that a healthy server may lack
	lastContact   time.Duration // that a healthy server may be silent
}

// settings returns the settings as of what this node has applied.
func (p *autopilotDriver) settings() autopilotSettings {
	s := p.Machine.Settings()
	return autopilotSettings{
		cleanup:       s.AutopilotCleanup,
		deadAfter:     s.AutopilotDeadAfter,
		minVoters:     s.AutopilotMinVoters,
		stabilization: s.AutopilotStabilization,
		maxTrailing:   s.AutopilotMaxTrailing,
		lastContact:   s.AutopilotLastContact,
	}
}

// autopilotDriver is the library's view of this node in one leadership. The library calls it from two goroutines,
// without a context.
type autopilotDriver struct {
	Options // of Changes: the parts of the node

	a     *Autopilot
	ctx   context.Context // of the leadership
	every time.Duration   // between samples
	began time.Time       // when the leadership did

	mu      sync.Mutex // guards what follows
	commits commitTrail
	sampled time.Time                // when sample was last called
	absent  map[string]time.Duration // how long each was seen to be away, sample by sample
	healthy map[string]bool          // of the newest verdict
}

var _ autopilot.ApplicationIntegration = (*autopilotDriver)(nil)

// AutopilotConfig implements autopilot.ApplicationIntegration.
func (p *autopilotDriver) AutopilotConfig() *autopilot.Config {
	s := p.settings()
	return &autopilot.Config{
		CleanupDeadServers:      s.cleanup,
		LastContactThreshold:    s.lastContact,
		MaxTrailingLogs:         s.maxTrailing,
		MinQuorum:               uint(s.minVoters),
		ServerStabilizationTime: s.stabilization,
	}
}

// nodeNonVoter is the type of those that autopilot does not count as voters.
const nodeNonVoter autopilot.NodeType = "non-voter"

// KnownServers implements autopilot.ApplicationIntegration: exactly raft's
// configuration, so the library sees no stale servers and removes none.
func (p *autopilotDriver) KnownServers() map[raft.ServerID]*autopilot.Server {
	known := make(map[raft.ServerID]*autopilot.Server)
	for _, s := range p.Roster.Servers() {
		// A server without a record yet has no version.
		m, _ := p.Machine.Member(string(s.ID))
		server := &autopilot.Server{
			ID:         s.ID,
			Name:       string(s.ID),
			Address:    s.Address,
			Version:    m.Version,
			NodeStatus: autopilot.NodeFailed,
			NodeType:   nodeNonVoter,
			IsLeader:   string(s.ID) == p.Roster.ID(),
		}
		if s.Suffrage == raft.Voter {
			server.NodeType = autopilot.NodeVoter
		}
		// What a server has applied does not count here: the library judges that by FetchServerStats.
		if l := p.serverStats(string(s.ID)); l.trouble(p) == "" {
			server.NodeStatus = autopilot.NodeAlive
		}
		known[s.ID] = server
	}
	return known
}

// FetchServerStats implements autopilot.ApplicationIntegration. It uses the reports that the pings have collected,
// and waits for none.
func (p *autopilotDriver) FetchServerStats(
	_ context.Context, servers map[raft.ServerID]*autopilot.Server,
) map[raft.ServerID]*autopilot.ServerStats {
	p.sample(time.Now(), servers)
	latest, term := p.latest(), p.Raft.Load().CurrentTerm()
	stats := make(map[raft.ServerID]*autopilot.ServerStats, len(servers))
	for id := range servers {
		l := p.serverStats(string(id))
		// The library judges by the difference to LastIndex of routedRaft, which is latest: so it gets the lag in
		// entries.
		stats[id] = &autopilot.ServerStats{LastContact: l.age, LastTerm: term, LastIndex: latest - min(latest, l.entries)}
	}
	return stats
}

// sample notes the commit index and which servers are absent. Each call adds the time since the last one to their
// absence, but no more than two intervals: a pause of this process is not an absence of others.
func (p *autopilotDriver) sample(now time.Time, servers map[raft.ServerID]*autopilot.Server) {
	threshold := p.settings().lastContact
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commits.add(now, p.Raft.Load().CommitIndex())
	// The first call of a leadership has no sample before it: it counts for two intervals at most, like any other.
	passed := min(now.Sub(p.sampled), 2*p.every)
	p.sampled = now
	for id := range servers {
		_, fresh := p.Watch.Last(string(id))
		// Either pings or raft are enough for a server to count as present.
		if fresh || string(id) == p.Roster.ID() || now.Sub(p.Contacts.Newest(id)) < threshold {
			delete(p.absent, string(id))
		} else {
			p.absent[string(id)] += passed
		}
	}
	// What is known of a server must not count for one that is added later under its id.
	maps.DeleteFunc(p.absent, func(id string, _ time.Duration) bool { return servers[raft.ServerID(id)] == nil })
}

// latest is the newest commit index that was sampled.
func (p *autopilotDriver) latest() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.commits.latest()
}
