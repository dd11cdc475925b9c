package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/event"
)

// anEvent draws a normalised event; every optional field comes and goes.
func anEvent(t *rapid.T) event.Event {
	text := rapid.SampledFrom([]string{"", "trainer-3", "hex8_2p", "ünï", "a\nb"})
	types := []event.Type{event.TrainingCompleted, event.ModelPromoted, "MY_OWN", "QUIET"}
	e := event.New(rapid.SampledFrom(types).Draw(t, "type"),
		fmt.Appendf(nil, `{"epoch": %d}`, rapid.IntRange(0, 5).Draw(t, "epoch")))
	e.Source, e.Key, e.CorrelationID = text.Draw(t, "source"), text.Draw(t, "key"), text.Draw(t, "chain")
	e.CausationID, e.DedupID = text.Draw(t, "cause"), text.Draw(t, "dedup")
	e.Original, e.Foreign = text.Draw(t, "original"), rapid.Bool().Draw(t, "foreign")
	e.NoDedup = rapid.Bool().Draw(t, "nodedup")
	if rapid.Bool().Draw(t, "valued") {
		e.Value = "my_value"
	}
	e.Trace = rapid.SampledFrom([]event.Trace{{}, {}, {TraceID: [16]byte{1}, SpanID: [8]byte{2}, Flags: 1},
		{TraceID: [16]byte{1}, SpanID: [8]byte{3}}}).Draw(t, "trace")
	if rapid.Bool().Draw(t, "timed") {
		e.Time = time.Unix(0, rapid.Int64().Draw(t, "time")).UTC()
	}
	return e
}

// Each way in which the policy of a type has rows deduplicate; MY_OWN has none.
var policies = event.NewDedupPolicies(map[event.Type]event.DedupPolicy{
	event.TrainingCompleted: {Mode: event.DedupFields, Fields: []string{"epoch", "run"}},
	event.ModelPromoted:     {Mode: event.DedupContent},
	"QUIET":                 {Mode: event.DedupOff},
})

func batchOf(events []event.Event) *Batch {
	b := &Batch{Policies: policies}
	for i := range events {
		b.Add(&events[i], events[i].Hash())
	}
	return b
}

