package event

import (
	"cmp"
	"embed"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
)

// catalogueFiles has the platform's catalogue and what was added to it. cluster.json lists what the cluster emits:
// types that the platform does not have, and payload fields that the platform does not document. samples.json lists
// payload fields that are missing from the platform's lists: fields in the samples of its documents (source: the
// document), and fields that packages router and sinks (source: router) and ringlog run (source: run) send with the
// platform's types. undocumented.json has the category of each type that the platform uses and its lists lack: the
// architecture document draws GAME_BATCH_READY and EVALUATION_RESULT, and the audit names the code that emits the other
// four. They have no documented payload. dedup.json has the types that are not deduplicated unless the cluster says
// otherwise, with the reasons.
//
//go:embed catalogue/*.json cluster.json samples.json undocumented.json dedup.json
var catalogueFiles embed.FS

// builtin parses the embedded files on first use. It panics if they are broken, which a test rules out.
var builtin = sync.OnceValue(loadBuiltin)

// Via is the kind of spelling that Resolve recognised.
type Via string

// The spellings of a type.
const (
	ViaName    Via = "name"    // TRAINING_COMPLETED, in any case
	ViaValue   Via = "value"   // training_completed; sync_completed for DATA_SYNC_COMPLETED
	ViaAlias   Via = "alias"   // TRAINING_COMPLETE
	ViaTopic   Via = "topic"   // training.completed
	ViaUnknown Via = "unknown" // not in the catalogue
)

// Resolved is the type that a spelling means.
type Resolved struct {
	Type       Type
	Value      string
	Definition *Definition // nil if unknown
	Via        Via
	Renamed    bool // an alias that reads like the name of another type than the one it is listed for
}

// Catalogue is the set of known types. It is immutable and safe for concurrent use.
type Catalogue struct {
	// by canonical name:
	types     map[Type]*Definition // all of sorted and own
	sorted    []*Definition        // without own
	own       []*Definition        // of StatusCluster, in the order of cluster.json
	spellings map[string]spelling  // by folded name, value and alias
	aliases   map[string]Type
	// never resolved:
	mentioned []*Definition // names that are not types; see Mentioned

	// as the documents have them, for the audit:
	coordinators []Coordinator
	flows        []Flow
	wiring       *Wiring
}

// spelling is one way to write a type.
// Two spellings of one type share its definition.
type spelling struct {
	def     *Definition
	via     Via
	renamed bool
}

// Builtin returns the catalogue of this build: the platform's 260 types and 7 aliases, and the few types that the
// cluster adds.
func Builtin() *Catalogue { return builtin() }

// loadBuiltin parses the embedded files and enters types, the cluster's own types and aliases, in that order.
func loadBuiltin() *Catalogue {
	// The maps are filled here and never changed afterwards: With and WithFlows work on copies.
	c := &Catalogue{types: map[Type]*Definition{}, spellings: map[string]spelling{}, aliases: map[string]Type{}}
	var defs []*Definition
	mustLoad("catalogue/events", &defs)
	mustLoad("catalogue/aliases", &c.aliases)
	mustLoad("catalogue/coordinators", &c.coordinators)
	mustLoad("catalogue/flows", &c.flows)
	for i := range c.flows {
		c.flows[i].Status = StatusCanonical
	}
	mustLoad("catalogue/wiring", &c.wiring)
	// Aliases and placeholders are no types: they are names that the documents mention.
	categories := map[Type]string{}
	mustLoad("undocumented", &categories)
	for _, d := range defs {
		switch d.Status {
		case StatusCanonical:
			c.add(d)
		case StatusUndocumented:
			// The value that events of the type were stored with while it was unknown.
			d.Value, d.Category = strings.ToLower(string(d.Name)), categories[d.Name]
			c.add(d)
		default:
			c.mentioned = append(c.mentioned, d)
		}
	}
	// Aliases last, since they look at all types.
	c.addOwn()
	// The order does not matter: no two aliases are alike.
	for alias, target := range c.aliases {
		c.addAlias(alias, c.types[target])
	}
	c.sort()
	return c
}

