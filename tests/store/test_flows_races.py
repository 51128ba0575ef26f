"""Many ends at once: every follower starts, once, with no net below."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from outlast import TooLate
from outlast.model.flow import Flow, group
from outlast.model.flow_builder import build_jobs
from outlast.model.job import Job
from outlast.ops import job_actions, report
from outlast.ops.enqueue import enqueue
from outlast.ops.finish import finish
from outlast.store import Store, open_store
from tests.store.conftest import Run
from tests.store.crowd import all_at_once, race, run_together
from tests.store.flowing import call, calls, end_all, lay, left, results, state, stuck
from tests.store.jobs import ending, put, states, table, take
from tests.store.test_lost_answers import at_commit
from tests.support import Database, Proxy

colours = pytest.mark.parametrize("colour", ["blocking", "asyncio"])


def campaign(few: int, many: int) -> pytest.MarkDecorator:
    marks = [pytest.mark.campaign, pytest.mark.timeout(0)]
    return pytest.mark.parametrize("rounds", [few, pytest.param(many, marks=marks)])


@campaign(2, 200)
@colours
def test_a_hundred_children_that_end_at_once_start_one_callback(
    database: Database, colour: str, rounds: int
) -> None:
    """R092: one callback, a hundred results, none twice, in order."""
    for _ in range(rounds):
        store = open_store(database.url, database.schema)
        *children, last = lay(store.run, group(*calls(100)).then(call(999, queue="last")))
        held = take(store.run, 100)
        batches = [held[n::20] for n in range(20)]
        run_together(
            store,
            colour,
            [
                (finish, ([ending(one, result=f'"{one.id}"') for one in batch],))
                for batch in batches
            ],
        )
        (follower,) = take(store.run, 10, queue="last")
        assert follower.id == last.id
        assert results(store.run, follower) == [child.id for child in children]
        store.run(finish, [ending(follower)])
        store.close()


@pytest.mark.kinds("sqlite", "postgres")
@campaign(60, 10_000)
def test_the_last_two_children_never_miss_each_other(
    store: Store, database: Database, rounds: int
) -> None:
    """R070, `unfired`: two writers, each of which thinks that the other one is still to come; no
    net is under them. A third adds a follower meanwhile."""
    flows = [lay(store.run, group(call(1), call(2)).then(call(9))) for _ in range(rounds)]
    held = {one.id: one for one in take(store.run, 2 * rounds)}

    def ends(child: int, outcome: str = "succeeded") -> object:
        return lambda n: store.run(finish, [ending(held[flows[n][child].id], outcome)])

    def comes_after(n: int) -> None:
        first, second, _ = flows[n]
        lay(store.run, call(8, after=[first, second]))

    race(rounds, ends(0), ends(1), comes_after)  # type: ignore[arg-type]
    assert stuck(database) == 0
    assert states(database).count("ready") == 2 * rounds


@pytest.mark.kinds("postgres")
@pytest.mark.parametrize("fault", ["swallow_reply_after", "drop_request_when"])
@colours
@campaign(2, 100)
def test_a_decrement_whose_answer_got_lost_counts_once(
    database: Database, proxy: Proxy, store: Store, fault: str, colour: str, rounds: int
) -> None:
    """R100: the line is cut at COMMIT: the child counts once, the callback starts once."""
    distant = open_store(proxy.url(database.url), database.schema)
    distant.ready()
    with asyncio.Runner() as loop:
        for n in range(rounds):
            *_, last = lay(store.run, group(*calls(3)).then(call(9, queue="last")))
            for left_over, held in zip((2, 1, 0), take(store.run, 3), strict=True):
                trap = getattr(proxy, fault)(at_commit)
                if colour == "blocking":
                    done = distant.run(finish, [ending(held)])
                else:
                    done = loop.run(distant.arun(finish, [ending(held)]))
                trap.wait()
                assert not done.lost
                assert store.run(report.job, last.id).waits_for == left_over
            assert len(take(store.run, 10, queue="last")) == 1, n
        loop.run(distant.aclose())
    distant.close()


@pytest.mark.parametrize("commits", [True, False])
def test_all_of_a_flow_or_nothing_in_the_callers_transaction(
    database: Database, store: Store, commits: bool
) -> None:
    """R067, R093, `half-fanned`: children, ties and the flow come with the caller's commit."""
    from outlast import Outlast

    with Outlast(database.url, schema=database.schema) as ol, database.connect() as connection:
        if database.is_sqlite:
            connection.execute("BEGIN IMMEDIATE")
            ol.enqueue(group(*calls(10)).then(call(9)), conn=connection)
            connection.execute("COMMIT" if commits else "ROLLBACK")
        else:
            with connection.transaction(force_rollback=not commits):
                ol.enqueue(group(*calls(10)).then(call(9)), conn=connection)
    whole = {"job": 11, "edge": 10, "flow": 1}
    assert left(database) == (whole if commits else dict.fromkeys(whole, 0))


def test_a_failure_in_the_middle_leaves_nothing(run: Run, database: Database) -> None:
    """R093, `half-fanned`: whichever statement it was that failed."""
    for step in range(1, 6):

        def broken(step: int = step) -> Iterator[object]:
            op = enqueue(build_jobs([group(*calls(4)).then(call(9))]))
            answer = None
            for _ in range(step):
                try:
                    answer = yield op.send(answer)
                except StopIteration:
                    break
            raise RuntimeError("gone")

        with pytest.raises(RuntimeError):
            run(broken)
        assert left(database) == {"job": 0, "edge": 0, "flow": 0}


