package launch

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/daemon"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// A file is read in four steps, which all report into one list of problems. parse makes flat tables of the TOML,
// with the line of every key. daemonsIn makes daemons of them, with the defaults. arrange orders the daemons, and
// checkHost looks for their programs.

// File is what a file lists.
type File struct {
	Path    string    // absolute
	Daemons []*Daemon // by layer, then by after, then as in the file
}

// Daemon is one [daemon.NAME] of a file, with the file's defaults.
type Daemon struct {
	daemon.Options // without what is of this process: Holder, Stdout, Stderr, Say, Changed, and its own environment

	Layer       int      // 1 or more
	After       []string // the daemons that it needs
	Group       string   // for --only; "" is none
	Ready       string   // a duration, registered, a URL or a shell command
	Critical    bool     // without it the others are stopped
	Coordinator string   // the entry of the platform's registry, "" is none
	PassToken   bool     // the cluster token is in the environment

	extra map[string]string // of the environment
	line  int               // of its table
	lines map[string]int    // of its keys, by name
}

// Defaults of what a file does not say.
const (
	backoff        = time.Second      // before the first restart
	maxRestarts    = 5                // the next layer waits for them
	healthInterval = 10 * time.Second // also bounds one check
	readyAfter     = "1s"             // a daemon without a setting of ready counts as ready after this time
	readyTimeout   = time.Minute      // after this time without being ready the command has failed
	roleTTL        = 15 * time.Second // of the lease
	stopTimeout    = 10 * time.Second // between SIGTERM and SIGKILL; less where the ttl of a role asks for it
)

// registered is the value of ready that waits for the registration of a client.
const registered = "registered"

// What bounds a file, and so the time that it takes to read.
const (
	maxFile    = 1 << 20 // bytes
	maxDaemons = 1000
)

// key is a setting of a daemon.
type key struct {
	name    string                      // of the key in the file
	example string                      // a value of it, as in a file
	own     bool                        // it has no default
	set     func(d *Daemon, v any) bool // stores v and reports whether it is valid; nil for a table
}

// keys lists the settings. A wrong value is set, too: the problem that is reported keeps the file from being used.
func keys() []key {
	return []key{
		{"command", `["./daemon", "--name={name}"] or "exec ./daemon"`, false, setCommand},
		{"layer", `2`, true, setInt(func(d *Daemon) *int { return &d.Layer })},
		{"after", `["name"]`, true, func(d *Daemon, v any) (ok bool) { d.After, ok = stringsIn(v); return ok }},
		{"group", `"sync"`, false, setString(func(d *Daemon) *string { return &d.Group })},
		{"coordinator", `"health_manager"`, true, setString(func(d *Daemon) *string { return &d.Coordinator })},
		{"critical", `true`, true, setBool(func(d *Daemon) *bool { return &d.Critical })},
		{"role", `"SYNC_LEADER"`, true, setString(func(d *Daemon) *string { return &d.Role })},
		{"ttl", `"15s"`, false, setDuration(func(d *Daemon) *time.Duration { return &d.TTL })},
		{"restart", `"always", "on-failure" or "never"`, false, setRestart},
		{"backoff", `"1s"`, false, setDuration(func(d *Daemon) *time.Duration { return &d.Backoff })},
		{"max_restarts", `5`, false, setInt(func(d *Daemon) *int { return &d.MaxRestarts })},
		{"health", `"http://127.0.0.1:8080/healthz" or a shell command`, false,
			setString(func(d *Daemon) *string { return &d.Health })},
		{"health_interval", `"10s"`, false, setDuration(func(d *Daemon) *time.Duration { return &d.HealthInterval })},
		{"ready", `"registered", "2s", "http://127.0.0.1:8080/ready" or a shell command`, false,
			setString(func(d *Daemon) *string { return &d.Ready })},
		{"ready_timeout", `"1m"`, false, setDuration(func(d *Daemon) *time.Duration { return &d.ReadyTimeout })},
		{"dir", `"data/{name}"`, false, setString(func(d *Daemon) *string { return &d.Dir })},
		{"env", `{ NAME = "value" }`, false, nil}, // its members are read one by one
		{"stop_timeout", `"10s"`, false, setDuration(func(d *Daemon) *time.Duration { return &d.StopTimeout })},
		{"pass_token", `true`, false, setBool(func(d *Daemon) *bool { return &d.PassToken })},
	}
}

// setString takes a text that is not empty.
func setString(field func(*Daemon) *string) func(*Daemon, any) bool {
	return func(d *Daemon, v any) (ok bool) { *field(d), ok = v.(string); return ok && *field(d) != "" }
}