// commands has one of every kind, with every field set.
func commands() []Command {
	filter := event.Filter{Types: []string{"training.*"}, Categories: []string{"model"}, Sources: []string{"a", "b"},
		Keys: []string{"k"}, CorrelationIDs: []string{"c"}}
	member := Member{ID: "n1", RaftAddr: "r", HTTPAddr: "h", Incarnation: "i", FeatureLevel: 3, Version: "v"}
	return []Command{
		CursorCreate{Name: "c", Start: Position{AtOffset, 7}, Filter: filter, Policy: CursorPolicy{1, 2, 3}},
		CursorOpen{"c", "o"}, CursorCommit{Name: "c", Offset: 9, Generation: 2},
		CursorSeek{"c", Position{AtEnd, 0}, "s"}, CursorDelete{"c"},
		CursorChange{Name: "c", Filter: filter, Policy: CursorPolicy{1, 2, 3}},
		SettingSet{"k", "v"}, Trim{Before: 5, Force: true}, Trim{Retention: true}, Tick{},
		TermStart{ClusterID: "id", Members: []Member{member}, Seen: []election.TermSeen{{Term: 4, Leader: "n2"}}, Cause: "x"},
		Intent{"n2", "drain"}, IntentAbort{}, Register{[]byte("[]")}, MemberPut{member}, MemberRemove{"n1"},
		FlowPut{[]byte("[]")}, FlowRemove{"f"},
		ClockStep{To: time.Unix(1, 2), Agreed: []string{"n1", "n2"}},
		TermStart{Cause: "heartbeat_timeout", Silence: time.Second},
		VoterHealth{Voter: "n2", LastContactMs: -1, Reason: "raft"},
		OutageViews{
			Views: []election.View{{
				Voter:       "n1",
				Journal:     "j",
				Seq:         7,
				Kind:        "lost",
				Began:       time.Unix(1, 2).UTC(),
				Ended:       time.Unix(3, 4).UTC(),
				Term:        3,
				Leader:      "n2",
				Cause:       "unreachable",
				Refused:     9,
				Unreachable: []string{"n2", "n3"},
			}},
			Up:  []election.Up{{Voter: "n1", Since: time.Unix(5, 6).UTC(), Before: time.Unix(4, 5).UTC()}},
			Led: []election.Span{{Term: 3, Leader: "n1", From: time.Unix(7, 8).UTC(), To: time.Unix(9, 10).UTC()}},
		},
		SplitBrain{Term: 4, Leaders: []string{"n1", "n2"}},
		CatchUp{Member: "n3", AtRisk: true, Trailing: 1, Rate: 2, LogRate: 3, TruncatedIn: 4, Left: 5},
		MemberVote{ID: "n4", Wanted: true, Reason: "join"},
		DeadLetter{Cursor: "c", Generation: 2, Offset: 7, Handler: "h", Error: "e", Attempts: 3,
			FirstFailed: time.Unix(1, 2).UTC(), Event: []byte("copy")},
		Redrive{Letters: []uint64{1, 300}, To: "d"}, Purge{Letters: []uint64{4}, OlderThan: time.Hour},
		LetterImport{Letters: []ImportedLetter{{Origin: [OriginSize]byte{1, 2}, From: "a.db row 1", Error: "e",
			Attempts: 2, Failed: time.Unix(3, 4).UTC(), Event: []byte("copy")}}},
		RoleAcquire{Role: "PROMOTION_LEADER", Holder: "gpu-1:7", Session: "s1", TTL: 15 * time.Second, Wait: true},
		RoleRenew{Leases: []RoleLease{{Role: "PROMOTION_LEADER", Fence: 7}, {Role: "SYNC", Fence: 300}}},
		RoleRelease{Role: "PROMOTION_LEADER", Session: "s1", Fence: 7},
		ResourceSet{Name: "net:gpu-1", Capacity: 1000, Unit: "Mbit/s", Preemptible: true}, ResourceRemove{Name: "net:gpu-1"},
		AllocationRequest{ID: "i", Holder: "gpu-1:7", Amounts: []Amount{{"net:gpu-1", 50}, {"transfers:gpu-1", 1}},
			Priority: PriorityHigh, TTL: time.Minute, Wait: true},
		AllocationRenew{Leases: []AllocationLease{{"i", 7}, {"j", 300}}}, AllocationRelease{ID: "i"},
		CursorCommit{Name: "c", Offset: 7, Generation: 2, Lease: RoleLease{Role: "PROMOTION_LEADER", Fence: 7}},
		GroupSettle{Name: "g", Generation: 2, Term: 3, Done: []Range{{4, 4}}, Lease: RoleLease{Role: "R", Fence: 7}},
		GroupDead{Term: 3, Letter: DeadLetter{Cursor: "g", Offset: 7, Event: []byte("copy"),
			Lease: RoleLease{Role: "R", Fence: 7}}},
		DeadLetter{Cursor: "c", Offset: 7, Event: []byte("copy"), Lease: RoleLease{Role: "R", Fence: 7}},
		RoleRenewClaim{Role: "R", Session: "s1"},
		AllocationRenewClaim{ID: "i", Amounts: []Amount{{"net:gpu-1", 50}, {"transfers:gpu-1", 1}}},
		Schedule{ID: "s1", At: time.Unix(9, 8).UTC(), NoDedup: true, Event: []byte("copy")}, Unschedule{ID: "s1"},
		ViewDefine{Name: "v", Declaration: "{}", Revision: 300}, ViewRemove{Name: "v"},
		ViewSkip{ViewEmission{View: "v", Generation: 2, From: 300, To: 400}},
		TokenCreate{Name: "trainer", ID: "01ab", Secret: SecretDigest{1, 2}, Roles: []string{"subscriber", "publisher"},
			Types: []string{"TRAINING_*"}, Cursors: []string{"trainer-*"}, TTL: time.Hour, By: "root"},
		TokenRotate{Name: "trainer", Secret: SecretDigest{3}, Grace: time.Hour}, TokenRevoke{Name: "trainer"},
		Act{By: "ada", Action: "backup", Target: "n1", Outcome: "failed", Reason: "broken_off"},
		Act{By: "ada", Action: "setting.set", Target: "k", Detail: "v", Of: SettingSet{Key: "k", Value: "v"}},
		Act{By: "ada", Action: "type.register", Of: Register{Definitions: []byte("[]")}},
		LetterKeep{Origin: [OriginSize]byte{3}, From: "p1", Letter: DeadLetter{Cursor: "live.h", Offset: 7, Handler: "h",
			Error: "e", Attempts: 3, FirstFailed: time.Unix(1, 2).UTC(), Event: []byte("copy")}},
		GroupCreate{Name: "g", Start: Position{AtStart, 0}, Filter: filter, Policy: CursorPolicy{1, 2, 3},
			Group: GroupPolicy{time.Second, 4, 5}},
		GroupSettle{Name: "g", Generation: 2, Term: 3, Reserved: 400, Open: 7, Done: []Range{{4, 4}, {7, 300}},
			Retries: []GroupRetry{{Offset: 5, Deliveries: 2, After: time.Unix(1, 2).UTC(), Error: "e"}, {Offset: 6}}},
		GroupSettle{Name: "g"},
		CursorsScanned{Scans: []CursorScan{
			{Name: "c", Created: 1, Generation: 2, From: 300, To: 4000, Match: true}, {Name: "d"}}},
		GroupDead{Term: 3, Letter: DeadLetter{Cursor: "g", Generation: 2, Offset: 7, Handler: "h", Error: "e",
			Attempts: 3, FirstFailed: time.Unix(1, 2).UTC(), Event: []byte("copy")}},
		ClientPut{ID: "trainer-3", Host: "gpu-1", PID: 77, Version: "v", TTL: time.Minute,
			Subscriptions: []ClientSubscription{
				{Name: "s", Filter: filter, Where: "payload.epoch > 3", Mode: "durable", Critical: true,
					State: "attached", HandlerTimeout: time.Second, Cursor: "s"}}},
		ClientPut{ID: "trainer-3", Coordinator: "training_coordinator",
			Subscriptions: []ClientSubscription{{Name: "s", Filter: filter}}},
		ClientPut{ID: "trainer-3", Subscriptions: []ClientSubscription{{Name: "s"}, {Name: "t",
			Health: &HandlerHealth{TimedOut: 300, FailedAttempts: 301, Breaker: "half-open", LastError: "e",
				LastErrorAt: time.Unix(1, 2).UTC()}}, {Name: "u", Health: &HandlerHealth{}}}},
		Pressure{Active: true, Requests: 300, Bytes: 1 << 40, Refused: 7},
		LagReport{Cursor: "c", Created: 1, Lag: 300},
		ChainOverdue{CorrelationID: "run-7", Flow: "f", From: "A", FromOffset: 300,
			Since: time.Unix(1, 2).UTC(), Missing: "B", Deadline: time.Hour},
		DedupPolicySet{Type: "T", Policy: event.DedupPolicy{Mode: event.DedupFields, Fields: []string{"a", "b"},
			Window: time.Hour}},
	}
}

