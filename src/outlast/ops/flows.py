"""Jobs that wait for each other: how they are tied when they are enqueued, counted anew where
counting down is not enough, cancelled together, and read.

Who follows whom is in `edge`; how many a follower still waits for is in its own row. Whoever ends
a job counts it off in the same transaction (`consequences`), and locks the follower's row to do
so. Whoever counts anew locks that row first and counts then, so that no end falls in between.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from ..model.errors import FlowClosed, FlowNotFound, JobNotFound, PrerequisiteFailed
from ..model.job import NewJob
from ..model.lifecycle import State
from .statement import Op, Rows, Statement

BROKEN = (State.DEAD, State.CANCELLED)


def found_flows(jobs: Sequence[NewJob], held: Collection[str]) -> Op[None]:
    """Insert the flows that come to be with these jobs; hold those that they join."""
    flows = [flow for job in jobs for flow in job.founds]
    if flows:
        yield Statement("insert_flows", rows=[flow.row() for flow in flows])
    known = {flow.id for flow in flows} | set(held)
    joined = {job.flow for job in jobs if job.flow is not None} - known
    if joined:
        yield from _join(joined)


def forget_empty_flows(jobs: Sequence[NewJob]) -> Op[None]:
    """A flow whose jobs all stood already, under their keys, has none of its own."""
    if flows := [flow.id for job in jobs for flow in job.founds if flow.part_of is None]:
        yield Statement("prune_flows", {"ids": json.dumps(flows)})


def _join(flows: Collection[str]) -> Op[None]:
    standing = yield from hold_flows(flows)
    for flow in sorted(flows):
        if flow not in standing:
            raise FlowNotFound(flow=flow)
        cancelled, live = standing[flow]
        if cancelled or not live:
            raise FlowClosed(flow=flow, reason="was cancelled" if cancelled else "has ended")


def hold_flows(flows: Collection[str]) -> Op[dict[str, tuple[bool, bool]]]:
    """Of each flow whether it was cancelled, and whether any of it is still to end."""
    rows: Rows = yield Statement("hold_flows", {"ids": json.dumps(sorted(flows))})
    return {id: (bool(cancelled), bool(live)) for id, cancelled, live in rows}


def tie(jobs: Sequence[NewJob], instead: dict[str, str]) -> Op[None]:
    """Say who comes after whom, for jobs that have just been inserted. `instead` names the jobs
    that stand where others of the same call were refused for their keys."""
    edges = [
        {"job": instead.get(one, one), "follower": job.id, "place": place}
        for job in jobs
        for place, one in enumerate(job.after)
    ]
    if edges:
        yield Statement("insert_edges", rows=edges)
    inside = {job.id for job in jobs}
    late = [job for job in jobs if job.waits_for and _outside(job, inside, instead)]
    if late:
        yield from _come_after(late, inside, instead)
    if any(job.joins for job in jobs):
        yield from _join_followers(jobs)


def _outside(job: NewJob, inside: Collection[str], instead: dict[str, str]) -> set[str]:
    return {instead.get(one, one) for one in job.after} - set(inside)


def _come_after(
    jobs: Sequence[NewJob], inside: Collection[str], instead: dict[str, str]
) -> Op[None]:
    """Some of those that they come after stand already, and may have ended."""
    wanted = {id for job in jobs for id in _outside(job, inside, instead)}
    rows: Rows = yield Statement("hold_prerequisites", {"ids": json.dumps(sorted(wanted))})
    states = {id: State(state) for id, state in rows}
    for job in jobs:
        for one in _outside(job, inside, instead):
            if one not in states:
                raise JobNotFound(job=one)
            if job.needs == "succeeded" and states[one] in BROKEN:
                raise PrerequisiteFailed(job=one, state=states[one])
    yield Statement("tie", {"ids": json.dumps(sorted(wanted))})
    yield Statement("recount", {"ids": json.dumps([job.id for job in jobs])})


def _join_followers(jobs: Sequence[NewJob]) -> Op[None]:
    rows = [
        {"id": job.id, "beside": job.joins, "place": n + 1}
        for n, job in enumerate(job for job in jobs if job.joins)
    ]
    beside = sorted({row["beside"] for row in rows if row["beside"]})
    held: Rows = yield Statement("hold_followers", {"ids": json.dumps(beside)})
    if held:
        joined: Rows = yield Statement("join_followers", rows=rows)
        yield Statement("tie", {"ids": json.dumps([row["id"] for row in rows])})
        more = Counter(follower for (follower,) in joined)
        if more:
            yield Statement("wait_for_more", rows=[{"id": i, "more": n} for i, n in more.items()])


def recount(ids: Iterable[str]) -> Op[Rows]:
    """Count anew what these jobs wait for; they must be held by this transaction. Returns id,
    state, queue and whether its end concerns others, of each that waited."""
    rows: Rows = yield Statement("recount", {"ids": json.dumps(sorted(ids))})
    return rows


def recount_followers(ids: Sequence[str]) -> Op[Rows]:
    """The same for all who wait for any of these."""
    held: Rows = yield Statement("hold_followers", {"ids": json.dumps(sorted(ids))})
    return (yield from recount(id for (id,) in held)) if held else []
