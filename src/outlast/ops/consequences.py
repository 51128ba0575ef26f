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
from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import Any

from ..model.ids import new_job_id
from ..model.job import NewJob
from ..model.lifecycle import State
from .enqueue import enqueue
from .flows import BROKEN, recount_followers
from .statement import Op, Rows, Statement


def consequences(ids: Sequence[str], grown: Collection[str] = ()) -> Op[set[str]]:
    """Tell everyone whom the end of these jobs concerns; returns the queues in which something
    became ready. Those who wait for a `grown` one have come to wait for more in this transaction,
    and were counted anew for it: they are not counted down for it again."""
    queues: set[str] = set()
    while ids:
        given = {"ids": json.dumps(sorted(ids))}
        ties: Rows = yield Statement("ties", given)
        if ties:
            yield from _break_teams(ties)
            queues |= yield from _hook(ties)
        plain = json.dumps(sorted(set(ids) - set(grown)))
        told: Rows = yield Statement("tell_followers", {"ids": plain})
        if again := sorted(set(ids) & set(grown)):
            told = told + (yield from recount_followers(again))
        queues |= {queue for _, state, queue, _ in told if state == State.READY}
        ids = [id for id, state, _, tied in told if state in BROKEN and tied]
    return queues


def _break_teams(ties: Rows) -> Op[None]:
    failed = Counter(team for _, state, _, team in ties if team and state in BROKEN)
    why = {team: f"job {id} is {state}" for id, state, _, team in ties if state in BROKEN}
    rows = [{"id": team, "failed": failed[team], "reason": why[team]} for team in sorted(failed)]
    if rows:
        yield Statement("break_teams", rows=rows)


def _hook(ties: Rows) -> Op[set[str]]:
    """The new jobs can read the one that ended as any follower can; it has ended, so they wait for
    nothing."""
    jobs = [job for id, state, hooks, _ in ties for job in _asked_for(hooks, state, id)]
    made = yield from enqueue(jobs, strict=False)
    return {job.queue for job in made if job.state is State.READY}


def _asked_for(hooks: str | None, state: str, id: str) -> list[NewJob]:
    """The jobs to be made when a job ends so. What cannot be read is not made: no job's end, and no
    end beside it, may fail of that. What a newer release says beside is left out."""
    try:
        asked = json.loads(hooks or "{}").get(state, [])
        said = [{name: hook[name] for name in _SAID if name in hook} for hook in asked]
        return [NewJob(**hook | _place(hook, id)) for hook in said]
    except (ValueError, AttributeError, TypeError):
        return []


_SAID = [field.name for field in fields(NewJob)]


def _place(hook: dict[str, Any], id: str) -> dict[str, Any]:
    """What a hook is only when it is needed; its own end may have hooks, too."""
    tied = bool(hook.get("hooks"))
    return {"id": new_job_id(), "needs": "finished", "after": (id,), "tied": tied}
