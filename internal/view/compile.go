package view

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/event/where"
)

// View is a compiled declaration. It is safe for concurrent use; rows are changed by one Apply at a time. Compile sets
// all of it, and nothing changes it afterwards but the pool, which keeps the memory of calls.
type View struct {
	name     string // as in the declaration; a part of sources and dedup ids
	filter   event.Filter
	where    *where.Expression // nil takes every event
	key      *where.Expression // nil is the key of the event
	fields   []field           // by name, as their states are in a row
	computed []computed        // by name
	slots    map[string]int    // the fields, and after them the computed ones
	rules    []rule            // in the order of the declaration, as their states are in a row
	maxKeys  uint64            // how many rows there may be
	emits    []event.Type      // of all rules, sorted, each once
	members  where.Members     // of a payload that expressions use
	pool     sync.Pool         // of *folding
}

// field is a declared field, compiled. Its expressions see the event alone.
type field struct {
	name  string            // of the row's member and of the variable
	kind  kind              // how values are folded and what is shown of them
	of    *where.Expression // nil of a count
	where *where.Expression // nil takes every event
	reset *where.Expression // nil never forgets
}

// computed is an expression with a name: a computed field, or a member of a rule's payload.
type computed struct {
	name string
	of   *where.Expression
}

// rule is a declared rule, compiled. when and until see the row alone, the payloads the row and the event.
type rule struct {
	name        string
	when, until *where.Expression // until is nil if it is the opposite of when
	minHold     int64             // in nanoseconds; 0 is none
	emit, ended event.Type        // ended may be ""
	payload     []computed        // at the begin, by name
	atEnd       []computed        // at the end, by name
}

// reserved returns the names that no field may have: other variables, and the words and types of CEL.
var reserved = sync.OnceValue(func() map[string]bool {
	names := append(where.EventVariables(), "updated_at", "began_at", "true", "false", "null", "in", "as", "break",
		"const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package", "namespace", "return",
		"var", "void", "while", "int", "uint", "double", "bool", "string", "bytes", "list", "map", "dyn", "null_type")
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
})

// evidence are the members that the payload of a firing always has.
func evidence() []string { return []string{"view", "rule", "key", "offset", "fields", "began_offset"} }

// languages are what the expressions of a declaration may name.
type languages struct {
	event *where.Language // where, key, of
	row   *where.Language // computed, when, until
	both  *where.Language // the payloads of rules
}

// Compile checks a declaration and compiles its expressions. An error is an *Error or a *where.Error, and names the
// place; a fault of the declaration is the only cause.
func Compile(d Declaration) (*View, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	most, err := bounded("max_keys", d.MaxKeys, defaultKeys, 1, maxKeys)
	if err != nil {
		return nil, err
	}
	// The names come first: the languages of all expressions declare them.
	v := &View{name: d.Name, filter: d.Filter, slots: map[string]int{}, maxKeys: uint64(most)}
	l, err := v.declare(&d)
	if err != nil {
		return nil, err
	}
	// Which events are folded, and into which row.
	if v.where, err = l.compile(l.event, "where", d.Where, where.Bool); err != nil {
		return nil, err
	}
	if v.key, err = l.compile(l.event, "key", d.Key, where.String); err != nil {
		return nil, err
	}
	// The row: its fields see the event, its computed fields the row.
	if err := v.compileFields(l, d.Fields); err != nil {
		return nil, err
	}
	if v.computed, err = l.compileAll(l.row, "computed", d.Computed); err != nil {
		return nil, err
	}
	// Computed fields may name each other in any order, so cycles are found once all are compiled.
	if err := v.refuseCycles(); err != nil {
		return nil, err
	}
	// What is published.
	for i, declared := range d.Rules {
		if err := v.compileRule(l, fmt.Sprintf("rules[%d]", i), declared); err != nil {
			return nil, err
		}
	}
	if err := v.checkEmits(&d); err != nil {
		return nil, err
	}
	// What a folding decodes of payloads is known only now.
	v.note()
	v.pool.New = func() any { return v.newFolding() }
	return v, nil
}

