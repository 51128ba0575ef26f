"""Results: wait for them, convert them to the return types of their tasks, erase them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from ..model.arguments import decode_result
from ..model.blob import Blob
from ..model.errors import BlobLost, InvalidOption, NoBlobStore
from ..model.ids import new_job_id
from ..model.job import Job, lenient_json
from ..ops import report
from ..ops.erase import erased_error, take_result
from ..ops.report import ERASED
from .faces import Face, finish
from .resources import ClientResources
from .result_waiter import outcome_of
from .verb_arguments import actor, job_id

if TYPE_CHECKING:
    from .client import Outlast

T = TypeVar("T")


async def outcome(on: Face, id: str, timeout: float | None) -> Any:
    """The result column of a job's row, once the job has ended."""
    return outcome_of(id, await on.job_end(id, timeout), timeout)


@overload
def result(
    self: Outlast,
    id: Job[T],
    timeout: float | None = None,
    *,
    erase: bool = False,
    raw: Literal[False] = False,
) -> T: ...
@overload
def result(
    self: Outlast, id: str, timeout: float | None = None, *, erase: bool = False, raw: bool = False
) -> Any: ...
@overload
def result(
    self: Outlast, id: Job, timeout: float | None = None, *, erase: bool = False, raw: bool
) -> Any: ...


def result(
    self: Outlast,
    id: str | Job,
    timeout: float | None = None,
    *,
    erase: bool = False,
    raw: bool = False,
) -> Any:
    """Wait for a job and return its result. Raises JobDead, JobCancelled or ResultTimeout; and
    Erased, if it was erased. With `erase` it is erased as it is read, by the first reader.

    If the job's task is registered here, the result has the task's return type; ResultMismatch,
    if it cannot be converted. With `raw`, or for an id, it is the JSON value.
    """
    return finish(_result(self._blocking, id, timeout, erase=erase, raw=raw))


@overload
async def aresult(
    self: Outlast,
    id: Job[T],
    timeout: float | None = None,
    *,
    erase: bool = False,
    raw: Literal[False] = False,
) -> T: ...
@overload
async def aresult(
    self: Outlast, id: str, timeout: float | None = None, *, erase: bool = False, raw: bool = False
) -> Any: ...
@overload
async def aresult(
    self: Outlast, id: Job, timeout: float | None = None, *, erase: bool = False, raw: bool
) -> Any: ...


async def aresult(
    self: Outlast,
    id: str | Job,
    timeout: float | None = None,
    *,
    erase: bool = False,
    raw: bool = False,
) -> Any:
    return await _result(self._async, id, timeout, erase=erase, raw=raw)


async def _result(
    on: Face, id: str | Job, timeout: float | None, *, erase: bool, raw: bool
) -> object:
    _check_timeout(timeout)
    key = job_id(id)
    stored = await outcome(on, key, None if timeout is None else max(0.0, timeout))

    def read() -> Any:
        return _typed(on.parts, id, _loaded(on.parts, key, stored), raw)

    try:
        value = await on.in_thread(read) if isinstance(stored, Blob) else read()  # may be large
    except BlobLost:
        if not (await on.run(report.job, key)).forgotten:
            raise
        value = ERASED  # erased since its row was read
    if value is ERASED:
        raise await on.run(erased_error, key)
    if erase:  # only now: a crash before this point erases nothing
        await on.delete_blobs(await on.run(take_result, key, actor(), new_job_id()))
    return value


def _check_timeout(timeout: object) -> None:
    if timeout is None or (isinstance(timeout, int | float) and not math.isnan(timeout)):
        return
    reason = f"must be a number of seconds, or None to wait until the job ends, not {timeout!r:.80}"
    raise InvalidOption(option="timeout", reason=reason)


def _loaded(parts: ClientResources, id: str, stored: object) -> object:
    """A result, loaded from the blob store if the row refers to it."""
    if not isinstance(stored, Blob):
        return stored
    if parts.blobs is None:
        raise NoBlobStore(job=id, bytes=stored.size)
    return lenient_json(parts.blobs.text(id, stored))


def _typed(parts: ClientResources, job: str | Job, value: object, raw: bool) -> object:
    """Convert the JSON value to the return type of the job's task, if this process has the task."""
    if raw or value is ERASED or not isinstance(job, Job):
        return value
    if (definition := parts.registry.get(job.task)) is None:
        return value
    return decode_result(value, definition.arguments.returns, job.id, job.task)
