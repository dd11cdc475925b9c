package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// A check has three steps. askEverybody gets the status of every node. judgeAll takes the view that counts most,
// judges it with judge, and adds what other nodes see differently. checkDone prints the result in one of the three
// forms, and ends with the state as exit code.

// The states of a check, which are its exit codes, as Nagios has them.
const (
	checkOK       = 0
	checkWarning  = 1
	checkCritical = 2
	checkUnknown  = 3
)

// checkOptions are the limits from which lag and dead letters are a problem; 0 is no limit.
// Lag and age are limits apart: each cursor has to keep both. A critical limit counts more than a warning's.
type checkOptions struct {
	warnLag, critLag         uint64        // events that a cursor may lag by
	warnAge, critAge         time.Duration // how long its oldest event may wait
	warnLetters, critLetters uint64        // dead letters that are not redriven
	critUnheard              uint64        // critical subscriptions that have no listener or are not attached

	nodes  bool        // judge the nodes alone, not those who use them
	format checkFormat // of the result
}

// checkFormat is a form of the result.
type checkFormat string

// The forms of the result.
const (
	asNagios     checkFormat = "nagios"     // a line, as monitoring plugins print it
	asJSON       checkFormat = "json"       // an object
	asPrometheus checkFormat = "prometheus" // metrics, for the textfile collector of a node exporter
)

// checkFormatOf reads --format. Without it the output of all verbs decides. An error names the forms that there
// are.
func checkFormatOf(sh *shell.Shell, text string) (checkFormat, error) {
	switch format := checkFormat(text); format {
	case asNagios, asJSON, asPrometheus:
		return format, nil
	case "":
		if sh.JSON {
			return asJSON, nil
		}
		return asNagios, nil
	}
	return "", shell.Usagef("--format %q: use nagios, json or prometheus", text)
}

// checkCommand is check, a plugin in the form that Nagios and its successors run: one line on stdout with performance
// data after a bar, and the state as exit code. It judges the cluster as a whole, from the answers of all nodes.
func checkCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "check", Usage: "check the cluster's health for a monitoring system",
		Description: "Exits 0 for OK, 1 for WARNING, 2 for CRITICAL and 3 for UNKNOWN, as monitoring plugins do.\n" +
			"With -o json it prints an object of state, code, message, problems (a list of found and remedy) and figures.",
		UsageText: shell.Examples(
			"ringlog check",
			"ringlog check --nodes --format prometheus",
			"ringlog check --critical-unheard 1",
			"ringlog check --warning-lag 100000 --critical-age 1h --warning-letters 100",
		),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "format", Usage: "`FORMAT` of the result: nagios, json, or prometheus for its textfile " +
				"collector (default: nagios, and json with -o json)"},
			&cli.BoolFlag{Name: "nodes", Usage: "check only the nodes, not cursors, dead letters, clients, runs and publishers"},
			&cli.Uint64Flag{Name: "warning-lag", Usage: "warn if a cursor lags by `N` events"},
			&cli.Uint64Flag{Name: "critical-lag", Usage: "critical if a cursor lags by `N` events"},
			&cli.DurationFlag{Name: "warning-age",
				Usage: "warn if a cursor's oldest unread event is older than this `DURATION`"},
			&cli.DurationFlag{Name: "critical-age",
				Usage: "critical if a cursor's oldest unread event is older than this `DURATION`"},
			&cli.Uint64Flag{Name: "warning-letters", Usage: "warn if there are `N` dead letters"},
			&cli.Uint64Flag{Name: "critical-letters", Usage: "critical if there are `N` dead letters"},
			&cli.Uint64Flag{Name: "critical-unheard",
				Usage: "critical if `N` critical subscriptions have no listener or are not attached (one is a warning)"},
		},
		// For a monitor, wrong usage is UNKNOWN: 2 would read as CRITICAL.
		OnUsageError: func(_ *cli.Context, err error, _ bool) error {
			return checkMisused(sh, asNagios, err.Error())
		},
		Action: func(c *cli.Context) error {
			format, err := checkFormatOf(sh, c.String("format"))
			if err != nil {
				return checkMisused(sh, asNagios, err.Error())
			}
			// Wrong arguments are UNKNOWN, too: a monitor must not take them for a state of the cluster.
			if err := shell.Exactly(c, 0, ""); err != nil {
				return checkMisused(sh, format, err.Error())
			}
			o := checkOptions{format: format, warnLag: c.Uint64("warning-lag"), critLag: c.Uint64("critical-lag"),
				warnAge: c.Duration("warning-age"), critAge: c.Duration("critical-age"),
				warnLetters: c.Uint64("warning-letters"), critLetters: c.Uint64("critical-letters"),
				critUnheard: c.Uint64("critical-unheard"),
				nodes:       c.Bool("nodes")}
			// Compared as a whole: any limit that is set makes a difference.
			if o.nodes && o != (checkOptions{nodes: true, format: format}) {
				return checkMisused(sh, format, "--nodes excludes limits of lag, dead letters and subscriptions")
			}
			return check(c.Context, sh, o)
		},
	}
}

