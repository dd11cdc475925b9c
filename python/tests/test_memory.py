"""What the memory log has beside the contract: time that a test moves, and clients in threads and loops."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import threading
import unittest
from datetime import timedelta
from typing import Any
from unittest import mock

from ringlog import AsyncClient, Client
from ringlog._core.spool import Spool
from ringlog._memory.node import _NACK
from ringlog._memory.values import time_text
from ringlog.errors import InvalidArgument, NotFound, Trimmed, Unavailable
from ringlog.event import Event
from ringlog.testing import MemoryLog
from tests.cluster import ROOT, eventually

HOUR, DAY = 3600, 86400


class MemoryTest(unittest.TestCase):
    def setUp(self) -> None:
        self.memory = MemoryLog()
        self.log = Client(self.memory.url)
        self.addCleanup(self.log.close)

    def publish(self, n: int, key: str = "") -> list[int]:
        events = [{"type": "DATA_SYNC_COMPLETED", "payload": {"i": i}, "key": key, "dedup": False} for i in range(n)]
        return [result.offset for result in self.log.publish_many(events)]


class Time(MemoryTest):
    def test_it_passes_only_where_it_is_moved(self) -> None:
        before = self.memory.clock.now()
        offsets = self.publish(1)
        self.assertEqual(self.log.get(offsets[0]).appended_at, before)
        self.assertEqual(self.memory.clock.advance(timedelta(hours=1)) - before, timedelta(hours=1))
        self.assertEqual(self.log.get(self.publish(1)[0]).appended_at - before, timedelta(hours=1))
        self.assertEqual(len(list(self.log.tail(timedelta(minutes=30), until_end=True))), 1)
        with self.assertRaises(ValueError):
            self.memory.clock.advance(-1)

    def test_the_dedup_window_ends_after_sixty_seconds(self) -> None:
        first = self.log.publish("TRAINING_STARTED", {"n": 1})
        self.memory.clock.advance(59.999)
        self.assertTrue(self.log.publish("TRAINING_STARTED", {"n": 1}).duplicate)
        self.assertTrue(self.log.explain_dedup(first.offset)["in_window"])
        self.memory.clock.advance(0.001)
        self.assertFalse(self.log.explain_dedup(first.offset)["in_window"])
        self.assertFalse(self.log.publish("TRAINING_STARTED", {"n": 1}).duplicate)

    def test_a_claim_to_a_role_that_is_not_sent_again_loses_its_place(self) -> None:
        with self.log.acquire_role("SYNC"):
            claim = {"holder": "b", "session": "s", "ttl": "5s", "wait": "1ms"}
            self.assertEqual(self.log.request("PUT", "/v1/roles/SYNC", claim)["place"], 1)
            for seconds, waiting in ((4.9, 1), (0.1, 0)):
                self.memory.clock.advance(seconds)
                self.assertEqual(self.log.role("SYNC")["waiting"], waiting)

    def test_allocations_and_resources_have_limits(self) -> None:
        self.log.set_setting("allocations.max", "1")
        self.log.set_setting("allocations.resources_max", "1")
        self.log.set_resource("net", 10)
        with self.log.allocate({"net": 1}), Client(self.memory.url, timeout=0.1) as log:
            for call in (lambda: log.allocate({"net": 1}, wait=False), lambda: log.set_resource("disk", 1)):
                with self.assertRaises(Unavailable) as refused:
                    call()
                self.assertEqual(refused.exception.code, "overloaded")
        self.log.set_resource("net", 5)
        self.log.allocate({"net": 5}, wait=False).release()

    def test_what_waits_for_an_allocation_rises_and_loses_its_place_unless_it_is_sent_again(self) -> None:
        self.log.set_resource("net", 10, preemptible=True)

        def ask(id_: str, wait: str = "", **more: Any) -> Any:
            request = {"holder": id_, "amounts": {"net": 6}, "wait": wait, **more}
            return self.log.request("PUT", f"/v1/allocations/{id_}", request)

        with self.log.allocate({"net": 10}):
            ask("low", "1ms", priority="LOW", ttl="1h")
            ask("short", "1ms", priority="LOW", ttl="100s")
            for seconds, risen, waiting in ((59, "LOW", 2), (1, "NORMAL", 2), (40, "NORMAL", 1), (20, "HIGH", 1)):
                self.memory.clock.advance(seconds)
                self.assertEqual(self.log.allocation("low")["risen_to"], risen)
                self.assertEqual(self.log.resource("net")["waiting"], waiting)
            ask("normal", "1ms", priority="NORMAL", ttl="1h")
        self.assertTrue(self.log.allocation("low")["granted"])
        # What has risen is not preempted.
        self.assertFalse(ask("urgent", priority="CRITICAL")["granted"])

    def test_the_roles_that_are_held_have_a_limit(self) -> None:
        self.log.set_setting("roles.max", "1")
        with self.log.acquire_role("SYNC"), Client(self.memory.url, timeout=0.1) as log:
            with self.assertRaises(Unavailable) as refused:
                log.acquire_role("OTHER", wait=False)
            self.assertEqual(refused.exception.code, "overloaded")
        self.log.acquire_role("OTHER", wait=False).release()

    def test_a_chain_is_that_of_the_nodes_with_its_deadlines(self) -> None:
        story = (ROOT / "internal/platform/stages/testdata/json.chain").read_text(encoding="utf-8")
        chain = json.loads(story.partition("---")[2])
        self.log.set_setting("chain.deadlines", "health_recovery:RECOVERY_INITIATED->RECOVERY_COMPLETED=1m")
        # A fraction that ends in zeros, which nodes leave out.
        self.memory.clock._now = self.memory.clock._now.replace(microsecond=120_000)
        began = self.memory.clock.now()
        for link in chain["events"]:
            self.memory.clock.advance(link["after_seconds"])
            self.log.publish(link["type"], correlation_id=chain["correlation_id"])
            link["at"] = time_text(self.memory.clock.now())
        self.memory.clock.advance(began + timedelta(hours=1) - self.memory.clock.now())
        chain |= {"now": time_text(self.memory.clock.now()), "scope": {"from": 1, "to": 3, "kept_from": 1}}
        self.assertEqual(self.log.chain(chain["correlation_id"]), chain)

        # What is overdue, and what came late.
        self.log.publish("NODE_UNHEALTHY", correlation_id="late")
        self.log.publish("RECOVERY_INITIATED", correlation_id="late")
        for seconds, overdue in ((60, 0), (1, 1)):
            self.memory.clock.advance(seconds)
            self.assertEqual(self.log.chain("late")["overdue"], overdue)
        self.log.publish("RECOVERY_COMPLETED", correlation_id="late")
        late = self.log.chain("late")
        self.assertEqual((late["overdue"], late["flows"][0]["edges"][-1]["late"]), (0, True))

    def test_a_type_has_the_window_of_its_dedup_policy(self) -> None:
        def repeats(type_: str, n: int) -> bool:
            return self.log.publish(type_, {"run": 1, "n": n}).duplicate

        self.assertEqual([repeats("TASK_HEARTBEAT", 1) for _ in range(2)], [False, False])
        self.log.set_dedup_policy("REGISTRY_UPDATED", "fields", ["run"], "5m")
        self.assertFalse(repeats("REGISTRY_UPDATED", 1))
        self.memory.clock.advance(299)
        self.assertTrue(repeats("REGISTRY_UPDATED", 2))
        self.memory.clock.advance(1)
        self.assertFalse(repeats("REGISTRY_UPDATED", 3))
        # What a shorter window has removed does not count in a longer one again.
        self.memory.clock.advance(2)
        for window in ("1s", "1h"):
            policy = self.log.set_dedup_policy("REGISTRY_UPDATED", "fields", ["run"], window)
            self.assertEqual(policy["keys"], 0)
        self.assertFalse(repeats("REGISTRY_UPDATED", 4))

    def test_retention_keeps_a_week_and_for_cursors_no_longer_than_they_may_hold(self) -> None:
        offsets = self.publish(1)
        self.log.create_cursor("slow", from_=offsets[0])
        self.memory.clock.advance(6 * DAY)
        self.publish(1)
        self.log.set_setting("cursor.hold_for", "240h")
        self.memory.clock.advance(2 * DAY)
        self.publish(1)
        self.assertEqual(self.log.get(offsets[0]).offset, offsets[0])
        self.log.set_setting("cursor.hold_for", "")  # 72 h
        with self.assertRaises(Trimmed):
            self.log.get(offsets[0])
        self.assertEqual(self.log.get_cursor("slow")["gap"]["reason"], "retention")

    def test_letters_and_cursors_expire_where_settings_say_so(self) -> None:
        self.publish(1)
        with self.log.cursor("reader") as cursor:
            cursor.dead_letter("no", event=next(cursor))
        self.memory.clock.advance(HOUR)
        self.assertEqual(len(self.log.dead_letters()), 1)
        self.assertEqual(self.log.dead_letter_summary()["oldest_seconds"], HOUR)
        self.log.set_setting("dlq.max_age", "2h")
        self.log.set_setting("cursor.idle_expiry", "2h")
        self.memory.clock.advance(HOUR)
        self.assertEqual(self.log.dead_letters(), [])
        with self.assertRaises(NotFound):
            self.log.get_cursor("reader")
        self.assertIn("DLQ_EVENTS_PURGED", [event.type for event in self.log.tail("start", until_end=True)])

    def test_a_registration_that_is_not_renewed_expires(self) -> None:
        body = {"subscriptions": [{"name": "a"}]}
        for advanced, found in ((299, 1), (2, 0)):
            if found:
                self.log.request("PUT", "/v1/clients/c", body)
            self.memory.clock.advance(advanced)
            self.assertEqual(len(self.log.request("GET", "/v1/clients")["clients"]), found)

    def test_what_waits_in_a_member_is_not_delivered_in_vain(self) -> None:
        # Ten minutes pass at once. The member would have asked for more time for all but the event that it handles.
        self.publish(5)
        with self.log.group("g", max_deliver=2) as member:
            held = member.next(timeout=5)
            self.memory.clock.advance(600)
            eventually("its delivery has expired", lambda: self.log.group_members("g")[0]["expired"])
            deliveries = {}
            while len(deliveries) < 5:
                delivery = member.next(timeout=5)
                deliveries[delivery.payload["i"]] = delivery.delivery
                delivery.ack()
            self.assertEqual(deliveries, {held.payload["i"]: 2, 1: 1, 2: 1, 3: 1, 4: 1})

    def test_what_a_hanging_member_held_goes_to_one_that_works(self) -> None:
        self.publish(1)
        for i in range(8):
            with self.log.group(f"g{i}") as hanging:
                held = hanging.next(timeout=5)
                with self.log.group(f"g{i}") as working:
                    self.memory.clock.advance(31)
                    delivery = working.next(timeout=5)
                    self.assertEqual((delivery.offset, delivery.delivery), (held.offset, 2))
                    # The member that hung learns of it with its next exchange.
                    eventually("the event is known to be lost", lambda held=held: not held.progress())
                    self.assertFalse(held.ack())

    def test_the_same_with_asyncio(self) -> None:
        async def main() -> dict[int, int]:
            async with AsyncClient(self.memory.url) as log, log.group("g", max_deliver=2) as member:
                deliveries = {(await member.next(timeout=5)).payload["i"]: 1}
                await self.memory.clock.advance_async(600)
                self.assertEqual((await log.group_members("g"))[0]["expired"], 1)
                while sum(deliveries.values()) < 6:
                    delivery = await member.next(timeout=5)
                    deliveries[delivery.payload["i"]] = delivery.delivery
                    delivery.ack()
                return deliveries

        self.publish(5)
        self.assertEqual(asyncio.run(main()), {0: 2, 1: 1, 2: 1, 3: 1, 4: 1})

    def test_a_nack_waits_and_the_last_one_is_a_dead_letter(self) -> None:
        self.publish(1)
        with self.log.group("g", types=["DATA_SYNC_COMPLETED"], max_deliver=3) as member:
            for number in (1, 2, 3):
                delivery = member.next(timeout=5)
                self.assertEqual(delivery.delivery, number)
                delivery.nack(delay=HOUR, error="busy")
                self.assertTrue(member.flush())
                self.memory.clock.advance(HOUR - 1)
                self.assertIsNone(member.next(timeout=0.05))
                self.memory.clock.advance(1)
        self.assertEqual([letter["attempts"] for letter in self.log.dead_letters()], [3])


class Clients(MemoryTest):
    def test_a_producer_that_nodes_may_have_forgotten_is_not_used_again(self) -> None:
        backlog = self.log._operations._backlog
        for n in range(2):
            self.log.publish_soon("DATA_SYNC_COMPLETED", {"n": n})
            self.assertTrue(self.log.flush(10))
            for producer in self.memory._log.producers.values():
                producer.used -= 1000  # seconds; nodes keep what they know of one for 900
            backlog._producer.used -= 1000
        self.assertEqual(len(self.memory._log.producers), 2)

    def test_a_member_reports_to_a_node_that_does_not_know_numbers_of_deliveries(self) -> None:
        self.publish(1)
        known = dict(_NACK)
        del known["delivery"]
        with mock.patch.dict(_NACK, known, clear=True), self.log.group("g", max_deliver=2) as member:
            for number in (1, 2):
                delivery = member.next(timeout=5)
                self.assertEqual(delivery.delivery, number)
                delivery.nack(error="busy")
                self.assertTrue(member.flush(5))
        self.assertEqual([letter["attempts"] for letter in self.log.dead_letters()], [2])

    def test_threads_and_loops_wake_each_other(self) -> None:
        got: list[Event] = []
        ready = threading.Event()

        def follow() -> None:
            with Client(self.memory.url) as log, log.tail(types=["TRAINING_STARTED"], limit=2) as tail:
                ready.set()
                got.extend(tail)

        async def main() -> None:
            async with AsyncClient(self.memory.url) as log, log.tail(types=["DATA_SYNC_STARTED"], limit=1) as tail:
                await log.publish("TRAINING_STARTED", {"n": 1})
                threading.Thread(target=self.log.publish, args=("DATA_SYNC_STARTED", {})).start()
                async for event in tail:
                    self.assertEqual(event.type, "DATA_SYNC_STARTED")
                await (await log.publish_soon("TRAINING_STARTED", {"n": 2}))

        thread = threading.Thread(target=follow)
        thread.start()
        self.assertTrue(ready.wait(10))
        asyncio.run(asyncio.wait_for(main(), 10))
        thread.join(10)
        self.assertEqual([event.payload["n"] for event in got], [1, 2])

    def test_a_client_delivers_to_it_what_waits_in_its_spool(self) -> None:
        def leave(folder: str) -> None:
            spool = Spool(folder, 1 << 20)
            spool.commit(spool.enqueue([b'[{"type":"DATA_SYNC_COMPLETED","payload":{"n":1}}]'], None))
            spool.close()

        async def main(folder: str) -> None:
            async with AsyncClient(self.memory.url, spool=folder) as log:
                self.assertTrue((await log.publish("TRAINING_STARTED", {"n": 2})).spooled)
                self.assertTrue(await log.drain(10))
                self.assertFalse((await log.publish("TRAINING_STARTED", {"n": 3})).spooled)

        with tempfile.TemporaryDirectory() as folder:
            leave(folder)
            asyncio.run(main(folder))
            self.memory.clock.advance(60)
            leave(folder)
            with Client(self.memory.url, spool=folder) as log:
                self.assertTrue(log.drain(10))
        self.assertEqual([event.payload["n"] for event in self.log.tail("start", until_end=True)], [1, 2, 3, 1])

    def test_what_is_scheduled_is_published_in_the_order_of_its_times_and_forgotten_after_a_while(self) -> None:
        at = self.memory.clock.now().timestamp()
        for n, seconds in enumerate((30, 10, 20, 901)):
            self.log.publish_at(at + seconds, "TRAINING_STARTED", {"n": n}, id=str(n))
        self.memory.clock.advance(900)
        self.assertEqual([event.payload["n"] for event in self.log.tail("start", until_end=True)], [1, 2, 0])
        self.memory.clock.advance(900)
        self.assertEqual([one["id"] for one in self.log.scheduled()], ["3"])
        again = self.log.publish_at(at + 30, "TRAINING_STARTED", {"n": 0}, id="0")
        self.assertNotIn("existing", again)
        self.assertNotEqual(self.log.scheduled_event("0")["offset"], 1)

    def test_what_is_scheduled_and_refused_by_then_is_a_dead_letter(self) -> None:
        self.log.publish_at(self.memory.clock.now().timestamp() + 10, "MY_TYPE", {"n": 1}, id="mine")
        self.log.set_setting("validation.strict", True)
        self.memory.clock.advance(10)
        [letter] = self.log.dead_letters(cursor="schedule")
        self.assertEqual((letter["type"], letter["origin"]), ("MY_TYPE", "mine"))
        self.assertEqual(self.log.scheduled(), [])

    def test_it_is_found_in_the_environment_and_each_is_a_log_of_its_own(self) -> None:
        other = MemoryLog()
        self.publish(2)
        with mock.patch.dict(os.environ, RINGLOG_ENDPOINTS=other.url), Client() as log:
            self.assertEqual(log.publish("TRAINING_STARTED", {}).offset, 1)
            self.assertNotEqual(log.cluster()["cluster_id"], self.log.cluster()["cluster_id"])

    def test_a_log_that_is_gone_is_refused(self) -> None:
        with self.assertRaises(InvalidArgument) as refused:
            Client("memory://none")
        self.assertEqual(refused.exception.field, "endpoints")
        self.assertIn("MemoryLog", refused.exception.remedy)
