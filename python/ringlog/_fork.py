"""What happens at a fork: in the child every client drops connections, producers and waiting events."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Forked(Protocol):
    """What takes part in a fork."""

    def _before_fork(self) -> None: ...

    def _after_fork_in_parent(self) -> None: ...

    def _after_fork(self) -> None: ...


# Clients of this process, and those of a fork under way by its thread. It is the one state of the package:
# os.register_at_fork takes no registration back.
_clients: weakref.WeakSet[Forked] = weakref.WeakSet()
_forking: dict[int, list[Forked]] = {}


def watch(client: Forked) -> None:
    """Have a client's methods called at every fork."""
    _clients.add(client)


def _before() -> None:
    clients = _forking[threading.get_ident()] = list(_clients)
    for client in clients:
        client._before_fork()


def _in_parent() -> None:
    for client in _forking.pop(threading.get_ident()):
        client._after_fork_in_parent()


def _in_child() -> None:
    for client in _forking.pop(threading.get_ident()):
        client._after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
