package main

import (
	"math"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/event/where"
	"github.com/ringrift/ringlog/router"
	"github.com/ringrift/ringlog/router/breaker"
	"github.com/ringrift/ringlog/router/sinks"
)

// The verb is in several files. This one reads the flags and makes the sink, react_run.go runs it as a member of a
// group, react_incident.go on the events of an incident, react_answer.go chooses replies, and react_report.go
// prints.

// reactOptions are the flags and arguments of react.
type reactOptions struct {
	// its name, also where it is for this run alone
	group  string
	own    bool         // the group is for this run alone
	filter event.Filter // empty leaves the group's own
	// nil takes every event; others count as handled
	where *where.Condition
	from  *api.Position // nil is not said

	// The timeout is of one attempt; retries do not count the first one.
	// attempts that run at once
	concurrency int
	timeout     time.Duration // above 0
	retries     int           // in a row, before the event is released to the group
	// after the first failure; it doubles with each
	backoff    time.Duration
	ackWait    time.Duration  // of a new group; 0 is the cluster's setting
	maxDeliver uint64         // of a new group; 0 is the cluster's setting
	breaker    breaker.Config // Off with --breaker-failures 0
	// how long running attempts may continue after an interrupt
	drain    time.Duration
	record   bool       // publish failures as events
	answer   string     // which outcomes to publish as replies: answerAll, answerFailures or "" for none
	reply    event.Type // of success; "" is what the flows name
	count    uint64     // deliveries; 0 is no limit
	untilEnd bool       // stop once all that is in the log now is handled

	incident string // the file whose events are taken; "" is the cluster
	until    uint64 // where the incident is taken to have ended; 0 is its end

	command   []string // and its arguments; none with a webhook
	passToken bool     // the command gets the cluster token
	// the URL is empty with a command
	webhook sinks.WebhookOptions
}

