package fsm

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/ringrift/ringlog/internal/kv"
)

// Dump writes the whole state in its canonical form: one JSON object a line,
// {"key","value"} for text and {"key","hex"} for other bytes, in key order. Two
// nodes at the same index write the same.
func (v *views) Dump(w io.Writer) error {
	out := bufio.NewWriter(w)
	err := v.log.View(func(db kv.DB) error {
		it, err := db.Iter(nil, nil)
		if err != nil {
			return err
		}
		defer it.Close()
		// Key order is the canonical order.
		for ok := it.First(); ok; ok = it.Next() {
			value, err := it.ValueAndErr()
			if err != nil {
				return err
			}
			if err := dumpPair(out, it.Key(), value); err != nil {
				return err
			}
		}
		return it.Error()
	})
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return fmt.Errorf("dump: %w", err)
	}
	return nil
}

// dumpPair writes one line of a dump. The first byte of a key is its prefix, as a character; the rest is in hex
// unless it is a name.
func dumpPair(w io.Writer, key, value []byte) error {
	line := map[string]string{"key": fmt.Sprintf("%c%x", key[0], key[1:])}
	switch key[0] {
	// These keys hold a name.
	case prefixCursor, prefixPlace, prefixSetting, prefixMember, prefixProducer, prefixResult,
		prefixType, prefixFlow, prefixDesiredVote, prefixClient, prefixLostClient, prefixUnheard,
		prefixGroupDone, prefixGroupRetry, prefixPolicy, prefixPolicyKey, prefixRole, prefixWaiting,
		prefixScheduled, prefixScheduledEvent, prefixResource, prefixAllocation,
		prefixView, prefixEmitted, prefixToken:
		line["key"] = fmt.Sprintf("%c%q", key[0], key[1:])
	}
	// Most values are JSON or text.
	if utf8.Valid(value) {
		line["value"] = string(value)
	} else {
		line["hex"] = fmt.Sprintf("%x", value)
	}
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}
