package python

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ForeignError reports a file in the place of the package that no version of it has put there.
type ForeignError struct{ Path string }

func (e *ForeignError) Error() string {
	return e.Path + " belongs to no ringlog package: remove it, or choose another folder"
}

// Install puts the package into a folder, which is made if it is not there, and removes the version that was there
// before. It returns that version, "" if there was none. A folder that has something else in the place of the package
// is left as it is, with a *ForeignError.
//
// A program that imports the package meanwhile finds the old or the new one, or for a moment none, never a mixture.
func (w *Wheel) Install(dir string) (before string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	infos, err := w.installed(dir)
	if err != nil {
		return "", err
	}
	if err := w.checkPackage(dir, infos); err != nil {
		return "", err
	}

	// The new files are complete before the old ones are moved away.
	aside, err := os.MkdirTemp(dir, ".ringlog-install-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(aside)) }()
	fresh, old := filepath.Join(aside, "new"), filepath.Join(aside, "old")
	if err := os.Mkdir(old, 0o755); err != nil {
		return "", err
	}
	if err := w.unpack(fresh); err != nil {
		return "", err
	}

	// The package is exchanged before its metadata: if that is interrupted, the next Install finds files that equal its
	// own.
	own := infoFolder(w.Version)
	others := slices.DeleteFunc(slices.Clone(infos), func(info string) bool { return info == own })
	for _, folder := range append([]string{Project, own}, others...) {
		if err := replaceFolder(dir, folder, fresh, old); err != nil {
			return "", err
		}
	}
	if len(infos) > 0 {
		before = versionOf(infos[len(infos)-1])
	}
	return before, nil
}

// replaceFolder moves a folder of dir to old, and the one of that name in fresh to its place. Either may be absent.
func replaceFolder(dir, folder, fresh, old string) error {
	place, kept := filepath.Join(dir, folder), filepath.Join(old, folder)
	if err := os.Rename(place, kept); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := os.Rename(filepath.Join(fresh, folder), place)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		// What is in old is removed in the end.
		return errors.Join(err, os.Rename(kept, place))
	}
	return nil
}

// unpack writes all files below a folder.
func (w *Wheel) unpack(dir string) error {
	for _, f := range w.files {
		path := filepath.Join(dir, filepath.FromSlash(f.name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// installed returns the folders with metadata of this package that a folder has, one for each version. Another
// project of the same name is a *ForeignError.
func (w *Wheel) installed(dir string) (infos []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		version := versionOf(entry.Name())
		if version == "" {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		metadata, err := os.ReadFile(filepath.Join(path, "METADATA"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		// Whoever built it, the metadata has the summary.
		if !slices.Contains(strings.Split(string(metadata), "\n"), "Summary: "+summary) {
			return nil, &ForeignError{path}
		}
		infos = append(infos, entry.Name())
	}
	return infos, nil
}

// versionOf returns the version in the name of a folder with metadata of this project, "" for any other name.
func versionOf(folder string) string {
	rest, ours := strings.CutPrefix(folder, Project+"-")
	version, isInfo := strings.CutSuffix(rest, ".dist-info")
	if !ours || !isInfo {
		return ""
	}
	return version
}

// checkPackage refuses a folder whose package has files that none of the installed versions lists. Files that equal
// this wheel's are those of an Install that was interrupted.
func (w *Wheel) checkPackage(dir string, infos []string) error {
	known := map[string]bool{}
	for _, info := range infos {
		list, err := os.ReadFile(filepath.Join(dir, info, "RECORD"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for line := range strings.Lines(string(list)) {
			name, _, _ := strings.Cut(line, ",")
			known[name] = true
		}
	}
	top := filepath.Join(dir, Project)
	return filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == top {
			return fs.SkipAll
		}
		if err != nil {
			return err
		}
		// The interpreter makes its caches by itself.
		if entry.IsDir() {
			if entry.Name() == "__pycache__" {
				return fs.SkipDir
			}
			return nil
		}
		inside, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(inside)
		if entry.Type().IsRegular() && (known[name] || w.hasFile(path, name)) {
			return nil
		}
		return &ForeignError{path}
	})
}

// hasFile reports whether the wheel has a file with the name and the content of one on disk.
func (w *Wheel) hasFile(path, name string) bool {
	i := slices.IndexFunc(w.files, func(f file) bool { return f.name == name })
	if i < 0 {
		return false
	}
	content, err := os.ReadFile(path)
	return err == nil && bytes.Equal(content, w.files[i].content)
}

// Files returns how many files Install writes.
func (w *Wheel) Files() int { return len(w.files) }
