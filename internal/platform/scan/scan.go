// Package scan finds in Python and Go sources who emits which event and who subscribes to it. It reads files as text:
// nothing is run, imported or compiled, and no interpreter is needed.
//
// A place counts if the type is written there: as a string, as a member of an enum or as a constant. A type that is
// computed, or is in a variable, is reported as dynamic, and never guessed. Names in comments and docstrings are none.
//
//	report, err := scan.Dir(event.Builtin(), "daemons")
package scan

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/event"
)

// Role is what a place does with a type.
type Role string

// The roles.
const (
	Emitter    Role = "emitter"
	Subscriber Role = "subscriber"
)

// Place is a line that emits a type or subscribes to it. A call that names two types is two places.
type Place struct {
	Type    event.Type `json:"type"` // canonical; a pattern as it is written; "" if dynamic
	Role    Role       `json:"role"`
	File    string     `json:"file"` // below the folder, with slashes
	Line    int        `json:"line"`
	Pattern bool       `json:"pattern,omitempty"`
	Dynamic bool       `json:"dynamic,omitempty"` // the type is not written there
	Unknown bool       `json:"unknown,omitempty"` // in no catalogue, or a pattern that no type matches
	Nearest []string   `json:"nearest,omitempty"` // known types with a name like an unknown one
}

// Broken is a file that was skipped.
type Broken struct {
	File  string `json:"file"`  // below the folder, with slashes
	Error string `json:"error"` // for people
}

// Report is what the sources show. Its lists are empty rather than nil, as JSON has them.
type Report struct {
	Files  int      `json:"files"`  // read
	Places []Place  `json:"places"` // by type, role, file and line
	Broken []Broken `json:"broken"` // in the order of the walk
	// Types in Orphans and Dead are sorted, each once. Dynamic places are in neither: they may name any type.
	Orphans []event.Type `json:"orphans"` // emitted, and subscribed to nowhere in the sources
	Dead    []event.Type `json:"dead"`    // subscribed to, and emitted nowhere in the sources
}

// Bounds of a scan. A file that is too large is listed in Report.Broken. More files or places end the scan with an
// error.
const (
	maxFile   = 4 << 20 // bytes
	maxFiles  = 50_000  // that are read
	maxPlaces = 50_000  // of all files
)

// Dir scans the Python and Go files below a folder. Symbolic links, hidden folders and those of dependencies are left
// out. Files that cannot be read or parsed are listed as broken. An error is one of the folder itself, or says that a
// bound was reached.
func Dir(c *event.Catalogue, dir string) (*Report, error) {
	// A root keeps the walk within the folder.
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // it was only read
	s := scanner{catalogue: c, camel: camelNames(c), report: &Report{Places: []Place{}, Broken: []Broken{},
		Orphans: []event.Type{}, Dead: []event.Type{}}}
	fsys := root.FS()
	err = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && name == ".":
			return err
		// A folder that cannot be read costs only what is in it.
		case err != nil:
			s.broken(name, err)
			return nil
		case d.IsDir() && name != "." && skipped(d.Name()):
			return fs.SkipDir
		case !d.Type().IsRegular() || (path.Ext(name) != ".py" && path.Ext(name) != ".go"):
			return nil
		case s.report.Files == maxFiles:
			return fmt.Errorf("more than %d files: scan a smaller folder", maxFiles)
		}
		// One file at a time, so memory holds the text of one.
		s.scan(fsys, name)
		if len(s.report.Places) > maxPlaces {
			return fmt.Errorf("more than %d places: scan a smaller folder", maxPlaces)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.finish()
	return s.report, nil
}

// skipped reports whether a folder holds no sources of its own. Hidden folders are those of tools and virtual
// environments.
func skipped(name string) bool {
	switch name {
	case "__pycache__", "node_modules", "site-packages", "vendor", "testdata":
		return true
	}
	return strings.HasPrefix(name, ".")
}

// scanner gathers a report.
type scanner struct {
	catalogue *event.Catalogue  // decides which types are known
	camel     map[string]string // names of types by how they read without underscores
	report    *Report           // filled by scan, completed by finish
}

// camelNames maps TRAININGCOMPLETED, as constants and classes in CamelCase read, to TRAINING_COMPLETED. Enum members,
// Go constants and payload classes are all found by it.
func camelNames(c *event.Catalogue) map[string]string {
	names := map[string]string{}
	for _, d := range slices.Concat(c.Definitions(), c.Own()) {
		names[strings.ReplaceAll(string(d.Name), "_", "")] = string(d.Name)
	}
	return names
}

