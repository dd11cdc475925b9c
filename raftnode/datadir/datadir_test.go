package datadir

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// holdDir makes the test binary hold a folder until its stdin ends.
const holdDir = "RINGLOG_TEST_DATADIR_HOLD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdDir); dir != "" {
		os.Exit(hold(dir))
	}
	os.Exit(m.Run())
}

func hold(dir string) int {
	if _, err := Open(dir, n1); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("held")
	io.Copy(io.Discard, os.Stdin)
	return 0
}

var n1 = Options{NodeID: "n1"}

func open(t *testing.T, dir string, opts Options) *Dir {
	t.Helper()
	d, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// wantError checks what err is and that it names the folder and a remedy.
func wantError(t *testing.T, err, want error, parts ...string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want %v", err, want)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// createStores leaves raft files as a node that has started does.
func createStores(t *testing.T, d *Dir) {
	t.Helper()
	for _, file := range storeFiles(d.Path()) {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("raft"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.MarkStoresCreated(); err != nil {
		t.Fatal(err)
	}
}

func TestAFolderKeepsWhoItIs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	d := open(t, dir, n1)
	fresh := d.Marker()
	if fresh.Incarnation == "" || fresh.StoresCreated || time.Since(fresh.Created) > time.Minute {
		t.Fatalf("fresh marker is %+v", fresh)
	}
	peers := []Peer{{ID: "n1", Raft: "10.0.0.1:9770", HTTP: "10.0.0.1:8770", Incarnation: fresh.Incarnation}}
	if err := d.SetCluster("", peers); err != nil {
		t.Fatal(err)
	}
	if err := d.SetCluster("c1", peers); err != nil {
		t.Fatal(err)
	}
	createStores(t, d)
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	wantError(t, d.SetCluster("c1", nil), ErrClosed)

	want := fresh
	want.ClusterID, want.Peers, want.StoresCreated = "c1", peers, true
	inspected, err := Inspect(dir)
	if err != nil {
		t.Fatal(err)
	}
	d = open(t, dir, n1)
	for _, got := range []Marker{inspected, d.Marker()} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("marker (-want +got):\n%s", diff)
		}
	}
	d.Marker().Peers[0].ID = "changed"
	wantError(t, d.SetCluster("c2", peers), ErrOtherCluster, dir, "c1", "c2")
	if diff := cmp.Diff(want, d.Marker()); diff != "" {
		t.Fatalf("marker changed (-want +got):\n%s", diff)
	}
	if other := open(t, t.TempDir(), n1); other.Marker().Incarnation == fresh.Incarnation {
		t.Fatal("two folders have one incarnation")
	}
}

func TestAFolderOfSomebodyElseIsRefused(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir, n1)
	d.Close()
	_, err := Open(dir, Options{NodeID: "n2"})
	wantError(t, err, ErrOtherNode, dir, "n1", "n2", "--id n1")

	newer := d.Marker()
	newer.Format = Format + 1
	if err := writeMarker(dir, newer); err != nil {
		t.Fatal(err)
	}
	_, err = Open(dir, n1)
	wantError(t, err, ErrNewerFormat, MarkerFile, "newer program")
	_, err = Inspect(dir)
	wantError(t, err, ErrNewerFormat)

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Open(file, n1)
	wantError(t, err, ErrNoFolder, file)
	_, err = Inspect(t.TempDir())
	wantError(t, err, ErrNoFolder)
}

// TestAnyDamageToTheMarkerIsFound flips each bit and cuts at each length.
func TestAnyDamageToTheMarkerIsFound(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, n1).Close()
	file := filepath.Join(dir, MarkerFile)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	refuses := func(what string, raw []byte) {
		t.Helper()
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, n1); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), Rejoin) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for bit := range 8 * len(good) {
		raw := slices.Clone(good)
		raw[bit/8] ^= 1 << (bit % 8)
		refuses(fmt.Sprintf("bit %d flipped", bit), raw)
	}
	for n := range len(good) {
		refuses(fmt.Sprintf("cut to %d", n), good[:n])
	}
	refuses("longer", append(slices.Clone(good), '\n'))
}

