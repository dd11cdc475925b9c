package main

import (
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/bench"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/dev"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/offline"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/serve"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// newApp is the whole command line, bound to sh.
func newApp(sh *shell.Shell) *cli.App {
	version := buildVersion().Version
	app := &cli.App{
		Name:                      "ringlog",
		Usage:                     "a replicated event log",
		UsageText:                 "ringlog [global options] VERB [options] [arguments]\n\nTry it: ringlog demo, or ringlog dev for a cluster to play with.",
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
		Commands: []*cli.Command{
			dev.Command(sh), dev.DemoCommand(sh, compareAt), serve.Command(sh, version),
			publishCommand(sh), tailCommand(sh), getCommand(sh), cursorCommand(sh), groupCommand(sh), dlqCommand(sh), dedupCommand(sh), clientsCommand(sh),
			statusCommand(sh), checkCommand(sh), verifyCommand(sh), clusterCommand(sh), settingsCommand(sh), catalogueCommand(sh), auditCommand(sh),
			chainCommand(sh), explainCommand(sh), waitCommand(sh), reactCommand(sh),
			compactCommand(sh), offline.SnapshotCommand(sh), inspectCommand(sh), bench.Command(sh),
			versionCommand(sh), completionCommand(sh),
		},
	}
	app.Action = shell.RunGroup(app.Commands)
	app.OnUsageError = shell.UsageProblem
	for _, c := range app.Commands {
		shell.Prepare(c)
	}
	return app
}

func globalFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "endpoints", Aliases: []string{"e"}, Usage: "nodes to talk to, comma separated `URL`s",
			EnvVars: []string{"RINGLOG_ENDPOINTS", "RINGRIFT_COORDINATOR_URL"}, Value: shell.DefaultEndpoint},
		&cli.StringFlag{Name: "cluster-id", Usage: "`ID` of the cluster: refuse nodes of any other; without it, of any other than the first that answers",
			EnvVars: []string{"RINGLOG_CLUSTER_ID"}},
		&cli.StringFlag{Name: "consistency", Usage: "of reads that end: linearizable, with all that was acknowledged before, or local, as the node that answers has it",
			Value: "linearizable"},
		&cli.DurationFlag{Name: "timeout", Usage: "how long a command may take; streams are bounded per attempt", Value: shell.DefaultTimeout,
			EnvVars: []string{"RINGLOG_TIMEOUT"}},
		&cli.StringFlag{Name: "token-file", Usage: "`FILE` with the cluster token (or RINGRIFT_CLUSTER_AUTH_TOKEN)", EnvVars: []string{shell.TokenFileVariable}},
		&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FORMAT` of the output: text, or json with one object a line", Value: "text",
			EnvVars: []string{"RINGLOG_OUTPUT"}},
		&cli.BoolFlag{Name: "json", Usage: "the same as -o json"},
	}
}
