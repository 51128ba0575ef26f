"""Room in bounded queues: taken before an enqueue, or refused, waited for, or made by dropping."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..model.admission import Admission
from ..model.errors import QueueFull
from ..model.job import NewJob
from ..ops.admission import NOTHING, Dropping, admit, count_here, take_room
from ..store.dialects import SQLITE
from .faces import Face

WAIT_FOR_ROOM_S = 30.0
FIRST_PAUSE_S, MAX_PAUSE_S = 0.02, 0.5


async def make_room(on: Face, jobs: Sequence[NewJob], conn: object) -> Dropping:
    """Take room in every bounded queue of these jobs; returns what is dropped for it."""
    by_queue: dict[str, list[str]] = {}
    for job in jobs:
        if job.queue in on.parts.bounded_queues:
            by_queue.setdefault(job.queue, []).append(job.id)
    oldest: list[tuple[str, int]] = []
    new: set[str] = set()
    for queue, ids in sorted(by_queue.items()):
        answer = await _take(on, queue, len(ids), conn)
        if answer.missing and answer.found.overflow == "drop_oldest":
            oldest.append((queue, answer.missing))
        elif answer.missing:
            new.update(ids[answer.taken :])
    return Dropping(tuple(oldest), frozenset(new)) if oldest or new else NOTHING


async def _take(on: Face, queue: str, asked: int, conn: object) -> Admission:
    """Room, as the queue's policy has it; QueueFull if there is none in time."""
    until = time.monotonic() + WAIT_FOR_ROOM_S
    # SQLite has one writer, the caller's transaction: nothing is drained while it waits.
    inside = conn is not None and on.store.address.dialect == SQLITE
    pause = FIRST_PAUSE_S
    while True:
        answer = await _ask(on, queue, asked, conn, inside=inside)
        found = answer.found
        if not answer.missing or found.overflow in ("drop_oldest", "drop_new"):
            return answer
        hopeless = inside or asked > (found.most_waiting or 0)
        if found.overflow != "wait" or hopeless or time.monotonic() + pause > until:
            raise QueueFull(
                queue=queue, waiting=found.waiting, most_waiting=found.most_waiting, asked=asked
            )
        await on.sleep(pause)
        pause = min(2 * pause, MAX_PAUSE_S)


async def _ask(on: Face, queue: str, asked: int, conn: object, *, inside: bool) -> Admission:
    if inside:
        return await on.run_on(conn, admit(queue, asked))
    if conn is None:
        return await on.run(admit, queue, asked)
    if (answer := await on.run(take_room, queue, asked)) is not None:
        return answer
    return await on.run(admit, queue, asked, await on.run_on(conn, count_here(queue)))
