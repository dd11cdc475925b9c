package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/longtest"
)

// senderScript is an agent that sends a dataset to the rsync daemon of another host. It waits for bandwidth, which it
// has for longer than the transfer takes, and publishes what becomes of the transfer. Beside the dataset's copies
// it notes which rsyncs run, and how many.
const senderScript = `
id=$1 dataset=$2 folder=$3 target=$4 address=$5 rate=$6 notes=$7
about="\"sync_id\": \"$id\", \"dataset\": \"$dataset\", \"host\": \"$target\", \"source_node\": \"n1\""
publish() { "$RINGLOG" publish "$1" --no-dedup --timeout 30s --payload "{$about, $2}"; }
"$RINGLOG" allocation request net:n1=50 --id "$id" --holder "$id" --ttl 1m --wait --timeout 60s || exit 1
mkdir "$notes/$id"
ls "$notes" | wc -l >>"$notes.counts"
publish DATA_SYNC_STARTED '"deadline_seconds": 4'
rsync -r --timeout=2 --contimeout=2 --bwlimit="$rate" "$folder/" "rsync://$address:8730/data/$dataset/"
code=$?
different=$(rsync -rcni --timeout=2 --contimeout=2 "$folder/" "rsync://$address:8730/data/$dataset/" | wc -l)
rmdir "$notes/$id"
if [ $code = 0 ] && [ "$different" = 0 ]; then
  cd "$folder"
  publish DATA_SYNC_COMPLETED "\"size_bytes\": $(cat -- * | wc -c), \"file_count\": $(ls | wc -l), \"verified\": true,
    \"version\": \"$(cat -- * | sha256sum | cut -c1-64)\""
else
  publish DATA_SYNC_FAILED "\"error\": \"rsync: exit code $code\""
fi
"$RINGLOG" allocation release "$id"
`

// moves is a cluster whose hosts have rsync daemons. All datasets are on the first host.
type moves struct {
	*netCluster
	admin  *client.Admin
	notes  string
	agents map[string]*exec.Cmd // by the id of the transfer
}

// The capacity of what the first host sends, and what a transfer takes of it.
const (
	sendCapacity = 100
	sendAmount   = 50
)

// folder is where the i-th host has its datasets.
func (m *moves) folder(i int) string { return filepath.Join(m.nodes[i].dir, "datasets") }

// newMoves starts a cluster, the daemons, and fills the first host.
func newMoves(t *testing.T, datasets ...string) *moves {
	if _, err := exec.LookPath("rsync"); err != nil {
		t.Skip("rsync is not installed")
	}
	m := &moves{netCluster: newNetCluster(t, 3), notes: filepath.Join(t.TempDir(), "running"),
		agents: map[string]*exec.Cmd{}}
	m.startAll()
	m.admin = m.client().Admin()
	if err := os.Mkdir(m.notes, 0o755); err != nil {
		t.Fatal(err)
	}
	for i, p := range m.nodes {
		if err := os.MkdirAll(m.folder(i), 0o755); err != nil {
			t.Fatal(err)
		}
		config := filepath.Join(t.TempDir(), "rsyncd.conf")
		text := fmt.Sprintf("use chroot = no\nuid = root\ngid = root\npid file = %s.pid\n[data]\npath = %s\nread only = no\n",
			config, m.folder(i))
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		m.background(p, "rsync", "--daemon", "--no-detach", "--config="+config, "--address="+voterAddr(i), "--port=8730")
	}
	for i, name := range datasets {
		folder := filepath.Join(m.folder(0), name)
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		for file := range 3 {
			content := strings.Repeat(fmt.Sprintf("%s %d ", name, file), 10_000+i)
			if err := os.WriteFile(filepath.Join(folder, strconv.Itoa(file)), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		size, version := describe(t, folder)
		m.mustRun("publish", "DATABASE_CREATED", "--payload", fmt.Sprintf(
			`{"dataset": %q, "node_id": "n1", "size_bytes": %d, "version": %q}`, name, size, version))
	}
	m.mustRun("allocation", "capacity", "net:n1", strconv.Itoa(sendCapacity))
	return m
}

// background runs a command on a host, in a process group of its own, until the test ends.
func (m *moves) background(p *process, command ...string) *exec.Cmd {
	m.t.Helper()
	line := append(m.spaces[p].enter(), command...)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(os.Environ(), "RINGLOG="+binary, "RINGLOG_ENDPOINTS="+strings.Join(m.endpoints(), ","))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		killGroup(cmd)
		if m.t.Failed() {
			m.t.Logf("%s: %s", strings.Join(command, " "), out.String())
		}
	})
	return cmd
}