func TestTheTableOfKindsIsWhole(t *testing.T) {
	seen := map[Kind]bool{KindPublish: true, KindPublishFenced: true, KindPublishScheduled: true, KindPublishView: true}
	for _, c := range commands() {
		seen[c.Kind()] = true
	}
	for k, row := range kinds {
		known, leveled := row.decode != nil, row.level >= LevelBase && row.level <= LevelNewest
		if known != seen[Kind(k)] || known != leveled || known != (row.origin == ofCaller || row.origin == ofLeader) ||
			known != (row.writes == little || row.writes == much) {
			t.Errorf("kind %d: level %d, origin %d, writes %d, decoded: %v, tested: %v",
				k, row.level, row.origin, row.writes, known, seen[Kind(k)])
		}
	}
}

func prepared(t interface{ Fatal(...any) }, r Request) Request {
	r, err := r.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// halfCommand is a setting without its value.
type halfCommand struct{}

func (halfCommand) Kind() Kind               { return KindSettingSet }
func (halfCommand) appendTo(b []byte) []byte { return append(b, 1, 'k') }

// What no node could decode never becomes a request that may be proposed.
func TestAnUndecodableRequestIsNotPrepared(t *testing.T) {
	events := []event.Event{event.New("A", map[string]any{"n": 1})}
	for name, r := range map[string]Request{
		"a command past its bound":     {Command: SettingSet{Key: strings.Repeat("k", maxString+1), Value: "1"}},
		"events of no Publish":         {Command: Tick{}, Batch: batchOf(events)},
		"a command of an unknown kind": {Command: futureCommand{}},
		"an act past its bound":        {Command: Act{Target: strings.Repeat("k", MaxActText+1)}},
		"an act that publishes":        {Command: Act{Of: Publish{Count: 1}}, Batch: batchOf(events)},
		"an act of an act":             {Command: Act{Of: Act{By: "ada"}}},
		"an act of a leader's command": {Command: Act{Of: Tick{}}},
		"an act of an unknown kind":    {Command: Act{Of: futureCommand{}}},
		"an act with half a command":   {Command: Act{Of: halfCommand{}}},
	} {
		if _, err := r.Prepare(); err == nil {
			t.Errorf("%s was prepared", name)
		}
		if _, err := DecodeRequest(r.Encode()); err == nil {
			t.Errorf("%s can be decoded: this test proves nothing", name)
		}
	}
}

// Decoding a frame gives the commands and events that were encoded, whatever the sizes of
// the requests; and a forwarded request, and a prepared one, make the same frame.
func TestFrameRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b, forwarded Builder
		var want []event.Event
		var wantCommands []Command
		for range rapid.IntRange(0, 4).Draw(t, "requests") {
			events := rapid.SliceOfN(rapid.Custom(anEvent), 1, 20).Draw(t, "events")
			command := Publish{Producer: "p", Sequence: 3, Count: len(events)}
			switch rapid.SampledFrom([]string{"", "fenced", "scheduled", "emitted"}).Draw(t, "kind") {
			case "fenced":
				command.Lease = RoleLease{Role: "PROMOTION_LEADER", Fence: 7}
			case "scheduled":
				command.Scheduled = "s1"
			case "emitted":
				command.Emission = ViewEmission{View: "v", Generation: 2, From: 300, To: 400}
			}
			r := Request{Command: command, Batch: batchOf(events)}
			again, err := DecodeRequest(r.Encode())
			if err != nil {
				t.Fatal(err)
			}
			b.Add(r.Command, r.Batch)
			forwarded.AddRequest(prepared(t, again))
			want, wantCommands = append(want, events...), append(wantCommands, r.Command)
		}
		for _, c := range commands() {
			b.Add(c, nil)
			forwarded.AddRequest(prepared(t, Request{Command: c}))
		}
		wantCommands = append(wantCommands, commands()...)
		seal := Seal{Time: time.Unix(5, 6).UTC(), Proposer: "n1", DigestIndex: 9, Digest: [32]byte{1}}
		seal.Compress = rapid.Bool().Draw(t, "compress")
		data := b.Encode(seal)
		if other := forwarded.Encode(seal); seal.Compress && !bytes.Equal(data, other) {
			t.Fatal("forwarded requests make another frame")
		}
		f, err := Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wantCommands, f.Commands); diff != "" {
			t.Fatal(diff)
		}
		if f.Proposer != "n1" || f.DigestIndex != 9 || f.Digest != seal.Digest || !f.Time.Equal(seal.Time) {
			t.Fatalf("head: %+v", f)
		}
		checkEvents(t, f, want)
	})
}

