package server

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/raftnode"
)

// procedures are all methods of the Connect services, by the path of their route.
var procedures = func() map[string]protoreflect.MethodDescriptor {
	all := map[string]protoreflect.MethodDescriptor{}
	services := ringlogv1.File_ringlog_v1_ringlog_proto.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			m := methods.Get(j)
			all[fmt.Sprintf("/%s/%s", services.Get(i).FullName(), m.Name())] = m
		}
	}
	return all
}()

// envelopeHead is the length of what precedes a message where the protocol frames it: one byte of flags and four
// of length.
const envelopeHead = 5

// messageReader reads the message of a Connect call before Connect does, within the bounds that hold for any body.
type messageReader struct {
	node   Node
	bodies *bodyReader
}

// metered returns what answers a Connect method. It reads a call's message before Connect does, which would
// decompress and decode it whatever that takes, and passes it on once there is room for what it decodes to. Every
// method takes one message, so this is the whole body.
func (m *messageReader) metered(rt route) handlerFunc {
	method := procedures[rt.path]
	return func(w http.ResponseWriter, r *http.Request) error {
		// The memory of the message is kept for the next one.
		buffer := m.bodies.getBuffer()
		defer m.bodies.putBuffer(buffer)
		if err := m.readMessage(r, method, rt.bodyLimit(m.node.Machine()), buffer); err != nil {
			return err
		}
		// The state may have been found to differ while the message arrived.
		if !rt.about && m.node.Diverged() {
			return raftnode.ErrDiverged
		}
		// Connect decodes what is in memory now.
		rt.service.ServeHTTP(w, r)
		return nil
	}
}

// readMessage replaces the body of a call by one that is in memory and not compressed, and makes room for the
// decoded message. The new body may share the memory of buffer. A request that no protocol takes is left as it is,
// for Connect to refuse unread.
func (m *messageReader) readMessage(
	r *http.Request, method protoreflect.MethodDescriptor, limit int, buffer *[]byte,
) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || r.Method != http.MethodPost {
		return nil
	}
	// Each protocol names the compression in a header of its own; those that frame messages flag it in the frame
	// as well.
	var coding string
	head := 0
	switch subtype := strings.TrimPrefix(kind, "application/"); {
	case subtype == "proto" || subtype == "json":
		coding = "Content-Encoding"
	case strings.HasPrefix(subtype, "connect+"):
		coding, head = "Connect-Content-Encoding", envelopeHead
	case strings.HasPrefix(subtype, "grpc"):
		coding, head = "Grpc-Encoding", envelopeHead
	default:
		return nil
	}
	// A body that declares itself too large is refused unread.
	if r.ContentLength > int64(limit+head) {
		return api.RequestTooLarge(limit)
	}
	// The limit is for the message; its frame comes on top.
	b, err := readAll(r.Body, *buffer, limit+head, int(r.ContentLength))
	*buffer = b[:0]
	if err != nil {
		return err
	}
	// An unframed message is compressed if the header says so.
	compressed := r.Header.Get(coding) != ""
	if head > 0 {
		// One frame must be the whole body: what follows it would reach Connect uncounted.
		if len(b) < head || uint64(binary.BigEndian.Uint32(b[1:])) != uint64(len(b)-head) {
			return api.Refuse(api.InvalidArgument, "body",
				"the length is not followed by one whole message",
				"send one message")
		}
		compressed = b[0]&1 != 0
	}
	// Connect takes no compression but gzip, and refuses any other by itself.
	message := b[head:]
	if compressed && r.Header.Get(coding) == "gzip" {
		message, err = gunzip(message, limit, holdOf(r.Context()))
		if err != nil {
			return err
		}
		// What Connect gets is not compressed any more, in header and frame.
		r.Header.Del(coding)
		b = message
		if head > 0 {
			b = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
		}
	}
	// Connect may decode the message now: the memory for that is reserved.
	if err := m.takeMessage(
		holdOf(r.Context()), method.Input(), message, limit, strings.HasSuffix(kind, "json"),
	); err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	return nil
}

// gunzip decompresses up to limit bytes. It makes room in h for each piece, so a small body cannot expand
// beyond what there is.
func gunzip(b []byte, limit int, h *hold) ([]byte, error) {
	// The output is bounded by limit and by what h may take, whatever the input claims.
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err == nil {
		b, err = readAll(&taking{z, h}, nil, limit, 0)
	}
	// A refusal for want of memory or for size is returned as it is; anything else is a fault of the body.
	if own, ok := errors.AsType[*api.Error](err); ok && own.Code != api.Timeout {
		return nil, own
	}
	if err != nil {
		return nil, api.Refuse(api.InvalidArgument, "body", "not gzip, or cut short", "send what the header says")
	}
	return b, nil
}

// taking counts in a hold what is read through it.
type taking struct {
	from io.Reader
	hold *hold
}

// Read implements io.Reader. It reports missing memory after the bytes it has read, which are counted.
func (t *taking) Read(p []byte) (int, error) {
	n, err := t.from.Read(p)
	if full := t.hold.reserve(int64(n)); full != nil {
		err = full
	}
	return n, err
}
