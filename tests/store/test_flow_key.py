"""A flow has one key: whoever enqueues it again gets the flow that exists, whole."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from typing import Any

import pytest

from outlast import FlowClosed, InvalidFlow, InvalidOption, KeyConflict, Outlast
from outlast.model.flow import Flow, chain, group
from outlast.model.flow_builder import build_jobs
from outlast.model.outcome import Transition
from outlast.ops import report, retention
from outlast.ops.enqueue import enqueue
from outlast.ops.erase import erase
from outlast.ops.finish import finish, finish_with_keys
from outlast.store import Store
from outlast.worker.isolated import _decode_job
from tests.store.callers import Psycopg, Sqlite3
from tests.store.conftest import Run
from tests.store.flowing import call, end_all, end_one, lay, left, results, state, stuck
from tests.store.jobs import ending, table, take
from tests.support import Database, eventually

pytestmark = pytest.mark.kinds("sqlite", "postgres")


@pytest.fixture
def run(store: Store) -> Run:
    """Blocking only: the operations are the same."""
    return store.run


def graph(key: str) -> Flow:
    flow = Flow("month end", key=key)
    first = flow.add(call(1))
    flow.add(call(2), after=first)
    flow.milestone(1.0, call(3))
    return flow


PLANS: list[Callable[[], Any]] = [
    lambda: group(call(1), call(2), call(3)).then(call(9)).using(key="k"),
    lambda: group(call(1), call(2), call(3)).using(key="k").then(call(9)),
    lambda: chain(call(1), call(2)).using(key="k"),
    lambda: group(chain(call(1), call(2)), group(call(3), fail_fast=True)).using(key="k"),
    lambda: graph("k"),
]


@pytest.mark.parametrize("plan", PLANS)
def test_a_flow_sent_twice_is_one_flow(
    run: Run, database: Database, plan: Callable[[], Any]
) -> None:
    """R224: group and callback, chain, graph, nested: the second one gets the first one's jobs, in
    the same order, as they stand by then."""
    first = lay(run, plan())
    rows = left(database)
    again = lay(run, plan())
    assert [job.id for job in again] == [job.id for job in first]
    assert [job.state for job in again] == [job.state for job in first]
    assert left(database) == rows
    assert end_all(run) == len(first)
    late = lay(run, plan())
    assert [job.id for job in late] == [job.id for job in first]
    assert {str(job.state) for job in late} == {"succeeded"}
    assert left(database) == rows and stuck(database) == 0


def test_a_key_on_one_job_does_not_split_a_flow(run: Run, database: Database) -> None:
    """R224: a group with a keyed callback would run its parts again, a chain with a keyed first
    job its second one. Both are refused, by the key and the job that has it."""
    *_, callback = lay(run, group(call(1), call(2), call(3)).then(call(9, key="back")))
    first, _ = lay(run, chain(call(1, key="first"), call(2)))
    before = left(database)
    with pytest.raises(InvalidFlow, match=f"'back' .*{callback.id}.*Give the key to the flow"):
        lay(run, group(call(1), call(2), call(3)).then(call(9, key="back")))
    with pytest.raises(InvalidFlow, match=f"'first' .*{first.id}"):
        lay(run, chain(call(1, key="first"), call(2)))
    with pytest.raises(InvalidFlow, match="'back'"):
        lay(run, *(parts := [call(1), call(2)]), call(9, key="back", after=parts))
    with pytest.raises(InvalidFlow, match="'twin'"):
        lay(run, chain(call(1, key="twin"), call(2)), chain(call(1, key="twin"), call(3)))
    assert left(database) == before


@pytest.mark.parametrize(
    "other",
    [
        lambda: chain(call(1), call(3)),
        lambda: chain(call(1), call(2), call(3)),
        lambda: group(call(1), call(2)),
        lambda: chain(call(1), call(2, queue="other")),
        lambda: chain(call(1)).then(call(2), when="finished"),
    ],
)
def test_another_flow_under_a_key_is_a_conflict(
    run: Run, database: Database, other: Callable[[], Any]
) -> None:
    """R224, R003: other arguments, jobs, order, queue or policy. Nothing of the call is stored."""
    (first, _) = lay(run, chain(call(1), call(2)).using(key="k"))
    before = left(database)
    with pytest.raises(KeyConflict, match="'k' already belongs to flow") as refusal:
        lay(run, call(5), other().using(key="k"))
    assert refusal.value.facts["flow"] == first.flow
    assert left(database) == before


def test_a_key_is_unique_per_tenant(run: Run, database: Database) -> None:
    """R224: whatever the queues; the jobs of one flow with a key belong to one tenant."""
    plans = [chain(call(1, tenant=t), call(2, tenant=t)).using(key="k") for t in ("a", "b", "a")]
    one, other, again = (lay(run, plan) for plan in plans)
    assert one[0].id == again[0].id != other[0].id
    with pytest.raises(InvalidOption, match="2 tenants"):
        lay(run, chain(call(1, tenant="a"), call(2, tenant="b")).using(key="x"))
    with pytest.raises(InvalidOption, match="inner chain with the key 'x'"):
        lay(run, group(chain(call(1)).using(key="x"), call(2)))
    with pytest.raises(InvalidOption, match="1 to 200 characters"):
        chain(call(1)).using(key="")
    assert left(database)["job"] == 4


def test_flows_of_one_call_that_share_a_key_are_one(run: Run, database: Database) -> None:
    """R224: and what comes after a job of the second comes after that of the first."""
    end = call(2)
    jobs = lay(run, chain(call(1), call(2)).using(key="k"), call(0),
               chain(call(1), end).using(key="k"), call(5, after=end))  # fmt: skip
    assert [job.id for job in jobs[:2]] == [job.id for job in jobs[3:5]]
    assert left(database) == {"job": 4, "edge": 2, "flow": 1}
    with pytest.raises(KeyConflict):
        lay(run, chain(call(1)).using(key="x"), chain(call(2)).using(key="x"))
    assert end_all(run) == 4
    assert results(run, jobs[-1]) == [jobs[1].id]


def test_a_part_of_a_flow_sent_twice_leaves_nothing_behind(run: Run, database: Database) -> None:
    """R224: a handler that is tried again enqueues a group with a key, which fails as one, in its
    own flow."""
    flow = lay(run, chain(call(1), call(2)))[0].flow
    plan = group(call(3), call(4), fail_fast=True).using(key="k")
    first = run(enqueue, build_jobs([plan], into_flow=flow))
    rows = left(database)
    again = run(enqueue, build_jobs([plan, plan], into_flow=flow))
    assert [job.id for job in again] == 2 * [job.id for job in first]
    assert left(database) == rows


@pytest.mark.parametrize("plan", PLANS)
def test_a_new_flow_may_come_beside_one_that_exists(
    run: Run, database: Database, plan: Callable[[], Any]
) -> None:
    """R224: in either order in one call, with a key or without."""
    first = lay(run, plan())
    beside = [
        lay(run, plan(), chain(call(5), call(6)).using(key="other")),
        lay(run, plan(), chain(call(5), call(6))),
        lay(run, chain(call(5), call(6)), plan()),
    ]
    ids = [job.id for job in first]
    for jobs in beside[:2]:
        assert [job.id for job in jobs[: len(ids)]] == ids
        assert [str(job.state) for job in jobs[len(ids) :]] == ["ready", "waiting"]
    assert [job.id for job in beside[2][2:]] == ids
    assert end_all(run) == len(first) + 6 and stuck(database) == 0


def test_a_job_can_come_after_one_of_the_flow_that_exists(run: Run) -> None:
    """R224: `after=` a job of a flow whose key is taken means the job that exists."""
    first, second = lay(run, chain(call(1), call(2)).using(key="k"))
    end = call(2)
    *_, last = lay(run, chain(call(1), end).using(key="k"), call(3, after=[end, first]))
    assert run(report.job, last.id).waits_for == 2
    assert end_all(run) == 3
    assert results(run, last) == [second.id, first.id]


def test_the_key_is_kept_as_long_as_the_flow(run: Run, database: Database) -> None:
    """R224: with its last job the key is free again."""
    first = lay(run, chain(call(1), call(2)).using(key="k"))
    assert run(report.job, first[0].id).flow == first[0].flow
    end_all(run)
    database.rows(f"DELETE FROM {table(database, 'job')} WHERE id = '{first[0].id}'")
    assert [job.id for job in lay(run, chain(call(1), call(2)).using(key="k"))] == [first[1].id]
    run(retention.prune, "succeeded", 0.0, 10)
    assert left(database) == {"job": 0, "edge": 0, "flow": 0}
    again = lay(run, chain(call(1), call(2)).using(key="k"))
    assert len(again) == 2 and again[0].id != first[0].id


def test_a_flow_without_any_job_left_is_named(run: Run, database: Database) -> None:
    lay(run, chain(call(1), call(2)).using(key="k"))
    database.rows(f"DELETE FROM {table(database, 'job')}")
    with pytest.raises(FlowClosed, match="were pruned"):
        lay(run, chain(call(1), call(2)).using(key="k"))


def test_the_digest_of_a_forgotten_job_is_erased(run: Run, database: Database) -> None:
    """As with a job's key: the key stays, and whether the call was the same nobody can say."""
    first, _ = lay(run, chain(call(1), call(2)).using(key="k"))
    end_all(run)
    run(erase, first.id, "ann")
    assert database.rows(f"SELECT shape FROM {table(database, 'flow')}") == [("",)]
    with pytest.raises(KeyConflict):
        lay(run, chain(call(1), call(2)).using(key="k"))


