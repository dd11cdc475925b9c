package event

import (
	"strings"
	"unicode"
)

// typeCharacters are what a type may be written with.
const typeCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"

// foldName returns a spelling in the form that names are looked up in: upper case, with _ for . and -.
func foldName(s string) string {
	// The common case needs no copy: a canonical name is folded already.
	// Bytes are enough: no byte of a longer character is one that folding changes.
	for i := range len(s) {
		if foldByte(s[i]) != s[i] {
			return string(appendFolded(make([]byte, 0, len(s)), s))
		}
	}
	return s
}

// appendFolded is foldName for a caller with memory of its own.
func appendFolded(dst []byte, s string) []byte {
	for i := range len(s) {
		dst = append(dst, foldByte(s[i]))
	}
	return dst
}

// foldByte is foldName for one byte.
func foldByte(c byte) byte {
	switch {
	case 'a' <= c && c <= 'z':
		return c - 'a' + 'A'
	case c == '.' || c == '-':
		return '_'
	}
	return c
}

// isDigit reports whether c is a decimal digit.
func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isPrintable reports whether s has nothing but printable ASCII.
func isPrintable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// indexControl returns the position of the first control character (C0, DEL, C1), -1 if there is none.
func indexControl(s string) int { return strings.IndexFunc(s, unicode.IsControl) }
