"""`GroupResult`: the results of a group's jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from ...model.errors import Unsupported
from .result import AsyncResult, refuse_callbacks, refuse_in_task


class GroupResult:
    """The results of a group's jobs, in the order of the group."""

    def __init__(
        self,
        id: str | None = None,
        results: Sequence[AsyncResult | GroupResult] = (),
        parent: AsyncResult | GroupResult | None = None,
    ) -> None:
        self.id = id
        self.results = list(results)
        self.parent = parent

    @property
    def children(self) -> list[AsyncResult | GroupResult]:
        return self.results

    def ready(self) -> bool:
        return all(one.ready() for one in self.results)

    def successful(self) -> bool:
        return all(one.successful() for one in self.results)

    def failed(self) -> bool:
        return any(one.failed() for one in self.results)

    def waiting(self) -> bool:
        return not self.ready()

    def completed_count(self) -> int:
        return sum(int(one.successful()) for one in self.results)

    def get(
        self,
        timeout: float | None = None,
        propagate: bool = True,
        disable_sync_subtasks: bool = True,
        **waiting: object,
    ) -> list[Any]:
        """All results, in order; `timeout` applies to all of them together."""
        refuse_in_task(disable_sync_subtasks)
        refuse_callbacks(waiting)
        until = None if timeout is None else time.monotonic() + timeout
        found = []
        for one in self.results:
            left = None if until is None else max(0.0, until - time.monotonic())
            found.append(one.get(left, propagate, disable_sync_subtasks))
        return found

    join = get

    async def aget(self, timeout: float | None = None, propagate: bool = True) -> list[Any]:
        until = None if timeout is None else time.monotonic() + timeout
        found = []
        for one in self.results:
            left = None if until is None else max(0.0, until - time.monotonic())
            found.append(await one.aget(left, propagate))
        return found

    def revoke(self, terminate: bool = False, **_: object) -> None:
        for one in self.results:
            one.revoke(terminate)

    def forget(self) -> None:
        for one in self.results:
            one.forget()

    def save(self) -> None:
        """Not supported: a flow is stored with its jobs; keep the id, and see app.ol.flow(id)."""
        raise Unsupported(reason="a group is a flow, stored already: see app.ol.flow(result.id)")

    def __iter__(self) -> Iterator[AsyncResult | GroupResult]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, index: int) -> AsyncResult | GroupResult:
        return self.results[index]

    def __repr__(self) -> str:
        return f"<GroupResult: {self.id} [{', '.join(map(str, self.results))}]>"