// addOwn adds the types that the cluster emits, and the payload fields missing from the platform's definitions. A
// field without a type in the platform's documents gets the type that the cluster writes.
func (c *Catalogue) addOwn() {
	var own, samples []*ownDefinition
	mustLoad("cluster", &own)
	mustLoad("samples", &samples)
	// A cluster type is added whole; any other entry only adds fields to a type of the platform.
	for _, o := range append(own, samples...) {
		d := o.definition()
		old, ok := c.types[d.Name]
		switch {
		case d.Status == StatusCluster:
			c.own = append(c.own, d)
			c.add(d)
		case !ok:
			panic("event: fields are added to " + string(d.Name) + ", which the catalogue does not have")
		default:
			if err := old.merge(d.Payload); err != nil {
				panic("event: added fields: " + string(d.Name) + ": " + err.Error())
			}
			// It was indexed by add, without the fields that are new.
			old.index()
			if d.when != "" {
				old.when, old.meanings = d.when, d.meanings
			}
		}
	}
}

// ownDefinition is an entry of cluster.json or samples.json. What it describes is no part of a Definition in JSON:
// types are registered in that form, by the keys that every build knows.
type ownDefinition struct {
	Definition
	Description string `json:"description"`
	Payload     []struct {
		Field
		Description string `json:"description"`
	} `json:"payload"`
}

// definition returns the entry as a definition.
func (o *ownDefinition) definition() *Definition {
	d := &o.Definition
	d.when, d.meanings = o.Description, map[string]string{}
	for _, f := range o.Payload {
		// Only Field is a part of the definition: the description shows in its JSON Schema alone.
		d.Payload = append(d.Payload, f.Field)
		if f.Description != "" {
			d.meanings[f.Name] = f.Description
		}
	}
	return d
}

// mustLoad parses an embedded file.
// The files are part of the program, so an error is a bug of this build.
func mustLoad(name string, v any) {
	data, err := catalogueFiles.ReadFile(name + ".json")
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		panic("event: embedded catalogue " + name + ": " + err.Error())
	}
}

// add enters a type under its value and its name. The name comes last, so that it wins where both are spelled alike.
func (c *Catalogue) add(d *Definition) {
	d.index()
	c.types[d.Name] = d
	// The key of a value is folded, as every spelling is before it is looked up.
	c.spellings[foldName(d.Value)] = spelling{def: d, via: ViaValue}
	c.spellings[string(d.Name)] = spelling{def: d, via: ViaName}
}

// addAlias adds a former name. An alias that reads like another type counts as renamed, since it changes the
// meaning of what was sent: PROMOTION_COMPLETE is listed for MODEL_PROMOTED although there is a
// PROMOTION_COMPLETED.
func (c *Catalogue) addAlias(alias string, target *Definition) {
	// Names end in _COMPLETED where former ones end in _COMPLETE.
	namesake, ok := c.types[Type(alias+"D")]
	c.spellings[alias] = spelling{def: target, via: ViaAlias, renamed: ok && namesake != target}
}

// sort rebuilds the sorted list, from which the cluster's own types are left out.
func (c *Catalogue) sort() {
	c.sorted = slices.SortedFunc(maps.Values(c.types), func(a, b *Definition) int {
		return cmp.Compare(a.Name, b.Name)
	})
	c.sorted = slices.DeleteFunc(c.sorted, func(d *Definition) bool { return d.Status == StatusCluster })
}

// Resolve returns the type that a name, value, alias or dotted topic means, in any case, with - for _ allowed. It
// returns false for an unknown type, with the name and value that it would be stored with. It checks no characters.
func (c *Catalogue) Resolve(name string) (Resolved, bool) {
	// The common case: the canonical name, which needs no folding.
	if d, ok := c.types[Type(name)]; ok {
		return Resolved{Type: d.Name, Value: d.Value, Definition: d, Via: ViaName}, true
	}
	var buf [128]byte // a longer name costs an allocation, nothing else
	folded := appendFolded(buf[:0], name)
	// The conversion in the lookup does not allocate.
	s, ok := c.spellings[string(folded)]
	if !ok {
		return Resolved{Type: Type(folded), Value: strings.ToLower(string(folded)), Via: ViaUnknown}, false
	}
	return Resolved{
		Type: s.def.Name, Value: s.def.Value, Definition: s.def, Via: s.spelt(name), Renamed: s.renamed,
	}, true
}

