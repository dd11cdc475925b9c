"""Three daemons as processes while leader, daemons, network and cluster fail: what reaches the log, and who handles it.

    publisher ── DATA_SYNC_COMPLETED ──▶ log ──▶ watcher    a durable subscription of ringlog.compat
                                          │
                                          └────▶ promoter   a member of a group that publishes MODEL_PROMOTED for each

Each daemon writes a journal, a line before and after each step, which is compared in the end with what `ringlog tail`
prints. Faults and their order come from a seed, RINGLOG_SEED (1): each waits for progress that the seed decides, too.
RINGLOG_LONG_TESTS makes five rounds of them.

An hour's outage is compressed. Dedup keys expire after 1 s in place of 60 s (dedup.window), a daemon takes a producer
for forgotten after 2 s in place of 600 s, and waits 0.3 s in place of 3 s before it spools; the outage is longer than
these. Nodes forget a producer after no less than 10 minutes, so they are made to by the other bound there is: 1000
producers that are newer (producer.max). The HTTP interface of nodes is reached by the links that fail, also by nodes;
Raft has its own ports.
"""

from __future__ import annotations

import functools
import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ringlog import Client
from tests.cluster import Cluster, eventually, program
from tests.network import Mode, Network
from tests.test_faults import PACKAGE

OUTAGE = 4.0  # seconds at least: more than the dedup window and the idle time of a producer

BEGIN = """
import itertools, os, sys, time
from ringlog import Client
from ringlog._core import drainer, publisher
drainer.MAX_PRODUCER_IDLE = publisher.MAX_PRODUCER_IDLE = 2.0
folder, name = sys.argv[1:]
path = os.path.join(folder, "journal")
file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
lines = [line.split() for line in open(path)]
numbers = itertools.count(1 + max((int(line[1]) for line in lines if line[0] == "try"), default=-1))
def note(*words):
    os.write(file, (" ".join(map(str, words)) + "\\n").encode())
def stopping():
    return os.path.exists(os.path.join(folder, "stop"))
def connect():
    return Client(source=name, timeout=120, attempt_timeout=1, spool=os.path.join(folder, "spool"), spool_after=0.3)
note("start")
"""

PUBLISHER = """
def took(i, future):
    note("took", i, future.result().spooled)
with connect() as log:
    while not stopping():
        i = next(numbers)
        note("try", i)
        result = log.publish("DATA_SYNC_COMPLETED", {"i": i}, dedup=i % 2 == 0)
        note("took", i, result.spooled)
        for i in itertools.islice(numbers, 4):
            note("try", i)
            future = log.publish_soon("DATA_SYNC_COMPLETED", {"i": i}, dedup=i % 2 == 0)
            future.add_done_callback(lambda future, i=i: took(i, future))
        log.flush()  # as publish does not wait for what publish_soon has taken
        time.sleep(0.1)  # the work of which it reports
    log.drain()
"""

WATCHER = """
from ringlog.client import Cursor
from ringlog.compat import configure
real = Cursor.commit
def commit(cursor, event=None):
    real(cursor, event)
    note("through", event)
Cursor.commit = commit
router = configure(Client(timeout=120, attempt_timeout=1), name=name)
@router.subscribe("DATA_SYNC_COMPLETED")
def handle(event):
    note("handled", event.offset)
while not stopping():
    time.sleep(0.05)
router.stop()
"""

PROMOTER = """
settling = []
with connect() as log, log.group(name, types=["DATA_SYNC_COMPLETED"], member=name, prefetch=8) as member:
    while not stopping():
        delivery = member.next(timeout=0 if settling else 0.2)
        if delivery is not None:
            note("handled", delivery.offset)
            i = next(numbers)
            note("try", i)
            result = log.publish("MODEL_PROMOTED", {"i": i, "of": delivery.offset}, dedup=i % 2 == 0)
            note("took", i, result.spooled)
            delivery.ack()
            settling.append(delivery.offset)
        if settling and (delivery is None or len(settling) == 4) and member.flush(120):
            note("settled", *settling)
            settling.clear()
    log.drain()
"""


