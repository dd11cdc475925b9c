package service

import (
	"context"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/raftnode"
)

// WaitCommitted returns once all cursors have committed offset, or with ctx's cause and how far they are. It checks
// again whenever one of them moves.
func (l *Log) WaitCommitted(ctx context.Context, offset uint64, names []string) (api.Wait, error) {
	for _, name := range names {
		if err := l.checkCursor(ctx, name); err != nil {
			return api.Wait{}, err
		}
	}
	// The watch begins before the first look, so no move between the two is missed.
	watch := l.Machine().WatchCursors(names)
	defer watch.Close()
	alive := time.NewTicker(l.heartbeat)
	defer alive.Stop()
	// caughtUp: this node has everything from before the call, so a cursor that is missing does not exist.
	for caughtUp := false; ; {
		// Each round looks at the state as it is now.
		v, err := l.committedBy(offset, names)
		switch {
		case l.node.Diverged():
			return v, raftnode.ErrDiverged
		case err != nil && !caughtUp: // it may have been made elsewhere a moment ago
			if err := l.node.ReadBarrier(ctx); err != nil {
				return v, err
			}
			caughtUp = true
			continue
		case err != nil || v.Reached:
			return v, err
		}
		// Nothing to report yet: sleep until a cursor moves, or the node may have stopped serving.
		select {
		case <-watch.Moved():
		case <-alive.C: // whether the node still serves
		case <-ctx.Done():
			return v, context.Cause(ctx)
		}
	}
}

// committedBy compares the cursors with an offset; the error names the first that does not exist. Reached is true if
// all of them have committed it.
func (l *Log) committedBy(offset uint64, names []string) (api.Wait, error) {
	v := api.Wait{Offset: offset, Reached: true}
	for _, name := range names {
		c, ok := l.Machine().Cursor(name)
		if !ok {
			return v, noCursor(name)
		}
		// Lag is what is left, and zero once the commit has passed the offset.
		one := api.WaitedCursor{Name: name, Committed: c.Committed, Lag: offset - min(offset, c.Committed)}
		one.Reached = one.Lag == 0
		v.Reached = v.Reached && one.Reached
		v.Cursors = append(v.Cursors, one)
	}
	_, v.LastOffset = l.Machine().Log().Bounds()
	return v, nil
}
