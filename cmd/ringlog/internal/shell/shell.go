// Package shell is what all verbs of the command line share: where output goes and in which form, how the
// cluster is reached, and what an error of each kind ends the program with. A verb gets a *Shell, so a
// test can give it other streams and endpoints than the process has.
package shell

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/certs"
)

// Shell is what a command body sees of the world: its streams, the form of the
// output, and how to reach the cluster.
// Configure completes it; after that it is only read, by all goroutines of a verb.
type Shell struct {
	In  io.Reader // what a verb reads for -, and answers to its questions
	Out io.Writer // data
	Err io.Writer // notices

	InTerminal, OutTerminal, ErrTerminal bool // what of those is a terminal

	Interrupted <-chan struct{} // closed once the program was asked to end; nil is never

	Colour bool // notices and tables may be coloured
	JSON   bool // output is one JSON object a line

	// At least one, none with a slash at the end.
	Endpoints []string            // URLs
	clusterID string              // the cluster that the endpoints must be of; "" is any
	local     bool                // reads take what the node that answers has
	Timeout   time.Duration       // of a command, of an attempt of a stream
	Token     string              // "" is none
	TokenFile string              // that Token was read from; "" is none
	Getenv    func(string) string // os.Getenv, or a test's

	files certs.Files // for endpoints with https; each may be ""
}

// New returns the shell of a process with these streams; Configure completes it.
// Colours are for terminals, and only if the environment does not forbid them.
func New(in, out, err *os.File) *Shell {
	sh := &Shell{In: in, Out: out, Err: err, Getenv: os.Getenv,
		InTerminal: isTerminal(in), OutTerminal: isTerminal(out), ErrTerminal: isTerminal(err)}
	// A notice is coloured only if standard error is a terminal as well.
	sh.Colour = sh.OutTerminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return sh
}

// isTerminal reports a stream that a person sees.
func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// Configure takes the global flags.
// It is called once, before the verb.
func (sh *Shell) Configure(c *cli.Context) error {
	setting, err := sh.setting(c)
	if err != nil {
		return err
	}
	// --json counts more than -o, as it can only be meant one way.
	switch format := setting("output"); {
	case c.Bool("json") || format == "json":
		sh.JSON = true
	case format != "text" && format != "":
		return Usagef("-o %q: use text or json", format)
	}
	sh.Timeout = c.Duration("timeout")
	if sh.Timeout <= 0 {
		return Usagef("--timeout %s must be above 0", sh.Timeout)
	}
	// The platform's variable for the coordinator names an endpoint, too.
	// An empty flag counts as not given.
	// The flag reads the variables itself; this is for a flag that was given as "".
	endpoints := cmp.Or(setting("endpoints"), sh.Getenv("RINGRIFT_COORDINATOR_URL"), DefaultEndpoint)
	sh.Endpoints, err = ParseEndpoints(endpoints)
	if err != nil {
		return err
	}
	// The client and Open send it with each request: nodes of other clusters refuse.
	sh.clusterID = setting("cluster-id")
	// local: a node that lags may answer.
	switch s := c.String("consistency"); s {
	case "local":
		sh.local = true
	case "linearizable":
	default:
		return Usagef("--consistency %q: use local or linearizable", s)
	}
	// They are read when a node is called.
	sh.files = certs.Files{Cert: setting("tls-cert"), Key: setting("tls-key"), CA: setting("tls-ca")}
	// The file takes precedence over the variable.
	sh.TokenFile = setting("token-file")
	sh.Token, err = ReadToken(sh.TokenFile, sh.Getenv(TokenVariable))
	return err
}

// Where programs look for the cluster token.
const (
	TokenVariable     = "RINGRIFT_CLUSTER_AUTH_TOKEN"
	TokenFileVariable = "RINGLOG_TOKEN_FILE"
)

// URLOf makes an HTTP address that has no scheme a URL.
func URLOf(address string) string {
	// An address with a scheme is a URL already.
	if address == "" || strings.Contains(address, "://") {
		return address
	}
	return "http://" + address
}

// ParseEndpoints reads a comma separated list of URLs, or of host:port.
func ParseEndpoints(list string) ([]string, error) {
	var endpoints []string
	// Empty parts are left out, as of a list that ends with a comma.
	for part := range strings.SplitSeq(list, ",") {
		// Routes are appended to an endpoint, so it must not end with a slash.
		part = strings.TrimSuffix(strings.TrimSpace(part), "/")
		if part == "" {
			continue
		}
		part = URLOf(part)
		u, err := url.Parse(part)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return nil, Usagef("endpoint %q is not a URL such as %s", part, DefaultEndpoint)
		}
		if strings.HasSuffix(u.Path, "/v1") {
			return nil, Usagef("endpoint %q: leave /v1 out, which requests add themselves", part)
		}
		endpoints = append(endpoints, part)
	}
	if len(endpoints) == 0 {
		return nil, Usagef("no endpoint in %q", list)
	}
	return endpoints, nil
}

