// Package serve is the verb serve: it reads a node's configuration from flags, variables and a file, and
// runs the node until it is asked to end.
package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/pelletier/go-toml/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/offline"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/certs"
	"github.com/ringrift/ringlog/internal/eventlog"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/otlp"
	"github.com/ringrift/ringlog/internal/server"
	"github.com/ringrift/ringlog/raftnode"
	"github.com/ringrift/ringlog/raftnode/datadir"
)

// Command is the verb serve of a program of this version.
func Command(sh *shell.Shell, version string) *cli.Command {
	return &cli.Command{
		Name: "serve", Usage: "run a node",
		UsageText: shell.Examples(
			"ringlog serve --id n1 --data-dir n1 --bootstrap-expect 1",
			"ringlog serve --id n1 --data-dir n1 --bootstrap-expect 1 --print-config",
		),
		Description: "A flag takes precedence over its RINGLOG_* variable, and that over the key in --config.\n" +
			"SIGTERM and Ctrl-C stop the node gracefully: a leader hands over first. A second one stops it at once.",
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "print-config",
				Usage: "check the configuration, print it as a file for --config, and do not start"},
		}, Flags()...),
		Action: shell.NoArgs(func(c *cli.Context) error {
			cfg, err := serveConfigOf(c, sh)
			if err != nil {
				return err
			}
			// The configuration has been validated: --print-config fails if serve would refuse it.
			if c.Bool("print-config") {
				return sh.Emit(cfg, func() error { return toml.NewEncoder(sh.Out).Encode(cfg) })
			}
			return serve(c.Context, sh, cfg, version)
		}),
	}
}

// Flags are those that describe a node: its configuration file, and each of its settings.
func Flags() []cli.Flag {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "config", Usage: "configuration `FILE.toml`, whose keys are the flags' names",
			EnvVars: []string{"RINGLOG_CONFIG"}},
	}
	for _, o := range serveOptions() {
		flags = append(flags, o.flag())
	}
	return flags
}

// Configuration is the configuration that flags, variables and the file make, as --print-config prints it.
func Configuration(c *cli.Context, sh *shell.Shell) (any, error) { return serveConfigOf(c, sh) }

// serveConfigOf reads the configuration from everywhere and checks it.
func serveConfigOf(c *cli.Context, sh *shell.Shell) (serveConfig, error) {
	// Without a file there are the defaults, variables and flags alone.
	file := c.String("config")
	var content []byte
	if file != "" {
		var err error
		content, err = os.ReadFile(file)
		if err != nil {
			return serveConfig{}, shell.Usagef("--config: %w", err)
		}
	}
	// urfave/cli has the flags and their variables in the right order already.
	cfg, err := layered(file, content, func(name string) (string, bool) {
		if !c.IsSet(name) {
			return "", false
		}
		// A list may come in several flags as well as in one.
		if list, is := c.Value(name).(cli.StringSlice); is {
			return strings.Join(list.Value(), ","), true
		}
		return fmt.Sprint(c.Value(name)), true
	})
	if err != nil {
		return cfg, err
	}
	// The platform's variable sets the level unless the flag does.
	if eventlog.Asked(sh.Getenv(eventlog.Variable)) && !c.IsSet("log-level") {
		cfg.LogLevel = "debug"
	}
	// The file may name the token file, too, which counts less than the flag of every verb.
	cfg.TokenFile = cmp.Or(c.String("token-file"), cfg.TokenFile)
	if sh.Token == "" {
		sh.Token, err = shell.ReadToken(cfg.TokenFile, "")
		if err != nil {
			return cfg, err
		}
	}
	return cfg, cfg.validate(sh.Token != "")
}

// node is a running node and the server through which it answers.
type node struct {
	logger hclog.Logger
	raft   *raftnode.Node // closed by stop, before the server
	server *server.Server // answers until raft is closed
	peers  *server.Peers  // calls of the other nodes; raft and server share it
	failed chan error     // of serving HTTP; holds one
	certs  *certs.Store   // nil without TLS
	spans  *otlp.Exporter // nil without a collector
}