// Every ack batch decodes: the state machine refuses an invalid one, and no node stops at it.
func TestAnyGroupSettleDecodes(t *testing.T) {
	number := rapid.OneOf(rapid.Uint64Range(0, 9), rapid.Uint64())
	rapid.Check(t, func(t *rapid.T) {
		want := GroupSettle{Name: "g",
			Done: rapid.SliceOf(rapid.Custom(func(t *rapid.T) Range {
				return Range{number.Draw(t, "from"), number.Draw(t, "to")}
			})).Draw(t, "done"),
			Retries: rapid.SliceOf(rapid.Custom(func(t *rapid.T) GroupRetry {
				return GroupRetry{
					Offset:     number.Draw(t, "offset"),
					Deliveries: number.Draw(t, "deliveries"),
					Error:      rapid.String().Draw(t, "error"),
				}
			})).Draw(t, "retries")}
		var b Builder
		b.Add(want, nil)
		f, err := Decode(b.Encode(Seal{}))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]Command{want}, f.Commands, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
		done, err := DecodeRanges(AppendRanges(nil, want.Done))
		if err != nil || !slices.Equal(done, want.Done) {
			t.Fatalf("ranges %v: %v %v", want.Done, done, err)
		}
		long, err := DecodeRetries(AppendRetries(nil, []GroupRetry{{Error: strings.Repeat("x", maxString+1)}}))
		if err != nil || len(long[0].Error) != maxString {
			t.Fatalf("a long error: %v", err)
		}
		retries, err := DecodeRetries(AppendRetries(nil, want.Retries))
		if err != nil || !slices.Equal(retries, want.Retries) {
			t.Fatalf("retries %v: %v %v", want.Retries, retries, err)
		}
	})
}

