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

// catalogue/ is the platform's; cluster.json is what the cluster itself emits: types beside
// the platform's, and payload fields beside those that the platform documents. samples.json is payload
// fields that the lists of the platform's documents lack: those of the documents' own samples (source:
// which document's), and those that package router and sinks send with the platform's types (source: router).
//
//go:embed catalogue/*.json cluster.json samples.json
var catalogueFiles embed.FS

// builtin parses the embedded files on first use; it panics where they are broken, which a test rules out.
var builtin = sync.OnceValue(loadBuiltin)

// Via tells which spelling Resolve recognised.
type Via string

// The spellings of a type.
const (
	ViaName    Via = "name"    // TRAINING_COMPLETED, in any case
	ViaValue   Via = "value"   // training_completed; sync_completed for DATA_SYNC_COMPLETED
	ViaAlias   Via = "alias"   // TRAINING_COMPLETE
	ViaTopic   Via = "topic"   // training.completed
	ViaUnknown Via = "unknown" // not in the catalogue
)

// Resolved is what a spelling stands for.
type Resolved struct {
	Type       Type
	Value      string
	Definition *Definition // nil if unknown
	Via        Via
	Renamed    bool // an alias that reads like another type than the one it is listed for
}

// Catalogue is the set of known types. It is immutable and safe for concurrent use.
type Catalogue struct {
	types     map[Type]*Definition
	sorted    []*Definition
	own       []*Definition       // of StatusCluster, as in cluster.json; in types too, and not in sorted
	spellings map[string]spelling // by folded name, value and alias
	aliases   map[string]Type
	mentioned []*Definition

	coordinators []Coordinator
	flows        []Flow
	wiring       *Wiring
}

type spelling struct {
	def     *Definition
	via     Via
	renamed bool
}

// Builtin is the catalogue the program came with: the platform's 254 types and 7 aliases, and those few that the
// cluster adds.
func Builtin() *Catalogue { return builtin() }

func loadBuiltin() *Catalogue {
	c := &Catalogue{types: map[Type]*Definition{}, spellings: map[string]spelling{}, aliases: map[string]Type{}}
	var defs []*Definition
	mustLoad("catalogue/events", &defs)
	mustLoad("catalogue/aliases", &c.aliases)
	mustLoad("catalogue/coordinators", &c.coordinators)
	mustLoad("catalogue/flows", &c.flows)
	mustLoad("catalogue/wiring", &c.wiring)
	for _, d := range defs {
		if d.Status == StatusCanonical {
			c.add(d)
		} else {
			c.mentioned = append(c.mentioned, d)
		}
	}
	c.addOwn()
	for alias, target := range c.aliases {
		c.addAlias(alias, c.types[target])
	}
	c.sort()
	return c
}

// addOwn adds what the cluster emits. A field of which the platform's documents give no type gets the one that the
// cluster writes.
func (c *Catalogue) addOwn() {
	var defs, samples []*Definition
	mustLoad("cluster", &defs)
	mustLoad("samples", &samples)
	for _, d := range append(defs, samples...) {
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
			old.index()
		}
	}
}

func mustLoad(name string, v any) {
	data, err := catalogueFiles.ReadFile(name + ".json")
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		panic("event: embedded catalogue " + name + ": " + err.Error())
	}
}

func (c *Catalogue) add(d *Definition) {
	d.index()
	c.types[d.Name] = d
	c.spellings[foldName(d.Value)] = spelling{def: d, via: ViaValue}
	c.spellings[string(d.Name)] = spelling{def: d, via: ViaName}
}

// addAlias adds a former name. PROMOTION_COMPLETE is listed for MODEL_PROMOTED although there is a PROMOTION_COMPLETED:
// such an alias changes the meaning of what was sent.
func (c *Catalogue) addAlias(alias string, target *Definition) {
	namesake, ok := c.types[Type(alias+"D")]
	c.spellings[alias] = spelling{def: target, via: ViaAlias, renamed: ok && namesake != target}
}

