package fsm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// modelToken is a token as the model has it: its secrets and until when each is good.
type modelToken struct {
	id      string
	secrets map[SecretDigest]time.Time // zero: without end
	current SecretDigest
	expires time.Time
}

// Tokens against a model, over random histories of creations, rotations and revocations. A second machine is reopened
// and replaced by a checkpoint on the way and stays equal. Whichever secret is shown at whatever time, both agree on
// whether it is good; no more tokens are kept than may be.
func TestTokensAgreeWithAModel(t *testing.T) {
	counts := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		plainFS, troubledFS := vfs.NewMem(), vfs.NewMem()
		plain, troubled := open(t, plainFS), open(t, troubledFS)
		defer func() { plain.Close(); troubled.Close() }()
		now, index := epoch, uint64(0)
		var acts []string
		apply := func(r ...request) Result {
			index++
			last := &r[len(r)-1]
			by := rapid.SampledFrom([]string{"", "ada", "bob"}).Draw(t, "by")
			if by != "" {
				last.command = frame.Act{By: by, Action: fmt.Sprintf("%T", last.command), Of: last.command}
			}
			now = now.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "minutes")) * time.Minute)
			e := entryOf(index, 1, "n1", now, r...)
			got := applyTo(t, plain, e)
			troubled = trouble(t, troubled, troubledFS, counts)
			applyTo(t, troubled, e)
			answer := got[len(got)-1]
			if act, is := last.command.(frame.Act); is && !answer.Replayed {
				outcome := ActDone
				if answer.Refusal != nil {
					outcome = ActRefused
				}
				acts = append(acts, act.By+" "+act.Action+" "+outcome)
				counts["act "+outcome]++
			}
			return answer
		}
		apply(do(frame.TermStart{ClusterID: "c", Members: []frame.Member{{ID: "n1", FeatureLevel: FeatureLevel}}}),
			do(frame.SettingSet{Key: "tokens.max", Value: "2"}))
		model, shown := map[string]*modelToken{}, map[SecretDigest]bool{}
		for n := range rapid.IntRange(1, 40).Draw(t, "entries") {
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
			known := model[name]
			secret := frame.SecretDigest{byte(n + 1)}
			shown[SecretDigest(secret)] = true
			switch rapid.IntRange(0, 4).Draw(t, "action") {
			case 0, 1:
				id := fmt.Sprint(rapid.IntRange(0, 4).Draw(t, "id"))
				taken := false
				for _, other := range model {
					taken = taken || other.id == id
				}
				ttl := time.Duration(rapid.IntRange(0, 2).Draw(t, "hours")) * time.Hour
				got := apply(do(frame.TokenCreate{Name: name, ID: id, Secret: secret, Roles: []string{"monitor"}, TTL: ttl,
					By: "root"}))
				switch {
				case known != nil || taken:
					wantRefusal(t, got, Exists)
					counts["taken"]++
				case len(model) == 2:
					wantRefusal(t, got, Overloaded)
					counts["full"]++
				default:
					made := &modelToken{id: id, current: SecretDigest(secret),
						secrets: map[SecretDigest]time.Time{SecretDigest(secret): {}}}
					if ttl != 0 {
						made.expires = now.Add(ttl)
					}
					model[name] = made
					counts["created"]++
				}
			case 2, 3:
				grace := time.Duration(rapid.IntRange(0, 2).Draw(t, "grace")) * time.Hour
				got := apply(do(frame.TokenRotate{Name: name, Secret: secret, Grace: grace}))
				if known == nil {
					wantRefusal(t, got, NotFound)
					break
				}
				// The secret before has its grace, and those before that are over.
				known.secrets = map[SecretDigest]time.Time{SecretDigest(secret): {}, known.current: now.Add(grace)}
				known.current = SecretDigest(secret)
				counts["rotated"]++
			default:
				got := apply(do(frame.TokenRevoke{Name: name}))
				if known == nil {
					wantRefusal(t, got, NotFound)
					break
				}
				delete(model, name)
				counts["revoked"]++
			}

			tokens := troubled.Tokens()
			if tokens.Len() != len(model) {
				t.Fatalf("%d tokens, want %d", tokens.Len(), len(model))
			}
			at := now.Add(time.Duration(rapid.IntRange(0, 180).Draw(t, "later")) * time.Minute)
			for name, want := range model {
				got := tokens.ByName(name)
				if got == nil || got != tokens.ByID(want.id) || got.Name != name {
					t.Fatalf("%+v under %q and id %q", got, name, want.id)
				}
				if expired := !want.expires.IsZero() && !at.Before(want.expires); got.Expired(at.UnixNano()) != expired {
					t.Fatalf("%+v at %s: expired is not %t", got, at, expired)
				}
				for secret := range shown {
					until, has := want.secrets[secret]
					good := has && (until.IsZero() || at.Before(until))
					if got.Proves(secret, at.UnixNano()) != good {
						t.Fatalf("%+v at %s: %x is not %t", got, at, secret[0], good)
					}
					if has && !good {
						counts["after its grace"]++
					}
				}
			}
		}
		if a, b := dump(t, plain), dump(t, troubled); !bytes.Equal(a, b) {
			t.Fatalf("dumps differ:\n%s\n%s", a, b)
		}
		// Whoever has done something is in the log, once for each.
		var recorded []string
		for _, e := range all(t, troubled) {
			if e.Type == event.AdminAction {
				var p struct{ Principal, Action, Outcome string }
				if err := json.Unmarshal(e.Payload, &p); err != nil {
					t.Fatal(err)
				}
				recorded = append(recorded, p.Principal+" "+p.Action+" "+p.Outcome)
			}
		}
		if !slices.Equal(recorded, acts) {
			t.Fatalf("recorded %q, want %q", recorded, acts)
		}
	})
	for _, kind := range []string{"act done", "act refused", "created", "taken", "full", "rotated", "revoked",
		"after its grace"} {
		if counts[kind] == 0 && !testing.Short() { // which goes through few
			t.Errorf("no history has %s", kind)
		}
	}
}

