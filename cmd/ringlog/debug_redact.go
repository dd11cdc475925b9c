package main

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// redacted stands for what is not shown.
const redacted = "[redacted]"

// redactor replaces secrets. Those that this process knows are replaced wherever they are; of others it knows how they
// look.
type redactor struct {
	known [][]byte // the longest first
}

// shortestSecret is the length below which a value is not looked for: it would be found in other words.
const shortestSecret = 6

// largestToken is the size in bytes of a file above which it holds no token: its lines would be found in other texts.
const largestToken = 64 << 10

// secretName is a name whose value is a secret.
var secretName = regexp.MustCompile(`(?i)(token|secret|passw(or)?d|credential|authorization|cookie|` +
	`api[-_]?key|private[-_]?key)`)

// newRedactor returns one that knows the token of the shell, and the secrets of the environment and of the files that
// it names.
func newRedactor(sh *shell.Shell) *redactor {
	r := &redactor{}
	r.know(sh.Token)
	files := []string{sh.TokenFile}
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		if !secretName.MatchString(name) {
			continue
		}
		// The name of a file is no secret.
		if strings.HasSuffix(name, "_FILE") {
			files = append(files, value)
		} else {
			r.know(value)
		}
	}
	for _, file := range files {
		// What is too large for a token is none.
		if info, err := os.Stat(file); err != nil || info.Size() > largestToken {
			continue
		}
		if text, err := endOf(file, largestToken); err == nil {
			r.know(strings.TrimSpace(string(text)))
		}
	}
	// The longest first: a secret may contain another one, and would no longer be found once that is replaced.
	slices.SortFunc(r.known, func(a, b []byte) int { return len(b) - len(a) })
	return r
}

// know adds a secret, and its lines.
func (r *redactor) know(secret string) {
	for _, one := range append(strings.Split(secret, "\n"), secret) {
		if one = strings.TrimSpace(one); len(one) >= shortestSecret {
			r.known = append(r.known, []byte(one))
		}
	}
}

// looks are what a secret looks like. Each keeps its first group.
var looks = []*regexp.Regexp{
	// Tokens of this program, secrets of Standard Webhooks, and JSON Web Tokens.
	regexp.MustCompile(`()\brlt_[A-Za-z0-9_-]+`),
	regexp.MustCompile(`()\bwhsec_[A-Za-z0-9+/=_-]+`),
	regexp.MustCompile(`()\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`),
	// Headers and URLs that carry one.
	regexp.MustCompile(`(?i)(\b(?:bearer|basic)\s+)[^\s"',;]+`),
	regexp.MustCompile(`([a-z][a-z0-9+.-]*://)[^/\s"'@]+@`),
	// Names with a value, as NAME=VALUE and as Name: value.
	regexp.MustCompile(`(?im)(\b[\w-]*(?:token|secret|passw(?:or)?d|credential|cookie|api[-_]?key|` +
		`private[-_]?key)\s*=\s*)("(?:[^"\\]|\\.)*"|[^\s"]+)`),
	regexp.MustCompile(`(?im)(\b(?:authorization|proxy-authorization|cookie|set-cookie|` +
		`x-[\w-]*(?:token|key|secret)[\w-]*)\s*:\s*)[^\r\n"]+`),
}

// member is a member of a JSON object whose name says that it is a secret; what replaces it is a string, too.
var member = regexp.MustCompile(`(?i)("[\w-]*(?:token|secret|passw(?:or)?d|credential|authorization|cookie|` +
	`api[-_]?key|private[-_]?key)[\w-]*"\s*:\s*)"(?:[^"\\]|\\.)*"`)

// privateKey is a key as PEM has it.
var privateKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\z)`)

// payload is a line of a log that has data of an event.
var payload = regexp.MustCompile(`(?im)^.*\bpayload["']?\s*[:=].*$`)

// bytes returns a text without secrets. Known secrets are replaced first, wherever they are, then what looks like
// one.
func (r *redactor) bytes(text []byte) []byte {
	for _, secret := range r.known {
		text = bytes.ReplaceAll(text, secret, []byte(redacted))
	}
	text = privateKey.ReplaceAll(text, []byte(redacted))
	for _, look := range looks {
		text = look.ReplaceAll(text, []byte("${1}"+redacted))
	}
	return member.ReplaceAll(text, []byte(`${1}"`+redacted+`"`))
}

// lines returns the lines of a log without secrets and payloads.
func (r *redactor) lines(text []byte) []byte {
	return r.bytes(payload.ReplaceAll(text, []byte("[a line with a payload]")))
}

// text is bytes for a string.
func (r *redactor) text(s string) string { return string(r.bytes([]byte(s))) }
