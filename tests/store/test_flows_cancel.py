"""A flow is cancelled as a whole: nothing joins it, nothing of it starts, nothing stays."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter

import pytest

from outlast import FlowClosed, FlowNotFound, Outlast, StoreBusy
from outlast.model.flow import Flow, chain, group
from outlast.model.flow_builder import build_jobs
from outlast.model.ids import new_job_id
from outlast.model.settings import StoreSettings
from outlast.ops import retention
from outlast.ops.cancel_flow import cancel_page, mark_cancelled, unfinished_cancels
from outlast.ops.complete import complete
from outlast.ops.enqueue import enqueue
from outlast.ops.finish import finish
from outlast.ops.flow_report import flow
from outlast.store import Store
from outlast.store.handler_connection import open_transaction
from tests.store.conftest import Run
from tests.store.crowd import all_at_once
from tests.store.flowing import call, calls, end_all, lay, left, state
from tests.store.jobs import ending, states, take
from tests.support import Database


def cancel(run: Run, id: str) -> None:
    why = run(mark_cancelled, id, "ann", "enough")
    while run(cancel_page, id, why).left:
        pass


def test_a_cancelled_flow_ends_and_its_owners_are_asked_to_stop(verb: Run, app: Outlast) -> None:
    """R116, R117: the first word ends it; the second, and one about nothing, are told apart."""
    jobs = lay(app.store.run, group(*calls(5)).then(call(9, delay=60.0)))
    flow_of = jobs[0].flow
    (held,) = take(app.store.run)
    shown = verb("cancel_flow", flow_of, "enough")
    assert {name: n for name, n in shown.counts.items() if n} == {"running": 1, "cancelled": 5}
    assert (shown.state, shown.reason) == ("cancelling", "enough")
    assert app.job(held.id).cancelling
    assert verb("cancel_flow", flow_of, "again").reason == "enough"
    app.store.run(finish, [ending(held, "failed")])
    assert verb("flow", flow_of).state == "cancelled"
    assert verb("cancel_flow", flow_of).state == "cancelled"
    for unknown in (new_job_id(), "nonsense"):
        with pytest.raises(FlowNotFound):
            verb("cancel_flow", unknown)


def test_nothing_joins_what_has_ended(run: Run, database: Database) -> None:
    """R007, R101: a flow that is cancelled, over, or unknown takes no child, in any spelling."""
    (over,) = lay(run, group(call(1)))
    end_all(run)
    (cancelled,) = lay(run, group(call(2)))
    assert cancelled.flow is not None
    lay(run, call(3, flow=cancelled.flow.upper()))
    cancel(run, cancelled.flow)
    before = left(database)
    for id in (over.flow, cancelled.flow):
        with pytest.raises(FlowClosed):
            lay(run, call(4), call(5, flow=id))
    with pytest.raises(FlowNotFound):
        lay(run, call(6, flow=new_job_id()))
    assert left(database) == before


def test_a_job_that_runs_on_in_a_cancelled_flow_adds_nothing(run: Run, database: Database) -> None:
    """R007, R101: its own result counts if it was quicker than the cancel, its children do not."""
    job, *_ = lay(run, group(*calls(3)))
    (held,) = take(run)
    cancel(run, job.flow)
    grown = build_jobs([call(7), group(call(8), call(9))], held.flow)
    finished = run(finish, [ending(held, jobs=tuple(grown))])
    assert [str(to) for _, to in finished.accepted] == ["succeeded"]
    assert Counter(states(database)) == {"succeeded": 1, "cancelled": 2}
    assert left(database)["flow"] == 1


@pytest.mark.parametrize("key", [None, "k"])
def test_nor_does_one_that_completes_itself(
    store: Store, database: Database, key: str | None
) -> None:
    """R007, R129: in the transaction of its handler's own writes, which are kept."""
    job, *_ = lay(store.run, group(*calls(3)))
    (held,) = take(store.run)
    cancel(store.run, str(job.flow))
    grown = build_jobs([call(7, key=key), chain(call(8), call(9))], held.flow, held.id)
    written = "written" if database.is_sqlite else f"{database.schema}.written"
    with open_transaction(store) as lent:
        lent.connection.execute(f"CREATE TABLE {written} (n integer)")
        lent.run(complete(ending(held, jobs=tuple(grown))))
        lent.commit()
    assert database.rows(f"SELECT * FROM {written}") == []
    assert Counter(states(database)) == {"succeeded": 1, "cancelled": 2}
    assert left(database) == {"job": 3, "edge": 0, "flow": 1}


