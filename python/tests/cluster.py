"""Clusters of real nodes on this machine, for tests."""

from __future__ import annotations

import atexit
import functools
import itertools
import json
import logging
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import unittest
import urllib.request
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_program: list[str] = []
# A shell that starts the tests in the background may have them, and the programs that they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
logging.getLogger("ringlog").addHandler(logging.NullHandler())  # warnings are not printed among the results


def program() -> str:
    """Return the path of the ringlog binary: RINGLOG_BINARY, else one that is built once."""
    if not _program:
        if given := os.environ.get("RINGLOG_BINARY"):
            _program.append(given)
        else:
            folder = tempfile.mkdtemp(prefix="ringlog-python-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            subprocess.run(["go", "build", "-o", folder + "/ringlog", "./cmd/ringlog"], cwd=ROOT, check=True)
            _program.append(folder + "/ringlog")
    return _program[0]


# Ports below those that the kernel gives to outgoing connections, from a random one on: the clusters of a process get
# different ports, also while some of their nodes are stopped, and other processes most likely look elsewhere.
_ports = itertools.islice(itertools.cycle(range(15_000, 32_000)), random.randrange(17_000), None)


def free_ports(n: int) -> list[int]:
    """Return ports that nobody listens on now."""
    found: list[int] = []
    while len(found) < n:
        port = next(_ports)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    return found


def eventually(what: str, check: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until check returns something true. An exception of it counts as false."""
    until = time.monotonic() + seconds
    while True:
        last: object
        try:
            last = check()
            if last:
                return
        except Exception as e:
            last = e
        if time.monotonic() > until:
            raise AssertionError(f"not within {seconds} s: {what} (last: {last!r})")
        time.sleep(0.02)


class Node:
    """One voter."""

    def __init__(self, name: str, http: int, raft: int, folder: Path) -> None:
        self.name, self.http, self.raft, self.folder = name, http, raft, folder
        self.url = self.advertised = f"http://127.0.0.1:{http}"  # the second is known to other nodes and clients
        self.process: subprocess.Popen[bytes] | None = None

    def send(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it as kill -9 does."""
        self.send(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()


class Cluster:
    """Voters, each a process of its own."""

    def __init__(
        self, voters: int = 3, token: str = "", advertise: Callable[[Node], str] | None = None, tls: str = ""
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ringlog-python-"))
        ports = free_ports(2 * voters)
        self.nodes = [Node(f"n{i + 1}", ports[i], ports[voters + i], self.folder / f"n{i + 1}") for i in range(voters)]
        self.token = token
        self.tls = tls  # the mode, "" for none; the folder tls has the files
        if tls:
            self.cert("ca")
            for node in self.nodes:
                self.cert("node", node.name, "--host", "127.0.0.1")
                node.url = node.advertised = node.url.replace("http://", "https://")
        atexit.register(self.close)
        if advertise is not None:
            for node in self.nodes:
                node.advertised = advertise(node)
        for node in self.nodes:
            self.start(node)
        try:
            eventually("the cluster has a leader that all know", self._converged)
        except BaseException:
            self.close()
            raise

    @property
    def urls(self) -> str:
        return ",".join(node.advertised for node in self.nodes)

    def cert(self, *args: str) -> None:
        """Make certificates in the folder tls."""
        command = [program(), "cert", *args, "--dir", str(self.folder / "tls")]
        subprocess.run(command, check=True, capture_output=True)

    def start(self, node: Node) -> None:
        others = ",".join(other.url for other in self.nodes if other is not node)
        args = [
            program(), "serve", "--id", node.name, "--data-dir", str(node.folder),
            "--http", f"127.0.0.1:{node.http}", "--raft", f"127.0.0.1:{node.raft}",
            "--bootstrap-expect", str(len(self.nodes)), "--disk-min-free", "1048576",
            "--advertise-http", node.advertised.partition("://")[2],
        ]  # fmt: skip
        if self.tls:
            files = self.folder / "tls"
            args += [
                "--tls-mode", self.tls, "--tls-ca", str(files / "ca.pem"), "--tls-cert",
                str(files / f"node-{node.name}.pem"), "--tls-key", str(files / f"node-{node.name}-key.pem"),
            ]  # fmt: skip
        if not others:
            args += ["--heartbeat", "200ms"]  # after a start, a lone voter waits for a leader for that long, in vain
        env = {name: value for name, value in os.environ.items() if not name.startswith(("RINGLOG_", "RINGRIFT_"))}
        if self.token:
            env["RINGRIFT_CLUSTER_AUTH_TOKEN"] = self.token
        with open(self.folder / f"{node.name}.log", "ab") as log:
            node.process = subprocess.Popen(
                [*args, "--join", others] if others else args, stdout=log, stderr=log, env=env
            )

    def _status(self, node: Node) -> dict[str, object]:
        request = urllib.request.Request(node.url + "/v1/cluster")
        if self.token:
            request.add_header("Authorization", "Bearer " + self.token)
        trusting = ssl.create_default_context(cafile=self.folder / "tls" / "ca.pem") if self.tls else None
        with urllib.request.urlopen(request, timeout=2, context=trusting) as answer:
            status: dict[str, object] = json.load(answer)
            return status

    def _converged(self) -> bool:
        return all(self._status(node).get("leader_http") for node in self.nodes)

    def leader(self) -> Node:
        """Return the node that leads."""
        found: list[Node] = []

        def look() -> bool:
            for node in self.nodes:
                if node.process is not None and node.process.poll() is None:
                    url = self._status(node).get("leader_http")
                    found[:] = [n for n in self.nodes if n.advertised == url and n.process and n.process.poll() is None]
                    if found:
                        return True
            return False

        eventually("there is a leader", look)
        return found[0]

    def close(self) -> None:
        for node in self.nodes:
            if node.process is not None and node.process.poll() is None:
                node.send(signal.SIGCONT)
                node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@functools.lru_cache(None)
def shared(voters: int) -> Cluster:
    """Return a cluster that tests share until the interpreter's end. They must not harm it."""
    return Cluster(voters)


class ClusterTest(unittest.TestCase):
    """Tests that share a cluster of three voters."""

    cluster: Cluster

    @classmethod
    def setUpClass(cls) -> None:
        cls.cluster = Cluster()
        cls.addClassCleanup(cls.cluster.close)
