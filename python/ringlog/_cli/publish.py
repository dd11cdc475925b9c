"""publish: append an event, or many from the standard input."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from ringlog._cli import DONE, USAGE, Exit, connect, emit, exit_code, say
from ringlog._core.checks import unknown_name
from ringlog.errors import RinglogError
from ringlog.event import EventFields, Result

WAITING = 2000  # events that are on their way at once
FIELDS = {"type", "payload", *EventFields.__annotations__}
# What tail prints as well.
STORED = {"offset", "value", "hash", "appended_at", "term", "original_type", "foreign", "target", "redrive", "delivery"}


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "publish",
        parents=[common],
        help="append an event, or many with --stdin",
        epilog="With --spool, or RINGLOG_SPOOL, what the cluster does not take is kept and delivered later.",
    )
    parser.add_argument("type", nargs="?", help="a name such as TRAINING_COMPLETED")
    parser.add_argument("-p", "--payload", default="{}", help="a JSON object, @FILE, or - for the standard input")
    parser.add_argument("--stdin", action="store_true", help="read events, a JSON object a line")
    for name in ("source", "key", "correlation-id", "causation-id", "dedup-id"):
        parser.add_argument("--" + name, help="see docs/http.md")
    parser.add_argument("--no-dedup", action="store_true", help="append it even if it is a duplicate")
    parser.add_argument("--spool", help="a folder for events that the cluster does not take")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    if args.stdin == bool(args.type):
        raise Exit(USAGE, "publish: give a TYPE, or --stdin")
    if args.stdin:
        return _publish_lines(args)
    names = ("source", "key", "correlation_id", "causation_id", "dedup_id")
    fields: dict[str, Any] = {name: value for name in names if (value := getattr(args, name)) is not None}
    if args.no_dedup:
        fields["dedup"] = False
    payload = _read_payload(args.payload)
    with connect(args, spool=args.spool) as log:
        _print(args, log.publish(args.type, payload, **fields))
    return DONE


def _read_payload(text: str) -> Any:
    """Return the payload that is given as JSON, as a file, or on the standard input."""
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
        return json.loads(text)
    except OSError as e:
        raise Exit(USAGE, f"publish: --payload: {e}") from e
    except ValueError as e:
        raise Exit(USAGE, f"publish: --payload is not JSON: {e}") from e


def _print(args: argparse.Namespace, result: Result) -> None:
    if args.json:
        emit({name: getattr(result, name) for name in ("offset", "duplicate", "hash", "appended_at", "spooled")})
    elif result.spooled:
        print("spooled", flush=True)
    else:
        print(f"{result.offset}{' duplicate' if result.duplicate else ''}", flush=True)


def _publish_lines(args: argparse.Namespace) -> int:
    """Publish the events of the standard input. What is refused is named, and does not stop the rest."""
    code = DONE
    waiting: list[tuple[int, Future[Result]]] = []

    def settle(keep: int) -> None:
        nonlocal code
        while len(waiting) > keep:
            number, future = waiting.pop(0)
            try:
                _print(args, future.result())
            except RinglogError as e:
                say(f"line {number}: {e}")
                code = code or exit_code(e)

    log = connect(args, spool=args.spool)
    try:
        for number, event in _lines():
            if isinstance(event, Exit):
                say(str(event))
                code = code or event.code
                continue
            known = {name: value for name, value in event.items() if name in EventFields.__annotations__}
            try:
                waiting.append((number, log.publish_soon(event["type"], event.get("payload"), **known)))
            except RinglogError as e:
                say(f"line {number}: {e}")
                code = code or exit_code(e)
            settle(WAITING)
        settle(0)
    finally:
        try:
            log.close()
        except RinglogError:
            settle(0)  # which has reported it
    return code


def _lines() -> Iterator[tuple[int, Any]]:
    """Return the events of the lines with their numbers, or what is wrong with a line."""
    for number, line in enumerate(sys.stdin, 1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
            if not isinstance(event, dict) or not isinstance(event.get("type"), str):
                raise ValueError('it is no object with a "type"')
            if unknown := sorted(event.keys() - FIELDS - STORED):
                raise ValueError(unknown_name("an event", unknown[0], FIELDS))
        except ValueError as e:
            yield number, Exit(USAGE, f"line {number}: {e}; write an event a line, as tail --json prints them")
        else:
            yield number, event