// Builds before had a second log store, and wrote which one a folder has into its marker.
func TestAFolderOfALogStoreThatIsGoneIsRefusedByName(t *testing.T) {
	for store, refused := range map[string]bool{"wal": true, "boltdb": false} {
		dir := t.TempDir()
		d := open(t, dir, n1)
		createStores(t, d)
		m := d.Marker()
		m.LogStore = store
		if err := errors.Join(d.Close(), writeMarker(dir, m)); err != nil {
			t.Fatal(err)
		}
		if !refused {
			open(t, dir, n1)
			continue
		}
		_, err := Open(dir, n1)
		wantError(t, err, ErrLogStoreGone, dir, store, "snapshot save", "snapshot restore")
		_, err = Inspect(dir)
		wantError(t, err, ErrLogStoreGone, dir, store)
	}
}

func TestMissingAndEmptiedRaftFilesAreDamage(t *testing.T) {
	for i := range 3 {
		for _, emptied := range []bool{false, true} {
			dir := t.TempDir()
			d := open(t, dir, n1)
			if err := d.MarkStoresCreated(); err != nil && !errors.Is(err, ErrDamaged) || err == nil {
				t.Fatalf("marked stores that do not exist: %v", err)
			}
			open(t, t.TempDir(), n1)
			createStores(t, d)
			d.Close()
			file := storeFiles(dir)[i]
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			if emptied {
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Open(dir, n1)
			wantError(t, err, ErrDamaged, file, Rejoin)
			_, err = Inspect(dir)
			wantError(t, err, ErrDamaged, file)
		}
	}
}

func TestAMissingMarkerBesideDataIsDamage(t *testing.T) {
	for _, left := range []string{RaftDir, StateDir} {
		dir := t.TempDir()
		d := open(t, dir, n1)
		if err := os.MkdirAll(d.Path(left), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(d.Path(left, "data"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		d.Close()
		os.Remove(d.Path(MarkerFile))
		_, err := Open(dir, n1)
		wantError(t, err, ErrDamaged, MarkerFile, left)
		_, err = Inspect(dir)
		wantError(t, err, ErrDamaged, MarkerFile)
	}
}

// TestTwoProcessesDoNotShareAFolder holds it in another process, then kills
// that one.
func TestTwoProcessesDoNotShareAFolder(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdDir+"="+dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(stdout).ReadString('\n'); line != "held\n" {
		t.Fatalf("helper said %q", line)
	}
	_, err = Open(dir, n1)
	wantError(t, err, ErrInUse, dir, fmt.Sprintf("process %d", cmd.Process.Pid))
	_, err = Inspect(dir)
	wantError(t, err, ErrInUse, dir, fmt.Sprintf("process %d", cmd.Process.Pid))

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if _, err := Inspect(dir); err != nil {
		t.Fatal(err)
	}
	open(t, dir, n1)
}

func TestTheReserveHoldsBlocksAndGivesThemBack(t *testing.T) {
	d := open(t, t.TempDir(), n1)
	for _, size := range []int64{3 << 20, 1 << 20, 2 << 20} {
		if err := d.Reserve(size); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(d.Path(ReserveFile))
		if err != nil || info.Size() != size {
			t.Fatalf("reserve of %d bytes: %v, %v", size, info, err)
		}
		if got := info.Sys().(*syscall.Stat_t).Blocks * 512; got < size {
			t.Fatalf("reserve of %d bytes holds %d", size, got)
		}
	}
	if free, size, err := d.Space(); err != nil || free == 0 || size < free {
		t.Fatalf("%d bytes of %d are free, %v", free, size, err)
	}
	if err := errors.Join(d.ReleaseReserve(), d.ReleaseReserve(), d.Reserve(0)); err != nil {
		t.Fatal(err)
	}
	if err := d.Reserve(1 << 60); err == nil {
		t.Fatal("reserved more than there is")
	}
	if _, err := os.Stat(d.Path(ReserveFile)); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("a reserve is left: %v", err)
	}
}
