"""shadow report: whether a daemon may move from the old bus to the log."""

from __future__ import annotations

import argparse
import os
import re
import time
from datetime import datetime, timezone
from typing import Any

from ringlog._cli import DONE, FAILED, NOT_FOUND, USAGE, Exit, emit
from ringlog.event import Json

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Add the verb."""
    parser = verbs.add_parser("shadow", help="compare what the old bus and the log have delivered")
    actions = parser.add_subparsers(dest="action", required=True, metavar="report")
    report = actions.add_parser(
        "report",
        help="what each handler got from both buses, and whether it is safe to switch",
        epilog="Exit code 0 if it is safe, else 1. It reads the observations alone, and needs no cluster.",
    )
    report.add_argument("folder", nargs="*", help="folders of observations (RINGLOG_SHADOW, or that of this user)")
    report.add_argument("--since", type=_since, default=0.0, help="an age such as 2h, or a time in RFC 3339")
    report.add_argument("--grace", type=_seconds, default=10.0, help="seconds in which the other bus delivers (10)")
    report.add_argument("--max-delay", type=_seconds, default=5.0, help="seconds that one bus may be later (5)")
    report.add_argument("--min-events", type=_count, default=1, help="events that each handler must have had (1)")
    report.add_argument("--evidence", type=_count, default=20, help="events to name for each finding (20)")
    report.add_argument("-o", "--output", choices=("text", "json"), default="text")
    report.add_argument("--json", action="store_const", const="json", dest="output", help="print JSON")
    report.set_defaults(run=run)


def _since(text: str) -> float:
    if age := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text):
        return time.time() - float(age[1]) * UNITS[age[2]]
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither an age such as 2h nor a time such as 2026-01-05T10:00:00Z"
        ) from None
    return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return seconds


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of 0 or more")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    from ringlog.compat._observations import default_folder, find_files
    from ringlog.compat._report import Options, report

    folders = [os.path.abspath(folder) for folder in args.folder] or [default_folder()]
    for folder in dict.fromkeys(folders):
        remedy = "run a daemon with RINGLOG_MODE=shadow, or name the folder that its RINGLOG_SHADOW names"
        if not os.path.isdir(folder):
            raise Exit(NOT_FOUND, f"shadow report: there is no folder {folder}; {remedy}")
        if not os.access(folder, os.R_OK | os.X_OK):
            raise Exit(USAGE, f"shadow report: {folder} cannot be read; run it as the user of the daemon")
        if not find_files(folder):
            raise Exit(NOT_FOUND, f"shadow report: {folder} has no observations; {remedy}")
    options = Options(args.since, args.grace, args.max_delay, args.min_events, args.evidence)
    found = report(dict.fromkeys(folders), options)
    if args.output == "json":
        emit(found)
    else:
        _print(found)
    return DONE if found["verdict"] == "safe" else FAILED


def _print(found: Json) -> None:
    from ringlog.compat._report import KINDS

    for row in found["rows"]:
        log, old = row["log_later_seconds"], row["old_later_seconds"]
        print(f"{row['handler']}  {row['type']}: {row['verdict']}")
        print(f"  delivered by both {row['both']}, may still come {row['pending']}")
        if row["both"]:
            print(f"  log later by p50 {log['p50']:.3f} s, max {log['max']:.3f} s; old later by max {old['max']:.3f} s")
        for kind, text in KINDS.items():
            if row[kind]:
                print(f"  {text}: {row[kind]}")
                for event in row["evidence"].get(kind, []):
                    print("    " + ", ".join(f"{name} {value}" for name, value in event.items()))
    for event in found["unsent_events"]:
        print(f"not sent to the log: {event['type']}, time {event['time']}: {event['error']}")
    for reason in found["reasons"]:
        print(f"because {reason}")
    gained, spared = (sum(row[name] for row in found["rows"]) for name in ("lost", "twice"))
    print(f"with the log alone: deliveries more {gained}, fewer {spared}")
    print(f"verdict {found['verdict']}", flush=True)
