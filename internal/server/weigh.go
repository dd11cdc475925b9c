package server

import (
	"bytes"
	"fmt"
	"reflect"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/service"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// A small message can decode to a large one: an empty event takes two bytes on the wire and hundreds in memory. So a
// message is weighed before it is decoded, by going over its fields and adding up what their Go values take. The result
// is an estimate, on the safe side for what clients send; it needs no memory itself.

// What decoded parts of a request take, in bytes, beside the text they are made of.
const (
	eventWeight = int64(unsafe.Sizeof(ringlogv1.Event{}) + unsafe.Sizeof(event.Event{}) + unsafe.Sizeof(frame.Row{}) +
		unsafe.Sizeof(event.Hash{}))
	itemWeight = 48 // an item of a list: grown by doubling, a string header or a pointer
)

// weighMessage returns about how many bytes a message takes once it is decoded, without decoding it. Bytes that
// are not a message weigh what they are: decoding them fails with an error that says more.
func weighMessage(md protoreflect.MessageDescriptor, b []byte) int64 {
	// The struct itself, then what its fields add to it.
	weight := messageWeight(md)
	fields := md.Fields()
	for len(b) > 0 {
		// Each field is at least one item of what it is decoded into.
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			break
		}
		b = b[n:]
		if kind != protowire.BytesType {
			n = protowire.ConsumeFieldValue(number, kind, b)
			if n < 0 {
				break
			}
			b = b[n:]
			weight += itemWeight
			continue
		}
		// Strings, bytes, messages and packed lists all come with their length.
		value, n := protowire.ConsumeBytes(b)
		if n < 0 {
			break
		}
		b = b[n:]
		// The bytes are copied, and something points to them.
		weight += itemWeight + int64(len(value))
		// A message in a message is weighed as such, besides its text; a packed list takes up to eight bytes for
		// each of its own, and its slice doubles as it grows.
		switch f := fields.ByNumber(number); {
		case f == nil:
		case f.Kind() == protoreflect.MessageKind:
			weight += weighMessage(f.Message(), value)
		case f.IsPacked():
			weight += 16 * int64(len(value))
		}
	}
	return weight + int64(len(b))
}

// messageWeights are the sizes of the structs of this package's messages, in bytes, by name. An event counts as
// all that is made of it.
var messageWeights = func() map[protoreflect.FullName]int64 {
	weights := map[protoreflect.FullName]int64{}
	messages := ringlogv1.File_ringlog_v1_ringlog_proto.Messages()
	for i := range messages.Len() {
		name := messages.Get(i).FullName()
		kind, err := protoregistry.GlobalTypes.FindMessageByName(name)
		if err != nil {
			panic(err) // generated code registers them
		}
		weights[name] = int64(reflect.TypeOf(kind.Zero().Interface()).Elem().Size())
	}
	weights[(*ringlogv1.Event)(nil).ProtoReflect().Descriptor().FullName()] = eventWeight
	return weights
}()

// messageWeight returns the size of a message's struct, in bytes.
func messageWeight(md protoreflect.MessageDescriptor) int64 {
	if w, known := messageWeights[md.FullName()]; known {
		return w
	}
	return 128 // a well-known type, or a map's entry
}

// countField returns how often a field is in a message, up to the first byte that is not a field.
func countField(b []byte, wanted protowire.Number) (count int) {
	// Fields are skipped by their length, so that nothing is decoded.
	for len(b) > 0 {
		number, _, n := protowire.ConsumeField(b)
		if n < 0 {
			break
		}
		b = b[n:]
		if number == wanted {
			count++
		}
	}
	return count
}

// jsonShape counts the objects and the commas of a JSON text, those inside of strings left out. It does not check
// the text.
func jsonShape(b []byte) (objects, items int) {
	for len(b) > 0 {
		// Only what opens an object, separates items or begins a string matters.
		i := bytes.IndexAny(b, `"{,`)
		if i < 0 {
			break
		}
		switch b[i] {
		case '{':
			objects++
		case ',':
			items++
		// A quote: the string is skipped to its end.
		default:
			i += 1 + stringLength(b[i+1:])
		}
		b = b[min(i+1, len(b)):]
	}
	return objects, items
}

// stringLength returns how many bytes precede the quote that ends a string.
func stringLength(b []byte) int {
	// A backslash escapes the next byte, which may be a quote.
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(b)
}

// weighJSON returns about how many bytes a JSON text takes as values, each of its objects up to perObject. Text
// may grow when it is brought into canonical form.
func weighJSON(b []byte, perObject int64) int64 {
	// Objects become structs, items elements of lists.
	objects, items := jsonShape(b)
	return 6*int64(len(b)) + int64(objects)*perObject + int64(items)*itemWeight
}

// publishMessage describes the one message whose events are counted before they are decoded.
var publishMessage = (*ringlogv1.PublishRequest)(nil).ProtoReflect().Descriptor()

// takeMessage makes room for a message of up to limit bytes that is about to be decoded. It refuses a publish of
// too many events, and a message that would grow beyond maxExpansion.
func (m *messageReader) takeMessage(
	h *hold, md protoreflect.MessageDescriptor, b []byte, limit int, isJSON bool,
) error {
	if md == publishMessage {
		var events int
		if isJSON {
			objects, _ := jsonShape(b)
			events = objects - 1 // the request is an object, too
		} else {
			events = countField(b, 1)
		}
		if err := service.CheckCount(m.node.Machine().Policy().Limits, events); err != nil {
			return err
		}
	}
	// How much it will take, by the form in which it was sent.
	var weight int64
	if isJSON {
		weight = weighJSON(b, eventWeight)
	} else {
		weight = weighMessage(md, b)
	}
	// The limit bounds what a message expands to even where the memory has room for more.
	if most := maxExpansion * int64(limit); weight > most {
		return api.Refuse(api.TooLarge, "body",
			fmt.Sprintf("the message would take %d bytes once it is decoded, the limit is %d", weight, most),
			"send several requests, with fewer items each")
	}
	return h.reserve(weight)
}

// maxExpansion is how many times the limit of its bytes a message may take once it is decoded.
const maxExpansion = 16

// takeEvents makes room for the events of a body: for as many as it can have, by its braces and lines, and for no
// more than a request may have. Decoding refuses any beyond that.
func takeEvents(h *hold, b requestBody, limits event.Limits) error {
	// Each event has a brace of its own, so that this is an upper bound.
	count := bytes.Count(b.bytes, []byte{'{'})
	if b.contentType == contentNDJSON {
		count = max(count, 1+bytes.Count(b.bytes, []byte{'\n'}))
	}
	// No more events than a request may have are ever decoded.
	return h.reserve(int64(min(count, limits.RequestEvents)) * eventWeight)
}
