"""spool: show what waits for the cluster, and deliver it."""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

from ringlog._cli import DONE, FAILED, NOT_FOUND, TIMED_OUT, USAGE, Exit, connect, emit, say
from ringlog._core.spool import FileState, inspect


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "spool",
        parents=[common],
        help="show what waits in a spool, and deliver it with --drain",
        epilog="Files of a process that runs are in use, and that process delivers them.",
    )
    parser.add_argument("folder", nargs="?", help="default RINGLOG_SPOOL")
    parser.add_argument("--drain", action="store_true", help="deliver what ended processes have left")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    folder = args.folder or os.environ.get("RINGLOG_SPOOL", "")
    if not folder:
        raise Exit(USAGE, "spool: no folder is named; give one, or set RINGLOG_SPOOL")
    if not os.path.isdir(folder):
        raise Exit(NOT_FOUND, f"spool: there is no folder {folder}; a client that is given it makes it")
    drained = True
    if args.drain:
        with connect(args, spool=folder) as log:
            drained = log.drain(args.timeout)
            failure = log._operations._drainer.failure if log._operations._drainer is not None else None
        if not drained:
            say(f"spool: not all was delivered in {args.timeout:g} s: {failure or 'it takes longer; run it again'}")
    states = inspect(folder)
    if args.json:
        for state in states:
            emit(state.__dict__)
    else:
        _print(states)
    if any(state.problem for state in states):
        return FAILED
    return DONE if drained else TIMED_OUT


def _print(states: list[FileState]) -> None:
    """Print a line for each file, and the sums."""
    for state in states:
        age = f"{max(time.time() - state.oldest, 0):.0f} s old" if state.oldest else "of unknown age"
        notes = [age]
        if state.in_use and state.kind == "spool":
            notes.append("in use by a process")
        if state.damage:
            notes.append("damaged at bytes " + ", ".join(f"{begin} to {end}" for begin, end in state.damage))
        if state.problem:
            notes = [f"cannot be read: {state.problem}"]
        held = f"{_count(state.records, 'record')}, {_count(state.events, 'event')}, {state.bytes} bytes"
        print(f"{state.path}: {held}, {'; '.join(notes)}")
    waiting = [state for state in states if state.kind == "spool"]
    rejected = sum(state.events for state in states if state.kind == "rejected")
    print(
        f"waiting  {_count(sum(state.events for state in waiting), 'event')} in {_count(len(waiting), 'file')}, "
        f"{sum(state.bytes for state in waiting)} bytes"
    )
    print(f"rejected {_count(rejected, 'event')}")
    print(f"damaged  {_count(sum(bool(state.damage) for state in states), 'file')}", flush=True)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
