package fsm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/human"
)

// Settings are the replicated settings, in the form decisions need them. A zero
// retention or hold bound means that there is none.
type Settings struct {
	// Publishing: what is a duplicate, and how long retries are answered.
	DedupWindow  time.Duration
	DedupMaxKeys uint64
	// The keys of all dedup policies of types together.
	DedupPolicyMaxKeys uint64
	ProducerTTL        time.Duration
	ProducerMax        uint64
	ProducerBytes      uint64
	// What the log keeps, and how much more of it for cursors.
	RetentionAge     time.Duration
	RetentionBytes   uint64
	RetentionEvents  uint64
	CursorHoldEvents uint64
	CursorHoldBytes  uint64
	CursorHoldFor    time.Duration
	// Cursors: how long and how many there may be.
	CursorIdle       time.Duration
	CursorMax        uint64
	CursorBytes      uint64
	CursorStall      time.Duration // 0: none is reported as stalled
	ValidationStrict bool

	// Voters: what is reported of them, and what autopilot does about them.
	HealthHoldDown         time.Duration
	AutopilotCleanup       bool
	AutopilotDeadAfter     time.Duration
	AutopilotMinVoters     uint64
	AutopilotStabilization time.Duration
	AutopilotMaxTrailing   uint64
	AutopilotLastContact   time.Duration

	// Dead letters. An age of 0 is none.
	LettersBytes uint64
	LettersAge   time.Duration
	LettersStale time.Duration

	// What a group takes that does not say otherwise.
	GroupAckWait    time.Duration
	GroupMaxDeliver uint64 // 0: without bound
	GroupMaxPending uint64
	GroupSession    time.Duration

	LagLimits      []LagLimit
	ChainDeadlines []string // FLOW:CAUSE->EFFECT=DURATION

	// Registered clients.
	ClientsMax   uint64
	ClientsBytes uint64
	RolesMax     uint64
	RolesBytes   uint64

	// Resources, and allocations of them.
	AllocationsMax  uint64
	AllocationsRise time.Duration // 0: none rises
	ResourcesMax    uint64
	// Events that wait for their time.
	ScheduleMax   uint64
	ScheduleBytes uint64
	ViewsMax      uint64
	TokensMax     uint64

	AuthBindSource  bool // whether events name the token that published them as their source
	AuthOpenMetrics bool // whether /metrics needs no token

	RequestsPerSecond uint64 // of one token at one node; 0 is no bound

	// The gate of incoming events.
	ReservedForeign bool
	Limits          event.Limits
}

// Setting is one setting as people see it.
type Setting struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Default string `json:"default"`
	Doc     string `json:"doc"`
}

// definition describes a setting.
//
// Key, level, fallback and rule take part in decisions: nodes of two builds that differ in one
// of them decide differently from the first entry on. A change needs a feature level.
type definition struct {
	key      string
	level    uint32 // the feature level from which on it may be changed
	fallback string // its value while nobody has changed it
	doc      string // for people; it may change
	rule     rule
}

// rule says which values a setting takes, for the test that freezes them, and stores one.
type rule struct {
	values string                                // for people and for the test
	put    func(s *Settings, value string) error // an error leaves the settings as they are
}