// reactCommand is react: a reliable worker without code. The group remembers what is handled, so a run may be
// killed at any time, and several may share the work.
func reactCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "react", Usage: "run a command, or post to a URL, for each event of a group",
		ArgsUsage: "-- COMMAND ARGUMENTS…",
		UsageText: shell.Examples(
			"ringlog react --group evaluators --type 'training.*' --until-end -- cat",
			"ringlog react --type '*' --from -5 --until-end -- sh -c 'echo $RINGLOG_TYPE'",
		),
		Description: "Processes with the same --group share its events: each goes to one of them, is redelivered " +
			"after a failure, and\n" +
			"becomes a dead letter after --max-deliver failed deliveries (see ringlog dlq). A new group starts " +
			"at the start of the\n" +
			"log, or at --from. Without --group the run has a group of its own, from the end of the log, and " +
			"removes it.\n" +
			"COMMAND gets the payload on its standard input and the rest in RINGLOG_OFFSET, _TYPE, _VALUE, " +
			"_SOURCE, _KEY,\n" +
			"_CORRELATION_ID, _CAUSATION_ID, _TIME, _APPENDED_AT, _HASH, _DELIVERY, _GROUP and _IDEMPOTENCY_KEY, " +
			"and in TRACEPARENT;\n" +
			"exit code 0 is success.\n" +
			"Attempts and what COMMAND prints go to stderr, the summary to stdout.",
		Flags: append(filterFlags(),
			&cli.StringFlag{Name: "group", Aliases: []string{"g"}, Usage: "share the events of group `NAME`"},
			whereFlag("handle only events for which this `CEL` condition holds, such as 'payload.epoch > 3'; "+
				"others count as handled"),
			&cli.StringFlag{Name: "from", Usage: "start a new group at `WHERE`: " + api.PositionForms},
			&cli.IntFlag{Name: "concurrency", Usage: "handle `N` events at once; those of a key stay in order", Value: 1},
			&cli.DurationFlag{Name: "timeout", Usage: "time limit of one attempt",
				DefaultText: router.TimeoutVariable + " in seconds, else 30s"},
			&cli.IntFlag{Name: "retries",
				Usage: "make `N` attempts after the first before the event is released to the group", Value: 3},
			&cli.DurationFlag{Name: "backoff", Usage: "wait after a failure, doubled each time up to 5m",
				Value: time.Second},
			&cli.DurationFlag{Name: "ack-wait",
				Usage:       "for a new group: `DURATION` for which a silent member keeps an event",
				DefaultText: "the setting group.ack_wait"},
			&cli.Uint64Flag{Name: "max-deliver",
				Usage:       "for a new group: make an event a dead letter after `N` failed deliveries",
				DefaultText: "the setting group.max_deliver"},
			&cli.IntFlag{Name: "breaker-failures",
				Usage: "open the circuit breaker after failures of `N` different events without a success in between; " +
					"0 means never", Value: 3},
			&cli.DurationFlag{Name: "breaker-reset", Usage: "keep the circuit breaker open for this `DURATION`",
				Value: 300 * time.Second},
			&cli.BoolFlag{Name: "record", Usage: "publish failures as HANDLER_FAILED and HANDLER_TIMEOUT"},
			&cli.StringFlag{Name: "answer",
				Usage: "publish replies for ringlog call: `WHICH` is all, or failures if COMMAND publishes its success"},
			&cli.StringFlag{Name: "reply", Usage: "with --answer all: reply with `TYPE`",
				DefaultText: "what the flows name"},
			&cli.DurationFlag{Name: "drain",
				Usage: "let running attempts continue for this `DURATION` after Ctrl-C or SIGTERM", Value: 30 * time.Second},
			&cli.Uint64Flag{Name: "n", Usage: "stop after `COUNT` deliveries"},
			&cli.BoolFlag{Name: "until-end", Usage: "stop once everything that is in the log now is handled"},
			&cli.StringFlag{Name: "webhook", Usage: "post each event as JSON to `URL` instead of running a command"},
			&cli.StringSliceFlag{Name: "header", Usage: "with --webhook: send this header, `NAME=VALUE` (repeatable)"},
			&cli.StringFlag{Name: "secret-file",
				Usage: "with --webhook: sign per Standard Webhooks, with the secret in `FILE`"},
			&cli.StringFlag{Name: "incident",
				Usage: "take the events of an incident `FILE`, once each, and touch no cluster; see ringlog incident"},
			&cli.Uint64Flag{Name: "until", Usage: "with --incident: as of the event at `OFFSET`"},
			&cli.BoolFlag{Name: "allow-local",
				Usage: "with --webhook: post also to this host and to link-local addresses"},
			&cli.StringFlag{Name: "proxy",
				Usage: "with --webhook: post through the proxy at `URL`; variables of the environment do not count"},
			&cli.BoolFlag{Name: "pass-token", Usage: "give COMMAND the cluster token, so that it can publish"},
		),
		Action: func(c *cli.Context) error {
			o, err := reactOptionsOf(c)
			if err != nil {
				return err
			}
			if o.incident != "" {
				return reactToIncident(c.Context, sh, o)
			}
			// The sink is made before the group, so a command that does not exist creates no group.
			sink, closeSink, err := o.sink(sh)
			if err != nil {
				return err
			}
			// Closed after the last attempt: react returns only then.
			defer closeSink()
			return react(c.Context, sh, o, sink)
		},
	}
}

