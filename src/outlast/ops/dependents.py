"""What the end of a job means for others: every way to a final state passes here, in the same
transaction.

    ended ─┬─▶ hooks       the jobs that were to be made when it ends so
           ├─▶ team        so many failures, and the rest of its group is to be cancelled
           └─▶ followers   counted off; the last one starts them. One that needed a success ends,
                           and its own end passes here in turn
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from types import MappingProxyType

from ..model.ids import new_job_id
from ..model.job import NewJob
from ..model.lifecycle import State
from .enqueue import enqueue
from .flow_links import FAILED_STATES
from .operation import Op, Pipeline, Rows, Statement

NO_TRACES: Mapping[str, str] = MappingProxyType({})
Ending = tuple[str, str]  # a job by its id, and the final state that it has come to


def notify_dependents(
    ended: Sequence[Ending], traces: Mapping[str, str] = NO_TRACES
) -> Op[set[str]]:
    """Tell everyone whom the end of these jobs concerns; returns the queues in which something
    became ready. `traces` has the spans of their last attempts."""
    if not ended:
        return set()
    dependents, counted = yield Pipeline(dependents_statements(ended))
    return (yield from apply_counted(dependents, counted, traces))


def dependents_statements(ended: Sequence[Ending]) -> tuple[Statement, Statement]:
    """Look up whom the end of these jobs concerns, and count them off for those who wait."""
    ids = json.dumps(sorted(id for id, _ in ended))
    rows = [{"id": id, "state": state} for id, state in ended]
    return Statement("dependents", {"ids": ids}), Statement("notify_followers", rows=rows)


def apply_counted(
    dependents: Rows, counted: Rows, traces: Mapping[str, str] = NO_TRACES
) -> Op[set[str]]:
    """What follows from the answers: hooks, broken teams, and the ends of all who waited in vain,
    of which others are told in turn."""
    queues: set[str] = set()
    while True:
        queues |= {queue for _, state, queue, _ in counted if state == State.READY}
        if dependents:
            yield from _fail_groups(dependents)
            queues |= yield from _enqueue_hooks(dependents, traces)
        ended = [(id, state) for id, state, _, tied in counted if state in FAILED_STATES and tied]
        if not ended:
            return queues
        ids = json.dumps(sorted(id for id, _ in ended))
        failed: Rows = yield Statement("fail_followers", {"ids": ids})
        ended += [(id, state) for id, state, tied in failed if tied]
        dependents, counted = yield Pipeline(dependents_statements(ended))


def _fail_groups(dependents: Rows) -> Op[None]:
    failed = Counter(group for _, state, _, group in dependents if group and state in FAILED_STATES)
    causes = {
        group: {"reason": f"job {id} is {state}", "job": id}
        for id, state, _, group in dependents
        if state in FAILED_STATES
    }
    rows = [{"id": group, "failed": failed[group], **causes[group]} for group in sorted(failed)]
    if rows:
        yield Statement("fail_groups", rows=rows)


def _enqueue_hooks(dependents: Rows, traces: Mapping[str, str]) -> Op[set[str]]:
    """The new jobs can read the one that ended as any follower can; it has ended, so they wait for
    nothing. They belong under the attempt that ended, if it was traced."""
    hooks_due = [job for id, state, hooks, _ in dependents for job in _hook_jobs(hooks, state, id)]
    if traces:
        hooks_due = [replace(job, trace=traces.get(job.after[0], job.trace)) for job in hooks_due]
    enqueued = yield from enqueue(hooks_due)
    return {job.queue for job in enqueued if job.state is State.READY}


def _hook_jobs(hooks: str | None, state: str, id: str) -> list[NewJob]:
    """The jobs to be made when a job ends so. What cannot be read is not made: no job's end, and no
    end beside it, may fail of that. What a newer release says beside is left out."""
    try:
        rows = json.loads(hooks or "{}").get(state, [])
        known = [{name: hook[name] for name in _FIELDS if name in hook} for hook in rows]
        fixed = {"needs": "finished", "after": (id,)}
        return [NewJob(**hook | fixed | {"id": new_job_id()}) for hook in known]
    except (ValueError, AttributeError, TypeError):
        return []


_FIELDS = [field.name for field in fields(NewJob)]
