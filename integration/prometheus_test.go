package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/longtest"
	"github.com/ringrift/ringlog/internal/testaddr"
)

// Where the files for Prometheus and Grafana are.
const (
	rulesFile     = "../cmd/ringlog/packaging/prometheus/ringlog.rules.yml"
	dashboardFile = "../cmd/ringlog/packaging/grafana/ringlog.json"
)

// The alerts that no healthy build can be made to raise. Their tests are those of promtool alone.
var unraised = []string{"RinglogDiverged", "RinglogPanics"}

// alertNames returns the alerts of the file, in its order.
func alertNames(t testing.TB) (names []string) {
	t.Helper()
	rules, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllSubmatch(rules, -1) {
		names = append(names, string(found[1]))
	}
	return names
}

// needTools skips a test if a tool is not installed.
func needTools(t testing.TB, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
}

// Each alert has a test of promtool, which says when it fires and when it does not, and all of them pass.
func TestTheRulesOfAlertsAreTested(t *testing.T) {
	needTools(t, "promtool")
	var tests []byte
	files, err := filepath.Glob("../cmd/ringlog/packaging/prometheus/*.test.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tests = append(tests, text...)
	}
	for _, name := range alertNames(t) {
		if !bytes.Contains(tests, []byte("alertname: "+name+"\n        exp_alerts:\n          - ")) {
			t.Errorf("there is no test in which %s fires", name)
		}
	}
	for _, args := range [][]string{{"check", "rules", rulesFile}, append([]string{"test", "rules"}, files...)} {
		if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// prometheus is a process of Prometheus that scrapes nodes and evaluates the rules, without the time that they wait.
type prometheus struct {
	t   testing.TB
	url string
}

// startPrometheus scrapes the nodes of each job four times a second.
func startPrometheus(t testing.TB, jobs map[string]*cluster) *prometheus {
	t.Helper()
	dir, addr := t.TempDir(), testaddr.Free(t)
	rules, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	rules = regexp.MustCompile(`(?m)^ +for: .*\n`).ReplaceAll(rules, nil)
	config := "global: {scrape_interval: 250ms, scrape_timeout: 200ms, evaluation_interval: 250ms}\n" +
		"rule_files: [rules.yml]\nscrape_configs:\n"
	for job, c := range jobs {
		var targets []string
		for _, p := range c.nodes {
			targets = append(targets, fmt.Sprintf("%q", p.http))
		}
		config += fmt.Sprintf("  - {job_name: %s, static_configs: [{targets: [%s]}]}\n", job, strings.Join(targets, ", "))
	}
	for name, content := range map[string][]byte{"rules.yml": rules, "prometheus.yml": []byte(config)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("prometheus", "--config.file", filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path",
		filepath.Join(dir, "data"), "--web.listen-address", addr)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("Prometheus logged last:\n%s", text[max(0, len(text)-3000):])
		}
	})
	return &prometheus{t: t, url: "http://" + addr}
}

// series is one result of a query.
type series struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
}

// query evaluates an expression.
func (p *prometheus) query(expression string) ([]series, error) {
	resp, err := plainHTTP.Get(p.url + "/api/v1/query?query=" + url.QueryEscape(expression))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer struct {
		Error string
		Data  struct{ Result []series }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("%s: %s", expression, answer.Error)
	}
	return answer.Data.Result, nil
}