func checkEvents(t *rapid.T, f *Frame, want []event.Event) {
	if len(want) == 0 {
		if f.Header != nil {
			t.Fatal("a block without events")
		}
		return
	}
	var got []event.Event
	if err := DecodeEvents(f.Header, f.Block.Body, func(row int, e event.Event) bool {
		got = append(got, e)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	stored := slices.Clone(want)
	for i := range stored {
		stored[i].NoDedup = false // it is in the columns
	}
	if diff := cmp.Diff(stored, got, cmpopts.IgnoreUnexported(event.Event{}), cmpopts.EquateEmpty()); diff != "" {
		t.Fatal(diff)
	}
	for i := range want {
		hash := want[i].Hash()
		kind, k := DedupContent, Key(hash[:16])
		compared := k
		switch want[i].Type {
		case event.TrainingCompleted:
			kind = DedupTypeFields
			of, _ := policies.Of(want[i].Type).Key(want[i].Payload)
			compared = Key(of[:16])
		case event.ModelPromoted:
			kind = DedupTypeContent
		case "QUIET":
			kind = DedupTypeOff
		}
		if want[i].DedupID != "" {
			kind, k = DedupID, KeyOfID(want[i].DedupID)
		}
		if want[i].NoDedup {
			kind, k = DedupOff, Key(hash[:16])
		}
		c := f.Columns
		if c.KindAt(i) != kind || c.KeyAt(i) != k || c.ContentAt(i) != [8]byte(hash[:8]) {
			t.Fatalf("row %d: kind %d key %x content %x", i, c.KindAt(i), c.KeyAt(i), c.ContentAt(i))
		}
		if c.ByPolicy(i) && c.PolicyKeyAt(i) != compared {
			t.Fatalf("row %d: key %x of its policy", i, c.PolicyKeyAt(i))
		}
	}
}

// A packet holds what was packed. Where a node keeps every event as it is, the
// frame is the one that the events make without a packet.
func TestPacketRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.SliceOfN(rapid.Custom(anEvent), 1, 60).Draw(t, "events")
		p := Pack(events)
		o, err := p.Open(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		kept, packed := o.Batch(o.Rows()), batchOf(events)
		kept.Policies = policies
		if err := o.Each(func(row int, e *event.Event) error {
			if diff := cmp.Diff(events[row], *e, cmpopts.IgnoreUnexported(event.Event{}), cmpopts.EquateEmpty()); diff != "" {
				t.Fatal(diff)
			}
			kept.Keep(e, e.Hash())
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		var b, plain Builder
		b.Add(Publish{Count: len(events)}, kept)
		plain.Add(Publish{Count: len(events)}, packed)
		seal := Seal{Time: time.Unix(5, 6).UTC(), Compress: true}
		if data, want := b.Encode(seal), plain.Encode(seal); !bytes.Equal(data, want) {
			t.Fatalf("%x, want %x", data, want)
		}
		if _, err := p.Open(RawSize(p.Body) - 1); !errors.Is(err, ErrTooLarge) {
			t.Fatal(err)
		}
	})
}

// A copy of an event that is put into a block again makes the block that the event
// itself makes with dedup off.
func TestCopyRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.SliceOfN(rapid.Custom(anEvent), 1, 20).Draw(t, "events")
		var copied Batch
		for i := range events {
			text := EncodeCopy(&events[i])
			events[i].NoDedup = true
			if err := copied.AddCopy(text); err != nil {
				t.Fatal(err)
			}
			again, err := DecodeCopy(text)
			again.NoDedup = true
			if diff := cmp.Diff(events[i], again, cmpopts.IgnoreUnexported(event.Event{}),
				cmpopts.EquateEmpty()); err != nil || diff != "" {
				t.Fatal(err, diff)
			}
			cut := rapid.IntRange(0, len(text)-1).Draw(t, "cut")
			if events[i].Trace.Valid() && cut == len(text)-traceSize {
				continue // a copy of the event without its trace
			}
			if _, err := DecodeCopy(text[:cut]); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("cut at %d: %v", cut, err)
			}
		}
		if got, want := EncodeBlock(&copied), EncodeBlock(batchOf(events)); !reflect.DeepEqual(got, want) {
			t.Fatalf("%x, want %x", got, want)
		}
	})
}

