package raftnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/health"
	"github.com/ringrift/ringlog/raftnode/quietlog"
	"github.com/ringrift/ringlog/raftnode/roster"
	"github.com/ringrift/ringlog/raftnode/upstream"
)

const (
	formEvery   = 200 * time.Millisecond // between rounds of bootstrap, and at first between attempts to join
	identifyFor = time.Second            // bound of asking other nodes who they are
	joinFor     = time.Minute            // one attempt, catching up included
	joinBackoff = 10 * time.Second       // most between attempts to join
)

// joiner brings this node into its cluster and keeps it there: it forms a cluster with others or joins one, asks for
// its address to be recorded if that has changed, and ends the node if its data folder belongs to another cluster.
type joiner struct {
	cfg     *Config // not changed
	raft    *upstream.Raft
	roster  *roster.Roster
	machine *fsm.Machine
	dir     *datadir.Dir // its marker has the set that this node has settled on
	watch   *health.Watch
	logger  hclog.Logger

	forming forming     // how far this node has come while no cluster is formed
	refused refused     // why the cluster last refused to admit this node
	removed atomic.Bool // members that have a leader do not list this node
}

// forming has the nodes that this node would form a cluster with: Report states them.
type forming struct {
	mu      sync.Mutex
	known   []datadir.Peer // sorted by id, itself included
	waiting []string       // the URLs that this node waits for, each with the reason
}

// set replaces the lists, which must not be changed afterwards, and reports whether they are others than before.
func (f *forming) set(known []datadir.Peer, waiting []string) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed = !slices.Equal(f.known, known) || !slices.Equal(f.waiting, waiting)
	f.known, f.waiting = known, waiting
	return changed
}

// peers returns a copy of the nodes known.
func (f *forming) peers() []datadir.Peer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.known)
}

// NotFormedError is the ErrNoLeader of a node that is not in a cluster yet.
type NotFormedError struct {
	Expect  int      // how many voters form the cluster; 0 for a node that only joins one
	Known   []string // ids of the nodes that form it, as far as they are known
	Waiting []string // the URLs that are waited for, each with the reason
}

// Error says what is waited for.
func (e *NotFormedError) Error() string {
	text := "the cluster is not formed yet: "
	switch missing := e.Expect - len(e.Known); {
	case e.Expect == 0:
		text = "this node is not in a cluster yet: it waits for one to admit it"
	case len(e.Known) == 0:
		text += "this node has just started"
	// More want to form it than are expected: they never agree.
	case missing < 0:
		text += fmt.Sprintf("%d nodes are to form it and %d want to (%s)", e.Expect, len(e.Known), idList(e.Known))
	case missing == 0 && len(e.Waiting) == 0:
		text += fmt.Sprintf("all %d nodes are there and about to form it", e.Expect)
	case missing == 0:
		text += fmt.Sprintf("all %d nodes are known (%s)", e.Expect, idList(e.Known))
	case len(e.Waiting) == 0:
		text += fmt.Sprintf("%d of %d nodes known (%s), waiting for %d more, which no URL of --join names",
			len(e.Known), e.Expect, idList(e.Known), missing)
	default:
		text += fmt.Sprintf("%d of %d nodes known (%s)", len(e.Known), e.Expect, idList(e.Known))
	}
	if len(e.Waiting) > 0 {
		text += "; waiting for " + strings.Join(e.Waiting, "; ")
	}
	return text
}

// idList joins ids for people.
func idList(ids []string) string { return strings.Join(ids, ", ") }

// Unwrap returns ErrNoLeader.
func (e *NotFormedError) Unwrap() error { return ErrNoLeader }

// notFormed returns what a node that is in no cluster waits for.
func (j *joiner) notFormed() *NotFormedError {
	j.forming.mu.Lock()
	defer j.forming.mu.Unlock()
	return &NotFormedError{
		Expect:  j.cfg.BootstrapExpect,
		Known:   idsOf(j.forming.known),
		Waiting: slices.Clone(j.forming.waiting),
	}
}

// formStep is what a node without a cluster does next.
type formStep int

const (
	formWait  formStep = iota // too few, or they do not report the same yet
	formAgree                 // all report the same set: settle on it, durably
	formBegin                 // settled, all of them, and this node has the lowest id
	formJoin                  // there is a cluster already
)

