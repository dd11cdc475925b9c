package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/internal/sealed"
	"github.com/ringrift/ringlog/internal/server"
)

// A past is a node of this process: the incident is unpacked into a temporary folder, opened read-only, and served
// on a port of 127.0.0.1. Verbs ask it as they ask any node, so their answers have the form that they have of a
// cluster.

// closeWithin bounds the end of a past that was served.
const closeWithin = 5 * time.Second

// Past is an incident that is open, and served on this machine alone.
type Past struct {
	*sealed.Node
	Shell  *shell.Shell   // whose endpoint is the past, and nothing else
	URL    string         // of the server, on 127.0.0.1
	dir    string         // a temporary folder, into which the incident is unpacked
	server *server.Server // nil until open has made it
	served chan error     // holds one: what Serve returned
}

// OpenFile opens the incident in a file at its beginning. A port of 0 is one that is free.
func OpenFile(ctx context.Context, sh *shell.Shell, file string, port int) (*Past, error) {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, shell.NotFoundError{Err: err}
	}
	if err != nil {
		return nil, shell.UsageError{Err: err}
	}
	p, err := open(ctx, sh, f, port)
	// The file is not needed any more: open has unpacked it.
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

// openSlice opens a slice without a file in between.
func openSlice(ctx context.Context, sh *shell.Shell, s slice) (*Past, error) {
	r, w := io.Pipe()
	// What is written is read at the same time: an error of either ends the other.
	written := make(chan struct{})
	go func() {
		defer close(written)
		w.CloseWithError(s.write(ctx, sh, w))
	}()
	p, err := open(ctx, sh, r, 0)
	// Whoever writes learns that nobody reads on.
	r.Close()
	<-written
	return p, err
}

// open opens an incident and serves it.
func open(ctx context.Context, sh *shell.Shell, r io.Reader, port int) (p *Past, err error) {
	// The port comes first: the node has to know its address, and a port that is taken is found before anything is
	// unpacked.
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("--http-port %d: %w%s", port, err,
			shell.PortHolder(net.JoinHostPort("127.0.0.1", strconv.Itoa(port))))
	}
	p = &Past{URL: "http://" + listener.Addr().String(), served: make(chan error, 1)}
	// Whatever was begun is ended, in Close, which knows what there is.
	defer func() {
		if err != nil {
			err = errors.Join(err, listener.Close(), p.Close())
		}
	}()
	p.dir, err = os.MkdirTemp("", "ringlog-incident-")
	if err != nil {
		return p, err
	}
	logger := hclog.New(&hclog.LoggerOptions{Name: "incident", Level: hclog.Warn, Output: sh.Err, JSONFormat: sh.JSON})
	p.Node, err = sealed.Open(ctx, r, filepath.Join(p.dir, "node"), sealed.Options{
		HTTP: listener.Addr().String(), Logger: logger})
	if err != nil {
		return p, err
	}
	p.server, err = server.New(server.Config{Node: p.Node, Version: "incident", Logger: logger.Named("server")})
	if err != nil {
		return p, err
	}
	go func() { p.served <- p.server.Serve(listener) }()
	// The shell asks this server alone, whatever endpoints it had.
	p.Shell = sh.At(p.URL)
	// Once it answers it can be closed.
	return p, p.Shell.Ask(ctx, p.URL, "/healthz", new(struct{}))
}

// Close ends what is served, and removes what was unpacked. It ends what there is, so it may be called for a Past
// that was not opened completely.
func (p *Past) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	var errs []error
	if p.server != nil {
		errs = append(errs, p.server.Close(ctx), <-p.served) // Serve returns once the server is closed
	}
	if p.Node != nil {
		errs = append(errs, p.Node.Close())
	}
	if p.dir != "" {
		errs = append(errs, os.RemoveAll(p.dir))
	}
	return errors.Join(errs...)
}

// To continues up to the event at an offset; 0 is the end of the slice.
func (p *Past) To(ctx context.Context, until uint64) error {
	if until == 0 {
		return p.ToEnd(ctx)
	}
	return outside("until", p.Node.To(ctx, until))
}

// outside is the error of a place that the incident does not have: the command line is wrong, not the file.
func outside(flag string, err error) error {
	var refused *api.Error
	if errors.As(err, &refused) && refused.Code == api.InvalidArgument {
		return shell.Usagef("--%s: %s", flag, refused.Message)
	}
	return err
}

// Dev serves an incident until ctx ends.
func Dev(ctx context.Context, sh *shell.Shell, file string, until uint64, port int) (err error) {
	p, err := OpenFile(ctx, sh, file, port)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	// The incident is moved on before its address is printed.
	if err := p.To(ctx, until); err != nil {
		return err
	}
	if err := PrintPlace(sh, p.Place()); err != nil {
		return err
	}
	// With --json the standard output has the place alone.
	pasted := sh.Out
	if sh.JSON {
		pasted = sh.Err
	}
	if _, err := fmt.Fprintf(pasted, "\nIn another terminal:\n  export RINGLOG_ENDPOINTS=%s\n\n", p.URL); err != nil {
		return err
	}
	sh.Say("read it with tail, get, cursor ls, dlq ls and the like; nothing can be written\n" +
		"to continue: ringlog incident step")
	sh.Say("console: %s/ui/\nCtrl-C ends it", p.URL)
	// Requests are served, and incident step moves on, until then.
	<-ctx.Done()
	return nil
}
