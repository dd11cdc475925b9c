"""What happens in the child after a fork: every client drops connections, producers and waiting events."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forked(Protocol):
    """What is told of a fork."""

    def _after_fork(self) -> None: ...


# Clients of this process. It is the one state of the package: os.register_at_fork takes no registration back.
_clients: weakref.WeakSet[Forked] = weakref.WeakSet()


def watch(client: Forked) -> None:
    """Have a client's _after_fork called in every child."""
    _clients.add(client)


def _in_child() -> None:
    for client in list(_clients):
        client._after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_in_child)
