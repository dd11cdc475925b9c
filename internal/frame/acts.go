package frame

import (
	"github.com/ringrift/ringlog/internal/fields"
)

// Act is what an operator or an admin does, and who that is. The state machine emits it as an event. Of is the command
// that does it; an act that no entry of the log does has none, and says itself how it goes.
type Act struct {
	By      string  // whose token it is, or root
	Action  string  // a stable name, such as setting.set
	Target  string  // what it is done to: the name of a setting, a token, a member
	Detail  string  // what else there is to say, such as the new value
	Outcome string  // without Of: started or failed
	Reason  string  // of a failure, a stable name
	Of      Command // what does it; nil if no entry does
}

// MaxActText bounds each text of an Act, in bytes. Its event has to stay small, whoever sent it.
const MaxActText = 1024

// Kind implements Command. An act stores as much as its command does.
func (c Act) Kind() Kind {
	if c.Of != nil && !c.Of.Kind().FitsFullDisk() {
		return KindActStoring
	}
	return KindAct
}

// appendTo writes by, action, target, detail, outcome, reason, and the command as a frame has it: kind, body. Without
// one the kind is 0 and the body empty.
func (c Act) appendTo(b []byte) []byte {
	for _, text := range []string{c.By, c.Action, c.Target, c.Detail, c.Outcome, c.Reason} {
		b = fields.Append(b, text)
	}
	if c.Of == nil {
		return append(b, 0, 0)
	}
	return appendCommand(b, c.Of)
}

// act reads what appendTo wrote, of a kind that stores much or little. w is that of the kind: the command has to be of
// the same, so that no act gets past a full disk.
func (d *decoder) act(w writes) Act {
	var c Act
	for _, text := range []*string{&c.By, &c.Action, &c.Target, &c.Detail, &c.Outcome, &c.Reason} {
		*text = d.string()
		if len(*text) > MaxActText {
			d.Fail("a text of %d bytes in an act", len(*text))
		}
	}
	kind := Kind(d.Byte())
	body := d.Bytes()
	if d.Err != nil {
		return c
	}
	// An act that no entry does stores little.
	if kind == 0 {
		if len(body) > 0 || w != little {
			d.Fail("an act without a command that has %d bytes of one", len(body))
		}
		return c
	}
	// Neither events, which need a block, nor acts of acts, nor what only a leader proposes.
	row := d.kinds[kind]
	switch {
	case row.decode == nil:
		d.Fail("an act with a command of kind %d: %w", kind, ErrUnsupported)
	case kind.Publishes() || kind == KindAct || kind == KindActStoring || row.origin != ofCaller || row.writes != w:
		d.Fail("an act with a command of kind %d, which is none", kind)
	default:
		// The command is read by its own row of the table, as in a frame.
		of := &decoder{Reader: fields.Reader{Rest: body}, texts: d.texts, kinds: d.kinds}
		c.Of = row.decode(of)
		d.notUTF8 = d.notUTF8 || of.notUTF8
		if err := of.end("command of an act"); err != nil {
			d.Fail("%s: %v", c.Action, err)
		}
	}
	return c
}
