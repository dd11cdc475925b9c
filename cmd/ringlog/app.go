package main

import (
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/bench"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/dev"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/offline"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/replay"
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
		UsageText: "ringlog VERB [flags] [arguments]\n\nTo try it: ringlog demo, or ringlog dev for a local cluster. " +
			"To learn more: ringlog help VERB.",
		Version:     version,
		HideVersion: true,
		// A filter's values may have commas, which filterOf splits where that is allowed.
		DisableSliceFlagSeparator: true,
		Reader:                    sh.In,
		Writer:                    sh.Out,
		ErrWriter:                 sh.Err,
		ExitErrHandler:            func(*cli.Context, error) {},
		Flags:                     globalFlags(),
		Before:                    before(sh),
		// In the order of the help.
		Commands: slices.Concat(
			category("events", publishCommand(sh), scheduledCommand(sh), callCommand(sh), tailCommand(sh), getCommand(sh),
				chainCommand(sh), dedupCommand(sh), catalogueCommand(sh), flowCommand(sh), viewCommand(sh)),
			category("subscribers", cursorCommand(sh), groupCommand(sh), reactCommand(sh), dlqCommand(sh),
				explainCommand(sh), waitCommand(sh), clientsCommand(sh), roleCommand(sh), runCommand(sh), launchCommand(sh),
				allocationCommand(sh), transfersCommand(sh), whereCommand(sh)),
			category("cluster", serve.Command(sh, version), statusCommand(sh), clusterCommand(sh), settingsCommand(sh),
				topCommand(sh), checkCommand(sh), doctorCommand(sh), debugCommand(sh), verifyCommand(sh)),
			category("operations", compactCommand(sh), offline.SnapshotCommand(sh), inspectCommand(sh),
				replay.Command(sh), stateCommand(sh), auditCommand(sh),
				certCommand(sh), tokenCommand(sh)),
			category("development", dev.Command(sh), dev.DemoCommand(sh, compareAt), bench.Command(sh)),
			category(shell.Tools, pythonCommand(sh), shadowCommand(sh), contextCommand(sh),
				versionCommand(sh), completionCommand(sh),
				manCommand(sh)),
		),
	}
	shell.Prepare(app)
	return app
}

// category puts commands under a heading of the help.
func category(name string, commands ...*cli.Command) []*cli.Command {
	for _, c := range commands {
		c.Category = name
	}
	return commands
}

// before reads the global flags. --version prints what the verb version does and ends the run.
func before(sh *shell.Shell) cli.BeforeFunc {
	return func(c *cli.Context) error {
		// The error of a wrong flag is the same whatever the verb.
		if err := sh.Configure(c); err != nil || !c.Bool("version") {
			return err
		}
		if err := showVersion(sh, buildVersion()); err != nil {
			return err
		}
		return shell.CodeError(shell.ExitDone)
	}
}

// globalFlags are those that Shell.Configure reads before each verb.
// They may be given before the verb or after it; a flag counts more than its variable.
func globalFlags() []cli.Flag {
	// Where to connect, and to which cluster, comes first.
	return []cli.Flag{
		&cli.StringFlag{Name: "endpoints", Aliases: []string{"e"},
			Usage:   "comma-separated `URLS` of nodes to connect to",
			EnvVars: []string{"RINGLOG_ENDPOINTS", "RINGRIFT_COORDINATOR_URL"}, Value: shell.DefaultEndpoint},
		&cli.StringFlag{Name: "context", Usage: "`NAME` of the context to use (default: the current one, if any)",
			EnvVars: []string{shell.ContextVariable}},
		&cli.StringFlag{Name: "cluster-id",
			Usage: "`ID` of the cluster: nodes of any other are refused (default: the cluster of the first node " +
				"that answers)",
			EnvVars: []string{"RINGLOG_CLUSTER_ID"}},
		// How a verb asks: what its answer must have, and how long it may take.
		&cli.StringFlag{Name: "consistency",
			Usage: "`LEVEL`: consistency of reads that do not follow: linearizable (has everything acknowledged before) " +
				"or local (what the answering node has)",
			Value: "linearizable"},
		&cli.DurationFlag{Name: "timeout", Usage: "time limit of a command; for a stream, of each attempt",
			Value:   shell.DefaultTimeout,
			EnvVars: []string{"RINGLOG_TIMEOUT"}},
		&cli.StringFlag{Name: "token-file",
			Usage:   "`FILE` with the cluster token (or RINGRIFT_CLUSTER_AUTH_TOKEN)",
			EnvVars: []string{shell.TokenFileVariable}},
		// What it needs for endpoints with https.
		&cli.StringFlag{Name: "tls-ca", Usage: "`FILE` with the CA that nodes' certificates are of (default: the system's)",
			EnvVars: []string{"RINGLOG_TLS_CA"}},
		&cli.StringFlag{Name: "tls-cert", Usage: "`FILE` with the certificate to show to nodes",
			EnvVars: []string{"RINGLOG_TLS_CERT"}},
		&cli.StringFlag{Name: "tls-key", Usage: "`FILE` with the key of --tls-cert",
			EnvVars: []string{"RINGLOG_TLS_KEY"}},
		// How it prints.
		&cli.StringFlag{Name: "output", Aliases: []string{"o"},
			Usage: "output `FORMAT`: text, or json with one object per line", Value: "text",
			EnvVars: []string{"RINGLOG_OUTPUT"}},
		&cli.BoolFlag{Name: "json", Usage: "same as -o json"},
		&cli.BoolFlag{Name: "version", Aliases: []string{"v"}, Usage: "same as the verb version"},
	}
}
