"""What holders of roles and allocations stand: a pause, a cut network, killed leaders, forks, Ctrl-C, ended loops."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
import unittest
import uuid
from collections.abc import Callable
from typing import Any

from ringlog import AsyncClient, Client, Event
from ringlog.client import Role
from ringlog.errors import OutcomeUnknown, RoleLost, Unavailable
from ringlog.testing import MemoryLog
from tests.cluster import Cluster, eventually
from tests.network import Network
from tests.test_faults import FaultTest, start
from tests.test_spool import Away

PAUSED = """
import sys
from ringlog import Client
from ringlog._core.calls import Attempts
from ringlog._core.io import drive
from ringlog.errors import RoleLost
def refused(publish):
    try:
        publish()
        return "published"
    except RoleLost as e:
        return e.offset
with Client() as log, log.acquire_role(sys.argv[1], ttl=2, holder="paused") as role:
    role.publish("MODEL_PROMOTED", {"i": 0}, key=sys.argv[1])
    print(role.held, flush=True)
    sys.stdin.readline()
    print(role.held, flush=True)
    print(refused(lambda: role.publish("MODEL_PROMOTED", {"i": 1}, key=sys.argv[1])), flush=True)
    # As if the pause had come after the look at the clock.
    event = b'{"type": "MODEL_PROMOTED", "payload": {"i": 2}, "key": "%s"}' % sys.argv[1].encode()
    publish_under = log._operations._publisher.publish_under
    print(refused(lambda: drive(publish_under(role._state.headers, event, Attempts("publish", 30)))), flush=True)
    print(role.lost.wait(30), flush=True)
"""

ALLOCATED = """
import sys
from ringlog import Client
from ringlog.errors import AllocationLost
with Client() as log, log.allocate({sys.argv[1]: 1}, ttl=2, holder="paused") as allocation:
    print(allocation.held, flush=True)
    sys.stdin.readline()
    print(allocation.held, flush=True)
    try:
        allocation.check()
    except AllocationLost as e:
        print(e.code, flush=True)
    print(allocation.lost.wait(30), flush=True)
"""

WAITER = """
import sys
from ringlog import Client
with Client() as log:
    log.acquire_role(sys.argv[1], holder="waiter")
