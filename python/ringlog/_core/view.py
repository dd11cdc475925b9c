"""Views: what is asked of one, and the rows that change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from ringlog._core.calls import LINEARIZABLE, Query, path
from ringlog._core.checks import check_name, check_number
from ringlog._core.reader import Reader, log_gap
from ringlog.answers import ViewChange, ViewInfo, ViewRow
from ringlog.event import Json

if TYPE_CHECKING:
    from ringlog._core.operations import Operations


class ViewState:
    """A view by its name."""

    def __init__(self, operations: Operations, name: str) -> None:
        check_name("view", name)
        self._operations, self.name = operations, name

    async def info(self) -> ViewInfo:
        """Return the view as a node has it."""
        return cast(ViewInfo, await self._operations.request("GET", path("views", self.name), None, LINEARIZABLE))

    async def define(self, declaration: Mapping[str, Any]) -> ViewInfo:
        """Define the view, or define it otherwise."""
        return cast(ViewInfo, await self._operations.request("PUT", path("views", self.name), dict(declaration)))

    async def remove(self) -> ViewInfo:
        """Remove the view."""
        return cast(ViewInfo, await self._operations.request("DELETE", path("views", self.name)))

    async def get(self, key: str, at: int | None) -> ViewRow:
        """Return the row of a key."""
        check_name("key", key)
        query: Query = {**LINEARIZABLE, **_as_of(at), "key": key}
        page = await self._operations.request("GET", path("views", self.name, "rows"), None, query)
        return cast(ViewRow, page["rows"][0])

    async def rows(self, at: int | None) -> list[ViewRow]:
        """Return all rows."""
        found = await self._operations._pages(path("views", self.name, "rows"), "rows", _as_of(at))
        return cast("list[ViewRow]", found)

    def watch(self, keys: tuple[str, ...]) -> RowReader:
        """Return what reads the rows that change."""
        for key in keys:
            check_name("key", key)
        self._operations._check_open()
        return RowReader(self._operations, path("views", self.name, "watch"), keys)


def _as_of(at: int | None) -> dict[str, str | list[str]]:
    """Return the parameter of a read as of an offset."""
    if at is None:
        return {}
    check_number("at", at, 1, 1 << 53, 100, whole=True)
    return {"at": str(at)}


class RowReader(Reader):
    """Reads the lines of a watch. After a reconnect all rows are sent again: there is no offset to resume after."""

    def __init__(self, operations: Operations, target: str, keys: tuple[str, ...]) -> None:
        query: dict[str, str | list[str]] = {"key": list(keys)} if keys else {}
        super().__init__(operations._calls, target, query, "", 0, log_gap, "watch of a view")
        self._follows = True

    async def next_row(self) -> ViewChange | None:
        """Return the next row, None after the end."""
        return cast("ViewChange | None", await self.next())

    def _take_control(self, record: Json) -> None:
        if "row" in record:
            self._buffer.append(record)
        else:
            super()._take_control(record)
            self._resume = 0
