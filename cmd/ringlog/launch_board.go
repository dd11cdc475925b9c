package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/launch"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// board is the standard error of a launcher. While daemons start on a terminal it keeps a table of them below what is
// written: the table is taken off the screen before each write, and drawn again after it.
type board struct {
	sh *shell.Shell // what is written goes to its standard error, the table to its standard output

	mu    sync.Mutex   // guards what follows, and each write with the drawing around it
	draws bool         // whether there is a table; false after end
	rows  []launch.Row // in the order of the file
	lines int          // of the table that is on the screen
}

// newBoard returns the board of a file. Without a terminal it passes on what is written, and draws nothing.
func newBoard(sh *shell.Shell, f *launch.File) *board {
	b := &board{sh: sh, draws: sh.OutTerminal && sh.ErrTerminal && !sh.JSON}
	for _, d := range f.Daemons {
		b.rows = append(b.rows, launch.Row{Name: d.Name, Layer: d.Layer, Group: d.Group, State: launch.Waiting})
	}
	return b
}

// Write writes whole lines above the table.
func (b *board) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.erase()
	defer b.draw()
	return b.sh.Err.Write(p)
}

// Fd is that of the standard error, so that a shell knows how wide its terminal is.
func (b *board) Fd() uintptr {
	if f, ok := b.sh.Err.(interface{ Fd() uintptr }); ok {
		return f.Fd()
	}
	return ^uintptr(0)
}

// set takes in the state of a daemon, and reports whether the table shows it.
func (b *board) set(row launch.Row) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	// Every daemon of the file has a row since newBoard.
	i := slices.IndexFunc(b.rows, func(r launch.Row) bool { return r.Name == row.Name })
	b.rows[i] = row
	// Off the screen and on it again, as the number of its lines may have changed.
	b.erase()
	b.draw()
	return b.lines > 0
}

// end ends the drawing, and prints in place of the table.
func (b *board) end(print func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.erase()
	b.draws = false
	print()
}

// erase takes the table off the screen.
func (b *board) erase() {
	if b.lines > 0 {
		// The cursor goes up by the lines of the table, and all from there on is cleared.
		fmt.Fprintf(b.sh.Out, "\x1b[%dA\x1b[J", b.lines)
		b.lines = 0
	}
}

// draw draws the table, unless it is too high for the terminal: what has left the screen cannot be erased.
func (b *board) draw() {
	if !b.draws {
		return
	}
	text := daemonTable(b.sh, b.rows, false)
	if lines := strings.Count(text, "\n") + 1; lines < b.sh.Height() {
		fmt.Fprintln(b.sh.Out, text)
		b.lines = lines
	}
}
