package raftnode

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// fault is what is done to the cluster for a while.
type fault struct {
	kind     string
	how      loss
	via      port // of all links
	links    []link
	down     []string
	graceful bool
	stepDown bool
	sick     []string // nodes of whose disk a part hangs, or is full
	part     part
	thin     []link // that carry rate bytes a second from then on until all have caught up
	rate     int
	writes   int // that clients try, at least
	lasts    time.Duration
	again    *fault // after a leader that has decided something
}

func (f fault) String() string {
	text := fmt.Sprintf("%s for %v", f.kind, f.lasts.Round(time.Millisecond))
	if len(f.links) > 0 {
		text += fmt.Sprintf(" %v %v", f.how, f.links)
	}
	if len(f.down) > 0 {
		text += fmt.Sprintf(" down %v", f.down)
	}
	if len(f.sick) > 0 {
		text += fmt.Sprintf(" %s of %v", f.part, f.sick)
	}
	if len(f.thin) > 0 {
		text += fmt.Sprintf(" %d bytes a second", f.rate)
	}
	if f.again != nil {
		text += fmt.Sprintf(", and again: %v", *f.again)
	}
	return text
}

// draw picks the next fault: 0.2 to 20 s of it, shorter ones more often.
func (s *simulation) draw() fault {
	f := fault{how: loss(s.rng.IntN(losses)),
		lasts: time.Duration(0.2 * math.Pow(100, s.rng.Float64()) * float64(time.Second))}
	one := s.ids[s.rng.IntN(len(s.ids))]
	switch k := s.rng.IntN(120); {
	case k < 30:
		f.kind, f.links = "split", s.split(2+s.rng.IntN(len(s.ids)-1))
	case k < 45:
		f.kind, f.links = "isolated node", s.around(one, true, true)
	case k < 60:
		f.kind, f.links = "isolated leader", s.around(s.leaderID(one), true, true)
		f.writes = s.rng.IntN(2) * 20 // which that leader stores and nobody else, or the others
	case k < 67:
		f.kind, f.links = "deaf leader", s.around(s.leaderID(one), true, false)
	case k < 74:
		f.kind, f.links = "mute node", s.around(one, false, true)
	case k < 82:
		f.kind, f.links = "random links", s.someLinks(0.3)
	case k < 87:
		f.kind, f.links, f.how = "paused node", s.around(one, true, true), hold
	case k < 95:
		f.kind, f.down, f.graceful = "restart", s.some(1+s.rng.IntN(len(s.ids))), s.rng.IntN(3) == 0
	case k < 100:
		f.kind, f.stepDown = "step-down", true
	case k < 111:
		f.kind, f.sick = "sick disks", s.some(1+s.rng.IntN(len(s.ids)))
		f.part = [...]part{journalDisk, logDisk, fullDisk}[s.rng.IntN(3)]
		if f.part == logDisk { // for longer it would end the node
			f.lasts = min(f.lasts, 9*time.Second)
		}
		return f
	case k < 115:
		f.kind, f.down, f.writes = "away", s.some(1), 40
		f.thin, f.rate = s.around(f.down[0], true, true), 256<<10<<s.rng.IntN(3)
		return f
	default:
		return s.twice(f)
	}
	if k := s.rng.IntN(10); len(f.links) > 0 && f.kind != "paused node" && k < 3 {
		f.via = [...]port{raftPort, raftPort, httpPort}[k]
		for i := range f.links {
			f.links[i].via = f.via
		}
	}
	if s.rng.IntN(10) == 0 && f.kind != "restart" {
		f.kind, f.down = f.kind+" and crash", []string{one}
	}
	if s.rng.IntN(10) == 0 {
		f.sick, f.part = s.some(1+s.rng.IntN(len(s.ids))), journalDisk
	}
	return f
}

// twice is two outages with a leader between them.
func (s *simulation) twice(f fault) fault {
	f.kind, f.lasts = "everybody alone", 2*time.Second+f.lasts
	f.links = s.pick(func(link) bool { return true })
	again := f
	if s.rng.IntN(2) == 0 {
		again.kind, again.links, again.down = "majority crashed", nil, s.some(len(s.ids)/2+1)
	}
	f.again = &again
	return f
}

func (s *simulation) leaderID(fallback string) string {
	for id, n := range s.nodes {
		if n.proposer.OpenTerm() != 0 {
			return id
		}
	}
	return fallback
}

func (s *simulation) pick(which func(link) bool) (links []link) {
	for _, from := range s.ids {
		for _, to := range s.ids {
			if l := (link{from: from, to: to}); from != to && which(l) {
				links = append(links, l)
			}
		}
	}
	return links
}

func (s *simulation) split(groups int) []link {
	group := map[string]int{}
	for _, id := range s.ids {
		group[id] = s.rng.IntN(groups)
	}
	return s.pick(func(l link) bool { return group[l.from] != group[l.to] })
}

func (s *simulation) around(id string, in, out bool) []link {
	return s.pick(func(l link) bool { return in && l.to == id || out && l.from == id })
}

func (s *simulation) someLinks(share float64) []link {
	return s.pick(func(link) bool { return s.rng.Float64() < share })
}

func (s *simulation) some(count int) []string {
	ids := slices.Clone(s.ids)
	s.rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids[:count]
}

// reachesMajority reports whether a node runs under f and its raft is connected both
// ways with a majority, itself included.
func (s *simulation) reachesMajority(id string, f fault) bool {
	reached := 0
	for _, to := range s.ids {
		there, back := link{id, to, f.via}, link{to, id, f.via}
		cut := f.via != httpPort && (slices.Contains(f.links, there) || slices.Contains(f.links, back))
		if !cut && !slices.Contains(f.down, to) && !slices.Contains(f.down, id) {
			reached++
		}
	}
	return reached > len(s.ids)/2
}

// deposes reports whether a leader cannot be one any more after f.
func (s *simulation) deposes(f fault) bool {
	const soon = 5 * time.Second
	leader := s.leaderID("")
	return leader != "" && f.lasts > soon && !s.reachesMajority(leader, f)
}
