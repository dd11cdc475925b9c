package main

import (
	"cmp"
	"context"
	"runtime"
	"runtime/debug"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/offline"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/serve"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// release is the version of a build that has none of its own: the next release, in development. The linker sets it in
// released builds (-X main.release=…), so it is no constant; nothing else changes it.
var release = "0.1.0-dev"

// build says what this program was made of, and which formats it knows.
type build struct {
	Version string `json:"version"`
	// the commit that was built, if it was built in a repository
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	// there were changes that are not in the commit
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// the newest that a cluster may use if all nodes are of this build
	Features uint32 `json:"feature_level"`
	// what this program writes; it refuses newer ones
	Entries  uint32 `json:"entry_format"`
	Snapshot uint32 `json:"snapshot_format"`
	Folder   uint32 `json:"folder_format"`
}

// versionCommand is version; --version prints the same.
func versionCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print this program's version and the formats that it knows",
		UsageText: shell.Examples("ringlog version", "ringlog version --check"),
		Flags: []cli.Flag{&cli.BoolFlag{Name: "check",
			Usage: "compare the versions of all nodes and of this program; exits 1 if they differ"}},
		Action: shell.NoArgs(func(c *cli.Context) error {
			if c.Bool("check") {
				return compareVersions(c.Context, sh)
			}
			// No cluster is asked: its nodes may be of another build.
			return showVersion(sh, buildVersion())
		}),
	}
}

// nodeVersion is a row of version --check.
type nodeVersion struct {
	ID      string `json:"id"`
	URL     string `json:"http,omitempty"`
	Version string `json:"version,omitempty"`
	Levels  uint32 `json:"feature_level,omitempty"` // that the node knows
	Error   string `json:"error,omitempty"`         // why it did not answer
}

// compareVersions prints the version of each node, and of this program, and fails if they differ or a node does not
// answer.
func compareVersions(ctx context.Context, sh *shell.Shell) error {
	found, err := askEverybody(ctx, sh, statusOf)
	if err != nil {
		return err
	}
	own := buildVersion()
	// This program is the first row: the nodes are compared with it.
	rows := []nodeVersion{{ID: "this program", Version: own.Version, Levels: own.Features}}
	differ, inForce := false, uint32(0)
	for _, a := range found.answers {
		row := nodeVersion{ID: found.id(a), URL: a.url}
		if a.err != nil {
			// An endpoint that is no member's is another name of one, or gone.
			if _, member := found.members[a.url]; !member && len(found.members) > 0 {
				continue
			}
			row.Error = shell.Brief(a.err)
		} else {
			row.Version, inForce = a.value.Version, a.value.FeatureLevel
			// What a node knows is in its list of members, as the log records it. What is in force is the same for
			// all.
			for _, m := range a.value.Members {
				if m.ID == a.value.NodeID {
					row.Levels = m.FeatureLevel
				}
			}
		}
		// A node without an answer has no version, so it differs.
		differ = differ || row.Version != own.Version
		rows = append(rows, row)
	}
	header := table.Row{"node", "http", "version", "feature level"}
	err = shell.EmitEach(sh, "node", rows, header, func(r nodeVersion) table.Row {
		return table.Row{r.ID, addressText(r.URL), cmp.Or(r.Version, "no answer"), r.Levels}
	})
	if err != nil || !differ {
		return err
	}
	sh.Say("the versions differ; feature level %d is in force: finish the upgrade, one node after the other", inForce)
	return shell.CodeError(shell.ExitFailed)
}

// showVersion prints the build.
func showVersion(sh *shell.Shell, b build) error {
	// An operator is asked for these first when something is wrong.
	return sh.Emit(b, func() error {
		facts := []any{"ringlog", b.Version}
		// A build outside of a repository has no commit.
		if b.Revision != "" {
			revision := b.Revision
			if b.Modified {
				revision += ", with changes"
			}
			facts = append(facts, "revision", revision, "committed", b.Time)
		}
		return sh.Facts(append(facts, "go", b.Go, "platform", b.Platform, "feature level", b.Features,
			"entry format", b.Entries, "snapshot format", b.Snapshot, "folder format", b.Folder)...)
	})
}

// buildVersion reads what the compiler noted in the program.
func buildVersion() build {
	b := build{Version: release, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Features: serve.FeatureLevel, Entries: serve.EntryFormat, Snapshot: offline.SnapshotFormat,
		Folder: serve.FolderFormat}
	info, ok := debug.ReadBuildInfo()
	// A program that was built without modules has no build information.
	if !ok {
		return b
	}
	// "(devel)", or nothing, is a build without a version.
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	// The go command stamps the commit if it builds in a repository.
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}