def test_the_same_flow_sent_twice_is_one(run: Run, database: Database) -> None:
    """R096: its answer got lost, and it is sent again: one set of children."""
    rows = build_jobs([group(*calls(5), fail_fast=True).then(call(9))])
    first = run(enqueue, rows)
    end_all(run, limit=2)
    assert [job.id for job in run(enqueue, rows)] == [job.id for job in first]
    assert left(database) == {"job": 6, "edge": 5, "flow": 2}
    assert states(database) == ["succeeded"] * 6


def test_a_fan_out_from_a_job_is_made_with_its_success_or_not_at_all(
    run: Run, database: Database
) -> None:
    """R069, R093, R096: an orchestrator that was claimed and lost before it enqueued anything is
    claimed again; although it ran twice, there is one set of children."""
    (job,) = put(run)
    (old,) = take(run, lease=0.001)
    from tests.store.jobs import end_leases

    end_leases(database)
    from outlast.ops.reclaim import reclaim

    run(reclaim)
    (now,) = take(run)
    children = [tuple(build_jobs([group(*calls(4)).then(call(9))])) for _ in range(2)]
    assert run(finish, [ending(old, jobs=children[0])]).lost
    assert not run(finish, [ending(now, jobs=children[1])]).lost
    assert not run(finish, [ending(now, jobs=children[1])]).lost
    assert left(database) == {"job": 6, "edge": 4, "flow": 1}
    assert state(run, job) == ["succeeded"]


@pytest.mark.kinds("sqlite", "postgres")
@campaign(1_000, 10_000)
def test_a_large_fan_in_has_no_large_row(store: Store, database: Database, rounds: int) -> None:
    """R109: each result is with its own child; the callback reads them a page at a time."""
    *_, last = lay(store.run, group(*calls(rounds)).then(call(9, queue="last")))
    padding = "x" * 1000
    while held := take(store.run, 500):
        store.run(finish, [ending(one, result=f'"{padding}"') for one in held])
    assert state(store.run, last) == ["ready"]
    assert len(results(store.run, last)) == rounds
    measure = "length(CAST({} AS text))"
    columns = ("args", "result", "error", "hooks")
    widest = " + ".join(f"coalesce({measure.format(name)}, 0)" for name in columns)
    ((most,),) = database.rows(f"SELECT max({widest}) FROM {table(database, 'job')}")
    assert most < 2_000


@pytest.mark.kinds("sqlite", "postgres")
def test_ends_cancels_and_redrives_at_once_leave_nobody_waiting(
    store: Store, database: Database
) -> None:
    """R070, R102: eight threads end, cancel and redrive whatever they find in a graph where each
    waits for two; afterwards nobody waits for what has ended."""
    graph = Flow()
    nodes = [graph.add(call(n), when="finished") for n in range(20)]
    for level in range(3):
        nodes = [
            graph.add(
                call(n), after=[nodes[n], nodes[n - 1]], when="finished" if level % 2 else None
            )
            for n in range(20)
        ]
    jobs = lay(store.run, graph)

    def act(n: int) -> None:
        for turn in range(25):
            held = take(store.run, 1, worker=f"w{n}")
            outcome = "permanent" if (turn + n) % 3 == 0 else "succeeded"
            store.run(finish, [ending(one, outcome) for one in held])
            target = jobs[-1 - (7 * turn + 11 * n) % len(jobs)]
            if turn % 3 == 0:
                cancelled[n] += cancel(target)
            if turn % 3 == 1:
                store.run(job_actions.redrive, [target.id], "ann")

    def cancel(job: Job) -> bool:
        try:
            return store.run(job_actions.cancel, job.id, "bob", "") is not None
        except TooLate:
            return False

    cancelled = [0] * 8
    all_at_once(8, act)
    assert sum(cancelled) > 0, "no cancel met a job that had not ended"
    end_all(store.run)
    assert stuck(database) == 0
    assert set(states(database)) <= {"succeeded", "dead", "cancelled"}
    for _ in range(5):
        broken = [job.id for job in jobs if state(store.run, job) != ["succeeded"]]
        store.run(job_actions.redrive, broken, "ann")
        end_all(store.run)
    assert set(states(database)) == {"succeeded"}


def test_a_follower_that_came_after_the_claim_is_told(run: Run) -> None:
    """R064: its owner was told nothing of it, and the quick way out asks again."""
    from outlast.ops.claim import ClaimRequest
    from outlast.ops.finish_and_claim import finish_and_claim

    (job,) = put(run)
    (held,) = take(run)
    (last,) = lay(run, call(9, after=job))
    finished, _ = run(finish_and_claim, [ending(held)], ClaimRequest("w1", "elsewhere", 1, 60.0))
    assert [str(to) for _, to in finished.accepted] == ["succeeded"]
    assert state(run, last) == ["ready"]


@pytest.mark.kinds("postgres")
@campaign(40, 2_000)
def test_who_comes_back_to_life_misses_no_end(
    store: Store, database: Database, rounds: int
) -> None:
    """R070, `unfired`: a follower is redriven in the moment in which one of those that it waits for
    ends. Who ends it sees no waiting follower yet, and who redrives it sees no end yet."""
    flows = []
    for _ in range(rounds):
        *_, last = made = lay(store.run, group(call(1), call(2)).then(call(9, queue="last")))
        store.run(job_actions.cancel, last.id, "ann", "")
        flows.append(made)
    held = {one.id: one for one in take(store.run, 2 * rounds)}

    def ends(child: int) -> object:
        return lambda n: store.run(finish, [ending(held[flows[n][child].id])])

    race(
        rounds, ends(0), ends(1), lambda n: store.run(job_actions.redrive, [flows[n][2].id], "ann")
    )  # type: ignore[arg-type]
    assert stuck(database) == 0
    assert len(take(store.run, rounds, queue="last")) == rounds
