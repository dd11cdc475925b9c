package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/internal/server"
)

const (
	// agreeWithin is how long nodes may take to come to the same index.
	agreeWithin = 5 * time.Second
	// how often they are asked meanwhile
	askEvery = 50 * time.Millisecond
)

// verifyCommand is verify: whether all nodes have the same state. They are compared at an index, or a range of
// offsets, that all of them have, as a running cluster never stands still.
func verifyCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "verify", Usage: "compare order, digest, cursors and views across nodes",
		UsageText: shell.Examples(
			"ringlog verify",
			"ringlog verify --last 100000",
		),
		Description: "Asks all members that the endpoints know. Exits 1 if one differs or does not answer.\n" +
			"Only the cluster token gets digests of earlier states. With any other token, which has to be an admin's, the\n" +
			"newest ones are compared; where the nodes are never at the same index, that check counts as not done.",
		// A whole log may take minutes to read.
		Flags: []cli.Flag{&cli.Uint64Flag{Name: "last",
			Usage: "compare only the newest `N` events; 0 means all"}},
		Action: shell.NoArgs(func(c *cli.Context) error {
			return verify(c.Context, sh, c.Uint64("last"))
		}),
	}
}

// verify compares all nodes and fails if they differ.
func verify(ctx context.Context, sh *shell.Shell, last uint64) error {
	// --timeout bounds the search for the nodes; the comparisons have bounds of their own.
	asking, cancel := context.WithTimeout(ctx, sh.Timeout)
	defer cancel()
	found, err := askEverybody(asking, sh, statusOf)
	if err != nil {
		return err
	}
	// Every finding is printed; any that is not OK makes the command fail.
	return sh.PrintFindings(compareNodes(ctx, sh, found, last))
}

// compareNodes runs every comparison over those nodes that answer. Nodes of two clusters have
// nothing to compare.
func compareNodes(ctx context.Context, sh *shell.Shell, found sweep[nodeStatus], last uint64) []shell.Finding {
	answering, reach := reachedNodes(found)
	// The first two are about the nodes, the others about what they hold.
	findings := []shell.Finding{reach, sameCluster(found)}
	if !findings[1].OK {
		return findings
	}
	return append(findings, compareDigests(ctx, sh, answering), compareOrder(ctx, sh, answering, last),
		compareCursors(ctx, sh, answering), compareViews(ctx, sh, answering))
}

// compareAt compares the nodes at urls.
func compareAt(ctx context.Context, sh *shell.Shell, urls []string) []shell.Finding {
	// For demo, which knows the nodes: no other member is asked.
	found := newSweep[nodeStatus]()
	found.ask(ctx, sh, urls, statusOf)
	return compareNodes(ctx, sh, found, 0)
}

// sameCluster compares the ids of the clusters that the nodes are in.
func sameCluster(found sweep[nodeStatus]) shell.Finding {
	// Two clusters have different states by nature: that is the finding, and not their digests.
	ids, mixed := found.clusters(), found.mixed()
	switch {
	case mixed != "":
		return shell.Finding{Check: "cluster", Found: mixed + "; " + mixedRemedy}
	case len(ids) == 0:
		return shell.Finding{Check: "cluster", Found: "no node is in a cluster yet"}
	}
	return shell.Finding{Check: "cluster", OK: true, Found: ids[0]}
}

// reachedNodes lists the nodes that answer, and finds those that should.
func reachedNodes(found sweep[nodeStatus]) (answering []string, f shell.Finding) {
	// A member that does not answer is a finding of its own, beside the comparisons of the others.
	var silent []string
	asked := 0
	for _, a := range found.answers {
		if _, member := found.members[a.url]; a.err != nil && !member && len(found.members) > 0 {
			continue // an endpoint of a node that has gone, or another name of a member
		}
		asked++
		if a.err != nil {
			silent = append(silent, fmt.Sprintf("%s (%v)", a.url, a.err))
			continue
		}
		answering = append(answering, a.url)
	}
	// All that were asked count, so a node that was removed does not make the check fail.
	f = shell.Finding{Check: "nodes", OK: len(silent) == 0,
		Found: fmt.Sprintf("%d of %d answer", len(answering), asked)}
	if len(silent) > 0 {
		f.Found += "; silent: " + strings.Join(silent, ", ")
	}
	return answering, f
}

// awaitAgreement asks until all nodes agree, for agreeWithin at most. It returns the last finding, which is OK as
// soon as they do.
func awaitAgreement(ctx context.Context, ask func(context.Context) shell.Finding) (f shell.Finding) {
	// Nodes apply the log at their own pace: a first difference may only be a delay.
	ctx, cancel := context.WithTimeout(ctx, agreeWithin)
	defer cancel()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		// A finding that was cut short by the end of ctx does not replace the one before.
		if next := ask(ctx); ctx.Err() == nil || f.Check == "" {
			f = next
		}
		if f.OK {
			return f
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return f
		}
	}
}

