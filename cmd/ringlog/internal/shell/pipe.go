package shell

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// pollMillis is how long one poll lasts, and so how late the end of a context may be noticed.
const pollMillis = 200

// WhileRead returns a context that also ends, with EPIPE as its cause, when nobody
// reads the output any more: a follower that has nothing to write would not notice.
// stop must be called.
func (sh *Shell) WhileRead(ctx context.Context) (_ context.Context, stop func()) {
	// Only a pipe's reader can go away unnoticed; a file has none.
	f, ok := sh.Out.(*os.File)
	if !ok || !isPipe(f) {
		return ctx, func() {}
	}
	// The goroutine ends with ctx, within pollMillis, and stop waits for it.
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		// Poll without events to wait for: the kernel reports a closed end in any case.
		for ctx.Err() == nil {
			poll := []unix.PollFd{{Fd: int32(f.Fd())}}
			n, err := unix.Poll(poll, pollMillis)
			if err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
			if n > 0 && poll[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
				cancel(syscall.EPIPE)
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		watching.Wait()
	}
}

// isPipe reports an output whose reader may go away.
func isPipe(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0
}