// serve runs a node until ctx ends. A stop that was asked for is no error. It returns once the node has ended, and
// everything that it has started.
func serve(ctx context.Context, sh *shell.Shell, cfg serveConfig, version string) (err error) {
	// The profile covers the start, too.
	profiled, err := profileCPU(cfg.CPUProfile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, profiled()) }()
	// The node's own log goes to stderr: stdout has nothing but what a verb prints.
	logger := hclog.New(&hclog.LoggerOptions{Name: cfg.ID, Level: hclog.LevelFromString(cfg.LogLevel),
		Output: sh.Err, JSONFormat: cfg.LogJSON})
	// Ask before the node makes its folder.
	fresh := cfg.fresh()
	slackenTimers()
	collectAbove(heapFloor)
	// From here on the node answers, if raft has a leader or not.
	n, err := startNode(ctx, sh, cfg, version, logger)
	if err != nil {
		return err
	}
	if n.certs != nil {
		// Certificates are replaced while the node runs, until just before it stops.
		renewing, stopRenewing := context.WithCancel(ctx)
		var watching sync.WaitGroup
		watching.Go(func() { n.renew(renewing) })
		defer func() { stopRenewing(); watching.Wait() }()
	}
	// From here on a supervisor may start what needs the node.
	watcher := newSupervisor(sh.Getenv, logger)
	watched, stopWatching := context.WithCancel(ctx)
	// Status does not return while the node hangs, so no sign of life is sent then.
	var watchdog sync.WaitGroup
	watchdog.Go(func() { watcher.watch(watched, func() { n.raft.Status() }) })
	defer func() { stopWatching(); watchdog.Wait() }()
	watcher.notify("READY=1")
	// The first leader of a new cluster writes the settings that the flags ask for.
	seeding, stopSeeding := context.WithCancel(ctx)
	seeded := make(chan struct{})
	go func() {
		defer close(seeded)
		if fresh {
			n.seed(seeding, cfg)
		}
	}()
	select {
	case <-ctx.Done():
		logger.Info("stopping")
		watcher.notify("STOPPING=1")
		err = nil
	case err = <-n.failed:
	}
	// The node outlives what uses it.
	stopSeeding()
	<-seeded
	return errors.Join(err, n.stop(context.WithoutCancel(ctx)))
}

