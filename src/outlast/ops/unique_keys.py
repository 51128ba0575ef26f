"""Unique keys: one holder each, compared and replaced before a job of that key is inserted.

    read the holders ─▶ still blocking: the caller gets the holder
            ▲           else: take the key from that holder ─▶ taken: insert
            └────────────────── another call was faster ◀──────┘

Lock and read are two statements: a statement that waited for another transaction's key would read
with a snapshot from before that transaction's job. The exchange names the holder that was seen, so
of two calls that saw the same one exactly one wins.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..model.blob import parse_reference
from ..model.errors import Contention, InvalidOption, KeyConflict
from ..model.job import Job, NewJob, read_job
from ..model.uniqueness import ACTIVE, DEBOUNCE, WAITING
from .operation import Op, Rows, Statement

MAX_ROUNDS = 20  # attempts to take a key that other calls keep taking


@dataclass(slots=True)
class UniqueJobs:
    """The outcome for the unique jobs of one call."""

    winners: dict[str, Job] = field(default_factory=dict)  # existing jobs by the ids of new ones
    twins: dict[str, str] = field(default_factory=dict)  # jobs of this call → their substitutes

    def answer(self, id: str, answers: Mapping[str, Job]) -> Job | None:
        """The job returned for a job of the call; None for one of a flow that was pruned since."""
        id = self.twins.get(id, id)
        return self.winners.get(id) or answers.get(id)

    def without(self, jobs: Iterable[NewJob]) -> list[NewJob]:
        """The jobs to insert."""
        return [job for job in jobs if job.id not in self.winners and job.id not in self.twins]


def take_unique(jobs: Sequence[NewJob]) -> Op[UniqueJobs]:
    """Take the keys of unique jobs, or find the jobs that hold them."""
    chosen = _one_per_key(jobs)
    found = UniqueJobs(twins={job.id: own.id for job, own in chosen if job is not own})
    open_ones = {own.id: own for _, own in chosen}
    if len(open_ones) > 1 and any(job.unique_mode == DEBOUNCE for job in jobs):
        yield Statement("lock_unique_keys", rows=[_wanted(job) for job in open_ones.values()])
    for _ in range(MAX_ROUNDS):
        rows: Rows = yield Statement("key_holders", rows=[_wanted(j) for j in open_ones.values()])
        sent = {id for id, _, _, sent, *_ in rows if sent}  # before, and the response was lost
        open_ones = {id: job for id, job in open_ones.items() if id not in sent}
        holders = {id: holder for id, holder, *_ in rows}
        blocking = {
            id: read_job(job)
            for id, _, in_the_way, _, *job in rows
            if in_the_way and id in open_ones
        }
        won = yield from _still_blocking(open_ones, blocking)
        found.winners |= won
        free = [job for job in open_ones.values() if job.id not in won]
        taken = (yield from _take(free, holders)) if free else set()
        open_ones = {job.id: job for job in free if job.id not in taken}
        if not open_ones:
            return found
    key = next(iter(open_ones.values())).key
    raise Contention(reason=f"other calls keep taking the unique key {key!r}")


def _one_per_key(jobs: Sequence[NewJob]) -> list[tuple[NewJob, NewJob]]:
    """Each job with the job of this call that represents its key: the first or, if debounced, the
    last. Sorted by key, so that two calls with many keys take them in the same order."""
    chosen: dict[tuple[str, str, str], NewJob] = {}
    for job in jobs:
        _refuse_reference(job)
        first = chosen.setdefault(_key(job), job)
        _refuse_other_task(job, first.task, first.id)
        if job.unique_mode == DEBOUNCE:
            chosen[_key(job)] = job
    return [(job, chosen[_key(job)]) for job in sorted(jobs, key=_key)]


def _still_blocking(jobs: Mapping[str, NewJob], blocking: dict[str, Job]) -> Op[dict[str, Job]]:
    """The holders that certainly block the call. A holder that has not started must not start
    before this transaction ends; a debounced one gets the call's arguments."""
    for id, job in blocking.items():
        _refuse_other_task(jobs[id], job.task, job.id)
    modes = {id: jobs[id].unique_mode for id in blocking}
    waiting = {id: job for id, job in blocking.items() if modes[id] == WAITING}
    debounced = {id: job for id, job in blocking.items() if modes[id] == DEBOUNCE}
    left = set(blocking).difference(waiting, debounced)
    if waiting:
        ids = json.dumps(sorted(job.id for job in waiting.values()))
        rows: Rows = yield Statement("hold_waiting", {"ids": ids})
        held = {id for (id,) in rows}
        left |= {id for id, job in waiting.items() if job.id in held}
    if debounced:
        blocking = blocking | (yield from _replace(jobs, debounced))
        left |= {id for id in debounced if blocking[id] is not debounced[id]}
    return {id: blocking[id] for id in left}


