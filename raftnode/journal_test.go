package raftnode

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/raftnode/blackbox"
)

// A journal of outages whose disk hangs stops neither pings nor raft nor the outage
// monitor, which would take its own wait for a pause of the process.
func TestAJournalWhoseDiskHangsStopsNobody(t *testing.T) {
	t.Parallel()
	dir := memoryDir(t)
	synctest.Test(t, func(t *testing.T) {
		s := newSimulation(t, dir, 3, 1)
		leader := s.leads()
		term := leader.raft.Load().CurrentTerm()
		id := leader.cfg.ID
		s.disks[id][journalDisk].hang()
		leader.journal.Write(blackbox.Record{Kind: blackbox.LeaseExpired, Since: time.Now(), Term: term, Leader: id})
		time.Sleep(10 * time.Second)
		for _, n := range s.running() {
			if q := n.Status().Quorum; q.Margin != 1 {
				t.Errorf("%s counts %+v while the journal of %s waits for its disk", n.cfg.ID, q, id)
			}
		}
		if got := s.leads(); got != leader || leader.raft.Load().CurrentTerm() != term {
			t.Error("the leadership ended")
		}

		// It is cut off: the leader steps down and sees an outage, disk or no disk.
		s.net.cut(reset, s.around(id, true, true)...)
		time.Sleep(10 * time.Second)
		if leader.Status().Outage == nil || leader.proposer.OpenTerm() != 0 {
			t.Error("cut off, and it does not notice")
		}
		s.disks[id][journalDisk].thaw()
		time.Sleep(time.Second)
		var kinds []blackbox.Kind
		journal, _ := leader.BlackBox()
		for _, r := range journal.Records {
			kinds = append(kinds, r.Kind)
		}
		if want := []blackbox.Kind{blackbox.LeaseExpired, blackbox.LeaseExpired, blackbox.Lost}; !slices.Equal(kinds, want) {
			t.Errorf("the journal has %v, not %v", kinds, want)
		}
		s.net.heal()
		s.settle()
	})
}

// A leader reports an outage once the voters that saw it have it in their journals: before, its own view alone
// would say that the others had a quorum.
func TestAnOutageIsReportedOnceTheJournalsHaveIt(t *testing.T) {
	t.Parallel()
	dir := memoryDir(t)
	synctest.Test(t, func(t *testing.T) {
		s := newSimulation(t, dir, 3, 1)
		s.settle()
		s.net.cut(reset, s.pick(func(link) bool { return true })...)
		time.Sleep(10 * time.Second)
		for _, disks := range s.disks {
			disks[journalDisk].hang()
		}
		s.net.heal()
		s.settle()
		leader := s.leads()
		eventually(t, "all see that the outage has ended", func() bool {
			return !slices.ContainsFunc(s.running(), func(n *Node) bool { return n.Status().Outage != nil })
		})
		s.disks[leader.cfg.ID][journalDisk].thaw()
		time.Sleep(2 * time.Second) // less than the leader waits for the others
		for _, disks := range s.disks {
			disks[journalDisk].thaw()
		}
		time.Sleep(30 * time.Second)
		s.settle()
		s.compare()
		var types []event.Type
		for _, e := range s.story.events {
			if e.Type == event.QuorumLost || e.Type == event.QuorumOutageView {
				types = append(types, e.Type)
			}
		}
		if !slices.Equal(types, []event.Type{event.QuorumLost}) {
			t.Errorf("the log has %v", types)
		}
	})
}
