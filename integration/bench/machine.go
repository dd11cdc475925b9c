package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Machine is what the figures were taken on.
// Fields without a value were not found; the report prints them as they are.
type Machine struct {
	CPU          string            `json:"cpu"`
	Cores        int               `json:"cores"`
	MemoryMB     int64             `json:"memory_mb"`
	Kernel       string            `json:"kernel"`
	FileSystem   string            `json:"file_system"`
	FdatasyncMs  []float64         `json:"fdatasync_ms"` // median of 200 writes of 4 KiB, before and after the rounds
	LoadBefore   string            `json:"load_before"`  // /proc/loadavg
	LoadAfter    string            `json:"load_after"`
	GeneratorNs  float64           `json:"generator_ns"` // to generate one event, which each client does
	PayloadBytes float64           `json:"payload_bytes"`
	Go           string            `json:"go"`
	Python       string            `json:"python"`
	Versions     map[string]string `json:"versions"`
}

// describeMachine returns what is known before the rounds. It uses the files of /proc.
// What it does not find is "unknown", "" or 0: nothing that is measured depends on it.
func describeMachine(dir string) Machine {
	m := Machine{
		CPU:        lineOf("/proc/cpuinfo", "model name"),
		Cores:      runtime.NumCPU(),
		Kernel:     firstLine("/proc/sys/kernel/osrelease"),
		FileSystem: fileSystemOf(dir),
		LoadBefore: firstLine("/proc/loadavg"),
		Go:         runtime.Version(),
		Versions:   map[string]string{},
	}
	// The kernel gives kibibytes.
	kb, _ := strconv.ParseInt(strings.TrimSuffix(lineOf("/proc/meminfo", "MemTotal"), " kB"), 10, 64)
	m.MemoryMB = kb / 1024
	// The interpreter of the works of Python; it is optional as long as these are not chosen.
	if out, err := exec.Command("python3", "--version").Output(); err == nil {
		m.Python = strings.TrimSpace(string(out))
	}
	// The versions that this program was built with.
	peers := []string{
		"github.com/nats-io/nats-server/v2", "github.com/nats-io/nats.go",
		"go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/client/v3",
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if slices.Contains(peers, d.Path) {
				m.Versions[d.Path] = d.Version
			}
		}
	}
	// The clients for Python, and the server that is the one in PATH.
	// Each line is NAME==VERSION.
	requirements, _ := pythonFiles.ReadFile(requirementsFile)
	for line := range strings.Lines(string(requirements)) {
		name, version, _ := strings.Cut(strings.TrimSpace(line), "==")
		m.Versions[name+" for Python"] = version
	}
	if out, err := exec.Command(redisServer, "--version").Output(); err == nil {
		m.Versions[redisServer] = strings.TrimSpace(string(out))
	}
	// It takes a second, before anything is measured.
	m.generator()
	return m
}

// generator measures how long it takes to generate an event.
// Generating is a part of what every publisher takes, so the report has it beside the figures.
func (m *Machine) generator() {
	// Many, so one interrupt of the machine does not matter.
	const n = 100_000
	g, bytes := newSource().generator(), 0
	began := time.Now()
	for range n {
		ev := g.next()
		bytes += len(ev.Payload)
	}
	m.GeneratorNs, m.PayloadBytes = float64(time.Since(began))/n, float64(bytes)/n
}

// fdatasyncMedian measures the disk below a folder, in milliseconds.
func fdatasyncMedian(dir string) (float64, error) {
	const writes, size = 200, 4096
	f, err := os.Create(filepath.Join(dir, "fdatasync"))
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	// Each write appends, so its sync has to write metadata as well.
	var all latencies
	block := make([]byte, size)
	for range writes {
		began := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
		if err := fdatasync(f); err != nil {
			return 0, fmt.Errorf("fdatasync %s: %w", f.Name(), err)
		}
		all.add(time.Since(began))
	}
	return millis(quantile(all.sorted(), 0.5)), nil
}

// firstLine returns the first line of a file, "" if there is none.
func firstLine(path string) string {
	text, _ := os.ReadFile(path)
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// lineOf is the value of the first line "NAME : VALUE".
func lineOf(path, name string) string {
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// fileSystemOf names the file system that holds a folder: that of the longest mount point
// which is a part of its path.
func fileSystemOf(dir string) string {
	f, err := os.Open("/proc/mounts")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	// A folder is below several mount points: at least / and its own.
	kind, longest := "unknown", ""
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		// Of equal mount points the last one counts, which is mounted over the others.
		if len(fields) < 3 || len(fields[1]) < len(longest) {
			continue
		}
		// The folder is below this mount point, and no longer one was found.
		if rel, err := filepath.Rel(fields[1], dir); err == nil && filepath.IsLocal(rel) {
			kind, longest = fields[2]+" ("+fields[0]+")", fields[1]
		}
	}
	return kind
}

// addFdatasync measures the disk once more.
func (m *Machine) addFdatasync(dir string) error {
	ms, err := fdatasyncMedian(dir)
	m.FdatasyncMs = append(m.FdatasyncMs, ms)
	return err
}
