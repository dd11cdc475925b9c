"""Measures how fast daemons in Python publish to a system and read from it, each with its own client.

Usage: clients.py SYSTEM WORK WAY ENDPOINTS WARM_SECONDS SECONDS FILE

SYSTEM is ringlog, nats or redis, and ENDPOINTS are its addresses, comma separated. WORK and WAY are
names of measurement below. FILE has payloads, one JSON object a line; every event is one of them
with another iteration and run, so that no two are alike. The payload goes in as a dict, and its JSON is made
by the client, or here where the client takes bytes. It prints {"warmed": N, "events": N, "seconds": S}, and
"waits", the seconds that each event took, where callers wait for each.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import json
import sys
import time
import uuid

BATCH = 256
PENDING = 4096  # events without an answer, where publishing does not wait
COMMIT = 1000  # events that a reader acknowledges at once
TYPES = ["TRAINING_STARTED", "TRAINING_PROGRESS", "TRAINING_COMPLETED", "EVALUATION_COMPLETED", "NEW_GAMES_AVAILABLE"]
RUN = uuid.uuid4().hex[:16]
encode = json.JSONEncoder(separators=(",", ":")).encode


def numbered(payloads):
    """Yields (number, type, payload), no two alike."""
    templates = itertools.cycle(payloads)
    for number in itertools.count():
        yield number, TYPES[number % len(TYPES)], {**next(templates), "iteration": number, "run": RUN}


# Each system below is a context manager and has a method per way. A method that publishes does some and returns how
# many; one that reads returns how many it has read once it has read them all.


class Ringlog:
    """ringlog's own package."""

    def __init__(self, endpoints, events):
        from ringlog import Client

        self.log, self.events = Client(endpoints), events

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.log.close()

    def batch(self):
        return [
            {"type": type, "payload": payload, "source": "bench-peers", "key": payload["config_key"]}
            for _, type, payload in itertools.islice(self.events, BATCH)
        ]

    def publish_many(self):
        self.log.publish_many(self.batch())
        return BATCH

    def publish_many_of_4_threads(self):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(self.log.publish_many, [self.batch() for _ in range(16)]))
        return 16 * BATCH

    def publish_soon(self):
        for _, type, payload in itertools.islice(self.events, PENDING):
            self.log.publish_soon(type, payload, source="bench-peers", key=payload["config_key"])
        return PENDING

    def finish(self):
        self.log.flush()

    def publish(self):
        _, type, payload = next(self.events)
        self.log.publish(type, payload, source="bench-peers", key=payload["config_key"])
        return 1

    def cursor(self):
        name, read = "bench-" + uuid.uuid4().hex, 0
        with self.log.cursor(name, until_end=True) as cursor:
            for event in cursor:
                read += 1
                if read % COMMIT == 0:
                    cursor.commit(event)
            cursor.commit()
        self.log.delete_cursor(name)
        return read


class AsyncRinglog:
    """The asyncio client of ringlog's own package."""

    def __init__(self, endpoints, events):
        from ringlog import AsyncClient

        self.loop, self.events = asyncio.new_event_loop(), events

        async def connect():
            return AsyncClient(endpoints)

        self.log = self.loop.run_until_complete(connect())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.loop.run_until_complete(self.log.close())
        self.loop.close()

    def asyncio_publish_soon(self):
        async def publish():
            for _, type, payload in itertools.islice(self.events, PENDING):
                await self.log.publish_soon(type, payload, source="bench-peers", key=payload["config_key"])

        self.loop.run_until_complete(publish())
        return PENDING

    def finish(self):
        self.loop.run_until_complete(self.log.flush())

    def asyncio_tail(self):
        async def read():
            return sum([1 async for _ in self.log.tail("start", until_end=True)])

        return self.loop.run_until_complete(read())


