package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/python"
)

// pythonCommand is python. The package is a part of this program, so no cluster is asked.
func pythonCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "python", Usage: "install the Python package that this program carries",
		UsageText: shell.Examples("ringlog python install --target lib"),
		Subcommands: []*cli.Command{
			{Name: "install", Usage: "write the Python package into a folder, without pip",
				UsageText: shell.Examples("ringlog python install --target lib"),
				Description: "A version that is there is replaced. Programs find the package if the folder is in " +
					"PYTHONPATH. With pip: pip install --index-url http://NODE:8770/python/ --trusted-host NODE ringlog",
				Flags: []cli.Flag{&cli.StringFlag{Name: "target", Usage: "`DIR` to write into; it is made if need be"}},
				Action: shell.NoArgs(func(c *cli.Context) error {
					return installPython(sh, c.String("target"))
				})},
			{Name: "wheel", Usage: "write the Python package as a wheel, for an index of one's own",
				UsageText: shell.Examples("ringlog python wheel --target lib"),
				Flags:     []cli.Flag{&cli.StringFlag{Name: "target", Value: ".", Usage: "`DIR` to write into"}},
				Action: shell.NoArgs(func(c *cli.Context) error {
					return writeWheel(sh, c.String("target"))
				})},
		},
	}
}

// writeWheel writes the wheel that nodes serve into a folder. A wheel of the same version that is there is
// replaced.
func writeWheel(sh *shell.Shell, dir string) error {
	wheel := python.Built()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return shell.Usagef("--target: %w", err)
	}
	file := filepath.Join(dir, wheel.File)
	// Its name has the version, so wheels of several versions can be in one folder.
	if err := os.WriteFile(file, wheel.Content, 0o644); err != nil {
		return err
	}
	return sh.Emit(map[string]string{"file": file, "sha256": wheel.SHA256}, func() error {
		_, err := fmt.Fprintf(sh.Out, "wrote %s\n", file)
		return err
	})
}

// installPython writes the package into a folder, and says what it replaced.
func installPython(sh *shell.Shell, dir string) error {
	// No folder is a default: a program looks for packages where its own are.
	if dir == "" {
		return shell.Usagef("--target DIR is required: the folder that Python programs import from")
	}
	wheel := python.Built()
	before, err := wheel.Install(dir)
	// Another package of the name is not overwritten.
	var foreign *python.ForeignError
	if errors.As(err, &foreign) {
		return shell.Usagef("%w", err)
	}
	if err != nil {
		return fmt.Errorf("install the Python package: %w", err)
	}
	return sh.Emit(struct {
		Version string `json:"version"`
		Before  string `json:"replaced,omitempty"`
		Target  string `json:"target"`
	}{wheel.Version, before, dir}, func() error {
		replaced := ""
		// before is the version that was there, "" if there was none.
		if before != "" {
			replaced = ", in place of " + before
		}
		_, err := fmt.Fprintf(sh.Out, "installed %s %s in %s%s\n", python.Project, wheel.Version, dir, replaced)
		return err
	})
}