// definitions lists every setting, sorted by key. lookup relies on the order.
func definitions() []definition {
	// The columns are key, level, fallback, doc and rule.
	return []definition{
		// Allocations of resources.
		{"allocations.max", frame.LevelAllocations, "20000",
			"how many allocations and requests that wait for one there may be",
			number(1, 1_000_000, func(s *Settings) *uint64 { return &s.AllocationsMax })},
		{"allocations.resources_max", frame.LevelAllocations, "10000",
			"how many resources may be declared",
			number(1, 1_000_000, func(s *Settings) *uint64 { return &s.ResourcesMax })},
		{"allocations.rise_after", frame.LevelAllocations, "1m",
			"how long a request for an allocation waits in a priority before it rises to the next one; 0 is never",
			duration(0, 24*time.Hour, func(s *Settings) *time.Duration { return &s.AllocationsRise })},
		{"auth.bind_source", frame.LevelTokens, "false",
			"whether a token publishes with its own name as the source, or with one that begins with it and a slash",
			choose(func(s *Settings) *bool { return &s.AuthBindSource }, "false", "true")},
		{"auth.open_metrics", frame.LevelTokens, "false",
			"whether GET /metrics needs no token",
			choose(func(s *Settings) *bool { return &s.AuthOpenMetrics }, "false", "true")},
		// Voters: what autopilot does about them.
		{"autopilot.cleanup_dead_servers", frame.LevelHealth, "false",
			"whether voters that have been unreachable for autopilot.dead_after are removed",
			choose(func(s *Settings) *bool { return &s.AutopilotCleanup }, "false", "true")},
		{"autopilot.dead_after", frame.LevelHealth, "1h",
			"how long a voter must be unreachable to count as dead",
			duration(time.Second, year, func(s *Settings) *time.Duration { return &s.AutopilotDeadAfter })},
		{"autopilot.last_contact_threshold", frame.LevelHealth, "3s",
			"how long ago the last answer of a healthy member may be",
			duration(time.Second, time.Hour, func(s *Settings) *time.Duration { return &s.AutopilotLastContact })},
		{"autopilot.max_trailing_entries", frame.LevelHealth, "1000",
			"how many entries a healthy member may lag by",
			number(1, 1<<40, func(s *Settings) *uint64 { return &s.AutopilotMaxTrailing })},
		{"autopilot.min_voters", frame.LevelHealth, "3",
			"the number of voters below which no dead one is removed",
			number(1, 1000, func(s *Settings) *uint64 { return &s.AutopilotMinVoters })},
		{"autopilot.stabilization_time", frame.LevelHealth, "10s",
			"how long a member must be healthy to get its vote",
			duration(0, 24*time.Hour, func(s *Settings) *time.Duration { return &s.AutopilotStabilization })},
		// Backpressure of cursors and groups.
		{"backpressure.lag", frame.LevelLag, "",
			"at which lag in events BACKPRESSURE_ACTIVATED reports a cursor or group, and at which lower one " +
				"BACKPRESSURE_RELEASED does: NAME=HIGH/LOW or START*=HIGH/LOW, comma separated; " +
				"the first that matches counts",
			rule{"NAME=HIGH/LOW or START*=HIGH/LOW, comma separated", lagLimits}},
		// What the gate accepts, and what runs are watched for.
		{"catalogue.reserved", frame.LevelBase, "refuse",
			"what becomes of a client's event of a reserved type: refuse, or accept-as-foreign",
			choose(func(s *Settings) *bool { return &s.ReservedForeign }, "refuse", "accept-as-foreign")},
		{"chain.deadlines", frame.LevelDelivery, "",
			"how long edges of flows may take before CHAIN_OVERDUE reports the run: " +
				"FLOW:CAUSE->EFFECT=DURATION, comma separated",
			rule{"FLOW:CAUSE->EFFECT=DURATION, comma separated", chainDeadlines}},
		// Registered clients.
		{"clients.max", frame.LevelDelivery, "10000",
			"how many clients may register what they listen to",
			number(1, 1_000_000, func(s *Settings) *uint64 { return &s.ClientsMax })},
		{"clients.max_bytes", frame.LevelDelivery, "67108864",
			"bytes that all of them together may register",
			number(frame.MaxClientBytes, 1<<40, func(s *Settings) *uint64 { return &s.ClientsBytes })},
		// Cursors: what they hold, how long and how many there are.
		{"cursor.hold_bytes", frame.LevelBase, "4294967296",
			"bytes of blocks that a cursor may keep from retention; 0 is no bound",
			number(0, 1<<50, func(s *Settings) *uint64 { return &s.CursorHoldBytes })},
		{"cursor.hold_events", frame.LevelBase, "10000000",
			"events that a cursor may keep from retention; 0 is no bound",
			number(0, 1<<50, func(s *Settings) *uint64 { return &s.CursorHoldEvents })},
		{"cursor.hold_for", frame.LevelBase, "72h",
			"how old an event may get that a cursor keeps from retention; 0 is no bound",
			duration(0, 10*year, func(s *Settings) *time.Duration { return &s.CursorHoldFor })},
		{"cursor.idle_expiry", frame.LevelBase, "0s",
			"how long after its last open, commit or seek a cursor is removed; 0 is never",
			duration(0, 10*year, func(s *Settings) *time.Duration { return &s.CursorIdle })},
		{"cursor.max", frame.LevelBase, "10000",
			"how many cursors there may be",
			number(1, 1_000_000, func(s *Settings) *uint64 { return &s.CursorMax })},
		{"cursor.max_bytes", frame.LevelDelivery, "67108864",
			"bytes that the names and filters of all cursors together may take",
			number(1<<16, 1<<40, func(s *Settings) *uint64 { return &s.CursorBytes })},
		{"cursor.stall_after", frame.LevelDelivery, "5m",
			"how long a cursor may not move, with an event open for as long, " +
				"before CURSOR_STALLED reports it; 0 is never",
			duration(0, 10*year, func(s *Settings) *time.Duration { return &s.CursorStall })},
		// The dedup window.
		{"dedup.max_keys", frame.LevelBase, "20000000",
			"keys that the dedup window may hold; past it publishing is refused until some expire",
			number(frame.MaxRows, 1<<31, func(s *Settings) *uint64 { return &s.DedupMaxKeys })},
		{"dedup.policy_max_keys", frame.LevelDedup, "1000000",
			"keys that the dedup policies of all types together may hold; " +
				"past it events of these types are refused until some expire",
			number(1, 1<<31, func(s *Settings) *uint64 { return &s.DedupPolicyMaxKeys })},
		{"dedup.window", frame.LevelBase, "60s",
			"how long after an event was appended its key suppresses the same again",
			duration(time.Second, 24*time.Hour, func(s *Settings) *time.Duration { return &s.DedupWindow })},
		// Dead letters.
		{"dlq.max_age", frame.LevelLetters, "0s",
			"age at which dead letters are purged; 0 is never",
			duration(0, 100*year, func(s *Settings) *time.Duration { return &s.LettersAge })},
		{"dlq.max_bytes", frame.LevelLetters, "268435456",
			"bytes of dead letters that are kept; past it a new one is refused, and its cursor stays",
			number(1<<10, 1<<50, func(s *Settings) *uint64 { return &s.LettersBytes })},
		{"dlq.stale_after", frame.LevelLetters, "24h",
			"age at which a dead letter is reported by DLQ_STALE_EVENTS, once; 0 is never",
			duration(0, 10*year, func(s *Settings) *time.Duration { return &s.LettersStale })},
		// Defaults of groups.
		{"group.ack_wait", frame.LevelDelivery, "30s",
			"how long a member of a group may hold an event without acknowledging it or reporting progress " +
				"before the delivery has failed, unless the group says otherwise",
			duration(minAckWait, maxAckWait, func(s *Settings) *time.Duration { return &s.GroupAckWait })},
		{"group.max_deliver", frame.LevelDelivery, "5",
			"deliveries that fail before an event of a group goes to the dead letters, " +
				"unless the group says otherwise; 0 is no bound",
			number(0, maxMaxDeliver, func(s *Settings) *uint64 { return &s.GroupMaxDeliver })},
		{"group.max_pending", frame.LevelDelivery, "10000",
			"events of a group that may be open after its first open one, unless the group says otherwise",
			number(1, maxMaxPending, func(s *Settings) *uint64 { return &s.GroupMaxPending })},
		{"group.session_timeout", frame.LevelDelivery, "10s",
			"how long a member of a group may be silent before what it holds goes to others",
			duration(minAckWait, time.Hour, func(s *Settings) *time.Duration { return &s.GroupSession })},
		// What is reported of voters.
		{"health.hold_down", frame.LevelHealth, "5s",
			"how long after a VOTER_OFFLINE or VOTER_ONLINE the next one of the same voter may come",
			duration(0, time.Hour, func(s *Settings) *time.Duration { return &s.HealthHoldDown })},
		// Bounds of one event and one request. They apply where a request comes in.
		{"limits.depth", frame.LevelBase, "128",
			"nesting levels of a payload",
			size(1, 1000, func(s *Settings) *int { return &s.Limits.Depth })},
		{"limits.event_bytes", frame.LevelBase, "1048576",
			"bytes of one event's payload in canonical form",
			size(1024, 8<<20, func(s *Settings) *int { return &s.Limits.EventBytes })},
		{"limits.name_bytes", frame.LevelBase, "256",
			"bytes of a type, source, key or id",
			size(16, 4096, func(s *Settings) *int { return &s.Limits.NameBytes })},
		{"limits.request_bytes", frame.LevelBase, "4194304",
			"bytes of one request",
			size(1024, 16<<20, func(s *Settings) *int { return &s.Limits.RequestBytes })},
		{"limits.request_events", frame.LevelBase, "10000",
			"events of one request",
			size(1, frame.MaxRows/2, func(s *Settings) *int { return &s.Limits.RequestEvents })},
		{"limits.requests_per_second", frame.LevelTokens, "0",
			"requests of one token at one node within a second, if it is no cluster token; 0 is no bound",
			number(0, 1_000_000, func(s *Settings) *uint64 { return &s.RequestsPerSecond })},
		// Results of producers.
		{"producer.max", frame.LevelBase, "100000",
			"producers whose results are kept; past it the one used longest ago is forgotten",
			number(1000, 10_000_000, func(s *Settings) *uint64 { return &s.ProducerMax })},
		{"producer.max_bytes", frame.LevelBase, "268435456",
			"bytes of the larger results that are kept for all producers; " +
				"past it the producer that has some and was used longest ago is forgotten",
			number(32<<20, 1<<40, func(s *Settings) *uint64 { return &s.ProducerBytes })},
		{"producer.ttl", frame.LevelBase, "15m",
			"how long after its last request a producer's results are kept",
			duration(10*time.Minute, 24*time.Hour, func(s *Settings) *time.Duration { return &s.ProducerTTL })},
		// What the log keeps.
		{"retention.age", frame.LevelBase, "168h",
			"how long events are kept; 0 is no bound",
			duration(0, 100*year, func(s *Settings) *time.Duration { return &s.RetentionAge })},
		{"retention.bytes", frame.LevelBase, "8589934592",
			"bytes of stored blocks, and of the receipts of suppressed events, that are kept; 0 is no bound",
			number(0, 1<<50, func(s *Settings) *uint64 { return &s.RetentionBytes })},
		{"retention.events", frame.LevelBase, "0",
			"events that are kept; 0 is no bound",
			number(0, 1<<50, func(s *Settings) *uint64 { return &s.RetentionEvents })},
		{"roles.max", frame.LevelRoles, "20000",
			"how many roles may be held",
			number(1, 1_000_000, func(s *Settings) *uint64 { return &s.RolesMax })},
		{"roles.max_bytes", frame.LevelRoles, "67108864",
			"bytes that the claims to all roles together may take, held and waiting",
			number(1<<16, 1<<40, func(s *Settings) *uint64 { return &s.RolesBytes })},
		{"schedule.max", frame.LevelSchedule, "100000",
			"how many events may wait for the time at which they are published",
			number(1, 10_000_000, func(s *Settings) *uint64 { return &s.ScheduleMax })},
		{"schedule.max_bytes", frame.LevelSchedule, "268435456",
			"bytes of the events that wait for the time at which they are published",
			number(1<<16, 1<<40, func(s *Settings) *uint64 { return &s.ScheduleBytes })},
		{"tokens.max", frame.LevelTokens, "1000",
			"how many tokens there may be",
			number(1, 100_000, func(s *Settings) *uint64 { return &s.TokensMax })},
		// What the gate does about types that it does not know.
		{"validation.strict", frame.LevelBase, "false",
			"whether events of unknown types are refused",
			choose(func(s *Settings) *bool { return &s.ValidationStrict }, "false", "true")},
		{"views.max", frame.LevelViews, "64",
			"how many views may be defined",
			number(1, 1000, func(s *Settings) *uint64 { return &s.ViewsMax })},
	}
}

