package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router"
)

// listenerVariable makes the test binary a process that handles events: its value is a listenerSpec in JSON.
const listenerVariable = "RINGLOG_TEST_LISTENER"

// listenerSpec is what a process handles, and the file in which it notes what it has handled.
type listenerSpec struct {
	Name        string
	Group       string // if set, the process is a member of the group and has no subscription of its own
	Endpoints   []string
	Where       string // "" or a condition that even numbers meet
	Sources     []string
	Concurrency int
	File        string
	Life        int // how often it was started
}

// wants reports whether the subscription's filter passes an event.
func (s *listenerSpec) wants(ev event.Event) bool {
	return (s.Where == "" || numberIn(ev)%2 == 0) && (len(s.Sources) == 0 || slices.Contains(s.Sources, ev.Source))
}

// isPoison reports whether every attempt to handle an event fails. Of some others the first attempt fails.
func isPoison(n int) bool { return n%997 == 7 }

var errUnlucky = errors.New("out of luck")

// record is one event that was handled, as a line of recordSize bytes.
type record struct {
	offset uint64
	life   int
}

const (
	recordForm = "%012d %04d\n"
	recordSize = 18
)

// runListener handles events until it is asked to end.
func runListener(text string) error {
	var s listenerSpec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	notes, err := os.OpenFile(s.File, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer notes.Close()
	// asked ends when the test wants this process to end.
	asked, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c, err := client.New(client.Config{Endpoints: s.Endpoints})
	if err != nil {
		return err
	}
	if s.Group != "" {
		return s.serveGroup(asked, c, notes)
	}
	// A subscription of its own, whose handler fails now and then: the breaker would stop it for minutes.
	r, err := router.New(router.OnClient(c), router.Options{
		Source:  fmt.Sprintf("%s-%d", s.Name, s.Life),
		Breaker: router.Breaker{Off: true},
		Retries: router.Backoff(2, time.Millisecond),
	})
	if err != nil {
		return err
	}
	sub, err := r.Subscribe(asked, router.Subscription{
		Name:        s.Name,
		Types:       []string{string(event.TrainingProgress)},
		Sources:     s.Sources,
		Where:       s.Where,
		Concurrency: s.Concurrency,
		From:        client.FromStart(),
		Durable:     true,
		Background:  true,
		Handler:     s.handler(notes),
	})
	if err != nil {
		return err
	}
	<-asked.Done()
	// Handlers that run finish, and their cursor is committed.
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err = errors.Join(r.Close(ctx), c.Close(ctx))
	fmt.Printf("%+v\n", sub.Status())
	return err
}

// handler notes each event in one write, which outlives the process.
func (s *listenerSpec) handler(notes *os.File) router.Handler {
	return func(ctx context.Context, ev event.Event) error {
		n := numberIn(ev)
		if d, _ := router.AttemptOf(ctx); isPoison(n) || (n%101 == 3 && d.Number == 1) {
			return errUnlucky
		}
		_, err := fmt.Fprintf(notes, recordForm, ev.Offset, s.Life)
		return err
	}
}

// listener is a process that handles events, as the test that starts and kills it sees it.
type listener struct {
	t    *testing.T
	spec listenerSpec
	log  string // file of its output
	life int    // how often it was started
	cmd  *exec.Cmd
	once sync.Once // of waiting for cmd
	err  error     // what it ended with
}

// start begins another life.
func (l *listener) start() {
	l.t.Helper()
	out, err := os.OpenFile(l.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		l.t.Fatal(err)
	}
	defer out.Close()
	l.life++
	l.spec.Life = l.life
	spec, err := json.Marshal(l.spec)
	if err != nil {
		l.t.Fatal(err)
	}
	l.cmd, l.once = exec.Command(os.Args[0]), sync.Once{}
	l.cmd.Env = append(os.Environ(), listenerVariable+"="+string(spec))
	l.cmd.Stdout, l.cmd.Stderr = out, out
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := l.cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
}

// wait waits for the process and returns how it ended, each time.
func (l *listener) wait() error {
	l.once.Do(func() { l.err = l.cmd.Wait() })
	return l.err
}

// kill ends the process, if it was started.
func (l *listener) kill() {
	if l.cmd != nil {
		_ = l.cmd.Process.Kill()
		_ = l.wait()
	}
}

// stop asks it to end, which it does without an error.
func (l *listener) stop() {
	l.t.Helper()
	_ = l.cmd.Process.Signal(syscall.SIGTERM)
	if err := l.wait(); err != nil {
		l.t.Errorf("%s ended with %v:\n%s", l.spec.Name, err, l.tail())
	}
}

// tail returns the end of the listener's log.
func (l *listener) tail() string {
	text, _ := os.ReadFile(l.log)
	return string(text[max(0, len(text)-2000):])
}

// awaitAttached waits until its cursor exists.
func (l *listener) awaitAttached(c *cluster) {
	l.t.Helper()
	cl := c.client()
	c.eventually(30*time.Second, "cursor "+l.spec.Name, func() error {
		_, err := cl.Cursor(l.t.Context(), l.spec.Name)
		return err
	})
}

// records reads what was handled, in order.
func (l *listener) records() (list []record) {
	l.t.Helper()
	text, err := os.ReadFile(l.spec.File)
	if err != nil {
		l.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var r record
		if n, err := fmt.Sscanf(line, recordForm, &r.offset, &r.life); n != 2 || err != nil {
			l.t.Fatalf("%s noted %q: %v", l.spec.Name, line, err)
		}
		list = append(list, r)
	}
	return list
}
