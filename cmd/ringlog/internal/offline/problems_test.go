package offline

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/log"
	"github.com/ringrift/ringlog/raftnode"
	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/raftstore"
)

func TestDamageHasAName(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{log.ErrCorrupt, "DAMAGED"},
		{fsm.ErrDamaged, "DAMAGED"},
		{datadir.ErrDamaged, "DAMAGED"},
		{frame.ErrCorrupt, "CORRUPT_FRAME"},
		{raftstore.ErrDiskHung, "DISK_HUNG"}, {raftnode.ErrDiverged, "DIVERGED"}, {errors.New("odd"), ""}, {nil, ""},
	} {
		err := c.err
		if err != nil {
			err = fmt.Errorf("fsm: apply 7: %w", err)
		}
		if got := ProblemName(err); got != c.want {
			t.Errorf("%v is named %q, not %q", c.err, got, c.want)
		}
	}
}

func TestFoldersHaveExitCodes(t *testing.T) {
	for err, want := range map[error]int{
		datadir.ErrOtherCluster:   shell.ExitUsage,
		datadir.ErrNoFolder:       shell.ExitNotFound,
		datadir.ErrInUse:          shell.ExitFailed,
		fsm.ErrDamaged:            shell.ExitDamaged,
		raftnode.ErrDiverged:      shell.ExitDamaged,
		raftnode.ErrRolledBack:    shell.ExitDamaged,
		raftnode.ErrForeignFolder: shell.ExitRefused,
		raftstore.ErrDiskHung:     shell.ExitFailed,
	} {
		explained := Explain(fmt.Errorf("x: %w", err))
		if got := shell.ExitCode(explained); got != want || !errors.Is(explained, err) {
			t.Errorf("%v ends with %d, not %d", explained, got, want)
		}
	}
}
