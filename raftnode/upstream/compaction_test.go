package upstream

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/raftnode/raftstore"
)

// A compaction that failed is tried again each second, also of a log that does not grow
// any more.
func TestACompactionThatFailedIsTriedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		stores, err := raftstore.Open(raftstore.Options{Dir: dir, Fatal: func(err error) { t.Error(err) }})
		if err != nil {
			t.Fatal(err)
		}
		defer stores.Close()
		c := newCompaction(stores, CompactionLimits{CompactBytes: -1}, func() uint64 { return 1 }, hclog.NewNullLogger())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		tries := 0
		go c.run(ctx, func(context.Context) error { tries++; return errors.New("no room") })
		c.stored()
		time.Sleep(9500 * time.Millisecond)
		cancel()
		synctest.Wait()
		if tries != 10 {
			t.Errorf("tried %d times in 9.5 s, not once a second", tries)
		}
	})
}