// profileCPU writes a profile to file, if one is named, from now until stop is called.
func profileCPU(file string) (stop func() error, err error) {
	if file == "" {
		return func() error { return nil }, nil
	}
	// An existing profile is overwritten.
	f, err := os.Create(file)
	if err != nil {
		return nil, shell.Usagef("--cpu-profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("--cpu-profile: %w", err), f.Close())
	}
	return func() error {
		// pprof writes the profile when it stops, so the file is closed after that.
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// slackenTimers lets sleeps of this process last up to 250 us longer: Go's runtime checks on its
// threads every 20 us while anything runs, which costs a node that serves one caller at a time a
// tenth to a seventh of its CPU. New threads inherit it from these. Only Linux has it, and only for root
// or with CAP_SYS_NICE; elsewhere nothing changes, and a systemd unit can set it instead.
func slackenTimers() {
	// The file of each thread is written; what cannot be written stays as it is.
	threads, _ := filepath.Glob("/proc/self/task/*")
	for _, t := range threads {
		_ = os.WriteFile(filepath.Join("/proc", filepath.Base(t), "timerslack_ns"), []byte("250000"), 0)
	}
}

// startNode opens everything a node is made of. The order is the one in which parts depend on each other: port,
// certificates, peers, raft, spans, server. After an error the listener, raft and the exporter are closed again.
func startNode(ctx context.Context, sh *shell.Shell, cfg serveConfig, version string,
	logger hclog.Logger) (_ *node, err error) {
	// The HTTP port first: the address that others learn may depend on it.
	listener, err := net.Listen("tcp", cfg.HTTP)
	if err != nil {
		return nil, portError("http", cfg.HTTP, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, listener.Close())
		}
	}()
	// From here on everything belongs to the node.
	n := &node{logger: logger, failed: make(chan error, 1)}
	advertised := cmp.Or(cfg.AdvertiseHTTP, listener.Addr().String())
	// A port of 0 has been replaced by the one that the kernel has chosen.
	mode := cfg.mode()
	security := server.Security{}
	if mode != certs.Off {
		n.certs, err = certs.Open(certs.Files{Cert: cfg.TLSCert, Key: cfg.TLSKey, CA: cfg.TLSCA}, certs.ForNode(cfg.ID))
		if err != nil {
			return nil, shell.Usagef("--tls-mode %s: %w", mode, err)
		}
		security = server.Security{Config: n.certs.CallConfig, Mode: mode}
	}
	// Whoever is given the address learns from it that it speaks nothing else.
	if mode == certs.Require {
		advertised = "https://" + advertised
	}
	n.peers = server.NewPeers(sh.Token, security)
	// Metrics of raft are global to the process, and are collected from here on.
	registry := nodeInfo(cfg, version)
	if err := server.RaftMetrics(registry); err != nil {
		return nil, err
	}
	n.raft, err = raftnode.Open(ctx, raftnode.Config{
		ID: cfg.ID, Dir: cfg.DataDir, RaftBind: cfg.Raft, RaftAdvertise: cfg.AdvertiseRaft, HTTPAdvertise: advertised,
		BootstrapExpect: cfg.BootstrapExpect, Join: cfg.Join, NonVoter: cfg.NonVoter,
		Secret: []byte(sh.Token), TLS: n.certs, TLSOptional: mode == certs.Allow, Version: version, Timing: cfg.timing(),
		Limits: raftnode.Limits{QueueRequests: cfg.QueueRequests, QueueBytes: cfg.QueueBytes},
		Disk:   raftnode.Disk{MinFree: int64(cfg.DiskMinFree)}, Peers: n.peers, Logger: logger,
		Fatal: func(err error) { dieOf(sh, logger, err) },
	})
	if err != nil {
		// raftnode opens no other port than raft's.
		if errors.Is(err, syscall.EADDRINUSE) {
			err = portError("raft", cfg.Raft, err)
		}
		return nil, err
	}
	n.spans, err = exporter(cfg, version, logger)
	if err != nil {
		return nil, errors.Join(err, n.raft.Close(ctx))
	}
	// The node answers once raft runs.
	n.server, err = server.New(server.Config{Node: n.raft, Peers: n.peers, Token: sh.Token, Version: version,
		TLS: n.certs, TLSMode: mode, Spans: n.spans,
		Logger:   logger.Named("server"),
		Registry: registry, Hosts: append(slices.Clone(cfg.AllowHosts), cfg.Join...)})
	if err != nil {
		return nil, errors.Join(err, n.raft.Close(ctx), n.closeSpans(ctx))
	}
	go func() { n.failed <- n.server.Serve(listener) }() // ends in stop
	logger.Info("serving", "http", listener.Addr().String(), "raft", cfg.Raft, "data", filepath.Clean(cfg.DataDir),
		"tls", string(mode), "version", version)
	return n, nil
}

// What this build knows and writes.
const (
	// FeatureLevel is the highest feature level that it can take part in.
	FeatureLevel = fsm.FeatureLevel
	// EntryFormat is the format of an entry of the raft log.
	EntryFormat = frame.Version
	// FolderFormat is the format of a data folder.
	FolderFormat = datadir.Format
)

// nodeInfoMetric says in its labels what a node is.
const nodeInfoMetric = "ringlog_node_info"

// nodeInfo returns a registry with the metric nodeInfoMetric.
func nodeInfo(cfg serveConfig, version string) *prometheus.Registry {
	// A gauge that is always 1 carries what a node is in its labels, as Prometheus recommends.
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: nodeInfoMetric, Help: "What this node is; always 1.",
		ConstLabels: prometheus.Labels{"id": cfg.ID, "version": version}})
	info.Set(1)
	r := prometheus.NewRegistry()
	r.MustRegister(info)
	return r
}

// timing converts the settings to those of raftnode.
func (c *serveConfig) timing() raftnode.Timing {
	// Election and lease have defaults that follow from the heartbeat.
	return raftnode.Timing{Heartbeat: c.Heartbeat.Duration, Election: c.electionTimeout(), Lease: c.leaderLease(),
		Ping: c.PingInterval.Duration, Misses: c.PingMisses, SnapshotInterval: c.CompactEvery.Duration,
		SnapshotThreshold: uint64(c.CompactEntries), TrailingLogs: uint64(c.TrailingEntries),
		CompactBytes: int64(c.CompactBytes), TrailingBytes: int64(c.TrailingBytes)}
}