// setBool takes true or false.
func setBool(field func(*Daemon) *bool) func(*Daemon, any) bool {
	return func(d *Daemon, v any) (ok bool) { *field(d), ok = v.(bool); return ok }
}

// setInt takes a number from 0 to a million.
func setInt(field func(*Daemon) *int) func(*Daemon, any) bool {
	return func(d *Daemon, v any) bool {
		n, ok := v.(int64)
		*field(d) = int(n)
		return ok && n >= 0 && n <= 1_000_000
	}
}

// setDuration takes a text such as "1m30s" of more than nothing.
func setDuration(field func(*Daemon) *time.Duration) func(*Daemon, any) bool {
	return func(d *Daemon, v any) bool {
		text, _ := v.(string)
		value, err := time.ParseDuration(text)
		*field(d) = value
		return err == nil && value > 0
	}
}

// setRestart takes one of the values of daemon.Restart.
func setRestart(d *Daemon, v any) bool {
	text, _ := v.(string)
	d.Restart = daemon.Restart(text)
	return slices.Contains([]daemon.Restart{daemon.Always, daemon.OnFailure, daemon.Never}, d.Restart)
}

// setCommand takes a list, which is run as it is, or a text for the shell.
func setCommand(d *Daemon, v any) (ok bool) {
	if text, isText := v.(string); isText {
		d.Args = []string{"sh", "-c", text}
		return strings.TrimSpace(text) != ""
	}
	d.Args, ok = stringsIn(v)
	return ok && len(d.Args) > 0 && d.Args[0] != ""
}

// stringsIn returns the members of a list of strings.
func stringsIn(v any) (list []string, ok bool) {
	members, ok := v.([]any)
	for _, m := range members {
		text, isText := m.(string)
		if !isText {
			return nil, false
		}
		list = append(list, text)
	}
	return list, ok
}

// problems are what is wrong with a file, each with its line.
type problems struct {
	path string    // as it was given
	list []problem // as they were found; err sorts them
}

// problem is one line of the error that Read returns.
type problem struct {
	line int    // 0 is none
	text string // without the place
}

// add notes a problem. Nothing ends with the first one, so that one run reports all.
func (p *problems) add(line int, format string, args ...any) {
	p.list = append(p.list, problem{line, fmt.Sprintf(format, args...)})
}

// err returns all problems in the order of their lines, nil if there is none.
func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	slices.SortStableFunc(p.list, func(a, b problem) int { return a.line - b.line })
	var lines []string
	// A line has the form of a compiler's message, so that editors find the place.
	for _, one := range p.list {
		place := p.path
		if one.line > 0 {
			place += ":" + strconv.Itoa(one.line)
		}
		lines = append(lines, place+": "+one.text)
	}
	return shell.Usagef("%s", strings.Join(lines, "\n"))
}

// Read reads a file and checks it. The error names all that is wrong. With groups, only their daemons and those that
// they need are in the result, and only of these the program has to be on this host.
func Read(path string, groups []string) (*File, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, shell.Usagef("%s: %w", path, err)
	}
	content, err := readBounded(abs)
	if err != nil {
		return nil, shell.Usagef("%s: %w", path, err)
	}
	p := &problems{path: path}
	f := &File{Path: abs}
	// A file that is no TOML has no daemons to check. All other problems leave the rest of the file to be checked.
	if tables, ok := parse(content, p); ok {
		f.Daemons = daemonsIn(tables, filepath.Dir(abs), p)
		// Before only, since what a group needs is found by after.
		f.arrange(p)
		if len(groups) > 0 {
			f.only(groups, p)
		}
		for _, d := range f.Daemons {
			d.checkHost(p)
		}
	}
	return f, p.err()
}

// readBounded returns the content of the file at path, or an error if it has more than maxFile bytes.
func readBounded(path string) ([]byte, error) {
	in, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errors.New("there is no such file (to begin with one: ringlog launch --print-coordinators)")
	}
	if err != nil {
		return nil, err
	}
	defer in.Close()
	// The byte more than allowed distinguishes a file of exactly maxFile bytes from a larger one.
	content, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if len(content) > maxFile {
		err = fmt.Errorf("it is larger than %s", shell.Size(maxFile))
	}
	return content, err
}

// table is a table of a file whose members are no tables, which come as tables of their own.
type table struct {
	path    []string // such as daemon, NAME; empty above the first table
	line    int      // of its header, or of its first key if it has none
	members []member // in the order of the file
}

// member is a key with its value: a string, int64, bool, []any, or nil for anything else.
type member struct {
	name  string
	value any
	line  int // of its key
}

