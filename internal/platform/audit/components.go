package audit

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/event"
)

// components maps the spellings of a component (class, module file, place in a file) to one name: the coordinator's,
// else the module's, else the spelling itself.
// Documents, logs and cursors spell the same component in different ways; the audit needs one name for each.
// One is made for each report. The maps are shared by copies of it.
type components struct {
	known   map[string]string   // class or name to name
	modules map[string]string   // module to name: task_coordinator.py is not the coordinator of that name
	spelt   map[string][]string // name to the spellings seen
	// the coordinators by name
	registry map[string]event.Coordinator
}

// newComponents enters the declared spellings of all components.
func newComponents(d *Declarations) components {
	// Nothing has been spelt yet: declarations and evidence are looked up later, and leave their spellings
	// here.
	c := components{
		known:    map[string]string{},
		modules:  map[string]string{},
		spelt:    map[string][]string{},
		registry: map[string]event.Coordinator{},
	}
	// The registry comes second, since a coordinator's own name and class take precedence.
	// The table of the documents has classes of components that are in no registry.
	for spelt, name := range d.Components {
		c.known[spelt] = name
	}
	for _, one := range d.Coordinators {
		c.registry[one.Name] = one
		c.known[one.Name] = one.Name
		if one.Class != "" {
			c.known[one.Class] = one.Name
		}
		// The file names the coordinator's module, which may read like another coordinator.
		if module := moduleOf(one.File); module != "" {
			c.modules[module] = one.Name
		}
	}
	return c
}

// canonical returns the name of a component, and remembers the spelling.
func (c components) canonical(written string) string {
	// Spellings are reported as drift.
	name, spelt := c.look(written)
	if !slices.Contains(c.spelt[name], spelt) {
		c.spelt[name] = append(c.spelt[name], spelt)
	}
	return name
}

// look returns the name of a component and its spelling, without the directory and the line of a place.
func (c components) look(written string) (name, spelt string) {
	// A place in a file names the module, whatever class it holds.
	if module := moduleOf(written); module != "" {
		return cmp.Or(c.modules[module], c.known[module], module), module + ".py"
	}
	// A module may be written without its file name.
	return cmp.Or(c.known[written], c.modules[written], written), written
}

// moduleOf returns the module in app/coordination/event_router.py:17 or cluster/sync.py (re-export), "" if there is
// none.
func moduleOf(written string) string {
	// A note in parentheses may follow the file, and a line number its name.
	file, _, _ := strings.Cut(written, " ")
	file, _, _ = strings.Cut(path.Base(file), ":")
	module, isFile := strings.CutSuffix(file, ".py")
	if !isFile {
		return ""
	}
	return module
}

// snake spells a class as a module: NodeRecoveryDaemon as node_recovery_daemon.
func snake(class string) string {
	var b strings.Builder
	// Each capital letter begins a word; those of an abbreviation are words of their own.
	// Only ASCII: classes of the platform are words of Python.
	for i, r := range class {
		if 'A' <= r && r <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		// All other characters stay as they are, so a module is its own snake form.
		b.WriteRune(r)
	}
	return b.String()
}
