package offline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/raftnode"
	"github.com/ringrift/ringlog/raftnode/datadir"
)

// recoverOptions say which folder becomes a new cluster, and who its voters are.
type recoverOptions struct {
	dataDir string             // of the survivor, which must not run
	members []fsm.ConfigMember // voters of the new cluster; none is this node alone
	shell.Consent
}

// RecoverCommand is the verb cluster recover.
// It is for the one case in which a cluster cannot help itself: a majority of its voters is lost for good. What it
// makes is a new cluster with a new id, so no member of the old one joins it by mistake.
func RecoverCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "recover", Usage: "form a new cluster from a stopped survivor after most voters are lost for good",
		UsageText: shell.Examples(
			"ringlog cluster recover --data-dir n1 --dry-run",
			"ringlog cluster recover --data-dir n1 --yes",
		),
		Description: "Run it on the stopped survivor with the newest log, and on no other: the others join it with\n" +
			"empty folders. --dry-run prints the last entry of a folder's log: the highest term wins, and among\n" +
			"equal terms the highest index. Events that a majority without this node acknowledged are lost; events\n" +
			"that were never acknowledged may appear. Never use it while the cluster still has a quorum.",
		Flags: append(shell.ConsentFlags(),
			&cli.StringFlag{Name: "data-dir", Usage: "`DIR` of the stopped node"},
			&cli.StringSliceFlag{Name: "member",
				Usage: "`ID=RAFT_ADDR` of a voter of the new cluster, repeatable (default: this node alone)"},
		),
		Action: shell.NoArgs(func(c *cli.Context) error {
			// Whether this node is among them is checked by complete.
			o := recoverOptions{dataDir: c.String("data-dir"), Consent: shell.ConsentOf(c)}
			// Only voters are named: other members join the new cluster later.
			for _, m := range c.StringSlice("member") {
				id, addr, ok := strings.Cut(m, "=")
				if !ok || id == "" || addr == "" {
					return shell.Usagef("--member %q is not ID=HOST:PORT", m)
				}
				if _, err := shell.HostOf("member", addr); err != nil {
					return err
				}
				o.members = append(o.members, fsm.ConfigMember{ID: id, Addr: addr, Voter: true})
			}
			return recoverNode(c.Context, sh, o)
		}),
	}
}

// recoverNode shows the plan, asks, and makes the folder a new cluster.
func recoverNode(ctx context.Context, sh *shell.Shell, o recoverOptions) error {
	// No folder is a default: the one that is meant is changed for good.
	if o.dataDir == "" {
		return shell.Usagef("--data-dir is required: the folder of the stopped node")
	}
	// Who the node is, and who the voters will be.
	marker, err := datadir.Inspect(o.dataDir)
	if err != nil {
		return err
	}
	if err := o.complete(marker); err != nil {
		return err
	}
	// The addresses are shown, too: they must be right before the node starts.
	var names []string
	for _, m := range o.members {
		names = append(names, m.ID+" at "+m.Addr)
	}
	plan := fmt.Sprintf("%s of cluster %s becomes a new cluster with the voters %s", marker.NodeID,
		marker.ClusterID, strings.Join(names, ", "))
	// How far its log goes, by which the survivor is chosen.
	index, term, err := lastEntry(o.dataDir)
	if err != nil {
		return fmt.Errorf("%w: choose another survivor", err)
	}
	plan += fmt.Sprintf("; its log ends with entry %d of term %d", index, term)
	// The plan says all that a person needs to choose the survivor.
	if o.DryRun {
		sh.Say("%s", plan)
		return nil
	}
	// --yes, or a person who agrees.
	if err := sh.Confirm(o.Consent, "%s. What only the lost voters had is lost. Continue?", plan); err != nil {
		return err
	}
	// From here on the folder is changed.
	// The log of raft is not shown: printRecovered says what was made.
	done, err := raftnode.Recover(ctx, o.dataDir, o.members, hclog.NewNullLogger())
	if err != nil {
		return err
	}
	sh.Say("to start it: ringlog serve --id %s --data-dir %s …", done.NodeID, o.dataDir)
	return printRecovered(sh, done)
}

// complete makes the node the only member if none is given, at the raft address that it
// had.
func (o *recoverOptions) complete(marker datadir.Marker) error {
	// Voters that are named must include this node: nobody else has the data.
	if len(o.members) > 0 {
		if !slices.ContainsFunc(o.members, func(m fsm.ConfigMember) bool { return m.ID == marker.NodeID }) {
			return shell.Usagef("%w: name %s too, with --member %s=RAFT_ADDR", raftnode.ErrNoSurvivor,
				marker.NodeID, marker.NodeID)
		}
		return nil
	}
	// The others join later, with empty folders.
	addr, err := ownRaftAddr(o.dataDir, marker.NodeID)
	if err != nil {
		return err
	}
	o.members = []fsm.ConfigMember{{ID: marker.NodeID, Addr: addr, Voter: true}}
	return nil
}

// ownRaftAddr returns the raft address that the node had in its cluster.
func ownRaftAddr(dir, id string) (addr string, err error) {
	// The state is read, as the raft log may have been compacted past the configuration.
	f, err := openFolder(dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	// The state has the configuration that was applied last.
	_, _, members := f.machine.Configuration()
	for _, m := range members {
		if m.ID == id {
			return m.Addr, nil
		}
	}
	return "", shell.Usagef("%s was not in its cluster's configuration: name the voters with --member ID=RAFT_ADDR", id)
}

// lastEntry returns the index and term of the last entry that a stopped node has: in its raft log
// or, if that ends before its state, in its state. A log that has lost its end is refused.
func lastEntry(dir string) (index, term uint64, err error) {
	f, err := openFolder(dir)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	r, err := f.raft()
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	// A log that has lost its end may have lost events that this node acknowledged.
	if err := r.Lost(); err != nil {
		return 0, 0, err
	}
	// A log that contradicts the state at its last entry counts for nothing.
	// The state may be ahead of the log.
	p, last := f.machine.Position(), r.Summary().Last
	for l, err := range r.Entries(p.Index, p.Index) {
		if err == nil && l.Term != p.Term {
			return p.Index, p.Term, nil // the log contradicts the state and counts for nothing
		}
	}
	// Else the log may hold entries after the state.
	// At most one entry: the last of the log, if it comes after the state.
	index, term = p.Index, p.Term
	for l, err := range r.Entries(max(last, index+1), last) {
		if err != nil {
			return 0, 0, err
		}
		index, term = l.Index, l.Term
	}
	return index, term, nil
}

// printRecovered prints what the new cluster begins with.
func printRecovered(sh *shell.Shell, done raftnode.Recovered) error {
	return sh.Emit(done, func() error {
		// The new id and term are what the other nodes will see.
		return sh.Facts("node", done.NodeID, "cluster", done.ClusterID, "term", done.Term, "index", done.Index,
			"last offset", done.Offset,
			"replayed", shell.Count(done.Replayed, "entry", "entries"))
	})
}
