package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/serve"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// A bundle is a tar file, compressed with gzip. Every member goes through bundle.add, which removes secrets, bounds
// its size and notes it in bundle.json. That is the last member, since it names all others.

// Bounds of a bundle, in bytes before it is compressed.
const (
	bundleMember = 8 << 20   // of one member
	bundleAll    = 128 << 20 // of all of them
)

// bundleFormat is the version of a bundle's layout.
const bundleFormat = 1

// debugCommand is debug.
func debugCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "debug", Usage: "write what somebody needs who looks for a fault",
		UsageText: shell.Examples("ringlog debug bundle all.tar.gz"),
		Subcommands: []*cli.Command{{
			Name: "bundle", Usage: "write what all nodes say of themselves into one file", ArgsUsage: "FILE",
			UsageText: shell.Examples("ringlog debug bundle bundle.tar.gz",
				"ringlog debug bundle here.tar.gz --config ringlog.toml --log n1.log"),
			Description: "It has the status, metrics, journal of outages and stacks of each node, what the cluster " +
				"recorded of itself,\nits settings, the findings of ringlog doctor, and versions; with --config or flags of " +
				"serve the configuration and\njournal of this machine's node, with --log the end of log files. It has no " +
				"events, tokens or secrets: what looks\nlike one is replaced by [redacted]. A node that does not answer is " +
				"named in bundle.json.",
			Flags: append([]cli.Flag{
				&cli.BoolFlag{Name: "overwrite", Usage: "replace FILE if it exists"},
				&cli.StringSliceFlag{Name: "log", Usage: "add the end of a log `FILE` (repeatable)"},
			}, serve.Flags()...),
			Action: shell.Args(1, "the file to write", func(c *cli.Context) error { return writeBundle(c, sh) }),
		}},
	}
}

// bundle is what is being written.
type bundle struct {
	tar      *tar.Writer    // compressed into the file
	redactor *redactor      // through which every text goes
	made     time.Time      // the time of all members
	left     int            // bytes that still fit
	contents bundleContents // what was added so far; it is the last member
}

// bundleContents is bundle.json.
type bundleContents struct {
	Format  int               `json:"format"`
	Created time.Time         `json:"created"`
	Program build             `json:"program"`       // that has written it
	Nodes   []bundleNode      `json:"nodes"`         // also those that did not answer
	Files   []string          `json:"files"`         // names of the members
	LeftOut map[string]string `json:"left_out"`      // what is not there, or not whole, and why
	Set     []string          `json:"variables_set"` // names of variables, sorted
}

// bundleNode is a node that was asked.
type bundleNode struct {
	ID    string `json:"id"`
	URL   string `json:"url"`
	Error string `json:"error,omitempty"` // why it did not answer
}

// writeBundle gathers everything into a file beside FILE, which then gets its name.
func writeBundle(c *cli.Context, sh *shell.Shell) (err error) {
	file := c.Args().First()
	// Before the nodes are asked, which may take a while.
	if _, err := os.Stat(file); err == nil && !c.Bool("overwrite") {
		return shell.Usagef("%s exists: choose another name, or pass --overwrite", file)
	}
	// A bundle that is not complete must not have its name. Beside FILE it is on the same volume, so it can be
	// renamed.
	part, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".part-*")
	if err != nil {
		return shell.Usagef("%w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, part.Close(), os.Remove(part.Name()))
		}
	}()
	// The layers: what is added goes through tar and gzip into the file.
	zipped := gzip.NewWriter(part)
	b := &bundle{tar: tar.NewWriter(zipped), redactor: newRedactor(sh), made: time.Now().UTC(), left: bundleAll,
		contents: bundleContents{Format: bundleFormat, Program: buildVersion(), LeftOut: map[string]string{},
			Nodes: []bundleNode{}}}
	b.contents.Created = b.made
	// Only what cannot be written is an error: what a node does not say is named in bundle.json.
	if err := b.gather(c, sh); err != nil {
		return err
	}
	// In this order, since each layer writes its end into the one below it.
	if err := errors.Join(b.tar.Close(), zipped.Close(), part.Sync(), part.Close()); err != nil {
		return err
	}
	if err := os.Rename(part.Name(), file); err != nil {
		return err
	}
	return sh.Emit(b.contents, func() error {
		// A bundle in which nodes are missing is a good one, but whoever sends it should know.
		for _, n := range b.contents.Nodes {
			if n.Error != "" {
				sh.Say("%s at %s did not answer: %s", n.ID, n.URL, n.Error)
			}
		}
		_, err := fmt.Fprintf(sh.Out, "%s has %s of %s\n", file, shell.Count(len(b.contents.Files), "file"),
			shell.Count(len(b.contents.Nodes), "node"))
		return err
	})
}

