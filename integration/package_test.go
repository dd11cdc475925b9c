package integration

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringrift/ringlog/internal/longtest"
)

// release makes what a release has for this machine, without the profile, and returns the folder.
func release(t *testing.T, version, dir string) string {
	t.Helper()
	cmd := exec.Command("../cmd/ringlog/packaging/release", version, dir, "linux/amd64")
	cmd.Env = append(os.Environ(), "RINGLOG_RELEASE_PGO=off", "SOURCE_DATE_EPOCH=1700000000")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("release: %v\n%s", err, out)
	}
	return dir
}

// contents returns the hash of each file of a folder.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = fmt.Sprintf("%x", sha256.Sum256(raw))
	}
	return files
}

// A release is the same twice, byte for byte. Its deb is installed into a folder of its own, has what an operator looks
// for, is upgraded with the operator's files and the data left as they are, removed, and purged. What it installs runs.
func TestReleasesAndTheirPackages(t *testing.T) {
	t.Parallel()
	if !longtest.Enabled() {
		t.Skip("set RINGLOG_LONG_TESTS=1: it builds a release three times")
	}
	needTools(t, "dpkg", "gzip", "tar", "python3", "sha256sum")
	if os.Geteuid() != 0 {
		t.Skip("dpkg needs root")
	}
	// The packer's module may not be there, where no proxy is reached.
	if out, err := exec.Command("go", "tool", "-modfile=../.ci/package.mod", "-n", "nfpm").CombinedOutput(); err != nil {
		t.Skipf("nfpm: %v\n%s", err, out)
	}
	older, newer := release(t, "0.1.0", t.TempDir()), release(t, "0.1.1", t.TempDir())
	again := release(t, "0.1.1", t.TempDir())
	made, twice := contents(t, newer), contents(t, again)
	for name, sum := range made {
		if twice[name] != sum {
			t.Errorf("%s differs from build to build", name)
		}
	}
	for _, name := range []string{"SHA256SUMS", "ringlog-0.1.1-linux-amd64.tar.gz", "ringlog-0.1.1.cdx.json",
		"ringlog_0.1.1_amd64.deb", "ringlog-0.1.1-1.x86_64.rpm"} {
		if made[name] == "" {
			t.Errorf("the release lacks %s: %v", name, made)
		}
	}
	runIn(t, newer, nil, "sha256sum", "--quiet", "-c", "SHA256SUMS")

	root := t.TempDir()
	at := func(path string) string { return filepath.Join(root, path) }
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "etc", "var/log"} {
		if err := os.MkdirAll(at(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// The root has no shell: scripts of the package run outside of it, and DPKG_ROOT says where it is.
	dpkg := func(args ...string) {
		t.Helper()
		args = append([]string{"--root=" + root, "--force-not-root", "--force-script-chrootless", "--force-depends"}, args...)
		if out, err := exec.Command("dpkg", args...).CombinedOutput(); err != nil {
			t.Fatalf("dpkg %v: %v\n%s", args, err, out)
		}
	}
	version := func() string {
		out, err := exec.Command(at("usr/bin/ringlog"), "version").Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(out))[1]
	}
	dpkg("-i", filepath.Join(older, "ringlog_0.1.0_amd64.deb"))
	if version() != "0.1.0" {
		t.Error(version())
	}
	for _, file := range []string{"usr/lib/systemd/system/ringlog.service", "usr/lib/sysusers.d/ringlog.conf", "var/lib/ringlog",
		"usr/share/man/man1/ringlog.1.gz", "usr/share/bash-completion/completions/ringlog",
		"usr/share/zsh/vendor-completions/_ringlog", "usr/share/fish/vendor_completions.d/ringlog.fish",
		"usr/share/doc/ringlog/ringlog.toml.example", "usr/share/ringlog/ringlog.rules.yml"} {
		if _, err := os.Stat(at(file)); err != nil {
			t.Error(err)
		}
	}
	// The node of the package, as its unit starts it: its files outlive the upgrade and the removal.
	for path, content := range map[string]string{"etc/ringlog/ringlog.toml": "id = \"n1\"\n",
		"var/lib/ringlog/data": "events"} {
		if err := os.MkdirAll(filepath.Dir(at(path)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at(path), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kept := func(want bool) {
		t.Helper()
		for _, path := range []string{"etc/ringlog/ringlog.toml", "var/lib/ringlog/data"} {
			if _, err := os.Stat(at(path)); (err == nil) != want {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	dpkg("-i", filepath.Join(newer, "ringlog_0.1.1_amd64.deb"))
	if version() != "0.1.1" {
		t.Error(version())
	}
	kept(true)
	runs := newCluster(t, t.TempDir(), 3)
	for _, p := range runs.nodes {
		p.binary = at("usr/bin/ringlog")
	}
	runs.startAll()
	runs.close()
	dpkg("-r", "ringlog")
	if _, err := os.Stat(at("usr/bin/ringlog")); err == nil {
		t.Error("the program outlived its removal")
	}
	kept(true)
	dpkg("-P", "ringlog")
	kept(false)
}

// The unit is one that systemd takes, and leaves a node little that it does not need.
func TestTheUnitIsTaken(t *testing.T) {
	needTools(t, "systemd-analyze")
	dir := t.TempDir()
	unit, err := os.ReadFile("../cmd/ringlog/packaging/systemd/ringlog.service")
	if err != nil {
		t.Fatal(err)
	}
	// It verifies that the program is there.
	unit = []byte(strings.ReplaceAll(string(unit), "/usr/bin/ringlog", binary))
	unit = []byte(strings.ReplaceAll(string(unit), "man:ringlog(1)", "https://example.com"))
	file := filepath.Join(dir, "ringlog.service")
	if err := os.WriteFile(file, unit, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("systemd-analyze", "verify", "--recursive-errors=no", file).CombinedOutput()
	ours := slices.DeleteFunc(strings.Split(string(out), "\n"), func(line string) bool {
		return !strings.Contains(line, "ringlog")
	})
	if err != nil || len(ours) > 0 {
		t.Errorf("%v: %s", err, out)
	}
	// 0 is as little as possible, 10 as much.
	cmd := exec.Command("systemd-analyze", "security", "--offline=yes", "--threshold=25", file)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
