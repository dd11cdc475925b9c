"""A coordinator of the platform's registry: coordinator.py NAME. It notes its start and its end in the file of NOTES."""

import os
import signal
import socket
import sys
import threading

from ringlog.compat.event_router import UnifiedEventRouter

name = sys.argv[1]


def note(what: str) -> None:
    with open(os.environ["NOTES"], "a") as file:
        file.write(f"{what} {name}\n")


note("start")
if name == os.environ.get("FAILS"):
    sys.exit("this one fails")
ended = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: ended.set())
if name == os.environ.get("HANGS"):
    ended.wait()
    sys.exit()

router = UnifiedEventRouter(source=name)
try:
    router.subscribe_coordinator(name, lambda event: None)
except ValueError:
    # The registry does not list what it subscribes to.
    subscription = {"name": name, "filter": {"types": ["TRAINING_COMPLETED"]}, "mode": "live", "state": "attached"}
    registration = {"host": socket.gethostname(), "pid": os.getpid(), "coordinator": name, "ttl": "60s"}
    router.log.request("PUT", f"/v1/clients/{name}", {**registration, "subscriptions": [subscription]})
ended.wait()
note("end")
