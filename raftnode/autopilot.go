package raftnode

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	autopilot "github.com/hashicorp/raft-autopilot"
)

// Reasons for which a vote is given or taken, with causeOperator. The log has the reason before raft makes the change.
const (
	reasonJoin    = "join"
	reasonRemoved = "removed"
	reasonDead    = "dead_server"
)

// Values of ServerVerdict.Wish.
const (
	WishVote   = "vote"
	WishNoVote = "no_vote"
)

var (
	errNotWished   = errors.New("it is not to have a vote")
	errNotDead     = errors.New("it is not dead, or the cluster cannot do without it")
	errNotByItself = errors.New("autopilot does not do this by itself")
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
	// from this leadership on, so that it is too low for an earlier entry.
	TrailingSeconds float64 `json:"trailing_seconds"`
	LastContactMs   int64   `json:"last_contact_ms"` // -1: it never answered
	Wish            string  `json:"wish,omitempty"`  // WishVote or WishNoVote; "" where none is recorded
	Why             string  `json:"why,omitempty"`   // it is unhealthy, lacks its desired vote or is kept though dead
}

// Autopilot is the newest verdict; false where this node does not lead.
func (n *Node) Autopilot() (AutopilotVerdict, bool) {
	v := n.verdict.Load()
	if v == nil || n.proposer.OpenTerm() == 0 {
		return AutopilotVerdict{}, false
	}
	return *v, true
}

// runAutopilot gives stable members their desired vote and, if the setting for that is on, removes dead ones, until
// ctx ends with this node's leadership.
//
// The library computes health and decides what to do; every change is made by this package's own changes of members,
// which happen one at a time, are recorded with their reason, and are refused if this node does not lead.
func (n *Node) runAutopilot(ctx context.Context) {
	every := n.cfg.Timing.Ping
	p := &autopilotDriver{n: n, ctx: ctx, every: every, began: time.Now(), absent: make(map[string]time.Duration)}
	a := autopilot.New(routedRaft{p}, p, autopilot.WithLogger(n.logger), autopilot.WithPromoter(promoter{p}),
		autopilot.WithUpdateInterval(every), autopilot.WithReconcileInterval(2*every))
	defer n.verdict.Store(nil)
	a.Start(ctx)
	<-ctx.Done()
	<-a.Stop()
}

// autopilotSettings are the replicated settings of autopilot.
type autopilotSettings struct {
	cleanup       bool
	deadAfter     time.Duration
	minVoters     uint64
	stabilization time.Duration
	maxTrailing   uint64
	lastContact   time.Duration
}

func (n *Node) autopilotSettings() autopilotSettings {
	s := n.machine.Settings()
	return autopilotSettings{cleanup: s.AutopilotCleanup, deadAfter: s.AutopilotDeadAfter, minVoters: s.AutopilotMinVoters,
		stabilization: s.AutopilotStabilization, maxTrailing: s.AutopilotMaxTrailing, lastContact: s.AutopilotLastContact}
}

// autopilotDriver is the library's view of this node in one leadership. The library calls it from two goroutines,
// without a context.
type autopilotDriver struct {
	n     *Node
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
	s := p.n.autopilotSettings()
	return &autopilot.Config{CleanupDeadServers: s.cleanup, LastContactThreshold: s.lastContact, MaxTrailingLogs: s.maxTrailing,
		MinQuorum: uint(s.minVoters), ServerStabilizationTime: s.stabilization}
}

// nodeNonVoter is the type of those that autopilot does not count as voters.
const nodeNonVoter autopilot.NodeType = "non-voter"

// KnownServers implements autopilot.ApplicationIntegration: exactly raft's
// configuration, so that the library sees no stale servers and removes none.
func (p *autopilotDriver) KnownServers() map[raft.ServerID]*autopilot.Server {
	known := make(map[raft.ServerID]*autopilot.Server)
	for _, s := range p.n.roster.Servers() {
		m, _ := p.n.machine.Member(string(s.ID))
		server := &autopilot.Server{ID: s.ID, Name: string(s.ID), Address: s.Address, Version: m.Version,
			NodeStatus: autopilot.NodeFailed, NodeType: nodeNonVoter, IsLeader: string(s.ID) == p.n.cfg.ID}
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
func (p *autopilotDriver) FetchServerStats(_ context.Context, servers map[raft.ServerID]*autopilot.Server) map[raft.ServerID]*autopilot.ServerStats {
	p.sample(time.Now(), servers)
	latest, term := p.latest(), p.n.raft.Load().CurrentTerm()
	stats := make(map[raft.ServerID]*autopilot.ServerStats, len(servers))
	for id := range servers {
		l := p.serverStats(string(id))
		stats[id] = &autopilot.ServerStats{LastContact: l.age, LastTerm: term, LastIndex: latest - min(latest, l.entries)}
	}
	return stats
}

// sample notes the commit index and which servers are absent. Each call adds the time since the last one to their
// absence, but no more than two intervals: a pause of this process is no absence of others.
func (p *autopilotDriver) sample(now time.Time, servers map[raft.ServerID]*autopilot.Server) {
	threshold := p.n.autopilotSettings().lastContact
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commits.add(now, p.n.raft.Load().CommitIndex())
	passed := min(now.Sub(p.sampled), 2*p.every)
	p.sampled = now
	for id := range servers {
		_, fresh := p.n.watch.Last(string(id))
		// Either pings or raft are enough for a server to be there.
		if fresh || string(id) == p.n.cfg.ID || now.Sub(p.n.contacts.Newest(id)) < threshold {
			delete(p.absent, string(id))
		} else {
			p.absent[string(id)] += passed
		}
	}
	maps.DeleteFunc(p.absent, func(id string, _ time.Duration) bool { return servers[raft.ServerID(id)] == nil })
}

// latest is the newest commit index that was sampled.
func (p *autopilotDriver) latest() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.commits.latest()
}