// year is 365 days.
const year = 365 * 24 * time.Hour

// number is the rule of a whole number from low to high. field says where it is stored.
func number(low, high uint64, field func(*Settings) *uint64) rule {
	return rule{fmt.Sprintf("%d to %d", low, high), func(s *Settings, value string) error {
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil || n < low || n > high {
			return fmt.Errorf("%q is not a whole number from %d to %d", value, low, high)
		}
		*field(s) = n
		return nil
	}}
}

// size is number for a field of type int.
func size(low, high int, field func(*Settings) *int) rule {
	return rule{fmt.Sprintf("%d to %d", low, high), func(s *Settings, value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < low || n > high {
			return fmt.Errorf("%q is not a whole number from %d to %d", value, low, high)
		}
		*field(s) = n
		return nil
	}}
}

// duration is the rule of a time.Duration, as Go writes one.
func duration(low, high time.Duration, field func(*Settings) *time.Duration) rule {
	return rule{fmt.Sprintf("%s to %s", low, high), func(s *Settings, value string) error {
		d, err := time.ParseDuration(value)
		if err != nil || d < low || d > high {
			return fmt.Errorf("%q is not a duration from %s to %s, such as 90s or 72h",
				value, human.Exact(low), human.Exact(high))
		}
		*field(s) = d
		return nil
	}}
}

