package launch

import (
	"fmt"
	"strings"

	"github.com/ringrift/ringlog/event"
)

// Coordinators returns a file with the coordinators of the platform's registry, in their layers.
func Coordinators() string {
	list := event.Builtin().Coordinators()
	var b strings.Builder
	fmt.Fprintf(&b, `# The platform's %d coordinators in the layers of its bootstrap, for ringlog launch.
# The command is the same for all: replace it with the command that starts a coordinator here. {name} is its name.

[defaults]
command = ["python3", "coordinator.py", "{name}"]
restart = "always"
# It is ready once it has registered what it subscribes to.
ready = "registered"
`, len(list))
	layer := 0
	// The registry is sorted by layer, so a heading is written where the layer changes.
	for _, c := range list {
		if c.Layer != layer {
			layer = c.Layer
			fmt.Fprintf(&b, "\n# Layer %d: %s\n", layer, c.LayerName)
		}
		fmt.Fprintf(&b, "\n[daemon.%s]\n", c.Name)
		// A coordinator that something else replaces is left in the file, as only an operator knows whether it
		// still runs.
		if c.Replacement != "" {
			fmt.Fprintf(&b, "# %s replaces it: remove this table unless the\n"+
				"# coordinator still runs as a process of its own.\n", c.Replacement)
		}
		fmt.Fprintf(&b, "coordinator = %q\ngroup = %q\n", c.Name, groupOfLayer(c.LayerName))
	}
	return b.String()
}

// groupOfLayer makes the name of a layer one for --only, such as sync-and-training.
func groupOfLayer(name string) string {
	name, _, _ = strings.Cut(name, " (")
	return strings.ReplaceAll(strings.ToLower(name), " ", "-")
}