// A body with bytes that do not decompress to its events is refused before it costs memory:
// the cluster would store and replicate them unseen.
func TestNothingHidesInABody(t *testing.T) {
	var raw []byte
	for i := range 4000 {
		raw = fmt.Appendf(raw, "event %d, ", i*7919)
	}
	coder := func(options ...zstd.EOption) []byte {
		enc, err := zstd.NewWriter(nil, options...)
		if err != nil {
			t.Fatal(err)
		}
		return enc.EncodeAll(raw, nil)
	}
	good := coder()
	var unsized bytes.Buffer
	enc, err := zstd.NewWriter(&unsized)
	if err != nil {
		t.Fatal(err)
	}
	for range 300 {
		enc.Write(raw)
	}
	enc.Close()
	skipped := append(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, 0x184D2A50), 1000),
		make([]byte, 1000)...)
	bodies := map[string][]byte{
		"after":           slices.Concat(good, skipped),
		"before":          slices.Concat(skipped, good),
		"a second frame":  slices.Concat(good, good),
		"cut":             good[:len(good)-1],
		"no size":         unsized.Bytes(),
		"more than it is": coder(zstd.WithEncoderPadding(len(raw) + 1000)),
	}
	for name, data := range bodies {
		body := binary.AppendUvarint([]byte{codecZstd, 0, 0, 0, 0}, uint64(len(raw)))
		body = resum(append(body, data...))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := decompress(body)
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, ErrCorrupt) || grown > 4<<20 {
			t.Errorf("%s: %d bytes, %v; %d bytes made", name, len(got), err, grown)
		}
	}
	body := binary.AppendUvarint([]byte{codecZstd, 0, 0, 0, 0}, uint64(len(raw)))
	if got, err := decompress(resum(append(body, good...))); err != nil || !bytes.Equal(got, raw) {
		t.Errorf("as it should be: %d bytes, %v", len(got), err)
	}
}

// A packet's lists are not trusted: the header in the log is made from the rows, and each row
// reads as it was sent.
func TestPacketListsAreNotTrusted(t *testing.T) {
	e := event.New(event.TrainingCompleted, nil)
	good := Pack([]event.Event{e, e})
	for name, lists := range map[string][]string{
		"unused": {string(e.Type), "OTHER"}, "twice": {string(e.Type), string(e.Type)},
	} {
		p := good
		p.Types = lists
		o, err := p.Open(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		batch := o.Batch(o.Rows())
		if err := o.Each(func(_ int, e *event.Event) error { batch.Keep(e, e.Hash()); return nil }); err != nil {
			t.Fatal(err)
		}
		var b Builder
		b.Add(Publish{Count: 2}, batch)
		f, err := Decode(b.Encode(Seal{Compress: true}))
		if err != nil || !slices.Equal(f.Header.Types, []string{string(e.Type)}) {
			t.Errorf("%s: %v %v", name, f.Header.Types, err)
		}
	}
	p := good
	p.Types = nil
	if _, err := p.Open(1 << 20); !errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
}

// A block is only skipped for a filter that none of its events passes.
func TestMayContainNeverLies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.SliceOfN(rapid.Custom(anEvent), 1, 30).Draw(t, "events")
		pick := func(label string, of func(event.Event) string) []string {
			if s := of(rapid.SampledFrom(events).Draw(t, label)); s != "" && rapid.Bool().Draw(t, "with "+label) {
				return []string{s}
			}
			return nil
		}
		f := event.Filter{
			Types:          pick("type", func(e event.Event) string { return string(e.Type) }),
			Sources:        pick("source", func(e event.Event) string { return e.Source }),
			Keys:           pick("key", func(e event.Event) string { return e.Key }),
			CorrelationIDs: pick("chain", func(e event.Event) string { return e.CorrelationID }),
		}
		m := f.Compile(event.Builtin())
		h, err := DecodeHeader(EncodeBlock(batchOf(events)).Header)
		if err != nil {
			t.Fatal(err)
		}
		passes := slices.ContainsFunc(events, func(e event.Event) bool { return m.Match(&e) })
		if passes && !h.MayContain(&m) {
			t.Fatalf("%+v is in the block", f)
		}
	})
}

