package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// An allocation is a lease of amounts of resources, all of them or none. No process of this program keeps it: each
// command makes one request, and the id is what commands about the same allocation have in common. ringlog run
// keeps one for as long as its command runs.

// allocationCommand is allocation and its verbs: who has how much of which resource.
func allocationCommand(sh *shell.Shell) *cli.Command {
	const anID = "the id of an allocation"
	return &cli.Command{
		Name: "allocation", Usage: "show, request and release parts of resources, such as bandwidth",
		UsageText: shell.Examples(
			"ringlog allocation resource set net:gpu-1 1000 --unit Mbit/s",
			"ringlog allocation request net:gpu-1=50 --priority high --ttl 1h",
			"ringlog allocation ls",
		),
		Description: "A resource has a capacity. A request gets all of its amounts or none, until it is released or its\n" +
			"TTL is over. What waits is granted by priority, then by arrival, and rises to the next priority after the\n" +
			"setting allocations.rise_after. Nothing overtakes it on a resource that both want.",
		Subcommands: []*cli.Command{
			{Name: "ls", Usage: "list what is granted, then what waits", Action: shell.Bare(sh, listAllocations),
				UsageText: shell.Examples("ringlog allocation ls", "ringlog allocation ls -o json")},
			{Name: "info", Usage: "show an allocation, or a request that waits", ArgsUsage: "ID",
				UsageText: shell.Examples("ringlog allocation info copy-4711"), Action: shell.Named(sh, anID, showAllocation)},
			requestAllocationCommand(sh),
			{Name: "release", Usage: "release an allocation, or take a request out of its queues", ArgsUsage: "ID",
				UsageText: shell.Examples("ringlog allocation release copy-4711"),
				Action:    shell.Named(sh, anID, releaseAllocation)},
			resourceCommand(sh),
			// The short form of resource set.
			setResourceCommand(sh, "capacity", "ringlog allocation capacity"),
		},
	}
}

// requestAllocationCommand is allocation request.
func requestAllocationCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "request", Usage: "request amounts of resources, or renew what was granted", ArgsUsage: "RESOURCE=AMOUNT…",
		UsageText: shell.Examples(
			"ringlog allocation request net:gpu-1=50 --priority high --wait --ttl 1h",
			"ringlog allocation request net:gpu-1=50 transfers:gpu-1=1 --id copy-4711",
		),
		Description: "Prints the id of the allocation. It ends after the TTL unless the same command with --id renews it:\n" +
			"no process stays. A CRITICAL request may end LOW allocations of resources that are preemptible.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "priority", Usage: "`CLASS` to wait in: low, normal, high or critical", Value: "normal"},
			&cli.DurationFlag{Name: "ttl", Usage: "how long the allocation lasts, from 2s to 24h", Value: 15 * time.Second},
			&cli.BoolFlag{Name: "wait", Usage: "wait until it is granted, or --timeout is over"},
			&cli.StringFlag{Name: "holder", Usage: "`NAME` that others see (default: host and process)"},
			&cli.StringFlag{Name: "id", Usage: "`ID` of the allocation, the same for each command about it (default: random)"},
		},
		Action: func(c *cli.Context) error {
			// The amounts are read before an id is made up: a wrong one asks nothing of the cluster.
			amounts, err := parseAmounts(c.Args().Slice())
			if err != nil {
				return err
			}
			ask := api.AllocationRequest{Holder: cmp.Or(c.String("holder"), hostAnd(os.Getppid())), Amounts: amounts,
				Priority: strings.ToUpper(c.String("priority")), TTL: c.Duration("ttl").String()}
			return requestAllocation(c.Context, sh, cmp.Or(c.String("id"), uuid.NewString()), ask, c.Bool("wait"))
		},
	}
}

// parseAmounts reads RESOURCE=AMOUNT; a resource may have an equals sign in its name.
func parseAmounts(args []string) (map[string]uint64, error) {
	if len(args) == 0 {
		return nil, shell.Usagef("name resources and amounts, such as net:gpu-1=50")
	}
	amounts := map[string]uint64{}
	for _, arg := range args {
		i := strings.LastIndexByte(arg, '=')
		// Without an equals sign i is -1, which leaves no name.
		n, err := strconv.ParseUint(arg[i+1:], 10, 64)
		name := arg[:max(i, 0)]
		switch _, twice := amounts[name]; {
		case name == "" || err != nil || n == 0:
			return nil, shell.Usagef("%q is not RESOURCE=AMOUNT, such as net:gpu-1=50", arg)
		case twice:
			return nil, shell.Usagef("%s is given twice", name)
		}
		amounts[name] = n
	}
	return amounts, nil
}

// amountsText writes amounts as parseAmounts reads them.
func amountsText(amounts map[string]uint64) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		list = append(list, fmt.Sprintf("%s=%d", name, amounts[name]))
	}
	return strings.Join(list, " ")
}