def _replace(jobs: Mapping[str, NewJob], holders: Mapping[str, Job]) -> Op[dict[str, Job]]:
    """Give holders that have not started the arguments of these calls; returns the changed
    holders."""
    ids = json.dumps(sorted(job.id for job in holders.values()))
    held: Rows = yield Statement("hold_debounced", {"ids": ids})
    first: dict[str, float] = dict(held)
    rows = [
        _replacement(jobs[id], job.id, first[job.id])
        for id, job in holders.items()
        if job.id in first
    ]
    replaced: Rows = yield Statement("replace_waiting", rows=rows)
    if started := [id for id, started in replaced if started]:
        yield Statement("prune_steps", {"ids": json.dumps(started)})
        yield Statement("prune_waits", {"ids": json.dumps(started)})
        yield Statement("prune_streams", {"ids": json.dumps(started)})
        yield Statement("prune_signals", {"ids": json.dumps(started)})
    read: Rows = yield Statement("existing_jobs", rows=[{"id": id} for id, _ in replaced])
    now = {row[0]: read_job(row[1:]) for row in read}
    return {id: now[job.id] for id, job in holders.items() if job.id in now}


def _replacement(job: NewJob, holder: str, first: float) -> dict[str, object]:
    names = ("args", "trace", "expires_at", "expires_in", "delay", "max_wait")
    return {"id": holder, "first": first, **{name: getattr(job, name) for name in names}}


def _take(jobs: Sequence[NewJob], holders: Mapping[str, str]) -> Op[set[str]]:
    """Make jobs the holders of their keys, unless another call was faster."""
    stale = json.dumps(sorted(holders[job.id] for job in jobs if job.id in holders))
    rows: Rows = yield Statement("take_unique_keys", {"ids": stale}, [_wanted(job) for job in jobs])
    return {id for (id,) in rows}


def unique_mode(job: str) -> Op[str | None]:
    """The unique mode of a job's key; None: unique as long as its row is kept."""
    rows: Rows = yield Statement("unique_mode", {"id": job})
    return rows[0][0] if rows else None


def held_keys(jobs: Sequence[NewJob]) -> Op[set[str]]:
    """Unique jobs whose keys are held by others, as far as visible without a lock."""
    rows: Rows = yield Statement("key_holders", rows=[_wanted(job) for job in jobs])
    return {id for id, _, in_the_way, *_ in rows if in_the_way}


def keys_to_revive(ids: Sequence[str]) -> Op[dict[str, str]]:
    """Take the keys of jobs that are unique while active and are to be redriven. Returns the jobs
    that cannot be, mapped to the unfinished holders of their keys."""
    rows: Rows = yield Statement("ended_active_keys", {"ids": json.dumps(sorted(ids))})
    refused: dict[str, str] = {}
    wanted: dict[tuple[str, str, str], str] = {}
    for id, *key in rows:  # newest first
        newest = wanted.setdefault((key[0], key[1], key[2]), id)
        if newest != id:
            refused[id] = newest
    for _ in range(MAX_ROUNDS if wanted else 0):
        asked = [_active_key(id, key) for key, id in sorted(wanted.items())]
        found: Rows = yield Statement("key_holders", rows=asked)
        holders = {id: holder for id, holder, *_ in found}
        refused |= {
            id: holder for id, holder, in_the_way, *_ in found if in_the_way and holder != id
        }
        free = [one for one in asked if one["id"] not in refused]
        stale = json.dumps(sorted(holders[one["id"]] for one in free if one["id"] in holders))
        taken: Rows = (yield Statement("take_unique_keys", {"ids": stale}, free)) if free else []
        missed = {one["id"] for one in free}.difference(id for (id,) in taken)
        wanted = {key: id for key, id in wanted.items() if id in missed}
        if not wanted:
            return refused
    if wanted:
        raise Contention(reason=f"other calls keep taking the unique key {min(wanted)[2]!r}")
    return refused


def _active_key(id: str, key: tuple[str, str, str]) -> dict[str, object]:
    tenant, queue, name = key
    return {"id": id, "tenant": tenant, "queue": queue, "key": name, "unique_mode": ACTIVE}


def _key(job: NewJob) -> tuple[str, str, str]:
    return job.tenant, job.queue, str(job.key)


def _wanted(job: NewJob) -> dict[str, object]:
    names = ("id", "tenant", "queue", "key", "unique_mode", "unique_span")
    return {name: getattr(job, name) for name in names}


def _refuse_other_task(job: NewJob, task: str, holder: str) -> None:
    if job.task != task:
        raise KeyConflict(
            f"The unique key {job.key!r} in queue {job.queue!r} belongs to job {holder} of task"
            f" {task!r}: use another key for {job.task!r}.",
            key=job.key,
            queue=job.queue,
            job=holder,
        )


def _refuse_reference(job: NewJob) -> None:
    if job.unique_mode == DEBOUNCE and parse_reference(job.args) is not None:
        raise InvalidOption(
            option="debounce",
            reason="needs arguments that fit into a row: store the data elsewhere, pass its key",
        )