// gather adds everything. What cannot be had is named instead; an error is one of writing.
func (b *bundle) gather(c *cli.Context, sh *shell.Shell) error {
	ctx := c.Context
	var findings []shell.Finding
	// The node of this machine, if it is described by its file or its folder. Its address counts as the endpoint of
	// the cluster, unless others are given.
	if c.IsSet("config") || c.IsSet("data-dir") {
		var endpoint string
		findings, endpoint = serve.Diagnose(c, sh, serve.Bounds{Sync: 25 * time.Millisecond})
		if endpoint != "" && !c.IsSet("endpoints") {
			sh.Endpoints = []string{endpoint}
		}
		if err := b.addMachine(c, sh); err != nil {
			return err
		}
	}
	// The nodes are asked at the members' addresses.
	if err := b.addNodes(ctx, sh); err != nil {
		return err
	}
	// The bounds are the defaults of ringlog doctor.
	findings = append(findings, diagnoseCluster(ctx, sh, time.Second, 26*time.Hour)...)
	if err := b.addJSON("doctor.json", findings); err != nil {
		return err
	}
	for i, file := range c.StringSlice("log") {
		// Two log files may have the same name, so each has a number. Lines with payloads are left out.
		text, err := endOf(file, bundleMember)
		if err := b.add(fmt.Sprintf("logs/%d-%s", i+1, filepath.Base(file)), b.redactor.lines(text), err); err != nil {
			return err
		}
	}
	// Which variables are set explains much. Their values may be secrets, and are not needed.
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "RINGLOG_") || strings.HasPrefix(name, "RINGRIFT_") || strings.HasPrefix(name, "GO") {
			b.contents.Set = append(b.contents.Set, name)
		}
	}
	slices.Sort(b.contents.Set)
	b.left = bundleMember // the list itself always fits
	return b.addJSON("bundle.json", &b.contents)
}

// addMachine adds what this machine has of its node.
func (b *bundle) addMachine(c *cli.Context, sh *shell.Shell) error {
	// A configuration that is wrong is what somebody looks for: the error takes its place.
	cfg, err := serve.Configuration(c, sh)
	if err == nil {
		err = b.addJSON("machine/configuration.json", cfg)
	} else {
		b.contents.LeftOut["machine/configuration.json"] = err.Error()
		err = nil
	}
	dir := c.String("data-dir")
	// The folder is known by its flag alone, since the configuration may not be readable.
	if dir == "" {
		return err
	}
	// The marker and the journal of outages, which a node that does not run cannot be asked for.
	for _, name := range []string{"node.json", "blackbox.jsonl"} {
		text, missing := endOf(filepath.Join(dir, name), bundleMember)
		err = errors.Join(err, b.add("machine/"+name, text, missing))
	}
	return err
}

// bundleRoutes are what each node is asked for, and the name of the answer.
var bundleRoutes = []struct{ path, name string }{
	{"/status", "status.json"},
	{"/metrics", "metrics.txt"},
	{"/v1/cluster/outage", "journal.json"},
	{"/v1/debug/stacks", "stacks.txt"},
	{"/readyz", "ready.json"},
}

