// Package asyncapi describes a log as an AsyncAPI 3 document, for tools that draw, check or generate from one. It is
// pure: it knows the catalogue and what a node hands it, and reads nothing. Equal input gives equal bytes.
//
// What the document has for each part of the log:
//
//   - a channel for each event type, with the type as its address and one message
//   - the payload of the message is that of the event; its headers are the event's other fields
//   - an operation "send" for a type of which emitters are known, with x-emitters
//   - an operation "receive" for a type that somebody subscribes to: x-subscribers are those of the catalogue,
//     x-listeners the cursors and clients that the cluster has
//   - a tag for the category of a message and for each flow that it is part of; x-flows has the edges
//   - a server for each member
//
// AsyncAPI is specified at https://www.asyncapi.com/docs/reference/specification/v3.0.0.
package asyncapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/platform/audit"
)

// Log is what is described. Only Catalogue is needed.
// "ringlog catalogue asyncapi" fills in the catalogue and the version, a node everything.
type Log struct {
	Catalogue *event.Catalogue
	Version   string // of the program; "" if it has none
	ClusterID string // "" if no cluster is described
	Members   []Member
	Token     bool                 // callers need the cluster token
	Listeners []audit.Subscription // of cursors and of registered clients
	// Unlisted counts listeners that are not in Listeners, because there are too many.
	Unlisted int
}

// Member is a node that takes calls.
// A member is left out while its URL is not known.
type Member struct{ ID, URL string }

// maxListed bounds the listeners of all types together: one without a filter is listed at every type.
const maxListed = 10_000

// The document, as far as it is used here. Maps are printed in the order of their keys.
// The names are those of the specification; a name that begins with x- is an extension, which tools may ignore.
type (
	document struct {
		Version     string               `json:"asyncapi"`
		ID          string               `json:"id,omitempty"`
		Info        info                 `json:"info"`
		ContentType string               `json:"defaultContentType"`
		Servers     map[string]server    `json:"servers,omitempty"`
		Channels    map[string]channel   `json:"channels"`
		Operations  map[string]operation `json:"operations"`
		Components  components           `json:"components"`
		// Never null: a log without flows has an empty list.
		Flows []flow `json:"x-flows"`
		// Listeners that are listed nowhere, or not at all of their types.
		Unlisted int `json:"x-unlisted-listeners,omitempty"`
	}
	info struct {
		Title       string `json:"title"`
		Version     string `json:"version"`
		Description string `json:"description"`
	}
	// One for each member, since a cluster has no address of its own.
	server struct {
		Host string `json:"host"`
		// The scheme of the member's URL: http or https.
		Protocol string `json:"protocol"`
		Pathname string `json:"pathname,omitempty"`
		Title    string `json:"title"`
		Security []ref  `json:"security,omitempty"`
	}
	channel struct {
		Address  string         `json:"address"`
		Messages map[string]ref `json:"messages"`
	}
	operation struct {
		Action   string `json:"action"` // send or receive
		Channel  ref    `json:"channel"`
		Summary  string `json:"summary"`
		Messages []ref  `json:"messages"`
		// Those of the catalogue; of what only the cluster emits, "ringlog".
		Emitters    []string `json:"x-emitters,omitempty"`
		Subscribers []string `json:"x-subscribers,omitempty"`
		// Those that the cluster has at the moment.
		Listeners []listener `json:"x-listeners,omitempty"`
	}
	listener struct {
		Name string `json:"name"`
		// How the cluster knows it: by the filter of a cursor, or because a client registered.
		Basis audit.Basis `json:"basis"`
	}
	message struct {
		Name  string `json:"name"`
		Title string `json:"title"`
		Tags  []tag  `json:"tags,omitempty"`
		// These are the same for all types, so each refers to the one schema.
		Headers       ref      `json:"headers"`
		CorrelationID ref      `json:"correlationId"`
		Payload       ref      `json:"payload"`
		Aliases       []string `json:"x-aliases,omitempty"`
	}
	tag struct {
		Name string `json:"name"`
	}
	// "#/" and the path of another part of this document.
	ref struct {
		To string `json:"$ref"`
	}
	components struct {
		Messages        map[string]message        `json:"messages"`
		Schemas         map[string]map[string]any `json:"schemas"`
		CorrelationIDs  map[string]any            `json:"correlationIds"`
		SecuritySchemes map[string]any            `json:"securitySchemes,omitempty"`
	}
	flow struct {
		Name  string          `json:"name"`
		Edges [][2]event.Type `json:"edges"` // cause, effect
	}
)

