package raftnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	autopilot "github.com/hashicorp/raft-autopilot"
)

// Why a vote is given or taken, beside causeOperator; recorded before it is.
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
	errNotDead     = errors.New("it is not dead, or can not be spared")
	errNotByItself = errors.New("autopilot does not do this by itself")
)

// AutopilotVerdict is what the leader thinks of the servers.
type AutopilotVerdict struct {
	Healthy          bool            `json:"healthy"`           // all servers are
	FailureTolerance int             `json:"failure_tolerance"` // healthy voters that may fail
	Limiting         []string        `json:"limiting"`          // voters that lower it: "id: why"
	Servers          []ServerVerdict `json:"servers"`           // sorted by id
}

// ServerVerdict is what the leader thinks of one server.
type ServerVerdict struct {
	ID              string    `json:"id"`
	Voter           bool      `json:"voter"`
	Healthy         bool      `json:"healthy"`
	Since           time.Time `json:"since"` // of Healthy, in this leadership
	TrailingEntries uint64    `json:"trailing_entries"`
	// TrailingSeconds is how long ago the first entry was committed that it has not
	// applied; at least that, where it was before this leadership.
	TrailingSeconds float64 `json:"trailing_seconds"`
	LastContactMs   int64   `json:"last_contact_ms"` // -1: never heard of
	Wish            string  `json:"wish,omitempty"`  // WishVote or WishNoVote; "" where none is recorded
	Why             string  `json:"why,omitempty"`   // it is unhealthy, or does not have what it wishes
}

// Autopilot is the newest verdict; false where this node does not lead.
func (n *Node) Autopilot() (AutopilotVerdict, bool) {
	v := n.verdict.Load()
	if v == nil || n.proposer.openTerm() == 0 {
		return AutopilotVerdict{}, false
	}
	return *v, true
}

// pilot gives stable members the vote they wish for and, where that is switched
// on, removes dead ones, until ctx ends with this node's leadership.
//
// The library computes health and what is to be done; every act goes through this
// package's own changes of members, which are one at a time, recorded with their
// reason, and refused where this node does not lead.
func (n *Node) pilot(ctx context.Context) {
	every := n.cfg.Timing.Ping
	p := &pilot{n: n, ctx: ctx, every: every, began: time.Now(), absent: make(map[string]time.Duration)}
	a := autopilot.New(routedRaft{p}, p, autopilot.WithLogger(n.logger), autopilot.WithPromoter(promoter{p}),
		autopilot.WithUpdateInterval(every), autopilot.WithReconcileInterval(2*every))
	defer n.verdict.Store(nil)
	a.Start(ctx)
	<-ctx.Done()
	<-a.Stop()
}

// pilotSettings are the replicated settings of autopilot.
type pilotSettings struct {
	cleanup       bool
	deadAfter     time.Duration
	minVoters     uint64
	stabilization time.Duration
	maxTrailing   uint64
	lastContact   time.Duration
}

func (n *Node) pilotSettings() pilotSettings {
	s := n.machine.Settings()
	return pilotSettings{cleanup: s.AutopilotCleanup, deadAfter: s.AutopilotDeadAfter, minVoters: s.AutopilotMinVoters,
		stabilization: s.AutopilotStabilization, maxTrailing: s.AutopilotMaxTrailing, lastContact: s.AutopilotLastContact}
}

// pilot is autopilot in one leadership: the library's view of this node. The
// library calls it from two goroutines, without a context.
type pilot struct {
	n     *Node
	ctx   context.Context // of the leadership
	every time.Duration   // between looks
	began time.Time

	mu      sync.Mutex
	commits commitTrail
	looked  time.Time
	absent  map[string]time.Duration // how long each was seen to be away, look by look
	healthy map[string]bool          // of the newest verdict
}

var _ autopilot.ApplicationIntegration = (*pilot)(nil)

