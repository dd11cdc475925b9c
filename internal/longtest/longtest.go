// Package longtest says whether tests take the long way: all histories, cycles and
// scenarios that are kept, in place of the share that finds most mistakes in minutes.
package longtest

import "os"

// Enabled reports whether RINGLOG_LONG_TESTS is set. .ci/run sets it for the packages that
// have a long way.
func Enabled() bool { return os.Getenv("RINGLOG_LONG_TESTS") != "" }
