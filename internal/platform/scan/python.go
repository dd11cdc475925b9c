package scan

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// kind is what a token of Python is.
type kind byte

const (
	word kind = iota // a name or keyword
	text             // a string literal
	mark             // any other character
)

// token is a part of a Python file. Comments and white space are none, and a number is a word. Columns and indentation
// are not kept: calls do not depend on them.
type token struct {
	kind kind   // see the constants
	text string // of a string its content, "" where computed
	line int    // where it begins, from 1
	// computed says of a string that its content depends on the run: an f-string with fields, bytes, or escapes.
	computed bool
	// closes is how many tokens after an opening bracket the closing one is; 0 where there is none.
	closes int
}

// errUnterminated is the error of a file that ends within a string, or has a line break in one that may have none.
var errUnterminated = errors.New("a string does not end")

// maxNesting bounds f-strings in the fields of f-strings.
const maxNesting = 64

// lexer cuts a Python file into tokens. It never runs or evaluates anything. The file is cut as bytes; those of a rune
// above ASCII are all parts of words.
type lexer struct {
	src    string  // valid UTF-8
	at     int     // of the next byte
	line   int     // that at is in, from 1
	tokens []token // so far
}

// tokensOf returns the tokens of a Python file.
func tokensOf(src string) ([]token, error) {
	// Python's default encoding. A file in another declares it, and is broken here.
	if !utf8.ValidString(src) {
		return nil, errors.New("not UTF-8")
	}
	l := lexer{src: src, line: 1}
	for l.at < len(l.src) {
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	return l.tokens, nil
}

// next reads one token, comment or white space.
func (l *lexer) next() error {
	c := l.src[l.at]
	switch {
	// Lines are counted wherever one ends, also in strings.
	case c == '\n':
		l.line++
		l.at++
	// A comment ends before its line break.
	case c == '#':
		if end := strings.IndexByte(l.src[l.at:], '\n'); end >= 0 {
			l.at += end
		} else {
			l.at = len(l.src)
		}
	case c == '"' || c == '\'':
		return l.str("")
	case isWord(c):
		begin := l.at
		for l.at < len(l.src) && isWord(l.src[l.at]) {
			l.at++
		}
		name := l.src[begin:l.at]
		// A prefix belongs to the string that follows at once.
		if l.at < len(l.src) && (l.src[l.at] == '"' || l.src[l.at] == '\'') && isPrefix(name) {
			return l.str(strings.ToLower(name))
		}
		l.tokens = append(l.tokens, token{kind: word, text: name, line: l.line})
	case c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\\':
		l.at++ // a backslash outside of a string continues the line
	// Every other character is a mark of its own: == is two.
	default:
		l.tokens = append(l.tokens, token{kind: mark, text: string(c), line: l.line})
		l.at++
	}
	return nil
}

// isWord reports whether a byte may be in a name or number.
func isWord(c byte) bool {
	return c == '_' || c >= utf8.RuneSelf || ('0' <= c && c <= '9') || ('a' <= c|0x20 && c|0x20 <= 'z')
}

// isPrefix reports whether a name is the prefix of a string literal. r raw, b bytes, u text, f formatted, t a template;
// in either case, up to two of them.
func isPrefix(name string) bool {
	return len(name) <= 2 && strings.Trim(strings.ToLower(name), "rbuft") == ""
}

// str reads a string literal whose prefix was read. The string is one token.
func (l *lexer) str(prefix string) error {
	begin := token{kind: text, line: l.line}
	content, computed, err := l.literal(prefix, 0)
	if err != nil {
		return fmt.Errorf("line %d: %w", begin.line, err)
	}
	// Bytes are no text, so they name no type.
	begin.text, begin.computed = content, computed || strings.ContainsRune(prefix, 'b')
	l.tokens = append(l.tokens, begin)
	return nil
}

// literal reads a string from its opening quote to after the closing one. depth is in how many fields of f-strings it
// is. The content is as it is written, and is only of use if it is not computed.
func (l *lexer) literal(prefix string, depth int) (content string, computed bool, err error) {
	if depth > maxNesting {
		return "", false, errors.New("strings are nested too deep")
	}
	// Three quotes begin a string over several lines. The same three end it.
	quote := l.src[l.at : l.at+1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(l.src[l.at:], triple) {
		quote = triple
	}
	l.at += len(quote)
	begin := l.at
	formatted := strings.ContainsAny(prefix, "ft")
	for l.at < len(l.src) {
		c := l.src[l.at]
		switch {
		case strings.HasPrefix(l.src[l.at:], quote):
			content = l.src[begin:l.at]
			l.at += len(quote)
			return content, computed, nil
		// Only a string in three quotes goes over lines.
		case c == '\n' && len(quote) == 1:
			return "", false, errUnterminated
		case c == '\n':
			l.line++
			l.at++
		case c == '\\':
			// In a raw string as well, a backslash keeps a quote from ending it.
			computed = computed || !strings.ContainsRune(prefix, 'r')
			l.at++
			if strings.HasPrefix(l.src[l.at:], "\r\n") {
				l.at++
			}
			if l.at < len(l.src) && l.src[l.at] == '\n' {
				l.line++
			}
			l.at++
		case formatted && (strings.HasPrefix(l.src[l.at:], "{{") || strings.HasPrefix(l.src[l.at:], "}}")):
			computed = true
			l.at += 2
		case formatted && c == '{':
			computed = true
			if err := l.field(quote, depth); err != nil {
				return "", false, err
			}
		default:
			l.at++
		}
	}
	l.at = len(l.src)
	return "", false, errUnterminated
}

// field reads the field of an f-string, which may have strings of its own, but none in its format after the colon.
// quote is that of the string around it: only within three quotes a line may end.
func (l *lexer) field(quote string, depth int) error {
	// open counts brackets of any kind; format says that the colon was read.
	open, format := 0, false
	for l.at < len(l.src) {
		switch c := l.src[l.at]; {
		case c == '{' || c == '(' || c == '[':
			open++
			l.at++
		case c == '}' || c == ')' || c == ']':
			open--
			l.at++
			// The bracket that began the field.
			if open <= 0 {
				return nil
			}
		case c == '\n':
			if len(quote) == 1 {
				return errUnterminated
			}
			l.line++
			l.at++
		// A string within the expression may have the same quotes as the one around it. In the format a quote is a
		// character, unless a field is nested there.
		case (c == '"' || c == '\'') && (!format || open > 1):
			if _, _, err := l.literal("", depth+1); err != nil {
				return err
			}
		default:
			format = format || (c == ':' && open == 1)
			l.at++
		}
	}
	return errUnterminated
}

// callees whose first argument, or one of typeNames, is a type.
var (
	// Methods and classes of the platform's buses and of the client.
	publishes  = set("publish", "publish_soon", "publish_sync", "publish_async", "publish_cross_process", "DataEvent")
	maybeEmits = set("emit", "emit_event", "call") // names that much else has: see looksLikeType
	// Their first argument is the type or pattern.
	subscribes = set("subscribe", "subscribe_async", "subscribe_with_retry")
	// Methods of ringlog's client, whose types are a keyword argument.
	reads = set("cursor", "group", "tail", "create_cursor", "create_group")
	// Classes whose members are types.
	enums     = set("DataEventType", "EventType", "CrossProcessEventType")
	typeNames = set("type", "event_type", "event")
)

// set returns a set of names.
func set(names ...string) map[string]bool {
	m := map[string]bool{}
	for _, n := range names {
		m[n] = true
	}
	return m
}

// argument is one argument of a call.
type argument struct {
	name   string  // of a keyword argument
	tokens []token // of its value, at least one
}

// python finds what a Python file emits and subscribes to. Every name before an opening bracket is a call, unless it is
// defined there.
func (f *file) python(src string) error {
	tokens, err := tokensOf(src)
	if err != nil {
		return err
	}
	// From here on a call's end is found without counting brackets again.
	closeBrackets(tokens)
	for i := 0; i+1 < len(tokens); i++ {
		name := tokens[i]
		// A bracket that never closes is not judged.
		if name.kind != word || !tokens[i+1].is("(") || tokens[i+1].closes == 0 {
			continue
		}
		// A definition calls nothing.
		if i > 0 && tokens[i-1].kind == word && (tokens[i-1].text == "def" || tokens[i-1].text == "class") {
			continue
		}
		// Arguments are cut only for the calls that are of interest.
		f.pythonCall(name, func() []argument { return arguments(tokens[i+1:]) })
	}
	return nil
}

// is reports whether a token is a mark.
func (t token) is(text string) bool { return t.kind == mark && t.text == text }

// closeBrackets finds where each opening bracket closes. Kinds of brackets are not distinguished: in a file that Python
// can read they match.
func closeBrackets(tokens []token) {
	var open []int
	for i, t := range tokens {
		switch {
		// A bracket in a string is none.
		case t.kind != mark:
		case strings.Contains("([{", t.text):
			open = append(open, i)
		case strings.Contains(")]}", t.text) && len(open) > 0:
			last := open[len(open)-1]
			tokens[last].closes = i - last
			open = open[:len(open)-1]
		}
	}
}

// arguments returns what is between the bracket that is the first token and its end, cut at commas. Brackets within are
// skipped, so their commas do not count.
func arguments(tokens []token) (list []argument) {
	end, begin := tokens[0].closes, 1
	for i := begin; i <= end; i++ {
		if i == end || tokens[i].is(",") {
			// A trailing comma leaves an empty part.
			if part := tokens[begin:i]; len(part) > 0 {
				a := argument{tokens: part}
				// name=value, and not a comparison.
				if len(part) > 2 && part[0].kind == word && part[1].is("=") && !part[2].is("=") {
					a.name, a.tokens = part[0].text, part[2:]
				}
				list = append(list, a)
			}
			begin = i + 1
		} else {
			i += tokens[i].closes
		}
	}
	return list
}

// pythonCall judges one call. The name alone decides, of a function or of a method of anything.
func (f *file) pythonCall(callee token, args func() []argument) {
	switch name := callee.text; {
	case publishes[name] || maybeEmits[name]:
		// The type is the first argument or has one of the names.
		for i, a := range args() {
			if (a.name == "" && i == 0) || typeNames[a.name] {
				f.pythonType(Emitter, a.tokens, callee.line, maybeEmits[name])
			}
		}
	case subscribes[name]:
		for i, a := range args() {
			if (a.name == "" && i == 0) || typeNames[a.name] {
				f.pythonType(Subscriber, a.tokens, callee.line, false)
			}
		}
	case reads[name]:
		for _, a := range args() {
			if a.name == "types" {
				f.pythonTypes(a.tokens, callee.line)
			}
		}
	case strings.HasPrefix(name, "emit_"):
		// The functions of the catalogue alone: another program has functions of its own.
		if _, known := f.catalogue.Resolve(strings.TrimPrefix(name, "emit_")); known {
			f.add(Emitter, strings.TrimPrefix(name, "emit_"), callee.line)
		}
	}
}

// pythonTypes reads a list of types, or one.
func (f *file) pythonTypes(tokens []token, line int) {
	if !tokens[0].is("[") && !tokens[0].is("(") && !tokens[0].is("{") {
		f.pythonType(Subscriber, tokens, line, false)
		return
	}
	// The first bracket closes before the end: the value is an expression of several lists.
	if tokens[0].closes != len(tokens)-1 {
		f.dynamic(Subscriber, line) // such as a sum of lists
		return
	}
	for _, a := range arguments(tokens) {
		f.pythonType(Subscriber, a.tokens, a.tokens[0].line, false)
	}
}

// pythonType reads an expression that is a type; literal says that any other expression is not. line is that of the
// call, for places whose type is not written there.
func (f *file) pythonType(role Role, tokens []token, line int, literal bool) {
	first := tokens[0]
	last := tokens[len(tokens)-1]
	// An enum member's .value is the member.
	if len(tokens) > 2 && last.kind == word && last.text == "value" && tokens[len(tokens)-2].is(".") {
		tokens = tokens[:len(tokens)-2]
		last = tokens[len(tokens)-1]
	}
	switch {
	// A text by itself.
	case len(tokens) == 1 && first.kind == text && !first.computed:
		if !literal || f.looksLikeType(first.text) {
			f.add(role, first.text, first.line)
		}
	// A member of one of the enums, such as DataEventType.TRAINING_COMPLETED.
	case len(tokens) >= 3 && last.kind == word && tokens[len(tokens)-2].is(".") && enums[tokens[len(tokens)-3].text]:
		f.add(role, last.text, last.line)
	// emit(x) of another program is no event.
	case literal:
	case role == Emitter && len(tokens) > 2 && first.kind == word && tokens[1].is("(") && last.is(")"):
		// An event, which is found itself, or a payload of ringlog.payloads.
		if publishes[first.text] {
			return
		}
		if name, known := f.camel[strings.ToUpper(first.text)]; known {
			f.add(role, name, first.line)
			return
		}
		f.dynamic(role, line)
	default:
		f.dynamic(role, line)
	}
}

// looksLikeType reports whether a string is a known type, or reads as the name of one: UPPER_CASE. A name in UPPER_CASE
// that no catalogue has is reported as unknown, with the nearest ones.
func (f *file) looksLikeType(written string) bool {
	_, known := f.catalogue.Resolve(written)
	return known || (strings.Contains(written, "_") && written == strings.ToUpper(written))
}
