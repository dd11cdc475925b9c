package transfers

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// Bounds of what payloads name, in bytes but for the hosts.
const (
	maxName  = 256
	maxText  = 128 // ids, hosts, versions
	maxError = 200
	maxHosts = 64 // of one event
)

// message is an event as far as transfers understand it. What is "" or 0 was not named, or could not be used.
type message struct {
	class    class  // from the type
	kind     string // from the type or the fields
	id, name string
	hosts    []string // none if the event names none
	from     string   // the host that has it already
	version  string
	bytes    uint64 // that were sent
	size     uint64 // of the whole copy
	files    uint64 // how many
	checked  check
	error    string        // at most maxError bytes
	deadline time.Duration // 0 if it names none
	offset   uint64        // of the event
	at       time.Time     // when it was appended
}

// ofWholeHost reports whether an event is about all that is open to a host.
func (m *message) ofWholeHost() bool { return m.class == unreachable && m.id == "" && m.name == "" }

// needsHost reports whether an event says nothing of a host that is not known yet. Such an event makes no row of a
// host.
func (m *message) needsHost() bool {
	return m.class == corrupted || m.class == terminated || m.ofWholeHost()
}

// reader takes fields from a payload, and counts those that it cannot use.
type reader struct {
	fields map[string]json.RawMessage // of the payload, undecoded
	tally  *api.TransferTally         // counts what cannot be used
}

// The names of fields, the first that is there wins.
var (
	idFields       = []string{"transfer_id", "sync_id", "distribution_id", "request_id"}
	dataFields     = []string{"dataset", "dataset_id", "config_key", "db_path"}
	modelFields    = []string{"model", "model_id", "model_name", "model_path", "config_key"}
	targetFields   = []string{"target_nodes", "targets", "target_node", "target"}
	hostFields     = []string{"host", "node_id"}
	fromFields     = []string{"source_node", "source_host", "from", "source"}
	versionFields  = []string{"version", "model_version", "data_version"}
	bytesFields    = []string{"bytes_synced", "bytes_transferred", "bytes", "size_bytes"}
	sizeFields     = []string{"size_bytes", "total_bytes"}
	filesFields    = []string{"file_count", "files", "games_synced", "entry_count"}
	checkedFields  = []string{"verified", "checksum_verified"}
	errorFields    = []string{"error", "reason"}
	deadlineFields = []string{"deadline_seconds", "timeout_seconds"}
)

// read returns what an event says. Fields that cannot be used are counted and left out.
func read(e *event.Event, k known, tally *api.TransferTally) message {
	r := reader{tally: tally}
	// The gate lets only objects pass; anything else has no fields.
	if err := json.Unmarshal(e.Payload, &r.fields); err != nil {
		tally.WrongType++
	}
	m := message{class: k.class, kind: k.kind, offset: e.Offset, at: e.AppendedAt}
	// An event of any kind is about a model if a field of models names it.
	names := dataFields
	if m.kind == "" {
		m.kind = kindData
		// config_key, the last one, may name data as well.
		if slices.ContainsFunc(modelFields[:len(modelFields)-1], r.has) {
			m.kind = kindModel
		}
	}
	if m.kind == kindModel {
		names = modelFields
	}
	m.id = r.text(idFields, maxText)
	m.name = r.text(names, maxName)
	m.from = r.text(fromFields, maxText)
	// A host beside targets is where the copy comes from; alone it is the target.
	m.hosts = r.hosts(targetFields)
	if host := r.hosts(hostFields); len(m.hosts) == 0 {
		m.hosts = host
	} else if m.from == "" && len(host) == 1 {
		m.from = host[0]
	}
	m.version = r.version()
	// bytes may be of a part, size is of the whole copy. size_bytes counts as both.
	m.bytes, m.size, m.files = r.number(bytesFields), r.number(sizeFields), r.number(filesFields)
	m.checked = r.checked()
	m.error = r.errorText()
	// A deadline past 30 days is no deadline.
	if s := r.number(deadlineFields); s > 0 && s <= 30*24*3600 {
		m.deadline = time.Duration(s) * time.Second
	}
	return m
}

// has reports whether the payload has a field that is not null.
func (r *reader) has(field string) bool {
	v := r.fields[field]
	return len(v) > 0 && !bytes.Equal(v, []byte("null"))
}

// first returns the first of some fields that the payload has, nil if it has none.
func (r *reader) first(fields []string) json.RawMessage {
	if i := slices.IndexFunc(fields, r.has); i >= 0 {
		return r.fields[fields[i]]
	}
	return nil
}

// text returns a text of at most limit bytes. It is "" if the payload has none, or none that can be used.
func (r *reader) text(fields []string, limit int) string {
	v := r.first(fields)
	if v == nil {
		return ""
	}
	var s string
	if json.Unmarshal(v, &s) != nil {
		r.tally.WrongType++
		return ""
	}
	return r.short(s, limit)
}

// short returns a name that fits, and "" for one that does not. A name with control characters is counted with those
// that are too long.
func (r *reader) short(s string, limit int) string {
	control := func(c rune) bool { return c < ' ' || c == 0x7f }
	if len(s) > limit || strings.ContainsFunc(s, control) {
		r.tally.TooLong++
		return ""
	}
	return s
}

// hosts returns a host, or the hosts of a list, each once. What cannot be used is counted and left out, and so are
// hosts beyond maxHosts.
func (r *reader) hosts(fields []string) []string {
	v := r.first(fields)
	if v == nil {
		return nil
	}
	list := []json.RawMessage{v}
	if v[0] == '[' {
		// It is JSON already, so it is a list.
		_ = json.Unmarshal(v, &list)
	}
	var hosts []string
	for _, one := range list {
		var s string
		if json.Unmarshal(one, &s) != nil {
			r.tally.WrongType++
			continue
		}
		// A host that is named twice is one transfer.
		if s = r.short(s, maxText); s == "" || slices.Contains(hosts, s) {
			continue
		}
		if len(hosts) == maxHosts {
			r.tally.OverLimit++
			continue
		}
		hosts = append(hosts, s)
	}
	return hosts
}

// version returns a text, or a whole number as a text. It is "" if there is none.
func (r *reader) version() string {
	v := r.first(versionFields)
	if _, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return string(v)
	}
	return r.text(versionFields, maxText)
}

// number returns a whole number that is not negative, 0 if there is none.
func (r *reader) number(fields []string) uint64 {
	v := r.first(fields)
	if v == nil {
		return 0
	}
	// A whole number of up to 63 bits. A greater one is refused below.
	if n, err := strconv.ParseUint(string(v), 10, 63); err == nil {
		return n
	}
	// Python writes 1e6 as 1000000.0.
	if f, err := strconv.ParseFloat(string(v), 64); err == nil && f >= 0 && f < 1<<53 {
		return uint64(f)
	}
	r.tally.WrongType++
	return 0
}

// checked reports what the payload says of a check.
func (r *reader) checked() check {
	switch v := r.first(checkedFields); {
	case v == nil:
		return unchecked
	case bytes.Equal(v, []byte("true")):
		return verified
	case bytes.Equal(v, []byte("false")):
		// It was not checked; a check that failed has an event of its own.
		return unchecked
	}
	r.tally.WrongType++
	return unchecked
}

// errorText returns an error for people, cut at its limit.
func (r *reader) errorText() string {
	v := r.first(errorFields)
	var s string
	// An error that is no text is shown as JSON.
	if v == nil || json.Unmarshal(v, &s) != nil {
		s = string(v)
	}
	if len(s) <= maxError {
		return s
	}
	// Cut between two characters.
	n := maxError
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
