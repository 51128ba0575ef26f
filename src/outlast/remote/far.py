"""What a handler may ask for, far from the database: all but a connection to it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, cast

from ..model.errors import Unsupported
from ..model.job import _MOMENTS, Claim, Job, read_result
from ..model.unreadable import read_state
from ..ops.flow_report import prerequisites
from ..ops.steps import keep, look_up
from ..store import Store
from ..worker.context import Context

if TYPE_CHECKING:
    from .worker import RemoteWorker


class FarContext(Context):
    near = False

    def __init__(self, claim: Claim, worker: RemoteWorker) -> None:
        store = cast(Store, worker.far)  # as far as a context needs one
        super().__init__(claim, worker.say, store, blobs=worker.app.blobs)

    def completing(self, result: Any = None) -> NoReturn:
        raise Unsupported(
            reason="completing() needs the database's own connection, which a remote worker does"
            " not have: return the result instead, or run this task on a local worker"
        )


class FarStore:
    """Carries out the few operations that handlers ask for, by asking the server."""

    def __init__(self, worker: RemoteWorker) -> None:
        self._worker = worker

    def run(self, operation: Callable[..., Any], *args: Any) -> Any:
        """In a handler's thread; the worker's loop does the talking."""
        asked = self._worker.aside(self.arun(operation, *args))
        return asked.result()

    async def arun(self, operation: Callable[..., Any], *args: Any) -> Any:
        if isinstance(operation, partial):
            args = (*operation.args, *args)
            operation = operation.func
        if operation is look_up:
            return await self._step(self._token_of(args[0]), args[1], None)
        if operation is keep:
            return await self._step(self._worker.tokens.get(args[0].hold, ""), args[1], args[2])
        if operation is prerequisites:
            return await self._before(self._token_of(args[0]), args[1], args[2])
        raise Unsupported(reason=f"{operation.__name__} is not to be had on a remote worker")

    async def _step(self, token: str, name: str, result: str | None) -> str | None:
        said = {"token": token, "name": name, "result": result}
        kept: str | None = (await self._ask("steps", said))["result"]
        return kept

    async def _before(self, token: str, after: int, limit: int) -> list[tuple[int, Job]]:
        said = {"token": token, "after": after, "limit": limit}
        page = await self._ask("prerequisites", said)
        return [(place, _job(told)) for place, told in page["jobs"]]

    async def _ask(self, what: str, said: dict[str, Any]) -> Any:
        return await self._worker.line.post(f"/api/v1/tasks/{what}", said)

    def _token_of(self, job: str) -> str:
        """To read, whichever claim of ours on it will do."""
        return self._worker.token_of(job)


def _job(told: dict[str, Any]) -> Job:
    """As `Job.as_json` told it."""
    known = {name: value for name, value in told.items() if name in Job.__slots__}
    if isinstance(reference := told.get("reference"), str):
        known["result"] = read_result(reference)
    for name in _MOMENTS:
        if known.get(name) is not None:
            known[name] = datetime.fromisoformat(known[name])
    return Job(**{**known, "state": read_state(known["state"])})