// declare checks the names of the fields and makes them variables. It returns the languages that know them. Slots
// follow the order in which rows store the fields: by name.
func (v *View) declare(d *Declaration) (l languages, err error) {
	// Fields and computed fields are variables of the same expressions, so no two may have one name.
	names := slices.Sorted(maps.Keys(d.Fields))
	for _, name := range slices.Sorted(maps.Keys(d.Computed)) {
		if _, twice := d.Fields[name]; twice {
			return l, wrong("computed."+name, "a field has the name already")
		}
		names = append(names, name)
	}
	for i, name := range names {
		place := "fields." + name
		if i >= len(d.Fields) {
			place = "computed." + name
		}
		if err := checkFieldName(place, name); err != nil {
			return l, err
		}
		v.slots[name] = i
	}
	// The row's own variables. A key that payloads name is the row's: where.NewLanguage lets it hide the event's.
	row := append(names, "key", "updated_at")
	if l.event, err = where.NewLanguage(true); err != nil {
		return l, err
	}
	if l.row, err = where.NewLanguage(false, row...); err != nil {
		return l, err
	}
	l.both, err = where.NewLanguage(true, append(row, "began_at")...)
	return l, err
}

// compile compiles an expression; nil if it is empty.
func (languages) compile(l *where.Language, place, expression string, want where.Want) (*where.Expression, error) {
	if expression == "" {
		return nil, nil
	}
	if len(expression) > maxExpression {
		return nil, wrong(place, "%d bytes, the limit is %d", len(expression), maxExpression)
	}
	return l.Compile(place, expression, want)
}

// compileAll compiles expressions that have names, in the order of these.
func (l languages) compileAll(of *where.Language, place string, named map[string]string) (all []computed, err error) {
	for _, name := range slices.Sorted(maps.Keys(named)) {
		place := place + "." + name
		if named[name] == "" {
			return nil, wrong(place, "empty")
		}
		x, err := l.compile(of, place, named[name], where.Any)
		if err != nil {
			return nil, err
		}
		all = append(all, computed{name, x})
	}
	return all, nil
}

// compileFields compiles the fields. It refuses the field with which the states of a row could take more than
// maxRowBytes.
func (v *View) compileFields(l languages, declared map[string]Field) error {
	size := 0
	// In the order of their names, which is that of their slots and of the states in a row.
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		d, place := declared[name], "fields."+name
		// The kind decides what type the value has to have.
		k, want, err := d.compile(place)
		if err != nil {
			return err
		}
		f := field{name: name, kind: k}
		if f.of, err = l.compile(l.event, place+".of", d.Of, want); err != nil {
			return err
		}
		if f.where, err = l.compile(l.event, place+".where", d.Where, where.Bool); err != nil {
			return err
		}
		if f.reset, err = l.compile(l.event, place+".reset", d.Reset, where.Bool); err != nil {
			return err
		}
		v.fields = append(v.fields, f)
		// The bound is on what a row may take at worst, so it is refused here and not when the row has grown.
		if size += k.size(); size > maxRowBytes {
			return wrong(place, "a row may take %d bytes up to here, the limit is %d; keep fewer points or values",
				size, maxRowBytes)
		}
	}
	return nil
}

// need says whether a kind takes a member.
type need uint8

const (
	never    need = iota // the kind refuses it
	optional             // it has a default, or does without
	required             // it must be given
)

// members are the members of a Field that a kind takes.
type members struct{ of, window, halfLife, per, points, limit need }

// takes returns what each kind takes. Where, reset and kind are of all kinds and not in the table.
func takes() map[string]members {
	aggregate := members{of: required, window: optional}
	return map[string]members{
		"last":     {of: required},
		"count":    {window: optional},
		"sum":      aggregate,
		"min":      aggregate,
		"max":      aggregate,
		"mean":     aggregate,
		"rate":     {of: optional, window: required, per: optional},
		"ewma":     {of: required, halfLife: required},
		"slope":    {of: required, window: optional, points: optional, per: optional},
		"distinct": {of: required, limit: optional},
	}
}

// Defaults of a field.
const (
	defaultPoints   = 100 // of a slope
	defaultDistinct = 100 // values of a distinct
)

// compile returns the kind of a field, and what its value has to be.
func (f Field) compile(place string) (kind, where.Want, error) {
	takes, known := takes()[f.Kind]
	if !known {
		return nil, 0, wrong(place+".kind",
			"%q is none of last, count, sum, min, max, mean, rate, ewma, slope, distinct", f.Kind)
	}
	// Each member that is given must be one that the kind takes, and those that it needs must be given.
	for _, m := range []struct {
		name  string
		given bool
		need  need
	}{
		{"of", f.Of != "", takes.of}, {"window", f.Window != "", takes.window},
		{"half_life", f.HalfLife != "", takes.halfLife}, {"per", f.Per != "", takes.per},
		{"points", f.Points != 0, takes.points}, {"limit", f.Limit != 0, takes.limit},
	} {
		switch {
		case m.given && m.need == never:
			return nil, 0, wrong(place+"."+m.name, "a %s has none", f.Kind)
		case !m.given && m.need == required:
			return nil, 0, wrong(place+"."+m.name, "missing; a %s needs it", f.Kind)
		}
	}
	// Both are 0 if they are not given, as every kind takes no more than one of them.
	window, err := duration(place+".window", f.Window)
	if err != nil {
		return nil, 0, err
	}
	halfLife, err := duration(place+".half_life", f.HalfLife)
	if err != nil {
		return nil, 0, err
	}
	return f.make(place, window, halfLife)
}