@pytest.mark.parametrize("how", ["over", "cancelled"])
def test_what_was_sent_before_the_end_and_comes_again_is_not_refused(
    run: Run, database: Database, how: str
) -> None:
    """R095, R101: its answer got lost, and the flow has ended since: the caller gets the job as it
    stands. Only what is new is refused, and then all that came with it."""
    (job,) = lay(run, group(call(1)))
    sent = build_jobs([call(2, flow=job.flow), call(3, flow=job.flow, key="k")])
    first = run(enqueue, sent)
    if how == "over":
        end_all(run)
    else:
        cancel(run, str(job.flow))
    before = left(database)
    again = run(enqueue, sent)
    assert [one.id for one in again] == [one.id for one in first]
    ends = ["succeeded" if how == "over" else "cancelled"] * 2
    assert [str(one.state) for one in again] == ends
    (standing,) = lay(run, call(3, flow=job.flow, key="k"))
    assert standing.id == first[1].id, "by its key, it was there too"
    with pytest.raises(FlowClosed):
        run(enqueue, [*sent, *build_jobs([call(4, flow=job.flow)])])
    assert left(database) == before


def test_what_one_process_said_another_does(run: Run, database: Database) -> None:
    """R116, R120: who said it died at once; whoever lives sees that something is left. What it
    could not finish in one pass stays in sight."""
    job, *_ = lay(run, group(*calls(30), fail_fast=True))
    run(mark_cancelled, job.flow, "ann", "enough")
    assert states(database) == ["ready"] * 30
    ((id, why),) = run(unfinished_cancels)
    assert (id, why) == (job.flow, "enough")
    assert run(cancel_page, id, why, 20).ended == 20
    assert job.flow in dict(run(unfinished_cancels))
    assert run(cancel_page, id, why, 20).ended == 10
    assert not run(cancel_page, id, why, 20).left
    # Those that fail together have failed together: that part is settled by the same hands.
    for part, said in run(unfinished_cancels):
        assert not run(cancel_page, part, said).left
    assert run(unfinished_cancels) == []
    assert set(states(database)) == {"cancelled"}


def test_a_failure_of_the_database_does_not_unsay_it(run: Run, database: Database) -> None:
    """R120: the failure that broke its group rolled back; what is done again breaks it again."""
    lay(run, group(*calls(4), fail_fast=2))
    first, second, *_ = take(run, 4)
    run(finish, [ending(first, "permanent")])

    def broken() -> object:
        yield from finish([ending(second, "permanent")])
        raise RuntimeError("the answer and the transaction are gone")

    with pytest.raises(RuntimeError):
        run(broken)
    assert run(unfinished_cancels) == []
    run(finish, [ending(second, "permanent")])
    assert len(run(unfinished_cancels)) == 1


JOINERS, CALLS = 8, 1000


