package shell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ringrift/ringlog/api"
)

// The flags of the command line take the positions that HTTP takes, apart from an empty one.
func TestPositionsAreReadAsEverywhere(t *testing.T) {
	table, err := os.ReadFile("../../../../api/testdata/positions.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		text, want := strings.TrimSpace(line[:32]), strings.TrimSpace(line[32:])
		p, err := ParsePosition("from", text)
		if problem, wrong := strings.CutPrefix(want, "! "); wrong {
			if ExitCode(err) != ExitUsage || !strings.Contains(err.Error(), "--from") ||
				!strings.Contains(err.Error(), problem) {
				t.Errorf("%q is read as %v, %v; want an error that says %q", text, p, err, problem)
			}
			continue
		}
		if err != nil || p.String() != want {
			t.Errorf("%q is read as %v, %v; want %s", text, p, err, want)
		}
	}
	if p, err := ParsePosition("from", ""); ExitCode(err) != ExitUsage {
		t.Errorf("nothing is read as %v, %v", p, err)
	}
	for _, text := range []string{"", "0s", "-1d", "soon"} {
		age, err := ParseAge("older-than", text)
		if ExitCode(err) != ExitUsage || !strings.Contains(err.Error(), "--older-than") {
			t.Errorf("%q is read as %s, %v", text, age, err)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		Err  error
		want int
	}{
		{nil, ExitDone},
		{fmt.Errorf("write: %w", syscall.EPIPE), ExitDone},
		{errors.New("odd"), ExitFailed},
		{fmt.Errorf("x: %w", &api.Error{Code: api.Conflict}), ExitRefused},
		{&api.Error{Code: api.Reserved}, ExitRefused},
		{&api.Error{Code: api.Fenced}, ExitRefused},
		{&api.Error{Code: api.NoLeader}, ExitUnreachable},
		{&api.Error{Code: api.NotFound}, ExitNotFound},
		{&api.Error{Code: api.Timeout}, ExitTimeout},
		{&api.Error{Code: api.InvalidArgument}, ExitUsage},
		{&api.Error{Code: api.OutcomeUnknown}, ExitFailed},
		{fmt.Errorf("%w: %w", ErrUnreachable, context.DeadlineExceeded), ExitUnreachable},
		{context.DeadlineExceeded, ExitTimeout},
		{CodeError(3), 3},
	} {
		if got := ExitCode(c.Err); got != c.want {
			t.Errorf("%v ends with %d, not %d", c.Err, got, c.want)
		}
	}
}

func TestConsentIsAskedForOnATerminalOnly(t *testing.T) {
	ask := func(terminal bool, answer string, c Consent) (string, error) {
		var notices bytes.Buffer
		sh := &Shell{In: strings.NewReader(answer), Err: &notices, InTerminal: terminal, ErrTerminal: terminal,
			Getenv: os.Getenv}
		err := sh.Confirm(c, "Remove %d events?", 5)
		return notices.String(), err
	}
	if said, err := ask(true, "y\n", Consent{}); err != nil || !strings.Contains(said, "Remove 5 events? [y/N]") {
		t.Errorf("yes: %v, %q", err, said)
	}
	for _, answer := range []string{"\n", "n\n", "", "yesterday\n"} {
		if _, err := ask(true, answer, Consent{}); ExitCode(err) != ExitFailed {
			t.Errorf("%q is taken for consent: %v", answer, err)
		}
	}
	said, err := ask(false, "y\n", Consent{})
	if ExitCode(err) != ExitUsage || !strings.Contains(err.Error(), "--yes") || said != "" {
		t.Errorf("without a terminal: %v, %q", err, said)
	}
	if _, err := ask(false, "", Consent{Yes: true}); err != nil {
		t.Errorf("--yes: %v", err)
	}
}

// A person who is asked and presses Ctrl-C has not agreed, and does not have to press Enter as well.
func TestAnInterruptAnswersNo(t *testing.T) {
	terminal, keys := io.Pipe() // on which nothing is typed
	defer keys.Close()
	interrupted := make(chan struct{})
	close(interrupted)
	var notices bytes.Buffer
	sh := &Shell{In: terminal, Err: &notices, InTerminal: true, ErrTerminal: true, Getenv: os.Getenv,
		Interrupted: interrupted}
	err := sh.Confirm(Consent{}, "Remove %d events?", 5)
	if ExitCode(err) != ExitFailed || notices.String() != "Remove 5 events? [y/N] \nnothing was done\n" {
		t.Errorf("%v, %q", err, notices.String())
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]uint64{"0": 0, "1000": 1000, "7B": 7, "512KiB": 512 << 10, "2 GiB": 2 << 30,
		"1tib": 1 << 40} {
		if n, err := ParseSize("--size", text); err != nil || n != want {
			t.Errorf("%q is read as %d, %v", text, n, err)
		}
	}
	for _, text := range []string{"", "GiB", "2GB", "1.5GiB", "-1", "2 GiB GiB", "9999999999TiB", "all"} {
		n, err := ParseSize("--size", text)
		if ExitCode(err) != ExitUsage || !strings.Contains(err.Error(), "--size") || !strings.Contains(err.Error(), "MiB") {
			t.Errorf("%q is read as %d, %v", text, n, err)
		}
	}
}

// Endpoints are addresses of nodes, to which requests add their paths.
func TestEndpointsAreAddresses(t *testing.T) {
	got, err := ParseEndpoints("a:1, https://b:2/below/,")
	if err != nil || !slices.Equal(got, []string{"http://a:1", "https://b:2/below"}) {
		t.Errorf("%q, %v", got, err)
	}
	for text, want := range map[string]string{
		"http://a:1/v1/": "leave /v1 out",
		"ftp://a":        "is not a URL",
		",":              "no endpoint",
	} {
		if _, err := ParseEndpoints(text); ExitCode(err) != ExitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A verb that asks nodes for long finds a token that was replaced in its file.
func TestAReplacedTokenIsReadAgain(t *testing.T) {
	wanted := "first"
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+wanted {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error": {"code": "unauthenticated", "message": "no"}}`)
			return
		}
		fmt.Fprint(w, `{}`)
	}))
	defer node.Close()
	sh := &Shell{Token: "first", TokenFile: filepath.Join(t.TempDir(), "token"), Getenv: os.Getenv}
	for _, token := range []string{"first", "second"} {
		wanted = token
		if err := os.WriteFile(sh.TokenFile, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var answer struct{}
		if err := sh.Ask(t.Context(), node.URL, "/status", &answer); err != nil {
			t.Errorf("%s: %v", token, err)
		}
	}
	wanted = "third"
	if err := sh.Ask(t.Context(), node.URL, "/status", nil); ExitCode(err) != ExitUsage {
		t.Errorf("a wrong token: %v", err)
	}
}

// An address with the wrong scheme is named as what is wrong.
func TestTheWrongSchemeIsNamed(t *testing.T) {
	sh := &Shell{Getenv: os.Getenv}
	plain, secure := httptest.NewServer(http.NotFoundHandler()), httptest.NewUnstartedServer(http.NotFoundHandler())
	defer plain.Close()
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	for address, hint := range map[string]string{
		"https://" + plain.Listener.Addr().String(): "as http://",
		"http://" + secure.Listener.Addr().String(): "needs https",
	} {
		err := sh.Ask(t.Context(), address, "/status", nil)
		if text := describeCause(err, sh); !strings.Contains(text, hint) || strings.Contains(text, "is one running") {
			t.Errorf("%s: %s", address, text)
		}
	}
}
