package main

import (
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/bench"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/dev"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/offline"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/serve"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// newApp returns the whole command line, whose verbs use sh.
// Each run has its own, since the library keeps in its commands what it has parsed. Names, flags and the
// order of the verbs are the interface of the program: scripts and documents rely on them.
func newApp(sh *shell.Shell) *cli.App {
	// The nodes report the build that the verb version prints.
	version := buildVersion().Version
	// ExitErrHandler does nothing: Shell.Report prints the error and chooses the exit code, after the run.
	app := &cli.App{
		Name:  "ringlog",
		Usage: "a replicated event log",
		UsageText: "ringlog [global options] VERB [options] [arguments]\n\nTo try it: ringlog " +
			"demo, or ringlog dev for a local cluster.",
		Version:                   version,
		HideVersion:               true,
		EnableBashCompletion:      true,
		DisableSliceFlagSeparator: true,
		Reader:                    sh.In,
		Writer:                    sh.Out,
		ErrWriter:                 sh.Err,
		ExitErrHandler:            func(*cli.Context, error) {},
		Flags:                     globalFlags(),
		Before:                    sh.Configure,
		// In the order of the help: nodes, events and their readers, the cluster, types, one run, and tools.
		Commands: []*cli.Command{
			dev.Command(sh), dev.DemoCommand(sh, compareAt), serve.Command(sh, version),
			publishCommand(sh), tailCommand(sh), getCommand(sh), cursorCommand(sh), groupCommand(sh),
			dlqCommand(sh), dedupCommand(sh), clientsCommand(sh),
			statusCommand(sh), checkCommand(sh), verifyCommand(sh), clusterCommand(sh), settingsCommand(sh),
			catalogueCommand(sh), auditCommand(sh),
			chainCommand(sh), explainCommand(sh), waitCommand(sh), reactCommand(sh),
			compactCommand(sh), offline.SnapshotCommand(sh), inspectCommand(sh), bench.Command(sh),
			versionCommand(sh), completionCommand(sh),
		},
	}
	// Wrong names and flags get the same answer at every level.
	app.Action = shell.RunGroup(app.Commands)
	app.OnUsageError = shell.UsageProblem
	for _, c := range app.Commands {
		shell.Prepare(c)
	}
	return app
}

// globalFlags are those that Shell.Configure reads before each verb.
// They may be given before the verb or after it; a flag counts more than its variable.
func globalFlags() []cli.Flag {
	// Where to connect, and to which cluster, comes first.
	return []cli.Flag{
		&cli.StringFlag{Name: "endpoints", Aliases: []string{"e"},
			Usage:   "comma-separated `URL`s of nodes to connect to",
			EnvVars: []string{"RINGLOG_ENDPOINTS", "RINGRIFT_COORDINATOR_URL"}, Value: shell.DefaultEndpoint},
		&cli.StringFlag{Name: "cluster-id",
			Usage: "`ID` of the cluster: nodes of any other are refused (default: the cluster of the first node " +
				"that answers)",
			EnvVars: []string{"RINGLOG_CLUSTER_ID"}},
		// How a verb asks: what its answer must have, and how long it may take.
		&cli.StringFlag{Name: "consistency",
			Usage: "consistency of reads that do not follow: linearizable (has everything acknowledged before) " +
				"or local (what the answering node has)",
			Value: "linearizable"},
		&cli.DurationFlag{Name: "timeout", Usage: "time limit of a command; for a stream, of each attempt",
			Value:   shell.DefaultTimeout,
			EnvVars: []string{"RINGLOG_TIMEOUT"}},
		&cli.StringFlag{Name: "token-file",
			Usage:   "`FILE` with the cluster token (or RINGRIFT_CLUSTER_AUTH_TOKEN)",
			EnvVars: []string{shell.TokenFileVariable}},
		// How it prints.
		&cli.StringFlag{Name: "output", Aliases: []string{"o"},
			Usage: "output `FORMAT`: text, or json with one object per line", Value: "text",
			EnvVars: []string{"RINGLOG_OUTPUT"}},
		&cli.BoolFlag{Name: "json", Usage: "same as -o json"},
	}
}
