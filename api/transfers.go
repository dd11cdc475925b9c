package api

import "time"

// Transfer is what the log has of a copy of something to a host: a data sync, the distribution of a model, or games.
type Transfer struct {
	Transfer string `json:"transfer"` // "<offset of its first event, hex>.<index of the host in that event>"
	ID       string `json:"id,omitempty"`
	Kind     string `json:"kind"`           // data, model or games
	Name     string `json:"name,omitempty"` // of the dataset or model; "" if no event names it
	Host     string `json:"host,omitempty"` // where it goes; "" if no event names it
	From     string `json:"from,omitempty"`
	Version  string `json:"version,omitempty"`
	State    string `json:"state"` // requested, running, completed, failed or superseded

	Requested *TransferStep `json:"requested,omitempty"`
	Started   *TransferStep `json:"started,omitempty"`
	Stalled   *TransferStep `json:"stalled,omitempty"` // since the last step
	Ended     *TransferStep `json:"ended,omitempty"`

	Due     time.Time `json:"due,omitzero"`      // when it is overdue, unless something happens; zero once it ended
	Overdue bool      `json:"overdue,omitempty"` // at the time of the answer

	Bytes          uint64 `json:"bytes,omitempty"`
	Files          uint64 `json:"files,omitempty"`
	Checked        string `json:"checked,omitempty"` // "verified", "damaged", or "" if no event says
	Retries        uint64 `json:"retries,omitempty"`
	Repeats        uint64 `json:"repeats,omitempty"`        // events that repeated known facts
	Contradictions uint64 `json:"contradictions,omitempty"` // events that contradict the outcome
	Error          string `json:"error,omitempty"`          // the last one
	LastOffset     uint64 `json:"last_offset"`              // of the last event about it
}

// TransferStep is the last event that brought a transfer to a step.
type TransferStep struct {
	Offset uint64    `json:"offset"`
	At     time.Time `json:"at"` // appended
}

// TransferPage is a page of transfers: the oldest first; of overdue ones of all hosts, those that were due first.
type TransferPage struct {
	Transfers []Transfer `json:"transfers"`
	// Next is the parameter "after" for the next page; "" on the last. A page may be short.
	Next   string `json:"next,omitempty"`
	Offset uint64 `json:"offset"` // up to which the log is in the answer
	// Incomplete says that events were trimmed before the answering node could read them.
	Incomplete string        `json:"incomplete,omitempty"`
	Time       time.Time     `json:"time"` // by which overdue is judged: the later of the node's clock and replicated time
	Totals     TransferTally `json:"totals"`
}

// TransferTally counts what the view of transfers has read.
type TransferTally struct {
	Events         uint64 `json:"events"`
	Hosts          uint64 `json:"hosts"`
	Unnamed        uint64 `json:"unnamed"`        // events without a host, a name and an id
	Unmatched      uint64 `json:"unmatched"`      // events about a transfer or a copy that is not known
	WrongType      uint64 `json:"wrong_type"`     // fields of another JSON type than a transfer can use
	TooLong        uint64 `json:"too_long"`       // names beyond their limit, or with control characters
	OverLimit      uint64 `json:"over_limit"`     // hosts, transfers and copies beyond what is kept
	Repeats        uint64 `json:"repeats"`        // as in Transfer
	Contradictions uint64 `json:"contradictions"` // as in Transfer
}

// Copy is a dataset or model on a host, by the last event that says so.
type Copy struct {
	Name     string    `json:"name"`
	Kind     string    `json:"kind"` // data, model or games
	Host     string    `json:"host"`
	Version  string    `json:"version,omitempty"`
	From     string    `json:"from,omitempty"`
	Bytes    uint64    `json:"bytes,omitempty"`
	Files    uint64    `json:"files,omitempty"`
	Checked  string    `json:"checked,omitempty"` // "verified", "damaged", or "" if no event says
	Since    time.Time `json:"since"`             // when this version came
	At       time.Time `json:"at"`                // of the event
	Offset   uint64    `json:"offset"`            // of the event
	Transfer string    `json:"transfer,omitempty"`
	HostGone bool      `json:"host_gone,omitempty"` // the host was terminated since
}

// CopyPage is a page of copies, by name, kind and host.
type CopyPage struct {
	Copies []Copy `json:"copies"`
	Next   string `json:"next,omitempty"` // parameter "after" for the next page; "" on the last
	Offset uint64 `json:"offset"`         // up to which the log is in the answer
	// Incomplete is as in TransferPage.
	Incomplete string `json:"incomplete,omitempty"`
}