// AutopilotConfig implements autopilot.ApplicationIntegration.
func (p *pilot) AutopilotConfig() *autopilot.Config {
	s := p.n.pilotSettings()
	return &autopilot.Config{CleanupDeadServers: s.cleanup, LastContactThreshold: s.lastContact, MaxTrailingLogs: s.maxTrailing,
		MinQuorum: uint(s.minVoters), ServerStabilizationTime: s.stabilization}
}

// nodeNonVoter is the type of those that autopilot does not count as voters.
const nodeNonVoter autopilot.NodeType = "non-voter"

// KnownServers implements autopilot.ApplicationIntegration: exactly raft's
// configuration, so that the library sees no stale servers and removes none.
func (p *pilot) KnownServers() map[raft.ServerID]*autopilot.Server {
	known := make(map[raft.ServerID]*autopilot.Server)
	for _, s := range p.n.servers() {
		m, _ := p.n.machine.Member(string(s.ID))
		server := &autopilot.Server{ID: s.ID, Name: string(s.ID), Address: s.Address, Version: m.Version,
			NodeStatus: autopilot.NodeFailed, NodeType: nodeNonVoter, IsLeader: string(s.ID) == p.n.cfg.ID}
		if s.Suffrage == raft.Voter {
			server.NodeType = autopilot.NodeVoter
		}
		if l := p.look(string(s.ID)); l.trouble(p) == "" {
			server.NodeStatus = autopilot.NodeAlive
		}
		known[s.ID] = server
	}
	return known
}

// FetchServerStats implements autopilot.ApplicationIntegration. The pings have
// asked already.
func (p *pilot) FetchServerStats(_ context.Context, servers map[raft.ServerID]*autopilot.Server) map[raft.ServerID]*autopilot.ServerStats {
	p.sample(time.Now(), servers)
	latest, term := p.latest(), p.n.raft.Load().CurrentTerm()
	stats := make(map[raft.ServerID]*autopilot.ServerStats, len(servers))
	for id := range servers {
		l := p.look(string(id))
		stats[id] = &autopilot.ServerStats{LastContact: l.age, LastTerm: term, LastIndex: latest - min(latest, l.entries)}
	}
	return stats
}

// sample notes where the commit index is and who is away. A look counts for two
// at most: while this process stood still, nobody else was away.
func (p *pilot) sample(now time.Time, servers map[raft.ServerID]*autopilot.Server) {
	threshold := p.n.pilotSettings().lastContact
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commits.add(now, p.n.raft.Load().CommitIndex())
	passed := min(now.Sub(p.looked), 2*p.every)
	p.looked = now
	for id := range servers {
		_, fresh := p.n.watch.last(string(id))
		if fresh || string(id) == p.n.cfg.ID || now.Sub(p.n.contacts.newest(id)) < threshold {
			delete(p.absent, string(id))
		} else {
			p.absent[string(id)] += passed
		}
	}
	maps.DeleteFunc(p.absent, func(id string, _ time.Duration) bool { return servers[raft.ServerID(id)] == nil })
}

func (p *pilot) latest() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.commits.latest()
}

// look is what is known of one server now.
type look struct {
	self    bool
	heard   bool
	fresh   bool
	age     time.Duration // of the newest word; -1 if there is none
	since   time.Time     // when that came
	report  Report
	entries uint64 // behind
	behind  time.Duration
}

