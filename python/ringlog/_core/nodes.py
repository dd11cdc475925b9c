"""Which node to ask: the leader where it is known, else the one that answered last, else in the order given.

A call aside, which any node serves as well, goes to the leader last; which of the others is first differs from client
to client.
"""

from __future__ import annotations

import random
import threading
import time

from ringlog._core.config import Endpoint, parse_endpoint
from ringlog._core.io import Connection

MAX_NODES = 64  # bounds the list against nodes that name ever new leaders
MIN_AVOID, MAX_AVOID = 1.0, 15.0  # seconds for which a node that failed is asked last
MAX_IDLE = 16  # connections kept for a node


class Node:
    """A node with its idle connections, of which the last one was used last."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.idle: list[Connection] = []
        self.failures = 0
        self.avoid_until = 0.0  # by time.monotonic()
        self.leads = False  # it did when it answered last

    def take_idle(self) -> Connection | None:
        """Return an idle connection that is still open, None if there is none."""
        while self.idle:
            try:
                connection = self.idle.pop()
            except IndexError:  # another thread was faster
                return None
            if not connection.is_stale():
                return connection
            connection.close()
        return None

    def put_idle(self, connection: Connection) -> None:
        """Keep a connection for the next request."""
        if len(self.idle) >= MAX_IDLE:
            connection.close()
        else:
            self.idle.append(connection)


class Nodes:
    """The nodes of a cluster. Safe for use by several threads."""

    def __init__(self, endpoints: list[Endpoint]) -> None:
        self._lock = threading.RLock()  # the handler of a signal may call, too
        self.all = [Node(endpoint) for endpoint in dict.fromkeys(endpoints)]
        self._preferred: Node | None = None
        self._aside = random.randrange(1 << 32)  # which node is the first for calls aside, modulo their number

    def pick(self, tried: list[Node], choosy: bool, aside: bool) -> Node | None:
        """Return the best node that is not in tried, None if all are.

        With choosy it is none that failed lately: where others answer, a call must not wait for a
        machine that is gone. With aside the leader is the last choice.
        """
        with self._lock:
            now = time.monotonic()
            first = self._aside % len(self.all) if aside else 0
            candidates = [
                n
                for n in self.all[first:] + self.all[:first]
                if not any(n is t for t in tried) and not (choosy and now < n.avoid_until)
            ]
            return min(candidates, key=lambda n: self._rank(n, now, aside), default=None)

    def _rank(self, node: Node, now: float, aside: bool) -> tuple[float, bool]:
        """Return what sorts nodes: those that failed lately last, and the leader before its equals or after them."""
        last = node.leads if aside else node is not self._preferred
        return (node.avoid_until if now < node.avoid_until else 0.0), last

    def worked(self, node: Node, leader: str) -> None:
        """Note that a node served a request, and which leader it named, "" for none."""
        with self._lock:
            node.failures, node.avoid_until = 0, 0.0
            # A single endpoint may be a proxy's, and is kept to.
            if leader and len(self.all) > 1:
                self._follow(node, leader)
                node.leads = self._preferred is node
            elif self._preferred is None:
                self._preferred = node

    def failed(self, node: Node) -> None:
        """Note that a node did not answer. The time for which it is avoided doubles with each failure in a row."""
        with self._lock:
            node.avoid_until = time.monotonic() + min(MIN_AVOID * 2 ** min(node.failures, 10), MAX_AVOID)
            node.failures += 1
            if self._preferred is node:
                self._preferred = None
        self._close_idle(node)

    def declined(self, node: Node, leader: str) -> None:
        """Note that a node answered but cannot serve, and which leader it named, "" for none."""
        with self._lock:
            if self._preferred is node:
                self._preferred = None
            if leader:
                self._follow(node, leader)

    def _follow(self, node: Node, leader: str) -> None:
        """Prefer the leader that a node named. The caller holds the lock."""
        # The token must not be sent in clear because a node names its plain address.
        if node.endpoint.scheme == "https":
            leader = leader.replace("http://", "https://", 1)
        try:
            endpoint = parse_endpoint(leader if "://" in leader else f"{node.endpoint.scheme}://{leader}")
        except ValueError:
            return
        known = next((n for n in self.all if n.endpoint == endpoint), None)
        if known is None and len(self.all) < MAX_NODES:
            known = Node(endpoint)
            self.all.append(known)
        self._preferred = known or self._preferred

    def close(self) -> None:
        """Close all idle connections."""
        for node in self.all:
            self._close_idle(node)

    @staticmethod
    def _close_idle(node: Node) -> None:
        while node.idle:
            node.idle.pop().close()

    def after_fork(self) -> None:
        """Leave the connections to the parent: the child closes its copies without a word to the other side."""
        self._lock = threading.RLock()  # the handler of a signal may call, too
        self.close()
