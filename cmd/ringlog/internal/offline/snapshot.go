package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"filippo.io/age"
	"github.com/hashicorp/go-hclog"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/raftnode"
	"github.com/ringrift/ringlog/snapshots"
)

// SnapshotFormat is the format of the backups that this build reads and writes.
const SnapshotFormat = snapshots.Version

// aSnapshot names the argument in errors.
const aSnapshot = "the file of a snapshot"

// SnapshotCommand is the verb snapshot.
// A snapshot here is a backup: a file that a running node writes, and from which a new cluster is made.
func SnapshotCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "snapshot", Usage: "make, check and restore backups",
		UsageText: shell.Examples("ringlog snapshot save backup.ringlog", "ringlog snapshot verify backup.ringlog"),
		Subcommands: []*cli.Command{
			// Of a running cluster.
			{Name: "save", Usage: "write a backup of a running node", ArgsUsage: "FILE",
				UsageText: shell.Examples("ringlog snapshot save backup.ringlog --overwrite"),
				Description: "The file appears once it is complete and verified. Any node can make one (--endpoints). " +
					"With --recipient it is\nencrypted while it arrives, and opened by --identity of the other verbs.",
				Flags: []cli.Flag{&cli.BoolFlag{Name: "overwrite", Usage: "replace FILE if it exists"},
					&cli.StringSliceFlag{Name: "recipient",
						Usage: "encrypt to `RECIPIENT`, age1…, as ringlog snapshot keygen prints it (repeatable)"}},
				Action: shell.Args(1, "the file to write", func(c *cli.Context) error {
					recipients, err := parseRecipients(c.StringSlice("recipient"))
					if err != nil {
						return err
					}
					return saveSnapshot(c.Context, sh, c.Args().First(), c.Bool("overwrite"), recipients)
				})},
			keygenCommand(sh),
			// Of a file: no cluster is needed from here on.
			{Name: "inspect", Usage: "print what a backup's header says", ArgsUsage: "FILE",
				UsageText: shell.Examples("ringlog snapshot inspect backup.ringlog"),
				Flags:     []cli.Flag{identityFlag()},
				Action:    shell.Args(1, aSnapshot, func(c *cli.Context) error { return inspectSnapshot(sh, backupOf(c)) })},
			{Name: "verify", Usage: "read all of a backup, and check it", ArgsUsage: "FILE",
				UsageText: shell.Examples("ringlog snapshot verify backup.ringlog"),
				Flags:     []cli.Flag{identityFlag()},
				Action:    shell.Args(1, aSnapshot, func(c *cli.Context) error { return verifySnapshot(sh, backupOf(c)) })},
			restoreCommand(sh),
		},
	}
}

// saveSnapshot saves a backup. The time is bounded by the caller alone: a backup may be large.
func saveSnapshot(ctx context.Context, sh *shell.Shell, file string, overwrite bool, recipients []age.Recipient) error {
	// In clear, the file is written and then read back. Encrypted it cannot be read back, so it is verified as it
	// arrives.
	download := func(take func(io.Reader) error) error { return Download(ctx, sh, "/v1/snapshot", take) }
	var meta snapshots.Meta
	var err error
	if len(recipients) > 0 {
		meta, err = save(sh, file, overwrite, func(to *os.File) (meta snapshots.Meta, err error) {
			return meta, download(func(from io.Reader) error {
				meta, err = saveSealed(from, to, recipients)
				return err
			})
		})
	} else {
		meta, err = SaveVerified(sh, file, overwrite, func(to io.Writer) error {
			return download(func(from io.Reader) error {
				_, err := io.Copy(to, from)
				return err
			})
		})
	}
	if err != nil {
		return err
	}
	return printSnapshot(sh, meta)
}

// SaveVerified has a snapshot written into a file, and reads it back: what is called saved has been verified.
func SaveVerified(sh *shell.Shell, file string, overwrite bool, write func(io.Writer) error) (snapshots.Meta, error) {
	return save(sh, file, overwrite, func(to *os.File) (meta snapshots.Meta, err error) {
		if err := write(to); err != nil {
			return meta, err
		}
		// From the first byte on, as it is in the file: what was received may have been written wrongly.
		if _, err := to.Seek(0, io.SeekStart); err != nil {
			return meta, err
		}
		if meta, err = snapshots.Verify(to); err != nil {
			return meta, fmt.Errorf("what was saved does not verify: %w", err)
		}
		return meta, nil
	})
}

