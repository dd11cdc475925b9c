// Package goname turns names of the catalogue into Go names. It promises that the generators agree on them: the
// constant of a type in package event, and the payload struct of the same name in package emit.
package goname

import (
	"slices"
	"strings"
)

// Type returns the Go name of an event type: TRAINING_COMPLETED is TrainingCompleted, DLQ_EVENTS_PURGED
// is DLQEventsPurged.
func Type(name string) string {
	if name == "ERROR" {
		return "ErrorEvent" // Error is the package's error type
	}
	return join(name, []string{"CMAES", "CPU", "DLQ", "NAS", "NPZ", "P2P", "PBT", "PER", "S3", "SSH"})
}

// Field returns the Go name of a payload field: config_key is ConfigKey, game_ids is GameIDs.
func Field(name string) string {
	return join(name, []string{"CPU", "DB", "GB", "GPU", "ID", "IDS", "IP", "MS", "PID", "RAM"})
}

// join turns UPPER_CASE or lower_case words into one Go name, in which initialisms stay upper case.
func join(name string, initialisms []string) string {
	var b strings.Builder
	// The catalogue's names are words with _ between them, in either case.
	for word := range strings.SplitSeq(strings.ToUpper(name), "_") {
		switch {
		// The plural of an initialism has a small s.
		case word == "IDS" && slices.Contains(initialisms, word):
			word = "IDs"
		case word != "" && !slices.Contains(initialisms, word):
			word = word[:1] + strings.ToLower(word[1:])
		}
		b.WriteString(word)
	}
	return b.String()
}
