package replay

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// Wanted says which state of the past, and whose. At or Index is 0.
type Wanted struct {
	At       uint64 // the state after the entry with the event of this offset
	Index    uint64 // the state after this entry of raft's log
	Incident string // a file
	DataDir  string // of a stopped node; without either the cluster is asked
}

// State is a cluster as it was.
type State struct {
	api.IncidentPlace
	Leader   Leader        `json:"leader"`
	Members  []Member      `json:"members"`
	Settings []api.Setting `json:"settings"`     // all of them, also those that have their default
	Cursors  []api.Cursor  `json:"cursors"`      // never nil
	Letters  []api.Letter  `json:"dead_letters"` // never nil
}

// Leader is who led.
type Leader struct {
	ID    string    `json:"id"`
	Term  uint64    `json:"term"`
	Since time.Time `json:"since"`
}

// Member is a member as the log had it.
type Member struct {
	ID      string `json:"id"`
	Raft    string `json:"raft"`
	HTTP    string `json:"http"`
	Voter   bool   `json:"voter"`
	Online  bool   `json:"online"` // whether the state of the past has it as healthy
	Version string `json:"version"`
}

// StateAt returns the state that is wanted.
func StateAt(ctx context.Context, sh *shell.Shell, w Wanted) (s State, err error) {
	p, err := w.open(ctx, sh)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	// The replay begins at the start of the slice, and applies entry by entry up to the one that is wanted.
	if w.Index != 0 {
		err = outside("index", p.ToIndex(ctx, w.Index))
	} else {
		err = outside("at", p.Node.To(ctx, w.At))
	}
	if err != nil {
		return s, err
	}
	return p.state(ctx)
}

// open opens what has the state. Of a node that has more, only what leads to it is taken.
func (w Wanted) open(ctx context.Context, sh *shell.Shell) (*Past, error) {
	if w.Incident != "" {
		return OpenFile(ctx, sh, w.Incident, 0)
	}
	s := slice{from: api.Position{Kind: api.AtStart}, to: api.Position{Kind: api.AtEnd}, dataDir: w.DataDir}
	// The slice of one event has the state before it, and the entries that lead to it.
	if w.At != 0 {
		s.from = api.Position{Kind: api.AtOffset, Offset: w.At}
		s.to = s.from
	}
	return openSlice(ctx, sh, s)
}

// state returns all of the state that the past is at.
func (p *Past) state(ctx context.Context) (s State, err error) {
	// Leader and members come from the machine. The rest is asked of the server, so that it has the form in which
	// nodes answer.
	m := p.Machine()
	led := m.Leadership()
	s = State{IncidentPlace: p.Place(), Leader: Leader{led.Leader, led.Term, led.Since}, Cursors: []api.Cursor{},
		Letters: []api.Letter{}}
	for _, seen := range p.Status().Members {
		one := Member{ID: seen.ID, Voter: seen.Voter, Online: seen.Healthy}
		if known, there := m.Member(seen.ID); there {
			one.Raft, one.HTTP, one.Version = known.RaftAddr, known.HTTPAddr, known.Version
		}
		s.Members = append(s.Members, one)
	}
	// Settings come in one answer, cursors and letters in pages.
	var settings struct{ Settings []api.Setting }
	if err := p.Shell.Ask(ctx, p.URL, "/v1/settings", &settings); err != nil {
		return s, err
	}
	s.Settings = settings.Settings
	for after, more := "", true; more; {
		var page api.CursorPage
		if err := p.Shell.Ask(ctx, p.URL, "/v1/cursors?limit=1000&after="+url.QueryEscape(after), &page); err != nil {
			return s, err
		}
		s.Cursors = append(s.Cursors, page.Cursors...)
		after, more = page.Next, page.Next != ""
	}
	for after, more := uint64(0), true; more; {
		var page api.LetterPage
		if err := p.Shell.Ask(ctx, p.URL, "/v1/dlq?limit=1000&after="+strconv.FormatUint(after, 10), &page); err != nil {
			return s, err
		}
		s.Letters = append(s.Letters, page.Letters...)
		after, more = page.Next, page.Next != 0
	}
	return s, nil
}