// What readers have of the tokens does not change with the next entry, and says when there is a newer one.
func TestReadersKeepTheTokensOfTheirEntry(t *testing.T) {
	m := open(t, vfs.NewMem())
	defer m.Close()
	applyTo(t, m, entryOf(1, 1, "n1", epoch,
		do(frame.TermStart{ClusterID: "c", Members: []frame.Member{{ID: "n1", FeatureLevel: FeatureLevel}}}),
		do(frame.TokenCreate{Name: "a", ID: "1", Roles: []string{"monitor"}, By: "root"})))
	before := m.Tokens()
	applyTo(t, m, entryOf(2, 1, "n1", epoch, do(frame.SettingSet{Key: "tokens.max", Value: "2"})))
	if m.Tokens() != before {
		t.Error("an entry without tokens has replaced them")
	}
	applyTo(t, m, entryOf(3, 1, "n1", epoch, do(frame.TokenRevoke{Name: "a"})))
	select {
	case <-before.Replaced():
	default:
		t.Error("nothing says that a token was revoked")
	}
	if before.ByName("a") == nil || m.Tokens().ByName("a") != nil {
		t.Error("a revocation has changed what a reader has, or nothing")
	}
}

// How long it takes to compare a secret must not depend on how much of it is right. A clock cannot show that reliably,
// so the code is looked at: what Proves compares with the secrets, it compares by package subtle.
func TestSecretsAreComparedInConstantTime(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "tokens.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	constant, found := 0, false
	for _, d := range file.Decls {
		f, is := d.(*ast.FuncDecl)
		if !is || f.Name.Name != "Proves" {
			continue
		}
		found = true
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if call, is := n.Fun.(*ast.SelectorExpr); is && call.Sel.Name == "ConstantTimeCompare" {
					constant++
				}
			case *ast.BinaryExpr:
				if name, is := n.X.(*ast.Ident); is && name.Name == "digest" {
					t.Errorf("Proves compares digests by %s", n.Op)
				}
			}
			return true
		})
	}
	if !found || constant != 2 {
		t.Errorf("Proves is there: %t, and compares %d secrets in constant time", found, constant)
	}
}
