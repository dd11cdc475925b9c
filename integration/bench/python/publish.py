"""Publishes batches of events over HTTP with Python's standard library alone.

Usage: publish.py URL PROCESSES WARM_SECONDS SECONDS FILE

FILE has payloads, one JSON object a line, in the order of their keys. Each process
posts them again and again over one connection, each time with another iteration and
run, and so with another content. It prints {"events": N, "seconds": S}.
"""

import http.client
import itertools
import json
import multiprocessing
import sys
import time
import urllib.parse
import uuid

BATCH = 256
TYPES = ["TRAINING_STARTED", "TRAINING_PROGRESS", "TRAINING_COMPLETED", "EVALUATION_COMPLETED", "NEW_GAMES_AVAILABLE"]


def post(connection, path, batch):
    connection.request("POST", path, json.dumps(batch), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{answer.status}: {body[:500]!r}")


def batches(payloads):
    """Yields lists of events that are all unlike each other."""
    run, numbers, templates = uuid.uuid4().hex[:16], itertools.count(), itertools.cycle(payloads)
    while True:
        batch = []
        for number in itertools.islice(numbers, BATCH):
            payload = next(templates)
            batch.append({
                "type": TYPES[number % len(TYPES)],
                "payload": {**payload, "iteration": number, "run": run},
                "source": "bench-peers",
                "key": payload["config_key"],
            })
        yield batch


def publish(url, warm, seconds, payloads, ready, results):
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    events = batches(payloads)
    end = time.monotonic() + warm
    warmed = 0
    while time.monotonic() < end:
        post(connection, "/v1/events", next(events))
        warmed += BATCH
    ready.wait()
    began, done = time.monotonic(), 0
    while time.monotonic() < began + seconds:
        post(connection, "/v1/events", next(events))
        done += BATCH
    results.put((warmed, done, time.monotonic() - began))


def main():
    url, processes, warm, seconds, path = sys.argv[1:]
    with open(path) as lines:
        payloads = [json.loads(line) for line in lines]
    context = multiprocessing.get_context("fork")
    ready, results = context.Barrier(int(processes), timeout=60), context.Queue()
    workers = [
        context.Process(target=publish, args=(url, float(warm), float(seconds), payloads, ready, results), daemon=True)
        for _ in range(int(processes))
    ]
    for worker in workers:
        worker.start()
    answers = []
    while len(answers) < len(workers):
        try:
            answers.append(results.get(timeout=1))
        except Exception:
            if any(worker.exitcode for worker in workers):
                sys.exit("a process failed")
    for worker in workers:
        worker.join()
    print(json.dumps({
        "warmed": sum(warmed for warmed, _, _ in answers),
        "events": sum(done for _, done, _ in answers),
        "seconds": max(took for _, _, took in answers),
    }))


main()