func exampleFrame(compress bool) []byte {
	var b Builder
	var events []event.Event
	for i := range 40 {
		e := event.New(event.TrainingCompleted, fmt.Appendf(nil, `{"epoch": %d, "loss": 0.%d}`, i, i*7919))
		e.Source, e.Key = "trainer", fmt.Sprint(i%3)
		events = append(events, e)
	}
	b.Add(Publish{Producer: "p", Sequence: 1, Count: len(events)}, batchOf(events))
	for _, c := range commands() {
		b.Add(c, nil)
	}
	return b.Encode(Seal{Time: time.Unix(1, 0), Proposer: "n1", Compress: compress})
}

// tracedFrame is a frame of two events, one of them with a trace context.
func tracedFrame() []byte {
	events := []event.Event{event.New("T", nil), event.New("T", nil)}
	events[1].Trace = event.Trace{TraceID: [16]byte{1}, SpanID: [8]byte{2}, Flags: 1}
	var b Builder
	b.Add(Publish{Count: len(events)}, batchOf(events))
	return b.Encode(Seal{Time: time.Unix(1, 0), Proposer: "n1"})
}

// Every flipped bit and every cut of a frame is found.
func TestEveryFlippedBitIsFound(t *testing.T) {
	whole := exampleFrame(true)
	for i := range len(whole) * 8 {
		data := slices.Clone(whole)
		data[i/8] ^= 1 << (i % 8)
		if _, err := Decode(data); err == nil {
			t.Fatalf("bit %d of byte %d flipped: no error", i%8, i/8)
		}
	}
	for n := range whole {
		if _, err := Decode(whole[:n]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
}

func TestNewerVersionIsUnsupported(t *testing.T) {
	data := exampleFrame(false)
	data[2] = Version + 1
	if _, err := Decode(data); !errors.Is(err, ErrUnsupported) {
		t.Errorf("version: %v", err)
	}
	var b Builder
	b.Add(futureCommand{}, nil)
	if _, err := Decode(b.Encode(Seal{})); !errors.Is(err, ErrUnsupported) {
		t.Errorf("kind: %v", err)
	}
	// A row whose kind of dedup key is newer, in a block that is whole.
	columns := append([]byte{byte(DedupTypeFields) + 1}, make([]byte, 100)...)
	_, err := DecodeColumns(columns, Shape{Rows: 1, Types: 1, Sources: 1})
	if !errors.Is(err, ErrUnsupported) || errors.Is(err, ErrCorrupt) {
		t.Errorf("row: %v", err)
	}
}

type futureCommand struct{}

func (futureCommand) Kind() Kind               { return 200 }
func (futureCommand) appendTo(b []byte) []byte { return append(b, 1, 2, 3) }

// FuzzDecode gives the decoders bytes with a right checksum, so that the fuzzer gets past
// it: they return an error or a value, never panic, and never allocate out of proportion.
func FuzzDecode(f *testing.F) {
	f.Add(exampleFrame(true)[headerSize:])
	f.Add(exampleFrame(false)[headerSize:])
	f.Add(tracedFrame()[headerSize:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, tail []byte) {
		data := append([]byte{magic0, magic1, Version, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}, tail...)
		seal(data)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		fr, err := Decode(data)
		if err == nil && fr.Header != nil {
			err = DecodeEvents(fr.Header, fr.Block.Body, func(int, event.Event) bool { return true })
		}
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<10+uint64(len(data))*(maxRatio+256) {
			t.Fatalf("%d bytes made for %d bytes in", grown, len(data))
		}
		if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) {
			t.Fatalf("an error of no kind: %v", err)
		}
		if len(tail) > 1 {
			p := Packet{Rows: int(tail[0]), Types: []string{"T"}, Sources: []string{""}, Body: resum(tail[1:])}
			checkPacket(t, p)
			p.Body, p.Traces = Pack(make([]event.Event, max(p.Rows, 1))).Body, tail[1:]
			checkPacket(t, p)
		}
		if r, err := DecodeRequest(data); err == nil {
			again, err := DecodeRequest(r.Encode())
			if err != nil || !reflect.DeepEqual(again.Command, r.Command) {
				t.Fatalf("request does not survive: %v", err)
			}
		}
	})
}

// checkPacket opens a packet of any bytes.
func checkPacket(t *testing.T, p Packet) {
	o, err := p.Open(1 << 20)
	if err == nil {
		err = o.Each(func(int, *event.Event) error { return nil })
	}
	if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) && !errors.Is(err, ErrTooLarge) {
		t.Fatalf("an error of no kind: %v", err)
	}
}