// save has a file beside the target written and verified, and gives it its name.
func save(sh *shell.Shell, file string, overwrite bool, write func(*os.File) (snapshots.Meta, error)) (
	meta snapshots.Meta, err error) {
	// Before a long download, not after it.
	if _, err := os.Stat(file); err == nil && !overwrite {
		return meta, shell.Usagef("%s exists: choose another name, or pass --overwrite", file)
	}
	// Write into a file beside the target, which is on the same volume.
	// The name is new, so two downloads at the same time do not share a file.
	part, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".part-*")
	if err != nil {
		return meta, shell.Usagef("%w", err)
	}
	// After an error nothing stays beside the target.
	defer func() {
		if err != nil {
			err = errors.Join(err, part.Close(), removeIfThere(part.Name()))
		}
	}()
	// Until it is verified, the file has a name that nobody takes for a backup.
	if meta, err = write(part); err != nil {
		return meta, err
	}
	// Data first, then its name.
	if err := errors.Join(part.Sync(), part.Close()); err != nil {
		return meta, err
	}
	if err := os.Rename(part.Name(), file); err != nil {
		return meta, err
	}
	if err := syncFolder(filepath.Dir(file)); err != nil { // else a power loss may take the name away
		return meta, err
	}
	sh.Say("saved and verified %s", file)
	return meta, nil
}

