package python

import (
	"archive/zip"
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/ringrift/ringlog/internal/frame"
)

// sourceTree returns the files of the package as they are in the repository, without the interpreter's caches.
func sourceTree(t *testing.T) fstest.MapFS {
	t.Helper()
	tree := fstest.MapFS{}
	err := fs.WalkDir(os.DirFS("."), Project, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		if !strings.Contains(name, "/__pycache__/") {
			tree[name] = &fstest.MapFile{Data: content, ModTime: time.Now()}
		}
		return err
	})
	if err != nil || len(tree) < 20 {
		t.Fatalf("%d files: %v", len(tree), err)
	}
	return tree
}

// A file of a kind or in a folder that the embedding does not name is missing here.
func TestTheWheelHasTheWholePackage(t *testing.T) {
	w, tree := Built(), sourceTree(t)
	archive, err := zip.NewReader(bytes.NewReader(w.Content), int64(len(w.Content)))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range archive.File {
		if !strings.HasPrefix(f.Name, infoFolder(w.Version)+"/") {
			names = append(names, f.Name)
		}
		if at := f.Modified.UTC(); at.Year() != 1980 || at.YearDay() != 1 || f.Mode() != 0o644 {
			t.Errorf("%s is of %s, mode %s", f.Name, at, f.Mode())
		}
	}
	if want := slices.Sorted(maps.Keys(tree)); !slices.Equal(names, want) {
		t.Errorf("the wheel has %v\nthe folder has %v", names, want)
	}
	for name, want := range tree {
		if i := slices.IndexFunc(w.files, func(f file) bool { return f.name == name }); i < 0 ||
			!bytes.Equal(w.files[i].content, want.Data) {
			t.Errorf("%s differs", name)
		}
	}
}

func TestTheWheelHasTheSameBytesEachTime(t *testing.T) {
	// The files have the time of now and come out of a map.
	for range 5 {
		again, err := makeWheel(sourceTree(t))
		if err != nil {
			t.Fatal(err)
		}
		if again.SHA256 != Built().SHA256 || !bytes.Equal(again.Content, Built().Content) {
			t.Fatalf("%s, and then %s", Built().SHA256, again.SHA256)
		}
	}
}

// The package is described twice: for the wheel here, and for pip install ./python.
func TestBothWaysToInstallAgree(t *testing.T) {
	text, err := os.ReadFile("pyproject.toml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Project struct {
			Name, Description, Version string
			Requires                   string `toml:"requires-python"`
			Dependencies               []string
		}
		Tool struct{ Setuptools struct{ Packages []string } }
	}
	if err := toml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	p, w := file.Project, Built()
	if p.Name != Project || p.Description != summary || p.Requires != requires || len(p.Dependencies) > 0 {
		t.Errorf("pyproject.toml has %+v", p)
	}
	if p.Version != w.Version {
		t.Errorf("pyproject.toml has version %s, the package itself %s", p.Version, w.Version)
	}
	folders := map[string]bool{}
	for name := range sourceTree(t) {
		folders[strings.ReplaceAll(path.Dir(name), "/", ".")] = true
	}
	listed := slices.Sorted(slices.Values(file.Tool.Setuptools.Packages))
	if want := slices.Sorted(maps.Keys(folders)); !slices.Equal(listed, want) {
		t.Errorf("pyproject.toml has the packages %v, the folders are %v", listed, want)
	}
}