// check asks all nodes and judges what they say.
func check(ctx context.Context, sh *shell.Shell, o checkOptions) error {
	found, err := askEverybody(ctx, sh, statusOf)
	state, bad, s := judgeSweep(found, err, sh.Endpoints, o)
	// Without a view there are no figures either.
	if err != nil {
		return checkDone(sh, o.format, state, problemsText(bad), bad, nil)
	}
	// A healthy cluster is described, too: the line is what an operator reads first.
	words := problemsText(bad)
	if len(bad) == 0 {
		words = fmt.Sprintf("%s leads, %s, cluster %s", s.LeaderID, quorumText(s.Quorum), s.ClusterID)
	}
	return checkDone(sh, o.format, state, words, bad, performance(s))
}

// checkMisused prints that the command line is wrong, which is UNKNOWN.
func checkMisused(sh *shell.Shell, format checkFormat, why string) error {
	return checkDone(sh, format, checkUnknown, why, []problem{{Found: why}}, nil)
}

// judgeSweep judges a sweep, or that it has failed with err, as judgeAll does. If it has failed, view is the zero
// value.
func judgeSweep(found sweep[nodeStatus], err error, endpoints []string, o checkOptions) (
	state int, bad []problem, view nodeStatus) {
	if err == nil {
		return judgeAll(found, endpoints, o)
	}
	// A cluster that does not answer, or has no leader, is in the worst state; the check has not failed.
	state = checkUnknown
	if shell.ExitCode(err) == shell.ExitUnreachable || errors.Is(err, context.DeadlineExceeded) {
		state = checkCritical
	}
	return state, []problem{noStatus(err, endpoints)}, view
}

// noStatus is the problem that no node shows its status: none answers, or those that do refuse it.
func noStatus(err error, endpoints []string) problem {
	p := problem{shell.Brief(err), "start the nodes, or correct --endpoints"}
	answer, answered := errors.AsType[*api.Error](err)
	switch {
	case answered:
		p.Remedy = shell.Remedy(answer)
	case errors.Is(err, shell.ErrUnreachable), errors.Is(err, context.DeadlineExceeded):
		p.Found = "no node answers at " + strings.Join(endpoints, ", ")
	}
	return p
}

// judgeAll returns the state that the statuses of all nodes amount to, and why: what the leader sees, and
// what others see differently. view is the status that counts most, the leader's if there is one.
func judgeAll(found sweep[nodeStatus], endpoints []string, o checkOptions) (
	state int, bad []problem, view nodeStatus) {
	// The view of the node that knows most is what counts; among equals, that of the latest term.
	// The zero view has no id, so the first answer takes its place.
	for _, a := range found.answers {
		if a.err == nil && (view.NodeID == "" || knowsMore(a.value, view)) {
			view = a.value
		}
	}
	state, bad = judge(view, o)
	// Nodes of two clusters in one list of endpoints make every other figure meaningless.
	if found.mixed() != "" {
		state, bad = checkCritical, append([]problem{{Found: found.mixed()}}, bad...)
	}
	// A node that sees something differently is a warning at least.
	for _, a := range found.answers {
		if more := differs(a, view, found.members, endpoints); more != "" {
			state, bad = max(state, checkWarning), append(bad, problem{Found: more})
		}
	}
	return state, bad, view
}

// knowsMore reports whether a's view of the cluster counts more than b's.
func knowsMore(a, b nodeStatus) bool {
	// A leader counts more than a later term: the term of a node that is cut off may grow, too.
	if viewRank(a) != viewRank(b) {
		return viewRank(a) > viewRank(b)
	}
	return a.Term > b.Term
}

// viewRank orders nodes by how much they know of the cluster.
// A leader without a majority ranks no higher than a follower: it may not know yet that it is deposed.
func viewRank(s nodeStatus) int {
	// A node that knows no leader knows least of all.
	switch {
	case s.Role == api.RoleLeader && s.Quorum.Margin >= 0:
		return 2
	case s.LeaderID != "":
		return 1
	}
	return 0
}

