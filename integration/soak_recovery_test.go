package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
)

// wipe starts a voter with an empty folder under its old name. It is refused, which its own
// log and ringlog check report, and has no vote, until it is removed and joins as new.
func (s *soak) wipe(p *process) {
	// It does not take part, and its log names the reason.
	p.kill()
	s.empty(p)
	from := s.loggedBytes(p)
	p.start()
	s.eventually(longest, "refusal of "+p.id+", whose folder was emptied", func() error {
		if v, err := s.view(p); err == nil && (v.AppliedIndex > 0 || v.Role == "leader") {
			s.h.violation("%s takes part as %s although its folder was emptied: it has applied %d",
				p.id, v.Role, v.AppliedIndex)
			return nil
		}
		text, err := os.ReadFile(p.log)
		if err != nil {
			return err
		}
		if !bytes.Contains(text[from:], []byte("reason=other_incarnation")) {
			return errors.New("its log does not name other_incarnation")
		}
		return nil
	})
	s.eventually(longest, "report of the emptied folder by ringlog check", func() error {
		if s.h.violated() {
			return nil
		}
		if out, err := s.run("check"); err == nil || !strings.Contains(out, "another data folder answers as "+p.id) {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	s.replace(p)
}

// loggedBytes returns the size of a node's log, from which later lines are read.
func (s *soak) loggedBytes(p *process) int64 {
	info, err := os.Stat(p.log)
	if err != nil {
		s.t.Fatal(err)
	}
	return info.Size()
}

// durable is what a recovery has to keep.
type durable struct {
	cluster string
	from    uint64 // the first offset of what is compared
	events  []soakStored
	cursors string
}

// comparedEvents bounds what is read again around a recovery. All of it was checked when it was appended.
const comparedEvents = 50_000

// durableAt reads what one node has, from an offset on; 0 is as far back as is compared.
func (s *soak) durableAt(p *process, from uint64) (d durable) {
	v, err := s.view(p)
	if err != nil {
		s.t.Fatal(err)
	}
	st, err := p.status()
	if err != nil {
		s.t.Fatal(err)
	}
	// Its events, as far back as is compared.
	d.cluster, d.from = v.ClusterID, from
	if from == 0 {
		d.from = max(st.FirstOffset, s.h.checkedTo-min(comparedEvents, s.h.checkedTo-1))
	}
	d.events = s.readFrom(p, d.from, s.h.checkedTo)
	// Its cursors, as one text.
	a := s.clients.call(http.MethodGet, p.url()+"/v1/cursors", nil, nil)
	var list struct {
		Cursors []struct {
			Name                  string
			Generation, Committed uint64
		}
	}
	if err := json.Unmarshal(a.text, &list); a.outcome != acknowledged || err != nil || len(list.Cursors) == 0 {
		s.t.Fatalf("the cursors of %s: %s %v: %.300s", p.id, a.code, err, a.text)
	}
	d.cursors = fmt.Sprintf("%+v", list.Cursors)
	return d
}

// recoverFromOne loses all voters but one for good, and continues with that one as docs/operations.md says. Nothing
// was under way and everybody had everything, so nothing may be lost. The old cluster's clients are refused.
func (s *soak) recoverFromOne() (verify func()) {
	// What is to be kept, and a client that has met the old cluster.
	before := s.durableAt(s.nodes[0], 0)
	old := s.client()
	if _, err := old.Admin().Settings(s.t.Context()); err != nil || old.ClusterID() != before.cluster {
		s.t.Fatalf("a client of cluster %s is held to %q: %v", before.cluster, old.ClusterID(), err)
	}
	// All are killed; the folder with the newest log is recovered, and the others are emptied.
	for _, p := range s.nodes {
		p.kill()
	}
	survivor := s.newest()
	for _, p := range others(s.nodes, survivor) {
		s.empty(p)
	}
	s.mustRun("cluster", "recover", "--data-dir", survivor.dir, "--dry-run")
	s.mustRun("cluster", "recover", "--data-dir", survivor.dir, "--yes")
	s.forget()
	for _, p := range append([]*process{survivor}, others(s.nodes, survivor)...) {
		p.start()
	}
	return func() { s.recovered(before, old) }
}

// newest is the stopped voter whose raft log ends last.
func (s *soak) newest() (newest *process) {
	var best struct{ Term, Index uint64 }
	for _, p := range s.nodes {
		out := s.mustRun("inspect", "raft", "--data-dir", p.dir, "--from", "-1", "--json")
		_, entry, _ := strings.Cut(out, "{") // after a line for people
		var last struct{ Term, Index uint64 }
		if err := json.NewDecoder(strings.NewReader("{" + entry)).Decode(&last); err != nil || last.Index == 0 {
			s.t.Fatalf("the last entry of %s: %v: %s", p.id, err, out)
		}
		newer := last.Term > best.Term || (last.Term == best.Term && last.Index > best.Index)
		if newest == nil || newer {
			newest, best = p, last
		}
	}
	return newest
}

// recovered checks a recovered cluster that is whole again.
func (s *soak) recovered(before durable, old *client.Client) {
	// Every node has the events and the cursors of before, and refuses what names the old cluster.
	for _, p := range s.nodes {
		now := s.durableAt(p, before.from)
		if now.cluster == before.cluster {
			s.h.violation("%s is still of cluster %s after a recovery", p.id, now.cluster)
		}
		if !slices.Equal(now.events, before.events) {
			s.h.violation("%s has %d events from offset %d on after a recovery, not the %d of before",
				p.id, len(now.events), before.from, len(before.events))
		}
		if now.cursors != before.cursors {
			s.h.violation("%s has the cursors %s after a recovery, not %s", p.id, now.cursors, before.cursors)
		}
		a := s.clients.publish(p, s.h.create(1), nil, http.Header{api.ClusterHeader: {before.cluster}})
		if a.code != api.OtherCluster {
			s.h.violation("%s answered a publish for the cluster before the recovery with code %q: %.200s",
				p.id, a.code, a.text)
		}
	}
	// So it does with a client that has met the old cluster; others are served.
	var refusal *api.Error
	_, err := old.Admin().SetSetting(s.t.Context(), "dlq.stale_after", "99h")
	if !errors.As(err, &refusal) || refusal.Code != api.OtherCluster {
		s.h.violation("a client of the cluster before the recovery was answered: %v", err)
	}
	s.eventually(longest, "first acknowledgement after a recovery", func() error {
		if a := s.clients.publish(s.nodes[0], s.h.create(1), nil, nil); a.outcome != acknowledged {
			return fmt.Errorf("code %q: %s", a.code, a.text)
		}
		return nil
	})
}