// allocationPath is the route of an allocation.
func allocationPath(id string) string { return "/v1/allocations/" + url.PathEscape(id) }

// listAllocations prints what is granted in the order of the fences, then what waits in the order of the queues.
func listAllocations(ctx context.Context, sh *shell.Shell) error {
	var list []api.Allocation
	err := eachPage(ctx, sh, "/v1/allocations", func(page *api.AllocationPage) string {
		list = append(list, page.Allocations...)
		return page.Next
	})
	if err != nil {
		return err
	}
	classes := []string{"CRITICAL", "HIGH", "NORMAL", "LOW"}
	// Granted first, by fence. What waits is sorted by the class that it has risen to, then as the queues have it.
	slices.SortStableFunc(list, func(a, b api.Allocation) int {
		if a.Granted != b.Granted {
			return map[bool]int{true: -1, false: 1}[a.Granted]
		}
		byClass := slices.Index(classes, a.RisenTo) - slices.Index(classes, b.RisenTo)
		// The class of what is granted plays no role any more.
		if a.Granted {
			byClass = 0
		}
		return cmp.Or(byClass, cmp.Compare(a.Fence, b.Fence), a.Since.Compare(b.Since))
	})
	header := table.Row{"allocation", "holder", "amounts", "priority", "state", "since", "ttl", "fence"}
	return shell.EmitEach(sh, "allocation", list, header, func(x api.Allocation) table.Row {
		return table.Row{x.Allocation, x.Holder, amountsText(x.Amounts), priorityText(x), stateText(x),
			shell.Clock(x.Since), x.TTL, x.Fence}
	})
}

// eachPage goes through the pages of a list. add takes one and returns the key of the next, "" after the last.
func eachPage[P any](ctx context.Context, sh *shell.Shell, path string, add func(page *P) (next string)) error {
	query := url.Values{"limit": {"1000"}}
	for {
		// A new value for each page: what add has kept of the one before is not overwritten.
		var page P
		if err := sh.Call(ctx, http.MethodGet, path, query, nil, &page); err != nil {
			return err
		}
		next := add(&page)
		if next == "" {
			return nil
		}
		query.Set("after", next)
	}
}

// priorityText is a priority, and what it has risen to. A request rises while it waits, so that it is not overtaken
// for ever.
func priorityText(x api.Allocation) string {
	if x.RisenTo != x.Priority {
		return x.Priority + ", rose to " + x.RisenTo
	}
	return x.Priority
}

// stateText says whether an allocation is granted.
func stateText(x api.Allocation) string {
	if x.Granted {
		return "granted"
	}
	return "waits"
}

// showAllocation prints an allocation.
func showAllocation(ctx context.Context, sh *shell.Shell, id string) error {
	var x api.Allocation
	if err := sh.Fetch(ctx, allocationPath(id), &x); err != nil {
		return err
	}
	return sh.Emit(x, func() error { return printAllocation(sh, x) })
}

// printAllocation prints who has or wants what.
func printAllocation(sh *shell.Shell, x api.Allocation) error {
	return sh.Facts("allocation", x.Allocation, "holder", x.Holder, "amounts", amountsText(x.Amounts), "priority",
		priorityText(x), "state", stateText(x), "fence", x.Fence, "since", shell.Clock(x.Since), "ttl", x.TTL,
		"renewed", shell.Short(time.Since(x.Renewed))+" ago")
}

// requestAllocation requests an allocation and prints its id. With wait it may take as long as --timeout says.
func requestAllocation(ctx context.Context, sh *shell.Shell, id string, ask api.AllocationRequest, wait bool) error {
	began, said := time.Now(), false
	// Each call waits in the queue for a while. The id keeps the place of the request between two calls.
	for {
		left := sh.Timeout - time.Since(began)
		if wait {
			// Half of what is left, so the call itself has time.
			ask.Wait = min(left/2, 20*time.Second).Round(time.Millisecond).String()
		}
		var answer api.AllocationAnswer
		if err := sh.Call(ctx, http.MethodPut, allocationPath(id), nil, ask, &answer); err != nil {
			return err
		}
		switch {
		case answer.Granted:
			return sh.Emit(answer, func() error {
				sh.Say("%s is granted to %s with fence %d for %s", amountsText(ask.Amounts), ask.Holder, answer.Fence, answer.TTL)
				// A script takes the id.
				_, err := fmt.Fprintln(sh.Out, answer.Allocation)
				return err
			})
		case !wait:
			sh.Say("%s is not free, or others wait for it: wait as well with --wait", amountsText(ask.Amounts))
			return shell.CodeError(shell.ExitRefused)
		case !answer.Waiting:
			sh.Say("the request %s was released", id)
			return shell.CodeError(shell.ExitRefused)
		case time.Since(began) > sh.Timeout-sh.Timeout/8:
			sh.Say("%s is not granted after %s; it waits for %s more: repeat the command with --id %s to keep its place",
				amountsText(ask.Amounts), shell.Short(sh.Timeout), ask.TTL, id)
			return shell.CodeError(shell.ExitTimeout)
		case !said:
			said = true
			sh.Say("%s waits as %s", amountsText(ask.Amounts), id)
		}
	}
}

