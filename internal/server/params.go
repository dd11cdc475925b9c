package server

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// params reads a request's query, and keeps the first error in it. A route reads all its parameters and then calls
// done.
type params struct {
	// A name is known once the route has asked for it, given or not.
	values url.Values
	known  []string // names that the route has asked for
	err    error    // the first, nil while there is none
}

// newParams returns the parameters of a request. Every route has timeout, which limitTime reads.
func newParams(r *http.Request) *params {
	// What could be parsed is kept, so the error is the only one.
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		err = api.Refuse(api.InvalidArgument, "query", err.Error(), "percent-encode what is not a letter or a digit")
	}
	return &params{values: values, known: []string{"timeout"}, err: err}
}

// fail keeps an error unless there is an earlier one.
func (p *params) fail(err error) {
	// One error at a time: the first is the one to correct.
	if p.err == nil {
		p.err = err
	}
}

// text returns a parameter that may be given once, "" if it is not given.
func (p *params) text(name string) string {
	list := p.list(name)
	// With two values it is not known which one was meant.
	if len(list) > 1 {
		p.fail(api.BadValue(name, strings.Join(list, ","), "one value"))
	}
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// list returns a parameter that may be repeated.
func (p *params) list(name string) []string {
	// Asking for a parameter makes it known.
	p.known = append(p.known, name)
	return p.values[name]
}

// uint returns a whole number, 0 if it is not given.
func (p *params) uint(name string) uint64 {
	text := p.text(name)
	if text == "" {
		return 0
	}
	// Offsets and numbers have the same form.
	n, err := parseOffset(name, text)
	if err != nil {
		p.fail(err)
	}
	return n
}

// bool returns a parameter that is true, false or, without a value, true; fallback where it is not given.
func (p *params) bool(name string, fallback bool) bool {
	// An absent parameter is not the same as one without a value.
	if _, given := p.values[name]; !given {
		p.known = append(p.known, name)
		return fallback
	}
	switch text := p.text(name); text {
	// The bare name of a parameter switches it on.
	case "", "1", "true":
		return true
	case "0", "false":
		return false
	default:
		p.fail(api.BadValue(name, text, "true or false"))
		return false
	}
}

// filter reads the parameters that choose events.
func (p *params) filter() event.Filter {
	f := event.Filter{Types: p.list("type"), Categories: p.list("category"), Sources: p.list("source"),
		Keys: p.list("key"), CorrelationIDs: p.list("correlation_id")}
	// An error of the filter names the part, which has the parameter's name.
	if err := f.Validate(); err != nil {
		p.fail(err)
	}
	return f
}

// done returns the first error, or one for a parameter that the route has not asked for.
func (p *params) done() error {
	if p.err != nil {
		return p.err
	}
	// A misspelt parameter must not be ignored: the answer would look like the one that was asked for.
	for name := range p.values {
		if !slices.Contains(p.known, name) {
			slices.Sort(p.known)
			return api.Refuse(api.InvalidArgument, name,
				fmt.Sprintf("there is no parameter %q here", name),
				"the parameters are "+strings.Join(p.known, ", "))
		}
	}
	return nil
}

// parseOffset reads a whole number below 2^64, in decimal digits only.
func parseOffset(field, text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, api.BadValue(field, text, "a whole number from 0 to 18446744073709551615, in digits")
	}
	return n, nil
}

// Bounds of one page of a list.
const (
	pageItems     = 100
	pageItemsMost = 1000
)

// position returns a position, the default one if it is not given.
func (p *params) position(name string) api.Position {
	at, err := parsePosition(name, p.text(name))
	if err != nil {
		p.fail(err)
	}
	return at
}

// page returns which part of a list is asked for: up to limit items whose names follow after.
func (p *params) page() (after string, limit int) {
	after = p.text("after")
	// Zero and no limit are the same: the default.
	switch n := p.uint("limit"); {
	case n > pageItemsMost:
		p.fail(api.BadValue("limit", strconv.FormatUint(n, 10), "up to "+strconv.Itoa(pageItemsMost)))
		return after, 0
	case n > 0:
		return after, int(n)
	}
	return after, pageItems
}
