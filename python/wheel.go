// Package python holds the Python package ringlog, and makes of it what pip installs: a wheel.
//
//	w := python.Built()
//	os.WriteFile(w.File, w.Content, 0o644) // ringlog-0.1.0-py3-none-any.whl
//	w.Install("/opt/daemons")              // without pip
//
// A program that imports this package carries the sources of ringlog, without their tests. The wheel is made of them at
// first use. It has the same bytes wherever it is made: names in order, one fixed time, and no compression, whose
// result depends on the version of Go.
//
// Wheels are specified at https://packaging.python.org/en/latest/specifications/binary-distribution-format/.
package python

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"regexp"
	"sync"
	"time"
)

// Project is the name by which pip installs the package, and by which Python imports it.
const Project = "ringlog"

// What the metadata says besides the version. pyproject.toml, by which the package is installed from its source, says
// the same.
const (
	summary  = "Client of ringlog, a replicated event log"
	requires = ">=3.10" // versions of Python
)

// sources has the package as it is imported: no caches of the interpreter, no tests.
//
//go:embed ringlog/*.py ringlog/*/*.py ringlog/py.typed
var sources embed.FS

// Wheel is the package as pip installs it. It must not be changed.
type Wheel struct {
	Version  string // as in 0.1.0
	Requires string // the versions of Python that it runs on, as in >=3.10
	File     string // its name, as in ringlog-0.1.0-py3-none-any.whl
	Content  []byte
	SHA256   string // of the content, in hex

	files []file // all that the content has, in its order
}

// file is one file of a wheel.
type file struct {
	name    string // with slashes, as in ringlog/client.py
	content []byte
}

// Built returns the wheel of this build. It is made once.
func Built() *Wheel { return built() }

// built panics if the sources have no version, which a test rules out.
var built = sync.OnceValue(func() *Wheel {
	w, err := makeWheel(sources)
	if err != nil {
		panic("python: " + err.Error())
	}
	return w
})

// makeWheel makes the wheel of a folder's package.
func makeWheel(from fs.FS) (*Wheel, error) {
	w := &Wheel{Requires: requires}
	// WalkDir visits the files in the order of their names.
	err := fs.WalkDir(from, Project, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(from, name)
		w.add(name, content)
		return err
	})
	if err != nil {
		return nil, err
	}
	if w.Version, err = versionIn(from); err != nil {
		return nil, err
	}
	w.File = fmt.Sprintf("%s-%s-py3-none-any.whl", Project, w.Version)

	// The metadata comes after the package, and the list of all files last: it has their digests.
	w.add(w.info("METADATA"), fmt.Appendf(nil,
		"Metadata-Version: 2.1\nName: %s\nVersion: %s\nSummary: %s\nRequires-Python: %s\n",
		Project, w.Version, summary, requires))
	w.add(w.info("WHEEL"), []byte(
		"Wheel-Version: 1.0\nGenerator: ringlog\nRoot-Is-Purelib: true\nTag: py3-none-any\n"))
	w.add(w.info("RECORD"), w.record())
	if w.Content, err = w.zip(); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(w.Content)
	w.SHA256 = hex.EncodeToString(sum[:])
	return w, nil
}

// versionIn reads the version where the package itself has it.
func versionIn(from fs.FS) (string, error) {
	const where = Project + "/__init__.py"
	text, err := fs.ReadFile(from, where)
	if err != nil {
		return "", err
	}
	// The version becomes a part of file names.
	found := regexp.MustCompile(`(?m)^__version__ = "([0-9A-Za-z.]+)"$`).FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf(`%s has no line __version__ = "…"`, where)
	}
	return string(found[1]), nil
}

// info returns the name of a file of metadata.
func (w *Wheel) info(name string) string { return infoFolder(w.Version) + "/" + name }

// infoFolder is where a version of the package has its metadata, beside the package.
func infoFolder(version string) string { return Project + "-" + version + ".dist-info" }

func (w *Wheel) add(name string, content []byte) {
	w.files = append(w.files, file{name, content})
}

// record lists the files so far, and itself without a digest:
//
//	ringlog/client.py,sha256=DIGEST,SIZE
//
// The digest is in base64 for URLs, without padding.
func (w *Wheel) record() []byte {
	var list bytes.Buffer
	for _, f := range w.files {
		sum := sha256.Sum256(f.content)
		fmt.Fprintf(&list, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.content))
	}
	fmt.Fprintf(&list, "%s,,\n", w.info("RECORD"))
	return list.Bytes()
}

// zip returns the files as a zip archive.
func (w *Wheel) zip() ([]byte, error) {
	var out bytes.Buffer
	archive := zip.NewWriter(&out)
	for _, f := range w.files {
		// The first moment that the format can express.
		header := &zip.FileHeader{Name: f.name, Method: zip.Store, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
		header.SetMode(0o644)
		to, err := archive.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := to.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
