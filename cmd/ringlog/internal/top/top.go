// Package top is the live view of a cluster on a terminal. Model is pure: what the cluster answers, the keys and the
// size of the terminal come in as messages, and Text returns the screen.
package top

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// Sample is what all nodes answered at one moment. It is a message of Model.
type Sample struct {
	At       time.Time // when the answers were there
	Failed   bool      // no node answered; then Verdict and Findings say why, and the rest is zero
	Verdict  string    // as ringlog check prints it
	Tone     shell.Tone
	Findings []Finding  // the worst first
	URL      string     // of the node whose status View is
	View     api.Status // of the node that knows most
	Nodes    []Node     // by id
	Cursors  []Cursor   // of View
	// Delivered is how many events each node has sent to readers since it started, by id. A node whose metrics cannot be
	// read is left out.
	Delivered map[string]uint64
}

// Finding is something that an operator should act on.
type Finding struct{ Found, Remedy string }

// Node is a member, or an endpoint that no member is known at.
type Node struct {
	ID, URL, Role string            // Role: as the node says itself, or why it did not answer
	Answers       bool              // the two below are as the node says itself
	Offset        uint64            // that its state has
	Version       string            // "" if the node does not answer
	Member        *api.Member       // as View has it; nil if it does not
	Health        *api.ServerHealth // as the leader has it; nil if there is none
}

// Cursor is a cursor or a group, with texts in the form that other verbs print them in.
type Cursor struct {
	api.Cursor
	Kind, Lag, Waits string // cursor or group; events to come; how long the oldest of them has waited
}

// Story is the newest events that the cluster has emitted about itself. It is a message of Model.
type Story struct {
	Cluster string  // whose story it is, "" before it was read
	Emitted uint64  // events that the cluster had emitted when it was read
	Next    uint64  // the offset from which on it is still to be read
	Events  []Event // in the order of the log, at most storyKept
	Failed  string  // why it could not be read further; "" if it was
}

// Event is one of them.
type Event struct {
	At      time.Time // when it happened
	Offset  uint64
	Type    string // such as LEADER_ELECTED
	Term    uint64
	Subject string // the leader or voter that it is about
	Details string // the rest of the payload, in words
}

// storyKept bounds Story.Events.
const storyKept = 200

// With returns the story with what follows it, as the node whose status is given had it.
func (s Story) With(events []Event, view api.Status) Story {
	// Offsets of another cluster have nothing to do with those that were read.
	if s.Cluster != view.ClusterID {
		s.Events = nil
	}
	events = slices.Concat(s.Events, events)
	return Story{Cluster: view.ClusterID, Emitted: view.Log.Emitted, Next: view.LastOffset + 1,
		Events: events[max(0, len(events)-storyKept):]}
}

// Options is what a Model needs from outside.
type Options struct {
	Interval time.Duration                   // from an answer to the next question
	Ask      func() Sample                   // asks all nodes
	Read     func(Story, Sample) Story       // reads what follows the story
	Paint    func(shell.Tone, string) string // colours a text, or returns it as it is
}

// table is one of the parts of the screen that are scrolled.
type table int

// The tables, from the top of the screen on.
const (
	findings table = iota
	nodes
	cursors
	events
	tables // how many there are
)

// order is what cursors are sorted by.
type order int

// The orders, in which the key s goes through them.
const (
	byLag order = iota
	byWait
	byPending
	byRedelivering
	byName
	orders // how many there are
)

func (o order) String() string {
	return [...]string{"lag", "time waited", "pending", "redelivering", "name"}[o]
}

// compare orders two cursors; those that are equal by o are ordered by name.
func (o order) compare(a, b Cursor) int {
	// The largest first.
	var by int
	switch o {
	case byLag:
		by = cmp.Compare(b.LagEvents, a.LagEvents)
	case byWait:
		by = cmp.Compare(b.LagSeconds, a.LagSeconds)
	case byPending:
		by = cmp.Compare(groupOf(b).Pending, groupOf(a).Pending)
	case byRedelivering:
		by = cmp.Compare(groupOf(b).Redelivering, groupOf(a).Redelivering)
	}
	return cmp.Or(by, cmp.Compare(a.Name, b.Name))
}

// groupOf returns what a group adds to its cursor, zero for a cursor of one reader.
func groupOf(c Cursor) api.GroupInfo {
	if c.Group == nil {
		return api.GroupInfo{}
	}
	return *c.Group
}

// Model is the state of the view. It has no clock: times are those of the samples.
type Model struct {
	options       Options // all of them set
	width, height int     // of the terminal, 0 before it is known

	now     Sample    // the newest, which may have failed
	last    Sample    // the newest that did not
	figures []figures // of the samples of the last rateOver, the oldest first, at least two if there were two
	story   Story     // as it was read last; the zero value before

	reading bool        // the story is being read
	asking  bool        // the nodes are being asked, or will be by a tick
	paused  bool        // what is shown stays, and no question is planned
	help    bool        // the help covers the tables
	order   order       // of the cursors
	focus   table       // the table that keys scroll, and that gets most rows
	scroll  [tables]int // rows above the first that is shown
}

// New returns a model that has not asked yet.
func New(o Options) Model { return Model{options: o, focus: cursors, asking: true} }

// tick says that it is time to ask again.
type tick struct{}

// Init implements tea.Model.
func (m Model) Init() tea.Cmd { return m.ask }

// ask asks the nodes. It is a tea.Cmd, so it runs in a goroutine of its own.
func (m Model) ask() tea.Msg { return m.options.Ask() }

