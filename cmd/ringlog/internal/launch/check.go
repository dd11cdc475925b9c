package launch

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/daemon"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/procgroup"
)

// These checks come in the order in which Read makes them: complete looks at a daemon by itself, arrange at all of
// them together, and checkHost at this host. Each continues after a problem, so that one run of the program reports
// all.

// complete fills in what depends on other settings, and checks the daemon by itself. dir is the folder of the file.
func (d *Daemon) complete(dir string, p *problems) {
	wrong := func(key, format string, args ...any) {
		p.add(d.lineOf(key), "daemon %s: %s", d.Name, fmt.Sprintf(format, args...))
	}
	d.fillName()
	// After fillName, which may have changed the folder.
	d.Dir = inFolder(dir, d.Dir)
	// Zero is no line: the key is neither in the defaults nor below the daemon.
	if d.lines["command"] == 0 {
		wrong("command", `no command: write command = ["./daemon"] here or in [defaults]`)
	}
	if d.Group != "" && !nameForm.MatchString(d.Group) {
		wrong("group", "group %q: %s", d.Group, nameRule)
	}
	if d.lines["layer"] != 0 && d.Layer < 1 {
		wrong("layer", "layer %d: layers begin with 1", d.Layer)
	}
	d.completeCoordinator(wrong)
	// A health or ready that is no URL is a shell command, which only the shell can judge.
	for _, c := range []struct{ key, check string }{{"health", d.Health}, {"ready", d.Ready}} {
		if err := daemon.CheckURL(c.check); err != nil {
			wrong(c.key, "%s %v", c.key, err)
		}
	}
	if wait, err := time.ParseDuration(d.Ready); err == nil && (wait < 0 || wait >= d.ReadyTimeout) {
		wrong("ready", "ready %s is not between 0s and ready_timeout, which is %s", d.Ready, d.ReadyTimeout)
	}

	if d.Role == "" {
		d.StopTimeout = cmp.Or(d.StopTimeout, stopTimeout)
		return
	}
	// A short lease leaves less time to stop in. A fifth of it is below the most that the client allows.
	d.StopTimeout = cmp.Or(d.StopTimeout, min(d.TTL/5, stopTimeout))
	if d.TTL < 2*time.Second || d.TTL > time.Hour {
		wrong("ttl", "ttl %s: use 2s to 1h", d.TTL)
	} else if most := client.MaxReserve(d.TTL); d.StopTimeout > most {
		wrong("stop_timeout", "stop_timeout %s does not fit ttl %s: the command has to end before the lease of its role "+
			"is over; use stop_timeout = %q at most, or ttl = %q", d.StopTimeout, d.TTL, most, 3*d.StopTimeout)
	}
}

// fillName puts the name of the daemon in place of {name}.
func (d *Daemon) fillName() {
	fill := func(text string) string { return strings.ReplaceAll(text, "{name}", d.Name) }
	d.Args = slices.Clone(d.Args) // the defaults' are those of all
	for i, arg := range d.Args {
		d.Args[i] = fill(arg)
	}
	d.Dir, d.Health, d.Ready = fill(d.Dir), fill(d.Health), fill(d.Ready)
	// In the order of the names, so that two runs have equal environments.
	for _, name := range slices.Sorted(maps.Keys(d.extra)) {
		value := fill(d.extra[name])
		d.extra[name] = value
		d.Env = append(d.Env, name+"="+value)
	}
}

