"""ringlog.compat beside the old queue: shadow, compare and the report, against real nodes and a real SQLite file."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import uuid
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest import mock

from ringlog import Client
from ringlog._cli import main
from ringlog.compat import configure, get_router, reset_router
from ringlog.compat._observations import Observations, find_files, read_lines
from ringlog.compat._old import QueueBus
from ringlog.compat._once import Bounded, Once
from ringlog.compat._report import KINDS, Comparison, Delivery, Options, report
from ringlog.compat._shadow import ShadowRouter
from ringlog.compat.cross_process_events import get_cross_process_queue
from ringlog.errors import InvalidArgument
from tests.cluster import ClusterTest, eventually
from tests.old_queue import append, forget_acks, make_queue, rows
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

    def router(
        self, old: Any, mode: str = "shadow", name: str = "", urls: str = "", delivery_timeout: float = 2.0
    ) -> ShadowRouter:
        log = Client(urls or self.cluster.urls, timeout=30.0, delivery_timeout=delivery_timeout)
        made = ShadowRouter(
            log, mode=mode, old=old, folder=str(self.folder / "seen"), name=name, source=name or "publisher",
            retry_delays=(0.01, 0.02),
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

    def carry(self, *found: Any) -> int:
        return append(self.folder / "to.db", *found)

    def test_a_clean_run_is_safe(self) -> None:
        result = self.run_beside(40, lambda found: self.carry(*found))
        self.assertEqual((result["verdict"], result["reasons"]), ("safe", []))
        [row] = result["rows"]
        self.assertEqual((row["both"], row["pending"], row["evidence"]), (40, 0, {}))
        self.assertEqual(
            (row["handler"], row["type"]),
            (f"promoter{self.run_id}.list.append.training_completed", "TRAINING_COMPLETED"),
        )

    def test_planted_faults_are_named_and_nothing_else(self) -> None:
        def carry(sent: list[Any]) -> int:
            changed = (*sent[20][:1], json.dumps({"i": 20, "run": self.run_id, "loss": 0.2}), *sent[20][2:])
            order = [
                *sent[:3],
                *sent[4:7],
                sent[7],
                sent[7],
                *sent[8:10],
                sent[11],
                sent[12],
                sent[10],
                *sent[13:20],
                changed,
            ]
            # One that was never published by a daemon that knows of the log.
            foreign = ("training_completed", json.dumps({"i": -1}), "trainer-2", "gpu-3", time.time())
            count = self.carry(*order, *sent[21:30], foreign)
            # One that is half a second later than any before it.
            eventually("the others are delivered", lambda: len(self.lines("old")) == count)
            self.max_delay = max(line["at"] - line["time"] for line in self.lines("old")) + 0.25
            eventually("the log is delivered", lambda: len(self.lines("log")) == 31)
            until = self.lines("log")[-1]["at"] + self.max_delay + 0.5
            eventually("the last is late", lambda: time.time() > until)
            return count + self.carry(sent[30])

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


class OldModule:
    """A bus in memory with the names of the old event_router: coroutines, and handlers that are called in order."""

    def __init__(self) -> None:
        self.handlers: list[tuple[Any, Any]] = []

    async def publish(self, event_type: Any, payload: Any = None, source: str = "") -> str:
        for wanted, handler in self.handlers:
            if wanted == event_type:
                event = {"event_type": event_type, "payload": payload, "source": source, "timestamp": time.time()}
                result = handler(event)
                if asyncio.iscoroutine(result):
                    await result
        return "published"

    def subscribe(self, event_type: Any, handler: Any) -> None:
        self.handlers.append((event_type, handler))


class Harmless(ShadowTest):
    def test_the_old_bus_goes_on_without_the_log(self) -> None:
        """Neither a log that is away nor what it would refuse holds the old bus up, and all of it is noted."""
        bus = OldModule()
        for module in ("_router", "_shadow"):
            ends = mock.patch(f"ringlog.compat.{module}.EXIT_TIMEOUT", 0.5)
            ends.start()
            self.addCleanup(ends.stop)
        router = self.router(bus, name="away", urls="http://127.0.0.1:1", delivery_timeout=0.5)
        got: list[Any] = []

        async def handle(event: Any) -> None:
            got.append(event["payload"])

        began = time.monotonic()
        router.subscribe("HOST_ONLINE", handle, critical=True)
        payloads: list[Any] = [{"i": 1}, {"x": float("nan")}, {"x": object()}, {"x": "y" * (2 << 20)}, None]

        async def publish() -> list[Any]:
            return [await router.publish("HOST_ONLINE", payload, "test") for payload in payloads]

        self.assertEqual(asyncio.run(publish()), ["published"] * 5)
        self.assertEqual(router.publish("HOST_ONLINE", {"i": 2}).result, "published")  # without a loop
        self.assertLess(time.monotonic() - began, 10.0)  # a call of the cluster would take 30
        # As before: the very objects that were published.
        self.assertTrue(all(a is b for a, b in zip(got, payloads, strict=False)))
        self.assertEqual(len(got), 6)
        eventually("what the log does not have is noted", lambda: len(self.lines("unsent")) == 6)
        result = self.report()
        self.assertEqual((result["verdict"], result["unsent"]), ("unsafe", 6))
        self.assertIn("it has not read the log yet", result["reasons"][0])

    def test_what_the_old_bus_raises_is_raised_and_not_in_the_log(self) -> None:
        bus = OldModule()
        router = self.router(bus)

        def fail(event: Any) -> None:
            raise KeyError("config_key")

        router.subscribe("HOST_ONLINE", fail)
        with self.assertRaises(KeyError):
            router.publish("HOST_ONLINE", {"run": self.run_id})
        router.publish("HOST_OFFLINE", {"run": self.run_id})
        router._outbox.drain(10)
        router.log.flush()
        tail = self.log.tail("start", types=["HOST_*"], until_end=True)
        self.assertEqual([e.type for e in tail if e.payload.get("run") == self.run_id], ["HOST_OFFLINE"])

    def test_a_disk_that_refuses_stops_no_handler(self) -> None:
        (self.folder / "seen").write_text("no folder")
        bus = OldModule()
        router = self.router(bus)
        got: list[Any] = []
        router.subscribe("HOST_ONLINE", got.append)
        router.publish("HOST_ONLINE", {"i": 1})
        self.assertEqual(len(got), 1)

    def test_events_of_a_bus_in_memory_are_found_although_it_gives_them_no_time(self) -> None:
        class Slow(OldModule):
            """Gives its handlers an event later, without a time, and loses the first of those that are equal."""

            async def publish(self, event_type: Any, payload: Any = None, source: str = "") -> str:
                async def deliver() -> None:
                    await asyncio.sleep(0.2)
                    await self.handlers[0][1]({"type": event_type, "payload": payload, "source": source})

                self.tasks = [*getattr(self, "tasks", []), asyncio.create_task(deliver())]
                if len(self.tasks) == 1:
                    self.tasks.pop().cancel()
                    self.tasks.append(asyncio.create_task(asyncio.sleep(0)))
                return "published"

        router = self.router(bus := Slow())

        async def handle(event: Any) -> None:
            event["payload"]["changed"] = True  # after it was published

        router.subscribe("HOST_ONLINE", handle)
        self.attached(router)

        async def publish() -> None:
            for _ in range(4):
                await router.publish("HOST_ONLINE", {"run": self.run_id}, dedup=False)
            await asyncio.gather(*bus.tasks)

        asyncio.run(publish())
        eventually("the log is read", lambda: len(self.lines("log")) == 4)
        result = self.report()
        self.assertEqual(self.found(result), {"lost": [min(line["id"] for line in self.lines("log"))]})
        self.assertEqual((result["verdict"], result["rows"][0]["both"]), ("safe", 3), result)

    def test_the_observations_are_bounded(self) -> None:
        kept = Observations(str(self.folder / "seen"), "busy", "shadow", max_bytes=1 << 16)
        self.addCleanup(kept.close)
        kept.note({"k": "sub", "s": "h", "h": "h", "t": "*"})
        for i in range(2000):
            kept.note({"k": "old", "s": "h", "type": "X", "time": 1.0, "content": "c", "source": "", "id": i})
        sizes = [os.path.getsize(file) for file in self.files()]
        self.assertLessEqual(sum(sizes), 1 << 16)
        self.assertGreater(len(sizes), 4)
        self.assertEqual(max(line["id"] for line in self.lines("old")), 1999)
        self.assertTrue(all(next(read_lines(file))["k"] == "start" for file in self.files()))

    def test_the_old_module_by_its_name(self) -> None:
        old = self.folder / "app" / "coordination" / "event_router.py"
        old.parent.mkdir(parents=True)
        old.write_text("""
