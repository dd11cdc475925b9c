package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/internal/testaddr"
)

// finding is a line of doctor.
type finding struct {
	Check, Found, Remedy string
	OK                   bool
}

// doctor runs ringlog doctor, and returns what it found and its exit code.
func doctor(t testing.TB, within []string, args ...string) (findings []finding, code int) {
	t.Helper()
	args = append(append(append([]string{}, within...), binary, "doctor", "-o", "json"), args...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code, err = exit.ExitCode(), nil
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		var f finding
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		findings = append(findings, f)
	}
	return findings, code
}

// problemsOf returns the findings that are not good, as text.
func problemsOf(findings []finding) (list []string) {
	for _, f := range findings {
		if !f.OK {
			list = append(list, fmt.Sprintf("%s: %s (%s)", f.Check, f.Found, f.Remedy))
		}
	}
	return list
}

// doctoredMachine is what doctor looks at, before a fault is planted.
type doctoredMachine struct {
	t      *testing.T
	dir    string            // of all files
	config map[string]string // of the node, as TOML
	within []string          // a command that doctor is passed to
	args   []string          // of doctor
}

// file is a file of the machine.
func (m *doctoredMachine) file(name string) string { return filepath.Join(m.dir, name) }

// write makes a file.
func (m *doctoredMachine) write(name, content string, mode os.FileMode) string {
	m.t.Helper()
	if err := os.WriteFile(m.file(name), []byte(content), mode); err != nil {
		m.t.Fatal(err)
	}
	// Whatever the umask.
	if err := os.Chmod(m.file(name), mode); err != nil {
		m.t.Fatal(err)
	}
	return m.file(name)
}

// secure gives the node a certificate that is valid for some time and has a host.
func (m *doctoredMachine) secure(id, host, valid string) {
	runIn(m.t, m.dir, nil, binary, "cert", "ca")
	runIn(m.t, m.dir, nil, binary, "cert", "node", id, "--host", host, "--valid", valid)
	files := map[string]string{"cert": "node-" + id + ".pem", "key": "node-" + id + "-key.pem", "ca": "ca.pem"}
	for key, name := range files {
		m.config["tls-"+key] = fmt.Sprintf("%q", m.file(name))
	}
}

