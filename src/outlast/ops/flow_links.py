"""Links between jobs of flows: insert edges at enqueue, recount where counting down is not enough,
join followers, and hold flows.

The table `edge` has the prerequisites; the number that a dependent still waits for is in its own
row. The end of a job counts it down in the same transaction (`notify_dependents`), under a lock on
the dependent's row. A recount locks that row first and counts then, so that no end falls in
between. To make a job wait that did not wait before, lock its prerequisites first: a concurrent
finisher would otherwise miss the new edge.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from ..model.errors import (
    FlowClosed,
    FlowNotFound,
    InvalidFlow,
    JobNotFound,
    OutlastError,
    PrerequisiteFailed,
    Problem,
)
from ..model.job import NewFlow, NewJob
from ..model.lifecycle import State
from ..model.unreadable import read_state
from . import archive
from .access import ALL_JOBS
from .operation import Op, Rows, Statement

FAILED_STATES = (State.DEAD, State.CANCELLED)
MAX_EDGES_PER_STATEMENT = 50_000  # edges in one statement
MAX_RECOUNTED_JOBS = 2_500  # jobs recounted by one statement, whose cost may be quadratic


def insert_flows(
    jobs: Sequence[NewJob], flows: Sequence[NewFlow], held: Collection[str]
) -> Op[dict[str | None, OutlastError]]:
    """Insert flows, and lock the existing ones that the jobs join, except those already `held`;
    returns the errors of flows that cannot be joined. (Whether a job joins is known only at its
    insert: one that was sent before is in the flow already.)"""
    if flows:
        yield Statement("insert_flows", rows=[flow.row() for flow in flows])
    joined = {job.flow for job in jobs if job.flow is not None} - set(held)
    flow_states = (yield from hold_flows(joined)) if joined else {}
    closed: dict[str | None, OutlastError] = {}
    for flow in joined:
        cancelled, live = flow_states.get(flow, (False, True))
        if flow not in flow_states:
            closed[flow] = FlowNotFound(flow=flow)
        elif cancelled or not live:
            reason = "was cancelled" if cancelled else "has ended"
            closed[flow] = FlowClosed(flow=flow, reason=reason)
    return closed


def delete_empty_flows(flows: Sequence[NewFlow], empty: Collection[str]) -> Op[None]:
    """Delete flows whose jobs all existed already, under their keys."""
    if ids := [flow.id for flow in flows if flow.id in empty]:
        yield Statement("prune_parts", {"ids": json.dumps(ids)})
        yield Statement("prune_flows", {"ids": json.dumps(ids)})


def hold_flows(flows: Collection[str]) -> Op[dict[str, tuple[bool, bool]]]:
    """Lock flows; for each, whether it is cancelled, and whether any of its jobs has not ended."""
    rows: Rows = yield Statement("hold_flows", {"ids": json.dumps(sorted(flows))})
    return {id: (bool(cancelled), bool(live)) for id, cancelled, live in rows}


def link(jobs: Sequence[NewJob], replacements: dict[str, str], ours: bool) -> Op[dict[str, str]]:
    """Insert the edges of newly inserted jobs. `replacements` maps jobs refused for their keys to
    the existing jobs. Returns the states of the recounted jobs."""
    edges = [
        {"job": replacements.get(one, one), "follower": job.id, "place": position}
        for job in jobs
        for position, one in enumerate(job.after)
    ]
    for start in range(0, len(edges), MAX_EDGES_PER_STATEMENT):
        yield Statement("insert_edges", rows=edges[start : start + MAX_EDGES_PER_STATEMENT])
    inside = {job.id for job in jobs}
    outside = {
        job.id: before
        for job in jobs
        if job.waits_for
        and (before := {replacements.get(one, one) for one in job.after if one not in inside})
    }
    counted: dict[str, str] = {}
    if outside:
        newcomers = [job for job in jobs if job.id in outside]
        counted = yield from _link_existing(newcomers, outside, inside if not ours else None)
    return counted


def _link_existing(
    jobs: Sequence[NewJob], outside: dict[str, set[str]], inside: Collection[str] | None
) -> Op[dict[str, str]]:
    """Link jobs to existing prerequisites. In a transaction of its own this locks them briefly. A
    caller's transaction may stay open for long, and the locks would block their owners: there
    (`inside` has its own jobs) the new jobs are only marked, and a worker links them after the
    commit."""
    wanted = json.dumps(sorted(set().union(*outside.values())))
    statement = "hold_prerequisites" if inside is None else "read_prerequisites"
    rows: Rows = yield Statement(statement, {"ids": wanted})
    states = {id: read_state(state) for id, state in rows}
    archived = yield from _archived(set().union(*outside.values()).difference(states), inside)
    states |= dict.fromkeys(archived, State.SUCCEEDED)
    for job in jobs:
        for one in sorted(outside[job.id]):
            if one not in states:
                raise JobNotFound(job=one)
            if job.needs == "succeeded" and states[one] in FAILED_STATES:
                raise PrerequisiteFailed(job=one, state=states[one])
    if inside is not None and (
        archived or any(not state.final and id not in inside for id, state in states.items())
    ):
        yield Statement("mark_unlinked", {"ids": json.dumps([job.id for job in jobs])})
        return {}
    yield Statement("mark_has_dependents", {"ids": wanted})
    if inside is not None:
        # Locks those that are still here: one may have been archived meanwhile.
        rows = yield Statement(statement, {"ids": wanted})
        if len(rows) < len(states):
            yield Statement("mark_unlinked", {"ids": json.dumps([job.id for job in jobs])})
            return {}
    counted = yield from recount(job.id for job in jobs)
    return {id: state for id, state, _, _ in counted}


def _archived(missing: Collection[str], inside: Collection[str] | None) -> Op[set[str]]:
    """The prerequisites that are in the archive, or have just been moved back. A
    transaction of our own moves them back: a job that others wait for is not archived."""
    if not missing:
        return set()
    if inside is None:
        return (yield from archive.restore(missing))
    asked = Statement("read_prerequisites", {"ids": json.dumps(sorted(missing))})
    rows = yield from archive.find(asked, "past_in_reach", missing, **ALL_JOBS.params)
    return {row[0] for row in rows}


def join_followers(siblings: Sequence[tuple[str, str]], existing: dict[str, NewJob]) -> Op[None]:
    """Make the dependents of the second job of each pair also wait for the first: add to their
    counts, whatever these are by now. `existing` has the jobs that existed already under the keys
    of jobs to be added."""
    given = {"ids": json.dumps(sorted(existing))}
    known: Rows = (yield Statement("hold_prerequisites", given)) if existing else []
    states = {id: read_state(state) for id, state in known}
    sibling = {"ids": json.dumps(sorted({sibling for _, sibling in siblings}))}
    held: Rows = yield Statement("hold_followers", sibling)
    if not held:
        return
    yield from _refuse_joins(held, states, existing)
    rows = [
        {"id": id, "beside": sibling, "place": n} for n, (id, sibling) in enumerate(siblings, 1)
    ]
    joined: Rows = yield Statement("join_followers", rows=rows)
    more = Counter(f for job, f in joined if job not in states or not states[job].final)
    yield Statement("mark_has_dependents", {"ids": json.dumps([id for id, _ in siblings])})
    if more:
        yield Statement("wait_for_more", rows=[{"id": i, "more": n} for i, n in more.items()])


def _refuse_joins(held: Rows, states: dict[str, State], existing: dict[str, NewJob]) -> Op[None]:
    """Refuse existing jobs that have failed already, or that wait for their new dependents."""
    broken = [(id, state) for id, state in states.items() if state in FAILED_STATES]
    if broken and any(needs == "succeeded" for _, needs in held):
        raise PrerequisiteFailed(job=broken[0][0], state=broken[0][1])
    if waiting := {id for id, state in states.items() if state is State.WAITING}:
        followers = {"ids": json.dumps([id for id, _ in held])}
        rows: Rows = yield Statement("downstream", followers)
        if circular := sorted(waiting.intersection(id for (id,) in rows)):
            raise InvalidFlow(
                Problem(
                    f"the job of key {job.key!r} ({job.task})",
                    "already waits for a job of this call",
                )
                for job in (existing[id] for id in circular)
            )


def recount(ids: Iterable[str]) -> Op[Rows]:
    """Recount the prerequisites of these jobs, which this transaction must have locked. Returns id,
    state, queue and whether it has dependents for each job that changed. Large numbers are
    recounted in several statements, the later ones after the earlier ones have changed rows: a
    caller that also notifies dependents must pass at most MAX_RECOUNTED_JOBS."""
    found: Rows = []
    wanted = sorted(ids)
    for start in range(0, len(wanted), MAX_RECOUNTED_JOBS):
        some = wanted[start : start + MAX_RECOUNTED_JOBS]
        rows: Rows = yield Statement("recount", {"ids": json.dumps(some)})
        found = [*found, *rows]
    return found


def recount_followers(ids: Sequence[str]) -> Op[Rows]:
    """Recount all dependents of these jobs."""
    held: Rows = yield Statement("hold_followers", {"ids": json.dumps(sorted(ids))})
    return (yield from recount(id for id, _ in held)) if held else []
