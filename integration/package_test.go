package integration

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/internal/longtest"
)

// releaseMade is the folder of a release that is checked.
var releaseMade = flag.String("release.made", "", "check the archives that make release has written to this folder")

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

// A release is the same twice, byte for byte. Its image runs three nodes. Its rpm does what its deb does, and its deb is upgraded under load. Installed
// into a folder of its own the deb has what an operator looks for, is upgraded with the operator's files and the data left
// as they are, removed, and purged. What it installs runs.
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
		"ringlog-0.1.1-oci.tar", "ringlog_0.1.1_amd64.deb", "ringlog-0.1.1-1.x86_64.rpm"} {
		if made[name] == "" {
			t.Errorf("the release lacks %s: %v", name, made)
		}
	}
	runIn(t, newer, nil, "sha256sum", "--quiet", "-c", "SHA256SUMS")
	t.Run("image", func(t *testing.T) { imageRuns(t, older) })
	sameScripts(t, filepath.Join(newer, "ringlog_0.1.1_amd64.deb"), filepath.Join(newer, "ringlog-0.1.1-1.x86_64.rpm"))
	upgradedUnderLoad(t, filepath.Join(older, "ringlog_0.1.0_amd64.deb"), filepath.Join(newer, "ringlog_0.1.1_amd64.deb"))

	root := packageRoot(t)
	at := func(path string) string { return filepath.Join(root, path) }
	dpkg := func(args ...string) {
		t.Helper()
		dpkgIn(t, root, args...)
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

// packageRoot returns a folder into which packages can be installed.
func packageRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "etc", "var/log"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// dpkgIn runs dpkg for a packageRoot. The root has no shell: scripts of the package run outside of it, and DPKG_ROOT says
// where it is.
func dpkgIn(t *testing.T, root string, args ...string) {
	t.Helper()
	args = append([]string{"--root=" + root, "--force-not-root", "--force-script-chrootless", "--force-depends"}, args...)
	if out, err := exec.Command("dpkg", args...).CombinedOutput(); err != nil {
		t.Fatalf("dpkg %v: %v\n%s", args, err, out)
	}
}

// What make release has made for each platform is optimized by the profile, as the compiler has noted in the binary.
func TestEveryPlatformIsBuiltWithTheProfile(t *testing.T) {
	if *releaseMade == "" {
		t.Skip("needs a release: make release, then -release.made $PWD/dist")
	}
	for _, platform := range []string{"linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64"} {
		archives, err := filepath.Glob(filepath.Join(*releaseMade, "ringlog-*-"+platform+".tar.gz"))
		if err != nil || len(archives) != 1 {
			t.Fatalf("%s: %v, %v", platform, archives, err)
		}
		dir, folder := t.TempDir(), strings.TrimSuffix(filepath.Base(archives[0]), ".tar.gz")
		runIn(t, dir, nil, "tar", "-xzf", archives[0], folder+"/ringlog")
		info, err := buildinfo.ReadFile(filepath.Join(dir, folder, "ringlog"))
		if err != nil {
			t.Fatal(err)
		}
		settings := map[string]string{}
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		if filepath.Base(settings["-pgo"]) != "nodes.pgo" || settings["GOOS"]+"-"+settings["GOARCH"] != platform {
			t.Errorf("%s: %v", folder, settings)
		}
	}
}

// sameScripts requires that the rpm does at its installation, upgrade and removal what the deb does, and has its files.
func sameScripts(t *testing.T, deb, rpm string) {
	t.Helper()
	if _, err := exec.LookPath("rpm"); err != nil {
		t.Log("rpm is not installed: its scripts are not compared")
		return
	}
	control := t.TempDir()
	runIn(t, control, nil, "dpkg-deb", "--control", deb, ".")
	for tag, file := range map[string]string{"POSTIN": "postinst", "PREUN": "prerm", "POSTUN": "postrm"} {
		want, err := os.ReadFile(filepath.Join(control, file))
		if err != nil {
			t.Fatal(err)
		}
		got, err := exec.Command("rpm", "-qp", "--qf", "%{"+tag+"PROG} %{"+tag+"}", rpm).Output()
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(string(got)) != "/bin/sh "+strings.TrimSpace(string(want)) {
			t.Errorf("%s of the rpm is\n%s\nand %s of the deb\n%s", tag, got, file, want)
		}
	}
	// Each script leaves what an operator has: an rpm calls it with 1 in an upgrade, a deb with a word.
	files := func(name string, args ...string) []string {
		out, err := exec.Command(name, args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		list := slices.DeleteFunc(strings.Split(string(out), "\n"), func(f string) bool {
			return f == "" || strings.HasSuffix(f, "/")
		})
		slices.Sort(list)
		return list
	}
	inDeb := files("sh", "-c", `dpkg-deb --fsys-tarfile "$0" | tar -t | sed 's/^\.//'`, deb)
	if inRPM := files("rpm", "-qpl", rpm); !slices.Equal(inRPM, inDeb) {
		t.Errorf("the rpm has %v, the deb %v", inRPM, inDeb)
	}
	// Both name who answers for the package, at an address that there can be.
	for _, tags := range [][]string{{"dpkg-deb", "--field", deb, "Maintainer"}, {"rpm", "-qp", "--qf", "%{PACKAGER}", rpm}} {
		out, err := exec.Command(tags[0], tags[1:]...).Output()
		if err != nil || !strings.Contains(string(out), "@") || strings.Contains(string(out), ".example") ||
			strings.Contains(string(out), "localhost") {
			t.Errorf("%v: %v: %s", tags, err, out)
		}
	}
}

// upgradedUnderLoad replaces the packages of three hosts, one after the other, while publishers publish: a node runs on
// until its operator restarts it, and nothing that was acknowledged is lost or repeated.
func upgradedUnderLoad(t *testing.T, older, newer string) {
	t.Helper()
	c := newCluster(t, t.TempDir(), 3)
	roots := map[*process]string{}
	for _, p := range c.nodes {
		roots[p] = packageRoot(t)
		dpkgIn(t, roots[p], "-i", older)
		p.binary = filepath.Join(roots[p], "usr/bin/ringlog")
	}
	c.startAll()
	version := func(p *process) string {
		t.Helper()
		var s struct{ Version string }
		resp, err := http.Get(p.url() + "/status")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
			t.Fatal(err)
		}
		return s.Version
	}
	work := &load{events: math.MaxInt32, publishers: 2, batch: 10, enough: make(chan struct{})}
	published := make(chan struct{})
	go func() {
		defer close(published)
		work.publish(t.Context(), t, c)
	}()
	for i, p := range c.nodes {
		c.eventually(time.Minute, "events", func() error {
			if last := work.last.Load(); last < uint64(1000*(i+1)) {
				return fmt.Errorf("%d events are published", last)
			}
			return nil
		})
		dpkgIn(t, roots[p], "-i", newer)
		if v := version(p); v != "0.1.0" {
			t.Errorf("%s has version %s before its restart", p.id, v)
		}
		p.stop()
		p.start()
		c.converged()
		if v := version(p); v != "0.1.1" {
			t.Errorf("%s has version %s after its restart", p.id, v)
		}
	}
	close(work.enough)
	<-published
	loaded(t, c, work)
	c.close()
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
