package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/event/where"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/view"
	"github.com/ringrift/ringlog/internal/view/engine"
	"github.com/ringrift/ringlog/raftnode"
)

// Views holds the operations on views. What they are defined as is in the state, the same on every node. Rows are what
// this node has folded.
type Views struct {
	*core
	engine *engine.Engine // of this node
}

// defineTries is how often a definition is checked again because another one came first.
const defineTries = 8

// Define defines a view, or defines it otherwise. The same declaration again changes nothing.
func (v *Views) Define(ctx context.Context, name string, text []byte) (api.View, error) {
	// What cannot be compiled is refused before anything is proposed: the state machine stores the text as it is.
	d, fold, err := parseView(name, text)
	if err != nil {
		return api.View{}, err
	}
	// The order of the members is of no meaning.
	var declaration bytes.Buffer
	encoder := json.NewEncoder(&declaration)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(d); err != nil {
		return api.View{}, err
	}
	// Loops are looked for in what is defined now, and the command is decided only if that is still so.
	for try := 1; ; try++ {
		defined := v.Machine().ViewDefinitions()
		if err := refuseLoop(defined, d.Name, fold); err != nil {
			return api.View{}, err
		}
		result, err := v.proposeAndApply(ctx, frame.ViewDefine{
			Name:        d.Name,
			Declaration: strings.TrimSpace(declaration.String()),
			Revision:    defined.Revision,
		})
		refusal, refused := errors.AsType[*fsm.Refusal](err)
		if refused && refusal.Code == fsm.Fenced && try < defineTries {
			// This node has not seen the other one.
			if err := v.node.ReadBarrier(ctx); err != nil {
				return api.View{}, err
			}
			continue
		}
		if err != nil {
			return api.View{}, err
		}
		// Whoever asks this node next finds it.
		wait, cancel := context.WithTimeout(ctx, ownWriteWait)
		defer cancel()
		_ = v.engine.WaitDefined(wait, d.Name, result.View.Generation)
		answer, err := v.Get(d.Name)
		answer.Existing = result.Replayed
		return answer, err
	}
}

// parseView reads and compiles a declaration, whose name may be left out. name is that of the path. Errors are an
// api.Error with what to correct.
func parseView(name string, text []byte) (view.Declaration, *view.View, error) {
	d, err := view.Parse(text)
	if err == nil && d.Name == "" {
		d.Name = name
	}
	if err == nil && d.Name != name {
		return d, nil, api.Refuse(api.InvalidArgument, "name", fmt.Sprintf("the declaration is of %q, the path of %q",
			d.Name, name), "send the same name, or leave it out of the declaration")
	}
	var fold *view.View
	if err == nil {
		fold, err = view.Compile(d)
	}
	if err != nil {
		return d, nil, badView(err)
	}
	return d, fold, nil
}

// badView is the error of a declaration that does not compile. Its field is the place in the declaration.
func badView(err error) error {
	const remedy = "correct it there; docs/views.md has what a declaration may have"
	if bad, ok := errors.AsType[*view.Error](err); ok {
		return api.Refuse(api.InvalidArgument, strings.TrimSuffix("declaration."+bad.Place, "."), bad.Message, remedy)
	}
	if bad, ok := errors.AsType[*where.Error](err); ok {
		return api.Refuse(api.InvalidArgument, "declaration", bad.Error(), remedy)
	}
	return err
}

// refuseLoop refuses a view that would be fed by what it publishes, through others. The definition is decided only if
// no other was defined since, so that no two views that are defined at once are such a loop.
func refuseLoop(defined *fsm.ViewDefinitions, name string, fold view.Fold) error {
	// A view without rules feeds none.
	if len(fold.Emits()) == 0 {
		return nil
	}
	// The new view, in the place of an older one of its name, and all others.
	folds := map[string]view.Fold{name: fold}
	names := []string{name}
	for _, d := range defined.List {
		// One that this build cannot compile is folded by none of it.
		if other, err := compileView(d.Declaration); err == nil && d.Name != name {
			folds[d.Name] = other
			names = append(names, d.Name)
		}
	}
	// Follow what is published, from the new view on.
	came := map[string]string{} // by the name of a view, that of one whose events it reads
	// Breadth first, so the way that is named is the shortest.
	for queue := []string{name}; len(queue) > 0; queue = queue[1:] {
		for _, next := range names {
			if _, seen := came[next]; seen || !reads(folds[next], folds[queue[0]].Emits()) {
				continue
			}
			came[next] = queue[0]
			if next != name {
				queue = append(queue, next)
				continue
			}
			// Back at the new view: name the way.
			path := []string{name}
			for at := came[name]; at != name; at = came[at] {
				path = append(path, at)
			}
			path = append(path, name)
			slices.Reverse(path)
			return api.Refuse(api.InvalidArgument, "declaration.rules",
				"what the rules publish comes back to the view: "+strings.Join(path, " -> "),
				"have one of these views read other types, or publish others")
		}
	}
	return nil
}