// spelt returns the kind of spelling that name is.
func (s spelling) spelt(name string) Via {
	// An exact value counts as that, even where it reads like a topic.
	switch {
	case name == s.def.Value:
		return ViaValue
	case s.via == ViaAlias:
		return ViaAlias
	case strings.Contains(name, "."):
		return ViaTopic
	}
	return s.via
}

// Definition returns the definition of a canonical name.
func (c *Catalogue) Definition(t Type) (*Definition, bool) {
	d, ok := c.types[t]
	return d, ok
}

// Definitions returns the platform's types and the registered ones, sorted by name. The caller must not change them.
func (c *Catalogue) Definitions() []*Definition { return c.sorted }

// Own returns the types that the cluster emits in addition to the platform's. Resolve and Definition find them too.
// The caller must not change them.
func (c *Catalogue) Own() []*Definition { return c.own }

// Mentioned returns the names in the platform's documents that are no types: aliases and placeholders.
func (c *Catalogue) Mentioned() []*Definition { return c.mentioned }

// Aliases maps each former name to its canonical one.
func (c *Catalogue) Aliases() map[string]Type { return maps.Clone(c.aliases) }

// Categories returns the categories in use, sorted.
func (c *Catalogue) Categories() []string {
	set := map[string]bool{}
	// A type that the cluster adds has a category of the platform's.
	for _, d := range c.sorted {
		set[d.Category] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// Coordinators returns the platform's 27 registry entries. The caller must not change them.
func (c *Catalogue) Coordinators() []Coordinator { return c.coordinators }

// Flows returns the documented event flows, then the registered ones by name. The caller must not change them.
func (c *Catalogue) Flows() []Flow { return c.flows }

// Wiring returns what the platform's documents say about emitters and subscribers. The caller must not change it.
func (c *Catalogue) Wiring() *Wiring { return c.wiring }

// IsReserved reports whether only the cluster emits the type. NODE_*, P2P_*, PARTITION_*, HANDLER_* and DAEMON_*
// are not reserved: they describe training hosts, and clients emit them.
func IsReserved(t Type) bool {
	switch t {
	case DLQStaleEvents, CatchupAtRisk, ChainOverdue:
		return true
	}

	// These families are reserved as a whole.
	for _, prefix := range [...]string{"LEADER_", "QUORUM_", "VOTER_", "SPLIT_BRAIN_", "CURSOR_", "DLQ_EVENTS_", "ROLE_",
		"ALLOCATION_", "ADMIN_"} {
		if strings.HasPrefix(string(t), prefix) {
			return true
		}
	}
	return false
}

// Types that the cluster emits in addition to the reserved ones of the platform's catalogue.
const (
	CursorStalled   Type = "CURSOR_STALLED"
	CursorRecovered Type = "CURSOR_RECOVERED"
	CatchupAtRisk   Type = "CATCHUP_AT_RISK"
	ChainOverdue    Type = "CHAIN_OVERDUE"
	DLQEventsStored Type = "DLQ_EVENTS_STORED"
	RoleAcquired    Type = "ROLE_ACQUIRED"
	RoleReleased    Type = "ROLE_RELEASED"
	RoleLost        Type = "ROLE_LOST"

	AllocationGranted  Type = "ALLOCATION_GRANTED"
	AllocationReleased Type = "ALLOCATION_RELEASED"
	AllocationLost     Type = "ALLOCATION_LOST"

	AdminAction Type = "ADMIN_ACTION"

	// QuorumOutageView is one voter's view of an outage that was reported already, or of a time in which the voter was
	// cut off from a cluster that kept its quorum.
	QuorumOutageView Type = "QUORUM_OUTAGE_VIEW"
)