// HostOf returns the host of an address, which a flag gives as HOST:PORT.
func HostOf(flag, addr string) (string, error) {
	// The port is a number: names of services differ from machine to machine.
	host, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return "", Usagef("--%s %q is not HOST:PORT", flag, addr)
	}
	return host, nil
}

// ReadToken returns the cluster token: what file holds, or fromEnv if no file is named.
func ReadToken(file, fromEnv string) (string, error) {
	if file == "" {
		// An empty variable is no token, since a cluster may have none.
		token := strings.TrimSpace(fromEnv)
		if err := api.CheckToken(token); err != nil {
			return "", Usagef("%s: %w", TokenVariable, err)
		}
		return token, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", Usagef("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(raw))
	// An empty file is an error: it would silently mean that there is no token.
	if token == "" {
		return "", Usagef("--token-file %s is empty", file)
	}
	if err := api.CheckToken(token); err != nil {
		return "", Usagef("--token-file %s: %w", file, err)
	}
	return token, nil
}

// Dial makes a client of the endpoints.
func (sh *Shell) Dial(change ...func(*client.Config)) (*client.Client, error) {
	// A command with a longer timeout repeats its calls itself, if it needs to.
	secure, err := sh.TLS()
	if err != nil {
		return nil, err
	}
	cfg := client.Config{Endpoints: sh.Endpoints, Token: sh.Token, TokenFile: sh.TokenFile, ClusterID: sh.clusterID,
		TLS:     secure,
		Timeout: min(sh.Timeout, maxClientTimeout),
		// A filter that nothing known matches is the usual reason for a subscriber that gets nothing.
		OnWarning: func(w event.Warning) { sh.Say("warning: %s", w.Message) }}
	// The verb's own changes come last.
	for _, f := range change {
		f(&cfg)
	}
	return client.New(cfg)
}

// maxClientTimeout is the longest timeout that package client accepts.
const maxClientTimeout = 5 * time.Minute

// DialReachable makes a client once one endpoint takes a connection, so a wrong
// address is reported at once instead of after --timeout.
func (sh *Shell) DialReachable(ctx context.Context, change ...func(*client.Config)) (*client.Client, error) {
	if err := sh.Reach(ctx); err != nil {
		return nil, err
	}
	if err := sh.checkClusters(ctx); err != nil {
		return nil, err
	}
	return sh.Dial(change...)
}

// Reach connects to each endpoint until one answers.
// It says nothing about whether a node answers there: that the first call shows.
func (sh *Shell) Reach(ctx context.Context) error {
	// Any endpoint that accepts a connection will do.
	// An address that answers nothing must not take the time of the others.
	dialer := &net.Dialer{Timeout: min(sh.Timeout, 3*time.Second)}
	secure, err := sh.TLS()
	if err != nil {
		return err
	}
	var last error
	for _, e := range sh.Endpoints {
		u, err := url.Parse(e)
		if err != nil {
			return err
		}
		host := u.Host
		// A URL without a port means that of its scheme.
		if u.Port() == "" {
			host = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
		}
		// A certificate that is not trusted would otherwise be tried again until the time is up.
		dial := dialer.DialContext
		if u.Scheme == "https" {
			dial = (&tls.Dialer{NetDialer: dialer, Config: secure}).DialContext
		}
		conn, err := dial(ctx, "tcp", host)
		if err == nil {
			return conn.Close()
		}
		// One reason is enough: the others are mostly alike.
		last = err
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, last)
}

// WithClient calls body with a client, bounded by --timeout.
func (sh *Shell) WithClient(ctx context.Context, body func(ctx context.Context, c *client.Client) error) error {
	// The limit covers connecting, the calls and their retries.
	ctx, cancel := context.WithTimeout(ctx, sh.Timeout)
	defer cancel()
	c, err := sh.DialReachable(ctx)
	if err != nil {
		return err
	}
	// ctx may have run out; the question whether anybody leads gets time of its own.
	err = sh.ExplainTimeout(context.WithoutCancel(ctx), body(ctx, c))
	return errors.Join(err, CloseClient(c))
}

