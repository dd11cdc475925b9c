package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"
	_ "modernc.org/sqlite" // registers the driver

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
)

func importLettersCommand(sh *shell) *cli.Command {
	return &cli.Command{
		Name: "import", Usage: "keep the rows of the old queue's SQLite file as dead letters", ArgsUsage: "FILE.db",
		Description: "FILE.db has the table dead_letter_queue(id, event_type, event_data, error, created_at, retry_count) and is\n" +
			"only read. A row that was imported before adds nothing. Imported letters have no cursor: redrive them --to one.",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "dry-run", Usage: "check the rows, and import none"}},
		Action: func(c *cli.Context) error {
			if err := exactly(c, 1, "a SQLite file"); err != nil {
				return err
			}
			return importLetters(c.Context, sh, c.Args().First(), c.Bool("dry-run"))
		},
	}
}

// Bounds of one request of an import.
const (
	importRows  = 500
	importBytes = 1 << 20
	maxRowError = 64 << 10 // of a row's error, of which the log keeps less
)

// letterRow is a row as POST /v1/dlq/import takes it.
type letterRow struct {
	ID         any    `json:"id"`
	Type       string `json:"event_type"`
	Data       string `json:"event_data"`
	Error      string `json:"error"`
	CreatedAt  any    `json:"created_at"`
	RetryCount int64  `json:"retry_count"`
}

// importedLetters is what came of it.
type importedLetters struct {
	Imported int  `json:"imported"`
	Known    int  `json:"known"`
	Refused  int  `json:"refused"`
	DryRun   bool `json:"dry_run,omitempty"`
}

// letterImport is an import under way.
type letterImport struct {
	sh     *shell
	client *client.Client
	source string
	sum    importedLetters
	rows   []letterRow
	bytes  int
	bar    *progressbar.ProgressBar
}

func importLetters(ctx context.Context, sh *shell, file string, dryRun bool) (err error) {
	db, total, err := openQueue(ctx, file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	c, err := sh.dialReachable(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeClient(c)) }()
	im := &letterImport{sh: sh, client: c, source: filepath.Base(file), sum: importedLetters{DryRun: dryRun}, bar: sh.progress("rows")}
	if im.bar != nil {
		im.bar.ChangeMax64(total)
	}
	if err := im.read(ctx, db); err != nil {
		if im.sum.Imported > 0 && !dryRun {
			sh.say("stopped: %d rows are imported; run it again to go on", im.sum.Imported)
		}
		return err
	}
	if im.bar != nil {
		_ = im.bar.Finish()
	}
	return im.print()
}

// openQueue opens the file for reading and counts its rows.
func openQueue(ctx context.Context, file string) (db *sql.DB, rows int64, err error) {
	if info, err := os.Stat(file); err != nil || info.IsDir() {
		return nil, 0, notFoundf("%s: it is not a file: %w", file, err)
	}
	path, err := filepath.Abs(file)
	if err != nil {
		return nil, 0, err
	}
	at := url.URL{Scheme: "file", Path: path, RawQuery: "mode=ro&_pragma=query_only(1)"}
	if db, err = sql.Open("sqlite", at.String()); err != nil {
		return nil, 0, fmt.Errorf("open %s: %w", file, err)
	}
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM dead_letter_queue").Scan(&rows); err != nil {
		return nil, 0, errors.Join(usagef("%s does not hold a table dead_letter_queue: %w", file, err), db.Close())
	}
	return db, rows, nil
}

func (im *letterImport) read(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, `SELECT id, event_type, event_data, error, created_at, retry_count FROM dead_letter_queue ORDER BY id`)
	if err != nil {
		return usagef("%s: the table dead_letter_queue has other columns: %w", im.source, err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, created any
		var kind, data, failure sql.NullString
		var retries sql.NullInt64
		if err := rows.Scan(&id, &kind, &data, &failure, &created, &retries); err != nil {
			return fmt.Errorf("%s: %w", im.source, err)
		}
		row := letterRow{ID: plain(id), Type: kind.String, Data: data.String, Error: failure.String[:min(len(failure.String), maxRowError)], CreatedAt: plain(created), RetryCount: max(retries.Int64, 0)}
		if size := len(row.Data) + len(row.Error); len(im.rows) == importRows || len(im.rows) > 0 && im.bytes+size > importBytes {
			if err := im.send(ctx); err != nil {
				return err
			}
		}
		im.rows, im.bytes = append(im.rows, row), im.bytes+len(row.Data)+len(row.Error)
	}
	return errors.Join(rows.Err(), im.send(ctx))
}

// plain makes a column of any kind what JSON has.
func plain(v any) any {
	switch v := v.(type) {
	case []byte:
		return string(v)
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	}
	return v
}

// toldRows bounds the refused rows that are told one by one.
const toldRows = 20

// importAnswer is what became of the rows of one request.
type importAnswer struct {
	Imported int          `json:"imported"`
	Known    int          `json:"known"`
	Refused  []refusedRow `json:"refused"`
}

type refusedRow struct {
	ID    json.RawMessage `json:"id"`
	Error *api.Error      `json:"error"`
}

// send imports the rows that were read.
func (im *letterImport) send(ctx context.Context) error {
	rows := im.rows
	im.rows, im.bytes = im.rows[:0], 0
	return im.sendRows(ctx, rows)
}

// sendRows makes a request of rows, or where that is larger than the log takes of each half.
// A row that is too large by itself is refused as any other that can not be an event.
func (im *letterImport) sendRows(ctx context.Context, rows []letterRow) error {
	if len(rows) == 0 {
		return nil
	}
	var answer importAnswer
	err := im.post(ctx, rows, &answer)
	var refused *api.Error
	switch {
	case errors.As(err, &refused) && refused.Code == api.TooLarge && len(rows) > 1:
		half := len(rows) / 2
		if err := im.sendRows(ctx, rows[:half]); err != nil {
			return err
		}
		return im.sendRows(ctx, rows[half:])
	case errors.As(err, &refused) && refused.Code == api.TooLarge:
		id, _ := json.Marshal(rows[0].ID) // it was sent so
		answer.Refused = []refusedRow{{id, refused}}
	case err != nil:
		return err
	}
	for i, r := range answer.Refused {
		if im.sum.Refused+i < toldRows {
			im.sh.say("row %s: %s", r.ID, brief(r.Error))
		}
	}
	im.sum.Imported, im.sum.Known, im.sum.Refused = im.sum.Imported+answer.Imported, im.sum.Known+answer.Known, im.sum.Refused+len(answer.Refused)
	if im.bar != nil {
		_ = im.bar.Add(len(rows))
	}
	return nil
}

func (im *letterImport) post(ctx context.Context, rows []letterRow, answer *importAnswer) error {
	ctx, cancel := context.WithTimeout(ctx, im.sh.timeout)
	defer cancel()
	in := map[string]any{"source": im.source, "rows": rows, "dry_run": im.sum.DryRun}
	return im.client.Do(ctx, http.MethodPost, "/v1/dlq/import", nil, in, answer)
}

// print tells the outcome; rows that were refused make it a failure.
func (im *letterImport) print() error {
	err := im.sh.emit(im.sum, func() error {
		name := "imported"
		if im.sum.DryRun {
			name = "would be imported"
		}
		return im.sh.facts(name, im.sum.Imported, "known already", im.sum.Known, "refused", im.sum.Refused)
	})
	if err == nil && im.sum.Refused > 0 {
		err = codeError(exitFailed)
	}
	return err
}