@pytest.mark.kinds("sqlite", "postgres")
def test_no_child_is_accepted_once_the_cancel_is_committed(
    store: Store, database: Database
) -> None:
    """R007: 1,000 enqueues from 8 threads around one cancel: what came in before it is cancelled
    with the rest, and nothing comes in after it."""
    job, *_ = lay(store.run, group(*calls(2)))
    said, done = threading.Event(), threading.Event()

    def join(n: int) -> tuple[int, int]:
        accepted = after = 0
        for _ in range(CALLS // JOINERS):
            known = said.is_set()
            try:
                lay(store.run, call(3, flow=job.flow))
            except FlowClosed:
                continue
            accepted += 1
            after += known
        return accepted, after

    def act(n: int) -> tuple[int, int]:
        if n:
            return join(n)
        while len(states(database)) < 20 and not done.is_set():
            pass
        why = store.run(mark_cancelled, job.flow, "ann", "")
        said.set()
        while store.run(cancel_page, job.flow, why).left:
            pass
        return 0, 0

    counted = all_at_once(JOINERS + 1, act)
    assert sum(after for _, after in counted) == 0
    assert sum(accepted for accepted, _ in counted) >= 18, "nothing met the cancel"
    assert Counter(states(database)) == {"cancelled": 2 + sum(n for n, _ in counted)}


@pytest.mark.kinds("sqlite", "postgres")
@pytest.mark.parametrize(
    "number",
    [600, pytest.param(10_000, marks=[pytest.mark.campaign, pytest.mark.timeout(900)])],
)
def test_a_flow_is_cancelled_while_eight_work_on_it(
    store: Store, database: Database, app: Outlast, number: int
) -> None:
    """R116: nothing starts after the cancel returned, no deadlock reaches anyone, and in the end
    nothing is left: no job, no tie, no flow."""
    graph = Flow()
    roots = [graph.add(call(n)) for n in range(number // 2)]
    for n, root in enumerate(roots):
        graph.add(call(n), after=[root, roots[n - 1]], when="finished")
    job = lay(store.run, graph)[0]
    assert job.flow is not None
    gone = threading.Event()

    def act(n: int) -> int:
        if n == 0:
            app.cancel_flow(str(job.flow))
            gone.set()
            return 0
        late = 0
        while True:
            returned = gone.is_set()
            held = take(store.run, 5, worker=f"w{n}")
            late += len(held) if returned else 0
            store.run(finish, [ending(one, "failed" if n % 2 else "succeeded") for one in held])
            if returned and not held:
                return late

    assert sum(all_at_once(9, act)) == 0, "started after it returned"
    assert set(states(database)) <= {"succeeded", "dead", "cancelled"}
    assert store.run(flow, job.flow).final
    while store.run(retention.prune, "succeeded", -1.0, 500) + store.run(
        retention.prune, "cancelled", -1.0, 500
    ):
        pass
    assert left(database) == {"job": 0, "edge": 0, "flow": 0}


def test_no_ended_flow_has_jobs_that_run_on(run: Run) -> None:
    """R102: a flow's state is read from its jobs, so it can never disagree with them."""
    jobs = lay(run, chain(*calls(2)))
    seen = [run(flow, jobs[0].flow).state]
    (held,) = take(run)
    seen.append(run(flow, jobs[0].flow).state)
    run(finish, [ending(held)])
    seen.append(run(flow, jobs[0].flow).state)
    end_all(run)
    seen.append(run(flow, jobs[0].flow).state)
    assert seen == ["running"] * 3 + ["succeeded"]
    assert state(run, *jobs) == ["succeeded"] * 2


@pytest.mark.kinds("postgres", "pgbouncer")
@pytest.mark.parametrize("colour", ["blocking", "asyncio"])
def test_a_cancel_that_cannot_go_on_says_so_in_time(
    database: Database, store: Store, colour: str
) -> None:
    """R116: somebody's open transaction holds a job of the flow. All others are cancelled, the
    caller gets a clear error instead of waiting for ever, and what was said stands."""
    jobs = lay(store.run, group(*calls(5)))
    hasty = Outlast(
        database.url, schema=database.schema, settings=StoreSettings(deadline=1.0, lock_timeout=0.5)
    )

    async def cancel_it() -> None:
        try:
            await hasty.acancel_flow(str(jobs[0].flow), "enough")
        finally:
            await hasty.aclose()

    with database.connect() as connection, connection.transaction():
        connection.execute("SELECT 1 FROM job WHERE id = %s FOR UPDATE", (jobs[2].id,))
        began = time.monotonic()
        with pytest.raises(StoreBusy, match="holds jobs of this flow"):
            if colour == "blocking":
                hasty.cancel_flow(str(jobs[0].flow), "enough")
            else:
                asyncio.run(asyncio.wait_for(cancel_it(), 30.0))
        assert 1.0 <= time.monotonic() - began < 15.0
        assert state(store.run, *jobs) == ["cancelled"] * 2 + ["ready"] + ["cancelled"] * 2
        assert store.run(unfinished_cancels) == [(jobs[0].flow, "enough")]
    assert hasty.cancel_flow(str(jobs[0].flow)).state == "cancelled"
    hasty.close()