// ExplainTimeout wraps the error of a call that ran out of time in ErrLeaderless, if there is no leader.
func (sh *Shell) ExplainTimeout(ctx context.Context, err error) error {
	// Without a leader nothing can be appended: that is the reason, and not the time.
	if ExitCode(err) == ExitTimeout && sh.leaderless(ctx) {
		return fmt.Errorf("%w: %w", ErrLeaderless, err)
	}
	return err
}

// closeWithin bounds the wait for calls that were abandoned.
const closeWithin = 2 * time.Second

// CloseClient closes a client, waiting for calls under way only for a moment.
func CloseClient(c *client.Client) error {
	// The context of the command may be over; closing gets a moment of its own.
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	return c.Close(ctx)
}

// leaderless reports whether no node that answers knows a leader. It is false if no node answers.
func (sh *Shell) leaderless(ctx context.Context) bool {
	// A second more, at the end of a command that has run out of time.
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, leader, err := sh.AnyStatus(ctx)
	return err == nil && leader == ""
}

// At returns a shell of the same streams whose only endpoint is url, to which nothing is shown.
func (sh *Shell) At(url string) *Shell {
	return &Shell{In: sh.In, Out: sh.Out, Err: sh.Err, InTerminal: sh.InTerminal, OutTerminal: sh.OutTerminal,
		ErrTerminal: sh.ErrTerminal, Interrupted: sh.Interrupted, Colour: sh.Colour, JSON: sh.JSON,
		Endpoints: []string{url}, Timeout: sh.Timeout, Getenv: sh.Getenv}
}

// Call makes one call of an HTTP route. in is sent and out filled as JSON; nil is
// neither.
func (sh *Shell) Call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	// Reads see everything acknowledged before, unless --consistency local was given. An audit reads, whatever its method.
	read := method == http.MethodGet || path == "/v1/audit"
	if read && !sh.local {
		// A copy, since the query is the caller's.
		query = maps.Clone(query)
		if query == nil {
			query = url.Values{}
		}
		query.Set("consistency", "linearizable")
	}
	return sh.WithClient(ctx, func(ctx context.Context, c *client.Client) error {
		return sh.SuggestLocal(read, c.Admin().Do(ctx, method, path, query, in, out))
	})
}

// hintedError is an error with what else can be done.
type hintedError struct {
	error
	hint string
}

func (e hintedError) Unwrap() error { return e.error }

// SuggestLocal says, if a read needs a leader and there is none, how to read without one.
func (sh *Shell) SuggestLocal(read bool, err error) error {
	// Only a read can do without a leader, and only if a node answers at all.
	// ErrUnreachable means that no node answers at all, and ExitUnreachable also that none leads.
	if !read || sh.local || ExitCode(err) != ExitUnreachable || errors.Is(err, client.ErrUnreachable) {
		return err
	}
	return hintedError{err, "to read what the answering node has: --consistency local"}
}

// Consistency is that of the client's reads.
func (sh *Shell) Consistency() client.Consistency {
	// The flag counts for the calls of package client, as it does for routes.
	if sh.local {
		return client.Local
	}
	return client.Linearizable
}

// Fetch gets a route of the cluster.
func (sh *Shell) Fetch(ctx context.Context, path string, out any) error {
	return sh.Call(ctx, http.MethodGet, path, nil, nil, out)
}

// Say prints a notice, wrapped if it is longer than the line of a terminal.
func (sh *Shell) Say(format string, args ...any) {
	notice := fmt.Sprintf(format, args...)
	if width := sh.columns(sh.Err, sh.ErrTerminal); width > 0 {
		notice = WrapAt(notice, width)
	}
	fmt.Fprintln(sh.Err, notice)
}

// Emit prints v as one line of JSON, or calls asText.
func (sh *Shell) Emit(v any, asText func() error) error {
	// Both forms are of the same value.
	if !sh.JSON {
		return asText()
	}
	return sh.PrintLine(v)
}

// PrintLine prints v as one line of JSON.
func (sh *Shell) PrintLine(v any) error { return WriteLine(sh.Out, v) }