class Nats:
    """nats-py with JetStream. The id that suppresses duplicates is a number: no hash is computed here."""

    def __init__(self, endpoints, events):
        import nats

        self.loop, self.events = asyncio.new_event_loop(), events

        async def connect():
            connection = await nats.connect(servers=["nats://" + e for e in endpoints])
            return connection, connection.jetstream(publish_async_max_pending=PENDING)

        self.connection, self.stream = self.loop.run_until_complete(connect())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.loop.run_until_complete(self.connection.close())
        self.loop.close()

    def message(self):
        number, type, payload = next(self.events)
        return "events." + type, encode(payload).encode(), {"Nats-Msg-Id": f"{RUN}-{number}"}

    def gather(self):
        async def publish():
            made = [self.message() for _ in range(BATCH)]
            await asyncio.gather(*(self.stream.publish(s, data, headers=h) for s, data, h in made))

        self.loop.run_until_complete(publish())
        return BATCH

    async def start(self, n):
        made = [self.message() for _ in range(n)]
        return [await self.stream.publish_async(s, data, headers=h, wait_stall=30) for s, data, h in made]

    def publish_async_and_all_answers(self):
        async def publish():
            await asyncio.gather(*await self.start(BATCH))

        self.loop.run_until_complete(publish())
        return BATCH

    def publish_async(self):
        self.loop.run_until_complete(self.start(BATCH))
        return BATCH

    def finish(self):
        self.loop.run_until_complete(self.stream.publish_async_completed())

    def publish(self):
        subject, data, headers = self.message()
        self.loop.run_until_complete(self.stream.publish(subject, data, headers=headers))
        return 1

    def pull(self):
        from nats.js.api import AckPolicy, ConsumerConfig

        async def read():
            config = ConsumerConfig(ack_policy=AckPolicy.ALL, max_ack_pending=20_000)
            pulled, n = await self.stream.pull_subscribe("", "bench-" + uuid.uuid4().hex, "EVENTS", config=config), 0
            left = (await pulled.consumer_info()).num_pending
            while n < left:
                messages = await pulled.fetch(min(COMMIT, left - n), timeout=30)
                for m in messages:
                    json.loads(m.data)
                await messages[-1].ack()
                n += len(messages)
            await pulled.unsubscribe()
            return n

        return self.loop.run_until_complete(read())


class Redis:
    """redis-py with a stream. An acknowledgement says that one replica has the event as well (WAIT 1)."""

    def __init__(self, endpoints, events):
        import redis

        host, _, port = endpoints[0].rpartition(":")
        self.redis, self.events = redis.Redis(host=host, port=int(port)), events

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.redis.close()

    def append(self, n):
        pipeline = self.redis.pipeline(transaction=False)
        for _, type, payload in itertools.islice(self.events, n):
            pipeline.xadd("events", {"type": type, "key": payload["config_key"], "payload": encode(payload)})
        pipeline.execute_command("WAIT", 1, 30_000)
        if pipeline.execute()[-1] < 1:
            raise RuntimeError("no replica has the events after 30 s")
        return n

    def pipeline(self):
        return self.append(BATCH)

    def xadd(self):
        return self.append(1)

    def xreadgroup(self):
        group, read = "bench-" + uuid.uuid4().hex, 0
        self.redis.xgroup_create("events", group, "0")
        while answer := self.redis.xreadgroup(group, "bench", {"events": ">"}, count=COMMIT):
            entries = answer[0][1] if isinstance(answer, list) else answer[b"events"][0]
            for _, fields in entries:
                json.loads(fields[b"payload"])
            self.redis.xack("events", group, *[id for id, _ in entries])
            read += len(entries)
        self.redis.xgroup_destroy("events", group)
        return read


SYSTEMS = {"ringlog": Ringlog, "ringlog-asyncio": AsyncRinglog, "nats": Nats, "redis": Redis}


def main():
    system, work, way, endpoints, warm, seconds, path = sys.argv[1:]
    with open(path) as lines:
        events = numbered([json.loads(line) for line in lines])
    with SYSTEMS[system](endpoints.split(","), events) as client:
        step, finish = getattr(client, way), getattr(client, "finish", lambda: None)
        if work == "read":
            began = time.perf_counter()
            read = step()
            print(json.dumps({"warmed": 0, "events": read, "seconds": time.perf_counter() - began}))
            return
        warmed = published(step, finish, float(warm), [])
        waits = []
        began = time.perf_counter()
        done = published(step, finish, float(seconds), waits)
        answer = {"warmed": warmed, "events": done, "seconds": time.perf_counter() - began}
        if work == "one":
            answer["waits"] = waits
        print(json.dumps(answer))


def published(step, finish, seconds, waits):
    """Repeats step for some seconds, awaits the last answer and returns the events."""
    end, done = time.perf_counter() + seconds, 0
    while (began := time.perf_counter()) < end:
        done += step()
        waits.append(time.perf_counter() - began)
    finish()
    return done


main()