"""


class Processes(FaultTest):
    def acquire(self, **options: Any) -> Role:
        """Acquire the role of this test."""
        return self.log.acquire_role(self.run_id, **options)

    def test_a_process_that_was_stopped_for_longer_than_its_lease_writes_nothing(self) -> None:
        process = start(PAUSED, self.cluster.urls, self.run_id)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        assert process.stdin is not None and process.stdout is not None
        self.assertEqual(process.stdout.readline(), "True\n")
        process.send_signal(signal.SIGSTOP)
        with self.acquire() as role:
            role.publish("MODEL_PROMOTED", {"i": 3}, key=self.run_id)
            process.stdin.write("\n")
            process.stdin.flush()
            process.send_signal(signal.SIGCONT)
            out, err = process.communicate(timeout=60)
            self.assertEqual(out, f"False\nNone\n{role.fence}\nTrue\n", err)
            self.assertIn(f"role {self.run_id} is lost", err)
            role.check()
        events = self.log.tail("start", types=["MODEL_PROMOTED"], keys=[self.run_id], until_end=True)
        self.assertEqual([event.payload["i"] for event in events], [0, 3])

    def test_a_process_that_was_stopped_for_longer_than_its_allocation_knows_that_it_is_lost(self) -> None:
        self.log.set_resource(self.run_id, 1)
        process = start(ALLOCATED, self.cluster.urls, self.run_id)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        assert process.stdin is not None and process.stdout is not None
        self.assertEqual(process.stdout.readline(), "True\n")
        process.send_signal(signal.SIGSTOP)
        with self.log.allocate({self.run_id: 1}) as allocation:
            process.stdin.write("\n")
            process.stdin.flush()
            process.send_signal(signal.SIGCONT)
            out, err = process.communicate(timeout=60)
            self.assertEqual(out, "False\nlost\nTrue\n", err)
            self.assertIn(f"is lost: {self.run_id}=1 with the fence", err)
            # Its release took nothing from the next.
            self.assertTrue(self.log.allocation(allocation.id)["granted"])

    def test_ctrl_c_leaves_the_queue(self) -> None:
        with self.acquire():
            process = start(WAITER, self.cluster.urls, self.run_id)
            self.addCleanup(process.kill)
            eventually("it waits", lambda: self.log.role(self.run_id)["waiting"])
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
            self.assertIn("KeyboardInterrupt", err)
            self.assertEqual(self.log.role(self.run_id)["waiting"], 0)

    def test_a_call_that_is_late_leaves_no_claim(self) -> None:
        network = Network()
        self.addCleanup(network.close)
        slow = network.link(self.cluster.nodes[0].http)

        async def wait() -> None:
            async with AsyncClient(slow) as other, AsyncClient(self.cluster.urls) as log:
                await other.cluster()
                role = log.acquire_role(self.run_id, ttl=3600, wait=1)
                calls = role._state._calls.call

                async def call(method: str, *args: Any, **options: Any) -> Any:
                    # Only the call for the role is slow: it reaches a node after the release.
                    if method == "PUT":
                        network.become("stalled")
                        return await other._calls.call(method, *args, **options)
                    answer = await calls(method, *args, **options)
                    network.become("open")
                    return answer

                role._state._calls.call = call
                waiting = asyncio.create_task(role.__aenter__())
                await asyncio.to_thread(eventually, "the call is on its way", lambda: network.held)
                waiting.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await waiting

        with self.acquire():
            asyncio.run(wait())
            self.assertEqual(self.log.role(self.run_id)["waiting"], 0)

    def test_a_role_belongs_to_the_process_that_has_acquired_it(self) -> None:
        role = self.acquire()
        child = os.fork()
        if child == 0:
            # The exit code reports what failed.
            code = 1
            try:
                assert not role.held
                try:
                    role.publish("MODEL_PROMOTED", {})
                except RoleLost as e:
                    assert "parent process" in e.message
                    assert not role.release()
                    self.log.close()
                    code = 0
            finally:
                os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual(self.log.role(self.run_id)["fence"], role.fence)
        self.assertTrue(role.publish("MODEL_PROMOTED", {"run": self.run_id}).offset)
        self.assertTrue(role.release())

    def test_the_holder_and_who_waits_notice_a_killed_leader_by_time_alone(self) -> None:
        role = self.acquire()
        with Client(self.cluster.urls) as other:
            got: list[Role] = []
            waiter = threading.Thread(target=lambda: got.append(other.acquire_role(self.run_id)))
            waiter.start()
            eventually("it waits", lambda: self.log.role(self.run_id)["waiting"])
            leader = self.cluster.leader()
            leader.kill()
            self.addCleanup(self.restart, leader)
            self.assertTrue(role.publish("MODEL_PROMOTED", {"run": self.run_id}).offset)
            since = self.log.role(self.run_id)["renewed_at"]
            eventually("it is renewed", lambda: self.log.role(self.run_id)["renewed_at"] > since)
            self.assertEqual((self.log.role(self.run_id)["fence"], role.held, got), (role.fence, True, []))
            role.release()
            waiter.join(60)
            self.assertGreater(got[0].fence, role.fence)


class Cut(unittest.TestCase):
    """A node that the holder reaches by a network that fails, and others directly."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.network = Network()
        cls.cluster = Cluster(voters=1, advertise=lambda node: cls.network.link(node.http))
        cls.addClassCleanup(cls.network.close)
        cls.addClassCleanup(cls.cluster.close)

    def setUp(self) -> None:
        self.run_id = uuid.uuid4().hex
        self.addCleanup(self.network.become, "open")
        self.direct = Client(self.cluster.nodes[0].url)
        self.addCleanup(self.direct.close)

    def client(self, **options: Any) -> Client:
        log = Client(self.cluster.urls, attempt_timeout=0.5, **options)
        self.addCleanup(log.close)
        return log

    def events(self) -> list[Event]:
        return list(self.direct.tail("start", types=["MODEL_PROMOTED"], keys=[self.run_id], until_end=True))

    def test_a_holder_that_cannot_renew_stops_before_another_holds_what_it_held(self) -> None:
        names = [f"{self.run_id}-{kind}" for kind in ("blocking", "asyncio")]
        noted: list[tuple[str, str]] = []  # in the order in which it happened

        async def hold(name: str) -> None:
            log = AsyncClient(self.cluster.urls)
            async with log.acquire_role(name, ttl=5) as role:
                role.on_lost(lambda: noted.append((name, "lost")))
                held.set()
                await role.lost.wait()
                noted.append((name, "stopped"))
            await log.close()

        def take(name: str) -> None:
            with self.direct.acquire_role(name):
                noted.append((name, "taken"))

        def take_allocation() -> None:
            with self.direct.allocate({self.run_id: 1}):
                noted.append((self.run_id, "taken"))

        # A renewal under way does not get an answer either. It takes up to 3 s.
        held = threading.Event()
        log = Client(self.cluster.urls)
        self.addCleanup(log.close)
        role = log.acquire_role(names[0], ttl=5)
        role.on_lost(lambda: noted.append((names[0], "lost")))
        self.direct.set_resource(self.run_id, 1)
        allocation = log.allocate({self.run_id: 1}, ttl=5)
        allocation.on_lost(lambda: noted.append((self.run_id, "lost")))
        threads = [threading.Thread(target=lambda: asyncio.run(hold(names[1])))]
        threads[0].start()
        self.assertTrue(held.wait(30))
        self.network.become("stalled")
        threads += [threading.Thread(target=take, args=(name,)) for name in names]
        threads += [threading.Thread(target=take_allocation)]
        for thread in threads[1:]:
            thread.start()
        self.assertTrue(role.lost.wait(30))
        noted.append((names[0], "stopped"))
        self.assertTrue(allocation.lost.wait(30))
        noted.append((self.run_id, "stopped"))
        for thread in threads:
            thread.join(60)
        for name in (*names, self.run_id):
            self.assertEqual([what for of, what in noted if of == name], ["lost", "stopped", "taken"])

    def test_a_publish_whose_answer_is_lost_is_appended_once(self) -> None:
        role = self.client().acquire_role(self.run_id, ttl=60)
        self.network.become("deaf")
        lost = self.network.lost

        def recover() -> None:
            eventually("an answer is lost", lambda: self.network.lost > lost)
            # The lease ends, and what was appended under it is answered all the same.
            self.direct.revoke_role(self.run_id)
            self.network.become("open")

        thread = threading.Thread(target=recover)
        thread.start()
        result = role.publish("MODEL_PROMOTED", {"run": self.run_id}, key=self.run_id, dedup=False)
        thread.join()
        self.assertEqual([event.offset for event in self.events()], [result.offset])
        with self.assertRaises(RoleLost):
            role.publish("MODEL_PROMOTED", {"run": self.run_id}, key=self.run_id, dedup=False)
        self.assertEqual(len(self.events()), 1)

    def test_a_publish_whose_outcome_is_unknown_spoils_none_after_it(self) -> None:
        role = self.client(timeout=1).acquire_role(self.run_id, ttl=60)
        self.network.become("deaf")
        with self.assertRaises(OutcomeUnknown):
            role.publish("MODEL_PROMOTED", {"i": 0}, key=self.run_id)
        self.network.become("open")
        role.publish("MODEL_PROMOTED", {"i": 1}, key=self.run_id)
        self.assertEqual([event.payload["i"] for event in self.events()], [0, 1])

    def test_a_role_is_held_for_longer_than_its_ttl(self) -> None:
        with self.client().acquire_role(self.run_id, ttl=3) as role:
            self.assertFalse(role.lost.wait(3.3))
            role.publish("MODEL_PROMOTED", {}, key=self.run_id)
            self.assertEqual(self.direct.role(self.run_id)["fence"], role.fence)