// releaseAllocation ends an allocation, and prints what it was.
func releaseAllocation(ctx context.Context, sh *shell.Shell, id string) error {
	// It is fetched first: after the release nobody knows what it was.
	var x api.Allocation
	if err := sh.Fetch(ctx, allocationPath(id), &x); err != nil {
		return err
	}
	if err := sh.Call(ctx, http.MethodDelete, allocationPath(id), nil, nil, nil); err != nil {
		return err
	}
	return sh.Emit(x, func() error {
		sh.Say("released %s of %s", amountsText(x.Amounts), x.Holder)
		return nil
	})
}

// resourceCommand is allocation resource and its verbs.
func resourceCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "resource", Usage: "list, declare and remove resources",
		UsageText: shell.Examples("ringlog allocation resource ls"),
		Subcommands: []*cli.Command{
			{Name: "ls", Usage: "list the resources and how much of each is granted", Action: shell.Bare(sh, listResources),
				UsageText: shell.Examples("ringlog allocation resource ls", "ringlog allocation resource ls -o json")},
			setResourceCommand(sh, "set", "ringlog allocation resource set"),
			{Name: "rm", Usage: "remove a resource of which nobody has or wants anything", ArgsUsage: "RESOURCE",
				UsageText:   shell.Examples("ringlog allocation resource rm transfers:gpu-1"),
				Description: "To empty a resource, set its capacity to 0: then nothing more is granted.",
				Action:      shell.Named(sh, "the name of a resource", removeResource)},
		},
	}
}

// setResourceCommand is allocation resource set, and its short form. name and path are what they are called by, for
// the help.
func setResourceCommand(sh *shell.Shell, name, path string) *cli.Command {
	return &cli.Command{
		Name: name, Usage: "declare a resource, or change it", ArgsUsage: "RESOURCE CAPACITY",
		UsageText: shell.Examples(
			path+" net:gpu-1 1000 --unit Mbit/s --preemptible",
			path+" transfers:gpu-1 4",
		),
		Description: "A lower capacity takes nothing from those who have more; nothing is granted until it fits.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "unit", Usage: "`UNIT` for people, such as Mbit/s"},
			&cli.BoolFlag{Name: "preemptible", Usage: "let CRITICAL requests end LOW allocations of it"},
		},
		Action: shell.Args(2, "a resource and its capacity", func(c *cli.Context) error {
			capacity, err := strconv.ParseUint(c.Args().Get(1), 10, 64)
			if err != nil {
				return shell.Usagef("%q is not a capacity: give a whole number", c.Args().Get(1))
			}
			// A pointer, since a capacity of 0 is one: it has nothing more granted.
			set := api.NewResource{Capacity: &capacity, Unit: c.String("unit"), Preemptible: c.Bool("preemptible")}
			var r api.Resource
			if err := sh.Call(c.Context, http.MethodPut, resourcePath(c.Args().First()), nil, set, &r); err != nil {
				return err
			}
			return sh.Emit(r, func() error { return printResource(sh, r) })
		}),
	}
}

// resourcePath is the route of a resource.
func resourcePath(name string) string { return "/v1/resources/" + url.PathEscape(name) }

// printResource prints a resource.
func printResource(sh *shell.Shell, r api.Resource) error {
	return sh.Facts("resource", r.Resource, "capacity", withUnit(r.Capacity, r), "granted", withUnit(r.Granted, r),
		"allocations", r.Allocations, "waiting", r.Waiting, "preemptible", yesNo(r.Preemptible))
}

// withUnit writes an amount of a resource.
func withUnit(n uint64, r api.Resource) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", n, r.Unit))
}

// listResources prints the resources.
func listResources(ctx context.Context, sh *shell.Shell) error {
	var list []api.Resource
	err := eachPage(ctx, sh, "/v1/resources", func(page *api.ResourcePage) string {
		list = append(list, page.Resources...)
		return page.Next
	})
	if err != nil {
		return err
	}
	header := table.Row{"resource", "capacity", "granted", "allocations", "waiting", "preemptible"}
	return shell.EmitEach(sh, "resource", list, header, func(r api.Resource) table.Row {
		return table.Row{r.Resource, withUnit(r.Capacity, r), withUnit(r.Granted, r), r.Allocations, r.Waiting,
			yesNo(r.Preemptible)}
	})
}

// removeResource removes a resource.
func removeResource(ctx context.Context, sh *shell.Shell, name string) error {
	var r api.Resource
	if err := sh.Call(ctx, http.MethodDelete, resourcePath(name), nil, nil, &r); err != nil {
		return err
	}
	return sh.Emit(r, func() error {
		sh.Say("removed %s", name)
		return nil
	})
}
