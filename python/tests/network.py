"""A network between clients and nodes that a test can cut: a proxy for each node."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Literal

Mode = Literal["open", "cut", "stalled", "deaf"]
"""cut: connections end and none begins. stalled: what is sent is held back. deaf: answers to events are lost."""


class Link:
    """The way to one node. url is what clients are to use."""

    def __init__(self, network: Network, port: int) -> None:
        self._network, self._port = network, port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            node = socket.create_connection(("127.0.0.1", self._port))
        except OSError:
            client.close()
            return
        pair = client, node
        events = threading.Event()  # are what was requested last
        with client, node:
            if self._network.add(pair):
                answers = threading.Thread(target=self._copy, args=(node, client, events, True), daemon=True)
                answers.start()
                self._copy(client, node, events, False)
                answers.join()
            self._network.remove(pair)

    def _copy(self, source: socket.socket, target: socket.socket, events: threading.Event, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not answers and b" HTTP/1.1\r\n" in data:
                    events.clear()
                    if b"POST /v1/events " in data or b"PUT /v1/scheduled/" in data:
                        events.set()
                if not self._network.passes(answers and events.is_set()):
                    break
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()


class Network:
    """Links that fail together."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._mode: Mode = "open"
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._links: list[Link] = []
        self._spared = 0
        self.lost = 0  # answers to events
        self.held = 0  # times that something was held back

    def link(self, port: int) -> str:
        """Return the URL of a new link to a port of this machine."""
        self._links.append(Link(self, port))
        return self._links[-1].url

    def become(self, mode: Mode, spared: int = 0) -> None:
        """Change how all links behave from now on. spared is how many answers to events still arrive while deaf."""
        with self._condition:
            self._mode, self._spared = mode, spared
            self._condition.notify_all()
            ended = [end for pair in self._pairs for end in pair] if mode == "cut" else []
        for end in ended:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def add(self, pair: tuple[socket.socket, socket.socket]) -> bool:
        """Note a connection; False if it must end at once."""
        with self._condition:
            if self._mode == "cut":
                return False
            self._pairs.add(pair)
            return True

    def remove(self, pair: tuple[socket.socket, socket.socket]) -> None:
        """Forget a connection that has ended."""
        with self._condition:
            self._pairs.discard(pair)

    def passes(self, answer: bool) -> bool:
        """Wait while nothing moves, and report whether what was received is handed on. answer is one to events."""
        with self._condition:
            self.held += self._mode == "stalled"
            self._condition.wait_for(lambda: self._mode != "stalled")
            lost = self._mode == "deaf" and answer
            if lost and self._spared:
                self._spared -= 1
                lost = False
            self.lost += lost
            return self._mode != "cut" and not lost

    def close(self) -> None:
        """End all connections."""
        self.become("cut")
        for link in self._links:
            link.close()