// decideForming decides by what the others report now. The set to form a cluster with is this node and those that
// expect as many voters and have no cluster; once this node has settled on a set, it is the one in its marker. Two
// data folders under one id never count as one.
func decideForming(
	self datadir.Peer, expect int, settled []datadir.Peer, reports []Report,
) (step formStep, known []datadir.Peer) {
	// A URL of Join may be this node's own.
	reports = slices.DeleteFunc(slices.Clone(reports), func(r Report) bool { return r.Incarnation == self.Incarnation })
	// Others may have begun with the set that this node has settled on: it never changes.
	if len(settled) > 0 {
		// One of them begins, so there is one configuration; the others get it as its followers.
		if settled[0].ID == self.ID && confirmed(settled, reports, true) == expect-1 {
			return formBegin, settled
		}
		return formWait, settled
	}
	known = []datadir.Peer{self}
	for _, r := range reports {
		// This node joins a cluster that there is already: there must not be a second one.
		if r.ClusterID != "" {
			return formJoin, []datadir.Peer{self}
		}
		// A node that expects another number was started for another cluster, or by mistake.
		if r.Expect == expect {
			known = append(known, datadir.Peer{ID: r.ID, Raft: r.RaftAddr, HTTP: r.HTTPAddr, Incarnation: r.Incarnation})
		}
	}
	// Sets are compared as lists, and one node may answer at several URLs.
	slices.SortFunc(known, func(a, b datadir.Peer) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), strings.Compare(a.Incarnation, b.Incarnation))
	})
	known = slices.Compact(known)
	if len(known) == expect && clash(known) == "" && confirmed(known, reports, false) == expect-1 {
		return formAgree, known
	}
	return formWait, known
}

// confirmed counts the nodes of set that report the very same set. With settled, only those count that have settled
// on it.
func confirmed(set []datadir.Peer, reports []Report, settled bool) int {
	by := make(map[string]bool)
	for _, r := range reports {
		reporter := func(p datadir.Peer) bool { return p.ID == r.ID && p.Incarnation == r.Incarnation }
		if slices.ContainsFunc(set, reporter) && slices.Equal(r.Known, set) && (r.Agreed || !settled) {
			// One node may answer at several URLs.
			by[r.ID] = true
		}
	}
	return len(by)
}

// clash returns what has to change where two of the sorted peers share an id or a raft address; "" if none do.
func clash(peers []datadir.Peer) string {
	// Two folders with one id, or two nodes at one address: raft could not keep them apart.
	addresses := make(map[string]datadir.Peer)
	for i, p := range peers {
		if i > 0 && peers[i-1].ID == p.ID {
			return fmt.Sprintf("another id for one of two nodes: %s and %s are both %s",
				URL(peers[i-1].HTTP), URL(p.HTTP), p.ID)
		}
		if other, taken := addresses[p.Raft]; taken {
			return fmt.Sprintf("another raft address for one of two nodes: %s and %s both have %s", other.ID, p.ID, p.Raft)
		}
		addresses[p.Raft] = p
	}
	return ""
}

// waitingFor returns the URLs that keep this node from forming a cluster with known, each with the reason, sorted.
func waitingFor(
	self datadir.Peer, expect int, known []datadir.Peer, answers []heard, silent map[string]error,
) (list []string) {
	for url, err := range silent {
		// From its own address a node may not reach itself.
		if url != URL(self.HTTP) {
			list = append(list, url+": "+whySilent(err))
		}
	}
	for _, h := range answers {
		if why := whyWaiting(self, expect, known, h.report); why != "" {
			list = append(list, h.url+": "+why)
		}
	}
	slices.Sort(list)
	return list
}

// whySilent returns why a seed gave no answer. It is the same for each attempt that fails alike: the text of a
// connection's error has a port that changes.
func whySilent(err error) string {
	errno, isErrno := errors.AsType[syscall.Errno](err)
	lookup, isLookup := errors.AsType[*net.DNSError](err)
	switch {
	// First what an operator can act on.
	case errors.Is(err, ErrOtherToken):
		return ErrOtherToken.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer within " + identifyFor.String()
	// Without the addresses, of which the own one has another port in each attempt.
	case isErrno:
		return errno.Error()
	case isLookup:
		return lookup.Err
	}
	return err.Error()
}