// portError names who holds a port that is in use.
func portError(flag, addr string, err error) error {
	// The most likely reason is another node on this machine.
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("--%s %s is in use%s: stop that process, or choose another port", flag, addr,
			shell.PortHolder(addr))
	}
	return fmt.Errorf("--%s %s: %w", flag, addr, err)
}

// dieOf reports an error after which the node must not continue, and ends the process. raftnode calls it from any
// goroutine. Nothing is closed in order: what the node has promised is on its disk.
func dieOf(sh *shell.Shell, logger hclog.Logger, err error) {
	// The name is stable, for whoever watches logs; the words are for people.
	name := cmp.Or(offline.ProblemName(err), "FATAL")
	logger.Error("this node cannot continue", "problem", name, "error", err)
	sh.Say("ringlog: %s: %v", name, err)
	os.Exit(shell.ExitCode(offline.Explain(err)))
}

// stopNodeWithin bounds an orderly end.
const stopNodeWithin = 15 * time.Second

// stop ends the node in order: a leader hands over while it still answers.
func (n *node) stop(ctx context.Context) error {
	// The caller's ctx has no end any more: the node has been asked to stop by the end of it.
	ctx, cancel := context.WithTimeout(ctx, stopNodeWithin)
	defer cancel()
	// Raft closes first: HTTP answers until the leadership is handed over.
	err := errors.Join(n.raft.Close(ctx), n.server.Close(ctx))
	n.peers.Close()
	// Nothing makes spans any more.
	if err := n.closeSpans(ctx); err != nil {
		n.logger.Warn("spans were not exported", "error", err)
	}
	return err
}

// closeSpans sends the spans that wait. It does nothing without a collector.
func (n *node) closeSpans(ctx context.Context) error {
	if n.spans == nil {
		return nil
	}
	return n.spans.Close(ctx)
}

// exporter returns where the node's spans go to, nil for nowhere.
func exporter(cfg serveConfig, version string, logger hclog.Logger) (*otlp.Exporter, error) {
	if cfg.OTLPEndpoint == "" {
		return nil, nil
	}
	return otlp.New(otlp.Config{Endpoint: cfg.OTLPEndpoint, Logger: logger.Named("otlp"), Resource: otlp.Resource{
		Scope: "github.com/ringrift/ringlog", Version: version,
		Attrs: []otlp.Attr{{Key: "service.name", Text: "ringlog"}, {Key: "service.instance.id", Text: cfg.ID},
			{Key: "service.version", Text: version}}}})
}

// seed writes settings that the flags ask for into a cluster that is just being
// formed, if this node is its first leader. An existing cluster keeps its own.
func (n *node) seed(ctx context.Context, cfg serveConfig) {
	// Only what differs from the defaults is written.
	// Seeding is not part of forming a cluster: it may fail, and is then reported and left out.
	seeds := map[string]string{}
	if cfg.Reserved != serveDefaults().Reserved {
		seeds["catalogue.reserved"] = cfg.Reserved
	}
	if cfg.Strict {
		seeds["validation.strict"] = "true"
	}
	// A node that waits for its cluster to form waits here, until it is stopped.
	if len(seeds) == 0 || n.raft.WaitLeader(ctx) != nil {
		return
	}
	// Only the leader seeds, once for the cluster.
	l := n.raft.Machine().Leadership()
	if l.Leader != n.raft.Status().NodeID || n.raft.Status().ClusterID == "" {
		return
	}
	for _, s := range n.raft.Machine().ListSettings() {
		value, wanted := seeds[s.Key]
		// A setting that somebody has changed meanwhile stays.
		if !wanted || s.Value != s.Default {
			continue
		}
		// One that cannot be written is reported: an operator can set it later.
		if _, err := n.raft.Propose(ctx,
			frame.Request{Command: frame.SettingSet{Key: s.Key, Value: value}}); err != nil {
			n.logger.Warn("could not seed a setting", "key", s.Key, "error", err)
		}
	}
}
