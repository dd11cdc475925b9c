package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// shell is what a command body sees of the world: its streams, the form of the
// output, and how to reach the cluster.
type shell struct {
	in  io.Reader
	out io.Writer // data
	err io.Writer // notices

	inTerminal, outTerminal, errTerminal bool
	colour                               bool // notices and tables may be coloured
	json                                 bool

	endpoints []string
	clusterID string // that the endpoints must be of; "" is not said
	local     bool   // reads take what the node that answers has
	timeout   time.Duration
	token     string
	tokenFile string
	getenv    func(string) string
}

func newShell(in, out, err *os.File) *shell {
	sh := &shell{in: in, out: out, err: err, getenv: os.Getenv,
		inTerminal: isTerminal(in), outTerminal: isTerminal(out), errTerminal: isTerminal(err)}
	sh.colour = sh.outTerminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return sh
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// configure takes the global flags.
func (sh *shell) configure(c *cli.Context) error {
	switch format := c.String("output"); {
	case c.Bool("json") || format == "json":
		sh.json = true
	case format != "text" && format != "":
		return usagef("-o %q: use text or json", format)
	}
	if sh.timeout = c.Duration("timeout"); sh.timeout <= 0 {
		return usagef("--timeout %s: it must be above 0", sh.timeout)
	}
	var err error
	endpoints := cmp.Or(c.String("endpoints"), sh.getenv("RINGRIFT_COORDINATOR_URL"), defaultEndpoint)
	if sh.endpoints, err = parseEndpoints(endpoints); err != nil {
		return err
	}
	sh.clusterID = c.String("cluster-id")
	switch s := c.String("consistency"); s {
	case "local":
		sh.local = true
	case "linearizable":
	default:
		return usagef("--consistency %q: use local or linearizable", s)
	}
	sh.tokenFile = c.String("token-file")
	sh.token, err = readToken(sh.tokenFile, sh.getenv(tokenVariable))
	return err
}

// parseEndpoints reads a comma separated list of URLs, or of host:port.
func parseEndpoints(list string) ([]string, error) {
	var endpoints []string
	for part := range strings.SplitSeq(list, ",") {
		part = strings.TrimSuffix(strings.TrimSpace(part), "/")
		if part == "" {
			continue
		}
		if !strings.Contains(part, "://") {
			part = "http://" + part
		}
		u, err := url.Parse(part)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, usagef("endpoint %q is not a URL such as %s", part, defaultEndpoint)
		}
		endpoints = append(endpoints, part)
	}
	if len(endpoints) == 0 {
		return nil, usagef("no endpoint in %q", list)
	}
	return endpoints, nil
}

func readToken(file, fromEnv string) (string, error) {
	if file == "" {
		return strings.TrimSpace(fromEnv), nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", usagef("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(raw))
	if token == "" {
		return "", usagef("--token-file %s: it is empty", file)
	}
	return token, nil
}

// dial makes a client of the endpoints.
func (sh *shell) dial(change ...func(*client.Config)) (*client.Client, error) {
	cfg := client.Config{Endpoints: sh.endpoints, Token: sh.token, ClusterID: sh.clusterID, Timeout: min(sh.timeout, maxClientTimeout)}
	for _, f := range change {
		f(&cfg)
	}
	return client.New(cfg)
}

// maxClientTimeout is the client's own bound.
const maxClientTimeout = 5 * time.Minute

// dialReachable makes a client once one endpoint takes a connection, so that a wrong
// address is told at once instead of after --timeout.
func (sh *shell) dialReachable(ctx context.Context, change ...func(*client.Config)) (*client.Client, error) {
	if err := sh.knock(ctx); err != nil {
		return nil, err
	}
	return sh.dial(change...)
}

// knock connects to each endpoint until one answers.
func (sh *shell) knock(ctx context.Context) error {
	dialer := net.Dialer{Timeout: min(sh.timeout, 3*time.Second)}
	var last error
	for _, e := range sh.endpoints {
		u, err := url.Parse(e)
		if err != nil {
			return err
		}
		host := u.Host
		if u.Port() == "" {
			host = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
		}
		conn, err := dialer.DialContext(ctx, "tcp", host)
		if err == nil {
			return conn.Close()
		}
		last = err
	}
	return fmt.Errorf("%w: %w", errUnreachable, last)
}

// withClient calls body with a client, bounded by --timeout.
func (sh *shell) withClient(ctx context.Context, body func(ctx context.Context, c *client.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, sh.timeout)
	defer cancel()
	c, err := sh.dialReachable(ctx)
	if err != nil {
		return err
	}
	err = sh.whyTimeout(context.WithoutCancel(ctx), body(ctx, c))
	return errors.Join(err, closeClient(c))
}

// whyTimeout tells of a call that ran out of time whether that is because nobody leads.
func (sh *shell) whyTimeout(ctx context.Context, err error) error {
	if exitCode(err) == exitTimeout && sh.leaderless(ctx) {
		return fmt.Errorf("%w: %w", errLeaderless, err)
	}
	return err
}

// closeWithin bounds the wait for calls that were given up.
const closeWithin = 2 * time.Second

func closeClient(c *client.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	return c.Close(ctx)
}

// leaderless reports that the node which answers knows of no leader.
func (sh *shell) leaderless(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	s, _, err := sh.anyStatus(ctx)
	return err == nil && s.LeaderID == ""
}