// make returns the kind, its members being those that it takes. span is the window in nanoseconds, 0 for all events. A
// bucket's width is rounded up, so that the buckets cover at least the window.
func (f Field) make(place string, span, halfLife int64) (kind, where.Want, error) {
	switch f.Kind {
	case "last":
		return last{}, where.Any, nil
	case "ewma":
		return ewma{halfLife}, where.Number, nil
	case "distinct":
		limit, err := bounded(place+".limit", f.Limit, defaultDistinct, 1, maxDistinct)
		return distinct{limit}, where.Any, err
	case "slope":
		points, err := bounded(place+".points", f.Points, defaultPoints, 2, maxPoints)
		if err != nil {
			return nil, 0, err
		}
		// A trend is a matter of hours, a rate one of seconds.
		per, err := unit(place+".per", f.Per, time.Hour)
		return slope{span, points, per}, where.Number, err
	case "rate":
		per, err := unit(place+".per", f.Per, time.Second)
		return window{summed, (span + buckets - 1) / buckets, f.Of != "", per}, where.Number, err
	}
	// What is left are the aggregates: over a window in buckets, or over all events in one number.
	of := map[string]statistic{"count": counted, "sum": summed, "min": least, "max": greatest, "mean": averaged}[f.Kind]
	switch {
	case span > 0:
		return window{of, (span + buckets - 1) / buckets, of != counted, 0}, where.Number, nil
	// A count of all events has no number beside it.
	case of == counted:
		return count{}, where.Any, nil
	}
	return tally{of}, where.Number, nil
}

// Bounds of a duration.
const (
	minDuration = time.Second
	maxDuration = 366 * 24 * time.Hour
)

// duration reads a duration in nanoseconds, 0 if it is not given. The upper bound keeps sums and doubles of durations
// far within an int64.
func duration(place, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	d, err := api.ParseAge(place, text)
	if err != nil {
		return 0, wrong(place, "%q is not a duration such as 90s, 36h or 7d", text)
	}
	if d < minDuration || d > maxDuration {
		return 0, wrong(place, "%s is not between 1s and 366d", text)
	}
	return int64(d), nil
}

// unit reads a unit of time, in nanoseconds. otherwise is the unit if none is given.
func unit(place, text string, otherwise time.Duration) (float64, error) {
	units := map[string]time.Duration{"": otherwise, "second": time.Second, "minute": time.Minute, "hour": time.Hour,
		"day": 24 * time.Hour}
	if d, ok := units[text]; ok {
		return float64(d), nil
	}
	return 0, wrong(place, "%q is none of second, minute, hour, day", text)
}

// bounded returns n, its default if it is 0. Another n must be from least to most.
func bounded(place string, n, otherwise, least, most int) (int, error) {
	if n == 0 {
		return otherwise, nil
	}
	if n < least || n > most {
		return 0, wrong(place, "%d is not between %d and %d", n, least, most)
	}
	return n, nil
}

// refuseCycles refuses computed fields that need themselves. Evaluating one of them would not end. It visits depth
// first: who meets a field that is still open has come back to it.
func (v *View) refuseCycles() error {
	// What state has of a field; 0 is one that was not visited.
	const (
		open = iota + 1 // it is being visited
		done            // nothing below it leads back to it
	)
	state := make([]int, len(v.computed))
	var visit func(i int) error
	visit = func(i int) error {
		if state[i] == open {
			return wrong("computed."+v.computed[i].name, "it is computed of itself")
		}
		if state[i] == done {
			return nil
		}
		state[i] = open
		for _, name := range v.computed[i].of.Names() {
			// Plain fields end a path: they are computed of the event.
			if slot, ok := v.slots[name]; ok && slot >= len(v.fields) {
				if err := visit(slot - len(v.fields)); err != nil {
					return err
				}
			}
		}
		state[i] = done
		return nil
	}
	for i := range v.computed {
		if err := visit(i); err != nil {
			return err
		}
	}
	return nil
}