// Each planted fault is found on a machine where doctor finds none without it, and has a remedy.
func TestDoctorFindsWhatIsPlanted(t *testing.T) {
	t.Parallel()
	faults := []struct {
		name, check, found string
		plant              func(m *doctoredMachine)
	}{
		{"a key that is misspelt", "configuration", "heartbeet", func(m *doctoredMachine) { m.config["heartbeet"] = `"1s"` }},
		{"no id", "configuration", "--id is required", func(m *doctoredMachine) { delete(m.config, "id") }},
		{"open to the network", "configuration", "no cluster token", func(m *doctoredMachine) {
			m.config["http"] = `"0.0.0.0:8770"`
		}},
		{"open on purpose", "configuration", "insecure is set", func(m *doctoredMachine) { m.config["insecure"] = "true" }},
		{"an even number of voters", "configuration", "bootstrap-expect is 4", func(m *doctoredMachine) {
			m.config["bootstrap-expect"] = "4"
			m.config["join"] = `["http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"]`
		}},
		{"a voter that join lacks", "configuration", "join has 1 URL", func(m *doctoredMachine) {
			m.config["bootstrap-expect"], m.config["join"] = "3", `["http://127.0.0.1:1"]`
		}},
		{"a log of everything", "configuration", "log-level is debug", func(m *doctoredMachine) {
			m.config["log-level"] = `"debug"`
		}},
		{"a profile that was forgotten", "configuration", "cpu-profile", func(m *doctoredMachine) {
			m.config["cpu-profile"] = fmt.Sprintf("%q", m.file("profile"))
		}},
		{"a port that is taken", "http port", "is in use", func(m *doctoredMachine) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				m.t.Fatal(err)
			}
			m.t.Cleanup(func() { _ = l.Close() })
			m.config["http"] = fmt.Sprintf("%q", l.Addr())
		}},
		{"an address of another machine", "raft port", "no address of this machine", func(m *doctoredMachine) {
			m.config["raft"] = `"192.0.2.1:9770"`
			m.config["token-file"] = fmt.Sprintf("%q", m.write("token", strings.Repeat("k", 32), 0o600))
		}},
		{"a name that nobody knows", "names", "nowhere.invalid", func(m *doctoredMachine) {
			m.config["advertise-http"] = `"nowhere.invalid:8770"`
		}},
		{"a folder that others can enter", "data folder", "others can enter", func(m *doctoredMachine) {
			if err := os.Mkdir(m.file("data"), 0o755); err != nil {
				m.t.Fatal(err)
			}
			if err := os.Chmod(m.file("data"), 0o755); err != nil {
				m.t.Fatal(err)
			}
		}},
		{"a folder of another node", "data folder", "is of node n9", func(m *doctoredMachine) { m.ran("n9") }},
		{"a marker with a flipped bit", "data folder", "node.json", func(m *doctoredMachine) {
			m.ran("n1")
			raw, err := os.ReadFile(m.file("data/node.json"))
			if err != nil {
				m.t.Fatal(err)
			}
			raw[len(raw)/2] ^= 4
			m.write("data/node.json", string(raw), 0o600)
		}},
		{"a folder that is a file", "configuration", "is a file", func(m *doctoredMachine) { m.write("data", "", 0o600) }},
		{"memory in place of a disk", "file system", "tmpfs", func(m *doctoredMachine) {
			dir, err := os.MkdirTemp("/dev/shm", "ringlog-doctor-")
			if err != nil {
				m.t.Skip(err)
			}
			m.t.Cleanup(func() { _ = os.RemoveAll(dir) })
			m.config["data-dir"] = fmt.Sprintf("%q", dir)
		}},
		{"a disk that is nearly full", "disk space", "refuses appends", func(m *doctoredMachine) {
			m.config["disk-min-free"] = fmt.Sprint(int64(1) << 40)
		}},
		{"a slow disk", "disk speed", "a synced write takes", func(m *doctoredMachine) {
			m.args = append(m.args, "--max-sync", "1ns")
		}},
		{"few descriptors", "open files", "may have 256", func(m *doctoredMachine) {
			m.within = []string{"prlimit", "--nofile=256:256"}
		}},
		{"a certificate that expires", "certificate", "expires in", func(m *doctoredMachine) {
			m.secure("n1", "127.0.0.1", "10d")
		}},
		{"a certificate of another host", "certificate", "127.0.0.1", func(m *doctoredMachine) {
			m.secure("n1", "10.9.9.9", "90d")
		}},
		{"a certificate of another node", "certificate", "n2", func(m *doctoredMachine) {
			m.secure("n2", "127.0.0.1", "90d")
		}},
		{"a key that others can read", "certificate", "can be read by others", func(m *doctoredMachine) {
			m.secure("n1", "127.0.0.1", "90d")
			if err := os.Chmod(m.file("node-n1-key.pem"), 0o644); err != nil {
				m.t.Fatal(err)
			}
		}},
		{"TLS that is not required", "configuration", "tls-mode is allow", func(m *doctoredMachine) {
			m.secure("n1", "127.0.0.1", "90d")
			m.config["tls-mode"] = `"allow"`
		}},
		{"a token that others can read", "token", "can be read by others", func(m *doctoredMachine) {
			m.config["token-file"] = fmt.Sprintf("%q", m.write("token", strings.Repeat("k", 32), 0o644))
		}},
		{"a token that can be guessed", "token", "can be guessed", func(m *doctoredMachine) {
			m.config["token-file"] = fmt.Sprintf("%q", m.write("token", "secret", 0o600))
		}},
		{"a token file that is missing", "configuration", "no such file", func(m *doctoredMachine) {
			m.config["token-file"] = fmt.Sprintf("%q", m.file("missing"))
		}},
	}
	run := func(t *testing.T, plant func(m *doctoredMachine)) (findings []finding, code int) {
		m := &doctoredMachine{t: t, dir: t.TempDir(), args: []string{"--offline", "--max-sync", "10s"}}
		m.config = map[string]string{"id": `"n1"`, "data-dir": fmt.Sprintf("%q", m.file("data")), "bootstrap-expect": "1",
			"http": fmt.Sprintf("%q", testaddr.Free(t)), "raft": fmt.Sprintf("%q", testaddr.Free(t))}
		plant(m)
		text := ""
		for key, value := range m.config {
			text += key + " = " + value + "\n"
		}
		return doctor(t, m.within, append(m.args, "--config", m.write("ringlog.toml", text, 0o600))...)
	}
	if found, code := run(t, func(*doctoredMachine) {}); code != 0 || len(problemsOf(found)) > 0 || len(found) < 6 {
		t.Fatalf("without a fault: %d, %v", code, found)
	}
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			found, code := run(t, fault.plant)
			hit := false
			for _, f := range found {
				hit = hit || (!f.OK && f.Check == fault.check && strings.Contains(f.Found, fault.found) && f.Remedy != "")
			}
			if !hit || code != 1 {
				t.Errorf("exit code %d, %q", code, problemsOf(found))
			}
		})
	}
}

