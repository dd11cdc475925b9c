package launch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// One Output serves all daemons. Open gives each command the write end of a pipe, and a goroutine passes its lines
// on.

// Output is where commands write to: lines with the daemon's name in front, or a file for each daemon.
type Output struct {
	Dir   string                           // of the files; "" prints lines
	Print func(name string, line []byte)   // prints a line, which has no newline
	Say   func(format string, args ...any) // prints a notice
	limit int64                            // of a file in bytes; 0 is maxLog
}

const (
	maxLine = 16 << 10 // bytes; a longer one is printed in parts
	maxLog  = 64 << 20 // bytes of a daemon's file; another one as large is kept
)

// drainFor is how long the output is read of what a command has left, after its end.
const drainFor = time.Second

// Open returns what the command of a daemon writes to. done ends it, once the command has ended.
func (o *Output) Open(name string) (w *os.File, done func(), err error) {
	// Where each line goes: to Print, or to a file of the daemon's own.
	write, closeLog := func(line []byte) error { o.Print(name, line); return nil }, func() error { return nil }
	if o.Dir != "" {
		log, err := openLog(filepath.Join(o.Dir, name+".log"), o.limit)
		if err != nil {
			return nil, nil, err
		}
		write, closeLog = log.write, log.close
	}
	// A file, and not a writer of this process: nobody waits for the output of what a command leaves in the background.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, errors.Join(err, closeLog())
	}
	ended := make(chan struct{})
	// The goroutine ends once nobody has the write end open any more, or at the deadline that done sets.
	go func() {
		defer close(ended)
		lines := bufio.NewReaderSize(r, maxLine)
		failed := false
		for {
			// ReadSlice returns a line without copying it: write must not keep it. ErrBufferFull is a part of a
			// longer one.
			line, err := lines.ReadSlice('\n')
			if n := len(line); n > 0 && line[n-1] == '\n' {
				line = line[:n-1]
			}
			if len(line) > 0 || err == nil {
				// A full disk does not keep a daemon from running, and is reported once.
				if failure := write(line); failure != nil && !failed {
					o.Say("%s: its output is lost: %v", name, failure)
					failed = true
				}
			}
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				return
			}
		}
	}()
	return w, func() {
		// This process keeps the write end until here, so that a restarted command finds its output open. What a
		// process in the background still holds open is read for drainFor.
		_ = w.Close()
		_ = r.SetReadDeadline(time.Now().Add(drainFor))
		<-ended
		_ = r.Close()
		if err := closeLog(); err != nil {
			o.Say("%s: %v", name, err)
		}
	}, nil
}

// logFile is a file of bounded size. What is full is renamed to .1, in place of the one before.
type logFile struct {
	path  string   // what is full is at path with .1 added
	limit int64    // in bytes; a file is full from here on, so it may exceed it by one line
	size  int64    // of the file that is open
	file  *os.File // nil, or closed, after a write that could not open another one
}

// openLog opens the file at path, and continues one that is there. A limit of 0 is maxLog.
func openLog(path string, limit int64) (*logFile, error) {
	l := &logFile{path: path, limit: limit}
	if limit == 0 {
		l.limit = maxLog
	}
	return l, l.open()
}

// open opens the file for appending and takes its size.
func (l *logFile) open() (err error) {
	l.file, err = os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	l.size, err = l.file.Seek(0, io.SeekEnd)
	return err
}

// write appends a line.
func (l *logFile) write(line []byte) error {
	// If one of the three fails, size is still too large, and the next line tries again.
	if l.size >= l.limit {
		if err := errors.Join(l.file.Close(), os.Rename(l.path, l.path+".1"), l.open()); err != nil {
			return err
		}
	}
	n, err := fmt.Fprintf(l.file, "%s\n", line)
	l.size += int64(n)
	return err
}

func (l *logFile) close() error { return l.file.Close() }
