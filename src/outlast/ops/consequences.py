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
from .flows import BROKEN
from .statement import Op, Rows, Statement, Together

NO_TRACES: Mapping[str, str] = MappingProxyType({})
Ending = tuple[str, str]  # a job by its id, and the final state that it has come to


def consequences(ended: Sequence[Ending], traces: Mapping[str, str] = NO_TRACES) -> Op[set[str]]:
    """Tell everyone whom the end of these jobs concerns; returns the queues in which something
    became ready. `traces` has the spans of their last attempts."""
    if not ended:
        return set()
    ties, told = yield Together(telling(ended))
    return (yield from heard(ties, told, traces))


def telling(ended: Sequence[Ending]) -> tuple[Statement, Statement]:
    """Look up whom the end of these jobs concerns, and count them off for those who wait."""
    ids = json.dumps(sorted(id for id, _ in ended))
    rows = [{"id": id, "state": state} for id, state in ended]
    return Statement("ties", {"ids": ids}), Statement("tell_followers", rows=rows)


def heard(ties: Rows, told: Rows, traces: Mapping[str, str] = NO_TRACES) -> Op[set[str]]:
    """What follows from the answers: hooks, broken teams, and the ends of all who waited in vain,
    of which others are told in turn."""
    queues: set[str] = set()
    while True:
        queues |= {queue for _, state, queue, _ in told if state == State.READY}
        if ties:
            yield from _break_teams(ties)
            queues |= yield from _hook(ties, traces)
        ended = [(id, state) for id, state, _, tied in told if state in BROKEN and tied]
        if not ended:
            return queues
        ids = json.dumps(sorted(id for id, _ in ended))
        doomed: Rows = yield Statement("doom", {"ids": ids})
        ended += [(id, state) for id, state, tied in doomed if tied]
        ties, told = yield Together(telling(ended))


def _break_teams(ties: Rows) -> Op[None]:
    failed = Counter(team for _, state, _, team in ties if team and state in BROKEN)
    why = {
        team: {"reason": f"job {id} is {state}", "job": id}
        for id, state, _, team in ties
        if state in BROKEN
    }
    rows = [{"id": team, "failed": failed[team], **why[team]} for team in sorted(failed)]
    if rows:
        yield Statement("break_teams", rows=rows)


def _hook(ties: Rows, traces: Mapping[str, str]) -> Op[set[str]]:
    """The new jobs can read the one that ended as any follower can; it has ended, so they wait for
    nothing. They belong under the attempt that ended, if it was traced."""
    asked = [job for id, state, hooks, _ in ties for job in _asked_for(hooks, state, id)]
    if traces:
        asked = [replace(job, trace=traces.get(job.after[0], job.trace)) for job in asked]
    made = yield from enqueue(asked)
    return {job.queue for job in made if job.state is State.READY}


def _asked_for(hooks: str | None, state: str, id: str) -> list[NewJob]:
    """The jobs to be made when a job ends so. What cannot be read is not made: no job's end, and no
    end beside it, may fail of that. What a newer release says beside is left out."""
    try:
        asked = json.loads(hooks or "{}").get(state, [])
        said = [{name: hook[name] for name in _SAID if name in hook} for hook in asked]
        given = {"needs": "finished", "after": (id,)}
        return [NewJob(**hook | given | {"id": new_job_id()}) for hook in said]
    except (ValueError, AttributeError, TypeError):
        return []


_SAID = [field.name for field in fields(NewJob)]
