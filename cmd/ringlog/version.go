package main

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/serve"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// build says what this program was made of.
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
}

// versionCommand is version. --version is rewritten into it, so that both print the same.
func versionCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print this program's version and build",
		Action: shell.NoArgs(func(c *cli.Context) error {
			// No cluster is asked: its nodes may be of another build.
			return showVersion(sh, buildVersion())
		}),
	}
}

// showVersion prints the build.
func showVersion(sh *shell.Shell, b build) error {
	// What an operator is asked for first when something is wrong.
	return sh.Emit(b, func() error {
		return sh.Facts("ringlog", b.Version, "revision", cmp.Or(b.Revision, "unknown"), "built from",
			cmp.Or(b.Time, "unknown"),
			"go", b.Go, "platform", b.Platform, "feature level", b.Features)
	})
}

// buildVersion reads what the compiler noted in the program.
func buildVersion() build {
	b := build{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Features: serve.FeatureLevel}
	info, ok := debug.ReadBuildInfo()
	// A program that was built without modules has no build information.
	if !ok {
		return b
	}
	// "(devel)", or nothing, is a build without a version.
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	// The go command stamps the commit where it builds in a repository.
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