// compileView makes a fold of a stored declaration.
func compileView(declaration string) (view.Fold, error) {
	d, err := view.Parse([]byte(declaration))
	if err != nil {
		return nil, err
	}
	return view.Compile(d)
}

// reads reports whether a view may read events of one of the types.
func reads(fold view.Fold, types []event.Type) bool {
	matcher := fold.Filter().Compile(event.Builtin())
	return slices.ContainsFunc(types, func(t event.Type) bool { return matcher.MatchType(string(t)) })
}

// Remove removes a view and returns it as it was.
func (v *Views) Remove(ctx context.Context, name string) (api.View, error) {
	was, err := v.Get(name)
	// This node may not have it yet; the state machine knows.
	if e := (*api.Error)(nil); err != nil && !(errors.As(err, &e) && e.Code == api.NotFound) {
		return api.View{}, err
	}
	result, err := v.proposeAndApply(ctx, frame.ViewRemove{Name: name})
	if err != nil {
		return api.View{}, err
	}
	// Its rows are not known here, only its definition.
	if was.Name == "" {
		was = viewOf(&engine.Status{ViewDefinition: *result.View})
	}
	return was, nil
}

// List returns all views.
func (v *Views) List() api.Views {
	out := api.Views{Views: []api.View{}}
	for _, s := range v.engine.List() {
		out.Views = append(out.Views, v.withSkipped(&s))
	}
	return out
}

// withSkipped is a view as callers see it, with how many events it could not fold.
func (v *Views) withSkipped(s *engine.Status) api.View {
	one := viewOf(s)
	// One that this build cannot fold has none.
	_ = v.engine.Read(s.Name, func(r *engine.Reader) error {
		skipped, err := r.Skipped()
		one.Skipped, one.BeyondKeys = skipped.Events, skipped.BeyondKeys
		return err
	})
	return one
}

// Get returns one view, with its declaration and its digests.
func (v *Views) Get(name string) (api.View, error) {
	list := v.engine.List()
	// Built-in views are not listed, so they are not found either.
	at := slices.IndexFunc(list, func(s engine.Status) bool { return s.Name == name })
	if at < 0 {
		return api.View{}, noView(name)
	}
	one := v.withSkipped(&list[at])
	one.Declaration = json.RawMessage(list[at].Declaration)
	digests, err := v.engine.Digests(name)
	if err != nil {
		return api.View{}, viewError(name, err)
	}
	for _, d := range digests {
		one.Digests = append(one.Digests, api.ViewDigest{Offset: d.Offset, Hex: fmt.Sprintf("%016x", d.Sum)})
	}
	return one, nil
}

// noView is the error for a view that does not exist.
func noView(name string) error {
	return api.Refuse(api.NotFound, "name", fmt.Sprintf("there is no view %q", name),
		"list them: GET /v1/views, or ringlog view ls")
}

// viewOf is a view as callers see it.
func viewOf(s *engine.Status) api.View {
	one := api.View{
		Name:       s.Name,
		Generation: s.Generation,
		Defined:    time.Unix(0, s.Defined).UTC(),
		Since:      s.Since,
		At:         s.At,
		Of:         s.Of,
		Lag:        s.Of - min(s.Of, s.At),
		Rows:       s.Rows,
		Emitted:    s.Emitted,
		Waiting:    s.Firings,
		Incomplete: incomplete(s),
		Failed:     s.Failed,
	}
	// Where it begins is of interest only if that is not the first event of the log.
	if one.Incomplete != "" {
		one.From = s.From
	}
	// A newer build may have made a declaration that this one cannot read.
	if d, err := view.Parse([]byte(s.Declaration)); err == nil {
		one.Description = d.Description
	}
	return one
}