// compareDigests compares the digests of the state at an index that all have. Whoever has not the cluster token gets
// only that of each node's newest state: such a comparison is not done if the nodes are never at the same index.
func compareDigests(ctx context.Context, sh *shell.Shell, urls []string) shell.Finding {
	secure, err := sh.TLS()
	if err != nil {
		return shell.Finding{Check: "digest", Found: err.Error()}
	}
	peers := server.NewPeers(sh.Token, server.Security{Config: func() *tls.Config { return secure }})
	defer peers.Close()
	// They are served to nodes, in the protocol of nodes, and the status has the newest.
	digests := func(ctx context.Context, _ *shell.Shell, url string) ([]api.Digest, error) {
		return peers.Digests(ctx, url)
	}
	_, _, newestOnly := api.ParseToken(sh.Token)
	newestOnly = newestOnly || (sh.Token == "" && secure.GetClientCertificate != nil)
	if newestOnly {
		digests = func(ctx context.Context, sh *shell.Shell, url string) ([]api.Digest, error) {
			s, err := statusOf(ctx, sh, url)
			return []api.Digest{s.Digest}, err
		}
	}
	var last shell.Finding
	return awaitAgreement(ctx, func(ctx context.Context) shell.Finding {
		// Each round counts from the beginning: nodes keep the digests of their newest indexes.
		at := map[uint64]map[string]int{} // index, digest, how many nodes
		// Count, for every index, how many nodes have which digest.
		// A node without an answer makes the comparison impossible, not different.
		for _, a := range askAll(ctx, sh, urls, digests) {
			if a.err != nil {
				return shell.Finding{Check: "digest", Found: a.err.Error()}
			}
			for _, d := range a.value {
				if at[d.Index] == nil {
					at[d.Index] = map[string]int{}
				}
				at[d.Index][d.Hex]++
			}
		}
		f, compared := judgeDigests(at, len(urls))
		if compared || !newestOnly {
			last = f
		} else if last.Check == "" {
			// A difference that was found before counts more than that the nodes have moved on since.
			return shell.Finding{Check: "digest", NotDone: true, Found: "not compared: the nodes are at different indexes",
				Remedy: "use the cluster token, or compare while nothing is published"}
		}
		return last
	})
}

// judgeDigests compares at the newest index that every node reported. compared is false if there is none.
func judgeDigests(at map[uint64]map[string]int, nodes int) (f shell.Finding, compared bool) {
	f = shell.Finding{Check: "digest", Found: "there is no index at which all nodes have a digest"}
	// The answers are in no order: the index decides.
	newest := uint64(0)
	for index, digests := range at {
		// An index counts if as many digests were reported for it as there are nodes.
		reported := 0
		for _, n := range digests {
			reported += n
		}
		// Among several such indexes the latest covers most of the state.
		if reported == nodes && index >= newest {
			newest, compared = index, true
			f.OK = len(digests) == 1
			f.Found = fmt.Sprintf("%d different digests at index %d", len(digests), index)
			if f.OK {
				f.Found = fmt.Sprintf("%.16s at index %d on %s", slices.Sorted(maps.Keys(digests))[0], index,
					shell.Count(nodes, "node"))
			}
		}
	}
	return f, compared
}

// compareOrder reads the same range from every node and compares it byte for byte.
func compareOrder(ctx context.Context, sh *shell.Shell, urls []string, newest uint64) shell.Finding {
	// Only what all nodes have can be compared.
	first, last, f := commonRange(ctx, sh, urls)
	if f.Found != "" {
		return f
	}
	// Of the common range, only the newest events if --last says so.
	if newest > 0 && last >= newest {
		first = max(first, last-newest+1)
	}
	// Retention may have removed all that the nodes had in common.
	if first > last {
		f.Found = "no events to compare"
		return f
	}
	// From here on the finding is that of the comparison.
	f.OK = false
	// Each node hashes its events in ranges, so a difference is narrowed down.
	sums := askAll(ctx, sh, urls, func(ctx context.Context, sh *shell.Shell, url string) ([]rangeSum, error) {
		return sumRange(ctx, sh, url, first, last)
	})
	for _, s := range sums {
		if s.err != nil {
			f.Found = s.err.Error()
			return f
		}
		// All nodes hash the same ranges, so their sums correspond by index.
		for i, mine := range s.value {
			// The first node is what the others are compared with; the finding names both.
			if mine != sums[0].value[i] {
				f.Found = fmt.Sprintf("%s and %s differ in the offsets %d to %d", sums[0].url, s.url, mine.from,
					mine.to)
				return f
			}
		}
	}
	f.OK, f.Found = true, fmt.Sprintf("offsets %d to %d are the same on %s", first, last,
		shell.Count(len(urls), "node"))
	return f
}