// choose is the rule of a field with two values; yes stores true.
func choose(field func(*Settings) *bool, no, yes string) rule {
	return rule{no + " or " + yes, func(s *Settings, value string) error {
		if value != no && value != yes {
			return fmt.Errorf("%q is neither %s nor %s", value, no, yes)
		}
		*field(s) = value == yes
		return nil
	}}
}

// lookup returns the definition of a setting. The table is in the order of the keys.
func lookup(key string) (definition, bool) {
	all := definitions()
	byKey := func(d definition, key string) int { return strings.Compare(d.key, key) }
	i, found := slices.BinarySearchFunc(all, key, byKey)
	if !found {
		return definition{}, false
	}
	return all[i], true
}

// defaultSettings returns the settings that nobody has changed. A default must follow its own rule.
func defaultSettings() Settings {
	var s Settings
	for _, d := range definitions() {
		if err := d.rule.put(&s, d.fallback); err != nil {
			panic(fmt.Sprintf("default of %s: %v", d.key, err))
		}
	}
	return s
}

// set changes one setting; an empty value stands for the default. On an error
// nothing has changed.
func (s *Settings) set(key, value string) error {
	d, known := lookup(key)
	if !known {
		return fmt.Errorf("there is no setting %q", key)
	}
	// Only a rule stores a value, and only one that it accepts.
	if value == "" {
		value = d.fallback
	}
	return d.rule.put(s, value)
}