// incomplete says what a view has not folded; "" is nothing.
func incomplete(s *engine.Status) string {
	if !s.Incomplete() {
		return ""
	}
	return fmt.Sprintf("events before %d are gone", s.From)
}

// ViewRead says which rows to read.
type ViewRead struct {
	Name  string
	Key   string // of the one row; "" is all
	After string // the key after which a page of all begins
	Limit int    // of a page; at least 1
	At    uint64 // the rows as of this offset; 0 is as they are now
	// MinOffset waits until this node has folded that; Current waits for what the log of this node has.
	MinOffset uint64
	Current   bool
}

// Rows reads rows of a view, all of them at one offset.
func (v *Views) Rows(ctx context.Context, req ViewRead) (api.ViewRows, error) {
	stored := v.Machine().Log()
	// An offset that the caller has seen elsewhere may not be here yet.
	if err := waitFor(ctx, stored, req.MinOffset); err != nil {
		return api.ViewRows{}, err
	}
	// What is beyond the log's end here will not come by waiting for the fold.
	_, last := stored.Bounds()
	if req.At > last {
		return api.ViewRows{}, api.BeyondTail("at", req.At, last, "ask for an offset up to the tail")
	}
	// The fold may lag the log a little.
	wait := max(req.MinOffset, req.At)
	if req.Current {
		wait = max(wait, last)
	}
	if wait > 0 {
		if err := v.engine.Wait(ctx, req.Name, wait); err != nil {
			return api.ViewRows{}, viewError(req.Name, err)
		}
	}
	// One call of the engine, so that all rows are of one offset.
	out := api.ViewRows{View: req.Name, Rows: []json.RawMessage{}}
	use := func(r *engine.Reader) error {
		out.Generation, out.At, out.Incomplete = r.Generation, r.At, incomplete(&r.Status)
		return readRows(r, req, &out)
	}
	var err error
	if req.At > 0 {
		err = v.engine.ReadAt(ctx, req.Name, req.Key, req.At, use)
	} else {
		err = v.engine.Read(req.Name, use)
	}
	if err != nil {
		return api.ViewRows{}, viewError(req.Name, err)
	}
	return out, nil
}

// maxRowsBytes bounds a page of rows, in bytes; the row that passes it is its last.
const maxRowsBytes = 1 << 20

// readRows reads what is asked for.
func readRows(r *engine.Reader, req ViewRead, out *api.ViewRows) error {
	if req.Key != "" {
		row, found, err := r.Show(req.Key)
		if err == nil && !found {
			return api.Refuse(api.NotFound, "key", fmt.Sprintf("the view %q has no row %q at %d", req.Name, req.Key, r.At),
				"list its rows: GET /v1/views/"+req.Name+"/rows, or ringlog view show "+req.Name)
		}
		out.Rows = append(out.Rows, row)
		return err
	}
	// One more than the page has shows whether there is another page.
	keys, err := r.Keys(req.After, req.Limit+1)
	if err != nil {
		return err
	}
	// A page ends at its limit of rows or of bytes. It has at least one row.
	bytes := 0
	for i, key := range keys {
		if i == req.Limit || bytes > maxRowsBytes {
			out.Next = keys[i-1]
			break
		}
		row, found, err := r.Show(key)
		if err != nil {
			return err
		}
		if found {
			out.Rows = append(out.Rows, row)
			bytes += len(row)
		}
	}
	return nil
}

// viewError translates the engine's errors. name is that of the view. Other errors stay as they are.
func viewError(name string, err error) error {
	var gone *engine.GoneError
	switch {
	case errors.As(err, &gone):
		return &api.Error{Code: api.Trimmed, Field: "at", Offset: gone.First,
			Message: fmt.Sprintf("the row has changed since, and the events that it was folded from are gone; the first kept "+
				"is %d", gone.First),
			Remedy: "ask for a later offset, or for the row as it is now"}
	case errors.Is(err, engine.ErrNotFound):
		return noView(name)
	case errors.Is(err, engine.ErrTooLarge):
		return api.Refuse(api.TooLarge, "at", fmt.Sprintf("%v", err), "ask for a later offset, or for the row as it is now")
	case errors.Is(err, engine.ErrFailed):
		return api.Refuse(api.Conflict, "name", err.Error(), "define the view otherwise, or remove it")
	case errors.Is(err, engine.ErrLags):
		return api.Refuse(api.Overloaded, "view", err.Error(), "watch again, or fewer rows")
	case errors.Is(err, engine.ErrNotYet):
		return api.Refuse(api.Unavailable, "name", err.Error(), "ask again")
	case errors.Is(err, engine.ErrClosed):
		return ErrStopping
	}
	return err
}