func (p *pilot) look(id string) look {
	now := time.Now()
	if id == p.n.cfg.ID {
		return look{self: true, heard: true, fresh: true, since: now}
	}
	s, fresh := p.n.watch.last(id)
	l := look{heard: !s.at.IsZero(), fresh: fresh, since: s.at, age: -1, report: s.report}
	if l.heard {
		l.age = now.Sub(s.at)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	asOf := now
	if fresh {
		asOf = s.at // what was committed since, it may have applied since
	}
	if committed := p.commits.at(asOf); committed > s.report.Applied {
		l.entries = committed - s.report.Applied
		l.behind = now.Sub(p.commits.passed(s.report.Applied))
	}
	return l
}

// trouble is why a server counts as failed, whatever it has applied; "" if it
// does not.
func (l look) trouble(p *pilot) string {
	switch {
	case l.self:
		return ""
	case !l.heard:
		return "it has never answered"
	case !l.fresh:
		return fmt.Sprintf("no answer for %.1f s", l.age.Seconds())
	case l.report.Diverged:
		return "its state differs from the majority's"
	case l.report.LeaderID != p.n.cfg.ID && l.since.After(p.began):
		return fmt.Sprintf("it does not follow this leader but %q", l.report.LeaderID)
	}
	return ""
}

// NotifyState implements autopilot.ApplicationIntegration.
func (p *pilot) NotifyState(s *autopilot.State) {
	healthy := make(map[string]bool, len(s.Servers))
	for id, server := range s.Servers {
		healthy[string(id)] = server.Health.Healthy
	}
	p.mu.Lock()
	p.healthy = healthy
	p.mu.Unlock()

	v := AutopilotVerdict{Healthy: s.Healthy, FailureTolerance: s.FailureTolerance, Limiting: []string{}}
	for _, id := range slices.Sorted(maps.Keys(s.Servers)) {
		server := p.verdict(s.Servers[id])
		v.Servers = append(v.Servers, server)
		if server.Voter && !server.Healthy {
			v.Limiting = append(v.Limiting, server.ID+": "+server.Why)
		}
	}
	p.n.verdict.Store(&v)
}

func (p *pilot) verdict(s *autopilot.ServerState) ServerVerdict {
	id := string(s.Server.ID)
	l := p.look(id)
	v := ServerVerdict{ID: id, Voter: s.HasVotingRights(), Healthy: s.Health.Healthy, Since: s.Health.StableSince.UTC(),
		TrailingEntries: l.entries, TrailingSeconds: l.behind.Seconds(), LastContactMs: l.age.Milliseconds()}
	if !l.heard {
		v.LastContactMs = -1
	}
	if wanted, known := p.n.machine.VoteWanted(id); wanted {
		v.Wish = WishVote
	} else if known {
		v.Wish = WishNoVote
	}
	v.Why = p.why(v, l)
	return v
}

// why says what keeps a server from being healthy, from its vote, or in the
// cluster although it is dead.
func (p *pilot) why(v ServerVerdict, l look) string {
	s := p.n.pilotSettings()
	var why []string
	if trouble := l.trouble(p); trouble != "" {
		why = append(why, trouble)
	} else if l.age > s.lastContact {
		why = append(why, fmt.Sprintf("no answer for %.1f s", l.age.Seconds()))
	}
	if l.entries > s.maxTrailing {
		why = append(why, fmt.Sprintf("trails by %d entries", l.entries))
	}
	if !v.Healthy && len(why) == 0 {
		why = append(why, "it was unhealthy a moment ago")
	}
	if v.Healthy && !v.Voter && v.Wish == WishVote {
		if voters := len(votersOf(p.n.servers())); voters >= maxVoters {
			why = append(why, fmt.Sprintf("there are %d voters already", voters))
		} else if stable := time.Since(v.Since); stable < s.stabilization {
			why = append(why, fmt.Sprintf("stable for %.0f s of %.0f s", stable.Seconds(), s.stabilization.Seconds()))
		}
	}
	if s.cleanup && p.dead(v.ID) && !p.spared(v.ID) {
		why = append(why, "dead, and kept: the cluster needs it for its quorum or its least number of voters")
	}
	return strings.Join(why, "; ")
}

// dead reports a server of which there was no sign for so long that it may be
// removed. What this node remembers from before it led counts, once it has looked
// for the stabilization time itself.
func (p *pilot) dead(id string) bool {
	s := p.n.pilotSettings()
	seen, _ := p.n.watch.last(id)
	sign := seen.at
	if contact := p.n.contacts.newest(raft.ServerID(id)); contact.After(sign) {
		sign = contact
	}
	if sign.IsZero() {
		sign = p.began
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	away := p.absent[id]
	return away > 0 && away >= min(s.deadAfter, s.stabilization) && time.Since(sign) > s.deadAfter
}

// spared reports whether the cluster can do without a server now.
func (p *pilot) spared(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return canSpare(id, votersOf(p.n.servers()), p.healthy, int(p.n.pilotSettings().minVoters))
}

// canSpare reports whether enough voters, and a quorum of healthy ones, are left
// without id. A non-voter can always be spared.
func canSpare(id string, voters []string, healthy map[string]bool, minVoters int) bool {
	if !slices.Contains(voters, id) {
		return true
	}
	rest, well := 0, 0
	for _, v := range voters {
		if v == id {
			continue
		}
		rest++
		if healthy[v] {
			well++
		}
	}
	return rest >= minVoters && well > rest/2
}

// RemoveFailedServer implements autopilot.ApplicationIntegration. What it was
// decided on is looked at again once no other change is under way.
func (p *pilot) RemoveFailedServer(s *autopilot.Server) {
	id := string(s.ID)
	_, err := p.n.remove(p.ctx, id, reasonDead, func() error {
		if !p.dead(id) || !p.spared(id) {
			return errNotDead
		}
		return nil
	})
	if err == nil {
		p.n.logger.Info("removed a dead server", "id", id)
	} else if p.ctx.Err() == nil {
		p.n.logger.Warn("removing a dead server", "error", err)
	}
}

// finishJoin gives a member the vote it still wishes for.
func (p *pilot) finishJoin(id string) error {
	ctx, cancel := context.WithTimeout(p.ctx, 2*p.n.cfg.Timing.Election)
	defer cancel()
	_, err := p.n.promoteIf(ctx, id, false, reasonJoin, func() error {
		if wanted, _ := p.n.machine.VoteWanted(id); !wanted {
			return errNotWished
		}
		return nil
	})
	return err
}

// promoter decides for the library who gets a vote and who is removed. The
// library's own one gives every non-voter a vote, and without waiting for it to be
// stable in the first moments of a leadership.
type promoter struct{ *pilot }

var _ autopilot.Promoter = promoter{}

// CalculatePromotionsAndDemotions implements autopilot.Promoter.
func (p promoter) CalculatePromotionsAndDemotions(c *autopilot.Config, s *autopilot.State) (changes autopilot.RaftChanges) {
	now := time.Now()
	for _, id := range slices.Sorted(maps.Keys(s.Servers)) {
		server := s.Servers[id]
		wanted, _ := p.n.machine.VoteWanted(string(id))
		if wanted && server.State == autopilot.RaftNonVoter && server.Health.IsStable(now, c.ServerStabilizationTime) &&
			len(s.Voters)+len(changes.Promotions) < maxVoters {
			changes.Promotions = append(changes.Promotions, id)
		}
	}
	return changes
}

// FilterFailedServerRemovals implements autopilot.Promoter: one at a time, and
// none that is only unhealthy.
func (p promoter) FilterFailedServerRemovals(_ *autopilot.Config, _ *autopilot.State, failed *autopilot.FailedServers) *autopilot.FailedServers {
	mayGo := func(s *autopilot.Server) bool { return p.dead(string(s.ID)) && p.spared(string(s.ID)) }
	if i := slices.IndexFunc(failed.FailedNonVoters, mayGo); i >= 0 {
		return &autopilot.FailedServers{FailedNonVoters: failed.FailedNonVoters[i : i+1]}
	}
	if i := slices.IndexFunc(failed.FailedVoters, mayGo); i >= 0 {
		return &autopilot.FailedServers{FailedVoters: failed.FailedVoters[i : i+1]}
	}
	return &autopilot.FailedServers{}
}

// GetServerExt implements autopilot.Promoter.
func (promoter) GetServerExt(*autopilot.Config, *autopilot.ServerState) any { return nil }

// GetStateExt implements autopilot.Promoter.
func (promoter) GetStateExt(*autopilot.Config, *autopilot.State) any { return nil }

// GetNodeTypes implements autopilot.Promoter; KnownServers has told them.
func (promoter) GetNodeTypes(*autopilot.Config, *autopilot.State) map[raft.ServerID]autopilot.NodeType {
	return nil
}

// IsPotentialVoter implements autopilot.Promoter.
func (promoter) IsPotentialVoter(t autopilot.NodeType) bool { return t == autopilot.NodeVoter }

// routedRaft is raft as autopilot sees it: what changes members is done by the
// node, or refused.
type routedRaft struct{ *pilot }

var _ autopilot.Raft = routedRaft{}

// AddVoter implements autopilot.Raft; it returns when it is done.
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

// LastIndex implements autopilot.Raft: what others are measured by.
func (r routedRaft) LastIndex() uint64 { return r.latest() }

// Leader implements autopilot.Raft.
func (r routedRaft) Leader() raft.ServerAddress {
	addr, _ := r.n.raft.Load().LeaderWithID()
	return addr
}

// GetConfiguration implements autopilot.Raft.
func (r routedRaft) GetConfiguration() raft.ConfigurationFuture {
	return r.n.raft.Load().GetConfiguration()
}

// State implements autopilot.Raft.
func (r routedRaft) State() raft.RaftState { return r.n.raft.Load().State() }

// Stats implements autopilot.Raft, as far as the library asks: a leader's log ends
// in its own term.
func (r routedRaft) Stats() map[string]string {
	return map[string]string{"last_log_term": strconv.FormatUint(r.n.raft.Load().CurrentTerm(), 10)}
}

// ended is a future that is over.
type ended struct{ err error }

// Error implements raft.Future.
func (e ended) Error() error { return e.err }

// Index implements raft.IndexFuture; nobody asks.
func (ended) Index() uint64 { return 0 }

// newest is when the newest answered request to a member was sent; zero if none
// was.
func (c *contacts) newest(id raft.ServerID) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[id].at
}

const keptCommits = 256

// commitTrail remembers where the commit index was when, the coarser the longer
// ago: to a few percent of the age.
type commitTrail struct {
	points []commitPoint // both rising
}

type commitPoint struct {
	at    time.Time
	index uint64
}

func (t *commitTrail) add(at time.Time, index uint64) {
	if index <= t.latest() {
		return
	}
	t.points = append(t.points, commitPoint{at, index})
	if len(t.points) > keptCommits {
		i := t.leastMissed(at)
		t.points = slices.Delete(t.points, i, i+1)
	}
}

// leastMissed is the point without which the gap is smallest for its age.
func (t *commitTrail) leastMissed(now time.Time) int {
	least, smallest := 0, math.Inf(1)
	for i := 1; i < len(t.points)-1; i++ {
		gap := float64(t.points[i+1].at.Sub(t.points[i-1].at)) / float64(now.Sub(t.points[i].at))
		if gap < smallest {
			least, smallest = i, gap
		}
	}
	return least
}

func (t *commitTrail) latest() uint64 {
	if len(t.points) == 0 {
		return 0
	}
	return t.points[len(t.points)-1].index
}

// at is what was committed at a time, as far as it is remembered.
func (t *commitTrail) at(when time.Time) uint64 {
	i, found := slices.BinarySearchFunc(t.points, when, func(p commitPoint, when time.Time) int { return p.at.Compare(when) })
	switch {
	case len(t.points) == 0:
		return 0
	case found || i == 0:
		return t.points[i].index
	}
	return t.points[i-1].index
}

// passed is when the commit index was first seen above index, which is below
// latest.
func (t *commitTrail) passed(index uint64) time.Time {
	i, _ := slices.BinarySearchFunc(t.points, index+1, func(p commitPoint, index uint64) int { return cmp.Compare(p.index, index) })
	return t.points[i].at
}