// reactOptionsOf reads the flags and the command.
func reactOptionsOf(c *cli.Context) (o reactOptions, err error) {
	// Texts with a form of their own are read by readTexts, and contradictions are found by validate.
	o = reactOptions{group: c.String("group"), concurrency: c.Int("concurrency"), timeout: c.Duration("timeout"),
		retries: c.Int("retries"),
		backoff: c.Duration("backoff"), ackWait: c.Duration("ack-wait"), maxDeliver: c.Uint64("max-deliver"),
		drain: c.Duration("drain"),
		breaker: breaker.Config{Failures: c.Int("breaker-failures"), OpenFor: c.Duration("breaker-reset"),
			Off: c.Int("breaker-failures") == 0},
		record: c.Bool("record"), count: c.Uint64("n"), untilEnd: c.Bool("until-end"), command: c.Args().Slice(),
		incident: c.String("incident"), until: c.Uint64("until"),
		passToken: c.Bool("pass-token"), answer: c.String("answer"), reply: event.Type(c.String("reply"))}
	// Without a name the group is for this run alone, and is removed at its end.
	o.own = o.group == ""
	if o.own {
		o.group = newOwnName()
	}
	o.filter, err = filterOf(c)
	if err != nil {
		return o, err
	}
	if err := o.readTexts(c); err != nil {
		return o, err
	}
	return o, o.validate(c)
}

// readTexts reads the flags that have a form of their own.
func (o *reactOptions) readTexts(c *cli.Context) (err error) {
	// Nil lets react distinguish a new group from one that exists.
	if c.IsSet("from") {
		from, err := shell.ParsePosition("from", c.String("from"))
		if err != nil {
			return err
		}
		o.from = &from
	}
	o.where, err = whereOf(c)
	if err != nil {
		return err
	}
	// The platform's variable gives the default of all its handlers.
	if !c.IsSet("timeout") {
		o.timeout, err = router.TimeoutFromEnvironment()
		if err != nil {
			return shell.UsageError{Err: err}
		}
	}
	// The webhook's flags are read in any case; validate refuses them without --webhook.
	o.webhook = sinks.WebhookOptions{URL: c.String("webhook"), Group: o.group, Concurrency: o.concurrency,
		Headers: http.Header{}, AllowLocal: c.Bool("allow-local")}
	if c.IsSet("proxy") {
		// An error of the parser would show the URL, which may have a password.
		if o.webhook.Proxy, err = url.Parse(c.String("proxy")); err != nil {
			return shell.Usagef("--proxy: it is not a URL such as http://host:port")
		}
	}
	// Values may hold commas, so each header has a flag of its own.
	for _, h := range c.StringSlice("header") {
		name, value, ok := strings.Cut(h, "=")
		if !ok { // it is not shown: it may hold a secret
			return shell.Usagef("--header: one of them has no =, use NAME=VALUE")
		}
		o.webhook.Headers.Add(name, value)
	}
	// The secret is in a file, so it is not in the list of processes.
	if file := c.String("secret-file"); file != "" {
		raw, err := os.ReadFile(file)
		if err != nil {
			return shell.Usagef("--secret-file: %w", err)
		}
		o.webhook.Secret, err = sinks.ParseSecret(raw)
		if err != nil {
			return shell.Usagef("--secret-file %s: %w", file, err)
		}
	}
	return nil
}

// maxConcurrency bounds what runs at once.
const maxConcurrency = 1024

