package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

//go:embed python/publish.py
var pythonScript string

// The script repeats them once they are used up, each time with another iteration.
const pythonPayloads = 4096

// measurePython is for ringlog alone.
func measurePython(ctx context.Context, t *turn) error {
	r, ok := t.session.(*ringlogSession)
	if !ok {
		return errNotOffered
	}
	// The script has one address, so it gets the leader's.
	url, err := r.leaderURL(ctx)
	if err != nil {
		return err
	}
	// The script gets its payloads from a file, and the leader's address.
	payloads, err := t.writePayloads()
	if err != nil {
		return err
	}
	defer os.Remove(payloads)
	// One process shows what an interpreter reaches, four what the cluster does.
	for _, processes := range []int{1, 4} {
		way := fmt.Sprintf("%d processes", processes)
		if processes == 1 {
			way = "1 process"
		}
		err := t.measured(ctx, "python", way, func() (map[string]float64, error) {
			rate, err := t.runPublishers(ctx, url, processes, payloads)
			return map[string]float64{perSecond: rate}, err
		})
		if err != nil {
			return err
		}
	}
	return t.holdsAll(ctx)
}

// writePayloads writes a file of payloads for a script, which the caller removes.
func (t *turn) writePayloads() (path string, err error) {
	path = filepath.Join(t.dir, "payloads")
	return path, os.WriteFile(path, payloadLines(t.source.generator(), pythonPayloads), 0o600)
}

// payloadLines returns n payloads, one a line.
func payloadLines(g *generator, n int) (lines []byte) {
	for range n {
		ev := g.next()
		lines = append(append(lines, ev.Payload...), '\n')
	}
	return lines
}

// runPublishers runs the script and returns the events a second of all its processes together.
func (t *turn) runPublishers(ctx context.Context, url string, processes int, payloads string) (float64, error) {
	var answer clientAnswer
	err := runPython(ctx, "python3", pythonScript, &answer,
		url, strconv.Itoa(processes), seconds(t.scale.warm), seconds(t.scale.python), payloads)
	if err != nil {
		return 0, err
	}
	t.published += answer.Warmed + answer.Events
	return float64(answer.Events) / answer.Seconds, nil
}
