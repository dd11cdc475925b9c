package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringrift/ringlog/client"
)

// shareScript is a command with its share of a resource. It notes how much all commands have that run beside it: each
// has its file there before it looks for the others, so the last to start of any that run at the same time sees all.
const shareScript = `: >"$1/$$-$2"
total=0
for file in "$1"/*; do
  name=${file##*/}
  pid=${name%-*}
  state=$(sed -n 's/^State:.//p' "/proc/$pid/status" 2>/dev/null)
  case $state in Z*|X*|'') ;; *) total=$((total + ${name#*-})) ;; esac
done
echo "$total" >>"$3"
sleep 0.2
rm "$1/$$-$2"
`

// Commands share a resource with a capacity. Whatever happens to those who run them, and to the leader, the commands
// that run at the same time never have more than it.
func TestCommandsNeverHaveMoreThanTheCapacity(t *testing.T) {
	t.Parallel()
	const resource, capacity, runs = "net:a", 100, 5
	c := newCluster(t, t.TempDir(), 3).startAll()
	cl := c.client()
	most := uint64(capacity)
	if _, err := cl.Admin().SetResource(t.Context(), resource, client.NewResource{Capacity: &most}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	alive, totals := filepath.Join(dir, "alive"), filepath.Join(dir, "totals")
	if err := os.Mkdir(alive, 0o755); err != nil {
		t.Fatal(err)
	}
	share := func(amount int) *exec.Cmd {
		n := strconv.Itoa(amount)
		cmd := exec.Command(binary, "run", "--allocate", resource+"="+n, "--ttl", "2s", "--restart", "never", "--",
			"sh", "-c", shareScript, "sh", alive, "{net}", totals)
		cmd.Env = append(os.Environ(), "RINGLOG_ENDPOINTS="+strings.Join(c.endpoints(), ","))
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return cmd
	}
	noted := func() (list []int) {
		text, err := os.ReadFile(totals)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		for _, line := range strings.Fields(string(text)) {
			n, err := strconv.Atoi(line)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, n)
		}
		return list
	}
	var all sync.WaitGroup
	for _, amount := range []int{60, 50, 40, 30, 20} {
		all.Go(func() {
			for done := 0; done < runs; {
				cmd := share(amount)
				switch out, err := cmd.CombinedOutput(); {
				case err == nil:
					done++
				// Without a leader for most of the TTL, the command is stopped: others may have what it had.
				case cmd.ProcessState.ExitCode() == 6 && strings.Contains(string(out), "the allocation is lost"):
				default:
					t.Errorf("%d: %v\n%s", amount, err, out)
					return
				}
			}
		})
	}

	// One that runs a command beside them is killed each time, and the leader once.
	for i := range 3 {
		cmd := share(70)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		c.eventually(30*time.Second, "a command that has 70", func() error {
			if files, _ := filepath.Glob(filepath.Join(alive, "*-70")); len(files) <= i {
				return fmt.Errorf("there are %v", files)
			}
			return nil
		})
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if i == 0 {
			leader := c.leader()
			leader.kill()
			leader.start()
		}
	}
	all.Wait()
	list := noted()
	most = 0
	for _, n := range list {
		most = max(most, uint64(n))
	}
	if most > capacity || most < capacity/2+1 || len(list) < 5*runs {
		t.Errorf("commands that ran at the same time had up to %d of %d: %v", most, capacity, list)
	}
	t.Logf("%d commands had up to %d of %d at a time", len(list), most, capacity)
	c.eventually(30*time.Second, "all are released or over", func() error {
		for r, err := range cl.Admin().Resources(t.Context()) {
			if err != nil || r.Granted+uint64(r.Waiting) > 0 {
				return fmt.Errorf("%+v, %w", r, err)
			}
		}
		return nil
	})
}