// compileRule compiles a rule. place is that of the rule, such as rules[0].
func (v *View) compileRule(l languages, place string, d Rule) (err error) {
	if err := checkName(place+".name", d.Name); err != nil {
		return err
	}
	// The name is a part of the dedup ids of its firings, so two rules with one name would suppress each other's.
	if slices.ContainsFunc(v.rules, func(r rule) bool { return r.name == d.Name }) {
		return wrong(place+".name", "another rule is called %s", d.Name)
	}
	if d.When == "" {
		return wrong(place+".when", "missing; it is the condition")
	}
	// When it begins, and when it ends.
	r := rule{name: d.Name}
	if r.when, err = l.compile(l.row, place+".when", d.When, where.Bool); err != nil {
		return err
	}
	if r.until, err = l.compile(l.row, place+".until", d.Until, where.Bool); err != nil {
		return err
	}
	if r.minHold, err = duration(place+".min_hold", d.MinHold); err != nil {
		return err
	}
	// What it publishes at both.
	if r.emit, err = eventType(place+".emit", d.Emit); err != nil {
		return err
	}
	if d.Ended != "" {
		if r.ended, err = eventType(place+".ended", d.Ended); err != nil {
			return err
		}
		// A payload that nothing would publish is a mistake, most likely a missing ended.
	} else if len(d.EndedPayload) > 0 {
		return wrong(place+".ended_payload", "without ended nothing is published at the end")
	}
	if r.payload, err = l.compilePayload(place+".payload", d.Payload); err != nil {
		return err
	}
	if r.atEnd, err = l.compilePayload(place+".ended_payload", d.EndedPayload); err != nil {
		return err
	}
	v.rules = append(v.rules, r)
	return nil
}

// compilePayload compiles the members of a payload. The members of evidence are not free.
func (l languages) compilePayload(place string, named map[string]string) ([]computed, error) {
	if len(named) > maxPayload {
		return nil, wrong(place, "%d members, the limit is %d", len(named), maxPayload)
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		switch {
		case name == "" || len(name) > 64:
			return nil, wrong(place, "the name of a member has 1 to 64 bytes, not %d", len(name))
		case slices.Contains(evidence(), name):
			return nil, wrong(place+"."+name, "every firing has the member already; choose another name")
		}
	}
	return l.compileAll(l.both, place, named)
}

// eventType returns the canonical name of a type that rules may publish.
func eventType(place, name string) (event.Type, error) {
	// The gate of the log under an empty policy, which has the built-in catalogue: it makes an alias canonical, and
	// refuses reserved types and names that no type may have.
	ev := event.New(event.Type(name), nil)
	if err := (&event.Policy{}).Check(&ev); err != nil {
		return "", refused(place, err)
	}
	return ev.Type, nil
}

// checkEmits notes the types that rules publish, and refuses those that the view reads.
func (v *View) checkEmits(d *Declaration) error {
	// The catalogue is the build's, as where the filter is applied, so that both agree on what the view reads.
	reads := v.filter.Compile(event.Builtin())
	for i, r := range v.rules {
		place := fmt.Sprintf("rules[%d]", i)
		const message = "the view reads %s itself, so it would feed itself; name its types without it"
		if reads.MatchType(string(r.emit)) {
			return wrong(place+".emit", message, r.emit)
		}
		if r.ended != "" && reads.MatchType(string(r.ended)) {
			return wrong(place+".ended", message, r.ended)
		}
		v.emits = append(v.emits, r.emit)
		if r.ended != "" {
			v.emits = append(v.emits, r.ended)
		}
	}
	slices.Sort(v.emits)
	v.emits = slices.Compact(v.emits)
	return nil
}

// note notes what of a payload is used. A Scope decodes no other members. Computed fields and conditions of rules are
// left out: they see no payload.
func (v *View) note() {
	add := func(x *where.Expression) {
		if x != nil {
			v.members.Add(x)
		}
	}
	add(v.where)
	add(v.key)
	for _, f := range v.fields {
		add(f.of)
		add(f.where)
		add(f.reset)
	}
	for _, r := range v.rules {
		for _, c := range slices.Concat(r.payload, r.atEnd) {
			add(c.of)
		}
	}
}

// Filter implements Fold.
func (v *View) Filter() event.Filter { return v.filter }

// Emits implements Fold.
func (v *View) Emits() []event.Type { return slices.Clone(v.emits) }
