package event

// Coordinator is one entry of the platform's coordinator registry, as its audit lists it.
type Coordinator struct {
	Name             string `json:"name"`
	Class            string `json:"class"` // "" if none
	File             string `json:"file"`
	Layer            int    `json:"layer"` // 1 is brought up first
	LayerName        string `json:"layer_name"`
	Pattern          string `json:"pattern"`  // WIRE, IMPORT, GET, DELEGATE or SKIP
	Delegate         string `json:"delegate"` // of Pattern DELEGATE: who does its work
	Replacement      string `json:"replacement"`
	Declared         string `json:"declared"`       // the subscription cell as written
	DeclaredCount    *int   `json:"declared_count"` // nil if the cell has no number
	ListedCount      *int   `json:"listed_count"`
	SubscribedEvents []Type `json:"subscribed_events"` // nil if the audit does not itemise them
	Status           string `json:"status"`
}

// Flow is one chain of events, documented by the platform or registered.
type Flow struct {
	Name      string     `json:"name"`               // unique in a catalogue
	Status    string     `json:"status,omitempty"`   // canonical or registered
	Document  string     `json:"document,omitempty"` // where it is documented
	Edges     [][2]Type  `json:"edges"`              // cause, effect
	EdgeNotes []FlowNote `json:"edge_notes"`         // each qualifies one of Edges
	// RunBy has the payload fields that together name the run of an event; see RunOf.
	RunBy          []string        `json:"run_by,omitempty"`
	ComponentEdges []ComponentEdge `json:"component_edges,omitempty"`
}

// FlowNote qualifies one edge of a Flow.
type FlowNote struct {
	Edge      int    `json:"edge"` // index into Edges
	Condition string `json:"condition,omitempty"`
	ToState   string `json:"to_state,omitempty"`
}

// ComponentEdge is an edge drawn between components; Event is "" if the drawing names none.
type ComponentEdge struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Event Type   `json:"event"`
}

// Wiring is what the platform's documents say about who emits and who subscribes.
type Wiring struct {
	OrphanEvents          []OrphanEvent       `json:"orphan_events"`
	DeadSubscriptions     []DeadSubscription  `json:"dead_subscriptions"`
	RunbookWiring         []RunbookWire       `json:"runbook_wiring"`
	CriticalSubscriptions CriticalGroup       `json:"critical_subscriptions"`
	ArchitectureWiring    []ArchitectureWire  `json:"architecture_wiring"`
	HandlerIndex          []HandlerIndexEntry `json:"handler_index"`
	ComponentNames        map[string]string   `json:"component_names"` // class spelling to coordinator or module
}

// OrphanEvent is an event that is emitted and that nobody subscribes to.
type OrphanEvent struct {
	Event    Type   `json:"event"`
	Emitter  string `json:"emitter"`
	Severity string `json:"severity"` // low, medium, high or fixed
	Note     string `json:"note"`
}

// DeadSubscription is a subscription to an event that nobody emits.
type DeadSubscription struct {
	Event      Type   `json:"event"`
	Subscriber string `json:"subscriber"`
	Severity   string `json:"severity"`
}

// RunbookWire is one row of the runbook's wiring tables.
type RunbookWire struct {
	Section     string   `json:"section"`
	Event       Type     `json:"event"`
	Emitter     string   `json:"emitter"`
	Subscribers []string `json:"subscribers"`
	Purpose     string   `json:"purpose"`
}

// CriticalGroup names events whose subscriptions must not be missing.
type CriticalGroup struct {
	Group  string `json:"group"`
	Events []Type `json:"events"`
}

// ArchitectureWire is one row of the architecture document's event table.
type ArchitectureWire struct {
	Event     Type     `json:"event"`
	Producer  string   `json:"producer"`
	Consumers []string `json:"consumers"`
}

// HandlerIndexEntry is what one module handles.
type HandlerIndexEntry struct {
	Module    string   `json:"module"`
	Events    []Type   `json:"events"`
	Patterns  []string `json:"patterns"`
	AsWritten string   `json:"as_written"`
	Purpose   string   `json:"purpose"`
}