import enum
class DataEventType(enum.Enum):
    HOST_ONLINE = "host_online"
class RouterEvent:
    def __init__(self, event_type, payload, source):
        self.event_type, self.payload, self.source = event_type, payload, source
handlers = []
def subscribe(event_type, handler):
    handlers.append((event_type, handler))
async def publish(event_type, payload=None, source=""):
    for wanted, handler in handlers:
        if wanted is event_type:
            await handler(RouterEvent(event_type, payload, source))
    return "routed"
""")
        daemon = """
import asyncio
from ringlog.compat.event_router import DataEventType, emit_host_online, publish, subscribe
async def on_host(event):
    print(type(event).__module__, event.event_type, event.payload["host"])
async def main():
    subscribe(DataEventType.HOST_ONLINE, on_host)
    print(await publish("HOST_ONLINE", {"host": "gpu-7"}, source="monitor"))
    await emit_host_online(host="gpu-8")
asyncio.run(main())
"""
        done = subprocess.run(
            [sys.executable, "-c", daemon],
            env={
                "PYTHONPATH": f"{PACKAGE}:{self.folder}", "RINGLOG_ENDPOINTS": self.cluster.urls,
                "RINGLOG_MODE": "shadow", "RINGLOG_OLD_BUS": "app.coordination.event_router",
                "RINGLOG_SHADOW": str(self.folder / "seen"), "RINGLOG_SUBSCRIBER": "monitor",
            },
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        self.assertEqual((done.returncode, [e for e in done.stderr.splitlines() if "warns about" not in e]), (0, []))
        module = "app.coordination.event_router DataEventType.HOST_ONLINE"
        self.assertEqual(done.stdout.splitlines(), [f"{module} gpu-7", "routed", f"{module} gpu-8"])
        tail = self.log.tail("start", types=["HOST_ONLINE"], until_end=True)
        hosts = [event.payload["host"] for event in tail if "host" in event.payload]
        self.assertEqual(hosts, ["gpu-7", "gpu-8"])  # the end of the process waits for the log

    def test_a_child_has_observations_of_its_own(self) -> None:
        router = self.router(bus := OldModule(), name=f"fork{self.run_id}")
        router.subscribe("HOST_ONLINE", lambda event: None)
        asyncio.run(bus.publish("HOST_ONLINE", {"i": 1}))
        with router.observations._lock:  # as another thread may
            child = os.fork()
            if not child:
                asyncio.run(bus.publish("HOST_ONLINE", {"i": 2}))
                os._exit(0)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        asyncio.run(bus.publish("HOST_ONLINE", {"i": 3}))
        by_file = [[line["payload"] for line in read_lines(f) if line["k"] == "old"] for f in self.files()]
        self.assertEqual(sorted(by_file), [['{"i": 1}', '{"i": 3}'], ['{"i": 2}']])

    def test_a_killed_daemon_leaves_its_observations(self) -> None:
        file = make_queue(self.folder / "old.db")
        daemon = """