// Names of components. Types are in upper case, so neither is the name of one.
const (
	fieldsSchema = "fields"
	runID        = "run"
	tokenScheme  = "token"
)

// Document returns the document as JSON.
func Document(l Log) ([]byte, error) {
	d := document{
		// Of the specification, not of the program.
		Version: "3.0.0",
		Info: info{
			Title: "ringlog",
			// The specification requires a version. A program without one has 0.
			Version: cmp.Or(l.Version, "0"),
			Description: "The event types of a ringlog cluster, who emits them and who listens. " +
				"Events are published with POST /v1/events and read with GET /v1/events?type=ADDRESS: " +
				"a message's payload is the event's field payload, its headers are the event's other fields. " +
				"/openapi.json describes the calls.",
		},
		ContentType: "application/json",
		Channels:    map[string]channel{},
		Operations:  map[string]operation{},
		Components: components{
			Messages:       map[string]message{},
			Schemas:        map[string]map[string]any{fieldsSchema: eventFields()},
			CorrelationIDs: map[string]any{runID: map[string]string{"location": "$message.header#/correlation_id"}},
		},
		Flows:    []flow{},
		Unlisted: l.Unlisted,
	}
	if l.ClusterID != "" {
		// The id must be a URI, so what a URI cannot have is escaped.
		d.ID = "urn:ringlog:" + url.PathEscape(l.ClusterID)
	}
	// Without members there are no servers, and the field is left out.
	d.addServers(l.Members, l.Token)

	// What is known of a type by its name.
	// Flows have their order; aliases come from a map and are sorted below.
	tags, aliases := map[event.Type][]tag{}, map[event.Type][]string{}
	for _, f := range l.Catalogue.Flows() {
		d.Flows = append(d.Flows, flow{f.Name, f.Edges})
		// A type may be part of several edges; the flow is one tag.
		for _, edge := range f.Edges {
			for _, t := range edge {
				if name := (tag{"flow:" + f.Name}); !slices.Contains(tags[t], name) {
					tags[t] = append(tags[t], name)
				}
			}
		}
	}
	for alias, t := range l.Catalogue.Aliases() {
		aliases[t] = append(aliases[t], alias)
	}
	for _, def := range slices.Concat(l.Catalogue.Definitions(), l.Catalogue.Own()) {
		slices.Sort(aliases[def.Name])
		if err := d.addType(def, tags[def.Name], aliases[def.Name]); err != nil {
			return nil, err
		}
	}
	d.addOperations(l)
	return json.Marshal(d)
}

// addServers adds a server for each member whose address is known.
func (d *document) addServers(members []Member, token bool) {
	var security []ref
	if token {
		// It says that a token is needed. The token itself is not in the document.
		security = []ref{{"#/components/securitySchemes/" + tokenScheme}}
		d.Components.SecuritySchemes = map[string]any{tokenScheme: map[string]string{"type": "http", "scheme": "bearer"}}
	}
	d.Servers = map[string]server{}
	for i, m := range members {
		// A member may advertise what is no URL; the others are described all the same.
		u, err := url.Parse(m.URL)
		if err != nil || u.Host == "" {
			continue
		}
		// An id may have characters that a key must not have.
		d.Servers[fmt.Sprintf("node%d", i+1)] = server{
			Host:     u.Host,
			Protocol: u.Scheme,
			Pathname: u.Path,
			Title:    m.ID,
			Security: security,
		}
	}
}