// otherTokens returns the URLs of nodes that have another cluster token, sorted.
func otherTokens(silent map[string]error) (urls []string) {
	for url, err := range silent {
		if errors.Is(err, ErrOtherToken) {
			urls = append(urls, url)
		}
	}
	slices.Sort(urls)
	return urls
}

// whyWaiting returns why no cluster is formed with the node that reports r; "" if it does not keep this node from
// that.
func whyWaiting(self datadir.Peer, expect int, known []datadir.Peer, r Report) string {
	inSet := func(p datadir.Peer) bool { return p.ID == r.ID && p.Incarnation == r.Incarnation }
	sameID := func(p datadir.Peer) bool { return p.ID == r.ID }
	switch {
	case r.Incarnation == self.Incarnation:
		return ""
	case r.Expect == 0:
		return r.ID + " forms no cluster: it was started as a non-voter or without --bootstrap-expect"
	case r.Expect != expect:
		return fmt.Sprintf("%s expects %d nodes, this node %d", r.ID, r.Expect, expect)
	case !slices.ContainsFunc(known, inSet):
		// The set was settled on before. A node that is not in it is not waited for.
		if slices.ContainsFunc(known, sameID) {
			return r.ID + " has another data folder than when the nodes agreed to form the cluster"
		}
		return ""
	case !slices.Equal(r.Known, known):
		return fmt.Sprintf("%s knows of %s", r.ID, cmp.Or(idList(idsOf(r.Known)), "no node yet"))
	}
	return ""
}

// run brings a node into a cluster: begins one, joins one, or, for a member,
// makes its address known where it has changed.
func (j *joiner) run(ctx context.Context) {
	// A folder that is of a cluster already, or has entries of one, never begins another.
	begins := len(j.roster.Servers()) == 0 && j.cfg.BootstrapExpect > 0 && j.machine.ClusterID() == ""
	if !begins || j.bootstrap(ctx) == formJoin {
		j.join(ctx, !j.cfg.NonVoter)
	}
	j.stayKnown(ctx)
}

// bootstrap asks the seeds until this node is in a cluster, or finds one to join. It returns formBegin, formJoin, or
// formWait if ctx ends.
func (j *joiner) bootstrap(ctx context.Context) formStep {
	tick := time.NewTicker(formEvery)
	defer tick.Stop()
	reported, strangers := time.Now(), time.Time{} // when they were last logged
	for warned := false; ; {
		// This node has begun, or another has and reached it.
		if len(j.roster.Servers()) > 0 {
			return formBegin
		}
		answers, silent := j.askSeeds(ctx)
		reports, self := reportsOf(answers), roster.PeerOf(j.roster.Self())
		// What is decided is reported to the others at once: they wait for all to report the same.
		step, known := decideForming(self, j.cfg.BootstrapExpect, j.dir.Marker().Peers, reports)
		waiting := waitingFor(self, j.cfg.BootstrapExpect, known, answers, silent)
		if twice := clash(known); twice != "" {
			waiting = append(waiting, twice)
		}
		if step == formJoin {
			waiting = nil // whom it waits for to join is another question; see joinAnySeed
		}
		changed := j.forming.set(known, waiting)
		// Nodes may wait for each other for as long as somebody needs to start them: that is no fault before a minute.
		waits := step == formWait && (len(known) < j.cfg.BootstrapExpect || len(waiting) > 0)
		level := hclog.Info
		if time.Since(reported) >= quietlog.RepeatAfter {
			changed, level = true, hclog.Warn
		}
		if waits && changed {
			reported = time.Now()
			j.logger.Log(level, "waiting for other nodes to form a cluster with", "expect", j.cfg.BootstrapExpect,
				"known", idsOf(known), "waiting-for", waiting)
		}
		// This passes only if somebody acts: it is a warning from the first time on.
		if urls := otherTokens(silent); len(urls) > 0 && time.Since(strangers) >= quietlog.RepeatAfter {
			strangers = time.Now()
			j.logger.Warn("no cluster is formed with nodes that have another cluster token: start all nodes with the same "+
				"--token-file", "at", urls)
		}
		// An error is no reason to stop: the next round tries the same again.
		if err := j.makeDurable(step, known); err != nil {
			j.logger.Error("forming a cluster", "error", err)
		}
		if step == formJoin {
			return step
		}
		if step == formAgree {
			continue // what was settled on may be enough to begin
		}
		// More than are expected never agree: somebody has to stop one, or correct a number.
		if surplus := len(known) > j.cfg.BootstrapExpect || clash(known) != ""; surplus && !warned {
			warned = true
			j.logger.Warn("the nodes that want to form a cluster do not fit together",
				"expect", j.cfg.BootstrapExpect, "seen", peerTexts(known))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return formWait
		}
	}
}