// WriteLine writes v as one line of JSON.
func WriteLine(w io.Writer, v any) error {
	// <, > and & stay as they are: the output is no HTML.
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// EmitEach prints a list: one object a line, or a table of a row each. what is in it, such as "cursor", is named to a
// person who sees an empty one.
func EmitEach[T any](sh *Shell, what string, list []T, header table.Row, row func(T) table.Row) error {
	if sh.JSON {
		// A list may be long: it is written in blocks, not object by object.
		out := bufio.NewWriter(sh.Out)
		for _, v := range list {
			if err := WriteLine(out, v); err != nil {
				return err
			}
		}
		return out.Flush()
	}
	// A table needs all rows before it can be printed: the widest one sets a column's width.
	rows := make([]table.Row, len(list))
	for i, v := range list {
		rows[i] = row(v)
	}
	err := sh.Table(header, rows)
	// A script has the header alone, as before.
	if err == nil && len(list) == 0 && sh.OutTerminal {
		sh.Say("there is no %s", what)
	}
	return err
}

// Report prints what went wrong, unless it is a pipe that was closed, and returns
// the exit code. ctx is done once the program was asked to end.
func (sh *Shell) Report(ctx context.Context, err error) int {
	// A verb that returns a CodeError has printed all there is to say.
	code := ExitCode(err)
	var silent CodeError
	// EPIPE: the reader, such as head, has enough.
	if code == ExitDone || errors.As(err, &silent) || errors.Is(err, syscall.EPIPE) {
		return code
	}
	// Ctrl-C is no failure to explain.
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		sh.Say("interrupted")
		return ExitFailed
	}
	sh.Say("ringlog: %s", Describe(err, sh))
	return code
}

// Describe is an error in words for a person, with what to do.
func Describe(err error, sh *Shell) string {
	// The remedy comes first, then what else the verb suggests.
	text := describeCause(err, sh)
	var hinted hintedError
	if errors.As(err, &hinted) {
		text += "\n" + hinted.hint
	}
	return text
}

// describeCause returns what went wrong and what to do, without hints of the verb.
func describeCause(err error, sh *Shell) string {
	var answer *api.Error
	var bad *event.Error
	// The order matters, as an error may be several of these.
	switch {
	case certs.Remedy(err) != "":
		// The client's errors have it already.
		remedy := certs.Remedy(err)
		return strings.TrimSuffix(err.Error(), ": "+remedy) + "\n" + remedy
	// A connection was made, so a node runs there but is slow.
	case errors.Is(err, client.ErrUnreachable) && !neverConnected(err):
		return fmt.Sprintf("%v\nnodes run at %s but did not answer in time: run ringlog check, or raise --timeout (%s)",
			err, strings.Join(sh.Endpoints, ", "), sh.Timeout)
	case errors.Is(err, ErrUnreachable), errors.Is(err, client.ErrUnreachable):
		text := fmt.Sprintf("%v\nno node answers at %s: is one running there?", err, strings.Join(sh.Endpoints, ", "))
		// Whoever names endpoints has a cluster.
		if slices.Equal(sh.Endpoints, []string{DefaultEndpoint}) {
			text += " (to start a cluster: ringlog dev)"
		}
		return text
	// The remedy of a node's answer does not apply if the outcome is unknown.
	case errors.Is(err, client.ErrOutcomeUnknown):
		return err.Error()
	case errors.As(err, &answer):
		return strings.TrimSuffix(answerText(answer)+"\n"+Remedy(answer), "\n")
	case errors.As(err, &bad) && bad.Remedy != "":
		return err.Error() + "\n" + bad.Remedy
	}
	return err.Error()
}

// Remedy returns what to do about a node's answer. For a token that is refused it names where this program takes one
// from: the remedy of the answer is for programs that use the HTTP interface or package client.
func Remedy(answer *api.Error) string {
	if answer.Code == api.Unauthenticated {
		return "give the cluster's token: --token-file, or " + TokenVariable
	}
	return answer.Remedy
}

// neverConnected reports whether an attempt failed because no connection was accepted.
func neverConnected(err error) bool {
	// A connection that broke is no failure to connect.
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// Brief is an error on one line: of a node's answer the code, what and where, of an event
// that cannot be read the remedy too.
func Brief(err error) string {
	// If the outcome is unknown, the whole text says so; an answer inside of it does not.
	var answer *api.Error
	text := err.Error()
	if errors.As(err, &answer) && !errors.Is(err, client.ErrOutcomeUnknown) {
		text = answerText(answer)
	}
	// An event that cannot be read has its remedy on the same line, as there may be many.
	var bad *event.Error
	if errors.As(err, &bad) && bad.Remedy != "" {
		text += ": " + bad.Remedy
	}
	return text
}

// answerText is a node's answer on one line: what and where.
func answerText(answer *api.Error) string {
	// The code first: it is stable, and scripts look for it.
	text := string(answer.Code) + ": " + answer.Message
	if answer.Field != "" {
		text += " (" + answer.Field + ")"
	}
	return text
}
