"""react: run a command for each event of a group or cursor."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from typing import Any

from ringlog import Client
from ringlog._cli import DONE, FAILED, USAGE, Exit, chosen, connect, emit, filters, say
from ringlog._cli.answer import ALL, FAILURES, Answers, Outcome
from ringlog._memory.types import catalogue, reserved
from ringlog.client import Member
from ringlog.delivery import Delivery
from ringlog.errors import OutcomeUnknown, RinglogError, Unavailable
from ringlog.event import Event

GRACE = 2.0  # seconds between SIGTERM and SIGKILL
PROGRESS = 5.0  # seconds after which a group is shown that the command still runs
LAST = 2048  # bytes of what a command prints on stderr that explain its failure
SECRETS = ("RINGLOG_TOKEN_FILE", "RINGRIFT_CLUSTER_AUTH_TOKEN")


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "react",
        parents=[common],
        help="run a command for each event",
        epilog="COMMAND gets the payload on its standard input and the rest in RINGLOG_OFFSET, _TYPE, _VALUE, "
        "_SOURCE, _KEY, _CORRELATION_ID, _CAUSATION_ID, _TIME, _APPENDED_AT, _HASH, _DELIVERY, _GROUP and "
        "_IDEMPOTENCY_KEY, and in TRACEPARENT; exit code 0 is success. Processes with one --group share its events; a "
        "--cursor has them one after the other.",
    )
    filters(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("-g", "--group", help="share the events of this group")
    which.add_argument("--cursor", help="handle the events of this cursor in the order of the log")
    parser.add_argument("--from", dest="from_", default="start", help="where a new group or cursor begins (start)")
    parser.add_argument("--concurrency", type=int, default=1, help="events of the group that are handled at once (1)")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds that an attempt may take (30)")
    parser.add_argument("--retries", type=int, default=3, help="attempts after the first (3)")
    parser.add_argument("--backoff", type=float, default=1.0, help="seconds before the first retry, then doubled (1)")
    parser.add_argument("--max-deliver", type=int, help="of a new group: failed deliveries before a dead letter")
    parser.add_argument("--answer", choices=(ALL, FAILURES), help="publish the outcome as the reply for ringlog call")
    parser.add_argument("--reply", default="", metavar="TYPE", help="with --answer all: the reply of a success")
    parser.add_argument("--until-end", action="store_true", help="stop once all that is in the log now is handled")
    parser.add_argument("-n", type=int, default=0, metavar="COUNT", help="stop after this many events")
    parser.add_argument("--pass-token", action="store_true", help="give COMMAND the cluster token")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="after --")
    parser.set_defaults(run=run)


class Stopped(Exception):
    """An attempt was ended because the program ends."""


class Reaction:
    """Runs the command, and counts."""

    def __init__(self, args: argparse.Namespace, log: Client, answers: Answers | None) -> None:
        self.args, self.log, self.answers = args, log, answers
        self.max_deliver = 0  # of the group: this delivery is the last
        self.stop, self.ended = threading.Event(), threading.Event()  # ended: all threads have
        self._working = args.concurrency
        self.handled = self.failed = self.taken = 0
        self.error: BaseException | None = None  # what has ended a thread
        self._lock = threading.Lock()
        hidden = () if args.pass_token else SECRETS
        self._environment = {name: value for name, value in os.environ.items() if name not in hidden}
        self._environment["RINGLOG_ENDPOINTS"] = ",".join(e.url for e in log._config.endpoints)
        for name in ("tls_ca", "tls_cert", "tls_key"):
            if file := getattr(args, name):
                self._environment["RINGLOG_" + name.upper()] = os.path.abspath(file)
        if args.pass_token and args.token_file:
            self._environment["RINGLOG_TOKEN_FILE"] = os.path.abspath(args.token_file)

    def take(self) -> bool:
        """Report whether another event is to be handled."""
        with self._lock:
            if self.stop.is_set() or (self.args.n and self.taken >= self.args.n):
                return False
            self.taken += 1
            return True

    def attempt(self, event: Event) -> str:
        """Handle an event, with retries, and return the last error, "" for success.

        The outcome is answered before the caller settles the event, if it is final. Raises Stopped, and what publishing
        the answer raises.
        """
        outcome = Outcome("", 0, 0.0)
        for number in range(self.args.retries + 1):
            if number and self.stop.wait(min(self.args.backoff * 2 ** (number - 1), 300.0)):
                raise Stopped
            if number and isinstance(event, Delivery) and not event.progress():
                raise Stopped  # it is another member's by now
            began = time.monotonic()
            error = self._run(event)
            outcome = Outcome(error, number + 1, time.monotonic() - began)
            self._report(event, outcome)
            if not error:
                break
        if self.answers is not None and self._is_final(event, outcome):
            self.answers.publish(event, outcome)
        with self._lock:
            self.handled += not outcome.error
            self.failed += bool(outcome.error)
        return outcome.error

    def _is_final(self, event: Event, outcome: Outcome) -> bool:
        """Report whether an event is redelivered to nobody after an outcome."""
        if not outcome.error or not isinstance(event, Delivery):
            return True
        return 0 < self.max_deliver <= event.delivery

    def _report(self, event: Event, outcome: Outcome) -> None:
        error, attempt, seconds = outcome
        if self.args.json:
            line = {"offset": event.offset, "type": event.type, "attempt": attempt, "error": error}
            say(json.dumps({**line, "duration_ms": round(seconds * 1000)}))
        else:
            say(f"{event.offset} {event.type}: attempt {attempt}: {error or 'handled'} ({seconds:.1f} s)")

    def _run(self, event: Event) -> str:
        """Run the command once and return its error."""
        process = subprocess.Popen(
            self.args.command,
            env={**self._environment, **self._variables(event)},
            stdin=subprocess.PIPE,
            stdout=2,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        until, due = time.monotonic() + self.args.limit, time.monotonic() + PROGRESS
        body: bytes | None = json.dumps(event.payload).encode()
        while True:
            try:
                _, printed = process.communicate(body, timeout=0.2)
                break
            except subprocess.TimeoutExpired:
                body = None
            if self.stop.is_set():
                self._end(process)
                raise Stopped
            if time.monotonic() > until:
                self._end(process)
                return f"timed out after {self.args.limit:g} s"
            if time.monotonic() > due and isinstance(event, Delivery):
                event.progress()
                due = time.monotonic() + PROGRESS
        os.write(2, printed)
        if process.returncode == 0:
            return ""
        code = process.returncode
        cause = f"exit code {code}" if code > 0 else f"ended by signal {-code}"
        text = printed[-LAST:].decode("utf-8", "replace").strip()
        return f"{cause}: {text}" if text else cause

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        """End a command and its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=GRACE)
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _variables(self, event: Event) -> dict[str, str]:
        raw = event.raw
        names = ("type", "value", "source", "key", "correlation_id", "causation_id", "time", "appended_at", "hash")
        name = self.args.group or self.args.cursor
        return {
            "RINGLOG_OFFSET": str(event.offset),
            **{"RINGLOG_" + field.upper(): str(raw.get(field) or "") for field in names},
            "RINGLOG_DELIVERY": str(raw.get("delivery", 1)),
            "RINGLOG_GROUP": name,
            "TRACEPARENT": event.traceparent,
            "RINGLOG_REACTOR": str(os.getpid()),
            "RINGLOG_IDEMPOTENCY_KEY": f"{self.log._operations._calls.cluster_id}/{name}/{event.offset}",
        }

    def work(self, member: Member, end: int | None) -> None:
        """Handle deliveries of a group until it is time to stop."""
        try:
            while self.take():
                delivery = None
                while delivery is None and not self.stop.is_set():
                    delivery = member.next(0.5)
                    if delivery is None and end is not None and self._reached(end):
                        self.stop.set()
                if delivery is None:
                    break
                try:
                    error = self.attempt(delivery)
                except Stopped:
                    delivery.release()
                except RinglogError as e:
                    # Somebody waits for the answer: the event is redelivered, which does not count as a delivery.
                    delivery.release()
                    if not isinstance(e, Unavailable | OutcomeUnknown):
                        raise
                    with self._lock:
                        self.failed += 1
                    say(f"{delivery.offset} {delivery.type}: redelivered, since it could not be answered: {e}")
                else:
                    _ = delivery.nack(self.args.backoff, error, self.args.command[0]) if error else delivery.ack()
        except BaseException as e:
            self.error = e
            self.stop.set()
        finally:
            with self._lock:
                self._working -= 1
                if not self._working:
                    self.ended.set()

    def _reached(self, end: int) -> bool:
        return bool(self.log.get_cursor(self.args.group)["committed"] >= end)


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    if shutil.which(args.command[0]) is None:
        raise Exit(USAGE, f"react: the command {args.command[0]!r} cannot be run; give one that is on the PATH")
    if args.concurrency < 1 or args.retries < 0 or args.limit <= 0 or args.backoff < 0:
        raise Exit(USAGE, "react: --concurrency, --retries, --limit and --backoff are numbers above 0")
    if args.reply and args.answer != ALL:
        raise Exit(USAGE, "react: --reply needs --answer all")
    if reserved(catalogue().resolve(args.reply).name):
        raise Exit(USAGE, f"react: --reply {args.reply}: only the cluster emits that type, name another one")
    with connect(args) as log:
        reaction = Reaction(args, log, Answers(args, log) if args.answer else None)
        if args.group:
            _react_group(args, log, reaction)
        else:
            _react_cursor(args, log, reaction)
    if reaction.error is not None:
        raise reaction.error
    if args.json:
        emit({"handled": reaction.handled, "failed": reaction.failed})
    else:
        print(f"handled {reaction.handled}\nfailed  {reaction.failed}", flush=True)
    limited = args.n or args.until_end
    return FAILED if limited and reaction.failed else DONE


