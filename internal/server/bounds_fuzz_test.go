package server

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// entrance is one way for bytes to get into a node.
type entrance struct {
	name    string
	unfolds bool // bodies may be compressed
	send    func(s *site, body []byte)
}

func post(path, contentType string, more ...string) func(*site, []byte) {
	return func(s *site, body []byte) {
		s.do("POST", path, string(body), append([]string{"Content-Type", contentType}, more...)...)
	}
}

// intoPublishStream writes to a publish stream and reads all of its answer.
func intoPublishStream(s *site, body []byte) {
	c := s.openStream()
	defer c.conn.Close()
	if _, err := c.conn.Write(body); err == nil {
		_ = c.conn.(*net.TCPConn).CloseWrite()
	}
	_, _ = io.Copy(io.Discard, c.in)
}

// entrances are all ways that take a body.
var entrances = func() (all []entrance) {
	for _, path := range []string{
		"/v1/events", "/v1/dlq/purge", "/v1/dlq/import", "/v1/catalogue",
		"/v1/catalogue/validate", "/v1/members", "/v1/groups/g/exchange",
	} {
		all = append(all, entrance{path, false, post(path, contentJSON)})
	}
	all = append(all, entrance{
		"ndjson",
		false,
		post("/v1/events", contentNDJSON),
	}, entrance{"publish stream", true, intoPublishStream})
	for _, path := range []string{
		"LogService/Publish", "GroupService/Exchange", "CursorService/CreateCursor",
		"PeerService/Forward", "PeerService/Join",
	} {
		at := "/ringlog.v1." + path
		all = append(all,
			entrance{path, true, post(at, "application/proto")}, // a packet's body may be compressed
			entrance{path + " gzip", true, post(at, "application/proto", "Content-Encoding", "gzip")},
			entrance{path + " json", true, post(at, contentJSON)},
			entrance{path + " json gzip", true, post(at, contentJSON, "Content-Encoding", "gzip")},
			entrance{path + " grpc", true, post(at, "application/grpc", "Grpc-Encoding", "gzip")},
			entrance{path + " grpc-web", true, post(at, "application/grpc-web+proto", "Grpc-Encoding", "gzip")})
	}
	return append(all, entrance{
		"Tail",
		true,
		post("/ringlog.v1.LogService/Tail", "application/connect+proto", "Connect-Content-Encoding", "gzip"),
	})
}()

// perByte is how many bytes may be allocated for each byte received, those that are free again included. The keys of an
// object need most, because they are sorted.
const perByte = 32

// FuzzWhatComesInTakesBoundedMemory checks what is allocated for a body, whichever way it comes. The bound is a
// fixed multiple of its bytes, or of what they decompress to within the limit of a request, plus the events that a
// request may have.
func FuzzWhatComesInTakesBoundedMemory(f *testing.F) {
	if testing.Short() {
		f.Skip("what is allocated is measured")
	}
	for _, seed := range greedySeeds(f) {
		at := slices.IndexFunc(entrances, func(e entrance) bool { return e.name == seed.entrance })
		if at < 0 {
			f.Fatalf("no entrance %q", seed.entrance)
		}
		f.Add(uint8(at), seed.body)
	}
	s := newSite(f, nil)
	limits := s.node.Machine().Policy().Limits
	f.Fuzz(func(t *testing.T, at uint8, body []byte) {
		s.t = t
		way := entrances[int(at)%len(entrances)]
		got := allocated(func() { way.send(s, body) })
		// A compressed body may decompress to about a thousand times its bytes.
		unfolded := int64(len(body))
		if way.unfolds {
			unfolded = min(1024*unfolded, int64(limits.RequestBytes)+maxPeerMessage)
		}
		bound := perByte*unfolded + int64(limits.RequestEvents)*eventWeight + 4<<20
		t.Logf("%-28s %9d bytes, %10d allocated (%d %%)", way.name, len(body), got, 100*got/bound)
		if got > bound {
			t.Errorf("%s: %d bytes allocated for %d received, at most %d", way.name, got, len(body), bound)
		}
		eventually(
			t, "nothing is counted any more",
			func() bool { return s.server.memory.held.Load()+s.server.peerMemory.held.Load() == 0 },
		)
	})
}

