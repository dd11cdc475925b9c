package transfers

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// began is the time of the first event of a script; each later one is a minute after the one before.
var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// feed applies a script: a line is a type and a payload.
func feed(t testing.TB, rows *memoryRows, script string) {
	t.Helper()
	gate := event.Policy{Catalogue: event.Builtin()}
	for i, line := range strings.Split(strings.TrimSpace(script), "\n") {
		name, payload, _ := strings.Cut(strings.TrimSpace(line), " ")
		e := event.New(event.Type(name), json.RawMessage(payload))
		if _, _, err := gate.Normalize(&e); err != nil {
			t.Fatal(err)
		}
		e.Offset, e.AppendedAt = uint64(i+1), began.Add(time.Duration(i)*time.Minute)
		if _, err := New().Apply(rows, &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
}

// brief is a transfer in a line, with the offsets of its steps.
func brief(x *api.Transfer) string {
	b := fmt.Sprintf("%s %s", x.Kind, x.State)
	add := func(format string, show bool, args ...any) {
		if show {
			b += fmt.Sprintf(" "+format, args...)
		}
	}
	add("%s", x.ID != "", "id="+x.ID)
	add("%s", x.Name != "", x.Name)
	add("to %s", x.Host != "", x.Host)
	add("from %s", x.From != "", x.From)
	add("version %s", x.Version != "", x.Version)
	for _, s := range []struct {
		name string
		step *api.TransferStep
	}{{"requested", x.Requested}, {"started", x.Started}, {"stalled", x.Stalled}, {"ended", x.Ended}} {
		if s.step != nil {
			add("%s@%d", true, s.name, s.step.Offset)
		}
	}
	add("%d bytes", x.Bytes > 0, x.Bytes)
	add("%s", x.Checked != "", x.Checked)
	add("retries=%d", x.Retries > 0, x.Retries)
	add("repeats=%d", x.Repeats > 0, x.Repeats)
	add("contradictions=%d", x.Contradictions > 0, x.Contradictions)
	add("error=%q", x.Error != "", x.Error)
	return b
}

// What came of events that are late, repeated or contradictory, and of copies, is as the package says.
func TestScripts(t *testing.T) {
	for _, c := range []struct{ name, script, transfers, copies string }{
		{"all steps", `
			SYNC_REQUEST {"sync_id": "1", "dataset": "a", "host": "h1"}
			DATA_SYNC_STARTED {"sync_id": "1", "dataset": "a", "host": "h1", "source_node": "h2"}
			SYNC_STALLED {"sync_id": "1", "host": "h1"}
			DATA_SYNC_COMPLETED {"sync_id": "1", "host": "h1", "bytes_synced": 10, "version": 3, "verified": true}`,
			`data completed id=1 a to h1 from h2 version 3 requested@1 started@2 stalled@3 ended@4 10 bytes verified`,
			`a h1 version 3 from h2 10 bytes verified @4 since 4`},
		{"without ids, by the documented fields", `
			DATA_SYNC_STARTED {"host": "origin", "targets": ["h1", "h2"], "sync_type": "push"}
			DATA_SYNC_COMPLETED {"host": "h1", "config_key": "hex8_2p", "bytes_synced": 10}
			DATA_SYNC_FAILED {"target_node": "h2", "config_key": "hex8_2p", "error": "no route"}`,
			`data completed hex8_2p to h1 from origin started@1 ended@2 10 bytes
			data failed hex8_2p to h2 from origin started@1 ended@3 error="no route"`,
			`hex8_2p h1 from origin 10 bytes @2 since 2`},
		{"completion before the request, with an id", `
			DATA_SYNC_COMPLETED {"sync_id": "1", "dataset": "a", "host": "h1"}
			DATA_SYNC_STARTED {"sync_id": "1", "dataset": "a", "host": "h1"}
			SYNC_REQUEST {"sync_id": "1", "dataset": "a", "host": "h1"}
			SYNC_REQUEST {"sync_id": "1", "dataset": "a", "host": "h1"}`,
			`data completed id=1 a to h1 requested@3 started@2 ended@1 repeats=1`, `a h1 @1 since 1`},
		{"completion before the request, without an id", `
			DATA_SYNC_COMPLETED {"dataset": "a", "host": "h1"}
			SYNC_REQUEST {"dataset": "a", "host": "h1"}`,
			`data completed a to h1 ended@1
			data requested a to h1 requested@2`, `a h1 @1 since 1`},
		{"failure after completion", `
			DATA_SYNC_COMPLETED {"sync_id": "1", "dataset": "a", "host": "h1"}
			DATA_SYNC_FAILED {"sync_id": "1", "dataset": "a", "host": "h1", "error": "timeout"}
			SYNC_RETRY_REQUESTED {"sync_id": "1", "dataset": "a", "host": "h1"}`,
			`data completed id=1 a to h1 ended@1 contradictions=2`, `a h1 @1 since 1`},
		{"completion after failure", `
			DATA_SYNC_STARTED {"dataset": "a", "host": "h1"}
			SYNC_NODE_UNREACHABLE {"node_id": "h1"}
			DATA_SYNC_COMPLETED {"dataset": "a", "host": "h1"}`,
			`data completed a to h1 started@1 ended@3`, `a h1 @3 since 3`},
		{"damaged after completion, then sent again", `
			DATA_SYNC_COMPLETED {"dataset": "a", "host": "h1", "version": "7", "verified": true}
			SYNC_CHECKSUM_FAILED {"dataset": "a", "host": "h1"}
			DATA_SYNC_STARTED {"dataset": "a", "host": "h1"}
			DATA_SYNC_COMPLETED {"dataset": "a", "host": "h1", "version": "7"}`,
			`data completed a to h1 version 7 started@3 ended@4 retries=1`, `a h1 version 7 @4 since 4`},
		{"two requests without ids, and a start again", `
			SYNC_REQUEST {"dataset": "a", "host": "h1"}
			SYNC_REQUEST {"dataset": "a", "host": "h1"}
			DATA_SYNC_STARTED {"dataset": "a", "host": "h1"}
			DATA_SYNC_STARTED {"dataset": "a", "host": "h1"}`,
			`data running a to h1 requested@1 started@3 repeats=2`, ``},
		{"two requests with ids", `
			SYNC_REQUEST {"sync_id": "1", "dataset": "a", "host": "h1"}
			SYNC_REQUEST {"sync_id": "2", "dataset": "a", "host": "h1"}
			DATA_SYNC_STARTED {"sync_id": "2", "host": "h1"}
			SYNC_REQUEST {"sync_id": "3", "dataset": "a", "host": "h1"}
			DATA_SYNC_COMPLETED {"sync_id": "1", "host": "h1"}`,
			`data completed id=1 a to h1 requested@1 ended@5
			data running id=2 a to h1 requested@2 started@3
			data requested id=3 a to h1 requested@4`, `a h1 @5 since 5`},
		{"a request without a name supersedes none of another name", `
			SYNC_REQUEST {"sync_id": "1", "dataset": "a", "host": "h1"}
			SYNC_REQUEST {"sync_id": "2", "host": "h1"}`,
			`data requested id=1 a to h1 requested@1
			data requested id=2 to h1 requested@2`, ``},
		{"failed and retried", `
			DATA_SYNC_STARTED {"dataset": "a", "host": "h1", "bytes": 5}
			DATA_SYNC_FAILED {"dataset": "a", "host": "h1", "error": "e1"}
			SYNC_RETRY_REQUESTED {"dataset": "a", "host": "h1"}
			DATA_SYNC_STARTED {"dataset": "a", "host": "h1"}
			DATA_SYNC_FAILED {"dataset": "a", "host": "h1", "error": "e2"}
			DATA_SYNC_FAILED {"dataset": "a", "host": "h1", "error": "e3"}
			DATA_SYNC_STARTED {"dataset": "a", "host": "h1"}`,
			`data running a to h1 requested@3 started@7 retries=2 repeats=1 error="e3"`, ``},
		{"a model to all its hosts", `
			MODEL_SYNC_REQUESTED {"model": "m", "target_nodes": ["h1", "h2", "h3"]}
			MODEL_DISTRIBUTION_STARTED {"model_id": "m", "version": 4}
			P2P_MODEL_SYNCED {"model": "m", "node_id": "h2", "source_node": "h9"}
			DISTRIBUTION_INCOMPLETE {"model_path": "m", "actual_nodes": 1, "required_nodes": 3}
			MODEL_DISTRIBUTION_COMPLETE {"model": "m", "host": "h1"}`,
			`model completed m to h1 version 4 requested@1 started@2 ended@5
			model completed m to h2 from h9 version 4 requested@1 started@2 ended@3
			model failed m to h3 version 4 requested@1 started@2 ended@4`,
			`m h1 version 4 @5 since 5
			m h2 version 4 from h9 @3 since 3`},
		{"a distribution that names no host", `
			MODEL_DISTRIBUTION_STARTED {"config_key": "hex8_2p"}
			MODEL_DISTRIBUTION_COMPLETE {"config_key": "hex8_2p"}`,
			`model completed hex8_2p started@1 ended@2`, ``},
		{"an id whose host comes later", `
			MODEL_SYNC_REQUESTED {"model": "m", "distribution_id": "d"}
			MODEL_DISTRIBUTION_STARTED {"distribution_id": "d", "target_nodes": ["h1", "h2"]}
			MODEL_DISTRIBUTION_COMPLETE {"distribution_id": "d"}`,
			`model completed id=d m to h1 requested@1 started@2 ended@3
			model completed id=d to h2 started@2 ended@3`, `m h1 @3 since 3`},
		{"copies without transfers, and hosts that are gone", `
			DATABASE_CREATED {"db_path": "games/a.db", "node_id": "h1", "size_bytes": 9}
			DATABASE_CREATED {"db_path": "games/a.db", "node_id": "h2"}
			P2P_MODEL_SYNCED {"model": "games/a.db", "host": "h1"}
			MODEL_CORRUPTED {"model": "games/a.db", "host": "h1"}
			NODE_TERMINATED {"node_id": "h2"}
			NODE_TERMINATED {"node_id": "h7"}`,
			`model completed games/a.db to h1 ended@3`,
			`games/a.db h1 9 bytes @1 since 1
			games/a.db h2 gone @2 since 2
			games/a.db h1 damaged @4 since 3`},
		{"the same version again", `
			GAME_SYNCED {"dataset": "a", "target": "h1", "version": "7"}
			GAME_SYNCED {"dataset": "a", "target": "h1", "version": "7"}
			GAME_SYNCED {"game_ids": [1, 2], "target": "h1"}`,
			`games completed a to h1 version 7 ended@1
			games completed a to h1 version 7 ended@2
			games completed to h1 ended@3`, `a h1 version 7 @2 since 1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			rows := newRows()
			feed(t, rows, c.script)
			page := must[api.TransferPage](t)(List(rows, Query{Limit: 100, Now: began}))
			var got []string
			for _, x := range page.Transfers {
				got = append(got, brief(&x))
			}
			if diff := cmp.Diff(lines(c.transfers), got); diff != "" {
				t.Error(diff)
			}
			got = nil
			for _, name := range []string{"a", "hex8_2p", "m", "games/a.db"} {
				for _, x := range must[api.CopyPage](t)(Where(rows, name, "", 100)).Copies {
					line := x.Name + " " + x.Host
					for _, part := range []struct {
						show bool
						text string
					}{{x.Version != "", "version " + x.Version}, {x.From != "", "from " + x.From},
						{x.Bytes > 0, fmt.Sprintf("%d bytes", x.Bytes)}, {x.Checked != "", x.Checked}, {x.HostGone, "gone"}} {
						if part.show {
							line += " " + part.text
						}
					}
					got = append(got, fmt.Sprintf("%s @%d since %d", line, x.Offset, 1+x.Since.Sub(began)/time.Minute))
				}
			}
			if diff := cmp.Diff(lines(c.copies), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// lines returns the lines of a text, trimmed, none if it is empty.
func lines(text string) (list []string) {
	for line := range strings.Lines(text) {
		list = append(list, strings.TrimSpace(line))
	}
	return list
}

// What is overdue depends on the time of the question alone, and on the last step and the deadline that it names.
func TestOverdue(t *testing.T) {
	rows := newRows()
	feed(t, rows, `
		DATA_SYNC_STARTED {"dataset": "hour", "host": "h1"}
		MODEL_DISTRIBUTION_STARTED {"model": "half", "host": "h1"}
		DATA_SYNC_STARTED {"dataset": "named", "host": "h2", "deadline_seconds": 60}
		DATA_SYNC_STARTED {"dataset": "ended", "host": "h2", "deadline_seconds": 60}
		DATA_SYNC_COMPLETED {"dataset": "ended", "host": "h2"}
		SYNC_STALLED {"dataset": "hour", "host": "h1"}`)
	for _, c := range []struct {
		after time.Duration
		host  string
		want  string
	}{
		{3*time.Minute - 1, "", ""},
		{3 * time.Minute, "", "named"},
		{31*time.Minute - 1, "", "named"},
		{31 * time.Minute, "", "named half"},
		{64 * time.Minute, "", "named half"},
		{65 * time.Minute, "", "named half hour"},
		{65 * time.Minute, "h1", "hour half"},
	} {
		q := Query{Overdue: true, Now: began.Add(c.after), Host: c.host, Limit: 100}
		var got []string
		for _, x := range must[api.TransferPage](t)(List(rows, q)).Transfers {
			got = append(got, x.Name)
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("after %s, of host %q: %q, want %q", c.after, c.host, s, c.want)
		}
	}
}

// Payloads of wrong types and sizes are counted, and everything else in them is used.
func TestHostilePayloads(t *testing.T) {
	long := strings.Repeat("é", 200)
	var many []string
	for i := range 70 {
		many = append(many, fmt.Sprintf(`"n%02d"`, i))
	}
	for _, c := range []struct {
		payload string
		want    api.TransferTally
	}{
		{`{}`, api.TransferTally{Unnamed: 1}},
		{`{"host": 7}`, api.TransferTally{Unnamed: 1, WrongType: 1}},
		{`{"host": null, "dataset": null}`, api.TransferTally{Unnamed: 1}},
		{`{"host": "` + long + `", "dataset": "` + long + `", "sync_id": "a\u0000b"}`,
			api.TransferTally{Unnamed: 1, TooLong: 3}},
		{`{"targets": ["h1", 5, {"host": "h2"}, ["h3"], "h1", ""]}`, api.TransferTally{Hosts: 1, WrongType: 3}},
		{`{"targets": 3, "host": "h1"}`, api.TransferTally{Hosts: 1, WrongType: 1}},
		{`{"targets": [` + strings.Join(many, ", ") + `]}`, api.TransferTally{Hosts: 64, OverLimit: 6}},
		{`{"host": "h1", "bytes": -1, "files": "many", "verified": 1, "version": 1.5, "deadline_seconds": "soon"}`,
			api.TransferTally{Hosts: 1, WrongType: 5}},
		{`{"host": "h1", "bytes": 1e300, "deadline_seconds": 99999999999, "error": "` + long + `"}`,
			api.TransferTally{Hosts: 1, WrongType: 1}},
		{`{"host": "../../%2f%00", "dataset": "a/b/../c?d"}`, api.TransferTally{Hosts: 1}},
	} {
		rows := newRows()
		feed(t, rows, "DATA_SYNC_FAILED "+c.payload)
		c.want.Events = 1
		page := must[api.TransferPage](t)(List(rows, Query{Limit: 1000, Now: began}))
		if diff := cmp.Diff(c.want, page.Totals); diff != "" {
			t.Errorf("%s: %s", c.payload, diff)
		}
		if want := int(c.want.Hosts); len(page.Transfers) != want {
			t.Errorf("%s: %d transfers, want %d", c.payload, len(page.Transfers), want)
		}
		for _, x := range page.Transfers {
			if len(x.Error) > maxError || !json.Valid([]byte(fmt.Sprintf("%q", x.Error))) {
				t.Errorf("%s: the error is %q", c.payload, x.Error)
			}
		}
	}
	// A payload that no gate has passed, too.
	rows := newRows()
	bare := event.Event{Type: "DATA_SYNC_FAILED", Payload: json.RawMessage(`[1`), Offset: 1}
	if _, err := New().Apply(rows, &bare); err != nil {
		t.Fatal(err)
	}
}

// Keys lists the rows that Show shows, page by page.
func TestKeysAndShow(t *testing.T) {
	rows := newRows()
	feed(t, rows, `
		DATA_SYNC_COMPLETED {"dataset": "a", "targets": ["h1", "h2"]}
		DATABASE_CREATED {"dataset": "b/c", "host": "h1"}`)
	want := []string{"c", "t/0000000000000001.00", "t/0000000000000001.01",
		"w/a/data/h1", "w/a/data/h2", "w/b%2Fc/data/h1"}
	var got []string
	for after := ""; ; {
		keys := must[[]string](t)(New().Keys(rows, after, 2))
		if len(keys) == 0 {
			break
		}
		got = append(got, keys...)
		after = keys[len(keys)-1]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	for _, k := range want {
		if shown, found, err := New().Show(rows, k); !found || err != nil || !json.Valid(shown) {
			t.Errorf("%s: %s %t %v", k, shown, found, err)
		}
	}
	for _, k := range []string{"n/h1", "t/", "w/a", "h/h1/0000000000000001.00", ""} {
		if _, found, err := New().Show(rows, k); found || err != nil {
			t.Errorf("%q: %t %v", k, found, err)
		}
	}
}
