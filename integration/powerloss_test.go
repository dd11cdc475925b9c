package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ringrift/ringlog/internal/longtest"
)

// disk is a file system in a file that can lose its power: what was not synced is
// gone, for data and metadata alike.
type disk struct {
	t     testing.TB
	image string
	mount string
}

// newDisk makes an XFS in a file and mounts it; where that is impossible the
// test is skipped and says why.
func newDisk(t testing.TB) *disk {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	for _, tool := range []string{"mkfs.xfs", "xfs_io", "mount", "umount"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	dir := t.TempDir()
	d := &disk{t: t, image: filepath.Join(dir, "disk.img"), mount: filepath.Join(dir, "mnt")}
	if err := os.Mkdir(d.mount, 0o755); err != nil {
		t.Fatal(err)
	}
	d.must("truncate", "-s", "4G", d.image)
	d.must("mkfs.xfs", "-q", d.image)
	if out, err := exec.Command("mount", "-o", "loop", d.image, d.mount).CombinedOutput(); err != nil {
		t.Skipf("this machine does not mount a loop device: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", d.mount).Run() }) // lazily: a file may still be open
	return d
}

// must runs a command that has to succeed.
func (d *disk) must(name string, args ...string) {
	d.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		d.t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

// lose cuts the power: from now on every operation fails, and nothing that was
// not synced reaches the disk.
func (d *disk) lose() { d.must("xfs_io", "-x", "-c", "shutdown", d.mount) }

// restore brings the disk back as it was left.
func (d *disk) restore() {
	d.must("umount", d.mount)
	d.must("mount", "-o", "loop", d.image, d.mount)
}

// All nodes lose their power at once, again and again, with requests in flight:
// nothing acknowledged is missing.
func TestPowerLossOfAllNodes(t *testing.T) {
	t.Parallel()
	d := newDisk(t)
	c := newCluster(t, d.mount, 3)
	l := newLedger()
	rounds := 4
	if !longtest.Enabled() {
		rounds = 1
	}
	for round := range rounds {
		// Writers until some events are acknowledged.
		c.startAll()
		ctx, cancel := context.WithCancel(t.Context())
		var writing sync.WaitGroup
		for number := range 8 {
			cl := c.client(rotate(c.endpoints(), number)...)
			writing.Go(func() { l.writer(ctx, t, cl, round*100+number) })
		}
		before := l.counts.Load()
		c.eventually(60*time.Second, "acknowledged events", func() error {
			if n := l.counts.Load() - before; n < 3000 {
				return fmt.Errorf("%d so far", n)
			}
			return nil
		})
		// The power goes while they write.
		d.lose()
		cancel()
		writing.Wait()
		for _, p := range c.nodes {
			p.kill()
		}
		d.restore()
	}
	c.startAll()
	t.Logf("%d power losses, %d acknowledged events of %d sent", rounds, len(l.acked), len(l.sent))
	compare(t, c, l)
	for _, p := range c.nodes {
		p.kill() // before the disk is unmounted
	}
}