class Daemon:
    """A process that is started again by the test, as by systemd."""

    def __init__(self, name: str, text: str, folder: Path, urls: str) -> None:
        self.name, self._text, self.folder, self._urls = name, text, folder / name, urls
        self.folder.mkdir()
        self.journal = self.folder / "journal"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        env = {**os.environ, "PYTHONPATH": str(PACKAGE), "RINGLOG_ENDPOINTS": self._urls}
        with open(self.folder / "errors", "ab") as errors:
            args = [sys.executable, "-c", BEGIN + self._text, str(self.folder), self.name]
            self.process = subprocess.Popen(args, env=env, stdout=errors, stderr=errors)

    def kill(self) -> None:
        """End it as kill -9 does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Have it end when it is done."""
        (self.folder / "stop").touch()
        assert self.process is not None
        code = self.process.wait(60)
        assert code == 0, (self.folder / "errors").read_text()[-2000:]

    def notes(self, *kinds: str) -> list[list[str]]:
        """Return the complete lines of the journal, as words, of some kinds."""
        lines = self.journal.read_text().split("\n")[:-1] if self.journal.exists() else []
        return [words for words in map(str.split, lines) if not kinds or words[0] in kinds]

    def spooled(self) -> int:
        """Return how many events the spool has taken."""
        return sum(words[2] == "True" for words in self.notes("took"))

    def progress(self, lines: int) -> None:
        """Wait until the journal has some more lines."""
        goal = len(self.notes()) + lines

        def reached() -> bool:
            assert self.process is not None
            if (code := self.process.poll()) is not None:
                raise AssertionError(f"ended with {code}: {(self.folder / 'errors').read_text()[-1000:]}")
            return len(self.notes()) >= goal

        eventually(f"{self.name} has made progress", reached)


