package api

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CheckName refuses what cannot be the name of a cursor, a producer or a caller. The limit is in bytes.
func CheckName(field, name string, limit int) error {
	if len(name) > limit {
		return Refuse(TooLarge, field, fmt.Sprintf("%d bytes, the limit for a name is %d", len(name), limit),
			"use a shorter name")
	}
	if strings.ToValidUTF8(name, "") != name || strings.ContainsFunc(name, unicode.IsControl) {
		return Refuse(InvalidArgument, field, fmt.Sprintf("%q has a control character or is not UTF-8", name),
			"use printable characters")
	}
	return nil
}

// CheckCursorName refuses what cannot be the name of a cursor or a group; kind says which. Nodes take their limit from
// the setting limits.name_bytes. Clients do not know it and pass NoLimit.
func CheckCursorName(kind, name string, limit int) error {
	if name == "" {
		return Refuse(InvalidArgument, kind, "a "+kind+" without a name", "name it")
	}
	return CheckName(kind, name, limit)
}

// NoLimit is a limit that no name reaches.
const NoLimit = int(^uint(0) >> 1)

// TruncateText bounds a text in bytes and says how much is gone.
func TruncateText(text string, limit int) string {
	// Letters are shown as JSON, which has valid UTF-8 alone.
	text = strings.ToValidUTF8(text, "�")
	if len(text) <= limit {
		return text
	}
	// The cut must not leave a part of a character.
	cut := limit
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return fmt.Sprintf("%s … (%d more bytes)", text[:cut], len(text)-cut)
}
