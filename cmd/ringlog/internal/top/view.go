package top

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// The screen has three parts: head, the tables of body, and the line of keys. plan divides the lines that are left
// among the tables, rows makes one of them for a width, and body shows the part of it that the scroll position asks
// for.

// Text returns the screen: no line is longer than the terminal is wide, and there are no more than it has.
func (m Model) Text() string {
	if m.width < 1 || m.height < 1 {
		return "" // its size is not known yet
	}
	if m.width < narrowest {
		return cut("too narrow", m.width)
	}
	lines := m.head()
	// The help takes the place of the tables. The head stays.
	if m.help {
		lines = append(lines, m.helpLines()...)
	} else {
		lines = append(lines, m.body()...)
	}
	// The keys are always in the last line.
	lines = lines[:min(len(lines), max(0, m.height-1))]
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	keys := fmt.Sprintf("q quit  Tab table  j/k scroll  s sort (%s)  p pause  ? help", m.order)
	return strings.Join(append(lines, cut(keys, m.width)), "\n")
}

// narrowest is from how many columns on a table says something.
const narrowest = 20

// headLines is how many lines head has.
const headLines = 3

// head says what the cluster is and does: its verdict, its leader and quorum, and its rates. It returns headLines
// lines in any state, so that what is below does not move.
func (m Model) head() []string {
	s := m.now
	state := "every " + shell.Short(m.options.Interval)
	if m.paused {
		state = "PAUSED"
	}
	if s.At.IsZero() {
		return []string{m.line(shell.Strong, "asking the nodes", state), "", ""}
	}
	cluster := ""
	// The id of the cluster stays on the screen while no node shows its status.
	if id := m.last.View.ClusterID; id != "" {
		cluster = "  cluster " + clean(id)
	}
	right := s.At.UTC().Format("15:04:05Z") + " " + state
	first := m.line(s.Tone, "RINGLOG "+s.Verdict, cluster, right)
	// The verdict says why nobody answers, and the second line how old the rest of the screen is.
	if s.Failed {
		second := "no node has shown its status yet"
		if !m.last.At.IsZero() {
			second = fmt.Sprintf("no node shows its status; below is what they said at %s, %s ago", clock(m.last.At),
				shell.Short(s.At.Sub(m.last.At).Round(time.Second)))
		}
		return []string{first, m.paint(shell.Bad, cut(second, m.width)), ""}
	}
	leader, tone := m.leaderText()
	return []string{first, m.paint(tone, cut(leader, m.width)), cut(m.figuresText(), m.width)}
}

// line has texts at the left and the last one at the right. The first one is painted.
func (m Model) line(tone shell.Tone, parts ...string) string {
	painted := cut(parts[0], m.width)
	rest, right := strings.Join(parts[1:len(parts)-1], ""), parts[len(parts)-1]
	room := m.width - width(painted)
	// The text at the right is left out where it does not fit.
	if left := room - width(right) - 1; left >= 0 {
		return m.paint(tone, painted) + pad(cut(rest, left), left, false) + " " + right
	}
	return m.paint(tone, painted) + cut(rest, room)
}

// leaderText says who leads since when, and how many voters may fail.
func (m Model) leaderText() (string, shell.Tone) {
	v := m.now.View
	q := v.Quorum
	may := fmt.Sprintf("%d of %d voters healthy", q.Healthy, q.Voters)
	tone := shell.Good
	// Margin is how many healthy voters there are beyond a majority, so that many may fail.
	switch {
	case q.Voters == 0:
		may, tone = "no voter is known", shell.Bad
	case q.Margin < 0:
		may, tone = fmt.Sprintf("%s, %d needed: no quorum", may, q.Needed), shell.Bad
	case q.Margin == 0:
		may += ", none may fail"
		if q.Voters > 1 {
			tone = shell.Warn
		}
	default:
		may += fmt.Sprintf(", %d may fail", q.Margin)
	}
	if v.LeaderID == "" {
		return fmt.Sprintf("no leader, term %d; %s", v.Term, may), shell.Bad
	}
	since := ""
	// The status does not have the time of the election, so it is looked for in the story, which may not go back so
	// far.
	for _, e := range slices.Backward(m.story.Events) {
		if e.Type == "LEADER_ELECTED" && e.Subject == v.LeaderID && e.Term == v.Term && m.story.Cluster == v.ClusterID {
			// The date alone, if it is not today, so that the line has 80 columns.
			at := clock(e.At)
			if m.now.At.Sub(e.At) >= 24*time.Hour {
				at = e.At.UTC().Format(time.DateOnly)
			}
			since = fmt.Sprintf(" since %s (%s)", at, age(e.At, m.now.At))
			break
		}
	}
	return fmt.Sprintf("%s leads%s, term %d; %s", clean(v.LeaderID), since, v.Term, may), tone
}

