"""tail: print events, and follow the log."""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

from ringlog._cli import DONE, chosen, connect, emit, filters
from ringlog.event import Event


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Add the verb."""
    parser = verbs.add_parser("tail", parents=[common], help="print events, and follow the log")
    filters(parser)
    parser.add_argument("--from", dest="from_", help="start, end, an offset, -N, @TIME or an age such as 36h")
    parser.add_argument("--cursor", help="read through this cursor, which is committed after each event")
    parser.add_argument("--until-end", action="store_true", help="stop at the end of the log")
    parser.add_argument("-n", type=int, default=0, metavar="COUNT", help="stop after this many events")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    options: dict[str, Any] = {"until_end": args.until_end, **chosen(args)}
    with connect(args) as log, contextlib.suppress(KeyboardInterrupt):
        if not args.cursor:
            for event in log.tail(args.from_ or "end", limit=args.n, **options):
                show(args, event)
            return DONE
        with log.cursor(args.cursor, from_=args.from_ or "start", **options) as cursor:
            for shown, event in enumerate(cursor, 1):
                show(args, event)
                cursor.commit()
                if shown == args.n:
                    break
    return DONE


def show(args: argparse.Namespace, event: Event) -> None:
    """Print an event."""
    if args.json:
        emit(event.raw)
        return
    import json

    about = "".join(f" {name}={event.raw[name]}" for name in ("key", "source", "correlation_id") if event.raw.get(name))
    payload = json.dumps(event.payload, ensure_ascii=False)
    print(f"{event.offset} {event.raw['appended_at']} {event.type}{about} {payload}", flush=True)