// ran leaves the data folder of a node that has run.
func (m *doctoredMachine) ran(id string) {
	m.t.Helper()
	c := newCluster(m.t, m.t.TempDir(), 1)
	c.nodes[0].id, c.nodes[0].dir = id, m.file("data")
	c.startAll()
	c.nodes[0].stop()
}

// In a cluster, doctor finds a member that is gone, another version, the missing backup, and a cluster that is not
// there. After a backup a healthy cluster has no problem.
func TestDoctorLooksAtTheCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t, t.TempDir(), 3).startAll()
	c.converged()
	endpoints := []string{"-e", strings.Join(c.endpoints(), ",")}
	wants := func(check, text string, args ...string) {
		t.Helper()
		found, code := doctor(t, nil, append(endpoints, args...)...)
		if all := strings.Join(problemsOf(found), "\n"); code != 1 || !strings.Contains(all, check+": ") ||
			!strings.Contains(all, text) {
			t.Errorf("exit code %d, and not %q: %s", code, text, all)
		}
	}
	// A backup is asked for once the cluster is as old as one may be.
	if found, _ := doctor(t, nil, endpoints...); strings.Contains(strings.Join(problemsOf(found), "\n"), "backup: ") {
		t.Errorf("a new cluster: %q", problemsOf(found))
	}
	wants("backup", "has ever made one", "--max-backup-age", "1ns")
	c.mustRun("snapshot", "save", filepath.Join(t.TempDir(), "backup"))
	c.eventually(time.Minute, "clean bill of health", func() error {
		if found, code := doctor(t, nil, endpoints...); code != 0 {
			return fmt.Errorf("%q", problemsOf(found))
		}
		return nil
	})
	wants("backup", "old", "--max-backup-age", "1ns")
	// The clocks of processes of one machine differ by nothing, which is known to some microseconds.
	if found, _ := doctor(t, nil, append(endpoints, "--max-clock-skew", "100ms")...); len(problemsOf(found)) > 0 {
		t.Errorf("%q", problemsOf(found))
	}
	leader := c.leader()
	for _, p := range c.nodes {
		if p != leader {
			p.kill()
			break
		}
	}
	wants("cluster", "does not answer")
	found, code := doctor(t, nil, "-e", "http://"+testaddr.Free(t))
	if code != 1 || len(problemsOf(found)) != 1 {
		t.Errorf("%d, %q", code, problemsOf(found))
	}
}