// inFolder returns a path that counts from a folder.
func inFolder(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// checkHost finds what the daemon needs on this host: its folder, and its program. A path counts from the folder.
func (d *Daemon) checkHost(p *problems) {
	if info, err := os.Stat(d.Dir); err != nil || !info.IsDir() {
		p.add(d.lineOf("dir"), "daemon %s: dir %s is no folder", d.Name, d.Dir)
		return
	}
	if len(d.Args) == 0 { // which is reported
		return
	}
	name := d.Args[0]
	// A name without a slash is looked for in PATH, as a shell does.
	if strings.Contains(name, "/") {
		name = inFolder(d.Dir, name)
	}
	var err error
	// Path is the program that is run. Args keeps the name as it was written, which the program sees.
	d.Path, err = procgroup.Find(name)
	if err != nil {
		p.add(d.lineOf("command"), "daemon %s: %v", d.Name, err)
	}
}

// completeCoordinator takes the layer from the registry, unless the file has one. The entry may be given by its
// name or by its class. An unknown one is reported with wrong.
func (d *Daemon) completeCoordinator(wrong func(key, format string, args ...any)) {
	if d.Coordinator == "" {
		return
	}
	var names []string
	// From here on the coordinator has the name that clients register with, whichever was given.
	for _, c := range event.Builtin().Coordinators() {
		if c.Name == d.Coordinator || (c.Class != "" && c.Class == d.Coordinator) {
			d.Coordinator = c.Name
			if d.lines["layer"] == 0 {
				d.Layer = c.Layer
			}
			return
		}
		names = append(names, c.Name)
	}
	wrong("coordinator", "the registry has no coordinator %q%s", d.Coordinator,
		cmp.Or(shell.DidYouMean(d.Coordinator, names, ""), " (to list them: ringlog audit --builtin --only components)"))
}

// arrange checks what the daemons say of each other, gives each a layer, and orders them.
func (f *File) arrange(p *problems) {
	byName := map[string]*Daemon{}
	var names []string
	for _, d := range f.Daemons {
		byName[d.Name] = d
		names = append(names, d.Name)
	}
	// A name that no daemon has is reported here and ignored below.
	for _, d := range f.Daemons {
		for _, name := range d.After {
			if byName[name] == nil {
				p.add(d.lineOf("after"), "daemon %s: after has %q, and there is no such daemon%s", d.Name, name,
					shell.DidYouMean(name, names, ""))
			}
		}
	}

	// Depth first: what a daemon needs comes before it. A daemon that is met on the way to itself is in a cycle.
	var order, way []*Daemon // order: done; way: from where the search began to here
	var visit func(d *Daemon)
	visit = func(d *Daemon) {
		// The cycle is what is on the way from the daemon back to it. It is reported once, and the search goes
		// back.
		if i := slices.Index(way, d); i >= 0 {
			var cycle []string
			for _, c := range append(slices.Clone(way[i:]), d) {
				cycle = append(cycle, c.Name)
			}
			p.add(d.lineOf("after"), "daemon %s: a cycle of after: %s: remove one of them", d.Name,
				strings.Join(cycle, " after "))
			return
		}
		// Two daemons may need the same one.
		if slices.Contains(order, d) {
			return
		}
		way = append(way, d)
		// A daemon is at least in the layer of what it needs.
		highest := 1
		for _, name := range d.After {
			if before := byName[name]; before != nil {
				visit(before)
				highest = max(highest, before.Layer)
			}
		}
		way = way[:len(way)-1]
		// A daemon without a layer gets the lowest that after allows.
		if d.Layer == 0 {
			d.Layer = highest
		}
		if d.Layer < highest {
			p.add(d.lineOf("layer"), "daemon %s: layer %d contradicts after, which has a daemon of layer %d: "+
				"use layer = %d or more", d.Name, d.Layer, highest, highest)
		}
		order = append(order, d)
	}
	for _, d := range f.Daemons {
		visit(d)
	}
	// No daemon is of a lower layer than what it needs, so a stable sort keeps what a daemon needs before it.
	slices.SortStableFunc(order, func(a, b *Daemon) int { return a.Layer - b.Layer })
	f.Daemons = order
}

// only keeps the daemons of some groups and those that they need.
func (f *File) only(groups []string, p *problems) {
	have := map[string]bool{}
	wanted := map[string]bool{} // by name
	for _, d := range f.Daemons {
		have[d.Group] = true
		wanted[d.Name] = slices.Contains(groups, d.Group)
	}
	// A daemon without a group has noted "", which is the name of none.
	delete(have, "")
	for _, g := range groups {
		if !have[g] {
			list := slices.Sorted(maps.Keys(have))
			p.add(0, "there is no group %q; the groups are: %s", g, cmp.Or(strings.Join(list, ", "), "none"))
		}
	}
	// What a daemon needs comes before it, so one pass in the reverse order finds all.
	for _, d := range slices.Backward(f.Daemons) {
		for _, name := range d.After {
			wanted[name] = wanted[name] || wanted[d.Name]
		}
	}
	f.Daemons = slices.DeleteFunc(f.Daemons, func(d *Daemon) bool { return !wanted[d.Name] })
}
