"""import: take over the rows of the old queues, which are SQLite files."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

from ringlog import Client
from ringlog._cli import DONE, FAILED, NOT_FOUND, USAGE, Exit, connect, emit, say
from ringlog.errors import Conflict, InvalidArgument, TooLarge
from ringlog.event import Json, NewEvent

MAX_ROWS, MAX_BYTES = 500, 1 << 20  # of one request
MAX_ERROR = 64 << 10  # characters of a dead letter's error; the log keeps less
NAMED = 20  # refused rows that are reported one by one

QUEUE = ("events", ("event_id", "event_type", "payload", "source", "created_at"))
LETTERS = ("dead_letter_queue", ("id", "event_type", "event_data", "error", "created_at", "retry_count"))


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "import",
        parents=[common],
        help="take over the rows of an old queue's SQLite file",
        epilog="It may be interrupted and run again: a row that was imported before is skipped.",
    )
    parser.add_argument("what", choices=("queue", "dead-letters"), help="the events of a queue, or its dead letters")
    parser.add_argument("file", help="the SQLite file, which is only read")
    parser.add_argument("--source", help="the name under which its rows are marked (the file's name)")
    parser.add_argument("--dry-run", action="store_true", help="count the rows, and import none")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    table, columns = QUEUE if args.what == "queue" else LETTERS
    source = args.source or os.path.basename(args.file)
    with connect(args) as log:
        kind = _Events if args.what == "queue" else _Letters
        sink = kind(log, source, args.dry_run)
        for batch in _batches(_rows(args.file, table, columns)):
            sink.send(batch)
    sums = {"imported": sink.imported, "known": sink.known, "refused": sink.refused}
    if args.json:
        emit({**sums, "dry_run": True} if args.dry_run else sums)
    else:
        name = "would be imported" if args.dry_run else "imported"
        print(f"{name} {sink.imported}\nknown already {sink.known}\nrefused {sink.refused}", flush=True)
    return FAILED if sink.refused else DONE


def _rows(file: str, table: str, columns: tuple[str, ...]) -> Iterator[Json]:
    """Return the rows of a table in the order of their ids."""
    try:
        import sqlite3
    except ImportError as e:
        raise Exit(FAILED, "import: this Python has no sqlite3; run it with one that has") from e
    if not os.path.isfile(file):
        raise Exit(NOT_FOUND, f"import: there is no file {file}")
    try:
        with closing(sqlite3.connect(f"file:{quote(os.path.abspath(file))}?mode=ro", uri=True, timeout=30)) as db:
            db.text_factory = lambda raw: raw.decode("utf-8", "replace")
            there = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            if missing := [name for name in columns if name not in there]:
                has = f"has no column {missing[0]}" if there else "is not there"
                raise Exit(USAGE, f"import: {file}: the table {table} {has}; is it a file of this kind of queue?")
            for values in db.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY {columns[0]}"):
                yield dict(zip(columns, values, strict=True))
    except sqlite3.DatabaseError as e:
        raise Exit(USAGE, f"import: {file}: {e}; give a SQLite file of the old queue that this user may read") from e


def _batches(rows: Iterator[Json]) -> Iterator[list[Json]]:
    """Return the rows in portions of one request."""
    batch: list[Json] = []
    size = 0
    for row in rows:
        length = sum(len(value) for value in row.values() if isinstance(value, str))
        if batch and (len(batch) == MAX_ROWS or size + length > MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += length
    if batch:
        yield batch


class _Import:
    """An import under way, with what became of its rows."""

    def __init__(self, log: Client, source: str, dry_run: bool) -> None:
        self.log, self.source, self.dry_run = log, source, dry_run
        self.imported = self.known = self.refused = 0

    def send(self, rows: list[Json]) -> None:
        """Import rows."""
        raise NotImplementedError

    def refuse(self, row: Any, error: object) -> None:
        """Report a row that cannot be imported; only the first few are named."""
        if self.refused < NAMED:
            say(f"row {row}: {error}")
        self.refused += 1


class _Events(_Import):
    """Rows of the queue. Each becomes an event that is marked with its row, by which a later run knows it."""

    def __init__(self, log: Client, source: str, dry_run: bool) -> None:
        super().__init__(log, source, dry_run)
        self.run_id = f"import:{source}"
        there = list(log.tail("start", correlation_ids=[self.run_id], until_end=True, on_gap=lambda gap: None))
        self._there = {event.dedup_id for event in there}

    def send(self, rows: list[Json]) -> None:
        events: list[tuple[Any, NewEvent]] = []
        for row in rows:
            mark = f"{self.source}:{row['event_id']}"
            if mark in self._there:
                self.known += 1
                continue
            try:
                events.append((row["event_id"], self._event(row, mark)))
            except (ValueError, TypeError, OverflowError, OSError) as e:
                self.refuse(row["event_id"], e)
        if self.dry_run:
            self.imported += len(events)
        else:
            self._publish(events)

    def _publish(self, events: list[tuple[Any, NewEvent]]) -> None:
        """Append events, without those that are refused."""
        while events:
            try:
                results = self.log.publish_many(event for _, event in events)
            except (InvalidArgument, Conflict) as e:
                number = self._number(e, len(events))
                if number is not None or len(events) == 1:
                    self.refuse(events.pop(number or 0)[0], e)
                elif isinstance(e, TooLarge):
                    # The log takes less in one request.
                    half = len(events) // 2
                    self._publish(events[:half])
                    events = events[half:]
                else:
                    raise
            else:
                self.known += sum(result.duplicate for result in results)
                self.imported += sum(not result.duplicate for result in results)
                return

    @staticmethod
    def _number(error: InvalidArgument | Conflict, events: int) -> int | None:
        """Return which event an error is about."""
        number, bracket, _ = error.field.removeprefix("events[").partition("]")
        return int(number) if bracket and number.isdigit() and int(number) < events else None

    def _event(self, row: Json, mark: str) -> NewEvent:
        payload = json.loads(row["payload"] or "{}")
        if not isinstance(payload, dict):
            raise ValueError("its payload is no JSON object")
        at = row["created_at"]
        if isinstance(at, int | float):
            at = datetime.fromtimestamp(at, timezone.utc).isoformat().replace("+00:00", "Z")
        return {
            "type": str(row["event_type"]),
            "payload": payload,
            "source": row["source"] or self.source,
            "time": at,
            "correlation_id": self.run_id,
            "dedup_id": mark,
        }


class _Letters(_Import):
    """Rows of the dead letters. The cluster knows those that were imported before."""

    def send(self, rows: list[Json]) -> None:
        for row in rows:
            row["error"] = str(row["error"] or "")[:MAX_ERROR]
        body = {"source": self.source, "rows": rows, "dry_run": self.dry_run}
        try:
            answer = self.log.request("POST", "/v1/dlq/import", body)
        except TooLarge as e:
            if len(rows) == 1:
                self.refuse(rows[0]["id"], e)
                return
            half = len(rows) // 2
            self.send(rows[:half])
            self.send(rows[half:])
            return
        for refused in answer["refused"] or []:
            error = refused["error"]
            self.refuse(refused["id"], f"{error['code']}: {error['message']}")
        self.imported += answer["imported"]
        self.known += answer["known"]