// killGroup kills a command with all that it has started, and waits for its end.
func killGroup(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	_ = cmd.Wait()
}

// send starts an agent that sends a dataset to the i-th host, with so many kilobytes a second.
func (m *moves) send(dataset string, i, rate int) (id string) {
	id = fmt.Sprintf("%s-to-n%d", dataset, i+1)
	m.agents[id] = m.background(m.nodes[0], "sh", "-c", senderScript, "sh", id, dataset,
		filepath.Join(m.folder(0), dataset), fmt.Sprintf("n%d", i+1), voterAddr(i), strconv.Itoa(rate), m.notes)
	return id
}

// awaitPart waits until a dataset is on the i-th host in part.
func (m *moves) awaitPart(dataset string, i int) {
	m.t.Helper()
	m.eventually(30*time.Second, "a file of "+dataset, func() error {
		_, err := os.Stat(filepath.Join(m.folder(i), dataset, "0"))
		return err
	})
}

// list returns the transfers that a filter chooses, by id.
func (m *moves) list(f client.TransferFilter) (map[string]client.Transfer, error) {
	all := map[string]client.Transfer{}
	for x, err := range m.admin.Transfers(m.t.Context(), f) {
		if err != nil {
			return nil, err
		}
		all[x.ID] = x
	}
	return all, nil
}

// awaitListed waits until the transfers that a filter chooses are these.
func (m *moves) awaitListed(f client.TransferFilter, ids ...string) {
	m.t.Helper()
	m.eventually(60*time.Second, fmt.Sprintf("the transfers of %+v", f), func() error {
		all, err := m.list(f)
		if got := slices.Sorted(maps.Keys(all)); err == nil && !slices.Equal(got, ids) {
			err = fmt.Errorf("they are %v, want %v", got, ids)
		}
		return err
	})
}

// describe returns the size of a dataset and the hash of what its files have, in the order of their names.
func describe(t *testing.T, folder string) (size int64, version string) {
	t.Helper()
	out, err := exec.Command("sh", "-c", `cd "$1" && cat -- * | wc -c && cat -- * | sha256sum | cut -c1-64`, "sh",
		folder).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Fields(string(out))
	if size, err = strconv.ParseInt(lines[0], 10, 64); err != nil {
		t.Fatal(err)
	}
	return size, lines[1]
}

// onDisk returns what is whole on the disks, as copyLine has it.
func (m *moves) onDisk(t *testing.T) (lines []string) {
	for i := range m.nodes {
		entries, err := os.ReadDir(m.folder(i))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		for _, e := range entries {
			size, version := describe(t, filepath.Join(m.folder(i), e.Name()))
			_, whole := describe(t, filepath.Join(m.folder(0), e.Name()))
			if version == whole {
				lines = append(lines, fmt.Sprintf("n%d %s %d %s", i+1, e.Name(), size, version))
			}
		}
	}
	return lines
}

// listed returns the copies that the log has, host by host.
func (m *moves) listed(t *testing.T) (lines []string) {
	for i := range m.nodes {
		for c, err := range m.admin.Held(t.Context(), fmt.Sprintf("n%d", i+1)) {
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, fmt.Sprintf("%s %s %d %s", c.Host, c.Name, c.Bytes, c.Version))
		}
	}
	return lines
}