def test_a_flow_whose_answer_got_lost_is_sent_again(run: Run, database: Database) -> None:
    """R002: the same ids a second time."""
    sent = build_jobs([chain(call(1), call(2)).using(key="k")])
    first = run(enqueue, sent)
    assert [job.id for job in run(enqueue, sent)] == [job.id for job in first]
    assert left(database) == {"job": 2, "edge": 1, "flow": 1}


# From handlers


@pytest.fixture(params=[finish, finish_with_keys])
def hand_in(request: pytest.FixtureRequest, run: Run) -> Callable[[Transition], Any]:
    if request.param is finish:
        return lambda transition: run(finish, [transition])
    return lambda transition: run(finish_with_keys, transition)


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("join", [False, True])
def test_two_handlers_that_enqueue_one_flow_make_one(
    run: Run, database: Database, hand_in: Callable[[Transition], Any], within: bool, join: bool
) -> None:
    """R224: alone or as jobs of flows, to which the jobs then belong; whoever is to wait for what
    a handler enqueues (`join=True`) waits for the flow that exists."""
    makers = [chain(call(n), call(8)) if within else call(n) for n in (1, 2)]
    lasts = [lay(run, maker)[-1] for maker in makers]
    for held in take(run, 2):
        plan = chain(call(5, queue="q"), call(6, queue="q")).using(key="k")
        made = build_jobs([plan], held.flow, held.id if join else None)
        hand_in(ending(held, jobs=tuple(made), result="1"))
    assert database.rows(f"SELECT count(*) FROM {table(database, 'job')} WHERE queue = 'q'") == [
        (2,)
    ]
    if within and join:
        assert state(run, *lasts) == ["waiting"] * 2
    for _ in range(2):
        run(finish, [ending(one, result="1") for one in take(run, 9, queue="q")])
    if within:
        assert state(run, *lasts) == ["ready"] * 2
    assert stuck(database) == 0