// differs returns what a node sees that view does not, such as a partition that the leader is not part of. An
// endpoint that does not answer is reported if view has its node as healthy, or does not know it.
func differs(a answer[nodeStatus], view nodeStatus, members map[string]string, endpoints []string) string {
	// Of a cluster that is not formed yet the view says whom it waits for.
	if view.ClusterID == "" && !refusesToken(a.err) {
		return ""
	}
	// Healthy as the view has it, not as the node itself does.
	healthy := func(id string) bool {
		return slices.ContainsFunc(view.Members, func(m api.Member) bool { return m.ID == id && m.Healthy })
	}
	// Silence counts if the view has the node as healthy: else the view reports it already.
	if a.err != nil {
		// A URL that no member has was named by the user, and should answer in any case.
		id := members[a.url]
		switch {
		case !slices.Contains(endpoints, a.url):
			return ""
		case refusesToken(a.err):
			return fmt.Sprintf("%s refuses the token of this command: give it, or the node, the cluster's --token-file", a.url)
		case id == "":
			return fmt.Sprintf("%s does not answer, and no member has that URL: correct --endpoints", a.url)
		case healthy(id):
			return fmt.Sprintf("%s does not answer this command, but %s has %s as healthy", a.url, view.NodeID, id)
		}
		return ""
	}
	// From here on what a node sees differently, part by part.
	s := a.value
	if s.NodeID == view.NodeID && s.ClusterID == view.ClusterID {
		return ""
	}
	// Members that this node cannot reach, but the view can.
	var unheard []string
	for _, m := range s.Members {
		if !m.Healthy && healthy(m.ID) && m.ID != s.NodeID {
			unheard = append(unheard, m.ID)
		}
	}
	var parts []string
	switch {
	case s.JoinRefused != "":
		parts = append(parts, "is not admitted to the cluster: "+s.JoinRefused)
	case s.LeaderID == "":
		parts = append(parts, "sees no leader")
	case s.LeaderID != view.LeaderID && view.LeaderID != "":
		parts = append(parts, fmt.Sprintf("follows %s (term %d)", s.LeaderID, s.Term))
	}
	if len(unheard) > 0 {
		parts = append(parts, "gets no answer from "+strings.Join(unheard, ", "))
	}
	if s.Diverged {
		parts = append(parts, "has a state that differs from the majority's")
	}
	if problem := tlsProblem(s); problem != "" {
		parts = append(parts, problem)
	}
	if len(parts) == 0 {
		return ""
	}
	return s.NodeID + " " + strings.Join(parts, ", ")
}

// judge returns the state that a status amounts to for a monitor, and why.
func judge(s nodeStatus, o checkOptions) (state int, bad []problem) {
	// Any problem is a warning; what stops the cluster is critical, and lag is judged by the limits given.
	// The figures of those who use the nodes are cleared, so nothing below sees them.
	if o.nodes {
		s.Cursors, s.Overdue, s.Backpressure = nil, nil, api.Pressure{}
		s.Subscriptions.CriticalDetached, s.Subscriptions.CriticalUnheard = 0, 0
		s.DeadLetters = api.LetterStats{}
	}
	state = checkOK
	bad = problems(s)
	if len(bad) > 0 {
		state = checkWarning
	}
	// Each of these keeps the cluster, or this node, from accepting events.
	if s.LeaderID == "" || s.Quorum.Margin < 0 || s.Diverged || refusesAppends(s) {
		state = checkCritical
	}
	// Each cursor for itself: the worst one decides.
	limit := func(warn, crit bool, remedy, format string, args ...any) {
		switch {
		case crit:
			state = checkCritical
		case warn:
			state = max(state, checkWarning)
		default:
			return
		}
		bad = append(bad, problem{fmt.Sprintf(format, args...), remedy})
	}
	for _, c := range s.Cursors {
		lag, age := leastLag(c)
		// leastLag has the lower bounds, so a limit that is over is over for certain.
		limit(over(lag, o.warnLag) || over(age, o.warnAge), over(lag, o.critLag) || over(age, o.critAge),
			"see ringlog cursor lag", "cursor %s lags by %s, %s", c.Name, lagEvents(c), lagTime(c))
	}
	dead := deadLetters(s)
	limit(over(dead, o.warnLetters), over(dead, o.critLetters), "see ringlog dlq", "%s", shell.Count(dead, "dead letter"))
	// One of them is a problem already, so the words are there.
	if over(uint64(s.Subscriptions.CriticalDetached+s.Subscriptions.CriticalUnheard), o.critUnheard) {
		state = checkCritical
	}
	return state, bad
}