// greedySeed is a body and the name of the entrance it is for.
type greedySeed struct {
	entrance string
	body     []byte
}

// greedySeeds returns the bodies that would take most memory if they were believed.
func greedySeeds(t testing.TB) []greedySeed {
	const many = 2_000_000
	list := func(head, item, tail string, n int) []byte {
		return slices.Concat([]byte(head), bytes.Repeat([]byte(item), n), []byte(tail))
	}
	message := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	protoEvents, protoRanges := list("", "\x0a\x00", "", many), list("\x0a\x01g", "\x22\x00", "", many/4)
	jsonEvents, objects := list(`{"events":[{}`, ",{}", "]}", many), list("[{}", ",{}", "]", many)
	deep := list(`{"type":"A","payload":`, `{"a":[`, "", many/8)
	var keys strings.Builder
	keys.WriteString(`{"type":"A","payload":{"k":0`)
	for i := range 200_000 {
		keys.WriteString(`,"k` + strconv.Itoa(i) + `":1`)
	}
	keys.WriteString("}}")
	zeros := frame.Pack([]event.Event{{Type: "A", Payload: []byte(`{"x": "` + strings.Repeat("0", 3<<20) + `"}`)}})
	packet := message(
		&ringlogv1.PublishRequest{
			Packet: &ringlogv1.Packet{Rows: 1, Types: zeros.Types, Sources: zeros.Sources, Body: zeros.Body},
		},
	)
	manyRows := message(
		&ringlogv1.PublishRequest{
			Packet: &ringlogv1.Packet{Rows: 1 << 31, Types: make([]string, 500_000), Sources: zeros.Sources, Body: zeros.Body},
		},
	)
	random := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(random)
	filter := slices.Concat([]byte{0x1a, 0xff, 0xff, 0x3f}, bytes.Repeat([]byte{0x0a, 0x00}, 1<<19))
	const publish, forward = "LogService/Publish", "PeerService/Forward"
	return []greedySeed{
		{"/v1/events", objects},
		{"/v1/events", bytes.Repeat([]byte(" "), 1<<20)},
		{"/v1/events", deep},
		{"/v1/events", []byte(keys.String())},
		{"ndjson", bytes.Repeat([]byte("\n"), 1<<20)},
		{"ndjson", list("", "{}\n", "", 1<<20)},
		{publish, protoEvents},
		{publish + " gzip", zipped(protoEvents)},
		{publish + " gzip", zipped(make([]byte, 64<<20))},
		{publish + " json", jsonEvents},
		{publish + " json", deep},
		{publish + " json gzip", zipped(jsonEvents)},
		{"Tail", enveloped(0, protoEvents)},
		{"Tail", enveloped(1, zipped(protoEvents))},
		{publish + " grpc", enveloped(1, zipped(protoEvents))},
		{publish + " grpc-web", enveloped(1, zipped(protoEvents))},
		{publish + " grpc", []byte{0, 0x80, 0, 0, 0}}, // a length that no bytes follow
		{publish, packet},
		{publish, manyRows},
		{publish, random},
		{"GroupService/Exchange", protoRanges},
		{"GroupService/Exchange gzip", zipped(protoRanges)},
		{"CursorService/CreateCursor", filter},
		{forward + " gzip", zipped(make([]byte, 64<<20))},
		{forward, random},
		{"PeerService/Join json gzip", zipped(jsonEvents)},
		{"/v1/dlq/purge", list(`{"ids":[1`, ",1", "]}", many)},
		{"/v1/dlq/import", list(`{"source":"s","rows":[{}`, ",{}", "]}", many/2)},
		{"/v1/dlq/import", []byte(keys.String())},
		{"/v1/catalogue", objects},
		{"/v1/catalogue/validate", objects},
		{"/v1/members", objects},
		{"publish stream", slices.Concat(head(uint32(len(protoEvents))), protoEvents)},
		{"publish stream", slices.Concat(head(1<<31), protoEvents)},
		{"publish stream", slices.Concat(head(uint32(len(packet))), packet)},
	}
}