// figuresText is what is published and read, and how much there is.
func (m Model) figuresText() string {
	v := m.now.View
	rates := "published -  read -"
	if published, read, known := m.rates(); known {
		rates = fmt.Sprintf("published %s/s  read %s/s", perSecond(published), perSecond(read))
	}
	// A letter that was redriven needs nobody's attention.
	letters := v.DeadLetters.Count - v.DeadLetters.Redriven
	return fmt.Sprintf("%s  last offset %d  log %s  %s", rates, v.LastOffset, shell.Size(v.Log.Bytes),
		shell.Count(letters, "dead letter"))
}

// perSecond prints a rate, with a decimal only where it matters.
func perSecond(rate float64) string {
	if rate < 10 {
		return strconv.FormatFloat(rate, 'f', 1, 64)
	}
	return strconv.FormatFloat(rate, 'f', 0, 64)
}

// part is a table as text.
type part struct {
	title string   // the header of the columns
	lines []string // its rows, painted
}

// body returns the tables, each with as many rows as there is room for.
func (m Model) body() (lines []string) {
	shown, apart := m.plan()
	for t := range tables {
		if shown[t] == 0 {
			continue
		}
		// The table is laid out for the width of the screen. If not all rows are shown, the range needs room at the
		// end of the title, so it is laid out again.
		p := m.rows(t, m.width)
		if len(p.lines) > shown[t] && t != events {
			p = m.rows(t, m.width-rangeWidth) // its last title is short, and not to be cut
		}
		// The scroll position is corrected for this screen only: the table may grow again.
		from := min(m.scroll[t], max(0, len(p.lines)-shown[t]))
		to := min(from+shown[t], len(p.lines))
		// The table that keys scroll has a mark.
		mark := "  "
		if t == m.focus {
			mark = "> "
		}
		// Which rows are shown is said only where some are not.
		where := ""
		if len(p.lines) > shown[t] {
			where = fmt.Sprintf("%d-%d of %d", from+1, to, len(p.lines))
		}
		title := cut(mark+p.title, m.width)
		if room := m.width - width(where) - 1; where != "" && room > 0 {
			title = pad(cut(title, room), room, false) + " " + where
		}
		lines = append(lines, slices.Repeat([]string{""}, apart)...)
		lines = append(lines, m.paint(shell.Strong, title))
		lines = append(lines, p.lines[from:to]...)
	}
	return lines
}

// rangeWidth is how wide the range of the rows that are shown is mostly, at the end of a title.
const rangeWidth = 15

// shown returns how many rows of a table there is room for.
func (m Model) shown(t table) int {
	rows, _ := m.plan()
	return rows[t]
}

// roomy is from how many lines on the tables are apart.
const roomy = 40

// plan divides the lines of the screen among the tables: some rows for each, the most for the one that has the focus.
func (m Model) plan() (rows [tables]int, apart int) {
	if m.height >= roomy {
		apart = 1
	}
	// One line is for the keys.
	room := m.height - headLines - 1
	// The table with the focus is asked first in each round. That it is in the list twice changes nothing.
	first := append([]table{m.focus}, findings, nodes, cursors, events)
	var wants [tables]int
	for t := range tables {
		wants[t] = max(1, len(m.rows(t, m.width).lines))
	}
	// grant gives a table rows up to a number.
	grant := func(t table, upTo int) {
		need := min(upTo, wants[t]) - rows[t]
		// The first row comes with the title.
		if rows[t] == 0 {
			if room < 2+apart {
				return
			}
			rows[t], room, need = 1, room-2-apart, need-1
		}
		more := max(0, min(need, room))
		rows[t], room = rows[t]+more, room-more
	}
	// So that each is seen, then so that each says something.
	for _, least := range []int{1, 3} {
		// What is left goes to the tables in turn, as much as each has rows for.
		for _, t := range first {
			grant(t, least)
		}
	}
	for _, t := range first {
		grant(t, wants[t])
	}
	return rows, apart
}

