package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/daemon"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// placeholder is {NAME} in an argument, or {{NAME}}, which stands for {NAME} itself. ${NAME} is a shell's.
var placeholder = regexp.MustCompile(`\$\{|\{?\{(\pL[\pL\pN_.:/-]*)\}\}?`)

// allocationOptions reads --allocate and --priority into o. It puts the amounts into the arguments of the command and
// into its environment.
func allocationOptions(c *cli.Context, o *daemon.Options) error {
	if !c.IsSet("allocate") {
		// A flag that would do nothing is refused.
		if c.IsSet("priority") {
			return shell.Usagef("--priority needs --allocate")
		}
		return nil
	}
	amounts, err := parseAmounts(c.StringSlice("allocate"))
	if err != nil {
		return err
	}
	priority := strings.ToUpper(c.String("priority"))
	if !slices.Contains([]string{"LOW", "NORMAL", "HIGH", "CRITICAL"}, priority) {
		return shell.Usagef("--priority %q: use low, normal, high or critical", c.String("priority"))
	}
	o.Allocation = daemon.Allocation{Amounts: amounts, Text: amountsText(amounts), Priority: priority}
	// The first argument is the program, which procgroup.Find looks for under the name that was typed.
	for i := 1; i < len(o.Args); i++ {
		o.Args[i], err = fillIn(o.Args[i], amounts)
		if err != nil {
			return err
		}
	}
	return nil
}

// fillIn replaces each {NAME} in an argument by the amount of the resource with that name, or of the one of that
// kind. A name that no resource or several have is an error that says what to write. {{NAME}} becomes {NAME}.
func fillIn(arg string, amounts map[string]uint64) (string, error) {
	var failed error
	filled := placeholder.ReplaceAllStringFunc(arg, func(found string) string {
		name := strings.Trim(found, "{}")
		// What looks like a placeholder and is none is returned as it should be in the argument.
		switch {
		case found == "${":
			return found
		case strings.HasPrefix(found, "{{") && strings.HasSuffix(found, "}}"):
			return found[1 : len(found)-1]
		}
		meant := named(name, amounts)
		// An error is returned after the replacement: ReplaceAllStringFunc cannot end it.
		switch len(meant) {
		case 1:
			// What is around {NAME} stays: of {{NAME} the first brace.
			before, after, _ := strings.Cut(found, "{"+name+"}")
			return before + strconv.FormatUint(amounts[meant[0]], 10) + after
		case 0:
			failed = shell.Usagef("%q has {%s}, and --allocate names %s: use the name of one, or what is before its colon, "+
				"or {{%s}} for the text itself", arg, name, amountsText(amounts), name)
		default:
			failed = shell.Usagef("%q has {%s}, which may be %s: write {%s}", arg, name, strings.Join(meant, " or "), meant[0])
		}
		return found
	})
	return filled, failed
}

// named returns the resource with a name, or those whose name has it before the first colon.
func named(name string, amounts map[string]uint64) (resources []string) {
	if _, ok := amounts[name]; ok {
		return []string{name}
	}
	// Sorted, so that an error about several of them is the same each time.
	for _, resource := range slices.Sorted(maps.Keys(amounts)) {
		if kind, _, _ := strings.Cut(resource, ":"); kind == name {
			resources = append(resources, resource)
		}
	}
	return resources
}

// amountVariables returns the amounts as variables of the environment: RINGLOG_ALLOCATION_ and the name of the resource
// or its kind, in capitals, with _ for what is no letter or digit. One that two resources would set is left out.
func amountVariables(amounts map[string]uint64) []string {
	of := map[string]map[string]bool{} // the resources by variable
	// A resource sets the variable of its whole name and that of its kind, which are the same if it has no colon.
	for resource := range amounts {
		kind, _, _ := strings.Cut(resource, ":")
		for _, name := range []string{resource, kind} {
			variable := "RINGLOG_ALLOCATION_" + strings.Map(func(r rune) rune {
				if r > unicode.MaxASCII || !(unicode.IsLetter(r) || unicode.IsDigit(r)) {
					return '_'
				}
				return unicode.ToUpper(r)
			}, name)
			if of[variable] == nil {
				of[variable] = map[string]bool{}
			}
			of[variable][resource] = true
		}
	}
	var list []string
	// In the order of the names, so that two runs have equal environments.
	for _, variable := range slices.Sorted(maps.Keys(of)) {
		// Whichever amount were chosen, the command could take it for the other.
		if len(of[variable]) > 1 {
			continue
		}
		for resource := range of[variable] {
			list = append(list, fmt.Sprintf("%s=%d", variable, amounts[resource]))
		}
	}
	return list
}
