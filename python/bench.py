"""Measures the client against a running cluster, whose nodes RINGLOG_ENDPOINTS names.

Usage: python bench.py [SECONDS]

Each line is one way of use with its events a second. The last line compares them with the least that
a program without the package does: json and http.client, without retries and without the results.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import http.client
import itertools
import json
import sys
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator
from typing import Any

sys.path.insert(0, __file__.rpartition("/")[0] or ".")

from ringlog import AsyncClient, Client

BATCH = 256
RUN = uuid.uuid4().hex[:16]


def payload_of(i: int) -> dict[str, Any]:
    """Return a payload of about 250 bytes that is unlike all others."""
    return {
        "config_key": f"hex8_{i % 7}p",
        "model_path": f"/data/models/hex8/{i}.pth",
        "iteration": i,
        "run": RUN,
        "metrics": {"loss": 0.4312 + i / 1e9, "policy_accuracy": 0.71, "value_mae": 0.12, "seconds": 1843.25},
        "games": [i, i + 1, i + 2],
        "host": "gpu-node-7.example",
        "success": True,
    }


def events() -> Iterator[dict[str, Any]]:
    """Return events as publish_many takes them, of an iterator that threads may share."""

    def event(i: int) -> dict[str, Any]:
        payload = payload_of(i)
        return {"type": "TRAINING_COMPLETED", "payload": payload, "key": payload["config_key"], "source": "bench"}

    return map(event, itertools.count())


def rate(name: str, seconds: float, step: Callable[[], int]) -> float:
    """Repeat step, which returns how many events it was, for some seconds, and print the rate."""
    step()
    began, done = time.perf_counter(), 0
    while time.perf_counter() < began + seconds:
        done += step()
    reached = done / (time.perf_counter() - began)
    print(f"{name:44} {reached:>10,.0f} events/s")
    return reached


def main() -> None:
    """Measure one way after the other."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    source = events()
    encode = json.JSONEncoder(separators=(",", ":")).encode

    def encode_batch() -> int:
        encode([next(source) for _ in range(BATCH)])
        return BATCH

    rate("json alone, batches of 256", seconds, encode_batch)
    with Client() as log:
        leader = urllib.parse.urlsplit(log.cluster()["leader_http"])
        connection = http.client.HTTPConnection(leader.hostname or "", leader.port)

        def plain() -> int:
            body = encode([next(source) for _ in range(BATCH)])
            connection.request("POST", "/v1/events", body, {"Content-Type": "application/json"})
            if connection.getresponse().read().startswith(b'{"error"'):
                raise RuntimeError("refused")
            return BATCH

        base = rate("json and http.client, batches of 256", seconds, plain)

        def batch() -> int:
            log.publish_many([next(source) for _ in range(BATCH)])  # type: ignore[arg-type]
            return BATCH

        many = rate("publish_many, batches of 256", seconds, batch)

        def four() -> int:
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                return sum(pool.map(lambda _: sum(batch() for _ in range(25)), range(4)))

        threads = rate("publish_many, batches of 256, 4 threads", seconds, four)
        numbers = map(payload_of, itertools.count(1 << 40))

        def soon() -> int:
            for _ in range(BATCH):
                log.publish_soon("TRAINING_COMPLETED", next(numbers), source="bench")
            return BATCH

        background = rate("publish_soon", seconds, soon)
        log.flush()

        waits: list[float] = []

        def one() -> int:
            began = time.perf_counter()
            log.publish("TRAINING_COMPLETED", next(numbers))
            waits.append(time.perf_counter() - began)
            return 1

        rate("publish, one caller", seconds, one)
        print(f"{'publish, p50':44} {sorted(waits)[len(waits) // 2] * 1000:>10.2f} ms")

        cursor = log.cursor("bench-" + RUN, until_end=True)
        began, read = time.perf_counter(), 0
        with cursor:
            for event in cursor:
                read += 1
                if read % 10_000 == 0:
                    cursor.commit(event)
        reading = read / (time.perf_counter() - began)
        print(f"{'cursor, a commit each 10 000':44} {reading:>10,.0f} events/s, {read:,} events")
        log.delete_cursor("bench-" + RUN)

    async def asynchronous() -> None:
        async with AsyncClient() as log:
            began, done = time.perf_counter(), 0
            while time.perf_counter() < began + seconds:
                for _ in range(BATCH):
                    await log.publish_soon("TRAINING_COMPLETED", next(numbers), source="bench")
                done += BATCH
                await asyncio.sleep(0)
            await log.flush()
            print(f"{'asyncio: publish_soon':44} {done / (time.perf_counter() - began):>10,.0f} events/s")
            began, read = time.perf_counter(), 0
            async for _ in log.tail("start", until_end=True):
                read += 1
            print(f"{'asyncio: tail':44} {read / (time.perf_counter() - began):>10,.0f} events/s")

    asyncio.run(asynchronous())
    ratios = {"publish_many": many, "of 4 threads": threads, "publish_soon": background}
    print("\nto json and http.client:", ", ".join(f"{name} {reached / base:.2f}" for name, reached in ratios.items()))


if __name__ == "__main__":
    main()