import signal, sys
from ringlog.compat.event_router import get_router, publish, subscribe
got = []
subscribe("HOST_ONLINE", lambda event: print("got", event.payload["i"], flush=True))
print("ready", get_router()._subscriptions[0].attached.wait(60), flush=True)
signal.pause()
"""
        env = {
            **os.environ, "PYTHONPATH": str(PACKAGE), "RINGLOG_ENDPOINTS": self.cluster.urls, "RINGLOG_MODE": "shadow",
            "RINGLOG_OLD_BUS": str(file), "RINGLOG_SHADOW": str(self.folder / "seen"),
            "RINGLOG_SUBSCRIBER": f"killed{self.run_id}",
        }  # fmt: skip
        publisher = self.router(self.queue())
        for i in range(2):
            process = subprocess.Popen([sys.executable, "-c", daemon], env=env, stdout=subprocess.PIPE, text=True)
            self.addCleanup(process.stdout.close)  # type: ignore[union-attr]
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            assert process.stdout is not None
            while process.stdout.readline().strip() != "ready True":
                pass
            began = time.time()
            eventually("its first second has passed", lambda began=began: time.time() > began + 1.05)
            publisher.publish("HOST_ONLINE", {"i": i, "run": self.run_id})
            eventually("both have delivered it", lambda n=i + 1: len({e["id"] for e in self.lines("log")}) == n)
            eventually("both", lambda n=i + 1: any(f'"i": {n - 1}' in e["payload"] for e in self.lines("old")))
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        result = self.report()
        # The old queue gives a process that has restarted the rows of the last 24 hours again.
        self.assertEqual((result["rows"][0]["both"], result["rows"][0]["lost"], result["rows"][0]["twice"]), (2, 0, 1))
        self.assertEqual((result["verdict"], result["processes"]), ("safe", 2), result)


class Killed(ShadowTest):
    def test_a_killed_leader_is_noticed_by_neither_handlers_nor_the_report(self) -> None:
        router = self.router(OldModule(), name=f"leader{self.run_id}", delivery_timeout=60.0)
        got: list[Any] = []
        router.subscribe("HOST_ONLINE", got.append)
        self.attached(router)
        for i in range(60):
            if i == 20:
                self.cluster.leader().kill()
            router.publish("HOST_ONLINE", {"run": self.run_id, "i": i})
        self.assertEqual([event["payload"]["i"] for event in got], list(range(60)))
        eventually("the log has delivered all", lambda: len({line["id"] for line in self.lines("log")}) == 60)
        result = self.report()
        self.assertEqual((result["verdict"], result["rows"][0]["both"], self.found(result)), ("safe", 60, {}), result)


class Compare(ShadowTest):
    def test_a_handler_is_called_once_in_both_orders_and_after_a_restart(self) -> None:
        name = f"compare{self.run_id}"
        publisher = self.router(self.queue("from.db"))
        calls: list[int] = []

        def handle(event: Any) -> None:
            calls.append(event.payload["i"])

        def start() -> ShadowRouter:
            router = self.router(self.queue("to.db"), "compare", name)
            router.subscribe("TRAINING_COMPLETED", handle)
            eventually("it reads the log", lambda: router._subscriptions[0].attached.is_set())
            return router

        def noted(kind: str, n: int) -> None:
            eventually(f"{n} {kind}", lambda: len(self.lines(kind)) >= n)

        def publish(i: int) -> Any:
            publisher.publish("TRAINING_COMPLETED", {"i": i, "run": self.run_id})
            return rows(self.folder / "from.db")[-1]

        router = start()
        row = publish(0)  # the log first
        noted("log", 1)
        append(self.folder / "to.db", row)
        noted("old", 1)
        # The old queue first: the row is that of an event which is published after it.
        at = time.time() + 0.001
        payload = {"i": 1, "run": self.run_id}
        append(self.folder / "to.db", ("TRAINING_COMPLETED", json.dumps(payload), "x", "", at))
        noted("done", 2)
        self.log.publish("TRAINING_COMPLETED", payload, time=datetime.fromtimestamp(at, timezone.utc))
        noted("log", 2)
        eventually("each is called", lambda: sorted(calls) == [0, 1])
        # One that is in the old queue twice, and one that the log alone has.
        append(self.folder / "to.db", rows(self.folder / "to.db")[0])
        publish(2)
        noted("done", 3)
        noted("old", 3)
        router.stop()
        router.old.close()

        # The next process is given all rows again by the old queue, as another pid has acknowledged none, and by the
        # log what was published meanwhile.
        forget_acks(self.folder / "to.db")
        row = publish(3)
        append(self.folder / "to.db", row)
        before = len(self.lines("old"))
        start()
        noted("old", before + 4)
        noted("done", 4)
        eventually("all is called", lambda: 3 in calls)
        marker = publish(4)
        noted("done", 5)
        append(self.folder / "to.db", marker)
        noted("old", before + 5)
        self.assertEqual(calls, [0, 1, 2, 3, 4])

    def test_an_event_that_fails_on_one_bus_is_left_to_the_other(self) -> None:
        router = self.router(bus := OldModule(), "compare", f"fails{self.run_id}")
        calls: list[str] = []

        async def handle(event: Any) -> None:
            calls.append(event.source)
            if len(calls) == 1:
                raise ConnectionError("no route to the host")

        router.subscribe("HOST_ONLINE", handle)
        eventually("it reads the log", lambda: router._subscriptions[0].attached.is_set())
        self.log.publish("HOST_ONLINE", {"run": self.run_id}, source="log")
        eventually("the log retries it", lambda: len(calls) == 2 and len(self.lines("done")) == 1)
        with contextlib.suppress(ConnectionError):
            asyncio.run(bus.publish("HOST_ONLINE", {"run": self.run_id}, "old"))
        self.assertEqual(calls, ["log", "log"])

    def test_the_log_waits_for_a_call_of_the_old_bus(self) -> None:
        router = self.router(bus := OldModule(), "compare", f"waits{self.run_id}")
        go, calls = threading.Event(), list[str]()

        def handle(event: Any) -> None:
            calls.append(event.source)
            if len(calls) == 1:
                go.wait(60)
                raise ConnectionError("the old call fails")

        router.subscribe("HOST_ONLINE", handle)
        eventually("it reads the log", lambda: router._subscriptions[0].attached.is_set())

        def old() -> None:
            with contextlib.suppress(ConnectionError):
                asyncio.run(bus.publish("HOST_ONLINE", {"run": self.run_id}, "old"))

        thread = threading.Thread(target=old)
        thread.start()
        eventually("the old bus delivers it first", lambda: calls == ["old"])
        self.log.publish("HOST_ONLINE", {"run": self.run_id}, source="log")
        eventually("the log has delivered it", lambda: len(self.lines("log")) == 1)
        self.assertEqual(calls, ["old"])
        go.set()
        thread.join()
        eventually("it is the log's turn", lambda: calls == ["old", "log"])

    def test_what_is_remembered_is_bounded(self) -> None:
        once = Once(max_events=3)
        for i in range(5):
            self.assertTrue(once.claim(delivery := once.find("old", f"c{i}", 1.0), "old", wait=False))
            once.settle(delivery, True)
        self.assertFalse(once.claim(once.find("log", "c4", 1.0), "log", wait=True))
        self.assertTrue(once.claim(once.find("log", "c0", 1.0), "log", wait=True))


class OldBusFirst(ShadowTest):
    def test_a_coordinator_hears_the_old_bus(self) -> None:
        router = self.router(self.queue())
        got: list[Any] = []
        router.subscribe_coordinator("health_manager", got.append)
        self.attached(router)
        router.publish("HOST_OFFLINE", {"run": self.run_id}, "test")
        eventually("both have delivered it", lambda: got and self.lines("log"))
        self.assertEqual([type(event).__name__ for event in got], ["OldRow"])

    def test_what_cannot_be_noted_is_delivered(self) -> None:
        deep: Any = 0
        for _ in range(5000):
            deep = [deep]
        bus = OldModule()
        router = self.router(bus)
        got: list[Any] = []
        router.subscribe("HOST_ONLINE", got.append)
        asyncio.run(bus.publish("HOST_ONLINE", {"x": deep}, "old"))
        self.assertEqual(len(got), 1)
        self.attached(router)  # as it notes that, too

    def test_work_without_a_thread_is_refused_and_does_not_block(self) -> None:
        work, done = Bounded("test", 10), list[int]()
        with mock.patch("threading.Thread.start", side_effect=RuntimeError("can't start new thread")):
            self.assertFalse(work.add(1, lambda: done.append(1)))
        self.assertTrue(work.add(1, lambda: done.append(2)))
        self.assertTrue(work.drain(10.0))
        self.assertEqual(done, [2])

    def test_the_old_queue_outlives_a_cancelled_handler_and_an_ack_that_fails(self) -> None:
        bus = self.queue()
        self.addCleanup(bus.close)
        got: list[int] = []

        async def handle(event: Any) -> None:
            got.append(event.payload["i"])
            if event.payload["i"] == 0:
                raise asyncio.CancelledError

        bus.subscribe("HOST_ONLINE", handle)
        with mock.patch.object(bus, "ack", side_effect=sqlite3.OperationalError("locked")):
            for i in range(2):
                bus.publish("HOST_ONLINE", {"i": i}, "old")
            eventually("both are handled", lambda: got[:2] == [0, 1])
        bus.publish("HOST_ONLINE", {"i": 2}, "old")
        eventually("so is the next", lambda: 2 in got)
        self.assertEqual(got, [0, 1, 2])


class Polled(ShadowTest):
    def use(self, mode: str, name: str) -> Any:
        reset_router()
        beside = {"old": QueueBus(self.folder / "old.db"), "folder": str(self.folder / "seen")}
        configure(self.log, mode=mode, name=name, source="poller", **(beside if mode != "log" else {}))
        return get_cross_process_queue()

    def test_a_daemon_that_polls_beside_the_old_queue(self) -> None:
        name = f"poll{self.run_id}"
        make_queue(self.folder / "old.db")
        queue = self.use("shadow", name)
        types = ["DATA_SYNC_COMPLETED"]
        self.assertEqual(queue.get_pending_events(name, types), [])
        eventually("the log is read", lambda: len(self.lines("sub")) == 1)
        began = self.lines("sub")[0]["at"]
        eventually("its first second has passed", lambda: time.time() > began + 1.05)
        for i in range(3):
            self.assertEqual(queue.publish("DATA_SYNC_COMPLETED", {"i": i, "run": self.run_id}, "test"), i + 1)
        events = queue.get_pending_events(name, types)
        self.assertEqual([(e.event_id, e.payload["i"]) for e in events], [(1, 0), (2, 1), (3, 2)])
        queue.ack_events([1, 2], name)
        self.assertEqual([e.event_id for e in queue.poll(name, types)], [3])
        eventually("the log has them", lambda: queue.poll(name, types) and len(self.lines("log")) == 3)
        result = self.report()
        self.assertEqual((result["verdict"], result["rows"][0]["both"], result["rows"][0]["twice"]), ("safe", 3, 0))

        # A poll from a number has what follows it.
        self.assertEqual([e.event_id for e in queue.poll(name, types, since_event_id=2)], [3])

        # compare: each once, also what one of the two alone has, and an ack is one of both.
        queue = self.use("compare", name)
        queue.publish("DATA_SYNC_COMPLETED", {"i": 3, "run": self.run_id}, "test")
        self.log.publish("DATA_SYNC_COMPLETED", {"i": 4, "run": self.run_id})

        def given() -> list[int]:
            return [e.payload["i"] for e in queue.poll(name, types) if e.payload["i"] > 2]

        eventually("the log has delivered both", lambda: given() and len({e["id"] for e in self.lines("log")}) == 5)
        eventually("each is given once", lambda: given() == [3, 4])
        queue.ack_events([e.event_id for e in queue.poll(name, types)], name)
        eventually("the log's cursor has all", lambda: self.log.get_cursor(f"queue.{name}")["lag_events"] == 0)
        self.assertEqual(queue.poll(name, types), [])

        # log: it resumes there.
        queue = self.use("log", name)
        self.assertEqual(queue.poll(name, types), [])
        offset = queue.publish("DATA_SYNC_COMPLETED", {"i": 5, "run": self.run_id}, "test")
        self.assertEqual([e.event_id for e in queue.poll(name, types)], [offset])


class Pairing(unittest.TestCase):
    """Which delivery of the old bus is which event, for contents and times as an old bus may give them."""

    def compare(self, old: str, log: str) -> dict[str, list[int]]:
        """Compare deliveries such as "a1.5": content a, published at 1.5 s. They are numbered from 1."""

        def parse(text: str, first: float) -> list[Delivery]:
            words = text.split()
            return [
                Delivery("X", float(word[1:]), word[0], "s", i + 1, first + i, None) for i, word in enumerate(words)
            ]

        found = Comparison(parse(old, 100.0), parse(log, 200.0))
        return {
            "both": [e.id for _, e in found.pairs],
            "twice": [o.id for o, _ in found.twice],
            "differ": [e.id for _, e in found.differ],
            "missing": [o.id for o in found.missing],
            "lost": [e.id for e in found.lost],
            "out_of_order": [e.id for _, e, _ in found.out_of_order()],
        }

    def test_pairs(self) -> None:
        for old, log, said in (
            # Equal events, of which the second is lost: by their times the others are themselves.
            ("a1 a3 a4", "a1 a2 a3 a4", {"both": [1, 3, 4], "lost": [2]}),
            # The old bus gives them its own times.
            ("a1.2 a3.2 a4.2", "a1 a2 a3 a4", {"both": [1, 3, 4], "lost": [2]}),
            # All are late.
            ("a9 a9.1 a9.2", "a1 a2 a3", {"both": [3, 2, 1]}),
            # Published again within the dedup window of the log, and after it.
            ("a1 a31", "a1", {"both": [1], "twice": [2]}),
            ("a1 a99", "a1", {"both": [1], "missing": [2]}),
            # A changed payload, delivered twice; one lost beside it; one of a publisher that knows no log.
            ("b1 b1 c5", "a1 d2", {"differ": [1], "twice": [2], "missing": [3], "lost": [2]}),
            # Changed, on a bus with times of its own: the only one near. Of two it is not known which.
            ("b1.05", "a1", {"differ": [1]}),
            ("b1.05 c1.05", "a1", {"missing": [1, 2], "lost": [1]}),
            # Later in the log, but published earlier: at the same time from two threads.
            ("a2 b1", "b1 a2", {"both": [2, 1], "out_of_order": [1]}),
            ("a1 b2", "b2 a1", {"both": [2, 1]}),
        ):
            with self.subTest(old=old, log=log):
                got = {name: ids for name, ids in self.compare(old, log).items() if ids}
                self.assertEqual(got, said)

    def test_many_equal_events_are_paired_quickly(self) -> None:
        n = 20_000
        old = " ".join(f"a{i / 1000 + 0.0003:.4f}" for i in range(n))
        began = time.process_time()
        got = self.compare(old, " ".join(f"a{i / 1000:.4f}" for i in range(n)))
        self.assertEqual(len(got["both"]), n)
        self.assertLess(time.process_time() - began, 10)  # pair by pair it is minutes


class BadInput(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="ringlog-shadow-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.addCleanup(reset_router)

    def run_it(self, *args: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        logger = logging.getLogger("ringlog")
        self.addCleanup(setattr, logger, "handlers", logger.handlers[:])
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["shadow", *args])
        return code, out.getvalue(), err.getvalue()

    def test_a_mode_or_bus_that_there_is_not_is_refused_at_the_start(self) -> None:
        (self.folder / "text.db").write_text("no database, but longer than its header would be" * 100)
        (self.folder / "empty.db").touch()
        shim = "from ringlog.compat.event_router import get_router, publish, subscribe\nget_router()\n"
        (self.folder / "uses_a_shim.py").write_text(shim)
        (self.folder / "is_broken.py").write_text("1 / 0")
        sys.path.append(str(self.folder))
        self.addCleanup(sys.path.remove, str(self.folder))
        for mode, old, said in (
            ("shadwo", None, "is no mode"),
            ("shadow", None, "no old bus is given"),
            ("compare", "no.such.module", "cannot be imported"),
            ("shadow", "is_broken", "cannot be imported: ZeroDivisionError"),
            ("shadow", "json", "has no publish"),
            ("shadow", object(), "has no publish"),
            ("shadow", "ringlog.compat.event_router", "is ringlog.compat itself"),
            ("shadow", "uses_a_shim", "the old module uses ringlog.compat itself"),
            ("shadow", str(self.folder / "none.db"), "there is no file"),
            ("shadow", str(self.folder / "empty.db"), "has no table events"),
            ("shadow", str(self.folder / "text.db"), "file is not a database"),
        ):
            with self.subTest(old=old), self.assertRaises(InvalidArgument) as caught:
                configure(mode=mode, **({"old": old} if old is not None else {}))
            self.assertIn(said, str(caught.exception))
            self.assertRegex(caught.exception.remedy, "RINGLOG_|import lines")
        with mock.patch.dict(os.environ, {"RINGLOG_MODE": "both"}), self.assertRaises(InvalidArgument):
            get_router()

    def test_the_verb(self) -> None:
        for args, code, said in (
            ([], 2, "required: report"),
            (["show"], 2, "invalid choice"),
            (["report", str(self.folder / "none")], 4, "there is no folder"),
            (["report", str(self.folder)], 4, "has no observations"),
            (["report", "--since", "yesterday"], 2, "neither an age such as 2h"),
            (["report", "--max-delay", "-1"], 2, "no number of seconds"),
            (["report", "--grace", "nan"], 2, "no number of seconds"),
            (["report", "--min-events", "x"], 2, "no number of 0 or more"),
            (["report", "-o", "xml"], 2, "invalid choice"),
        ):
            with self.subTest(args=args):
                got, out, err = self.run_it(*args)
                self.assertEqual((got, out, err.count("\n")), (code, "", 1), err)
                self.assertIn(said, err)

    def test_files_that_are_cut_or_damaged(self) -> None:
        kept = Observations(str(self.folder), "daemon", "shadow")
        kept.note({"k": "sub", "s": "daemon.h", "h": "h", "t": "*"})
        at = time.time() + 2
        for bus in ("old", "log"):
            line = {"k": bus, "s": "daemon.h", "type": "X", "time": at, "content": "c", "source": "", "id": 1}
            kept.note(line)
        kept.close()
        options = ["report", str(self.folder), "--json", "--grace", "0"]
        code, out, _ = self.run_it(*options)
        self.assertEqual((code, json.loads(out)["verdict"]), (0, "safe"), out)
        [file] = find_files(str(self.folder))
        whole = Path(file).read_text()
        for text, verdict in (
            (whole + '{"k":"log","s":"daem', "safe"),  # cut, as by a kill
            (whole + "{no json}\n" + whole, "unknown"),
            (whole + "[]\n", "unknown"),
            (whole + '{"k":"log","s":"daemon.h","at":1}\n', "unknown"),
            ("", "unknown"),
        ):
            with self.subTest(text=text[-20:]):
                Path(file).write_text(text)
                code, out, err = self.run_it(*options)
                self.assertEqual((json.loads(out)["verdict"], err), (verdict, ""), out)
                self.assertEqual("damaged" in out.split("rule")[0], verdict == "unknown")
        Path(file).write_text(whole)
        code, out, _ = self.run_it("report", str(self.folder), "--min-events", "9", "--grace", "0")
        self.assertEqual(code, 1)
        self.assertIn("verdict unknown", out)


if __name__ == "__main__":
    unittest.main()
