"""Room in bounded queues: reserve it before an enqueue, or refuse, wait, or drop jobs."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..model.admission import Admission, needs_room
from ..model.errors import QueueFull
from ..model.job import NewJob
from ..ops.admission import admit, count_here, existing_keyed, take_room
from ..store.dialects import SQLITE
from .faces import Face

WAIT_FOR_ROOM_S = 30.0
FIRST_PAUSE_S, MAX_PAUSE_S = 0.02, 0.5


async def make_room(on: Face, jobs: Sequence[NewJob], conn: object) -> list[Admission]:
    """Reserve room in every bounded queue of these jobs; returns the queues in which jobs must be
    dropped."""
    bounded, now = on.parts.bounded_queues, time.time()
    by_queue: dict[str, list[NewJob]] = {}
    for job in jobs:
        if job.queue in bounded and needs_room(job, now):
            by_queue.setdefault(job.queue, []).append(job)
    answers = [await _take(on, queue, some, conn) for queue, some in sorted(by_queue.items())]
    return [answer for answer in answers if answer.missing]


async def _take(on: Face, queue: str, jobs: Sequence[NewJob], conn: object) -> Admission:
    """Reserve room by the queue's policy; QueueFull if there is none in time."""
    until = time.monotonic() + WAIT_FOR_ROOM_S
    # SQLite has one writer, the caller's transaction: no job finishes while it waits.
    inside = conn is not None and on.store.address.dialect == SQLITE
    pause, asked = FIRST_PAUSE_S, len(jobs)
    while True:
        answer = await _ask(on, queue, asked, conn, inside=inside)
        found = answer.found
        if not answer.missing or found.overflow in ("drop_oldest", "drop_new"):
            return answer
        if asked == len(jobs) and (existing := await existing_ids(on, jobs, conn)):
            asked -= len(existing)
            continue
        hopeless = inside or asked > (found.most_waiting or 0)
        if found.overflow != "wait" or hopeless or time.monotonic() + pause > until:
            raise QueueFull(
                queue=queue, waiting=found.waiting, most_waiting=found.most_waiting, asked=asked
            )
        await on.sleep(pause)
        pause = min(2 * pause, MAX_PAUSE_S)


async def existing_ids(on: Face, jobs: Sequence[NewJob], conn: object) -> set[str]:
    """Jobs whose keys are taken: their callers get the existing jobs, even if the queue is full."""
    if not (keyed := [job for job in jobs if job.key is not None]):
        return set()
    if conn is not None:
        return await on.run_on(conn, existing_keyed(keyed))
    return await on.run(existing_keyed, keyed)


async def _ask(on: Face, queue: str, asked: int, conn: object, *, inside: bool) -> Admission:
    if inside:
        return await on.run_on(conn, admit(queue, asked))
    if conn is None:
        return await on.run(admit, queue, asked)
    if (answer := await on.run(take_room, queue, asked)) is not None:
        return answer
    return await on.run(admit, queue, asked, await on.run_on(conn, count_here(queue)))
