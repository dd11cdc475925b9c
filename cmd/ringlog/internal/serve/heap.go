package serve

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// heapFloor is the size up to which a node's heap grows before garbage is collected. What a node keeps is
// small compared to what passes through it, and a heap that was collected each time it doubled from 20 MB
// would be collected many times a second under load.
const heapFloor = 128 << 20

// leastLive is the live heap that Go's runtime assumes at least: it never collects below GOGC percent of it.
const leastLive = 4 << 20

// collectAbove makes the runtime collect garbage when the heap has doubled, but not before it has floor
// bytes. GOGC, if it is set, takes precedence; GOMEMLIMIT applies as well.
func collectAbove(floor uint64) {
	// The user who sets it has measured, or has a reason.
	if os.Getenv("GOGC") != "" {
		return
	}
	// The percentage follows from what the last collection left, so it is set again after each one.
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetGCPercent(growth(live[0].Value.Uint64(), floor))
	again := &struct{ next *byte }{} // nobody holds it: the next collection finds it
	runtime.AddCleanup(again, collectAbove, floor)
}

// growth returns by how many percent a heap of live bytes grows to floor, or to twice its size.
func growth(live, floor uint64) int {
	live = max(live, leastLive)
	// A large heap doubles, as with Go's own default.
	if live >= floor/2 {
		return 100
	}
	return int(floor*100/live) - 100
}