// parse reads the tables of a file in their order, unless the file is no TOML.
func parse(content []byte, p *problems) (tables []*table, ok bool) {
	r := reader{seen: map[string]int{}, problems: p}
	r.parser.Reset(content)
	// The unstable parser is used because it alone has the line of each key.
	for r.parser.NextExpression() {
		switch e := r.parser.Expression(); e.Kind {
		case unstable.Table, unstable.ArrayTable:
			path, line := r.path(nil, e.Key())
			if first := r.seen[strings.Join(path, "\x00")]; first != 0 {
				p.add(line, "[%s] is in line %d already: give each table a name of its own", dotted(path), first)
			} else if e.Kind == unstable.ArrayTable {
				p.add(line, "[[%s]] is a list: write [%s]", dotted(path), dotted(path))
			}
			r.open(path, line)
		case unstable.KeyValue:
			r.keyValue(r.current, e)
		}
	}
	// The parser sees each line by itself. What contradicts another line is for the decoder to find, unless it is
	// reported already.
	var wrong *toml.DecodeError
	err := toml.Unmarshal(content, new(map[string]any))
	switch {
	case errors.As(err, &wrong) && (r.parser.Error() != nil || len(p.list) == 0):
		line, column := wrong.Position()
		p.add(line, "column %d: %s", column, strings.TrimPrefix(wrong.Error(), "toml: "))
		return nil, false
	case err != nil && len(p.list) == 0:
		p.add(1, "%s", strings.TrimPrefix(err.Error(), "toml: "))
		return nil, false
	}
	return r.tables, true
}

// reader gathers the tables of a file.
type reader struct {
	parser   unstable.Parser // of the whole content
	tables   []*table        // in the order of the file; one path may occur several times
	current  []string        // the path of the last [table]
	seen     map[string]int  // the lines of tables and keys, by path
	problems *problems       // of the file
}

// path returns the path of a key below another one, and its line.
func (r *reader) path(below []string, key unstable.Iterator) (path []string, line int) {
	path = slices.Clone(below)
	for key.Next() {
		path = append(path, string(key.Node().Data))
		line = r.parser.Shape(key.Node().Raw).Start.Line
	}
	return path, line
}

// open begins a table.
func (r *reader) open(path []string, line int) {
	r.current = path
	r.seen[strings.Join(path, "\x00")] = line
	r.tables = append(r.tables, &table{path: path, line: line})
}

// keyValue reads a key and its value. What is in an inline table, or below a dotted key, is in a table of its own.
func (r *reader) keyValue(below []string, e *unstable.Node) {
	path, line := r.path(below, e.Key())
	full := strings.Join(path, "\x00")
	if first := r.seen[full]; first != 0 {
		r.problems.add(line, "%s is in line %d already", dotted(path), first)
		return
	}
	r.seen[full] = line
	above, name := path[:len(path)-1], path[len(path)-1]
	// An inline table is a table like any other. Its members get the path of the key.
	if e.Value().Kind == unstable.InlineTable {
		r.tables = append(r.tables, &table{path: path, line: line})
		for children := e.Value().Children(); children.Next(); {
			r.keyValue(path, children.Node())
		}
		return
	}
	// A dotted key, such as env.NAME, and a key after an inline table begin another table.
	last := len(r.tables) - 1
	if last < 0 || !slices.Equal(r.tables[last].path, above) {
		r.tables = append(r.tables, &table{path: above, line: line})
		last++
	}
	r.tables[last].members = append(r.tables[last].members, member{name, valueOf(e.Value()), line})
}

// valueOf returns a value as member has it. What it does not know, such as a float or a date, is nil, which no key
// accepts.
func valueOf(n *unstable.Node) any {
	switch n.Kind {
	case unstable.String:
		// No command line or environment can have it. Such a text is nil, so that the key reports it.
		if text := string(n.Data); !strings.Contains(text, "\x00") {
			return text
		}
	case unstable.Bool:
		return string(n.Data) == "true"
	case unstable.Integer:
		// Base 0 reads the forms of TOML: hexadecimal, octal and binary numbers, and underscores.
		if i, err := strconv.ParseInt(string(n.Data), 0, 64); err == nil {
			return i
		}
	case unstable.Array:
		list := []any{}
		for children := n.Children(); children.Next(); {
			list = append(list, valueOf(children.Node()))
		}
		return list
	}
	return nil
}

// dotted prints the path of a key.
func dotted(path []string) string { return strings.Join(path, ".") }

// nameForm is the form of names of daemons and groups: that of a daemon is also a file name and an event's key.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

const nameRule = "use up to 64 letters, digits, dots, dashes and underscores"

