"""The server's own worker, which offers jobs, fails and is started again; or it leaves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from outlast import Outlast, State
from outlast.model.settings import ServiceSettings
from outlast.model.worker_names import new_server_id
from outlast.service.dequeue import dispatcher, routes
from outlast.service.dequeue.stream import WorkerStream
from outlast.worker.heartbeat import HeartbeatThread
from tests.service.serving import Served, serving
from tests.service.streaming import QUICK, Streamed, opened, report, said, statuses
from tests.support import Database, eventually
from tests.worker.test_liveness import held_up


@pytest.fixture
def served(ol: Outlast) -> Iterator[Served]:
    with serving(ol, QUICK) as running:
        yield running


def test_a_server_whose_heartbeat_thread_dies_offers_again(served: Served, ol: Outlast) -> None:
    """R190: under a new id. What was offered comes back unspent; accepted jobs are the worker's."""

    @ol.task
    def work(n: int) -> None: ...

    ol.enqueue(*[work.job(n) for n in range(2)])
    desk, token = served.app.service.dispatcher, served.token("work")
    before = desk.id
    with opened(served, token, tasks=work.name) as stream:
        kept, offered = stream.offers(2)
        report(served, token, said(kept, "renew"))
        loop = desk._worker.leases._loop  # type: ignore[attr-defined]
        loop.call_soon_threadsafe(loop.stop)  # it ends under its thread
        assert stream.frame("bye")["reason"] == "the server is shutting down"
    eventually(lambda: desk.id != before and desk.is_open.is_set(), 20.0)
    with opened(served, token, tasks=work.name) as stream:
        [again] = stream.offers(1)
        assert again["id"] == offered["id"]
        ends = [said(job, "complete") for job in (kept, again)]
        assert statuses(report(served, token, said(again, "renew"), *ends)) == ["ok"] * 3
    for job in (kept, offered):
        ended = ol.job(job["id"])
        assert (ended.state, ended.attempt, ended.crashes) == (State.SUCCEEDED, 1, 0)
    eventually(lambda: not desk.streams and not len(desk.book))


def test_a_server_that_leaves_ends_its_streams_before_its_renewals(
    ol: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R190: while the heartbeat thread comes to rest, which may take long, nothing is offered."""
    still_open: list[list[WorkerStream]] = []
    rest = HeartbeatThread.quiesce_now

    def looked(keeper: HeartbeatThread) -> None:
        still_open.append([stream for stream in desk.streams if not stream._end_reason])
        rest(keeper)

    monkeypatch.setattr(HeartbeatThread, "quiesce_now", looked)
    with serving(ol, QUICK) as served, opened(served, served.token("work")) as stream:
        desk = served.app.service.dispatcher
        stream.frame("hello")
        loop = desk._worker.leases._loop  # type: ignore[attr-defined]
        loop.call_soon_threadsafe(loop.stop)
        stream.frame("bye")
        assert eventually(lambda: still_open)[0] == []


def test_a_server_offers_nothing_before_it_holds_its_liveness_lock(
    ol: Outlast, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R040: if it were killed then, what it had offered would wait for a lease."""
    id = new_server_id()
    monkeypatch.setattr(dispatcher, "new_server_id", lambda: id)
    monkeypatch.setattr(routes, "OPEN_WAIT_S", 0.5)

    @ol.task
    def work() -> None: ...

    job = work.enqueue()
    with ExitStack() as held, ExitStack() as stack:
        held.enter_context(held_up(database, id))
        served = stack.enter_context(serving(ol, ServiceSettings(remote_lease=600.0)))
        token = served.token("work")
        stream = stack.enter_context(Streamed(served.url, token, tasks=work.name))
        assert " 503 " in stream.head().splitlines()[0]
        assert ol.job(job.id).state is State.READY
        held.close()
        eventually(served.app.service.dispatcher.is_open.is_set)
        [offer] = stack.enter_context(opened(served, token, tasks=work.name)).offers(1)
        assert offer["id"] == job.id
