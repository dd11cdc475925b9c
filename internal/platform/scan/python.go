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

// token is a part of a Python file. Comments and white space are none, and a number is a word.
type token struct {
	kind kind
	text string // of a string its content, "" where computed
	line int
	// computed says of a string that its content depends on the run: an f-string with fields, bytes, or escapes.
	computed bool
	// closes is how many tokens after an opening bracket the closing one is; 0 where there is none.
	closes int
}

var errUnterminated = errors.New("a string does not end")

// maxNesting bounds f-strings in the fields of f-strings.
const maxNesting = 64

// lexer cuts a Python file into tokens. It never runs or evaluates anything.
type lexer struct {
	src    string
	at     int
	line   int
	tokens []token
}

// tokensOf returns the tokens of a Python file.
func tokensOf(src string) ([]token, error) {
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
	case c == '\n':
		l.line++
		l.at++
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

// isPrefix reports whether a name is the prefix of a string literal.
func isPrefix(name string) bool {
	return len(name) <= 2 && strings.Trim(strings.ToLower(name), "rbuft") == ""
}

// str reads a string literal whose prefix was read.
func (l *lexer) str(prefix string) error {
	begin := token{kind: text, line: l.line}
	content, computed, err := l.literal(prefix, 0)
	if err != nil {
		return fmt.Errorf("line %d: %w", begin.line, err)
	}
	begin.text, begin.computed = content, computed || strings.ContainsRune(prefix, 'b')
	l.tokens = append(l.tokens, begin)
	return nil
}

// literal reads a string from its opening quote to after the closing one.
func (l *lexer) literal(prefix string, depth int) (content string, computed bool, err error) {
	if depth > maxNesting {
		return "", false, errors.New("strings are nested too deep")
	}
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
func (l *lexer) field(quote string, depth int) error {
	open, format := 0, false
	for l.at < len(l.src) {
		switch c := l.src[l.at]; {
		case c == '{' || c == '(' || c == '[':
			open++
			l.at++
		case c == '}' || c == ')' || c == ']':
			open--
			l.at++
			if open <= 0 {
				return nil
			}
		case c == '\n':
			if len(quote) == 1 {
				return errUnterminated
			}
			l.line++
			l.at++
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
	publishes  = set("publish", "publish_soon", "publish_sync", "publish_async", "publish_cross_process", "DataEvent")
	maybeEmits = set("emit", "emit_event", "call") // names that much else has: see looksLikeType
	subscribes = set("subscribe", "subscribe_async", "subscribe_with_retry")
	reads      = set("cursor", "group", "tail", "create_cursor", "create_group")
	enums      = set("DataEventType", "EventType", "CrossProcessEventType")
	typeNames  = set("type", "event_type", "event")
)

func set(names ...string) map[string]bool {
	m := map[string]bool{}
	for _, n := range names {
		m[n] = true
	}
	return m
}

// argument is one argument of a call.
type argument struct {
	name   string // of a keyword argument
	tokens []token
}

// python finds what a Python file emits and subscribes to.
func (f *file) python(src string) error {
	tokens, err := tokensOf(src)
	if err != nil {
		return err
	}
	closeBrackets(tokens)
	for i := 0; i+1 < len(tokens); i++ {
		name := tokens[i]
		if name.kind != word || !tokens[i+1].is("(") || tokens[i+1].closes == 0 {
			continue
		}
		// A definition calls nothing.
		if i > 0 && tokens[i-1].kind == word && (tokens[i-1].text == "def" || tokens[i-1].text == "class") {
			continue
		}
		f.pythonCall(name, func() []argument { return arguments(tokens[i+1:]) })
	}
	return nil
}

// is reports whether a token is a mark.
func (t token) is(text string) bool { return t.kind == mark && t.text == text }

// closeBrackets finds where each opening bracket closes.
func closeBrackets(tokens []token) {
	var open []int
	for i, t := range tokens {
		switch {
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

// arguments returns what is between the bracket that is the first token and its end, cut at commas.
func arguments(tokens []token) (list []argument) {
	end, begin := tokens[0].closes, 1
	for i := begin; i <= end; i++ {
		if i == end || tokens[i].is(",") {
			if part := tokens[begin:i]; len(part) > 0 {
				a := argument{tokens: part}
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

// pythonCall judges one call.
func (f *file) pythonCall(callee token, args func() []argument) {
	switch name := callee.text; {
	case publishes[name] || maybeEmits[name]:
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
	if tokens[0].closes != len(tokens)-1 {
		f.dynamic(Subscriber, line) // such as a sum of lists
		return
	}
	for _, a := range arguments(tokens) {
		f.pythonType(Subscriber, a.tokens, a.tokens[0].line, false)
	}
}

// pythonType reads an expression that is a type; literal says that any other expression is not.
func (f *file) pythonType(role Role, tokens []token, line int, literal bool) {
	first := tokens[0]
	last := tokens[len(tokens)-1]
	if len(tokens) > 2 && last.kind == word && last.text == "value" && tokens[len(tokens)-2].is(".") {
		tokens = tokens[:len(tokens)-2]
		last = tokens[len(tokens)-1]
	}
	switch {
	case len(tokens) == 1 && first.kind == text && !first.computed:
		if !literal || f.looksLikeType(first.text) {
			f.add(role, first.text, first.line)
		}
	case len(tokens) >= 3 && last.kind == word && tokens[len(tokens)-2].is(".") && enums[tokens[len(tokens)-3].text]:
		f.add(role, last.text, last.line)
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

// looksLikeType reports whether a string is a known type, or reads as the name of one: UPPER_CASE.
func (f *file) looksLikeType(written string) bool {
	_, known := f.catalogue.Resolve(written)
	return known || (strings.Contains(written, "_") && written == strings.ToUpper(written))
}
