"""`manage.py outlast worker`: a real process of a Django project."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outlast import Call, Outlast
from outlast.model.options import Options
from tests.integrations.django.shop import Shop
from tests.support import Database, Processes, eventually
from tests.support.processes import Process

Worker = Callable[..., Process]


@pytest.fixture
def shop(database: Database) -> Shop:
    return Shop(database).migrated()


@pytest.fixture
def ol(shop: Shop) -> Iterator[Outlast]:
    """A client beside Django, which knows the shop's tasks by name."""
    with Outlast(shop.database.url, schema=shop.database.schema) as client:
        yield client


@pytest.fixture
def worker(shop: Shop, processes: Processes) -> Worker:
    def start(*arguments: object, here: Shop = shop) -> Process:
        command = here.command("outlast", "worker", *arguments)
        return processes.run(*command, env=here.env)

    return start


def enqueue(ol: Outlast, task: str, count: int = 1, **arguments: object) -> list[str]:
    if ol.registry.get(task) is None:
        names = ", ".join(arguments)
        space: dict[str, Callable[..., None]] = {}
        exec(f"def stub({names}): ...", space)
        ol.task(space["stub"], name=task)
    definition = ol.registry[task]
    calls = [Call(definition, Options(), (), arguments) for _ in range(count)]
    return [job.id for job in ol.enqueue(*calls)]


def finished(ol: Outlast, ids: list[str]) -> bool:
    return all(ol.job(id).state in ("succeeded", "dead") for id in ids)


def sessions(shop: Shop, pids: set[int]) -> set[int]:
    rows = shop.database.rows("SELECT pid FROM pg_stat_activity")
    return pids & {pid for (pid,) in rows}


def test_a_killed_worker_s_job_is_run_by_the_next_one(
    shop: Shop, ol: Outlast, worker: Worker, tmp_path: Path
) -> None:
    """R027: kill -9 in the middle of a sync job that then writes with the ORM."""
    first = worker()
    [job] = enqueue(ol, "mark", folder=str(tmp_path), number=1, seconds=5.0)
    eventually((tmp_path / "started").exists)
    first.kill()
    [again] = enqueue(ol, "mark", folder=str(tmp_path), number=2, seconds=0.0)
    worker()
    eventually(lambda: finished(ol, [job, again]), timeout=30)
    assert ol.job(job).state == ol.job(again).state == "succeeded"
    rows = shop.database.rows("SELECT number FROM shop_order ORDER BY number")
    assert [number for (number,) in rows] == [1, 2]
    assert sorted((tmp_path / "started").read_text().split()) == ["1", "1", "2"]


@pytest.mark.kinds("postgres")
def test_a_worker_leaves_no_connection_open(shop: Shop, ol: Outlast, worker: Worker) -> None:
    """Django closes its connections after requests, and a worker has none: 20 jobs once left 20."""
    worker()
    ids = enqueue(ol, "session", 20)
    [task] = enqueue(ol, "shop.tasks.acount", args=[1], kwargs={})  # one of Django's own
    eventually(lambda: finished(ol, [*ids, task]))
    pids = {ol.job(id).result for id in ids}
    assert len(pids) > 1
    eventually(lambda: not sessions(shop, pids))
    assert ol.job(task).result == 2


@pytest.mark.kinds("postgres")
def test_jobs_do_not_fail_after_their_thread_s_connection_was_cut(
    database: Database, shop: Shop, ol: Outlast, worker: Worker
) -> None:
    """With persistent connections, once, 20 of 20 next jobs failed: "the connection is closed"."""
    keeping = Shop(database, CONN_MAX_AGE=None)
    worker("--concurrency", 4, here=keeping)
    ids = enqueue(ol, "session", 20)
    eventually(lambda: finished(ol, ids))
    pids = {ol.job(id).result for id in ids}
    assert sessions(shop, pids) == pids  # they are kept, as asked
    for pid in pids:
        database.rows("SELECT pg_terminate_backend(%s)", (pid,))
    eventually(lambda: not sessions(shop, pids))
    later = enqueue(ol, "session", 20)
    eventually(lambda: finished(ol, later))
    assert [(ol.job(id).state, ol.job(id).attempt) for id in later] == [("succeeded", 1)] * 20


def test_a_handler_s_enqueue_joins_its_atomic_block(
    shop: Shop, ol: Outlast, worker: Worker
) -> None:
    """R002: also where the worker has connections of its own."""
    worker()
    [job] = enqueue(ol, "order_in_a_failing_transaction", number=1)
    eventually(lambda: ol.job(job).error is not None)
    assert ol.jobs(task="pay") == []
    ol.cancel(job)


@pytest.mark.kinds("postgres")
def test_an_isolated_handler_finds_django_set_up(shop: Shop, ol: Outlast, worker: Worker) -> None:
    worker()
    shop.database.rows("INSERT INTO shop_order (number, paid) VALUES (1, false) RETURNING 1")
    [job] = enqueue(ol, "pay_apart", order=1)
    eventually(lambda: finished(ol, [job]))
    assert ol.job(job).result is True


@pytest.mark.kinds("postgres")
def test_the_url_is_in_no_process_s_arguments(shop: Shop, ol: Outlast, worker: Worker) -> None:
    """Two processes under a supervisor, which work; the password is in the environment alone."""
    parent = worker("--processes", 2)
    [job] = enqueue(ol, "session")
    eventually(lambda: finished(ol, [job]))
    assert ol.job(job).state == "succeeded"
    eventually(lambda: len(_children(parent.pid)) >= 2)
    for pid in (parent.pid, *_children(parent.pid)):
        assert b"not-in-argv" not in Path(f"/proc/{pid}/cmdline").read_bytes()


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


@pytest.mark.kinds("sqlite")
def test_other_commands_use_the_project_s_database(shop: Shop, ol: Outlast) -> None:
    [job] = enqueue(ol, "pay", order=1)
    assert job in shop.run("outlast", "jobs", "--json")
    assert "needs its own database" in shop.run("outlast", "demo", code=2)