// idsOf returns the ids of peers.
func idsOf(peers []datadir.Peer) (ids []string) {
	for _, p := range peers {
		ids = append(ids, p.ID)
	}
	return ids
}

// peerTexts returns peers for people: two of them may differ in one value alone.
func peerTexts(peers []datadir.Peer) (list []string) {
	for _, p := range peers {
		list = append(list, fmt.Sprintf("%s (http %s, raft %s, incarnation %s)", p.ID, p.HTTP, p.Raft, p.Incarnation))
	}
	return list
}

// makeDurable makes a step durable: it writes the set settled on to the marker, or bootstraps raft with it. Other
// steps need nothing.
func (j *joiner) makeDurable(step formStep, known []datadir.Peer) error {
	if step == formAgree {
		return j.dir.SetCluster("", known)
	}
	if step != formBegin {
		return nil
	}
	// All begin with this configuration, or take it from the one that has begun.
	var c raft.Configuration
	for _, p := range known {
		c.Servers = append(c.Servers, raft.Server{
			Suffrage: raft.Voter,
			ID:       raft.ServerID(p.ID),
			Address:  raft.ServerAddress(p.Raft),
		})
	}
	// Raft writes it as the first entry of its log, and campaigns.
	err := j.raft.Load().BootstrapCluster(c).Error()
	if errors.Is(err, raft.ErrCantBootstrap) {
		return nil // entries of another node arrived first
	}
	return err
}

// askSeeds asks every node that this one knows a URL of, at once, and waits up to identifyFor for the answers. silent
// has why the URLs that gave none did not.
func (j *joiner) askSeeds(ctx context.Context) (answers []heard, silent map[string]error) {
	silent = map[string]error{}
	if j.cfg.Peers == nil {
		return nil, silent
	}
	// All share one bound, so the slowest seed does not delay the others' answers.
	ctx, cancel := context.WithTimeout(ctx, identifyFor)
	defer cancel()
	var mu sync.Mutex
	var asking sync.WaitGroup
	// mu guards what the goroutines gather until all have returned.
	for _, url := range j.seedURLs() {
		asking.Go(func() {
			r, err := j.cfg.Peers.Identify(ctx, url, Question{})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent[url] = err
				return
			}
			answers = append(answers, heard{url, r})
		})
	}
	asking.Wait()
	return answers, silent
}

// reportsOf returns the reports without where they came from.
func reportsOf(answers []heard) (reports []Report) {
	for _, h := range answers {
		reports = append(reports, h.report)
	}
	return reports
}

// seedURLs returns the URLs at which other nodes are asked: those of Join first, then those of the members known.
func (j *joiner) seedURLs() []string {
	urls := slices.Clone(j.cfg.Join)
	for _, p := range slices.Concat(j.forming.peers(), j.roster.Known()) {
		if p.ID != j.cfg.ID && p.HTTP != "" && !slices.Contains(urls, URL(p.HTTP)) {
			urls = append(urls, URL(p.HTTP))
		}
	}
	return urls
}

