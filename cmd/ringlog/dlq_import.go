package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// read takes the input line by line and gathers rows up to the bounds of a request. sendRows sends them, and halves
// what the log does not take in one request. The node judges each row, so that one that is wrong keeps no other
// from being imported.

// importLettersCommand is dlq import, for the queue that the platform had before. It may be interrupted and run again:
// a row is known by its id and source.
func importLettersCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "import", Usage: "import rows of the old queue as dead letters", ArgsUsage: "FILE.ndjson|-",
		UsageText: shell.Examples(
			"ringlog dlq import --dry-run rows.ndjson",
			"ringlog dlq import --source old.db - <rows.ndjson",
		),
		Description: "Each line is a row of the old queue's table dead_letter_queue as a JSON object with the " +
			"fields id, event_type,\n" +
			"event_data, error, created_at and retry_count. A row that was imported before is skipped. Imported " +
			"dead letters\n" +
			"have no cursor: redrive them --to one. To read the rows from the old queue's SQLite file:\n\n" +
			"  " + rowsOfSQLite + " | ringlog dlq import -",
		Flags: []cli.Flag{
			// The node checks the rows, so a dry run needs the cluster, too.
			&cli.BoolFlag{Name: "dry-run", Usage: "check the rows, and import none"},
			&cli.StringFlag{Name: "source",
				Usage: "`NAME` of where the rows come from, shown as a letter's origin (default: the file's name)"},
		},
		Action: shell.Args(1, "a file of rows, or - for the standard input", func(c *cli.Context) error {
			return importLetters(c.Context, sh, c.Args().First(), c.String("source"), c.Bool("dry-run"))
		}),
	}
}

// rowsOfSQLite prints the rows of the old queue's file as the import takes them.
const rowsOfSQLite = `sqlite3 -readonly FILE.db "SELECT json_object('id', id, 'event_type', event_type, ` +
	`'event_data', event_data, 'error', error, 'created_at', created_at, 'retry_count', retry_count) ` +
	`FROM dead_letter_queue"`

// sqliteMagic opens every SQLite file.
const sqliteMagic = "SQLite format 3"

// Bounds of an import.
const (
	importRows  = 500      // of one request
	importBytes = 1 << 20  // of one request
	maxRowLine  = 64 << 20 // of one line of the input
	maxRowError = 64 << 10 // of a row's error; the log keeps less
)

// importedLetters counts the outcomes of an import. Known are rows that were imported before.
type importedLetters struct {
	// rows that became letters, or would with DryRun
	Imported int `json:"imported"`
	// rows that an earlier import brought
	Known int `json:"known"`
	// rows that cannot be events
	Refused int  `json:"refused"`
	DryRun  bool `json:"dry_run,omitempty"`
}

// letterImport is an import under way.
type letterImport struct {
	sh     *shell.Shell
	client *client.Client
	// where the rows come from; with a row's id it becomes the letter's origin
	source string
	sum    importedLetters // so far
	// rows are read and wait for the next request; bytes is their size.
	rows  []api.LetterRow
	bytes int
	// nil if standard error is no terminal
	bar *progressbar.ProgressBar
}

// importLetters imports a file of rows.
func importLetters(ctx context.Context, sh *shell.Shell, file, source string, dryRun bool) (err error) {
	// A file or the standard input.
	in, name := sh.In, "stdin"
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return shell.NotFoundf("%w", err)
		}
		defer f.Close()
		in, name = f, filepath.Base(file)
	} else if sh.InTerminal {
		return shell.Usagef("the standard input is a terminal: pipe the rows in, one JSON object a line")
	}
	// The file of the old queue itself is a likely mistake: name the way to get the rows out of it.
	// Peek leaves what it looked at to be read.
	lines := bufio.NewReader(in)
	if magic, _ := lines.Peek(len(sqliteMagic)); string(magic) == sqliteMagic {
		return shell.Usagef("%s is a SQLite file, and the import takes rows: %s | ringlog dlq import -", name,
			rowsOfSQLite)
	}
	c, err := sh.DialReachable(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shell.CloseClient(c)) }()
	im := &letterImport{
		sh: sh, client: c, source: cmp.Or(source, name), sum: importedLetters{DryRun: dryRun},
		bar: newProgress(sh, "rows"),
	}
	// Rows that were sent stay imported: the next run skips them.
	if err := im.read(ctx, lines); err != nil {
		if im.sum.Imported > 0 && !dryRun {
			sh.Say("stopped: %s imported; run it again to import the rest",
				shell.Count(im.sum.Imported, "row is", "rows are"))
		}
		return err
	}
	// The bar ends its line before the summary.
	if im.bar != nil {
		_ = im.bar.Finish()
	}
	return im.print()
}