// daemonsIn returns the daemons of a file in their order, without layers that are not given.
func daemonsIn(tables []*table, dir string, p *problems) (list []*Daemon) {
	// What a file does not set is set here, and a daemon is a copy of base.
	base := &Daemon{Ready: readyAfter, extra: map[string]string{}, lines: map[string]int{}}
	base.TTL, base.Restart, base.Backoff, base.MaxRestarts = roleTTL, daemon.OnFailure, backoff, maxRestarts
	base.HealthInterval, base.ReadyTimeout = healthInterval, readyTimeout
	// The defaults first, wherever they are in the file.
	for _, t := range tables {
		if len(t.path) > 0 && t.path[0] == "defaults" {
			base.read("defaults", t, t.path[1:], p)
		}
	}
	byName := map[string]*Daemon{}
	for _, t := range tables {
		switch {
		case len(t.path) == 0: // keys above the first table
			for _, m := range t.members {
				p.add(m.line, "there is no key %q here: write it below [defaults] or [daemon.NAME]", m.name)
			}
		case t.path[0] == "defaults": // which are read
		case t.path[0] != "daemon":
			p.add(t.line, "there is no table [%s]: use [defaults] and [daemon.NAME]%s", dotted(t.path),
				shell.DidYouMean(t.path[0], []string{"defaults", "daemon"}, ""))
		case len(t.path) == 1:
			for _, m := range t.members {
				p.add(m.line, "daemon.%s is no table: write [daemon.%s] above its keys", m.name, m.name)
			}
		default:
			name := t.path[1]
			d := byName[name]
			// A daemon has several tables if it has env: the first one adds it to the list.
			if d == nil {
				if !nameForm.MatchString(name) {
					p.add(t.line, "daemon %q: %s", name, nameRule)
				}
				d = base.clone(name, t.line)
				byName[name], list = d, append(list, d)
			}
			d.read("daemon "+name, t, t.path[2:], p)
		}
	}
	if len(list) > maxDaemons {
		p.add(list[maxDaemons].line, "more than %d daemons: use several files", maxDaemons)
		return nil
	}
	// Anything else that is wrong may be why there is none.
	if len(list) == 0 && len(p.list) == 0 {
		p.add(1, "there is no daemon: add a table [daemon.NAME] with a command")
	}
	// Each is completed once all of its tables are read, as settings depend on each other.
	for _, d := range list {
		d.complete(dir, p)
	}
	return list
}

// clone returns a daemon with the defaults.
func (d *Daemon) clone(name string, line int) *Daemon {
	c := *d
	// The maps are the daemon's own. Its Args are still those of the defaults: fillName copies them.
	c.Name, c.line, c.extra, c.lines = name, line, maps.Clone(d.extra), maps.Clone(d.lines)
	return &c
}

// read takes the members of a table, which is at path below its own. what names it in problems. Only env may have a
// path: its members are variables, all others are keys.
func (d *Daemon) read(what string, t *table, path []string, p *problems) {
	names := make([]string, 0, len(keys()))
	for _, k := range keys() {
		names = append(names, k.name)
	}
	// A known key that is written as a table is another mistake than an unknown one.
	if len(path) > 0 && (path[0] != "env" || len(path) > 1) {
		if slices.Contains(names, path[0]) {
			p.add(t.line, "%s: %s is no table", what, dotted(path))
		} else {
			p.add(t.line, "%s: there is no key %q%s", what, dotted(path), shell.DidYouMean(path[0], names, ""))
		}
		return
	}
	for _, m := range t.members {
		if len(path) == 1 {
			text, ok := m.value.(string)
			if !ok || m.name == "" || strings.ContainsAny(m.name, "=\x00") {
				p.add(m.line, `%s: env.%s: write NAME = "value"`, what, m.name)
			}
			d.extra[m.name] = text
			continue
		}
		// names has the order of keys.
		i := slices.Index(names, m.name)
		if i < 0 {
			p.add(m.line, "%s: there is no key %q%s", what, m.name, shell.DidYouMean(m.name, names, ""))
			continue
		}
		k := keys()[i]
		// The line is noted before the value is judged: complete needs it for what it finds out about the key.
		d.lines[k.name] = m.line
		switch {
		case k.own && what == "defaults":
			p.add(m.line, "defaults: %s is each daemon's own: write it below [daemon.NAME]", k.name)
		case k.set == nil || !k.set(d, m.value):
			p.add(m.line, "%s: %s has a wrong value: write %s = %s", what, k.name, k.name, k.example)
		}
	}
}

// lineOf returns the line of a key, or that of the daemon.
func (d *Daemon) lineOf(key string) int {
	if line := d.lines[key]; line != 0 {
		return line
	}
	return d.line
}