// validate refuses options that contradict each other.
func (o *reactOptions) validate(c *cli.Context) error {
	// A duration that is given must be positive; one that is not given takes the default.
	for _, name := range []string{"timeout", "backoff", "breaker-reset", "drain"} {
		if c.IsSet(name) && c.Duration(name) <= 0 {
			return shell.Usagef("--%s %s must be above 0", name, c.Duration(name))
		}
	}
	// Exactly one sink, the flags of that sink, and then the bounds.
	hooked := c.IsSet("webhook")
	if o.incident != "" {
		if err := refuseWithIncident(c); err != nil {
			return err
		}
	}
	webhookFlags := []string{"header", "secret-file", "allow-local", "proxy"}
	// First the sink: a command, or a webhook with its flags. Then the bounds of what is repeated, and what only
	// goes together. Last, without a group that exists, the events have to be chosen.
	switch {
	case c.IsSet("until") && o.incident == "":
		return shell.Usagef("--until needs --incident")
	case hooked && len(o.command) > 0:
		return shell.Usagef("--webhook and the command %q exclude each other", o.command[0])
	case !hooked && len(o.command) == 0:
		return shell.Usagef("react needs a command, such as ringlog react --type TRAINING_COMPLETED -- " +
			"./evaluate.sh, or --webhook URL")
	case hooked && o.passToken:
		return shell.Usagef("--pass-token is for a command, and --webhook runs none")
	case !hooked && slices.ContainsFunc(webhookFlags, c.IsSet):
		return shell.Usagef("--%s need --webhook", strings.Join(webhookFlags, ", --"))
	case o.concurrency < 1 || o.concurrency > maxConcurrency:
		return shell.Usagef("--concurrency %d: use 1 to %d", o.concurrency, maxConcurrency)
	case o.retries < 0 || o.retries > math.MaxInt16:
		return shell.Usagef("--retries %d: use 0 to %d", o.retries, math.MaxInt16)
	case o.breaker.Failures < 0 || o.breaker.Failures > math.MaxInt32:
		return shell.Usagef("--breaker-failures %d: use 1 or more, or 0 for no breaker", o.breaker.Failures)
	case c.IsSet("ack-wait") && o.ackWait <= 0:
		return shell.Usagef("--ack-wait %s must be above 0", o.ackWait)
	case c.IsSet("n") && o.count == 0:
		return shell.Usagef("-n 0: there is nothing to do")
	case c.IsSet("answer") && o.answer != answerAll && o.answer != answerFailures:
		return shell.Usagef("--answer %q: use all or failures", o.answer)
	case o.reply != "" && o.answer != answerAll:
		return shell.Usagef("--reply needs --answer all")
	case isReserved(o.reply):
		return shell.Usagef("--reply %s: only the cluster emits that type, name another one", o.reply)
	case o.filter.Empty() && o.own:
		return shell.Usagef("say for which events: --type TYPE (--type '*' is all), or --group NAME of an existing " +
			"group")
	}
	return nil
}

// isReserved reports whether only the cluster emits a type, in any spelling.
func isReserved(t event.Type) bool {
	found, _ := event.Builtin().Resolve(string(t))
	return event.IsReserved(found.Type)
}

// sink makes what handles each event, the webhook or the command. The caller calls closeSink once no attempt is
// running.
func (o *reactOptions) sink(sh *shell.Shell) (sink sinks.Sink, closeSink func(), err error) {
	// A webhook keeps connections, which closeSink ends.
	if o.webhook.URL != "" || len(o.command) == 0 {
		w, err := sinks.NewWebhook(o.webhook)
		if err != nil {
			return nil, nil, shell.UsageError{Err: err}
		}
		return w, w.Close, nil
	}
	// A command needs no closing: its processes have ended when no attempt is running.
	command, err := sinks.NewCommand(sinks.CommandOptions{Args: o.command, Group: o.group,
		Env: childEnvironment(sh, o.passToken), Output: printLine(sh, o.concurrency)})
	if err != nil {
		return nil, nil, shell.UsageError{Err: err}
	}
	return command, func() {}, nil
}

// childEnvironment is this process's environment with the cluster's endpoints and the files of TLS. The cluster token
// is for the program that was given it: a command gets it, or the name of its file, only with --pass-token.
func childEnvironment(sh *shell.Shell, withToken bool) []string {
	// Both the token and the name of its file would give a command full access.
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == shell.TokenFileVariable || (name == shell.TokenVariable && !withToken)
	})
	env = append(env, "RINGLOG_ENDPOINTS="+strings.Join(sh.Endpoints, ","))
	if withToken && sh.TokenFile != "" {
		env = append(env, shell.TokenFileVariable+"="+sh.TokenFile)
	}
	// Who may read the key's file is decided by its mode.
	return append(env, sh.TLSEnvironment()...)
}
