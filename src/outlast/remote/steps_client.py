"""Steps client: operations of handlers, run by the server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Any

from ..model.claim import Claim
from ..model.errors import Unsupported
from ..model.job import TIMESTAMPS, Job, read_result
from ..model.unreadable import read_state
from ..ops.flow_report import prerequisites
from ..ops.lanes import slow_down
from ..ops.steps import keep, look_up
from ..protocol import PREREQUISITES_PATH, SLOW_DOWN_PATH, STEPS_PATH
from ..worker.wakeup import Wakeup
from .session import RemoteSession


class RemoteStepsClient:
    """Runs the few operations that handlers need, by requests to the server. `send_output` sends
    the streamed output of a claim before a step is stored, which does not run again."""

    def __init__(
        self,
        session: RemoteSession,
        wakeup: Wakeup,
        send_output: Callable[[Claim], Awaitable[None]],
    ) -> None:
        self._session = session
        self._wakeup = wakeup
        self._send_output = send_output

    def run(self, operation: Callable[..., Any], *args: Any, **_: Any) -> Any:
        """From a handler's thread; the worker's loop sends the request."""
        assert self._wakeup.loop is not None
        return asyncio.run_coroutine_threadsafe(
            self.arun(operation, *args), self._wakeup.loop
        ).result()

    async def arun(self, operation: Callable[..., Any], *args: Any, **_: Any) -> Any:
        if isinstance(operation, partial):
            args = (*operation.args, *args)
            operation = operation.func
        if operation is look_up:
            return await self._step(self._token_of(args[0]), args[1], None)
        if operation is keep:
            await self._send_output(args[0])
            return await self._step(self._session.token(args[0]), args[1], args[2])
        if operation is prerequisites:
            return await self._prerequisites(self._token_of(args[0]), args[1], args[2])
        if operation is slow_down:
            body = {"token": self._session.token(args[0]), "seconds": args[1]}
            return (await self._session.client.post(SLOW_DOWN_PATH, body))["closed_until"]
        raise Unsupported(reason=f"{operation.__name__} is not available on a remote worker")

    async def _step(self, token: str, name: str, result: str | None) -> str | None:
        body = {"token": token, "name": name, "result": result}
        stored: str | None = (await self._session.client.post(STEPS_PATH, body))["result"]
        return stored

    async def _prerequisites(self, token: str, after: int, limit: int) -> list[tuple[int, Job]]:
        body = {"token": token, "after": after, "limit": limit}
        page = await self._session.client.post(PREREQUISITES_PATH, body)
        return [(position, _job(job_json)) for position, job_json in page["jobs"]]

    def _token_of(self, job: str) -> str:
        """The token of a job, under any claim: sufficient for reads."""
        return self._session.token_of(job)


def _job(job_json: dict[str, Any]) -> Job:
    """A job from the output of `Job.as_json`."""
    known = {name: value for name, value in job_json.items() if name in Job.__slots__}
    if isinstance(reference := job_json.get("reference"), str):
        known["result"] = read_result(reference)
    for name in TIMESTAMPS:
        if known.get(name) is not None:
            known[name] = datetime.fromisoformat(known[name])
    return Job(**{**known, "state": read_state(known["state"])})