// commonRange waits until every node has what the furthest had at first, and returns
// what all of them keep. A finding with words is why there is no such range.
func commonRange(ctx context.Context, sh *shell.Shell, urls []string) (first, last uint64, f shell.Finding) {
	target := uint64(0)
	f = awaitAgreement(ctx, func(ctx context.Context) shell.Finding {
		// The range begins where the last node begins, and ends where the first one ends.
		first, last = 1, math.MaxUint64
		furthest, slowest := uint64(0), ""
		for _, a := range askAll(ctx, sh, urls, statusOf) {
			if a.err != nil {
				return shell.Finding{Check: "order", Found: a.err.Error()}
			}
			if a.value.LastOffset < last {
				last, slowest = a.value.LastOffset, a.url
			}
			first, furthest = max(first, a.value.FirstOffset), max(furthest, a.value.LastOffset)
		}
		// The target is fixed at the first answer: the log may grow for ever.
		if target == 0 {
			target = furthest
		}
		if last < target {
			return shell.Finding{Check: "order",
				Found: fmt.Sprintf("%s is at offset %d and does not reach %d", slowest, last, target)}
		}
		return shell.Finding{Check: "order", OK: true}
	})
	return first, last, f
}

// rangeSum is the hash of some events, as they are printed.
type rangeSum struct {
	from, to uint64 // offsets, both included
	sum      string // SHA-256, in hex
}

// eventsPerSum is how many events one hash covers: the smaller, the closer a difference is found.
const eventsPerSum = 1000

// sumRange reads a range from one node and checks that no offset is missing.
func sumRange(ctx context.Context, sh *shell.Shell, url string, first, last uint64) (sums []rangeSum, err error) {
	// Redriven copies are asked for as well: they have offsets in the log like others.
	body, err := sh.Open(ctx, url, fmt.Sprintf("/v1/events?from=%d&limit=%d&redriven=true", first, last-first+1))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	in := bufio.NewReaderSize(body, 1<<20)
	// Events are hashed as they arrive: a log does not fit into memory.
	// One hash at a time, reset by take.
	h := sha256.New()
	from := first
	for next := first; next <= last; next++ {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("%s: offset %d: %w", url, next, err)
		}
		// Offsets are dense: a line that is not the next one is a gap.
		if want := fmt.Appendf(nil, `{"offset":%d,`, next); !bytes.HasPrefix(line, want) {
			return nil, fmt.Errorf("%s: want offset %d, got: %.100s", url, next, line)
		}
		h.Write(line)
		if next-from+1 == eventsPerSum || next == last {
			sums = append(sums, rangeSum{from: from, to: next, sum: take(h)})
			from = next + 1
		}
	}
	return sums, nil
}

// take returns the hash so far, and starts the next.
func take(h hash.Hash) string {
	// The hash is used again: a log has many ranges.
	defer h.Reset()
	return hex.EncodeToString(h.Sum(nil))
}

// compareCursors compares the positions of the cursors.
func compareCursors(ctx context.Context, sh *shell.Shell, urls []string) shell.Finding {
	return awaitAgreement(ctx, func(ctx context.Context) shell.Finding {
		// Position and generation of every cursor, as one text that is compared.
		answers := askAll(ctx, sh, urls, func(ctx context.Context, sh *shell.Shell, url string) (string, error) {
			list, err := fetchCursorsOf(ctx, sh, url)
			var parts []string
			for _, c := range list {
				parts = append(parts, fmt.Sprintf("%q at %d, generation %d", c.Name, c.Committed, c.Generation))
			}
			return strings.Join(parts, "; "), err
		})
		// All are compared with the first: one that differs is enough.
		for _, a := range answers {
			if a.err != nil {
				return shell.Finding{Check: "cursors", Found: a.err.Error()}
			}
			if a.value != answers[0].value {
				return shell.Finding{Check: "cursors",
					Found: fmt.Sprintf("%s has %s, %s has %s", answers[0].url, answers[0].value, a.url, a.value)}
			}
		}
		// Each cursor's text has the word once.
		n := strings.Count(answers[0].value, "generation")
		return shell.Finding{Check: "cursors", OK: true,
			Found: fmt.Sprintf("%s with the same state on %s", shell.Count(n, "cursor"),
				shell.Count(len(urls), "node"))}
	})
}