// read imports every line of the input. A line that holds no row is refused as the node refuses
// a row, and does not stop the rest.
func (im *letterImport) read(ctx context.Context, in io.Reader) error {
	lines := bufio.NewScanner(in)
	// A payload may be far larger than the scanner's own limit of 64 KiB.
	lines.Buffer(make([]byte, 0, 64<<10), maxRowLine)
	// Lines are counted as editors count them, empty ones too.
	number := 1
	// number is of the line that was read last, for the error below.
	for ; lines.Scan(); number++ {
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		// A line that is no row is refused by itself.
		var row api.LetterRow
		if err := json.Unmarshal(text, &row); err != nil {
			im.refuse(fmt.Sprintf("line %d", number), &api.Error{Code: api.InvalidJSON, Message: err.Error()})
			continue
		}
		if len(row.ID) == 0 {
			im.refuse(fmt.Sprintf("line %d", number), &api.Error{
				Code: api.InvalidArgument, Field: "id",
				Message: "the row has no id, by which a repeated import recognizes it",
			})
			continue
		}
		// Send what is gathered before this row makes a request too large.
		// The log cuts the error further; this bounds the request.
		row.Error = strings.ToValidUTF8(row.Error[:min(len(row.Error), maxRowError)], "")
		size := len(row.Data) + len(row.Error)
		if len(im.rows) == importRows || (len(im.rows) > 0 && im.bytes+size > importBytes) {
			if err := im.send(ctx); err != nil {
				return err
			}
		}
		im.rows, im.bytes = append(im.rows, row), im.bytes+size
	}
	// Rows that were read before the error are still sent.
	if err := lines.Err(); err != nil {
		return errors.Join(fmt.Errorf("%s: line %d: %w", im.source, number, err), im.send(ctx))
	}
	return im.send(ctx)
}

// refuse reports a row that cannot be an event; only the first few are named.
func (im *letterImport) refuse(row string, why *api.Error) {
	// A file that is wrong in every line would fill the screen.
	if im.sum.Refused < namedRows {
		im.sh.Say("%s: %s", row, shell.Brief(why))
	}
	im.sum.Refused++
}

// namedRows bounds the refused rows that are reported one by one.
const namedRows = 20

// send imports the rows that were read.
func (im *letterImport) send(ctx context.Context) error {
	// The buffer is used again: sendRows has encoded the rows when it returns.
	rows := im.rows
	im.rows, im.bytes = im.rows[:0], 0
	return im.sendRows(ctx, rows)
}

// sendRows sends rows in one request or, if that is larger than the log takes, each half in its own.
// A single row that is too large is refused, like any other that cannot be an event.
func (im *letterImport) sendRows(ctx context.Context, rows []api.LetterRow) error {
	if len(rows) == 0 {
		return nil
	}
	// The node judges each row by itself, and reports those that it refuses.
	var answer api.LettersImported
	err := im.post(ctx, rows, &answer)
	var refused *api.Error
	switch {
	case errors.As(err, &refused) && refused.Code == api.TooLarge && len(rows) > 1:
		// The log takes less in one request: try with each half.
		half := len(rows) / 2
		if err := im.sendRows(ctx, rows[:half]); err != nil {
			return err
		}
		return im.sendRows(ctx, rows[half:])
	case errors.As(err, &refused) && refused.Code == api.TooLarge:
		// It is reported as the node reports a row that it refuses.
		answer.Refused = []api.RefusedRow{{ID: rows[0].ID, Error: refused}}
	case err != nil:
		return err
	}
	// Rows that were refused do not keep the others of the request from being imported.
	for _, r := range answer.Refused {
		im.refuse(fmt.Sprintf("row %s", r.ID), r.Error)
	}
	im.sum.Imported += answer.Imported
	im.sum.Known += answer.Known
	if im.bar != nil {
		_ = im.bar.Add(len(rows))
	}
	return nil
}

// post sends one request.
func (im *letterImport) post(ctx context.Context, rows []api.LetterRow, answer *api.LettersImported) error {
	// Each request has the limit of one command, the import as a whole has none.
	ctx, cancel := context.WithTimeout(ctx, im.sh.Timeout)
	defer cancel()
	in := map[string]any{"source": im.source, "rows": rows, "dry_run": im.sum.DryRun}
	return im.client.Admin().Do(ctx, http.MethodPost, "/v1/dlq/import", nil, in, answer)
}

// print reports the outcome; rows that were refused make it a failure.
func (im *letterImport) print() error {
	// A dry run counts what would be imported.
	err := im.sh.Emit(im.sum, func() error {
		name := "imported"
		if im.sum.DryRun {
			name = "would be imported"
		}
		return im.sh.Facts(name, im.sum.Imported, "known already", im.sum.Known, "refused", im.sum.Refused)
	})
	if err == nil && im.sum.Refused > 0 {
		err = shell.CodeError(shell.ExitFailed)
	}
	return err
}
