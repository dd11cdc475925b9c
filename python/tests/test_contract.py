"""One suite for both clients: every test runs against Client and against AsyncClient."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import unittest
import uuid
from collections.abc import AsyncIterator
from datetime import datetime, timedelta, timezone
from typing import Any

from ringlog import AsyncClient, Client, EventType, caused_by
from ringlog.errors import (
    Closed,
    Conflict,
    Fenced,
    InvalidArgument,
    NotFound,
    PastTail,
    RinglogError,
    TooLarge,
    Trimmed,
)
from ringlog.event import Event, Gap
from ringlog.payloads import ModelPromoted, TrainingCompleted
from tests.cluster import ROOT, Cluster


class Awaitable:
    """A blocking object with awaitable methods, so that a test can be written once."""

    def __init__(self, blocking: Any) -> None:
        self._blocking = blocking

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._blocking, name)
        if not callable(value):
            return value
        if name in ("tail", "cursor", "group"):
            return lambda *args, **options: Awaitable(value(*args, **options))

        async def call(*args: Any, **options: Any) -> Any:
            result = value(*args, **options)
            return Awaited(result) if name == "publish_soon" else result

        return call

    async def __aenter__(self) -> Awaitable:
        self._blocking.__enter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._blocking.__exit__(*error)

    async def __aiter__(self) -> AsyncIterator[Any]:
        for item in self._blocking:
            yield item


class Awaited:
    """A future of concurrent.futures that can be awaited."""

    def __init__(self, future: Any) -> None:
        self._future = future

    def __await__(self) -> Any:
        yield from ()
        return self._future.result(30)


class Contract:
    """The suite. log is the client, run a text that no other test uses."""

    cluster: Cluster
    log: Any
    run_id: str

    def client(self, **options: Any) -> Any:
        """Return another client."""
        raise NotImplementedError

    def event(self, i: int = 0) -> dict[str, Any]:
        return {"run": self.run_id, "i": i}

    async def read(self, **options: Any) -> list[Event]:
        options.setdefault("from_", "start")
        options.setdefault("keys", [self.run_id])
        return [event async for event in self.log.tail(until_end=True, **options)]

    async def publish(self, n: int, type: str = "DATA_SYNC_COMPLETED") -> list[int]:
        events = [{"type": type, "payload": self.event(i), "key": self.run_id} for i in range(n)]
        return [result.offset for result in await self.log.publish_many(events)]

    # Publishing.

    async def test_an_event_comes_back_as_it_was_published(self) -> None:
        at = datetime(2026, 1, 5, 10, 0, 0, 250000, timezone.utc)
        payload = {"config_key": "hex8_2p", "ü": ["\u2028", 1.5, None, True, {"deep": [1]}], "run": self.run_id}
        result = await self.log.publish(
            "TRAINING_COMPLETED", payload, key="k", source="s", correlation_id="run", causation_id="why",
            dedup_id=self.run_id, time=at,
        )  # fmt: skip
        event = await self.log.get(result.offset)
        self.assertEqual(event.payload, payload)
        self.assertEqual(
            (event.type, event.value, event.key, event.source, event.correlation_id, event.causation_id),
            ("TRAINING_COMPLETED", "training_completed", "k", "s", "run", "why"),
        )
        self.assertEqual((event.dedup_id, event.time, event.hash), (self.run_id, at, result.hash))
        self.assertLess(abs(event.appended_at - datetime.now(timezone.utc)), timedelta(minutes=1))

    async def test_the_same_content_is_a_duplicate_unless_dedup_is_off(self) -> None:
        first = await self.log.publish("DATA_SYNC_COMPLETED", self.event())
        again = await self.log.publish("DATA_SYNC_COMPLETED", self.event())
        third = await self.log.publish("DATA_SYNC_COMPLETED", self.event(), dedup=False)
        self.assertEqual((first.duplicate, again.duplicate, again.offset), (False, True, first.offset))
        self.assertEqual((third.duplicate, third.offset > first.offset), (False, True))

    async def test_typed_payloads(self) -> None:
        sent = TrainingCompleted(config_key="hex8_2p", epochs_completed=3, extra={"run": self.run_id})
        result = await self.log.publish(sent, key=self.run_id)
        event = await self.log.get(result.offset)
        self.assertEqual(event.type, EventType.TRAINING_COMPLETED)
        self.assertEqual(event.payload, {"config_key": "hex8_2p", "epochs_completed": 3, "run": self.run_id})
        self.assertEqual(event.decode(TrainingCompleted), sent)
        with self.assertRaises(InvalidArgument):
            event.decode(ModelPromoted)

    async def test_of_a_batch_all_or_none_is_appended(self) -> None:
        events = [{"type": "DATA_SYNC_COMPLETED", "payload": self.event(i), "key": self.run_id} for i in range(3)]
        with self.assertRaises(InvalidArgument) as refused:
            await self.log.publish_many([*events, {"type": "LEADER_ELECTED", "payload": {}}])
        self.assertEqual((refused.exception.code, refused.exception.field), ("reserved", "events[3].type"))
        self.assertTrue(refused.exception.remedy)
        self.assertFalse(refused.exception.retryable)
        self.assertEqual(await self.read(), [])
        results = await self.log.publish_many(events)
        self.assertEqual([event.offset for event in await self.read()], [result.offset for result in results])
        self.assertEqual(await self.log.publish_many([]), [])

    async def test_what_is_published_in_a_block_inherits_from_its_cause(self) -> None:
        cause = await self.log.get(
            (await self.log.publish("TRAINING_COMPLETED", self.event(), correlation_id="r")).offset
        )
        given = {"correlation_id": "mine", "causation_id": "other"}
        with caused_by(cause):
            offsets = [
                (await self.log.publish("DATA_SYNC_COMPLETED", self.event(1))).offset,
                (await self.log.publish_many([{"type": "DATA_SYNC_COMPLETED", "payload": self.event(2)}]))[0].offset,
                (await self.log.publish("DATA_SYNC_COMPLETED", self.event(3), **given)).offset,
                (await self.log.publish("DATA_SYNC_COMPLETED", {**self.event(4), "correlation_id": "payload"})).offset,
            ]
        offsets.append((await self.log.publish("DATA_SYNC_COMPLETED", self.event(5))).offset)
        events = [await self.log.get(offset) for offset in offsets]
        ours = str(cause.offset)
        self.assertEqual(
            [(event.correlation_id, event.causation_id) for event in events],
            [("r", ours), ("r", ours), ("mine", "other"), ("payload", ours), ("", "")],
        )

    async def test_events_in_the_background_keep_their_order(self) -> None:
        futures = [
            await self.log.publish_soon("DATA_SYNC_COMPLETED", self.event(i), key=self.run_id) for i in range(3000)
        ]
        self.assertTrue(await self.log.flush(30))
        offsets = [(await future).offset for future in futures]
        self.assertEqual(offsets, sorted(set(offsets)))
        self.assertEqual([event.payload["i"] for event in await self.read()], list(range(3000)))

    async def test_an_event_that_is_refused_takes_no_other_with_it(self) -> None:
        futures = []
        for i in range(300):
            name = "LEADER_ELECTED" if i % 100 == 50 else "DATA_SYNC_COMPLETED"
            futures.append(await self.log.publish_soon(name, self.event(i), key=self.run_id))
        with self.assertRaises(InvalidArgument):
            await self.log.flush(30)
        self.assertTrue(await self.log.flush(30))  # the failure is reported once
        refused = []
        for i, future in enumerate(futures):
            try:
                await future
            except InvalidArgument as e:
                self.assertEqual((e.code, e.field), ("reserved", "type"))
                refused.append(i)
        self.assertEqual(refused, [50, 150, 250])
        self.assertEqual(len(await self.read()), 297)

    async def test_values_without_json_are_refused_with_their_place(self) -> None:
        circular: dict[str, Any] = {"list": []}
        circular["list"].append(circular)
        for payload, field in (
            ({"losses": [1.0, float("nan")]}, "payload.losses[1]"),
            ({"a": {"b": float("-inf")}}, "payload.a.b"),
            ({"model": b"\x00"}, "payload.model"),
            (circular, "payload.list[0]"),
            ({"when": timedelta(1)}, "payload.when"),
            ({"set": {1}}, "payload.set"),
            ({"half": "\ud800"}, "payload.half"),
            ({("a", 1): 1}, "payload"),
        ):
            with self.subTest(field=field):
                with self.assertRaises(InvalidArgument) as refused:
                    await self.log.publish("DATA_SYNC_COMPLETED", payload)
                self.assertEqual(refused.exception.field, field)
                self.assertIn(f"invalid_argument: {field}: ", str(refused.exception))
                self.assertTrue(refused.exception.remedy)
                with self.assertRaises(InvalidArgument):
                    await self.log.publish_soon("DATA_SYNC_COMPLETED", payload)
        self.assertTrue(await self.log.flush(30))

    async def test_a_value_that_is_nested_too_deeply_is_refused(self) -> None:
        # By the interpreter or by the node, whichever has the lower limit.
        deep: list[Any] = []
        for _ in range(5000):
            deep = [deep]
        with self.assertRaises(InvalidArgument) as refused:
            await self.log.publish("DATA_SYNC_COMPLETED", {"deep": deep})
        self.assertTrue(refused.exception.field.startswith("payload.deep[0]"))

    async def test_a_payload_of_two_megabytes_is_refused(self) -> None:
        with self.assertRaises(TooLarge) as refused:
            await self.log.publish("DATA_SYNC_COMPLETED", {"blob": "x" * 2_000_000})
        self.assertIn("1048576", str(refused.exception))
        future = await self.log.publish_soon("DATA_SYNC_COMPLETED", {"blob": "x" * 2_000_000})
        with self.assertRaises(TooLarge):
            await self.log.flush(30)
        with self.assertRaises(TooLarge):
            await future
        self.assertGreater((await self.log.publish("DATA_SYNC_COMPLETED", self.event())).offset, 0)

    async def test_a_misspelled_field_is_a_type_error(self) -> None:
        with self.assertRaises(TypeError):
            await self.log.publish("DATA_SYNC_COMPLETED", {}, corelation_id="x")

    async def test_arguments_of_a_wrong_kind_are_refused_with_their_place(self) -> None:
        for call, field in (
            (lambda: self.log.publish(None, {}), "type"),
            (lambda: self.log.publish_soon(None, {}), "type"),
            (lambda: self.log.publish_many([{"type": "DATA_SYNC_COMPLETED"}, ("A", {})]), "events[1]"),
            (lambda: self.log.request("POST", "/v1/dlq/purge", {"ids": {1}}), "ids"),
        ):
            with self.subTest(field=field), self.assertRaises(InvalidArgument) as refused:
                await call()
            self.assertEqual(refused.exception.field, field)

    async def test_what_matches_nothing_is_warned_about_once(self) -> None:
        warnings: list[dict[str, Any]] = []
        async with self.client(on_warning=warnings.append) as log:
            for i in range(2):
                self.assertTrue((await log.publish("TRAINNING_COMPLETED", self.event(i))).warnings)
                async with log.tail("start", types=["TRAINNING_STARTED"]):
                    pass
                async with log.cursor(f"{self.run_id}-cursor", types=["trainning.*"]):
                    pass
                async with log.group(f"{self.run_id}-group", types=["TRAINNING_FAILED"]):
                    pass
        types = [warning for warning in warnings if warning["reason"] == "unknown_type"]
        self.assertEqual(len(types), len(warnings))
        for warning, named in zip(types, ("_COMPLETED", "_STARTED", ".*", "_FAILED"), strict=True):
            self.assertIn(named, warning["message"])
        async with self.client() as log:
            with self.assertLogs("ringlog", "WARNING") as logged:
                await log.publish_soon("TRAINNING_COMPLETED", self.event(), dedup=False)
                await log.flush()
            self.assertIn("TRAINNING_COMPLETED is not in the catalogue", logged.output[0])

    # Reading.

    async def test_a_tail_filters_and_ends(self) -> None:
        await self.publish(5)
        await self.publish(2, "TRAINING_STARTED")
        self.assertEqual(len(await self.read()), 7)
        self.assertEqual(len(await self.read(types=["data.sync.*"])), 5)
        self.assertEqual(len(await self.read(types="TRAINING_STARTED")), 2)
        self.assertEqual(len(await self.read(limit=3)), 3)
        self.assertEqual(len(await self.read(from_=timedelta(minutes=5))), 7)
        self.assertEqual(len(await self.read(from_=datetime.now(timezone.utc) + timedelta(hours=1))), 0)
        with self.assertRaises(InvalidArgument):
            await self.read(from_="yesterday")
        with self.assertRaises(InvalidArgument):
            await self.read(from_=datetime(2026, 1, 1))

    async def test_a_tail_from_the_end_has_what_is_published_after_its_beginning(self) -> None:
        await self.publish(2)
        async with self.log.tail(keys=[self.run_id], limit=3) as tail:
            await self.publish(3, "TRAINING_STARTED")
            self.assertEqual([event.type async for event in tail], ["TRAINING_STARTED"] * 3)

    async def test_what_was_trimmed_is_reported_as_a_gap(self) -> None:
        # A block is trimmed as a whole, and never the newest.
        offsets = await self.publish(3)
        last = (await self.publish(2, "TRAINING_STARTED"))[-1]
        await self.log.request("POST", "/v1/compact", {"before": offsets[-1] + 1, "force": True})
        gaps: list[Gap] = []
        events = await self.read(from_=offsets[0], on_gap=gaps.append)
        self.assertEqual([event.type for event in events], ["TRAINING_STARTED"] * 2)
        self.assertEqual([(gap.first, gap.last) for gap in gaps], [(offsets[0], offsets[-1])])
        with self.assertRaises(Trimmed):
            await self.log.get(offsets[0])
        with self.assertRaises(PastTail):
            await self.log.get(last + 1000)

    async def test_a_cursor_resumes_after_its_commit(self) -> None:
        offsets = await self.publish(4)
        async with self.log.cursor(self.run_id, keys=[self.run_id], until_end=True) as cursor:
            handled = 0
            async for event in cursor:
                self.assertEqual(event.offset, offsets[handled])
                handled += 1
                if handled == 2:
                    await cursor.commit()
                    break
        async with self.log.cursor(self.run_id, until_end=True) as cursor:
            self.assertEqual([event.offset async for event in cursor], offsets[2:])
            await cursor.commit(offsets[3])
            self.assertEqual(cursor.committed, offsets[3])
        self.assertEqual((await self.log.get_cursor(self.run_id))["committed"], offsets[3])
        self.assertIn(self.run_id, [cursor["name"] for cursor in await self.log.cursors()])
        self.assertTrue(await self.log.wait(offsets[3], [self.run_id], timeout=5))
        self.assertEqual((await self.log.explain(self.run_id, offsets[0]))["fate"], "committed")
        await self.log.seek_cursor(self.run_id, offsets[1])
        self.assertFalse(await self.log.wait(offsets[3], [self.run_id], timeout=0.1))
        await self.log.delete_cursor(self.run_id)
        with self.assertRaises(NotFound):
            await self.log.get_cursor(self.run_id)

    async def test_a_cursor_that_another_process_opens_is_fenced(self) -> None:
        await self.publish(20)
        async with self.log.cursor(self.run_id, keys=[self.run_id]) as old:
            async for event in old:
                async with self.log.cursor(self.run_id) as new:
                    with self.assertRaises(Fenced) as fenced:
                        await old.commit(event)
                    self.assertEqual(fenced.exception.offset, new.generation)
                break
            for _ in range(2):
                with self.assertRaises(Fenced):
                    async for event in old:
                        self.fail(f"{event} was received before, and is now another's")
        with self.assertRaises(Conflict):
            async with self.log.cursor(self.run_id, types=["TRAINING_STARTED"]):
                pass

    async def test_a_dead_letter_is_redriven_to_its_cursor(self) -> None:
        offsets = await self.publish(2)
        async with self.log.cursor(self.run_id, keys=[self.run_id]) as cursor:
            async for event in cursor:
                if event.redrive is not None:
                    self.assertEqual(event.payload["i"], 0)
                    break
                if event.offset == offsets[0]:
                    with self.assertLogs("ringlog", "WARNING") as logged:
                        letter = await cursor.dead_letter(ValueError("no such config"), attempts=3)
                    self.assertIn("was made a dead letter: ValueError: no such config", logged.output[0])
                    self.assertEqual(letter["error"], "ValueError: no such config")
                    self.assertEqual(letter["attempts"], 3)
                else:
                    await cursor.commit()
                    listed = await self.log.dead_letters(cursor=self.run_id)
                    self.assertEqual([entry["id"] for entry in listed], [letter["id"]])
                    self.assertEqual((await self.log.dead_letter(letter["id"]))["event"]["offset"], offsets[0])
                    self.assertEqual((await self.log.dead_letter_summary())["by_cursor"][self.run_id], 1)
                    self.assertEqual((await self.log.dead_letter_errors(cursor=self.run_id))[0]["count"], 1)
                    self.assertEqual((await self.log.redrive(letter["id"]))["done"], 1)
            await cursor.dead_letter("again", event=event)
        self.assertEqual((await self.log.purge(cursor=self.run_id))["done"], 1)
        self.assertEqual(await self.log.dead_letters(cursor=self.run_id), [])

    # Groups.

    async def test_members_share_the_events_of_a_group(self) -> None:
        events = [
            {"type": "DATA_SYNC_COMPLETED", "payload": self.event(i), "key": f"{self.run_id}{i % 8}"}
            for i in range(400)
        ]
        await self.log.publish_many(events)
        keys = [f"{self.run_id}{i}" for i in range(8)]
        handled: list[int] = []
        async with (
            self.log.group(self.run_id, keys=keys, prefetch=4) as one,
            self.log.group(self.run_id, prefetch=4) as two,
        ):
            self.assertEqual({m["member"] for m in await self.log.group_members(self.run_id)}, {one.name, two.name})
            while len(handled) < 400:
                for member in (one, two):
                    delivery = await member.next(timeout=0.05)
                    if delivery is not None:
                        handled.append(delivery.payload["i"])
                        self.assertTrue(delivery.ack())
            self.assertTrue(await one.flush() and await two.flush())
        self.assertEqual(sorted(handled), list(range(400)))
        for key in range(8):
            of_key = [i for i in handled if i % 8 == key]
            self.assertEqual(of_key, sorted(of_key))
        self.assertEqual((await self.log.get_cursor(self.run_id))["lag_events"], 0)

    async def test_failures_are_redelivered_and_then_dead_letters(self) -> None:
        await self.publish(3)
        tries: dict[int, list[int]] = {}
        await self.log.create_group(self.run_id, types=["DATA_SYNC_COMPLETED"], max_deliver=3, ack_wait=20)
        async with self.log.group(self.run_id) as member:
            async for delivery in member:
                if delivery.key != self.run_id:
                    delivery.ack()
                    continue
                i = delivery.payload["i"]
                tries.setdefault(i, []).append(delivery.delivery)
                if i == 0:
                    delivery.nack(error=ValueError("always"))
                elif i == 1 and len(tries[1]) == 1:
                    delivery.release()
                elif i == 1:
                    self.assertTrue(delivery.progress())
                    delivery.reject("never")
                    self.assertFalse(delivery.ack())
                else:
                    delivery.ack()
                    break
            self.assertTrue(await member.flush())
        self.assertEqual(tries, {0: [1, 2, 3], 1: [1, 1], 2: [1]})
        letters = await self.log.dead_letters(cursor=self.run_id)
        self.assertEqual([letter["error"] for letter in letters], ["ValueError: always", "never"])
        await self.log.delete_group(self.run_id)

    async def test_a_handler_that_fails_is_logged_once_for_each_error(self) -> None:
        await self.publish(20)
        async with self.log.group(self.run_id, keys=[self.run_id], max_deliver=1) as member:
            with self.assertLogs("ringlog", "WARNING") as logged:
                for i in range(20):
                    delivery = await member.next(timeout=5)
                    try:
                        delivery.nack(error=delivery.event)
                    except AttributeError as error:
                        self.assertTrue(delivery.reject(error) if i == 7 else delivery.nack(error=error))
            self.assertTrue(await member.flush())
        nacked, rejected = logged.output
        self.assertIn("(DATA_SYNC_COMPLETED) was nacked: AttributeError: 'Delivery' object has no attribute", nacked)
        self.assertIn("delivery.event", nacked)  # the line of the traceback
        self.assertIn("was rejected: ", rejected)

    async def test_what_a_member_has_not_handled_goes_to_others_when_it_leaves(self) -> None:
        await self.publish(1)
        async with self.log.group(self.run_id, keys=[self.run_id]) as member:
            async for delivery in member:
                self.assertEqual(delivery.delivery, 1)
                break
        async with self.log.group(self.run_id) as member:
            delivery = await member.next(timeout=5)
            self.assertEqual(delivery.payload["i"], 0)
            delivery.ack()
        self.assertIsNone(await member.next())

    # The cluster.

    async def test_settings_and_views(self) -> None:
        self.assertEqual((await self.log.settings())["dedup.window"], "60s")
        await self.log.set_setting("group.ack_wait", "31s")
        self.assertEqual((await self.log.settings())["group.ack_wait"], "31s")
        await self.log.set_setting("group.ack_wait", "")
        with self.assertRaises(NotFound):
            await self.log.set_setting("no.such", 1)
        self.assertEqual((await self.log.status())["cluster_id"], (await self.log.cluster())["cluster_id"])
        self.assertIn("TRAINING_COMPLETED", [entry["name"] for entry in await self.log.catalogue()])
        self.assertIsInstance((await self.log.history())["history"], list)
        self.assertTrue(await self.log.audit())
        await self.log.publish("TRAINING_COMPLETED", self.event(), correlation_id=self.run_id)
        self.assertEqual(len((await self.log.chain(self.run_id))["events"]), 1)
        offset = (await self.log.publish("TRAINING_STARTED", self.event())).offset
        self.assertEqual((await self.log.explain_dedup(offset))["kind"], "content")
        with self.assertRaises(NotFound):
            await self.log.request("GET", "/v1/nowhere")

    async def test_a_closed_client_says_so(self) -> None:
        await self.log.publish_soon("DATA_SYNC_COMPLETED", self.event(), key=self.run_id)
        await self.log.close()
        with self.assertRaises(Closed):
            await self.log.publish("DATA_SYNC_COMPLETED", {})
        with self.assertRaises(Closed):
            await self.log.publish_soon("DATA_SYNC_COMPLETED", {})
        with self.assertRaises(Closed):
            self.log.tail()
        await self.log.close()
        with Client(self.cluster.urls) as other:
            self.assertEqual(len(list(other.tail("start", keys=[self.run_id], until_end=True))), 1)


_cluster: list[Cluster] = []


def setUpModule() -> None:
    _cluster.append(Cluster())


def tearDownModule() -> None:
    _cluster.pop().close()


class BlockingContract(Contract, unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.cluster, self.run_id = _cluster[0], uuid.uuid4().hex
        self.log = self.client()
        self.addAsyncCleanup(self.log.close)

    def client(self, **options: Any) -> Any:
        return Awaitable(Client(self.cluster.urls, **options))


class AsyncContract(Contract, unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.cluster, self.run_id = _cluster[0], uuid.uuid4().hex
        self.log = self.client()
        self.addAsyncCleanup(self.log.close)

    def client(self, **options: Any) -> Any:
        return AsyncClient(self.cluster.urls, **options)

    async def test_many_tasks_publish_at_a_time(self) -> None:
        results = await asyncio.gather(
            *(self.log.publish("DATA_SYNC_COMPLETED", self.event(i), key=self.run_id) for i in range(200))
        )
        self.assertEqual(len({result.offset for result in results}), 200)

    async def test_a_canceled_read_leaves_the_client_usable(self) -> None:
        async with self.log.tail(keys=[self.run_id]) as tail:
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(tail.__anext__(), 0.1)
        self.assertEqual(len(await self.publish(1)), 1)


class Interfaces(unittest.TestCase):
    def test_both_clients_have_the_same_methods_and_documents(self) -> None:
        from ringlog import aio, client

        pairs = [
            (client.Client, aio.AsyncClient),
            (client.Tail, aio.AsyncTail),
            (client.Cursor, aio.AsyncCursor),
            (client.Member, aio.AsyncMember),
        ]
        for blocking, asynchronous in pairs:
            names = {name for name in dir(blocking) if not name.startswith("_")}
            self.assertEqual(names, {name for name in dir(asynchronous) if not name.startswith("_")})
            for name in names:
                one, other = getattr(blocking, name), getattr(asynchronous, name)
                self.assertEqual(one.__doc__, other.__doc__, name)
                if callable(one):
                    self.assertEqual(
                        str(inspect.signature(one)).partition(" -> ")[0],
                        str(inspect.signature(other)).partition(" -> ")[0],
                    )

    def test_documents_name_schemas_that_exist(self) -> None:
        document = json.loads((ROOT / "internal" / "server" / "openapi.json").read_text(encoding="utf-8"))
        package = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "python" / "ringlog").rglob("*.py"))
        named = set(re.findall(r"the schema (\w+)", package))
        self.assertGreater(len(named), 10)
        self.assertEqual(named - set(document["components"]["schemas"]), set())

    def test_the_package_lists_what_it_exports(self) -> None:
        import ringlog

        self.assertEqual(set(dir(ringlog)), {"__version__", *ringlog.__all__})
        self.assertIn("AsyncClient", dir(ringlog))
        for name in dir(ringlog):
            self.assertTrue(hasattr(ringlog, name), name)

    def test_errors_survive_pickling(self) -> None:
        import pickle

        error = pickle.loads(pickle.dumps(Fenced("m", code="fenced", field="f", remedy="r", offset=4)))
        self.assertEqual((type(error), str(error), error.offset, error.field), (Fenced, "fenced: f: m; r", 4, "f"))
        self.assertIsInstance(error, RinglogError)