def test_an_isolated_child_hands_flows_with_keys_over() -> None:
    """R224: by its pipe, as JSON."""
    jobs = build_jobs([chain(call(1), call(2)).using(key="k")])
    assert [_decode_job(**json.loads(json.dumps(asdict(job)))) for job in jobs] == jobs


# At once


@pytest.fixture
def client(database: Database) -> Iterator[Outlast]:
    with Outlast(database.url, schema=database.schema) as opened:
        opened.migrate()
        yield opened


def test_fifty_threads_with_one_key_make_one_flow(client: Outlast, database: Database) -> None:
    """R224, R003: 50 equal answers, no error."""
    together = threading.Barrier(50)

    def send(_: int) -> list[str]:
        together.wait()
        return [
            job.id for job in client.enqueue(group(call(1), call(2)).then(call(3)).using(key="k"))
        ]

    with ThreadPoolExecutor(50) as threads:
        answers = list(threads.map(send, range(50)))
    assert answers == [answers[0]] * 50
    assert left(database) == {"job": 3, "edge": 2, "flow": 1}


@pytest.mark.parametrize("commits", [True, False])
def test_of_two_transactions_the_second_waits_for_the_first(
    client: Outlast, database: Database, commits: bool
) -> None:
    """R224, R007: a caller's transaction decides: both or neither, and one flow."""
    plan = chain(call(1), call(2)).using(key="k")
    kind = Sqlite3 if database.is_sqlite else Psycopg
    with closing(kind(database)) as caller:
        mine = caller.connection
        first = client.enqueue(plan, conn=mine)
        if database.is_sqlite:  # one writer: the second one begins when the first has ended
            (mine.commit if commits else mine.rollback)()
            second = client.enqueue(plan)
        else:
            with ThreadPoolExecutor(1) as threads:
                waiting = threads.submit(client.enqueue, plan)
                eventually(lambda: _waits_for_a_lock(database))
                assert not waiting.done()
                (mine.commit if commits else mine.rollback)()
                second = waiting.result(20)
    assert ([job.id for job in second] == [job.id for job in first]) is commits
    assert left(database) == {"job": 2, "edge": 1, "flow": 1}


def _waits_for_a_lock(database: Database) -> bool:
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    return bool(database.rows(query)[0][0])


def test_the_key_is_shown(client: Outlast) -> None:
    first, _ = client.enqueue(graph("k"))[:2]
    seen = client.flow(str(first.flow))
    assert (seen.key, seen.name) == ("k", "month end")
    assert seen.as_json()["key"] == "k" and client.flows()[0].key == "k"


def test_a_flow_with_a_key_survives_the_end_of_one_of_its_jobs(run: Run) -> None:
    """R224: dead, cancelled or ended, the flow that exists is the answer."""
    first, second = lay(run, chain(call(1), call(2)).using(key="k"))
    end_one(run, "permanent")
    again = lay(run, chain(call(1), call(2)).using(key="k"))
    assert [(job.id, str(job.state)) for job in again] == [(first.id, "dead"), (second.id, "dead")]