// join asks the seeds to admit this node until it is in raft's configuration with its address and, if it is new and
// voter is true, with a vote, or until ctx ends. A member keeps the suffrage it has.
func (j *joiner) join(ctx context.Context, voter bool) {
	// Whether this node is new decides about its vote: only a new one asks for one by itself.
	fresh := len(j.roster.Servers()) == 0
	for wait := formEvery; ; wait = min(2*wait, joinBackoff) {
		// Also before the first attempt: most nodes that start are members.
		if j.isMember(fresh, fresh && voter) {
			j.refused.clear()
			return
		}
		// The configuration may have changed since the last attempt.
		if s, ok := j.roster.Server(j.cfg.ID); ok && !fresh {
			voter = s.Suffrage == raft.Voter
		}
		j.joinAnySeed(ctx, voter)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// joinAnySeed asks one seed after the other until one has admitted this node. It logs the errors, and keeps them for
// NotFormedError.
func (j *joiner) joinAnySeed(ctx context.Context, voter bool) {
	// A node that asked itself would get an answer of a node that is in no cluster.
	own := j.ownURLs(ctx)
	var waiting []string
	defer func() { j.forming.set(j.forming.peers(), waiting) }()
	for _, url := range j.seedURLs() {
		if slices.Contains(own, url) {
			continue
		}
		err := j.requestJoin(ctx, url, voter)
		if err == nil {
			return
		}
		// An attempt that was cut short is not a refusal.
		if ctx.Err() == nil {
			waiting = append(waiting, url+": "+whySilent(err))
			j.joinRejected(url, err, time.Now())
		}
	}
}

// ownURLs returns the URLs at which this node itself answers: Join may list it, also by another name.
func (j *joiner) ownURLs(ctx context.Context) []string {
	urls := []string{URL(j.cfg.HTTPAdvertise)}
	own := j.roster.Self()
	// Another name of it is recognized by the answer, which has this node's id and incarnation.
	answers, _ := j.askSeeds(ctx)
	for _, h := range answers {
		if h.report.ID == own.ID && h.report.Incarnation == own.Incarnation {
			urls = append(urls, h.url)
		}
	}
	return urls
}

// requestJoin asks the node at url to admit this one, and waits up to joinFor for it to catch up.
func (j *joiner) requestJoin(ctx context.Context, url string, voter bool) error {
	// The answer comes only once this node has its vote, or cannot get it.
	ctx, cancel := context.WithTimeout(ctx, joinFor)
	defer cancel()
	// The cluster's id, empty for a new node, lets another cluster refuse this one.
	opts := MemberOptions{Voter: voter, ClusterID: j.roster.Identity().ClusterID}
	return j.cfg.Peers.Join(ctx, url, j.roster.Self(), opts)
}

// joinRejected logs why the node at url does not admit this one. An error that somebody has to act on is a warning
// and is kept for the status; it is logged again only after a while.
func (j *joiner) joinRejected(url string, err error, now time.Time) {
	// Other errors may pass by themselves, such as a node that has no leader.
	reason := joinRefusal(err)
	switch {
	case reason == nil:
		j.logger.Info("asking to join", "at", url, "error", err)
	case j.refused.note(reason, now):
		j.logger.Warn("the cluster does not admit this node", "at", url, "error", err)
	}
}

// JoinRefusals returns the errors of Peers.Join that last until somebody acts on them.
func JoinRefusals() []error {
	return []error{ErrForeignFolder, ErrOtherIncarnation, ErrDuplicateAddress, ErrTooManyVoters, ErrTooOld}
}

// joinRefusal returns the error of JoinRefusals, or ErrOtherToken, that err wraps; nil if a retry may succeed.
func joinRefusal(err error) error {
	for _, reason := range append(JoinRefusals(), ErrOtherToken) {
		if errors.Is(err, reason) {
			return reason
		}
	}
	return nil
}

// refused keeps why this node was last not admitted, for its status and its log.
type refused struct {
	mu   sync.Mutex
	last error               // of joinRefusal
	said map[error]time.Time // when each was logged
}

// note keeps a refusal and reports whether it is time to log it.
func (r *refused) note(reason error, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	// The status shows the last refusal, also one that is not logged again.
	r.last = reason
	if at, known := r.said[reason]; known && now.Sub(at) < quietlog.RepeatAfter {
		return false
	}
	if r.said == nil {
		r.said = map[error]time.Time{}
	}
	r.said[reason] = now
	return true
}

// clear forgets the refusal.
func (r *refused) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = nil
}

// text is the last refusal, "" if there is none.
func (r *refused) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		return ""
	}
	return r.last.Error()
}

// isMember reports whether this node need not ask to join: it is in raft's configuration with its address and, if
// voter is true, with a vote, or there is nobody to ask. A member that is not in its own newest configuration was
// removed: an operator has to add it again. A node that is fresh may only have received an older configuration.
func (j *joiner) isMember(fresh, voter bool) bool {
	if j.cfg.Peers == nil || (len(j.cfg.Join) == 0 && len(j.roster.Servers()) == 0) {
		return true
	}
	s, ok := j.roster.Server(j.cfg.ID)
	if !ok {
		return !fresh
	}
	if j.raft.Load().State() == raft.Leader {
		return true // a leader records its own address; see membership.Changes.Tend
	}
	return string(s.Address) == j.roster.Address() && (!voter || s.Suffrage == raft.Voter)
}