// problemsText is all problems on one line.
func problemsText(list []problem) string {
	words := make([]string, len(list))
	for i, p := range list {
		words[i] = p.String()
	}
	return strings.Join(words, "; ")
}

// deadLetters counts those that are not redriven.
func deadLetters(s nodeStatus) uint64 { return s.DeadLetters.Count - s.DeadLetters.Redriven }

// over reports a value at or above a limit that was set.
func over[T uint64 | time.Duration](value, limit T) bool { return limit > 0 && value >= limit }

// figure is a value beside the verdict, from which monitors draw graphs.
type figure struct {
	name, unit string // the unit is c for what only grows
	value      uint64
	help       string // what it counts, for Prometheus
}

// performance returns the figures of a status. They are not judged: a monitor draws them.
func performance(s nodeStatus) []figure {
	// If a cursor's lag is uncertain the lower bound counts, so no alarm is raised for a guess.
	lag := uint64(0)
	for _, c := range s.Cursors {
		least, _ := leastLag(c)
		lag = max(lag, least)
	}
	// An empty log has a first offset beyond its last one.
	events := s.LastOffset - min(s.FirstOffset-min(s.FirstOffset, 1), s.LastOffset)
	return []figure{
		{"events", "", events, "Events that the log keeps."},
		{"offset", "c", s.LastOffset, "Last offset of the log."},
		{"healthy_voters", "", uint64(max(0, s.Quorum.Healthy)), "Voters that answer."},
		{"max_cursor_lag", "", min(lag, math.MaxInt64), "Events that the cursor with the most of them lags by."},
		{"dead_letters", "", deadLetters(s), "Dead letters that are not redriven."},
	}
}

// checkResult is a result in JSON.
type checkResult struct {
	State    string            `json:"state"` // OK, WARNING, CRITICAL or UNKNOWN
	Code     int               `json:"code"`  // the exit code
	Message  string            `json:"message"`
	Problems []problem         `json:"problems"`
	Figures  map[string]uint64 `json:"figures,omitempty"` // by name; none where no node shows its status
}

// checkDone prints the verdict in words, with its problems and figures where the format has them, and returns its exit
// code.
func checkDone(sh *shell.Shell, format checkFormat, state int, words string, bad []problem, figures []figure) error {
	// Every form has the same state. A monitor reads the exit code first.
	name, tone := verdictName(state)
	var err error
	switch {
	case format == asPrometheus:
		err = sh.Print(prometheusText(state, figures))
	case format == asJSON || sh.JSON:
		v := checkResult{State: name, Code: state, Message: words, Problems: append([]problem{}, bad...),
			Figures: map[string]uint64{}}
		for _, f := range figures {
			v.Figures[f.name] = f.value
		}
		err = sh.PrintLine(v)
	default:
		line := fmt.Sprintf("RINGLOG %s - %s", sh.Paint(tone, name), words)
		// Figures follow the bar. Only what is read by a program has them: people do not read them.
		if len(figures) > 0 && sh.Width() == 0 {
			line += " |"
			for _, f := range figures {
				line += fmt.Sprintf(" %s=%d%s", f.name, f.value, f.unit)
			}
		}
		err = sh.Print(line)
	}
	if err != nil || state == checkOK {
		return err
	}
	return shell.CodeError(state)
}

// verdictName is the name of a state, with its tone.
func verdictName(state int) (string, shell.Tone) {
	// The exit codes are the indexes.
	return [...]string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}[state],
		[...]shell.Tone{shell.Good, shell.Warn, shell.Bad, shell.Warn}[state]
}

// prometheusText is the verdict as metrics. The words of a verdict are no labels: each would be a series.
func prometheusText(state int, figures []figure) string {
	figures = append([]figure{{"state", "", uint64(state),
		"What the check found: 0 ok, 1 warning, 2 critical, 3 unknown."}}, figures...)
	var b strings.Builder
	for _, f := range figures {
		name, kind := "ringlog_check_"+f.name, "gauge"
		if f.unit == "c" {
			name, kind = name+"_total", "counter"
		}
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n%s %d\n", name, f.help, name, kind, name, f.value)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
