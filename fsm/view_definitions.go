package fsm

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/internal/frame"
)

// A view is a fold over the log that every node does for itself, beside the state. The state has its declaration, which
// nothing here looks into, and up to which offset what its rules publish was published: whoever leads publishes it, and
// a publish is decided only if it begins where the last one ended.

// Bounds of a view, in bytes.
const (
	maxViewName        = 256
	MaxViewDeclaration = 64 << 10
)

// ViewDefinition is a view as it is defined. It does not change: what changes it replaces it.
type ViewDefinition struct {
	Name        string `json:"name"`
	Declaration string `json:"declaration"`
	Generation  uint64 `json:"generation"` // of all views together; it rises with each definition
	Since       uint64 `json:"since"`      // the first offset that it folds: the log began there when it was defined
	Defined     int64  `json:"defined_ns"` // in replicated Unix nanoseconds
	// Emitted is the offset up to which what its rules publish was published. It begins at the log's end as it was when
	// the view was defined: rules report nothing of before.
	Emitted uint64 `json:"emitted"`
}

// ViewDefinitions are all views, by name. They do not change.
type ViewDefinitions struct {
	Revision uint64           // the last generation that was given
	List     []ViewDefinition // by name
	Replaced <-chan struct{}  // closed once there are newer ones

	replaced chan struct{} // Replaced, to close it
}

// Get returns the view of that name.
func (d *ViewDefinitions) Get(name string) (ViewDefinition, bool) {
	byName := func(v ViewDefinition, name string) int { return strings.Compare(v.Name, name) }
	at, found := slices.BinarySearchFunc(d.List, name, byName)
	if !found {
		return ViewDefinition{}, false
	}
	return d.List[at], true
}

// ViewDefinitions returns all views, as of the newest entry that was stored. It does not wait for an entry that is
// being applied.
func (v *views) ViewDefinitions() *ViewDefinitions { return v.defined.Load() }

// publishViews shows the views to readers. Most entries change none.
func (v *views) publishViews(changed bool) {
	if !changed {
		return
	}
	// A whole new list: what readers have does not change.
	next := &ViewDefinitions{Revision: v.s.meta.ViewRevision, replaced: make(chan struct{})}
	next.Replaced = next.replaced
	for _, name := range slices.Sorted(maps.Keys(v.s.views)) {
		next.List = append(next.List, *v.s.views[name])
	}
	if old := v.defined.Swap(next); old != nil {
		close(old.replaced)
	}
}

// loadView reads a view. Its name is the key's. It is called before loadEmitted.
func (s *state) loadView(name string, value []byte) error {
	v := &ViewDefinition{}
	err := json.Unmarshal(value, v)
	s.views[name] = v
	return err
}

// loadEmitted reads up to where the firings of a view were published. It has a key of its own, so that a publish does
// not store the declaration again.
func (s *state) loadEmitted(name string, value []byte) error {
	v := s.views[name]
	if v == nil || len(value) != 8 {
		return fmt.Errorf("the end of what view %q has published, in %d bytes", name, len(value))
	}
	v.Emitted = binary.BigEndian.Uint64(value)
	return nil
}

// viewApplier decides which views there are, and what of their firings is published.
type viewApplier struct {
	*applying
	made         []string // views that this entry defines
	viewsChanged bool     // so readers get a new list
}