// LastOffset is the log's end on this node.
func (v *Views) LastOffset() uint64 { _, last := v.Machine().Log().Bounds(); return last }

// ViewWatch says which rows to watch.
type ViewWatch struct {
	Name string
	Keys []string // none is all
	// Initial sends the rows as they are first.
	Initial bool
}

// Bounds of a watch.
const (
	watchEvery = 100 * time.Millisecond // at least between two rounds: changes in between are sent once
	watchPage  = 500                    // rows that are read at a time
)

// Watch calls send with the rows of a view as they change, each as it is at an offset, and with none once in a
// heartbeat. It returns why it ended.
func (v *Views) Watch(ctx context.Context, req ViewWatch, send func(at uint64, rows []json.RawMessage) error) error {
	// What changes after this is not missed.
	w, err := v.engine.Watch(req.Name)
	if err != nil {
		return viewError(req.Name, err)
	}
	defer w.Close()
	// The answer begins at once, although nothing has changed yet.
	if err := send(0, nil); err != nil {
		return err
	}
	// The watch has begun, so what changes while these are sent is sent again.
	if req.Initial {
		if err := v.sendAll(ctx, req, send); err != nil {
			return err
		}
	}
	// A reader learns in each heartbeat that the node still serves it.
	alive := time.NewTicker(v.heartbeat)
	defer alive.Stop()
	for {
		select {
		case <-w.Changed():
		case <-alive.C:
			if v.node.Diverged() {
				return raftnode.ErrDiverged
			}
			if err := send(0, nil); err != nil {
				return err
			}
			continue
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		// More changes than the watch keeps end it; the reader has to begin with all rows again.
		changed, err := w.Keys()
		if err != nil {
			return viewError(req.Name, err)
		}
		var keys []string
		for key := range changed {
			if len(req.Keys) == 0 || slices.Contains(req.Keys, key) {
				keys = append(keys, key)
			}
		}
		// A map has no order; rows are sent by key.
		slices.Sort(keys)
		if err := v.sendKeys(req.Name, keys, send); err != nil {
			return err
		}
		// Changes that come meanwhile are sent as one.
		select {
		case <-time.After(watchEvery):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// sendAll sends the rows as they are.
func (v *Views) sendAll(ctx context.Context, req ViewWatch, send func(uint64, []json.RawMessage) error) error {
	if len(req.Keys) > 0 {
		return v.sendKeys(req.Name, req.Keys, send)
	}
	// Page by page, each as it is at an offset of its own: what has changed before a later one is in the watch.
	for after := ""; ; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		page, err := v.Rows(ctx, ViewRead{Name: req.Name, After: after, Limit: watchPage})
		if err != nil {
			return err
		}
		if len(page.Rows) > 0 {
			if err := send(page.At, page.Rows); err != nil {
				return err
			}
		}
		if page.Next == "" {
			return nil
		}
		after = page.Next
	}
}

// sendKeys sends the rows of these keys. One that is not there is left out.
func (v *Views) sendKeys(name string, keys []string, send func(uint64, []json.RawMessage) error) error {
	// Each part is read at one offset, and not sent while the database is held.
	for part := range slices.Chunk(keys, watchPage) {
		var rows []json.RawMessage
		at := uint64(0)
		err := v.engine.Read(name, func(r *engine.Reader) error {
			at = r.At
			for _, key := range part {
				row, found, err := r.Show(key)
				if err != nil {
					return err
				}
				if found {
					rows = append(rows, row)
				}
			}
			return nil
		})
		if err != nil {
			return viewError(name, err)
		}
		if len(rows) == 0 {
			continue
		}
		if err := send(at, rows); err != nil {
			return err
		}
	}
	return nil
}
