package datadir

import (
	"os"
	"strings"
	"time"
)

// NoteBackup records when the node last sent a whole backup. BackupFile has the time as text.
func (d *Dir) NoteBackup(at time.Time) error {
	return replaceFile(d.Path(BackupFile), []byte(at.UTC().Format(time.RFC3339Nano)+"\n"))
}

// LastBackup returns what NoteBackup recorded last, and the zero time if there is nothing that can be read: nothing
// that a node decides depends on it.
func (d *Dir) LastBackup() time.Time {
	raw, err := os.ReadFile(d.Path(BackupFile))
	if err != nil {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(string(raw)))
	if err != nil {
		return time.Time{}
	}
	return at
}