// file is one file that is scanned.
type file struct {
	*scanner
	name   string  // below the folder
	places []Place // taken into the report once the whole file is read
}

// scan reads one file. What a broken one has shown before the fault does not count.
func (s *scanner) scan(fsys fs.FS, name string) {
	src, err := readBounded(fsys, name)
	f := file{scanner: s, name: name}
	if err == nil {
		s.report.Files++
		// Dir passes these two kinds alone.
		if path.Ext(name) == ".py" {
			err = f.python(src)
		} else {
			err = f.golang(src)
		}
	}
	if err != nil {
		s.broken(name, err)
		return
	}
	s.report.Places = append(s.report.Places, f.places...)
}

// readBounded reads a file of at most maxFile bytes.
func readBounded(fsys fs.FS, name string) (string, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return "", err
	}
	// One byte more than allowed shows that there is more.
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	if len(raw) > maxFile {
		return "", fmt.Errorf("larger than %d bytes", maxFile)
	}
	return string(raw), nil
}

// broken lists a file that was skipped.
func (s *scanner) broken(name string, err error) {
	s.report.Broken = append(s.report.Broken, Broken{File: name, Error: err.Error()})
}

// add adds a place with a type as it is written. It drops what cannot be a type.
func (f *file) add(role Role, written string, line int) {
	filter := event.Filter{Types: []string{written}}
	// Other programs publish to topics, paths and addresses by the same names. More than maxPlaces end the scan.
	if len(f.places) > maxPlaces || filter.Validate() != nil || (role == Emitter && strings.ContainsAny(written, "*?")) {
		return
	}
	// A pattern stays as it is written. It is unknown if it matches no type of the catalogue.
	p := Place{Role: role, File: f.name, Line: line, Pattern: strings.ContainsAny(written, "*?")}
	if p.Pattern {
		p.Type, p.Unknown = event.Type(written), len(filter.Warnings(f.catalogue)) > 0
	} else {
		// Aliases and other spellings become the canonical name.
		found, known := f.catalogue.Resolve(written)
		p.Type, p.Unknown = found.Type, !known
	}
	if p.Unknown {
		p.Nearest = f.catalogue.Nearest(written, 3)
	}
	f.places = append(f.places, p)
}

// dynamic adds a place whose type is not written there. It has no type, and finish leaves it out.
func (f *file) dynamic(role Role, line int) {
	f.places = append(f.places, Place{Role: role, File: f.name, Line: line, Dynamic: true})
}

// finish sorts the places, and compares emitters with subscribers.
func (s *scanner) finish() {
	r := s.report
	slices.SortFunc(r.Places, func(a, b Place) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Role, b.Role), cmp.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line))
	})
	// All that is emitted, and all that is wanted, by name and by pattern.
	emitted, wanted := map[event.Type]bool{}, map[event.Type]bool{}
	var patterns event.Filter
	for _, p := range r.Places {
		switch {
		case p.Dynamic:
		case p.Role == Emitter:
			emitted[p.Type] = true
		default:
			if p.Pattern && !wanted[p.Type] {
				patterns.Types = append(patterns.Types, string(p.Type))
			}
			wanted[p.Type] = true
		}
	}
	// A type is judged once, however often it occurs: the places of one follow each other.
	matches := patterns.Compile(s.catalogue)
	for i, p := range r.Places {
		if p.Dynamic || (i > 0 && r.Places[i-1].Type == p.Type && r.Places[i-1].Role == p.Role) {
			continue
		}
		switch {
		case p.Role == Emitter:
			// Nobody wants it, by its name or by a pattern. A filter without types would match all.
			if !wanted[p.Type] && (len(patterns.Types) == 0 || !matches.MatchType(string(p.Type))) {
				r.Orphans = append(r.Orphans, p.Type)
			}
		case p.Pattern:
			// A pattern is dead if it matches nothing that is emitted.
			one := event.Filter{Types: []string{string(p.Type)}}.Compile(s.catalogue)
			if !containsFunc(emitted, func(t event.Type) bool { return one.MatchType(string(t)) }) {
				r.Dead = append(r.Dead, p.Type)
			}
		case !emitted[p.Type]:
			r.Dead = append(r.Dead, p.Type)
		}
	}
}

// containsFunc reports whether a set has an element for which f is true.
func containsFunc(set map[event.Type]bool, f func(event.Type) bool) bool {
	for t := range set {
		if f(t) {
			return true
		}
	}
	return false
}
