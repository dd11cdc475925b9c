package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
)

// inFlight bounds how many events of a stream wait for their answers.
const inFlight = 8192

// sentLine is a line of the input and the answer that it waits for. Exactly one of future and err is set.
type sentLine struct {
	line int // from 1
	// the answer to come
	future *client.Future
	err    error // why it was not sent
}

// stream is one run of publish --stdin. The reader sends lines in order; the collector takes the
// answers in the same order. They share only the channel answers, so nothing here needs a lock.
type stream struct {
	sh *shell.Shell
	// the events, one a line
	in io.Reader
	// what lines get that do not say it themselves
	opts publishOptions
	// closed early if the command is interrupted, so open answers come at once
	client  *client.Client
	answers chan sentLine            // in the order of the lines; the reader closes it
	stop    context.CancelCauseFunc  // ends the reading
	bar     *progressbar.ProgressBar // nil if standard error is no terminal

	// Owned by the collector, and read by others once it has ended. A refused line was not appended. An
	// unknown one may have been: to send it again could append it twice.
	appended, duplicates, refused, unknown int
	firstUnknown, lastUnknown              int            // lines
	warned                                 map[string]int // how often each warning came; bounded
	firstRefusal                           error          // of the first line with an error; sets the exit code
	outErr                                 error          // of the standard output; nothing is printed after it
	ended                                  error          // why later lines would fail, too; nil while the stream runs
}

// publishStream publishes NDJSON from the standard input and keeps its order. If lines
// are refused the exit code is that of the first of them.
func publishStream(ctx context.Context, sh *shell.Shell, o publishOptions) (err error) {
	// Flags that contradict --stdin are refused before anything is read.
	if sh.InTerminal {
		return shell.Usagef("--stdin reads events from the standard input, which is a terminal: pipe them in, " +
			"one JSON object a line")
	}
	if o.kind != "" || o.payload != "" {
		return shell.Usagef("--stdin takes type and payload from the input: leave TYPE and --payload out")
	}
	if o.lease.Role != "" {
		return shell.Usagef("--role is for one event: leave --stdin out")
	}
	in := sh.In
	// The id goes to the one event of the input.
	if o.dedupID != "" {
		in, err = soleEvent(in)
		if err != nil {
			return err
		}
	}
	// A cluster that cannot be reached is reported before the input is read.
	c, err := sh.DialReachable(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shell.CloseClient(c)) }()
	// The reader sends lines on; the collector takes the answers in the same order, and may stop the reader.
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s := &stream{sh: sh, in: in, opts: o, client: c, stop: stop, answers: make(chan sentLine, inFlight),
		bar: newProgress(sh, "events"), warned: map[string]int{}}
	began := time.Now()
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		s.collectAnswers(ctx)
	}()
	// No answer is lost: reading ends first, then collecting.
	// The main goroutine reads, so it ends with the input.
	readErr := s.readLines(ctx)
	close(s.answers)
	<-collected
	s.printSummary(time.Since(began))
	// Why the stream ended early counts more than lines that were refused.
	switch {
	case s.ended != nil:
		// The error of the cluster says more than those of the lines.
		return sh.ExplainTimeout(context.WithoutCancel(ctx), s.ended)
	case readErr != nil || s.outErr != nil:
		return errors.Join(readErr, s.outErr)
	case s.refused+s.unknown > 0:
		return shell.CodeError(cmp.Or(shell.ExitCode(s.firstRefusal), shell.ExitFailed))
	}
	return nil
}

// soleEvent returns the input again, read to its end, and refuses a second event before the first is sent: under
// one dedup id only the first would be appended. It holds all of the input in memory, which is one event unless it
// is refused.
func soleEvent(in io.Reader) (io.Reader, error) {
	// The bytes that are read ahead are kept for the stream.
	lines := bufio.NewReader(in)
	var ahead bytes.Buffer
	for events := 0; ; {
		// Blank lines are no events.
		text, err := lines.ReadBytes('\n')
		ahead.Write(text)
		if len(bytes.TrimSpace(text)) > 0 {
			events++
		}
		switch {
		case events > 1:
			return nil, shell.Usagef("--dedup-id is for one event, but --stdin has more: put a dedup_id into each line")
		case errors.Is(err, io.EOF):
			return &ahead, nil
		case err != nil:
			return nil, fmt.Errorf("read the standard input: %w", err)
		}
	}
}

