"""Admission to bounded queues: room is reserved before jobs are inserted.

Room is reserved in a short transaction of its own, never in the caller's: a row locked until the
caller commits would block all other producers. If the jobs are not inserted after all, their room
is missing until the next count. A count misses uncommitted jobs of other transactions, so a queue
may exceed its limit by those; jobs of the caller's own transaction are counted there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..model.admission import Admission, QueueRoom, grant
from ..model.job import Job, NewJob, read_job
from ..model.lifecycle import State
from .dependents import notify_dependents
from .enqueue import enqueue
from .job_actions import record_action
from .operation import BEGIN, Op, Pipeline, Rows, Statement, creates_database
from .unique_keys import held_keys


@creates_database
def take_room(queue: str, asked: int) -> Op[Admission | None]:
    """Reserve room for new jobs of a queue, if that much is known to be free."""
    given = {"queue": queue, "asked": asked}
    *_, taken = yield Pipeline([Statement("commit_lazily"), Statement("take_room", given)])
    if not taken:
        return None
    return Admission(queue, asked, asked, QueueRoom(None, None, int(taken[0][0]), 0, 0.0))


def count_here(queue: str) -> Op[int]:
    """The ready jobs of a queue that this transaction sees, including its own; 0 if the queue was
    counted recently."""
    found = yield from _read(queue)
    if found.fresh or found.unbounded:
        return 0
    rows: Rows = yield Statement("count_ready", {"queue": queue, "limit": found.most_waiting})
    return int(rows[0][0])


@creates_database
def admit(queue: str, asked: int, seen: int = 0) -> Op[Admission]:
    """Reserve room for new jobs of a queue; count its ready jobs if the known room is used up.
    `seen` is a lower bound of that count."""
    if (answer := (yield from take_room(queue, asked))) is not None:
        return answer
    found = yield from _read(queue)
    if found.fresh and not (full := grant(queue, asked, found)).taken:
        return full
    yield BEGIN
    yield Statement("hold_room", {"queue": queue})
    found = yield from _read(queue)
    if asked > found.room and not found.fresh:
        found = yield from _count(queue, found, seen)
    answer = grant(queue, asked, found)
    if answer.taken:
        yield Statement("take_room", {"queue": queue, "asked": answer.taken})
    return answer


def _read(queue: str) -> Op[QueueRoom]:
    rows: Rows = yield Statement("read_room", {"queue": queue})
    return QueueRoom(*rows[0]) if rows else QueueRoom(None, None, 0, 0, -1.0)


def _count(queue: str, found: QueueRoom, seen: int) -> Op[QueueRoom]:
    limit = 0 if found.unbounded else (found.most_waiting or 0)
    rows: Rows = yield Statement("count_ready", {"queue": queue, "limit": limit})
    counted = found.counted(max(seen, int(rows[0][0])))
    room = {"queue": queue, "room": counted.room, "waiting": counted.waiting}
    yield Statement("set_room", room)
    return counted


def existing_keyed(jobs: Sequence[NewJob]) -> Op[set[str]]:
    """New keyed jobs that would not be inserted, because their keys are taken."""
    plain = [job for job in jobs if job.unique_mode is None]
    rows: Rows = yield Statement("existing_jobs", rows=[job.row() for job in plain])
    held = yield from held_keys([job for job in jobs if job.unique_mode is not None])
    return {row[0] for row in rows} | held


@creates_database
def enqueue_bounded(
    jobs: Sequence[NewJob], full: Sequence[Admission], *, ours: bool = True
) -> Op[list[Job]]:
    """Insert jobs, and drop what full queues cannot hold, all or nothing. Only new jobs push others
    out: not one whose key is taken, and not one that was sent before."""
    yield BEGIN
    before: Rows = yield Statement("existing_jobs", rows=[{"id": job.id} for job in jobs])
    new = {job.id for job in jobs}.difference(row[0] for row in before)
    made = yield from enqueue(jobs, ours=ours)
    ready = {job.id: job for job in made if job.id in new and job.state is State.READY}
    dropped: list[str] = []
    for admission in full:
        here = [id for id, job in ready.items() if job.queue == admission.queue]
        dropped += yield from _drop_overflow(admission, here)
    if not dropped:
        return made
    rows: Rows = yield Statement("existing_jobs", rows=[{"id": id} for id in sorted(dropped)])
    now = {row[0]: read_job(row[1:]) for row in rows}
    return [now.get(job.id, job) for job in made]


def _drop_overflow(admission: Admission, new: Sequence[str]) -> Op[Sequence[str]]:
    """Drop the new jobs that a queue has no room for, or older ones instead; returns the dropped
    new ones."""
    if len(new) <= admission.taken:
        return ()
    if admission.found.overflow == "drop_new":
        yield from _drop(new[admission.taken :], admission.queue, "new")
        return new[admission.taken :]
    surplus = new[: max(0, len(new) - (admission.found.most_waiting or 0))]
    if surplus:
        yield from _drop(surplus, admission.queue, "oldest")
    yield from _drop_oldest(admission.queue, len(new) - admission.taken - len(surplus), new)
    return surplus


def _drop_oldest(queue: str, number: int, new: Sequence[str]) -> Op[None]:
    given = {"queue": queue, "new": json.dumps(sorted(new))}
    while number > 0:
        rows: Rows = yield Statement("oldest_ready", {**given, "limit": number})
        if not rows:
            return  # claimed by workers first
        yield from _drop([id for (id,) in rows], queue, "oldest")
        number -= len(rows)


def _drop(ids: Sequence[str], queue: str, which: str) -> Op[None]:
    """Cancel jobs of a full queue, and notify their dependents."""
    error: dict[str, object] = {
        "type": "QueueFull", "message": f"dropped: the queue {queue!r} was full", "traceback": "",
    }  # fmt: skip
    given = {"ids": json.dumps(list(ids)), "error": json.dumps(error)}
    rows: Rows = yield Statement("drop_jobs", given)
    yield from notify_dependents([(id, State.CANCELLED) for id, tied in rows if tied])
    if rows:
        data = {"queue": queue, "dropped": which}
        yield from record_action("drop", [id for id, _ in rows], data)
