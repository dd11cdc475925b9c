package integration

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Of runs that found something these are kept: the newest few, and of each no more bytes of nodes' folders.
const (
	keptRuns  = 4
	keptBytes = 2 << 30
)

// keepRun copies what a run leaves into a folder of its own: each node's data folder and log, the history and what
// was found. The nodes have ended.
func (s *soak) keepRun(root string) (dir string, err error) {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", err
	}
	if err := dropOldest(root, keptRuns-1); err != nil {
		return "", err
	}
	dir = filepath.Join(root, fmt.Sprintf("%s-seed-%d", time.Now().UTC().Format("20060102-150405"), s.figures.Seed))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	found := strings.Join(append([]string{"repeat it: " + s.repeat(), s.space()}, s.h.violations...), "\n\n") + "\n"
	errs := []error{
		os.WriteFile(filepath.Join(dir, "violations.txt"), []byte(found), 0o644),
		s.h.write(filepath.Join(dir, "history.gz")),
	}
	room := int64(keptBytes) // for the folders of all nodes
	for _, p := range s.nodes {
		into := filepath.Join(dir, p.id)
		errs = append(errs, copyFile(p.log, into+".log"), copyFolder(p.dir, into, &room))
	}
	if room < 0 {
		errs = append(errs, fmt.Errorf("the nodes' folders take more than %d bytes: files were left out", int64(keptBytes)))
	}
	return dir, errors.Join(errs...)
}

// space describes what is free on the volume of each node: a node that ended because its disk was full
// may have met a disk that no fault had filled.
func (s *soak) space() string {
	var lines []string
	for _, p := range s.nodes {
		var st syscall.Statfs_t
		if err := syscall.Statfs(p.dir, &st); err != nil {
			lines = append(lines, err.Error())
			continue
		}
		lines = append(lines, fmt.Sprintf("%s: %d of %d blocks and %d of %d inodes are free",
			p.id, st.Bavail, st.Blocks, st.Ffree, st.Files))
	}
	return strings.Join(lines, "\n")
}

// dropOldest leaves that many runs, whose names begin with their time.
func dropOldest(root string, leave int) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !strings.Contains(e.Name(), "-seed-") })
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	for _, e := range entries[:max(0, len(entries)-leave)] {
		if err := os.RemoveAll(filepath.Join(root, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// copyFolder copies regular files as far as there is room.
func copyFolder(from, to string, room *int64) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		into := filepath.Join(to, strings.TrimPrefix(path, from))
		switch {
		case d.IsDir():
			return os.MkdirAll(into, 0o755)
		case !d.Type().IsRegular() || d.Name() == "ballast" || d.Name() == "reserve":
			return nil // nothing that explains anything
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		*room -= info.Size()
		if *room < 0 {
			return nil // keepRun reports it
		}
		return copyFile(path, into)
	})
}

// copyFile copies a file.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// write stores the history as text: a line for each event.
func (h *history) write(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	packed := gzip.NewWriter(f)
	w := bufio.NewWriter(packed)
	h.mu.Lock()
	defer h.mu.Unlock()
	fmt.Fprintf(w, "began %s\n", h.began.Format(time.RFC3339Nano))
	fmt.Fprintf(w, "number\tsent ns\tacknowledged ns\tat offset\tstored at\tunanswered\tpossible\toutlived its window\n")
	for n, e := range h.events {
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\t%t\t%t\n",
			n, e.sent, e.acked, e.offset, e.stored, e.pending, e.possible, e.outlived)
	}
	for _, op := range h.cursorOps {
		fmt.Fprintf(w, "cursor\t%d to %d ns\tclient %d\t%s\n",
			op.Call, op.Return, op.ClientId, cursorModel.DescribeOperation(op.Input, op.Output))
	}
	return errors.Join(w.Flush(), packed.Close(), f.Close())
}