def _react_group(args: argparse.Namespace, log: Client, reaction: Reaction) -> None:
    end = None
    if args.until_end:
        end = max((event.offset for event in log.tail(-1, until_end=True)), default=0)
    options = {"from_": args.from_, "prefetch": args.concurrency, "max_deliver": args.max_deliver, **chosen(args)}
    with log.group(args.group, **options) as member:
        reaction.max_deliver = log.get_cursor(args.group)["group"]["max_deliver"]
        threads = [threading.Thread(target=reaction.work, args=(member, end)) for _ in range(args.concurrency)]
        for thread in threads:
            thread.start()
        try:
            # Not join: a signal that interrupts it makes Python take the thread for ended.
            while not reaction.ended.wait(1.0):
                pass
        except KeyboardInterrupt:
            say("stopping: commands that run are ended, and their events released")
        finally:
            reaction.stop.set()
            for thread in threads:
                thread.join()


def _react_cursor(args: argparse.Namespace, log: Client, reaction: Reaction) -> None:
    options = {"from_": args.from_, "until_end": args.until_end, **chosen(args)}
    with log.cursor(args.cursor, **options) as cursor, contextlib.suppress(KeyboardInterrupt):
        for event in cursor:
            if not reaction.take():
                break
            error = reaction.attempt(event)
            if error:
                cursor.dead_letter(error, attempts=args.retries + 1, handler=args.command[0])
            else:
                cursor.commit()
            if args.n and reaction.taken >= args.n:
                break