func (c *Catalogue) sort() {
	c.sorted = slices.SortedFunc(maps.Values(c.types), func(a, b *Definition) int { return cmp.Compare(a.Name, b.Name) })
	c.sorted = slices.DeleteFunc(c.sorted, func(d *Definition) bool { return d.Status == StatusCluster })
}

// Resolve finds the type a name, value, alias or dotted topic stands for, in any case, with - as good as _. It is
// false for an unknown one, and Resolved then holds what it would be stored as. It checks no characters.
func (c *Catalogue) Resolve(name string) (Resolved, bool) {
	if d, ok := c.types[Type(name)]; ok {
		return Resolved{Type: d.Name, Value: d.Value, Definition: d, Via: ViaName}, true
	}
	var buf [128]byte // longer names only cost an allocation
	folded := appendFolded(buf[:0], name)
	s, ok := c.spellings[string(folded)]
	if !ok {
		return Resolved{Type: Type(folded), Value: strings.ToLower(string(folded)), Via: ViaUnknown}, false
	}
	return Resolved{Type: s.def.Name, Value: s.def.Value, Definition: s.def, Via: s.spelt(name), Renamed: s.renamed}, true
}

func (s spelling) spelt(name string) Via {
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

// Definition finds a canonical name.
func (c *Catalogue) Definition(t Type) (*Definition, bool) {
	d, ok := c.types[t]
	return d, ok
}

// Definitions are the platform's types and the registered ones, sorted by name. The caller must not change them.
func (c *Catalogue) Definitions() []*Definition { return c.sorted }

// Own are the types that the cluster emits beside those of the platform. Resolve and Definition know
// them too. The caller must not change them.
func (c *Catalogue) Own() []*Definition { return c.own }

// Mentioned are names the platform's documents use without defining them: aliases, placeholders, undocumented ones.
func (c *Catalogue) Mentioned() []*Definition { return c.mentioned }

// Aliases maps each former name to its canonical one.
func (c *Catalogue) Aliases() map[string]Type { return maps.Clone(c.aliases) }

// Categories are the categories in use, sorted.
func (c *Catalogue) Categories() []string {
	set := map[string]bool{}
	for _, d := range c.sorted {
		set[d.Category] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// Coordinators are the platform's 27 registry entries. The caller must not change them.
func (c *Catalogue) Coordinators() []Coordinator { return c.coordinators }

// Flows are the documented event flows. The caller must not change them.
func (c *Catalogue) Flows() []Flow { return c.flows }

// Wiring is what the platform's documents say of emitters and subscribers. The caller must not change it.
func (c *Catalogue) Wiring() *Wiring { return c.wiring }

// IsReserved reports whether only the cluster emits the type. NODE_*, P2P_*, PARTITION_*, HANDLER_* and DAEMON_*
// describe training hosts and are the clients'.
func IsReserved(t Type) bool {
	switch t {
	case DLQStaleEvents, CatchupAtRisk, ChainOverdue:
		return true
	}
	for _, prefix := range [...]string{"LEADER_", "QUORUM_", "VOTER_", "SPLIT_BRAIN_", "CURSOR_", "DLQ_EVENTS_"} {
		if strings.HasPrefix(string(t), prefix) {
			return true
		}
	}
	return false
}

// Types the cluster emits beside the reserved ones of the platform's catalogue.
const (
	CursorStalled   Type = "CURSOR_STALLED"
	CursorRecovered Type = "CURSOR_RECOVERED"
	CatchupAtRisk   Type = "CATCHUP_AT_RISK"
	ChainOverdue    Type = "CHAIN_OVERDUE"
	// QuorumOutageView is one voter's view of an outage that is told already, or
	// of a time in which it was cut off from a cluster that went on.
	QuorumOutageView Type = "QUORUM_OUTAGE_VIEW"
)