// defineView defines a view. The same declaration again changes nothing. A view of the name is replaced by one of
// another generation.
func (a *viewApplier) defineView(c frame.ViewDefine) Result {
	known := a.s.views[c.Name]
	m := &a.s.meta
	switch {
	case c.Name == "" || len(c.Name) > maxViewName || strings.ContainsRune(c.Name, 0):
		return refuse(Invalid, "name", fmt.Sprintf("%d bytes, or a zero byte among them", len(c.Name)),
			fmt.Sprintf("send 1 to %d bytes without a zero byte", maxViewName))
	case c.Declaration == "" || len(c.Declaration) > MaxViewDeclaration:
		return refuse(Invalid, "declaration", fmt.Sprintf("%d bytes", len(c.Declaration)),
			fmt.Sprintf("send 1 to %d bytes", MaxViewDeclaration))
	// Also if others were defined since it was checked.
	case known != nil && known.Declaration == c.Declaration:
		return Result{View: known, Replayed: true}
	case known == nil && uint64(len(a.s.views)) >= a.s.settings.ViewsMax:
		return refuse(Overloaded, "name", fmt.Sprintf("%d views are defined, which is the limit", len(a.s.views)),
			"remove some, or raise views.max")
	// What was checked against the other views has to hold for those that there are.
	case c.Revision != m.ViewRevision:
		r := refuse(Fenced, "revision", "another view was defined while this one was checked", "define it again")
		r.Refusal.Expected = m.ViewRevision
		return r
	}
	// storeViews completes it at the end of the entry.
	m.ViewRevision++
	v := &ViewDefinition{Name: c.Name, Declaration: c.Declaration, Generation: m.ViewRevision, Defined: a.now}
	a.s.views[c.Name] = v
	a.made, a.viewsChanged = append(a.made, c.Name), true
	return Result{View: v}
}

// removeView removes a view. What it was to publish and has not is dropped with it.
func (a *viewApplier) removeView(c frame.ViewRemove) Result {
	known := a.s.views[c.Name]
	if known == nil {
		return refuse(NotFound, "name", fmt.Sprintf("there is no view %q", c.Name),
			"list them: GET /v1/views, or ringlog view ls")
	}
	delete(a.s.views, c.Name)
	a.tx.Delete(key(prefixView, c.Name))
	a.tx.Delete(key(prefixEmitted, c.Name))
	a.viewsChanged = true
	return Result{View: known}
}

// storeViews stores the views that this entry defines. It has trimmed what it trims by now: they begin after that.
func (a *viewApplier) storeViews() {
	for _, name := range a.made {
		v := a.s.views[name]
		// It was removed by a later command.
		if v == nil {
			continue
		}
		// It is folded from the first event that is still there, and publishes nothing for those before it.
		v.Since, v.Emitted = a.s.meta.First, a.s.meta.Last
		a.tx.setJSON(key(prefixView, name), v)
		a.tx.Delete(key(prefixEmitted, name))
	}
}

// admit returns the answer of a command that does not begin where the firings of its view were published, and nil if
// it may be decided.
func (a *viewApplier) admit(e frame.ViewEmission) *Result {
	known := a.s.views[e.View]
	var r Result
	switch {
	case known == nil:
		r = refuse(NotFound, "view", fmt.Sprintf("there is no view %q", e.View), "")
	// The firings are of an older declaration.
	case known.Generation != e.Generation:
		r = refuse(Fenced, "generation", fmt.Sprintf("generation %d of %q, which has %d", e.Generation, e.View,
			known.Generation), "")
		r.Refusal.Expected = known.Generation
	// Somebody has published them, or some of them, already.
	case known.Emitted != e.From:
		r = refuse(Fenced, "from", fmt.Sprintf("firings of %q after %d, which were published up to %d", e.View, e.From,
			known.Emitted), "")
		r.Refusal.Expected = known.Emitted
	case e.To <= e.From || e.To > a.s.meta.Last:
		r = refuse(Invalid, "to", fmt.Sprintf("firings from %d to %d of a log that ends at %d", e.From, e.To,
			a.s.meta.Last), "")
	default:
		return nil
	}
	return &r
}

// emitted notes that the firings of a view are published.
func (a *viewApplier) emitted(e frame.ViewEmission) {
	// Readers have the old one.
	v := *a.s.views[e.View]
	v.Emitted = e.To
	a.s.views[e.View] = &v
	a.viewsChanged = true
	a.tx.Set(key(prefixEmitted, e.View), binary.BigEndian.AppendUint64(nil, e.To))
}

// skipFirings passes over firings that cannot be published.
func (a *viewApplier) skipFirings(c frame.ViewSkip) Result {
	if answer := a.admit(c.ViewEmission); answer != nil {
		return *answer
	}
	a.emitted(c.ViewEmission)
	return Result{View: a.s.views[c.View]}
}
