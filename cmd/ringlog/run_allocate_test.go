package main

import (
	"slices"
	"strings"
	"testing"
)

// The amounts are put where the arguments name them, and nothing else of the arguments changes.
func TestAmountsAreFilledIn(t *testing.T) {
	amounts := map[string]uint64{"net:a": 50, "net:b": 20, "disk:a": 3, "gpu": 1, "netz": 7}
	for arg, want := range map[string]string{
		"--jobs={disk}":             "--jobs=3",
		"{gpu}{disk}":               "13",
		"{net:a}/{net:b}":           "50/20",
		`{"n":{gpu}}`:               `{"n":1}`,
		"{{gpu}":                    "{1",
		"{{gpu}}":                   "{gpu}",
		"{{none}} {{disk:x}}":       "{none} {disk:x}",
		"${gpu} $HOME ${none}":      "${gpu} $HOME ${none}",
		"{} {1} { gpu } {a,b} {-x}": "{} {1} { gpu } {a,b} {-x}",
		"{{.Names}} {{json .}}":     "{{.Names}} {{json .}}",
		`awk '{print $1}'`:          `awk '{print $1}'`,
	} {
		if got, err := fillIn(arg, amounts); got != want || err != nil {
			t.Errorf("%s: %s, %v, want %s", arg, got, err, want)
		}
	}
	for arg, says := range map[string]string{
		"{net}":        "net:a or net:b: write {net:a}",
		"{gpu} {none}": "{{none}} for the text itself",
		"{disk:b}":     "--allocate names disk:a=3 gpu=1 net:a=50",
		"{Gpu}":        "{Gpu}",
	} {
		if got, err := fillIn(arg, amounts); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %s, %v, want %s", arg, got, err, says)
		}
	}
	want := []string{
		"RINGLOG_ALLOCATION_DISK=3", "RINGLOG_ALLOCATION_DISK_A=3", "RINGLOG_ALLOCATION_GPU=1",
		"RINGLOG_ALLOCATION_NETZ=7", "RINGLOG_ALLOCATION_NET_A=50", "RINGLOG_ALLOCATION_NET_B=20",
	}
	if got := amountVariables(amounts); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	want = []string{"RINGLOG_ALLOCATION___N=1"}
	if got := amountVariables(map[string]uint64{"é-n": 1, "a-b": 2, "a:b": 3, "a": 4}); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
