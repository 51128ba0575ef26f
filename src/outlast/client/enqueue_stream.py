"""Enqueue the calls of an iterator: all or none, however many, in bounded memory.

    calls ─▶ jobs, checked ─▶ temporary file ─▶ one transaction, part by part

The file keeps the caller's code out of the transaction: a slow iterator holds no locks, a failing
one leaves nothing behind, and after a broken connection the insert is retried.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial

from ..model.errors import StoreError
from ..model.job import NewJob
from ..model.job_stream import PartBuilder
from ..ops.enqueue import notify_queues
from ..ops.enqueue_many import enqueue_parts
from ..ops.operation import Op
from ..store.caller.connection import can_copy_on
from ..tracing import count_enqueued, enqueuing, traced, tracer
from .enqueue import insert_jobs, is_copy_refused
from .faces import Face
from .job_file import JobFile
from .limits import declare_queues


async def enqueue_stream(
    on: Face, calls: Iterator[object] | AsyncIterator[object], conn: object = None
) -> int:
    """Enqueue the calls of an iterator as part of the current trace, if any; returns how many."""
    conn = on.ambient(conn)
    if (recorder := tracer()) is None:
        return await _enqueue(on, calls, conn)
    with enqueuing(recorder, []):
        number = await _enqueue(on, calls, conn)
        count_enqueued(number)
        return number


async def _enqueue(on: Face, calls: Iterator[object] | AsyncIterator[object], conn: object) -> int:
    with JobFile() as file:
        async for part in _parts(on, calls):
            if (check := on.parts.check_tenants) is not None:
                check(part)
            jobs = traced(part)
            if (blobs := on.parts.blobs) is not None and blobs.any_large(jobs):
                jobs = await on.in_thread(partial(blobs.put_arguments, jobs))
            file.write(jobs)
        await _insert(on, file, conn)
        return file.number


async def _parts(
    on: Face, calls: Iterator[object] | AsyncIterator[object]
) -> AsyncIterator[list[NewJob]]:
    builder = PartBuilder(on.parts.max_args_bytes)
    if isinstance(calls, AsyncIterator):
        async for call in calls:
            if part := builder.add(call):
                yield part
    else:
        for call in calls:
            if part := builder.add(call):
                yield part
                await on.sleep(0)  # lets other tasks of an event loop run
    if rest := builder.take():
        yield rest


async def _insert(on: Face, file: JobFile, conn: object) -> None:
    parts = on.parts
    if file.queues & (parts.bounded_queues | parts.quota_queues):
        # Their limits decide about all jobs of a call at once.
        await insert_jobs(on, [job for part in file.parts() for job in part], conn)
        return
    if conn is not None:
        await on.ready_beside_caller()
        await _insert_on(on, file, conn)
        return
    await declare_queues(on)
    try:
        await on.run(enqueue_parts, file.parts, copying=on.store.can_copy)
    except StoreError as error:
        if not is_copy_refused(error):
            raise
        await on.run(enqueue_parts, file.parts, copying=False)
    if on.store.can_notify:
        await on.notify(parts.notify_limiter.due(file.queues))


async def _insert_on(on: Face, file: JobFile, conn: object) -> None:
    copying = can_copy_on(conn)
    try:
        await on.run_on(conn, _insert_and_notify(on, file, copying=copying))
    except StoreError as error:
        if not copying or not is_copy_refused(error):
            raise
        await on.run_on(conn, _insert_and_notify(on, file, copying=False))


def _insert_and_notify(on: Face, file: JobFile, *, copying: bool) -> Op[None]:
    yield from enqueue_parts(file.parts, copying=copying, ours=False)
    if on.store.can_notify and (due := on.parts.tx_notify_limiter.due(file.queues)):
        yield from notify_queues(on.store.channel, due)