// clusterRoutes are what the first node that answers is asked for.
var clusterRoutes = []struct{ path, name string }{
	{"/v1/settings", "settings.json"},
	{"/v1/members", "members.json"},
	{"/v1/cluster/history", "history.json"},
}

// addNodes adds what each node says, and names those that do not answer.
func (b *bundle) addNodes(ctx context.Context, sh *shell.Shell) error {
	found, err := askEverybody(ctx, sh, statusOf)
	if err != nil {
		b.contents.LeftOut["nodes"] = shell.Brief(err)
	}
	asked := false
	// A node that does not answer is listed with the reason, and has no files.
	for _, a := range found.answers {
		node := bundleNode{ID: found.id(a), URL: b.redactor.text(a.url)}
		if a.err != nil {
			node.Error = b.redactor.text(shell.Brief(a.err))
		}
		b.contents.Nodes = append(b.contents.Nodes, node)
		if a.err != nil {
			continue
		}
		routes := bundleRoutes
		// What is the same on all nodes is taken from one of them.
		if !asked {
			asked = true
			for _, r := range clusterRoutes {
				if err := b.fetch(ctx, sh, a.url, r.path, "cluster/"+r.name); err != nil {
					return err
				}
			}
		}
		for _, r := range routes {
			if err := b.fetch(ctx, sh, a.url, r.path, "nodes/"+fileName(node.ID)+"/"+r.name); err != nil {
				return err
			}
		}
	}
	return nil
}

// fetch adds the answer of a node. An error of the node is noted in bundle.json, and what arrived before it is
// kept.
func (b *bundle) fetch(ctx context.Context, sh *shell.Shell, url, path, name string) error {
	ctx, cancel := context.WithTimeout(ctx, shell.NodeWithin)
	defer cancel()
	body, err := sh.Open(ctx, url, path)
	if err != nil {
		return b.add(name, nil, err)
	}
	// The byte more than allowed has add note that the answer is cut.
	text, err := io.ReadAll(io.LimitReader(body, bundleMember+1))
	return b.add(name, text, errors.Join(err, body.Close()))
}

// addJSON adds a value. It is indented, as people read it.
func (b *bundle) addJSON(name string, v any) error {
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return b.add(name, text, nil)
}

// add adds a text without its secrets, as far as there is room, or says why it is not there.
func (b *bundle) add(name string, text []byte, missing error) error {
	if missing != nil {
		b.contents.LeftOut[name] = b.redactor.text(shell.Brief(missing))
	}
	// Also with an error there may be a text: what was read before it.
	if len(text) == 0 {
		return nil
	}
	// Secrets are removed before the text is cut: a part of one would not be recognized.
	text = b.redactor.bytes(text)
	if most := min(bundleMember, b.left); len(text) > most {
		b.contents.LeftOut[name] = fmt.Sprintf("%d of its %d bytes", len(text)-most, len(text))
		text = text[:most]
	}
	b.left -= len(text)
	b.contents.Files = append(b.contents.Files, name)
	header := &tar.Header{Name: name, Mode: 0o600, Size: int64(len(text)), ModTime: b.made}
	if err := b.tar.WriteHeader(header); err != nil {
		return err
	}
	_, err := b.tar.Write(text)
	return err
}

// endOf returns the last bytes of a file, from the beginning of a line if it is longer.
func endOf(file string, most int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// A file that grows meanwhile is read up to the same number of bytes.
	if skip := info.Size() - most; skip > 0 {
		if _, err := f.Seek(skip, io.SeekStart); err != nil {
			return nil, err
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, most))
	// The first line is most likely cut, so it is left out.
	if info.Size() > most {
		_, rest, _ := strings.Cut(string(text), "\n")
		text = []byte(rest)
	}
	return text, err
}

// fileName is a node's id as a name in the bundle.
func fileName(id string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || ('0' <= r && r <= '9') || ('a' <= r && r <= 'z') || ('A' <= r && r <= 'Z') {
			return r
		}
		return '_'
	}, id)
}