// rows returns a table for a width. All rows are made, and not only those that are shown: the widths of columns
// depend on all of them.
func (m Model) rows(t table, wide int) part {
	// The mark of the table with the focus is left of the title, so rows are indented as far.
	wide -= len(indent)
	var p part
	switch t {
	case findings:
		p = m.findingRows(wide)
	case nodes:
		p = m.nodeRows(wide)
	case cursors:
		p = m.cursorRows(wide)
	default:
		p = m.eventRows(wide)
	}
	// A table is never without a row, so that its title has something below it.
	if len(p.lines) == 0 {
		p.lines = []string{cut("none", wide)}
	}
	for i := range p.lines {
		p.lines[i] = indent + p.lines[i]
	}
	return p
}

// indent is before each row.
const indent = "  "

// findingRows is what is wrong now, each with its remedy.
func (m Model) findingRows(wide int) part {
	p := part{title: "WRONG NOW"}
	// Before the first answer nothing is known, which is not the same as nothing wrong.
	if m.now.At.IsZero() {
		return p
	}
	if len(m.now.Findings) == 0 {
		p.lines = []string{m.paint(shell.Good, cut("✓ nothing", wide))}
	}
	for _, f := range m.now.Findings {
		text := clean(f.Found)
		if f.Remedy != "" {
			text += ": " + clean(f.Remedy)
		}
		// What follows the first line is indented as the text in it.
		for i, line := range strings.Split(shell.WrapAt(text, max(1, wide-2)), "\n") {
			mark := "✗ "
			if i > 0 {
				mark = "  "
			}
			p.lines = append(p.lines, m.paint(m.now.Tone, cut(mark+line, wide)))
		}
	}
	return p
}

// nodeRows is the nodes as they answer, and as the leader has them.
func (m Model) nodeRows(wide int) part {
	columns := []column{{name: "node", least: 8}, {name: "role"}, {name: "health"}, {name: "offset", right: true},
		{name: "lag"}, {name: "disk free"}, {name: "version", least: 8}, {name: "http", extra: 1}}
	var rows [][]cell
	for _, n := range m.last.Nodes {
		// What a node says itself has "-" if it does not answer. The rest is as the member is known to the cluster.
		health, tone := n.health()
		offset, role := "-", shell.Tone("")
		if n.Answers {
			offset = strconv.FormatUint(n.Offset, 10)
		} else {
			role = shell.Bad
		}
		if n.Role == api.RoleLeader {
			role = shell.Good
		}
		disk := cell{text: "-"}
		// A node that does not answer has the version that it had when it last spoke to the cluster.
		version := n.Version
		if n.Member != nil {
			if version == "" {
				version = n.Member.Version
			}
			if d := n.Member.Disk; d != nil {
				disk.text = shell.Size(d.FreeBytes)
				if d.Full {
					disk = cell{disk.text + " (full)", shell.Bad}
				}
			}
		}
		rows = append(rows, []cell{{text: n.ID}, {n.Role, role}, {health, tone}, {text: offset}, {text: n.lag()}, disk,
			{text: version}, {text: strings.TrimPrefix(n.URL, "http://")}})
	}
	return m.layout(columns, rows, wide)
}

// health says whether the cluster hears a node.
func (n Node) health() (string, shell.Tone) {
	v := n.Member
	// What explains the silence comes before the silence.
	switch {
	case v == nil:
		return "no member", shell.Warn
	case v.OtherFolder:
		return "other folder", shell.Bad
	case v.OtherCluster:
		return "other cluster", shell.Bad
	case v.OtherToken:
		return "other token", shell.Bad
	case v.Unreachable == "raft":
		return "silent over raft", shell.Bad
	case !v.Healthy:
		return "silent", shell.Bad
	case n.Health != nil && !n.Health.Healthy:
		return "unstable", shell.Warn
	}
	return "healthy", shell.Good
}

// lag says how far a node lags. The time is the leader's estimate, and is shown only with entries that are lacking.
func (n Node) lag() string {
	if n.Member == nil {
		return "-"
	}
	text := shell.Count(n.Member.TrailingEntries, "entry", "entries")
	// Only a leader estimates the time.
	if n.Member.TrailingEntries > 0 && n.Health != nil {
		text += ", " + shell.Seconds(n.Health.TrailingSeconds)
	}
	return text
}