// setSetting changes a setting, or with an empty value returns it to its default.
func (a *applier) setSetting(c frame.SettingSet) Result {
	// The window may just have become shorter.
	defer a.expirePolicyKeys()
	defer a.expireWindow()
	d, known := lookup(c.Key)
	if !known {
		return refuse(NotFound, "key", fmt.Sprintf("there is no setting %q", c.Key),
			"list them: GET /v1/settings, or ringlog settings ls")
	}
	// A member that does not know the setting would decide otherwise.
	if d.level > max(frame.LevelBase, a.s.meta.FeatureLevel) {
		return refuse(NotFound, "key", fmt.Sprintf("some members do not know the setting %q yet", c.Key),
			"run this version on all nodes first")
	}
	// MaxWindow has to cover the old window too: receipts of it may be asked for.
	before := a.s.settings.DedupWindow
	if err := a.s.settings.set(c.Key, c.Value); err != nil {
		return refuse(Invalid, "value", fmt.Sprintf("%s: %v", c.Key, err), d.doc)
	}

	// Policies without a window of their own go by this one.
	if c.Key == "dedup.window" {
		a.s.rankPolicies()
	}

	// Only values that differ from the default are stored.
	if c.Value == "" {
		delete(a.s.changed, c.Key)
		a.tx.Delete(key(prefixSetting, c.Key))
	} else {
		a.s.changed[c.Key] = c.Value
		a.tx.Set(key(prefixSetting, c.Key), []byte(c.Value))
	}

	// What was computed by the old value may no longer hold.
	a.s.meta.StallDue = 0
	if strings.HasPrefix(c.Key, "cursor.hold_") {
		a.s.meta.NotHeld = holdMark{} // a cursor that kept nothing may keep something now
	}
	a.s.meta.MaxWindow = max(a.s.meta.MaxWindow, before, a.s.settings.DedupWindow)
	setting := a.s.setting(d)
	return Result{Setting: &setting}
}

// setting returns a setting with its present value.
func (s *state) setting(d definition) Setting {
	value, changed := s.changed[d.key]
	if !changed {
		value = d.fallback
	}
	return Setting{Key: d.key, Value: value, Default: d.fallback, Doc: d.doc}
}
