package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/platform/audit"
	"github.com/ringrift/ringlog/internal/platform/scan"
)

// scanLists are what --fail-on of audit scan may name.
var scanLists = []string{"unknown", "orphans", "dead", "dynamic", "broken"}

// auditScanCommand is audit scan: who emits what and who subscribes, by the sources.
func auditScanCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "scan", Usage: "find emitters and subscribers in Python and Go sources", ArgsUsage: "DIR",
		UsageText: shell.Examples("ringlog audit scan .", "ringlog audit scan . --fail-on unknown -o json"),
		Description: "Reads the .py and .go files below DIR and lists each line that emits a type or subscribes to it. " +
			"Nothing is\n" +
			"run. A type that is not written in the line, such as a variable, is dynamic. Symbolic links and hidden " +
			"folders are\n" +
			"left out, broken files named. LIST is one or more of " + strings.Join(scanLists, ", ") + ":\n" +
			"orphans are emitted and subscribed to nowhere in DIR, dead ones subscribed to and emitted nowhere in it.\n" +
			"ringlog audit --scan DIR takes the places into the audit.",
		Flags: []cli.Flag{&cli.StringFlag{Name: "fail-on", Usage: "exit 1 if one of these `LIST`s is not empty"}},
		Action: shell.Args(1, "a folder of sources", func(c *cli.Context) error {
			var lists []string
			// The names are checked before the sources are read, which may take a while.
			for name := range strings.FieldsFuncSeq(c.String("fail-on"), func(r rune) bool { return r == ',' || r == ' ' }) {
				if !slices.Contains(scanLists, name) {
					return shell.Usagef("--fail-on: there is no list %q; use %s", name, strings.Join(scanLists, ", "))
				}
				lists = append(lists, name)
			}
			// No cluster is asked: the types are those of this program.
			report, err := scan.Dir(event.Builtin(), c.Args().First())
			if err != nil {
				return shell.Usagef("audit scan: %w", err)
			}
			// The places are printed even if the result is a failure, since they are what has to be corrected.
			if err := printScan(sh, report); err != nil {
				return err
			}
			return failOnScan(sh, report, lists)
		}),
	}
}

// printScan prints the places, and names broken files.
func printScan(sh *shell.Shell, r *scan.Report) error {
	return sh.Emit(r, func() error {
		rows := make([]table.Row, len(r.Places))
		for i, p := range r.Places {
			note := ""
			// A type that is not written in the line cannot be known or unknown.
			switch {
			case p.Dynamic:
				note = "dynamic"
			case p.Unknown:
				note = "unknown; nearest: " + strings.Join(p.Nearest, ", ")
			}
			rows[i] = table.Row{p.Type, p.Role, fmt.Sprintf("%s:%d", p.File, p.Line), note}
		}
		// A notice on the standard error. As JSON, the report has them itself.
		sayBroken(sh, r)
		return sh.Table(table.Row{"type", "role", "place", "note"}, rows)
	})
}

// sayBroken names the files that were skipped.
func sayBroken(sh *shell.Shell, r *scan.Report) {
	for _, b := range r.Broken {
		sh.Say("skipped %s: %s", b.File, b.Error)
	}
}

// failOnScan ends with code 1 if a list that must be empty is not.
func failOnScan(sh *shell.Shell, r *scan.Report, lists []string) error {
	// Three of the lists are in the report, the other two are marks on its places.
	counts := map[string]int{"orphans": len(r.Orphans), "dead": len(r.Dead), "broken": len(r.Broken)}
	for _, p := range r.Places {
		if p.Dynamic {
			counts["dynamic"]++
		}
		if p.Unknown {
			counts["unknown"]++
		}
	}
	// In the order in which the lists were named.
	var found []string
	for _, name := range lists {
		if counts[name] > 0 {
			found = append(found, fmt.Sprintf("%s %d", name, counts[name]))
		}
	}
	if len(found) == 0 {
		return nil
	}
	sh.Say("the scan found: %s", strings.Join(found, ", "))
	return shell.CodeError(shell.ExitFailed)
}

// sourcesOf returns what the sources in a folder show; nothing without a folder.
func sourcesOf(sh *shell.Shell, dir string) (s audit.Sources, err error) {
	if dir == "" {
		return s, nil
	}
	r, err := scan.Dir(event.Builtin(), dir)
	if err != nil {
		return s, shell.Usagef("--scan: %w", err)
	}
	sayBroken(sh, r)
	// The audit has one entry for each file and type, with all lines. The scan has one for each line.
	sides := map[scan.Role]*[]audit.SourceUse{scan.Emitter: &s.Emitters, scan.Subscriber: &s.Subscribers}
	at := map[[3]string]int{} // where the use of a role, a file and a type is in its list
	for _, p := range r.Places {
		// The type of a dynamic place is not known, so it is left out.
		if p.Dynamic {
			continue
		}
		list, use := sides[p.Role], [3]string{string(p.Role), p.File, string(p.Type)}
		i, known := at[use]
		// The first place of a use makes its entry, the others add their lines to it.
		if !known {
			i = len(*list)
			at[use] = i
			*list = append(*list, audit.SourceUse{Type: string(p.Type), File: p.File})
		}
		(*list)[i].Lines = append((*list)[i].Lines, p.Line)
	}
	return s, nil
}