// resum gives a body its right checksum.
func resum(body []byte) []byte {
	body = bytes.Clone(body)
	if len(body) >= 6 {
		binary.LittleEndian.PutUint32(body[1:], crc32.Checksum(body[5:], castagnoli))
	}
	return body
}

// trainingEvents are 1024 events such as a trainer sends.
func trainingEvents() (events []event.Event) {
	const payload = `{"config_key": "hex8_2p", "epoch": %d, "loss": 0.%d, ` +
		`"model_path": "models/hex8_2p/candidate-%d.pt", "policy_accuracy": 0.%d, "samples": %d, ` +
		`"trainer": "gpu-node-%d", "val_loss": 0.%d}`
	for i := range 1024 {
		e := event.New(event.TrainingCompleted, fmt.Appendf(nil, payload,
			i%50, i*7919%100000, i*31, i*104729%100000, i*4096, i%12, i*15485863%100000))
		e.Source = fmt.Sprintf("trainer-%d", i%7)
		events = append(events, e)
	}
	return events
}

// BenchmarkAdd makes the rows of events: of a type without a policy, with and without policies of other types, and of
// one whose policy compares two fields.
func BenchmarkAdd(b *testing.B) {
	events := trainingEvents()
	hashes := make([]event.Hash, len(events))
	for i := range events {
		hashes[i] = events[i].Hash()
	}
	fields := event.DedupPolicy{Mode: event.DedupFields, Fields: []string{"epoch", "samples"}}
	of := func(t event.Type) *event.DedupPolicies {
		return event.NewDedupPolicies(map[event.Type]event.DedupPolicy{t: fields})
	}
	for _, c := range []struct {
		name     string
		policies *event.DedupPolicies
	}{{"none", nil}, {"others", of(event.ModelPromoted)}, {"own", of(event.TrainingCompleted)}} {
		b.Run("policies="+c.name, func(b *testing.B) {
			batch := &Batch{Policies: c.policies}
			for b.Loop() {
				batch.rows, batch.policyKeys = batch.rows[:0], batch.policyKeys[:0]
				for i := range events {
					batch.Keep(&events[i], hashes[i])
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(events)), "ns/event")
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	events := trainingEvents()
	batch := batchOf(events)
	var builder Builder
	var size int
	for b.Loop() {
		builder.Add(Publish{Count: len(events)}, batch)
		size = len(builder.Encode(Seal{Proposer: "n1", Compress: true}))
	}
	b.ReportMetric(float64(size)/float64(len(batch.records)), "frame_bytes/record_byte")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(events)), "ns/event")
}

// BenchmarkPack is a client's part, BenchmarkOpen a node's without the gate.
func BenchmarkPack(b *testing.B) {
	events := trainingEvents()
	for b.Loop() {
		Pack(events)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(events)), "ns/event")
}

func BenchmarkOpen(b *testing.B) {
	p := Pack(trainingEvents())
	for b.Loop() {
		o, err := p.Open(MaxBlockBytes)
		if err == nil {
			err = o.Each(func(int, *event.Event) error { return nil })
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*p.Rows), "ns/event")
}

func BenchmarkDecodeEvents(b *testing.B) {
	f, err := Decode(exampleFrame(true))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := DecodeEvents(f.Header, f.Block.Body, func(int, event.Event) bool { return true }); err != nil {
			b.Fatal(err)
		}
	}
}
