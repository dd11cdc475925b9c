package statestore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Views is what is folded beside the state: a snapshot has both.
type Views interface {
	// Checkpoint makes a copy in dir, if there is anything, and calls state meanwhile, which makes one of the state.
	Checkpoint(dir string, state func() error) (made bool, err error)
	// Swap calls state, which replaces the state, and puts what is in dir in place; "" leaves what there is.
	Swap(dir string, state func() error) error
}

// viewsPrefix begins the names of the files of views in a snapshot. No file of the state's own begins with it. A
// snapshot has them only in a cluster whose members all know views: nodes that do not know them never get one.
const viewsPrefix = "views-"

// viewsOf is the folder of the views beside that of a state.
func viewsOf(dir string) string { return dir + ".views" }

// joinViews moves the files of the views into the folder of their state. The folder of the views goes. Names in it are
// flat.
func joinViews(dir string) error {
	from := viewsOf(dir)
	entries, err := os.ReadDir(from)
	for _, e := range entries {
		err = errors.Join(err, os.Rename(filepath.Join(from, e.Name()), filepath.Join(dir, viewsPrefix+e.Name())))
	}
	if err = errors.Join(err, os.RemoveAll(from)); err != nil {
		return fmt.Errorf("join views and state in %s: %w", dir, err)
	}
	return nil
}

// SplitViews moves the files of the views out of the folder of a snapshot that was received, into a folder beside it,
// which it returns; "" if there are none. It is the reverse of joinViews, after all files were verified.
func SplitViews(dir string) (views string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("split views and state: %w", err)
	}
	for _, e := range entries {
		name, ofViews := strings.CutPrefix(e.Name(), viewsPrefix)
		if !ofViews {
			continue
		}
		// A snapshot without views makes no folder for them.
		if views == "" {
			views = viewsOf(dir)
			if err := os.Mkdir(views, 0o700); err != nil {
				return "", fmt.Errorf("split views and state: %w", err)
			}
		}
		if err := os.Rename(filepath.Join(dir, e.Name()), filepath.Join(views, name)); err != nil {
			return "", fmt.Errorf("split views and state: %w", err)
		}
	}
	// The names have to be durable before the folder is put in place.
	return views, errors.Join(syncFolder(views), syncFolder(dir))
}

// syncFolder makes the names in a folder durable; "" is none.
func syncFolder(dir string) error {
	if dir == "" {
		return nil
	}
	d, err := os.Open(dir)
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	return err
}