// The client says with it that a node is older.
func TestThePackageKnowsTheNewestFeatureLevel(t *testing.T) {
	text, err := os.ReadFile("ringlog/_core/calls.py")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^FEATURE_LEVEL = (\d+)`).FindSubmatch(text)
	if found == nil || string(found[1]) != strconv.Itoa(frame.LevelNewest) {
		t.Errorf("FEATURE_LEVEL in calls.py is %q, frame.LevelNewest %d", found, frame.LevelNewest)
	}
}

func TestAPackageWithoutAVersionIsNoWheel(t *testing.T) {
	for _, text := range []string{"", "__version__ = 1\n", "__version__ = \"../x\"\n"} {
		if w, err := makeWheel(fstest.MapFS{"ringlog/__init__.py": {Data: []byte(text)}}); err == nil {
			t.Errorf("%q became %s", text, w.File)
		}
	}
}

// olderWheel is a wheel of another version, which has a module that is gone, and lacks one that is new.
func olderWheel(t *testing.T) *Wheel {
	t.Helper()
	tree := sourceTree(t)
	first := tree["ringlog/__init__.py"]
	first.Data = bytes.Replace(first.Data, []byte(`__version__ = "`+Built().Version), []byte(`__version__ = "0.0.9`), 1)
	delete(tree, "ringlog/testing.py")
	tree["ringlog/gone.py"] = &fstest.MapFile{Data: []byte("x = 1\n")}
	w, err := makeWheel(tree)
	if err != nil || w.Version != "0.0.9" {
		t.Fatalf("%v %v", w, err)
	}
	return w
}

// filesIn returns all files below a folder.
func filesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func (w *Wheel) names() (names []string) {
	for _, f := range w.files {
		names = append(names, f.name)
	}
	slices.Sort(names)
	return names
}

func write(t *testing.T, elements ...string) {
	t.Helper()
	path := filepath.Join(elements...)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestInstallReplacesAnotherVersion(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	old, w := olderWheel(t), Built()
	for _, step := range []struct {
		wheel  *Wheel
		before string
	}{{old, ""}, {old, "0.0.9"}, {w, "0.0.9"}, {w, w.Version}, {old, w.Version}, {w, "0.0.9"}} {
		before, err := step.wheel.Install(dir)
		if err != nil || before != step.before {
			t.Fatalf("before %q: %v", before, err)
		}
		if got := filesIn(t, dir); !slices.Equal(got, step.wheel.names()) {
			t.Fatalf("%v", got)
		}
		// The interpreter's caches go with the version that they are of.
		write(t, dir, Project, "__pycache__", "gone.cpython-311.pyc")
	}
	// What else the folder has stays.
	write(t, dir, "other", "__init__.py")
	if _, err := w.Install(dir); err != nil {
		t.Fatal(err)
	}
	if got := filesIn(t, dir); !slices.Contains(got, "other/__init__.py") || len(got) != w.Files()+1 {
		t.Errorf("%v", got)
	}
}

func TestInstallLeavesWhatIsNotItsOwn(t *testing.T) {
	w := Built()
	for name, prepare := range map[string]func(dir string) (foreign string){
		"another package of the name": func(dir string) string {
			write(t, dir, "ringlog", "__init__.py")
			return "ringlog/__init__.py"
		},
		"a file of the name": func(dir string) string {
			write(t, dir, "ringlog")
			return "ringlog"
		},
		"a file that was added": func(dir string) string {
			if _, err := olderWheel(t).Install(dir); err != nil {
				t.Fatal(err)
			}
			write(t, dir, "ringlog", "_core", "mine.py")
			return "ringlog/_core/mine.py"
		},
		"a link to a source tree": func(dir string) string {
			if err := os.Symlink(t.TempDir(), filepath.Join(dir, "ringlog")); err != nil {
				t.Fatal(err)
			}
			return "ringlog"
		},
		"another project": func(dir string) string {
			write(t, dir, "ringlog-3.0.dist-info", "METADATA")
			return "ringlog-3.0.dist-info"
		},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, filepath.FromSlash(prepare(dir)))
		before := filesIn(t, dir)
		var foreign *ForeignError
		if _, err := w.Install(dir); !errors.As(err, &foreign) || foreign.Path != path {
			t.Errorf("%s: %v", name, err)
		}
		if after := filesIn(t, dir); !slices.Equal(after, before) {
			t.Errorf("%s: %v became %v", name, before, after)
		}
	}
}

// An Install that ended after each of its steps is completed by the next.
func TestAnInstallThatWasInterruptedIsCompleted(t *testing.T) {
	old, w := olderWheel(t), Built()
	for steps := range 4 {
		dir := t.TempDir()
		if _, err := old.Install(dir); err != nil {
			t.Fatal(err)
		}
		aside := filepath.Join(dir, ".ringlog-install-1")
		if err := w.unpack(filepath.Join(aside, "new")); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(aside, "old"), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, folder := range []string{Project, infoFolder(w.Version), infoFolder(old.Version)}[:steps] {
			if err := replaceFolder(dir, folder, filepath.Join(aside, "new"), filepath.Join(aside, "old")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Install(dir); err != nil {
			t.Fatalf("after %d steps: %v", steps, err)
		}
		got := slices.DeleteFunc(filesIn(t, dir), func(name string) bool { return strings.HasPrefix(name, ".ringlog-") })
		if !slices.Equal(got, w.names()) {
			t.Errorf("after %d steps: %v", steps, got)
		}
	}
}