// Update implements tea.Model. Each message is a change from one model to the next. What takes time is returned as
// a command, and its result comes back as a message.
func (m Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case Sample:
		return m.take(msg)
	case Story:
		m.story, m.reading = msg, false
	case tick:
		// While the view is paused no question follows; press asks the next one.
		if m.asking = !m.paused; m.asking {
			return m, m.ask
		}
	case tea.KeyPressMsg:
		return m.press(msg.String())
	}
	return m, nil
}

// take takes the answers of the nodes, and plans the next question.
func (m Model) take(s Sample) (tea.Model, tea.Cmd) {
	next := tea.Tick(m.options.Interval, func(time.Time) tea.Msg { return tick{} })
	// A question that was under way when the view was paused changes nothing on the screen.
	if m.paused && !m.now.At.IsZero() {
		return m, next
	}
	// The view stays at the last answers where nobody answers; only the head says so.
	m.now = s
	if s.Failed {
		return m, next
	}
	m.last = s
	// The oldest sample is dropped as soon as the next one is old enough for a rate.
	m.figures = append(m.figures, figuresOf(s))
	for len(m.figures) > 2 && s.At.Sub(m.figures[1].at) >= rateOver {
		m.figures = m.figures[1:]
	}
	// The log is read for the story only if the cluster has emitted something since: reading costs the node a scan.
	grown := s.View.ClusterID != m.story.Cluster || s.View.Log.Emitted > m.story.Emitted
	if m.reading || !grown || s.View.ClusterID == "" {
		return m, next
	}
	m.reading = true
	// Copies, as the command runs beside later updates.
	story := m.story
	return m, tea.Batch(next, func() tea.Msg { return m.options.Read(story, s) })
}

// press handles a key.
func (m Model) press(key string) (tea.Model, tea.Cmd) {
	// These work in the help, too.
	switch key {
	case "q", "ctrl+c":
		return m, tea.Quit
	case "ctrl+z":
		return m, tea.Suspend
	}
	// Any other key leaves the help.
	if m.help {
		m.help = false
		return m, nil
	}
	switch key {
	case "?", "h":
		m.help = true
	case "p", "space":
		m.paused = !m.paused
		// A question that is still under way, or a tick to come, continues the view by itself.
		if !m.paused && !m.asking {
			m.asking = true
			return m, m.ask
		}
	case "s":
		m.order = (m.order + 1) % orders
		// In another order, the rows that were in view are elsewhere.
		m.scroll[cursors] = 0
	case "tab":
		m.focus = (m.focus + 1) % tables
	case "shift+tab":
		m.focus = (m.focus + tables - 1) % tables
	case "j", "down":
		m = m.scrolled(1)
	case "k", "up":
		m = m.scrolled(-1)
	case "pgdown", "ctrl+f":
		m = m.scrolled(max(1, m.shown(m.focus)-1))
	case "pgup", "ctrl+b":
		m = m.scrolled(-max(1, m.shown(m.focus)-1))
	case "g", "home":
		m.scroll[m.focus] = 0
	case "G", "end":
		m = m.scrolled(1 << 20)
	}
	return m, nil
}

// scrolled moves the table that has the focus by rows, and not beyond its ends.
func (m Model) scrolled(by int) Model {
	// The position may be beyond the end since the table has become shorter, so it is brought back before it is
	// moved.
	end := max(0, len(m.rows(m.focus, max(narrowest, m.width)).lines)-m.shown(m.focus))
	m.scroll[m.focus] = min(max(0, min(m.scroll[m.focus], end)+by), end)
	return m
}

// View implements tea.Model.
func (m Model) View() tea.View {
	v := tea.NewView(m.Text())
	v.AltScreen = true
	return v
}

// figures are what rates are computed from.
type figures struct {
	at        time.Time         // of the sample
	cluster   string            // whose figures they are
	published uint64            // the last offset
	delivered map[string]uint64 // as in Sample
}

// rateOver is the least time that a rate is the mean of, once there are samples of so long.
const rateOver = 5 * time.Second

// figuresOf returns the figures of a sample.
func figuresOf(s Sample) figures {
	return figures{s.At, s.View.ClusterID, s.View.LastOffset, s.Delivered}
}

// rates returns how many events a second were published and read; known is false before there are two samples.
func (m Model) rates() (published, read float64, known bool) {
	if len(m.figures) < 2 {
		return 0, 0, false
	}
	first, last := m.figures[0], m.figures[len(m.figures)-1]
	seconds := last.at.Sub(first.at).Seconds()
	// Counters of two clusters cannot be compared, and neither can those of one moment.
	if seconds <= 0 || first.cluster != last.cluster {
		return 0, 0, false
	}
	// A node that lags may have answered: then there is less than before.
	grown := func(now, before uint64) float64 { return float64(now-min(now, before)) / seconds }
	for id, now := range last.delivered {
		// A node that has restarted counts from 0 again, and one that has not answered before has no rate yet.
		if before, known := first.delivered[id]; known {
			read += grown(now, before)
		}
	}
	return grown(last.published, first.published), read, true
}

// Run shows the view until a key, the end of ctx or an error ends it. The terminal is as it was before in each case.
func Run(ctx context.Context, sh *shell.Shell, o Options) error {
	o.Paint = sh.Paint
	// Signals are the caller's: they end ctx.
	_, err := tea.NewProgram(New(o), tea.WithContext(ctx), tea.WithInput(sh.In), tea.WithOutput(sh.Out),
		tea.WithoutSignalHandler()).Run()
	if ctx.Err() != nil && errors.Is(err, tea.ErrProgramKilled) {
		return nil // it was asked to end
	}
	return err
}
