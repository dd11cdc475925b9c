package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/raftnode"
	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/raftstore"
)

type recoverOptions struct {
	dataDir string
	members []fsm.ConfigMember
	consent
}

func recoverCommand(sh *shell) *cli.Command {
	return &cli.Command{
		Name: "recover", Usage: "offline: after most voters are lost for good, go on with who is left",
		Description: "Run it on the stopped survivor with the newest log, and on no other: the others join it with emptied\n" +
			"folders. --dry-run prints the last entry of a folder's log: the highest term wins, and among equal terms\n" +
			"the highest index. What a majority without this node had acknowledged is lost; what was never acknowledged\n" +
			"may appear. Never use it while the cluster still has a quorum.",
		Flags: append(consentFlags(),
			&cli.StringFlag{Name: "data-dir", Usage: "`DIR` of the stopped node"},
			&cli.StringSliceFlag{Name: "member", Usage: "`ID=RAFT_ADDR` of a voter from now on; without it the node alone"},
		),
		Action: func(c *cli.Context) error {
			if err := exactly(c, 0, ""); err != nil {
				return err
			}
			o := recoverOptions{dataDir: c.String("data-dir"), consent: consentOf(c)}
			for _, m := range c.StringSlice("member") {
				id, addr, ok := strings.Cut(m, "=")
				if !ok || id == "" || addr == "" {
					return usagef("--member %q is not ID=HOST:PORT", m)
				}
				if _, err := hostOf("member", addr); err != nil {
					return err
				}
				o.members = append(o.members, fsm.ConfigMember{ID: id, Addr: addr, Voter: true})
			}
			return recoverNode(c.Context, sh, o)
		},
	}
}

func recoverNode(ctx context.Context, sh *shell, o recoverOptions) error {
	if o.dataDir == "" {
		return usagef("--data-dir is required: the folder of the stopped node")
	}
	marker, err := datadir.Inspect(o.dataDir)
	if err != nil {
		return err
	}
	if err := o.complete(marker); err != nil {
		return err
	}
	var names []string
	for _, m := range o.members {
		names = append(names, m.ID+" at "+m.Addr)
	}
	plan := fmt.Sprintf("%s of cluster %s becomes a new cluster with the voters %s", marker.NodeID, marker.ClusterID, strings.Join(names, ", "))
	index, term, err := lastEntry(o.dataDir)
	if err != nil {
		return fmt.Errorf("%w: choose another survivor", err)
	}
	plan += fmt.Sprintf("; its log ends with entry %d of term %d", index, term)
	if o.dryRun {
		sh.say("%s", plan)
		return nil
	}
	if err := sh.confirm(o.consent, "%s. What only the lost voters had is given up. Go on?", plan); err != nil {
		return err
	}
	done, err := raftnode.Recover(ctx, o.dataDir, o.members, hclog.NewNullLogger())
	if err != nil {
		return err
	}
	sh.say("start it: ringlog serve --id %s --data-dir %s …", done.NodeID, o.dataDir)
	return sh.printRecovered(done)
}

// complete names the node alone where no member is given, at the raft address it
// had.
func (o *recoverOptions) complete(marker datadir.Marker) error {
	if len(o.members) > 0 {
		if !slices.ContainsFunc(o.members, func(m fsm.ConfigMember) bool { return m.ID == marker.NodeID }) {
			return usagef("%w: name %s too, with --member %s=RAFT_ADDR", raftnode.ErrNoSurvivor, marker.NodeID, marker.NodeID)
		}
		return nil
	}
	addr, err := ownRaftAddr(o.dataDir, marker.NodeID)
	if err != nil {
		return err
	}
	o.members = []fsm.ConfigMember{{ID: marker.NodeID, Addr: addr, Voter: true}}
	return nil
}

func ownRaftAddr(dir, id string) (addr string, err error) {
	f, err := openFolder(dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	_, _, members := f.machine.Configuration()
	for _, m := range members {
		if m.ID == id {
			return m.Addr, nil
		}
	}
	return "", usagef("%s was not in its cluster's configuration: name the voters with --member ID=RAFT_ADDR", id)
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
	if err := r.Lost(); err != nil {
		return 0, 0, err
	}
	p, last := f.machine.Position(), r.Summary().Last
	for l, err := range r.Entries(p.Index, p.Index) {
		if err == nil && l.Term != p.Term {
			return p.Index, p.Term, nil // the log contradicts the state and counts for nothing
		}
	}
	index, term = p.Index, p.Term
	for l, err := range r.Entries(max(last, index+1), last) {
		if err != nil {
			return 0, 0, err
		}
		index, term = l.Index, l.Term
	}
	return index, term, nil
}

func (sh *shell) printRecovered(done raftnode.Recovered) error {
	return sh.emit(done, func() error {
		return sh.facts("node", done.NodeID, "cluster", done.ClusterID, "term", done.Term, "index", done.Index, "last offset", done.Offset,
			"replayed", fmt.Sprintf("%d entries", done.Replayed))
	})
}

// folder is a stopped node's data, opened to be read.
type folder struct {
	marker  datadir.Marker
	dir     string
	machine *fsm.Machine
}

// openFolder opens the state of a stopped node and writes nothing.
func openFolder(dir string) (*folder, error) {
	marker, err := datadir.Inspect(dir)
	if err != nil {
		return nil, err
	}
	m, err := fsm.Open(fsm.Options{Dir: filepath.Join(dir, datadir.StateDir), ReadOnly: true})
	if err != nil {
		return nil, err
	}
	return &folder{marker: marker, dir: dir, machine: m}, nil
}

func (f *folder) close() error { return f.machine.Close() }

// raft opens the raft log and votes of the folder.
func (f *folder) raft() (*raftstore.Reader, error) {
	return raftstore.OpenReadOnly(filepath.Join(f.dir, datadir.RaftDir))
}
