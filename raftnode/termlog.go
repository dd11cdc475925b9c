package raftnode

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/batcher"
	"github.com/ringrift/ringlog/raftnode/upstream"
)

// proposeEvery is the time between two attempts of proposeUntilApplied.
const proposeEvery = 20 * time.Millisecond

// termLog proposes this leader's own commands in its term, whether the intake is open or not: the term start
// before requests are admitted, and the intent to hand over after the last of them.
type termLog struct {
	raft     *upstream.Raft
	proposer *batcher.Batcher
	patience time.Duration // how long raft may refuse entries for a transfer of leadership until it counts as stuck
	fatal    func(error)
}

// leads reports whether raft leads in term now. Its intake need not be open; see LeadingTerm.
func (l *termLog) leads(term uint64) bool {
	r := l.raft.Load()
	return r.State() == raft.Leader && r.CurrentTerm() == term
}

// proposeUntilApplied proposes commands in one entry, past the intake, until it is applied, the term is over or ctx
// ends. Raft can be left with a transfer that never ends (hashicorp/raft#696): it leads and takes no entries. Only
// a restart helps, so that Fatal is called.
func (l *termLog) proposeUntilApplied(ctx context.Context, term uint64, commands ...frame.Command) error {
	patience := time.Now().Add(l.patience)
	for {
		// It blocks until the entry is applied, or raft has refused it.
		err := l.proposer.ProposeNow(term, commands...)
		// With ErrNoLeader nothing was appended; while raft leads all the same, it is worth another attempt.
		if err == nil || !errors.Is(err, ErrNoLeader) || !l.leads(term) {
			return err
		}
		if errors.Is(err, raft.ErrLeadershipTransferInProgress) && time.Now().After(patience) {
			l.fatal(fmt.Errorf("raftnode: lead term %d: %w: restart the node", term, ErrTransferStuck))
			return err
		}
		select {
		case <-time.After(proposeEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