// mostGranted returns the highest amount that was granted at once, by the log.
func (m *moves) mostGranted(t *testing.T) (most int) {
	granted := map[string]bool{}
	out := m.mustRun("tail", "--from", "start", "--until-end", "-o", "json", "--type",
		"ALLOCATION_GRANTED,ALLOCATION_RELEASED,ALLOCATION_LOST")
	for line := range strings.Lines(out) {
		var e struct {
			Type event.Type `json:"type"`
			Key  string     `json:"key"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		granted[e.Key] = e.Type == "ALLOCATION_GRANTED"
		now := 0
		for _, has := range granted {
			if has {
				now += sendAmount
			}
		}
		most = max(most, now)
	}
	return most
}

// Datasets are sent by rsync between hosts that share bandwidth. One agent is killed, one host is cut off; both
// transfers are reported, retried and completed. In the end the log names exactly the copies that are on the disks, and
// at no time was more granted than there is.
func TestTransfersOfRsync(t *testing.T) {
	if !longtest.Enabled() {
		t.Skip("takes half a minute; with RINGLOG_LONG_TESTS=1")
	}
	m := newMoves(t, "a", "b", "c", "d")
	// Two fill the bandwidth, slowly; the others wait for it.
	killed, cutOff := m.send("a", 1, 10), m.send("b", 2, 10)
	m.awaitPart("a", 1)
	m.awaitPart("b", 2)
	ids := []string{m.send("b", 1, 5000), m.send("c", 1, 5000), m.send("c", 2, 5000), killed, cutOff}
	m.awaitListed(client.TransferFilter{State: "running"}, killed, cutOff)

	killGroup(m.agents[killed])
	if err := os.Remove(filepath.Join(m.notes, killed)); err != nil {
		t.Fatal(err)
	}
	m.isolate(m.nodes[2])
	// What was killed says nothing any more. What cannot reach its host says so, and so does what comes after it.
	m.awaitListed(client.TransferFilter{State: "failed"}, cutOff, "c-to-n3")
	m.awaitListed(client.TransferFilter{Overdue: true}, killed)
	m.heal()
	for id, to := range map[string]int{killed: 1, cutOff: 2, "c-to-n3": 2} {
		if err := m.agents[id].Wait(); id != killed && err != nil {
			t.Errorf("the agent of %s: %v", id, err)
		}
		m.mustRun("publish", "SYNC_RETRY_REQUESTED", "--payload", fmt.Sprintf(`{"sync_id": %q, "host": "n%d"}`, id, to+1))
		m.send(id[:1], to, 5000)
	}
	slices.Sort(ids)
	m.awaitListed(client.TransferFilter{State: "completed"}, ids...)
	all, err := m.list(client.TransferFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for id, x := range all {
		retries := map[string]uint64{killed: 1, cutOff: 1, "c-to-n3": 1}[id]
		if x.Retries != retries || x.Checked != "verified" || x.From != "n1" || x.Started == nil {
			t.Errorf("%s, which was retried %d times: %+v", id, retries, x)
		}
	}
	// One that is killed for good leaves a part on the disk, which is no copy.
	lost := m.send("d", 2, 10)
	m.awaitPart("d", 2)
	killGroup(m.agents[lost])
	m.awaitListed(client.TransferFilter{State: "running"}, lost)

	if diff := cmp.Diff(m.onDisk(t), m.listed(t)); diff != "" {
		t.Errorf("on the disks (-) and by the log (+): %s", diff)
	}
	out := m.mustRun("where", "a", "-o", "json")
	if strings.Count(out, "\n") != 2 || !strings.Contains(out, `"host":"n1"`) || !strings.Contains(out, `"host":"n2"`) {
		t.Errorf("where a: %s", out)
	}
	if most := m.mostGranted(t); most != sendCapacity {
		t.Errorf("at most %d were granted at once, of %d", most, sendCapacity)
	}
	counts, err := os.ReadFile(m.notes + ".counts")
	if err != nil {
		t.Fatal(err)
	}
	if most := slices.Max(strings.Fields(string(counts))); most != strconv.Itoa(sendCapacity/sendAmount) {
		t.Errorf("at most %s of rsync ran at once", most)
	}
}