// readLines sends every line of the input. It returns at the end of the input, or with the reason
// why the stream has to end.
func (s *stream) readLines(ctx context.Context) error {
	// Lines have no bound here: an event may have a large payload.
	in := bufio.NewReaderSize(s.in, 1<<20)
	for line := 1; ; line++ {
		// The last line may lack its newline: it comes together with io.EOF.
		text, err := in.ReadBytes('\n')
		if len(text) > 0 {
			if sendErr := s.sendLine(ctx, line, text); sendErr != nil {
				return sendErr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the standard input: line %d: %w", line, err)
		}
	}
}

// sendLine hands one line over. An error ends the stream; a bad line does not. It waits while inFlight answers are
// open.
func (s *stream) sendLine(ctx context.Context, line int, text []byte) error {
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return nil
	}
	// A line that is no event takes its place in the order, too.
	sent := sentLine{line: line}
	ev, err := event.DecodeOne(text, event.Limits{EventBytes: maxPayload, RequestBytes: 2 * maxPayload})
	if err == nil {
		s.opts.stamp(&ev)
		sent.future = s.client.PublishAsync(ctx, ev)
	}
	sent.err = err
	// The channel holds inFlight answers; when it is full, reading waits for the oldest.
	select {
	case s.answers <- sent:
		// Without a cause, the stream continues.
		return context.Cause(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// collectAnswers takes the answers in the order of the lines, until the reader closes the channel.
func (s *stream) collectAnswers(ctx context.Context) {
	out := bufio.NewWriter(s.sh.Out)
	for sent := range s.answers {
		res, err := s.awaitAnswer(ctx, sent)
		// A refused line does not stop the ones after it, unless refuse ends the stream.
		if err != nil {
			s.refuse(sent.line, err)
			continue
		}
		s.countAnswer(sent.line, res, out)
	}
	s.outErr = errors.Join(s.outErr, out.Flush())
}

// refuse reports what became of a line. When nobody can be reached the stream ends: later lines
// would fail the same way.
func (s *stream) refuse(line int, err error) {
	// Unknown lines are counted apart: sending them again may append them twice.
	if errors.Is(err, client.ErrOutcomeUnknown) {
		s.unknown++
		s.firstUnknown, s.lastUnknown = cmp.Or(s.firstUnknown, line), line
	} else {
		s.refused++
	}
	s.firstRefusal = cmp.Or(s.firstRefusal, err)
	// Lines after the end fail for the same reason, and are only counted.
	if s.ended != nil {
		return
	}
	// Without a leader, or out of time, the next lines would fail the same way.
	s.sayNotice("line %d: %s", line, shell.Brief(err))
	if code := shell.ExitCode(err); code == shell.ExitUnreachable || code == shell.ExitTimeout {
		s.ended = err
		s.stop(err)
	}
}

// awaitAnswer returns a line's answer. Once ctx is done it closes the client, which then says of each
// event whether it may have been appended.
func (s *stream) awaitAnswer(ctx context.Context, sent sentLine) (client.Result, error) {
	// The line was no event: nothing was sent.
	if sent.err != nil {
		return client.Result{}, sent.err
	}
	select {
	case <-sent.future.Done():
	case <-ctx.Done():
		// Closing makes every open answer final.
		_ = shell.CloseClient(s.client) // its error says that not all was answered, which each answer says too
	}
	return sent.future.Wait(context.WithoutCancel(ctx))
}

// countAnswer counts and prints an answer. Only with -o json an answer is printed, since people get the summary.
func (s *stream) countAnswer(line int, res client.Result, out *bufio.Writer) {
	// The bar counts lines that have their answer.
	if s.bar != nil {
		_ = s.bar.Add(1)
	}
	// A duplicate is no error: the log has the event.
	if res.Duplicate {
		s.duplicates++
	} else {
		s.appended++
	}
	// Warnings are notices, and go to stderr.
	for _, w := range res.Warnings {
		s.warnOnce(line, w.Field+": "+w.Message)
	}
	// Once the output fails nothing more is printed, but all answers are still counted.
	if !s.sh.JSON || s.outErr != nil {
		return
	}
	s.outErr = shell.WriteLine(out, struct {
		Line int `json:"line"`
		published
	}{line, publishedOf(res)})
}

// maxWarnings bounds how many different warnings are printed.
const maxWarnings = 100

// warnOnce prints a warning the first time; the summary counts the repetitions.
func (s *stream) warnOnce(line int, text string) {
	// The number of different warnings is bounded, because they contain what the input contains.
	if s.warned[text] == 0 {
		if len(s.warned) >= maxWarnings {
			text = "further kinds of warnings"
		} else {
			s.sayNotice("line %d: warning: %s", line, text)
		}
	}
	s.warned[text]++
}

// sayNotice prints beside the progress bar.
func (s *stream) sayNotice(format string, args ...any) {
	// The bar is drawn again with the next answer.
	if s.bar != nil {
		_ = s.bar.Clear()
	}
	s.sh.Say(format, args...)
}

// printSummary prints what became of all lines.
func (s *stream) printSummary(took time.Duration) {
	if s.bar != nil {
		_ = s.bar.Clear()
	}
	// A warning was printed when it first came; here is how often it came.
	for _, text := range slices.Sorted(maps.Keys(s.warned)) {
		if n := s.warned[text]; n > 1 {
			s.sh.Say("%d times: warning: %s", n, text)
		}
	}
	// Duplicates were answered, too: they count for the rate.
	total := s.appended + s.duplicates
	unknown := ""
	if s.unknown > 0 {
		unknown = fmt.Sprintf(", %d unknown (lines %d to %d: they may have been appended)", s.unknown,
			s.firstUnknown, s.lastUnknown)
	}
	s.sh.Say("%d appended, %s, %d refused%s in %s (%.0f events/s)", s.appended,
		shell.Count(s.duplicates, "duplicate"), s.refused, unknown, shell.Short(took),
		float64(total)/max(took.Seconds(), 1e-9))
}

// newProgress returns a bar on the terminal, nil if standard error is none.
func newProgress(sh *shell.Shell, what string) *progressbar.ProgressBar {
	// A script's log has the summary alone.
	if !sh.ErrTerminal {
		return nil
	}
	return progressbar.NewOptions64(-1, progressbar.OptionSetWriter(sh.Err), progressbar.OptionSetItsString(what),
		progressbar.OptionShowIts(), progressbar.OptionShowCount(), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionEnableColorCodes(sh.Colour), progressbar.OptionClearOnFinish())
}