// cursorRows is the cursors and groups that a status lists: those that lag most.
func (m Model) cursorRows(wide int) part {
	list := slices.SortedFunc(slices.Values(m.last.Cursors), m.order.compare)
	columns := []column{{name: "cursor", least: 16}, {name: "kind", extra: 2}, {name: "lag", right: true},
		{name: "waits", right: true}, {name: "pending", right: true}, {name: "redelivering", right: true},
		{name: "members", right: true, extra: 3}, {name: "state"}, {name: "committed", right: true, extra: 1}}
	var rows [][]cell
	for _, c := range list {
		state := cell{text: "-"}
		// One word is shown, for what needs attention most.
		switch {
		case c.Stalled != nil:
			state = cell{"stalled", shell.Warn}
		case c.Throttled():
			state = cell{"throttled", shell.Warn}
		case c.Gap != nil:
			state = cell{"gap", shell.Warn}
		}
		// A cursor of one reader has none of these.
		pending, redelivering, members := "-", "-", "-"
		if g := c.Group; g != nil {
			pending, redelivering = strconv.FormatUint(g.Pending, 10), strconv.FormatUint(g.Redelivering, 10)
			members = strconv.Itoa(g.Members)
		}
		rows = append(rows, []cell{{text: c.Name}, {text: c.Kind}, {text: c.Lag}, {text: c.Waits}, {text: pending},
			{text: redelivering}, {text: members}, state, {text: strconv.FormatUint(c.Committed, 10)}})
	}
	p := m.layout(columns, rows, wide)
	// A status lists a bounded number of cursors.
	if left := m.last.View.CursorsLeft; left > 0 {
		p.lines = append(p.lines, cut(fmt.Sprintf("%d that lag less are left out: ringlog cursor lag", left), wide))
	}
	return p
}

// eventRows is the cluster's own events, the newest first.
func (m Model) eventRows(wide int) part {
	columns := []column{{name: "time"}, {name: "event"}, {name: "who", least: 8}, {name: "term", right: true, extra: 1},
		{name: "offset", right: true, extra: 2}, {name: "details", least: 12}}
	var rows [][]cell
	for _, e := range slices.Backward(m.story.Events) {
		rows = append(rows, []cell{{text: moment(e.At, m.now.At)}, {text: e.Type}, {text: e.Subject},
			{text: strconv.FormatUint(e.Term, 10)}, {text: strconv.FormatUint(e.Offset, 10)}, {text: e.Details}})
	}
	p := m.layout(columns, rows, wide)
	// Why the story is not complete comes before what there is of it.
	if m.story.Failed != "" {
		p.lines = append([]string{m.paint(shell.Warn, cut(clean(m.story.Failed), wide))}, p.lines...)
	}
	return p
}

// helpLines says what the keys do and what the columns mean.
func (m Model) helpLines() (lines []string) {
	for _, text := range []string{
		"",
		"q, Ctrl-C      quit",
		"Tab, S-Tab     choose the table that keys scroll: its title begins with >",
		"j k, arrows    scroll; PgDn, PgUp by a page; g, G to the first, the last row",
		"s              sort cursors by lag, time waited, pending, redelivering, name",
		"p, Space       pause: the screen stays as it is, and no node is asked",
		"?              this help; any key leaves it",
		"",
		"WRONG NOW      what ringlog check finds, with the remedy",
		"NODE           applied: the last offset that its state has",
		"               lag: entries of the raft log that it lacks",
		"CURSOR         lag: events still to come, waits: the oldest of them so long",
		"               pending: delivered and not acknowledged",
		"               redelivering: to be delivered again",
		"TIME           what the cluster has emitted about itself, the newest first",
		"",
		"Rates are means of five seconds and more. Times are in UTC.",
	} {
		lines = append(lines, cut(text, m.width))
	}
	return lines
}

// paint colours a text. It adds escape sequences, so texts are cut and padded before.
func (m Model) paint(tone shell.Tone, text string) string {
	if tone == "" {
		return text
	}
	return m.options.Paint(tone, text)
}

// clock prints the time of the day to the second.
func clock(t time.Time) string { return t.UTC().Format("15:04:05Z") }

// moment prints a time, with its date unless it is within a day of now.
func moment(t, now time.Time) string {
	if now.Sub(t) < 24*time.Hour {
		return clock(t)
	}
	return shell.Time(t)
}

// age prints how long ago something was.
func age(t, now time.Time) string { return shell.Short(max(0, now.Sub(t)).Round(time.Second)) }

// clean replaces what a terminal does not print as it is: names and reasons come from outside.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}
