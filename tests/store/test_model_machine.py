"""Random lives of jobs, in the store and in a small model, compared after every step."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from outlast import KeyConflict, PrerequisiteFailed, TooLate
from outlast.model.claim import Claim
from outlast.model.flow import chain, group
from outlast.model.flow_builder import build_jobs
from outlast.model.job import NewJob
from outlast.model.lifecycle import Outcome
from outlast.model.options import WHEN
from outlast.model.outcome import AttemptEnd, Transition, decide
from outlast.model.retry import Retry
from outlast.model.wait import Wait, WaitKind
from outlast.ops import duties, job_actions, retention
from outlast.ops.cancel_flow import cancel_page, mark_cancelled
from outlast.ops.claim import ClaimRequest, claim, promote
from outlast.ops.enqueue import enqueue
from outlast.ops.finish import finish
from outlast.ops.finish_and_claim import finish_and_claim
from outlast.ops.reclaim import reclaim
from outlast.ops.renew import renew
from outlast.store import Store
from tests.store.flowing import call
from tests.store.jobs import new, table
from tests.store.model import Model, ModelJob, Refused
from tests.support import Database

# Long enough that nothing is due by itself while the machine runs.
SLOW = Retry(max_attempts=3, base=3600.0, cap=3600.0, jitter=0.0)
OUTCOMES = [str(outcome) for outcome in Outcome]

queues = st.sampled_from(["q1", "q2"])
picks = st.lists(st.integers(0, 50), min_size=1, max_size=4)
asked = st.builds(
    dict,
    queue=queues,
    key=st.sampled_from([None, None, "a", "b"]),
    args=st.sampled_from(["[1]", "[1]", "[1]", "[2]"]),
    priority=st.integers(-1, 1),
    max_attempts=st.integers(1, 2),
    max_crashes=st.integers(1, 2),
)


class Lives(RuleBasedStateMachine):
    store: Store
    database: Database
    watcher: Any  # a connection past the product
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.claims: list[Claim] = []
        for name in ("job", "attempt", "event", "queue", "edge", "flow"):
            self.watcher.execute(f"DELETE FROM {table(self.database, name)}")

    # What users and operators do

    @rule(calls=st.lists(asked, min_size=1, max_size=3), later=st.booleans())
    def enqueue(self, calls: list[dict[str, Any]], later: bool) -> None:
        wanted = [new(**call, delay=3600.0 if later else None) for call in calls]
        state = "scheduled" if later else "ready"
        modelled = [
            ModelJob(id=one.id, state=state, **call)
            for one, call in zip(wanted, calls, strict=True)
        ]
        try:
            expected = self.model.enqueue(modelled)
        except Refused:
            with pytest.raises(KeyConflict):
                self.store.run(enqueue, wanted)
        else:
            assert [one.id for one in self.store.run(enqueue, wanted)] == expected

    @precondition(lambda self: self.model.jobs)
    @rule(call=asked, chosen=picks, needs=st.sampled_from(WHEN), later=st.booleans())
    def enqueue_after(
        self, call: dict[str, Any], chosen: list[int], needs: str, later: bool
    ) -> None:
        """One that comes after some that are there, in whatever state."""
        after = self._ids(chosen)
        said = {**call, "key": None, "needs": needs}
        one = new(**said, delay=3600.0 if later else None, after=tuple(after), waits_for=len(after))
        modelled = ModelJob(id=one.id, state="waiting", after=after, delayed=later, **said)
        try:
            self.model.enqueue([modelled])
        except Refused:
            with pytest.raises(PrerequisiteFailed):
                self.store.run(enqueue, [one])
        else:
            self.store.run(enqueue, [one])

    @rule(queue=queues, shape=st.sampled_from(["chain", "fan-in", "fan-out", "any end"]))
    def enqueue_flow(self, queue: str, shape: str) -> None:
        a, b, c = (call(n, queue=queue, max_attempts=1) for n in range(3))
        shapes = {
            "chain": chain(a, b, c),
            "fan-in": group(a, b).then(c),
            "fan-out": chain(a, group(b, c)),
            "any end": group(a, b).then(c, when="finished"),
        }
        rows = build_jobs([shapes[shape]])
        self.model.flows[str(rows[0].flow)] = False
        self.model.enqueue([_modelled(one) for one in rows])
        self.store.run(enqueue, rows)

    @precondition(lambda self: self.model.flows)
    @rule(n=st.integers(0, 5))
    def cancel_flow(self, n: int) -> None:
        known = {one.flow for one in self.model.jobs.values() if one.flow}
        if known:
            flow = sorted(known)[n % len(known)]
            self.model.cancel_flow(flow)
            why = self.store.run(mark_cancelled, flow, "ann", "")
            while self.store.run(cancel_page, flow, why).left:
                pass

    @precondition(lambda self: self.model.jobs)
    @rule(n=st.integers(0, 50))
    def cancel(self, n: int) -> None:
        id = self._ids([n])[0]
        try:
            self.model.cancel(id)
        except Refused:
            with pytest.raises(TooLate):
                self.store.run(job_actions.cancel, id, "ann", "")
        else:
            answer = self.store.run(job_actions.cancel, id, "ann", "")
            assert answer.state == self.model.jobs[id].state

    @precondition(lambda self: self.model.jobs)
    @rule(chosen=picks)
    def redrive(self, chosen: list[int]) -> None:
        ids = self._ids(chosen)
        revived = self.model.redrive(ids)
        assert set(self.store.run(job_actions.redrive, ids, "ann")) == revived

    @rule(queue=queues, paused=st.booleans())
    def pause(self, queue: str, paused: bool) -> None:
        self.store.run(job_actions.set_paused, queue, paused, "ann")
        (self.model.paused.add if paused else self.model.paused.discard)(queue)

    # What workers do

    @rule(queue=queues, limit=st.integers(1, 4), worker=st.sampled_from(["w1", "w2"]))
    def claim(self, queue: str, limit: int, worker: str) -> None:
        expected = self._next_up(queue, limit)
        self._took(
            self.store.run(claim, ClaimRequest(worker, queue, limit, 3600.0)), expected, worker
        )

    @precondition(lambda self: self.claims)
    @rule(chosen=picks, outcomes=st.lists(st.sampled_from(OUTCOMES), min_size=4, max_size=4))
    def finish(self, chosen: list[int], outcomes: list[str]) -> None:
        ends = [_ending(one, how) for one, how in zip(self._some(chosen), outcomes, strict=False)]
        self._ended(self.store.run(finish, ends), ends)

    @precondition(lambda self: self.claims)
    @rule(chosen=picks, queue=queues)
    def turn(self, chosen: list[int], queue: str) -> None:
        """Plain successes go in and new jobs come out in one round trip."""
        ends = [_ending(one, "succeeded") for one in self._some(chosen) if one.attempt == 1]
        before = self._next_up(queue, 2)
        finished, claims = self.store.run(
            finish_and_claim, ends, ClaimRequest("w1", queue, 2, 3600.0)
        )
        self._ended(finished, ends)
        # Whom nobody knew to wait when the job was claimed is told after the round trip.
        told = any(one.claim.has_dependents for one in ends)
        self._took(claims, self._next_up(queue, 2) if told else before, "w1")

    @precondition(lambda self: self.claims)
    @rule(chosen=picks, worker=st.sampled_from(["w1", "w2"]))
    def renew(self, chosen: list[int], worker: str) -> None:
        held = {one.id: one.fence for one in self._some(chosen)}
        renewed = self.store.run(renew, worker, held, 3600.0)
        kept = {
            id
            for id, fence in held.items()
            if self.model.holds(id, fence) and self.model.jobs[id].worker == worker
        }
        assert renewed.kept == kept
        assert renewed.lost == set(held) - kept
        assert renewed.cancelling == {id for id in kept if self.model.jobs[id].cancelling}
        for id in kept:
            self.model.jobs[id].lost = False

    # What time and the nets do

    @precondition(lambda self: self.model.jobs)
    @rule(chosen=picks)
    def leases_end(self, chosen: list[int]) -> None:
        ids = [id for id in self._ids(chosen) if self.model.jobs[id].state == "running"]
        self._move("lease_until", ids)
        for id in ids:
            self.model.jobs[id].lost = True

    @precondition(lambda self: self.model.jobs)
    @rule(chosen=picks)
    def time_comes(self, chosen: list[int]) -> None:
        ids = [id for id in self._ids(chosen) if self.model.jobs[id].state == "scheduled"]
        self._move("run_at", ids)
        for id in ids:
            self.model.jobs[id].due = True

    @precondition(lambda self: self.model.jobs)
    @rule(n=st.integers(0, 50))
    def expiry_passes(self, n: int) -> None:
        ids = [
            id for id in self._ids([n]) if self.model.jobs[id].state not in ("succeeded", "dead")
        ]
        self._move("expires_at", ids)
        for id in ids:
            self.model.jobs[id].expired = True

    @rule()
    def reclaim(self) -> None:
        assert self.store.run(reclaim).healed == self.model.reclaim()

    @rule()
    def promote(self) -> None:
        self.model.promote()
        self.store.run(promote)

    @rule()
    def expire(self) -> None:
        assert set(self.store.run(duties.expire)) == self.model.expire()

    @rule(state=st.sampled_from(["succeeded", "cancelled", "dead"]))
    def prune(self, state: str) -> None:
        gone = self.model.prune(state) if state != "dead" else 0
        assert self.store.run(retention.prune, state, -1.0, 1000) == gone

    @invariant()
    def the_rows_are_as_the_model_says(self) -> None:
        type(self).steps += 1
        rows = self.database_rows(
            "SELECT CAST(id AS text), CASE WHEN state = 'waiting' THEN waits_for END, state,"
            " attempt, failures, crashes, fence, worker, cancelling"
            f" FROM {table(self.database, 'job')}"
        )
        shown = {id: (*facts, bool(cancelling)) for id, *facts, cancelling in rows}
        assert shown == {
            id: (self.model.waits_for(one), *one.seen()) for id, one in self.model.jobs.items()
        }

    # Helpers

    def database_rows(self, query: str) -> list[tuple[Any, ...]]:
        return list(self.watcher.execute(query).fetchall())

    def _ids(self, chosen: list[int]) -> list[str]:
        ids = list(self.model.jobs)
        return list(dict.fromkeys(ids[-1 - n % len(ids)] for n in chosen))

    def _some(self, chosen: list[int]) -> list[Claim]:
        """Claims, most of them recent, some of them long lost."""
        some = [self.claims[-1 - n % len(self.claims)] for n in chosen]
        return list({one.id: one for one in some}.values())

    def _next_up(self, queue: str, limit: int) -> list[str]:
        """Who should be claimed next: the model says who may be, the rows when each was due."""
        able = {one.id: one for one in self.model.claimable(queue)}
        rows = self.database_rows(
            f"SELECT CAST(id AS text), run_at FROM {table(self.database, 'job')}"
        )
        due = dict(rows)
        order = sorted(able, key=lambda id: (-able[id].priority, due[id], id))
        return order[:limit]

    def _took(self, claims: list[Claim], expected: list[str], worker: str) -> None:
        assert [one.id for one in claims] == expected
        for one in claims:
            self.model.claim(one.id, worker)
        self.claims += claims

    def _ended(self, finished: Any, ends: list[Transition]) -> None:
        accepted = {one.claim.claim_key for one, _ in finished.accepted}
        for one in ends:
            expected = self.model.finish(one.claim.id, one.claim.fence, str(one.outcome))
            assert (one.claim.claim_key in accepted) == expected
            assert (one in finished.lost) == (not expected)

    def _move(self, column: str, ids: list[str]) -> None:
        """Bring a moment of some jobs into the past."""
        if ids:
            past = "1" if self.database.is_sqlite else "'2020-01-01'"
            listed = ", ".join(f"'{id}'" for id in ids)
            self.watcher.execute(
                f"UPDATE {table(self.database, 'job')} SET {column} = {past} WHERE id IN ({listed})"
            )


def _modelled(one: NewJob) -> ModelJob:
    return ModelJob(
        one.id, one.queue, None, one.args, one.priority, one.max_attempts, one.max_crashes,
        "waiting" if one.after else "ready", after=list(one.after), needs=one.needs, flow=one.flow,
    )  # fmt: skip


def _ending(claim: Claim, outcome: str) -> Transition:
    error = {"type": "Boom", "message": "", "traceback": ""}
    ended = AttemptEnd(Outcome(outcome), error=None if outcome == "succeeded" else error)
    if outcome == "waited":
        ended = AttemptEnd(Outcome.WAITED, wait=Wait("sleep", WaitKind.SLEEP, delay=3600.0))
    elif outcome == "postponed":
        ended = AttemptEnd(Outcome.POSTPONED, error=error, delay=3600.0)
    return decide(claim, ended, SLOW, 0.5)


@pytest.mark.slow_on("postgres")
@pytest.mark.kinds("sqlite", "postgres")
@pytest.mark.parametrize(
    ("examples", "steps"),
    [
        pytest.param(20, 700, id="sample", marks=pytest.mark.timeout(600)),
        pytest.param(
            10_000, 350_000, id="full", marks=[pytest.mark.campaign, pytest.mark.timeout(0)]
        ),
    ],
)
def test_the_store_agrees_with_the_model(
    store: Store, database: Database, examples: int, steps: int
) -> None:
    """R209: random operations on the store and on the model: 20 sequences on each database by
    default, 10,000 in a campaign."""
    with database.connect() as watcher:
        machine = type("Machine", (Lives,), {"store": store, "database": database,
                                             "watcher": watcher, "steps": 0})  # fmt: skip
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=50,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                database=None,
            ),
        )
    assert machine.steps >= steps  # type: ignore[attr-defined]