// syncFolder makes the names in a folder durable.
func syncFolder(dir string) error {
	// A folder is synced like a file.
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// removeIfThere removes a file that may have its final name already.
func removeIfThere(file string) error {
	// After the rename there is nothing of this name.
	if err := os.Remove(file); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Download has take read what is at a path of the first endpoint that gives it. take is called at most once. The
// error is the one of the last endpoint, if none gives it.
func Download(ctx context.Context, sh *shell.Shell, path string, take func(io.Reader) error) (err error) {
	// A cluster that cannot be reached is reported once, and not for each endpoint.
	if err := sh.Reach(ctx); err != nil {
		return err
	}
	// Any node has the whole state, so the first that answers will do.
	for _, e := range sh.Endpoints {
		// Open fails unless the answer is 200. If a node refuses, the next one is asked.
		body, openErr := sh.Open(ctx, e, path)
		if openErr != nil {
			err = openErr
			continue
		}
		// What was received is in the file, so no other node is asked if this one breaks off.
		return errors.Join(take(body), body.Close())
	}
	return err
}

// printSnapshot prints what a backup says of itself.
func printSnapshot(sh *shell.Shell, m snapshots.Meta) error {
	// The same facts of a file and of a backup that was just written.
	return sh.Emit(m, func() error {
		return sh.Facts("cluster", m.ClusterID, "written by", m.NodeID, "created", shell.Time(m.Created),
			"last offset", m.LastOffset,
			"index", m.Index, "term", m.Term, "digest", m.Digest, "feature level", m.FeatureLevel)
	})
}

// inspectSnapshot reads the header of a backup.
func inspectSnapshot(sh *shell.Shell, b backup) error {
	return b.read(sh, func(r io.Reader) error {
		// The header alone is checked, which is quick for a backup of any size.
		info, err := snapshots.Inspect(r)
		if err != nil {
			return fmt.Errorf("%s: %w", b.file, err)
		}
		if sh.JSON {
			return sh.PrintLine(info)
		}
		sh.Say("%s, %s; only the header was read, ringlog snapshot verify reads everything",
			shell.Count(int(info.Files), "file"), shell.Size(info.Bytes))
		return printSnapshot(sh, info.Meta)
	})
}

// verifySnapshot reads all of a backup.
func verifySnapshot(sh *shell.Shell, b backup) error {
	return b.read(sh, func(r io.Reader) error {
		// Every byte is read and checked.
		meta, err := snapshots.Verify(r)
		if err != nil {
			return fmt.Errorf("%s: %w", b.file, err)
		}
		sh.Say("%s is complete and undamaged", b.file)
		return printSnapshot(sh, meta)
	})
}

// backup is the file of a backup, and the files of the identities that may open it.
type backup struct {
	file       string
	identities []string // paths; without any, only a backup in clear can be read
}

// backupOf is the backup that a verb is called with.
func backupOf(c *cli.Context) backup { return backup{c.Args().First(), c.StringSlice("identity")} }

// read calls body with what is in the backup.
func (b backup) read(sh *shell.Shell, body func(io.Reader) error) error {
	// Before the file is opened, so that a wrong identity is reported by itself.
	identities, err := readIdentities(b.identities)
	if err != nil {
		return err
	}
	// A file that does not exist has an exit code of its own.
	f, err := os.Open(b.file)
	if errors.Is(err, os.ErrNotExist) {
		return shell.NotFoundError{Err: err}
	}
	if err != nil {
		return shell.Usagef("%w", err)
	}
	// What body reads is decrypted as it is read, so nothing is written in clear.
	r, err := openBackup(sh, f, identities)
	if err == nil {
		err = body(r)
	}
	return errors.Join(err, f.Close())
}

// restoreOptions say which node a backup becomes.
type restoreOptions struct {
	backup
	// the new folder, the node's id and its raft address
	dataDir, id, raft string
	shell.Consent
}

// restoreCommand is snapshot restore. It writes into an empty folder alone, but what it makes is another cluster: it
// asks, so nobody takes it for a way to mend a node of a cluster that runs.
func restoreCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "restore", Usage: "create a new cluster of one voter from a backup", ArgsUsage: "FILE",
		UsageText: shell.Examples(
			"ringlog snapshot restore backup.ringlog --data-dir n9 --id n9 --dry-run",
			"ringlog snapshot restore backup.ringlog --data-dir n9 --id n9 --yes",
		),
		Description: "Restores into an empty folder, offline. The cluster gets a new id and higher terms; other " +
			"nodes join it\nwith empty folders.",
		Flags: append(shell.ConsentFlags(), identityFlag(),
			&cli.StringFlag{Name: "data-dir", Usage: "data `DIR` of the node, new or empty"},
			&cli.StringFlag{Name: "id", Usage: "`ID` of the node"},
			&cli.StringFlag{Name: "raft", Usage: "raft `ADDR` of the node (default: the one that it is started with)"},
		),
		Action: shell.Args(1, aSnapshot, func(c *cli.Context) error {
			o := restoreOptions{backup: backupOf(c), dataDir: c.String("data-dir"), id: c.String("id"),
				raft: c.String("raft"), Consent: shell.ConsentOf(c)}
			// A node's id is permanent, so none is made up.
			if o.dataDir == "" || o.id == "" {
				return shell.Usagef("--data-dir and --id are required")
			}
			return restoreSnapshot(c.Context, sh, o)
		}),
	}
}

// restoreSnapshot makes a new cluster of one voter from a backup.
func restoreSnapshot(ctx context.Context, sh *shell.Shell, o restoreOptions) error {
	return o.read(sh, func(r io.Reader) error {
		// A dry run reads and checks all of the backup, and makes no folder.
		if o.DryRun {
			meta, err := snapshots.Verify(r)
			if err != nil {
				return fmt.Errorf("%s: %w", o.file, err)
			}
			sh.Say("%s would be restored into %s as %s", o.file, o.dataDir, o.id)
			return printSnapshot(sh, meta)
		}
		// The question comes before the folder is made. The backup is checked while it is restored.
		const question = "Restore %s into %s as the only voter, %s, of a new cluster?"
		if err := sh.Confirm(o.Consent, question, o.file, o.dataDir, o.id); err != nil {
			return err
		}
		// Other nodes join the new cluster with empty folders.
		done, err := raftnode.Restore(ctx, r,
			raftnode.Target{Dir: o.dataDir, NodeID: o.id, RaftAddr: o.raft, Logger: hclog.NewNullLogger()})
		if err != nil {
			return err
		}
		sh.Say("to start it: ringlog serve --id %s --data-dir %s …", o.id, o.dataDir)
		return printRecovered(sh, done)
	})
}
