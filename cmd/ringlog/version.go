package main

import (
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/offline"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/serve"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// release is the version of a build that has none of its own: the next release, in development.
const release = "0.1.0-dev"

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
		UsageText: shell.Examples("ringlog version", "ringlog version -o json"),
		Action: shell.NoArgs(func(c *cli.Context) error {
			// No cluster is asked: its nodes may be of another build.
			return showVersion(sh, buildVersion())
		}),
	}
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