// firing returns the alerts that fire, or that have ever fired.
func (p *prometheus) firing(ever bool) (names []string, err error) {
	expression := `ALERTS{alertstate="firing"}`
	if ever {
		expression = `max_over_time(ALERTS{alertstate="firing"}[1h])`
	}
	results, err := p.query(expression)
	for _, r := range results {
		names = append(names, r.Metric["alertname"])
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// raised waits until all of these alerts have fired. Meanwhile it calls again what raises them, if there is something.
func (p *prometheus) raised(again func(), names ...string) {
	p.t.Helper()
	err := poll(time.Minute, func() error {
		if again != nil {
			again()
		}
		fired, err := p.firing(true)
		if err != nil {
			return err
		}
		for _, name := range names {
			if !slices.Contains(fired, name) {
				return fmt.Errorf("%s has not fired", name)
			}
		}
		return nil
	})
	if err != nil {
		p.t.Error(err)
	}
}

// post publishes an event over plain HTTP, and returns the status; 0 is no answer.
func post(base string) int {
	web := &http.Client{Timeout: 8 * time.Second}
	resp, err := web.Post(base+"/v1/events", "application/json",
		strings.NewReader(`{"type":"A","payload":{},"dedup":false}`))
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// Real nodes make each alert fire: disks that are full and fill, a follower that stops, no quorum, elections, readers
// that lag, and a node whose certificate and queue are too small. The dashboard's queries have results from the same
// scrapes, and promtool finds nothing wrong with the names of the metrics.
func TestEachAlertFires(t *testing.T) {
	t.Parallel()
	if !longtest.Enabled() {
		t.Skip("a minute until all have fired")
	}
	needTools(t, "prometheus", "promtool")
	other := filepath.Join(t.TempDir(), "ringlog")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-X main.release=0.1.1-other",
		"-o", other, "../cmd/ringlog").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// A lease of more than a second lets a publish that nobody confirms take as long.
	c := newCluster(t, t.TempDir(), 3, "--heartbeat", "3s")
	c.nodes[1].binary = other
	c.nodes[2].args = append(c.nodes[2].args, "--disk-min-free", "1TiB")
	c.startAll()
	secured := newSecuredNode(t)
	p := startPrometheus(t, map[string]*cluster{"ringlog": c, "ringlog-tls": secured})

	p.raised(nil, "RinglogDiskFull", "RinglogVersionsDiffer", "RinglogBackupMissing", "RinglogCertificateExpires")
	c.mustRun("snapshot", "save", filepath.Join(t.TempDir(), "backup"))
	secured.mustRun("snapshot", "save", filepath.Join(t.TempDir(), "backup"))
	c.eventually(time.Minute, "end of RinglogBackupMissing", func() error {
		names, err := p.firing(false)
		if err == nil && slices.Contains(names, "RinglogBackupMissing") {
			err = fmt.Errorf("it fires after a backup")
		}
		return err
	})
	raiseForReaders(t, c, p)
	raiseForNode(t, c, secured, p)
	checkScrape(t, c.nodes[0])
	checkDashboard(t, p)
	raiseForCluster(t, c, p)

	fired, err := p.firing(true)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range alertNames(t) {
		if slices.Contains(fired, name) == slices.Contains(unraised, name) {
			t.Errorf("%s: fired is %v", name, slices.Contains(fired, name))
		}
	}
}

// newSecuredNode starts a node whose certificate expires soon, and whose queue has room for one request. It takes
// plain connections, too.
func newSecuredNode(t *testing.T) *cluster {
	t.Helper()
	dir := t.TempDir()
	runIn(t, dir, nil, binary, "cert", "ca")
	runIn(t, dir, nil, binary, "cert", "node", "n1", "--host", "127.0.0.1", "--valid", "5d")
	file := func(name string) string { return filepath.Join(dir, name) }
	c := newCluster(t, t.TempDir(), 1, "--queue-requests", "1", "--tls-mode", "allow", "--tls-cert", file("node-n1.pem"),
		"--tls-key", file("node-n1-key.pem"), "--tls-ca", file("ca.pem"))
	c.startAll()
	// The next files are none.
	if err := os.WriteFile(file("node-n1.pem"), []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// raiseForReaders leaves events unread and dead.
func raiseForReaders(t *testing.T, c *cluster, p *prometheus) {
	t.Helper()
	c.mustRun("settings", "set", "cursor.stall_after", "1s")
	c.mustRun("settings", "set", "backpressure.lag", "slow=1000/10")
	c.mustRun("cursor", "create", "slow", "--from", "start")
	// As many events as RinglogCursorLags wants, in full requests.
	events := make([]event.Event, 10_000)
	cl := c.client()
	for batch := range 11 {
		for i := range events {
			events[i] = event.New("A", fmt.Appendf(nil, `{"batch":%d,"i":%d}`, batch, i))
		}
		if _, err := cl.PublishBatch(t.Context(), events); err != nil {
			t.Fatal(err)
		}
	}
	// A reader abandons its first event.
	cursor, err := cl.OpenCursor(t.Context(), "failing", client.CursorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ev, err := cursor.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	failure := client.Failure{Handler: "h", Error: "boom", Attempts: 1}
	if err := cursor.DeadLetter(t.Context(), ev.Offset, failure); err != nil {
		t.Fatal(err)
	}
	p.raised(nil, "RinglogCursorStalled", "RinglogCursorThrottled", "RinglogCursorLags", "RinglogDeadLetters")
}

// raiseForNode takes descriptors, disk space and room for requests from nodes, and has one read its certificate.
func raiseForNode(t *testing.T, c, secured *cluster, p *prometheus) {
	t.Helper()
	secured.nodes[0].signal(syscall.SIGHUP)
	p.raised(nil, "RinglogCertificateRefused")
	// Three in four descriptors of the limit that it gets are open already, and more than that with this test's.
	pid := c.nodes[1].cmd.Process.Pid
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	var before unix.Rlimit
	few := uint64(len(open)) * 10 / 9
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: few, Max: before.Max}, nil); err != nil {
		t.Fatal(err)
	}
	p.raised(nil, "RinglogFileDescriptors")
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &before, nil); err != nil {
		t.Fatal(err)
	}
	// Several requests at once, of which the queue takes one.
	p.raised(func() {
		var posts sync.WaitGroup
		for range 8 {
			posts.Go(func() { post(secured.nodes[0].url()) })
		}
		posts.Wait()
	}, "RinglogRequestsRefused")
	// A file on the same volume grows.
	f, err := os.Create(filepath.Join(t.TempDir(), "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	defer os.Remove(f.Name())
	size, next := int64(0), time.Now()
	p.raised(func() {
		if size < 16<<30 && time.Now().After(next) {
			size, next = size+(256<<20), time.Now().Add(250*time.Millisecond)
			if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
				t.Logf("ballast: %v", err)
			}
		}
	}, "RinglogDiskFillsSoon")
}

// raiseForCluster has leaders hand over and followers stop.
func raiseForCluster(t *testing.T, c *cluster, p *prometheus) {
	t.Helper()
	post(c.nodes[0].url()) // so that its route has series
	changed := time.Now()
	p.raised(func() {
		// Each term has to be scraped.
		if time.Since(changed) > time.Second {
			_, _ = c.run("cluster", "step-down")
			changed = time.Now()
		}
	}, "RinglogLeaderChanges")
	leader := c.leader()
	followers := slices.DeleteFunc(slices.Clone(c.nodes), func(n *process) bool { return n == leader })
	followers[0].signal(syscall.SIGSTOP)
	p.raised(func() { post(leader.url()) }, "RinglogNodeDown", "RinglogMemberUnreachable", "RinglogQuorumAtRisk",
		"RinglogFollowerLags")
	followers[1].signal(syscall.SIGSTOP)
	var slow sync.WaitGroup
	for range 20 {
		slow.Go(func() { post(leader.url()) })
	}
	slow.Wait()
	p.raised(nil, "RinglogSlowPublish", "RinglogQuorumLost", "RinglogNoLeader")
	p.raised(func() { post(leader.url()) }, "RinglogErrors")
	for _, f := range followers {
		f.signal(syscall.SIGCONT)
	}
}

// checkScrape has promtool read a scrape. The names that hashicorp/raft gives its own metrics are not ours.
func checkScrape(t *testing.T, node *process) {
	t.Helper()
	resp, err := plainHTTP.Get(node.url() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	cmd := exec.Command("promtool", "check", "metrics")
	cmd.Stdin = resp.Body
	out, err := cmd.CombinedOutput()
	// It exits with 3 for names.
	if exit := cmd.ProcessState.ExitCode(); exit != 0 && exit != 3 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "raft_") {
			t.Errorf("promtool check metrics: %s", line)
		}
	}
}

// checkDashboard evaluates each query of the dashboard as Grafana does.
func checkDashboard(t *testing.T, p *prometheus) {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	queries := 0
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			queries++
			expression := strings.NewReplacer("$job", "ringlog", "$__rate_interval", "1m").Replace(target.Expr)
			if results, err := p.query(expression); err != nil || len(results) == 0 {
				t.Errorf("%s: %d results of %s: %v", panel.Title, len(results), expression, err)
			}
		}
	}
	if queries < 20 {
		t.Errorf("%d queries", queries)
	}
}
