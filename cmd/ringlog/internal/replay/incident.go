package replay

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/offline"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/snapshots"
)

// Command is the verb incident.
func Command(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "incident", Usage: "take a slice of the past out of a node, and move one on that is open",
		UsageText: shell.Examples("ringlog incident export i.ringlog",
			"ringlog dev --incident incident.ringlog"),
		Description: "What was exported is opened with ringlog dev --incident FILE, ringlog react --incident FILE and " +
			"ringlog state\n--incident FILE.",
		Subcommands: []*cli.Command{
			{Name: "export", Usage: "write a slice of the log, with the state before it", ArgsUsage: "FILE",
				UsageText: shell.Examples("ringlog incident export --from 15m incident.ringlog",
					"ringlog incident export --from 7 --to 9 part.ringlog",
					"ringlog incident export --data-dir n1 n1.ringlog"),
				Description: "A node keeps as much of its past as its raft log reaches: the error of a beginning that is " +
					"not kept says\nwhat the oldest is. The first of --endpoints that has it is taken; nodes differ in " +
					"what they keep. The file\nhas all events and all data, as a backup does.",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "from", Usage: "begin at `WHERE`: " + api.PositionForms + "; start is the oldest",
						Value: "start"},
					&cli.StringFlag{Name: "to", Usage: "end at `WHERE`", Value: "end"},
					&cli.StringFlag{Name: "data-dir", Usage: "data `DIR` of a stopped node, instead of a running cluster"},
					&cli.BoolFlag{Name: "overwrite", Usage: "replace FILE if it exists"},
				},
				Action: shell.Args(1, "the file to write", func(c *cli.Context) error {
					s, err := sliceOf(c)
					if err != nil {
						return err
					}
					return export(c.Context, sh, c.Args().First(), s, c.Bool("overwrite"))
				})},
			{Name: "step", Usage: "move the incident on that ringlog dev --incident has open", ArgsUsage: "[ENTRIES]",
				UsageText: shell.Examples("ringlog incident step", "ringlog incident step 10",
					"ringlog incident step --until 4711"),
				Description: "It applies the next ENTRIES of raft's log, 1 by default, or those up to the one that has an " +
					"event.\nThere is no way back: open the incident again for what was before.",
				Flags: []cli.Flag{&cli.Uint64Flag{Name: "until", Usage: "continue up to the event at `OFFSET`"}},
				Action: func(c *cli.Context) error {
					s := api.IncidentStep{Until: c.Uint64("until")}
					if c.NArg() > 1 || (c.NArg() == 1 && c.IsSet("until")) {
						return shell.Usagef("incident step takes a number of entries, or --until OFFSET")
					}
					if c.NArg() == 1 {
						n, err := strconv.ParseUint(c.Args().First(), 10, 64)
						if err != nil || n == 0 {
							return shell.Usagef("%q is not a number of entries from 1 on", c.Args().First())
						}
						s.Entries = n
					}
					return step(c.Context, sh, s)
				}},
		},
	}
}

// slice says what to take, and of what.
type slice struct {
	from, to api.Position // both included
	dataDir  string       // of a stopped node; "" asks the cluster
}

// sliceOf reads the flags of export.
func sliceOf(c *cli.Context) (s slice, err error) {
	s.dataDir = c.String("data-dir")
	s.from, err = shell.ParsePosition("from", c.String("from"))
	if err != nil {
		return s, err
	}
	s.to, err = shell.ParsePosition("to", c.String("to"))
	return s, err
}

// write writes the slice, of the first endpoint that has it or of the folder.
func (s slice) write(ctx context.Context, sh *shell.Shell, w io.Writer) error {
	if s.dataDir != "" {
		return offline.WriteIncident(ctx, s.dataDir, w, s.from, s.to)
	}
	// The node resolves the positions: only it knows its log and its time.
	query := url.Values{"from": {s.from.String()}, "to": {s.to.String()}}
	return offline.Download(ctx, sh, "/v1/incident?"+query.Encode(), func(from io.Reader) error {
		_, err := io.Copy(w, from)
		return err
	})
}

// export saves a slice. The file gets its name once it is complete and has been read back.
func export(ctx context.Context, sh *shell.Shell, file string, s slice, overwrite bool) error {
	meta, err := offline.SaveVerified(sh, file, overwrite, func(w io.Writer) error { return s.write(ctx, sh, w) })
	if err != nil {
		return err
	}
	return printIncident(sh, meta)
}

// printIncident prints what an incident says of itself.
func printIncident(sh *shell.Shell, m snapshots.Meta) error {
	return sh.Emit(m, func() error {
		return sh.Facts("cluster", m.ClusterID, "taken of", m.NodeID, "from offset", m.Slice.FirstOffset, "entries",
			m.Slice.Entries, "index", strconv.FormatUint(m.Index, 10)+" to "+strconv.FormatUint(m.Slice.LastIndex, 10),
			"until", shell.Time(m.Slice.To))
	})
}

// step continues an open incident.
func step(ctx context.Context, sh *shell.Shell, s api.IncidentStep) error {
	var at api.IncidentPlace
	if err := sh.Call(ctx, http.MethodPost, "/v1/incident/step", nil, s, &at); err != nil {
		return err
	}
	return PrintPlace(sh, at)
}

// PrintPlace prints where a replay is.
func PrintPlace(sh *shell.Shell, at api.IncidentPlace) error {
	return sh.Emit(at, func() error {
		return sh.Facts("index", at.Index, "term", at.Term, "time", shell.Moment(at.Time), "last offset", at.LastOffset,
			"digest", at.Digest, "entries left", at.Left)
	})
}
