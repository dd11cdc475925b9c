package integration

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ringrift/ringlog/internal/longtest"
)

// aliveScript is a command that notes its fence and the time of the machine's clock all the while, and publishes beside
// that. Only SIGKILL ends it.
const aliveScript = `trap '' TERM
echo "$RINGLOG_FENCE $$" >>"$2.started"
while :; do
  "$1" publish ` + runStep + ` --no-dedup --source "$2" --payload "{\"fence\": $RINGLOG_FENCE}" \
    --role "$RINGLOG_ROLE" --fence "$RINGLOG_FENCE" >/dev/null 2>&1
done &
while read -r up rest </proc/uptime; do
  echo "$RINGLOG_FENCE $up" >>"$2.alive"
  sleep 0.02
done
`

// outside is a namespace beside those of the voters.
type outside struct {
	*namespace
	addr string
}

// outside joins another namespace to the hub.
func (c *netCluster) outside(i int) outside {
	c.t.Helper()
	o := outside{addr: fmt.Sprintf("10.77.0.%d", 101+i)}
	name, port := fmt.Sprintf("%s-o%d", strings.TrimSuffix(c.hub.name, "-hub"), i), fmt.Sprintf("out%d", i)
	o.namespace = c.hub.connect(c.t, name, port, o.addr)
	c.hub.awaitLink(c.t, port, "state forwarding")
	o.awaitLink(c.t, "eth0", "state UP")
	return o
}

// Rules of nft: dropFrom drops what matches its condition.
const (
	dropNothing = "table inet outside\ndelete table inet outside\n"
	dropFrom    = dropNothing +
		"table inet outside {\n chain arriving {\n type filter hook input priority 0; policy accept;\n %s drop\n }\n}\n"
)

// cutOff drops what a namespace sends to the voters, or what it gets from them, or both.
func (c *netCluster) cutOff(o outside, sends, gets bool) {
	c.t.Helper()
	if gets {
		o.mustRun(c.t, fmt.Sprintf(dropFrom, `iifname "eth0"`), "nft", "-f", "-")
	}
	for _, p := range c.nodes {
		if sends {
			c.spaces[p].mustRun(c.t, fmt.Sprintf(dropFrom, "ip saddr "+o.addr), "nft", "-f", "-")
		}
	}
}

// join ends cutOff.
func (c *netCluster) join(o outside) {
	c.t.Helper()
	o.mustRun(c.t, dropNothing, "nft", "-f", "-")
	for _, p := range c.nodes {
		c.spaces[p].mustRun(c.t, dropNothing, "nft", "-f", "-")
	}
}

// A holder that is cut off from all nodes, one way or both, ends its command before another one's starts, by the clock
// that all processes of the machine share. The log has nothing of it after the fence of the next.
func TestTheCommandOfAHolderThatIsCutOffEndsBeforeTheNextStarts(t *testing.T) {
	c := newNetCluster(t, 3)
	c.startAll()
	cl := c.client()
	candidates, spaces := map[string]*candidate{}, map[string]outside{}
	for i, name := range []string{"one", "two", "three"} {
		r := c.candidate(name)
		spaces[name] = c.outside(i)
		r.within, r.script, r.ttl = spaces[name].enter(), aliveScript, "4s"
		candidates[name] = r
		t.Cleanup(r.end)
		r.start()
	}
	fence := c.awaitStep(cl, "the first holder", candidates["one"], 0)
	ways := []struct {
		what        string
		sends, gets bool
	}{{"both ways", true, true}, {"and sends nothing", true, false}, {"and gets nothing", false, true}}
	if !longtest.Enabled() {
		ways = ways[:1]
	}
	for _, way := range ways {
		role, err := c.role()
		if err != nil {
			t.Fatal(err)
		}
		holder := ""
		for name, r := range candidates {
			if strings.HasSuffix(role.Holder, fmt.Sprintf(":%d", r.cmd.Process.Pid)) {
				holder = name
			}
		}
		if holder == "" || role.Waiting == 0 {
			t.Fatalf("%+v", role)
		}
		c.cutOff(spaces[holder], way.sends, way.gets)
		fence = c.awaitStep(cl, holder+" is cut off "+way.what, nil, fence)
		c.join(spaces[holder])
	}

	// All stop. Whoever was cut off last may still wait for its place in the queue. One that only gets nothing has
	// released its role after the end of its command.
	for _, r := range candidates {
		if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	for name, r := range candidates {
		if err := r.cmd.Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// When each lease's command was alive, in 1/100 s.
	first, last := map[uint64]float64{}, map[uint64]float64{}
	for _, r := range candidates {
		for _, note := range r.notes("alive") {
			of, up, _ := strings.Cut(note, " ")
			fence, err := strconv.ParseUint(of, 10, 64)
			at, err2 := strconv.ParseFloat(up, 64)
			if err != nil || err2 != nil {
				continue // a candidate that never held the role, or a line that SIGKILL has cut
			}
			if _, known := first[fence]; !known {
				first[fence] = at
			}
			first[fence], last[fence] = min(first[fence], at), max(last[fence], at)
		}
	}
	fences := slices.Sorted(maps.Keys(first))
	for i := 1; i < len(fences); i++ {
		free := first[fences[i]] - last[fences[i-1]]
		t.Logf("fence %d: the command before had ended for %.2f s", fences[i], free)
		if free < 0 {
			t.Errorf("the command under fence %d was still there when that under %d began", fences[i-1], fences[i])
		}
	}
	if len(fences) < len(ways)+1 {
		t.Errorf("there were the fences %v", fences)
	}
	checkFences(t, cl, fence)
}