// addType adds channel, message and schema of a type.
func (d *document) addType(def *event.Definition, flows []tag, aliases []string) error {
	name := string(def.Name)
	var schema map[string]any
	// Parsed and printed once more, since it becomes a part of this document.
	if err := json.Unmarshal(def.JSONSchema(), &schema); err != nil {
		return fmt.Errorf("asyncapi: schema of %s: %w", name, err)
	}
	// Schemas of this format are in its own dialect, which has all that is used here.
	delete(schema, "$schema")
	d.Components.Schemas[name] = schema

	var tags []tag
	if def.Category != "" {
		tags = append(tags, tag{def.Category})
	}
	d.Components.Messages[name] = message{
		Name:          name,
		Title:         def.Value,
		Tags:          append(tags, flows...),
		Headers:       ref{"#/components/schemas/" + fieldsSchema},
		CorrelationID: ref{"#/components/correlationIds/" + runID},
		Payload:       ref{"#/components/schemas/" + name},
		Aliases:       aliases,
	}
	// The channel of a type has one message, under the name of the type.
	d.Channels[name] = channel{Address: name, Messages: map[string]ref{name: {"#/components/messages/" + name}}}
	return nil
}

// addOperations adds who sends and who receives each type.
func (d *document) addOperations(l Log) {
	// Each filter is compiled once, and asked about every type.
	matchers := make([]event.Matcher, len(l.Listeners))
	for i, s := range l.Listeners {
		matchers[i] = s.Filter.Compile(l.Catalogue)
	}
	// cut has the index of each listener that is missing somewhere, so it counts once.
	listed, cut := 0, map[int]bool{}
	for _, def := range slices.Concat(l.Catalogue.Definitions(), l.Catalogue.Own()) {
		name, emitters := string(def.Name), def.Emitters
		// What only the cluster emits has no emitter in the catalogue.
		if len(emitters) == 0 && event.IsReserved(def.Name) {
			emitters = []string{"ringlog"}
		}
		if len(emitters) > 0 {
			op := newOperation("send", name, "emitted by "+strings.Join(emitters, ", "))
			op.Emitters = emitters
			d.Operations[name+".send"] = op
		}

		// Who listens: by the documents, and in the cluster.
		// A copy, for the list is the catalogue's.
		heard := slices.Clone(def.Subscribers)
		var listeners []listener
		for i, s := range l.Listeners {
			switch {
			case !matchers[i].MatchType(name):
			case listed == maxListed:
				// The summary does not name it either.
				cut[i] = true
			default:
				listed++
				listeners = append(listeners, listener{s.Name, s.Basis})
				heard = append(heard, fmt.Sprintf("%s (%s)", s.Name, s.Basis))
			}
		}
		if len(heard) > 0 {
			op := newOperation("receive", name, "received by "+strings.Join(heard, ", "))
			op.Subscribers, op.Listeners = def.Subscribers, listeners
			d.Operations[name+".receive"] = op
		}
	}
	// Unlisted has those that the caller left out.
	d.Unlisted += len(cut)
}

// newOperation returns an operation on the channel of a type.
func newOperation(action, name, summary string) operation {
	return operation{
		Action:  action,
		Channel: ref{"#/channels/" + name},
		Summary: summary,
		// A message is referred to by its channel: the specification asks for that in an operation.
		Messages: []ref{{"#/channels/" + name + "/messages/" + name}},
	}
}

// eventFields is the schema of an event's fields beside its payload.
func eventFields() map[string]any {
	// offset and appended_at are set by the log: they are part of what is read, and not of what is published.
	kind := func(name, description string) map[string]string {
		return map[string]string{"type": name, "description": description}
	}
	return map[string]any{
		"type": "object",
		"properties": map[string]map[string]string{
			"offset":         kind("integer", "position in the log, from 1 on"),
			"source":         kind("string", "publisher"),
			"key":            kind("string", "what the event is about"),
			"correlation_id": kind("string", "run that the event belongs to"),
			"causation_id":   kind("string", "event that caused it"),
			"time":           kind("string", "when it happened, in RFC 3339"),
			"appended_at":    kind("string", "when it was appended, in RFC 3339"),
			"traceparent":    kind("string", "span that published it, of W3C Trace Context"),
		},
	}
}