// call makes one call of an HTTP route. in is sent and out filled as JSON; nil is
// neither.
func (sh *shell) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	if method == http.MethodGet && !sh.local {
		query = maps.Clone(query)
		if query == nil {
			query = url.Values{}
		}
		query.Set("consistency", "linearizable")
	}
	return sh.withClient(ctx, func(ctx context.Context, c *client.Client) error {
		return sh.staleOffer(method == http.MethodGet, c.Do(ctx, method, path, query, in, out))
	})
}

// hintedError is an error with what else can be done.
type hintedError struct {
	error
	hint string
}

func (e hintedError) Unwrap() error { return e.error }

// staleOffer says, where a read needs a leader and there is none, how to read without one.
func (sh *shell) staleOffer(read bool, err error) error {
	if !read || sh.local || exitCode(err) != exitUnreachable || errors.Is(err, client.ErrUnreachable) {
		return err
	}
	return hintedError{err, "to see what the node that answers has: --consistency local"}
}

// consistency is that of the client's reads.
func (sh *shell) consistency() client.Consistency {
	if sh.local {
		return client.Local
	}
	return client.Linearizable
}

func (sh *shell) fetch(ctx context.Context, path string, out any) error {
	return sh.call(ctx, http.MethodGet, path, nil, nil, out)
}

// say prints a notice.
func (sh *shell) say(format string, args ...any) { fmt.Fprintf(sh.err, format+"\n", args...) }

// emit prints v as one line of JSON, or calls asText.
func (sh *shell) emit(v any, asText func() error) error {
	if !sh.json {
		return asText()
	}
	return sh.line(v)
}

func (sh *shell) line(v any) error { return writeLine(sh.out, v) }

func writeLine(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// emitEach prints a list: one object a line, or a table of a row each.
func emitEach[T any](sh *shell, list []T, header table.Row, row func(T) table.Row) error {
	if sh.json {
		out := bufio.NewWriter(sh.out)
		for _, v := range list {
			if err := writeLine(out, v); err != nil {
				return err
			}
		}
		return out.Flush()
	}
	rows := make([]table.Row, len(list))
	for i, v := range list {
		rows[i] = row(v)
	}
	return sh.table(header, rows)
}

// table prints rows below a header, in plain columns.
func (sh *shell) table(header table.Row, rows []table.Row) error {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatUpper
	if sh.colour {
		style.Color.Header = text.Colors{text.Bold}
	} else {
		text.DisableColors()
	}
	t.SetStyle(style)
	t.AppendHeader(header)
	t.AppendRows(rows)
	t.SuppressTrailingSpaces()
	_, err := fmt.Fprintln(sh.out, t.Render())
	return err
}

// facts prints names and values, one a line.
func (sh *shell) facts(pairs ...any) error {
	width := 0
	for i := 0; i < len(pairs); i += 2 {
		width = max(width, len(pairs[i].(string)))
	}
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&b, "%-*s  %v\n", width, pairs[i], pairs[i+1])
	}
	_, err := io.WriteString(sh.out, b.String())
	return err
}

// report prints what went wrong, unless it is a pipe that was closed, and returns
// the exit code. ctx is done once the program was told to end.
func (sh *shell) report(ctx context.Context, err error) int {
	code := exitCode(err)
	var silent codeError
	if code == exitDone || errors.As(err, &silent) || errors.Is(err, syscall.EPIPE) {
		return code
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		sh.say("interrupted")
		return exitFailed
	}
	sh.say("ringlog: %s", describe(err, sh))
	return code
}

// describe is an error in words for a person, with what to do.
func describe(err error, sh *shell) string {
	text := describeCause(err, sh)
	var hinted hintedError
	if errors.As(err, &hinted) {
		text += "\n" + hinted.hint
	}
	return text
}

func describeCause(err error, sh *shell) string {
	var answer *api.Error
	var bad *event.Error
	switch {
	case errors.Is(err, client.ErrUnreachable) && !neverConnected(err):
		return fmt.Sprintf("%v\nnodes run at %s and did not answer in time: see ringlog check, or raise --timeout (%s)", err, strings.Join(sh.endpoints, ", "), sh.timeout)
	case errors.Is(err, errUnreachable), errors.Is(err, client.ErrUnreachable):
		return fmt.Sprintf("%v\nnobody answers at %s: is a node running there? (start some: ringlog dev)", err, strings.Join(sh.endpoints, ", "))
	case errors.Is(err, client.ErrOutcomeUnknown):
		return err.Error()
	case errors.As(err, &answer):
		text := brief(err)
		if answer.Remedy != "" {
			text += "\n" + answer.Remedy
		}
		return text
	case errors.As(err, &bad) && bad.Remedy != "":
		return err.Error() + "\n" + bad.Remedy
	}
	if name := problemName(err); name != "" {
		return name + ": " + err.Error()
	}
	return err.Error()
}

// neverConnected reports whether an attempt failed because nobody took the connection.
func neverConnected(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// brief is an error on one line: of a node's answer the code, what and where, of an event
// that can not be read the remedy too.
func brief(err error) string {
	var answer *api.Error
	var bad *event.Error
	if errors.As(err, &bad) && bad.Remedy != "" {
		return err.Error() + ": " + bad.Remedy
	}
	if !errors.As(err, &answer) || errors.Is(err, client.ErrOutcomeUnknown) {
		return err.Error()
	}
	text := string(answer.Code) + ": " + answer.Message
	if answer.Field != "" {
		text += " (" + answer.Field + ")"
	}
	return text
}
