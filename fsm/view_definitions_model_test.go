package fsm

import (
	"bytes"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/internal/frame"
)

// Views against a model, over random histories of definitions, removals, trims and emissions that begin where the last
// one ended or elsewhere. A second machine is reopened and replaced by a checkpoint on the way and stays equal. No
// firing is published twice, or passed over.
func TestViewDefinitionsAgreeWithAModel(t *testing.T) {
	counts := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		plainFS, troubledFS := vfs.NewMem(), vfs.NewMem()
		plain, troubled := open(t, plainFS), open(t, troubledFS)
		defer func() { plain.Close(); troubled.Close() }()
		now, index := epoch, uint64(0)
		apply := func(r ...request) Result {
			index++
			now = now.Add(time.Second)
			e := entryOf(index, 1, "n1", now, r...)
			got := applyTo(t, plain, e)
			troubled = trouble(t, troubled, troubledFS, counts)
			applyTo(t, troubled, e)
			return got[len(got)-1]
		}
		apply(do(frame.TermStart{ClusterID: "c", Members: []frame.Member{{ID: "n1", FeatureLevel: FeatureLevel}}}),
			do(frame.SettingSet{Key: "views.max", Value: "2"}))
		model, revision := map[string]ViewDefinition{}, uint64(0)
		for n := range rapid.IntRange(1, 50).Draw(t, "entries") {
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
			known, some := model[name]
			first, last := plain.Log().Bounds()
			e := frame.ViewEmission{View: name, Generation: known.Generation, From: known.Emitted, To: last}
			if rapid.IntRange(0, 3).Draw(t, "stale") == 0 {
				e.From -= min(e.From, 1)
			}
			if rapid.IntRange(0, 5).Draw(t, "older") == 0 {
				e.Generation--
			}
			admitted := some && e.Generation == known.Generation && e.From == known.Emitted && e.To > e.From
			switch rapid.IntRange(0, 6).Draw(t, "action") {
			case 0, 1:
				text := rapid.SampledFrom([]string{"{}", "[]"}).Draw(t, "declaration")
				seen := revision - min(revision, uint64(rapid.IntRange(0, 1).Draw(t, "late")))
				trims := rapid.Bool().Draw(t, "with a trim")
				var requests []request
				if trims {
					requests = append(requests, do(frame.Trim{Before: last + 1, Force: true}))
				}
				got := apply(append(requests, do(frame.ViewDefine{Name: name, Declaration: text, Revision: seen}))...)
				switch {
				case some && known.Declaration == text:
					if !got.Replayed || *got.View != known {
						t.Fatalf("%+v %v, want %+v", got.View, got.Refusal, known)
					}
				case !some && len(model) == 2:
					wantRefusal(t, got, Overloaded)
					counts["full"]++
				case seen != revision:
					wantRefusal(t, got, Fenced)
					counts["late"]++
				default:
					revision++
					// It begins with what the entry has left of the log.
					first, last = plain.Log().Bounds()
					model[name] = ViewDefinition{Name: name, Declaration: text, Generation: revision, Since: first,
						Defined: now.UnixNano(), Emitted: last}
					if got.Refusal != nil || *got.View != model[name] {
						t.Fatalf("%+v %v, want %+v", got.View, got.Refusal, model[name])
					}
					counts["defined"]++
				}
			case 2:
				got := apply(do(frame.ViewRemove{Name: name}))
				if !some {
					wantRefusal(t, got, NotFound)
					break
				}
				delete(model, name)
				counts["removed"]++
			case 3, 4:
				r := publish(ev(1000 + n))
				r.command = frame.Publish{Count: 1, Emission: e}
				got := apply(r)
				if admitted != (got.Refusal == nil) {
					t.Fatalf("%+v of %+v: %v", e, known, got.Refusal)
				}
				if _, now := plain.Log().Bounds(); (now > last) != admitted {
					t.Fatalf("%+v of %+v: the log ended at %d, and ends at %d", e, known, last, now)
				}
				if admitted {
					known.Emitted = e.To
					model[name] = known
					counts["emitted"]++
				}
			case 5:
				got := apply(do(frame.ViewSkip{ViewEmission: e}))
				if admitted != (got.Refusal == nil) {
					t.Fatalf("%+v of %+v: %v", e, known, got.Refusal)
				}
				if admitted {
					known.Emitted = e.To
					model[name] = known
					counts["skipped"]++
				}
			default:
				apply(publish(ev(n)))
				if last > first {
					apply(do(frame.Trim{Before: last, Force: true}))
				}
			}

			defined := troubled.ViewDefinitions()
			if defined.Revision != revision || len(defined.List) != len(model) {
				t.Fatalf("%+v, want %d of revision %d", defined, len(model), revision)
			}
			for name, want := range model {
				if got, _ := defined.Get(name); got != want {
					t.Fatalf("%+v, want %+v", got, want)
				}
			}
		}
		if a, b := dump(t, plain), dump(t, troubled); !bytes.Equal(a, b) {
			t.Fatalf("dumps differ:\n%s\n%s", a, b)
		}
	})
	for _, kind := range []string{"defined", "full", "late", "removed", "emitted", "skipped"} {
		if counts[kind] == 0 && !testing.Short() { // which goes through few
			t.Errorf("no history has %s", kind)
		}
	}
}