class Stopped(Away):
    """A node that is stopped and started."""

    def published(self) -> list[int]:
        with Client(self.cluster.urls) as log:
            events = log.tail("start", types=["MODEL_PROMOTED"], keys=[self.run_id], until_end=True)
            return sorted(event.payload["i"] for event in events)

    def test_a_role_that_no_node_can_give_is_not_left_either(self) -> None:
        log = self.client(timeout=0.5)
        self.stop()
        with self.assertNoLogs("ringlog", "WARNING"), self.assertRaises(Unavailable):
            log.acquire_role(self.run_id)

    def test_a_publish_ends_with_the_lease(self) -> None:
        role = self.client(timeout=60).acquire_role(self.run_id, ttl=2)
        self.stop()
        began = time.monotonic()
        with self.assertRaises(RoleLost) as lost:
            role.publish("MODEL_PROMOTED", {}, key=self.run_id)
        self.assertLess(time.monotonic() - began, 30)
        self.assertIn("not renewed in time", lost.exception.message)

    def test_what_is_published_under_a_role_is_never_spooled(self) -> None:
        log = self.client(timeout=1)
        with log.acquire_role(self.run_id, ttl=60) as role:
            self.stop()
            self.assertTrue(log.publish("MODEL_PROMOTED", {"i": 0}, key=self.run_id).spooled)
            size = log.spooled_bytes
            publishes: list[Callable[[], object]] = [
                lambda: role.publish("MODEL_PROMOTED", {"i": 1}, key=self.run_id),
                lambda: role.publish_many([{"type": "MODEL_PROMOTED", "payload": {"i": 2}, "key": self.run_id}]),
            ]
            for publish in publishes:
                with self.assertRaises(Unavailable) as away:
                    publish()
                self.assertIn("under a role is not spooled", away.exception.remedy)
                self.assertEqual(log.spooled_bytes, size)
            self.start()
            self.assertFalse(role.publish("MODEL_PROMOTED", {"i": 3}, key=self.run_id).spooled)
            self.assertTrue(log.drain(60))
        self.assertEqual(self.published(), [0, 3])


class Loops(unittest.TestCase):
    def test_a_role_is_lost_when_its_event_loop_ends(self) -> None:
        memory = MemoryLog()

        async def main() -> Any:
            return await AsyncClient(memory.url).acquire_role("SYNC")

        with self.assertLogs("ringlog", "WARNING") as logged:
            role = asyncio.run(main())
        self.assertEqual((role.held, role.lost.is_set()), (False, True))
        self.assertIn("nothing renews the lease", logged.output[0])