class UnderFaults(unittest.TestCase):
    def setUp(self) -> None:
        self.network = Network()
        self.cluster = Cluster(advertise=lambda node: self.network.link(node.http))
        self.addCleanup(self.network.close)
        self.addCleanup(self.cluster.close)
        self.direct = Client([node.url for node in self.cluster.nodes], spool="")
        self.addCleanup(self.direct.close)
        folder = tempfile.TemporaryDirectory(prefix="ringlog-daemons-")
        self.addCleanup(folder.cleanup)
        texts = {"publisher": PUBLISHER, "watcher": WATCHER, "promoter": PROMOTER}
        self.daemons = {name: Daemon(name, text, Path(folder.name), self.cluster.urls) for name, text in texts.items()}
        self.publisher, self.watcher, self.promoter = self.daemons.values()
        self.done: list[str] = []  # the faults, with when they began

    def launch(self) -> None:
        """Start the daemons: the publisher once the others are there to see all of its events."""
        for key, value in (("dedup.window", "1s"), ("producer.max", "1000")):
            self.direct.set_setting(key, value)
        self.direct.create_group("promoter", types=["DATA_SYNC_COMPLETED"], max_deliver=1_000_000)
        for daemon in (self.watcher, self.promoter, self.publisher):
            daemon.start()
            self.addCleanup(daemon.kill)
            if daemon is self.watcher:
                eventually("the watcher reads", lambda: len(self.direct.cursors()) == 2)

    # Faults.

    def kill_leader(self, rng: random.Random) -> None:
        leader = self.cluster.leader()
        leader.kill()
        self.publisher.progress(rng.randrange(10, 40))
        self.cluster.start(leader)
        eventually("all nodes know a leader", self.cluster._converged)

    def kill_daemon(self, name: str, rng: random.Random) -> None:
        self.daemons[name].progress(rng.randrange(1, 40))
        self.daemons[name].kill()
        self.daemons[name].start()
        self.daemons[name].progress(2)

    def break_network(self, mode: Mode, rng: random.Random) -> None:
        self.interrupt("cut" if mode == "deaf" else mode)
        if mode == "deaf":
            # What may have been sent before the cut is answered. What else is spooled is sent for the first time, by a
            # process that does not live to see the answer.
            self.publisher.progress(rng.randrange(10, 40))
            lost = self.network.lost
            self.network.become("deaf", spared=1)
            eventually("answers are lost", lambda: self.network.lost > lost + 4)
            victim: Daemon | None = self.publisher
        else:
            victim = rng.choice([None, self.publisher, self.promoter])
        if victim is not None:
            victim.kill()
            victim.start()
        self.publisher.progress(rng.randrange(10, 40))
        self.network.become("open")
        self.watcher.progress(2)
        self.promoter.progress(2)

    def interrupt(self, mode: Mode) -> None:
        """Break the network while the publisher reaches the log, and wait until it spools."""
        eventually("nothing is spooled", lambda: self.publisher.notes("took")[-1][2] == "False")
        spooled = self.publisher.spooled()
        self.network.become(mode)
        eventually("something is spooled", lambda: self.publisher.spooled() > spooled)

    def outage(self) -> None:
        """Stop all nodes for what is an hour to them, after events whose answers were lost."""
        self.interrupt("deaf")
        for node in self.cluster.nodes:
            node.kill()
        began = time.monotonic()
        self.publisher.progress(40)
        for daemon in self.daemons.values():
            daemon.kill()
            daemon.start()
        self.publisher.progress(40)
        eventually("the hour is over", lambda: time.monotonic() - began > OUTAGE)
        self.network.become("cut")
        for node in self.cluster.nodes:
            self.cluster.start(node)
        eventually("all nodes know a leader", self.cluster._converged)
        self.forget_producers()
        self.network.become("open")

    def forget_producers(self) -> None:
        """Have nodes forget the producers of the daemons, as newer ones take their place."""
        leader = self.cluster.leader()

        def publish(first: int) -> None:
            connection = http.client.HTTPConnection("127.0.0.1", leader.http, timeout=30)
            for i in range(first, first + 125):
                event = json.dumps({"type": "TASK_HEARTBEAT", "payload": {"i": i}, "dedup": False})
                headers = {"Ringlog-Producer": f"newer-{i}", "Ringlog-Sequence": "1"}
                connection.request("POST", "/v1/events", event, headers)
                answer = connection.getresponse()
                answer.read()
                statuses.append(answer.status)
            connection.close()

        statuses: list[int] = []
        threads = [threading.Thread(target=publish, args=(125 * n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(statuses, [200] * 1000)

    # What is compared.

    def log_events(self) -> list[dict[str, Any]]:
        """Return what `ringlog tail` prints of the daemons' events."""
        args = [program(), "tail", "-e", self.cluster.nodes[0].url, "--until-end", "-o", "json"]
        args += ["--type", "DATA_SYNC_COMPLETED,MODEL_PROMOTED"]
        printed = subprocess.run(args, check=True, capture_output=True, text=True, timeout=60).stdout
        return [json.loads(line) for line in printed.splitlines()]

    def check_published(self, daemon: Daemon, events: list[dict[str, Any]]) -> None:
        """Compare what a daemon has published with its journal."""
        found = [event["payload"]["i"] for event in events if event["source"] == daemon.name]
        tried = {int(words[1]) for words in daemon.notes("try")}
        took = {int(words[1]) for words in daemon.notes("took")}
        self.assertEqual(found, sorted(set(found)), f"{daemon.name}: in order and once each")
        self.assertEqual(took - set(found), set(), f"{daemon.name}: acknowledged or spooled, and lost")
        self.assertEqual(set(found) - tried, set(), f"{daemon.name}: in the log, and published by nobody")
        # What a killed process was about to publish may be there or not: a request of it and a burst.
        self.assertLessEqual(len(tried - took), 5 * (len(daemon.notes("start")) - 1))

    def check_handled(self, daemon: Daemon, offsets: list[int]) -> None:
        """Compare what a daemon has handled with the log: twice only where it died before that was committed."""
        handled: list[int] = []
        uncommitted: set[int] = set()
        died: set[int] = set()  # while these were handled and not committed
        for kind, *words in daemon.notes("start", "handled", "through", "settled"):
            numbers = [int(word) for word in words]
            if kind == "start":
                died |= uncommitted
            elif kind == "handled":
                [offset] = numbers
                self.assertTrue(offset not in handled or offset in died, f"{daemon.name}: {offset} handled twice")
                died.discard(offset)
                handled.append(offset)
                uncommitted.add(offset)
            else:
                through = numbers[0] if kind == "through" else 0
                uncommitted -= {offset for offset in uncommitted if offset <= through or offset in numbers}
        self.assertEqual(sorted(set(handled)), offsets, f"{daemon.name}: each is handled")
        if daemon is self.watcher:
            first = list(dict.fromkeys(handled))
            self.assertEqual(first, sorted(first), f"{daemon.name}: in order")

    def test_nothing_is_lost_and_nothing_handled_twice_but_where_a_handler_died(self) -> None:
        seed = int(os.environ.get("RINGLOG_SEED", "1"))
        rounds = 5 if os.environ.get("RINGLOG_LONG_TESTS") else 1
        rng = random.Random(seed)
        with self.subTest(RINGLOG_SEED=seed, rounds=rounds, faults=self.done):
            self.launch()
            for _ in range(rounds):
                modes: list[Mode] = ["cut", "stalled", "deaf"]
                faults: list[Callable[[random.Random], None]] = [self.kill_leader]
                faults += [functools.partial(self.kill_daemon, name) for name in self.daemons]
                faults += [functools.partial(self.break_network, mode) for mode in modes]
                rng.shuffle(faults)
                for fault in faults:
                    self.done.append(str(getattr(fault, "args", "kill_leader")))
                    fault(rng)
                self.done.append("outage")
                self.outage()
                self.publisher.progress(10)
            self.publisher.stop()
            *_, last = self.direct.tail("start", types=["DATA_SYNC_COMPLETED"], until_end=True)
            cursors = self.direct.cursors
            eventually("all is handled", lambda: all(cursor["committed"] >= last.offset for cursor in cursors()))
            self.promoter.stop()
            self.watcher.stop()
            self.assertFalse([path for daemon in self.daemons.values() for path in daemon.folder.glob("spool/*")])

            events = self.log_events()
            published = [event["offset"] for event in events if event["type"] == "DATA_SYNC_COMPLETED"]
            self.assertGreater(self.publisher.spooled(), 50 * rounds)
            self.check_published(self.publisher, events)
            self.check_published(self.promoter, events)
            self.check_handled(self.watcher, published)
            self.check_handled(self.promoter, published)
            promoted = {event["payload"]["of"] for event in events if event["type"] == "MODEL_PROMOTED"}
            self.assertEqual(sorted(promoted), published)
            self.assertFalse(self.direct.dead_letters())
