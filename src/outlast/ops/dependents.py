"""Effects of a job's end on others: every transition to a final state passes here, in the same
transaction.

    ended ─┬─▶ hooks       jobs to be enqueued at this end
           ├─▶ group       after enough failures, the rest of it is cancelled
           ├─▶ waiters     jobs whose handlers wait for this one are started
           └─▶ dependents  counted down; the last prerequisite starts them. A dependent that needed
                           a success ends, and its own end passes here in turn
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
from .waits import wake_waiters

NO_TRACES: Mapping[str, str] = MappingProxyType({})
Ending = tuple[str, str]  # a job's id and its final state


def notify_dependents(
    ended: Sequence[Ending], traces: Mapping[str, str] = NO_TRACES
) -> Op[set[str]]:
    """Apply the end of these jobs to all dependents; returns the queues in which jobs became ready.
    `traces` has the spans of their last attempts."""
    if not ended:
        return set()
    dependents, counted = yield Pipeline(dependents_statements(ended))
    return (yield from apply_counted(dependents, counted, traces))


def dependents_statements(ended: Sequence[Ending]) -> tuple[Statement, Statement]:
    """Look up the dependents of these jobs, and count down those that wait."""
    ids = json.dumps(sorted(id for id, _ in ended))
    rows = [{"id": id, "state": state} for id, state in ended]
    return Statement("dependents", {"ids": ids}), Statement("notify_followers", rows=rows)


def apply_counted(
    dependents: Rows, counted: Rows, traces: Mapping[str, str] = NO_TRACES
) -> Op[set[str]]:
    """Apply the returned rows: hooks, failed groups, and the ends of jobs whose prerequisites
    failed; their dependents are notified in turn."""
    queues: set[str] = set()
    while True:
        queues |= {queue for _, state, queue, _ in counted if state == State.READY}
        if dependents:
            yield from _fail_groups(dependents)
            queues |= yield from wake_waiters([id for id, *_, awaited in dependents if awaited])
            queues |= yield from _enqueue_hooks(dependents, traces)
        ended = [(id, state) for id, state, _, tied in counted if state in FAILED_STATES and tied]
        if not ended:
            return queues
        ids = json.dumps(sorted(id for id, _ in ended))
        failed: Rows = yield Statement("fail_followers", {"ids": ids})
        ended += [(id, state) for id, state, tied in failed if tied]
        dependents, counted = yield Pipeline(dependents_statements(ended))


def _fail_groups(dependents: Rows) -> Op[None]:
    failed = Counter(
        group for _, state, _, group, _ in dependents if group and state in FAILED_STATES
    )
    causes = {
        group: {"reason": f"job {id} is {state}", "job": id}
        for id, state, _, group, _ in dependents
        if state in FAILED_STATES
    }
    rows = [{"id": group, "failed": failed[group], **causes[group]} for group in sorted(failed)]
    if rows:
        yield Statement("fail_groups", rows=rows)


def _enqueue_hooks(dependents: Rows, traces: Mapping[str, str]) -> Op[set[str]]:
    """Insert the hooks of ended jobs. They can read the ended job as any dependent can, and wait
    for nothing. Their spans are children of the attempt that ended, if it was traced."""
    hooks_due = [job for id, state, hooks, *_ in dependents for job in _hook_jobs(hooks, state, id)]
    if traces:
        hooks_due = [replace(job, trace=traces.get(job.after[0], job.trace)) for job in hooks_due]
    enqueued = yield from enqueue(hooks_due)
    return {job.queue for job in enqueued if job.state is State.READY}


def _hook_jobs(hooks: str | None, state: str, id: str) -> list[NewJob]:
    """The hooks of a job for this final state. Unreadable hooks are skipped: they must not prevent
    the job's end. Fields of newer releases are ignored."""
    try:
        rows = json.loads(hooks or "{}").get(state, [])
        known = [{name: hook[name] for name in _FIELDS if name in hook} for hook in rows]
        fixed = {"needs": "finished", "after": (id,)}
        return [NewJob(**hook | fixed | {"id": new_job_id()}) for hook in known]
    except (ValueError, AttributeError, TypeError):
        return []


_FIELDS = [field.name for field in fields(NewJob)]
