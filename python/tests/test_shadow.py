"""ringlog.compat beside the old queue: shadow, compare and the report, against real nodes and a real SQLite file."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import uuid
from pathlib import Path
from typing import Any
from unittest import mock

from ringlog import Client
from ringlog._cli import main
from ringlog.compat import configure, get_router, reset_router
from ringlog.compat._observations import Observations, find_files, read_lines
from ringlog.compat._old import QueueBus
from ringlog.compat._once import Once
from ringlog.compat._report import KINDS, Options, report
from ringlog.compat._shadow import ShadowRouter
from ringlog.compat.event_router import DataEventType
from ringlog.errors import InvalidArgument
from tests.cluster import ClusterTest, eventually
from tests.old_queue import append, make_queue, rows
from tests.test_faults import PACKAGE

FAST = 0.02  # seconds between polls of the old queue
ALL = Options(grace=0.0, max_delay=60.0)  # of a machine that may be slow


class ShadowTest(ClusterTest):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="ringlog-shadow-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.run_id = uuid.uuid4().hex
        self.log = Client(self.cluster.urls)
        self.addCleanup(self.log.close)
        self.addCleanup(reset_router)

    def router(self, old: Any, mode: str = "shadow", name: str = "", urls: str = "", **options: Any) -> ShadowRouter:
        log = Client(urls or self.cluster.urls, timeout=2.0, delivery_timeout=2.0)
        made = ShadowRouter(
            log, mode=mode, old=old, folder=str(self.folder / "seen"), name=name, source=name or "publisher",
            retry_delays=(0.01, 0.02), **options,
        )  # fmt: skip
        self.addCleanup(log.close)
        self.addCleanup(made.stop)
        if isinstance(old, QueueBus):
            self.addCleanup(old.close)
        return made

    def queue(self, name: str = "old.db") -> QueueBus:
        file = self.folder / name
        return QueueBus(file if file.exists() else make_queue(file), "daemon", FAST)

    def attached(self, router: ShadowRouter) -> None:
        eventually("it reads the log", lambda: all(s.attached.is_set() for s in router._subscriptions))
        # What is published in the first second may have been before the reader: the report leaves it out.
        began = max(line["at"] for file in self.files() for line in read_lines(file) if line["k"] == "sub")
        eventually("its first second has passed", lambda: time.time() > began + 1.05)

    def files(self) -> list[str]:
        return find_files(str(self.folder / "seen"))

    def lines(self, kind: str) -> list[dict[str, Any]]:
        return [line for file in self.files() for line in read_lines(file) if line["k"] == kind]

    def report(self, options: Options = ALL) -> dict[str, Any]:
        return report([str(self.folder / "seen")], options)

    def found(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return the findings of a report with one row: offsets, or rows of the old queue."""
        [row] = result["rows"]
        assert all(row[kind] == len(row["evidence"].get(kind, [])) for kind in KINDS), row
        return {kind: [e.get("offset", e.get("old_id")) for e in events] for kind, events in row["evidence"].items()}


class Report(ShadowTest):
    max_delay = 60.0

    def run_beside(self, n: int, carry: Any) -> dict[str, Any]:
        """Publish n events on one queue file, carry its rows to that of the subscriber, and report."""
        publisher = self.router(self.queue("from.db"))
        subscriber = self.router(self.queue("to.db"), name=f"promoter{self.run_id}")
        got: list[Any] = []
        subscriber.subscribe("TRAINING_COMPLETED", got.append)
        self.attached(subscriber)
        for i in range(n):
            publisher.publish("training_completed", {"i": i, "run": self.run_id, "loss": 0.1}, "trainer")
        sent = carry(rows(self.folder / "from.db"))
        eventually("the old queue is delivered", lambda: len(got) == sent)
        eventually("so is the log", lambda: len(self.lines("log")) == n)
        self.offsets = [line["id"] for line in self.lines("log")]
        # The handler gets the old bus's own rows, and nothing of the log.
        self.assertEqual({type(event).__name__ for event in got}, {"OldRow"})
        return self.report(Options(grace=0.0, max_delay=self.max_delay))

    def carry(self, row: Any) -> int:
        append(self.folder / "to.db", row)
        return 1

    def test_a_clean_run_is_safe(self) -> None:
        result = self.run_beside(40, lambda all: sum(self.carry(row) for row in all))
        self.assertEqual((result["verdict"], result["reasons"]), ("safe", []))
        [row] = result["rows"]
        self.assertEqual((row["both"], row["pending"], row["evidence"]), (40, 0, {}))
        self.assertEqual((row["handler"], row["type"]), (f"promoter{self.run_id}.list.append", "TRAINING_COMPLETED"))

    def test_planted_faults_are_named_and_nothing_else(self) -> None:
        def carry(all: list[Any]) -> int:
            changed = (*all[20][:1], json.dumps({"i": 20, "run": self.run_id, "loss": 0.2}), *all[20][2:])
            order = [*all[:3], *all[4:7], all[7], all[7], *all[8:10], all[11], all[12], all[10], *all[13:20], changed]
            for row in [*order, *all[21:30]]:
                self.carry(row)
            # One that was never published by a daemon that knows of the log.
            self.carry(("training_completed", json.dumps({"i": -1}), "trainer-2", "gpu-3", time.time()))
            # One that is half a second later than any before it.
            sent = len(order) + 9 + 1
            eventually("the others are delivered", lambda: len(self.lines("old")) == sent)
            self.max_delay = max(line["at"] - line["time"] for line in self.lines("old")) + 0.25
            eventually("the last is late", lambda: time.time() > all[30][4] + self.max_delay + 0.25)
            self.carry(all[30])
            return sent + 1

        result = self.run_beside(31, carry)
        o = self.offsets
        self.assertEqual(
            self.found(result),
            {
                "lost": [o[3]],
                "twice": [o[7]],
                "out_of_order": [o[10]],
                "payload_differs": [o[20]],
                "missing": [31],
                "late": [o[30]],
            },
        )
        [row] = result["rows"]
        self.assertEqual(row["both"], 30)
        evidence = row["evidence"]
        self.assertEqual(evidence["payload_differs"][0]["fields"], ["loss"])
        self.assertEqual(evidence["out_of_order"][0]["after_offset"], o[12])
        self.assertGreater(evidence["late"][0]["seconds"], self.max_delay)
        self.assertEqual(row["old_later_seconds"]["max"], evidence["late"][0]["seconds"])
        self.assertEqual(evidence["twice"][0]["published_seconds_later"], 0)
        self.assertLess(row["old_later_seconds"]["p50"], self.max_delay)
        self.assertEqual(result["verdict"], "unsafe")
        self.assertEqual(len(result["reasons"]), 2, result["reasons"])


if __name__ == "__main__":
    unittest.main()
