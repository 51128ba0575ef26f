"""`Databases`: a job goes to the database of its tenant, and nowhere else."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from outlast import (
    Context,
    Databases,
    Flow,
    InvalidOption,
    Job,
    Outlast,
    StoreError,
    StoreUnavailable,
    TenantRequired,
    UnknownTenant,
    WrongConnection,
    chain,
    group,
)
from outlast.testing import assert_enqueued, refute_enqueued
from tests.support import aeventually


@pytest.fixture
def greet(databases: Databases) -> Any:
    @databases.task(queue="mail")
    def greet(who: str = "you") -> str:
        return f"hello {who}"

    return greet


def tenants(ol: Outlast) -> list[str]:
    return sorted(job.tenant for job in ol.jobs())


def test_a_job_goes_to_the_database_of_its_tenant(databases: Databases, greet: Any) -> None:
    eu, us = databases.by_name.values()
    job = greet.using(tenant="acme").enqueue("Ada")
    asyncio.run(greet.using(tenant="umbrella").aenqueue("Bob"))
    assert (tenants(eu), tenants(us)) == (["acme"], ["umbrella"])
    assert databases.of("acme") is eu and eu.job(job.id).queue == "mail"
    assert_enqueued(greet.using(tenant="umbrella"), "Bob")
    refute_enqueued(greet.using(tenant="acme"), "Bob")
    assert greet("Ada") == "hello Ada", "a plain call still works"


def test_a_task_is_declared_once_and_every_worker_knows_it(
    databases: Databases, greet: Any
) -> None:
    jobs = [greet.using(tenant=tenant).enqueue(tenant) for tenant in ("acme", "umbrella")]

    async def work(job: Job[str]) -> str:
        ol = databases.of(job.tenant)
        async with ol.worker():
            return await ol.aresult(job, 30)

    assert [asyncio.run(work(job)) for job in jobs] == ["hello acme", "hello umbrella"]


def test_a_tenant_without_a_database_is_refused_with_what_to_do(
    databases: Databases, greet: Any
) -> None:
    with pytest.raises(UnknownTenant, match=r"'initech': add it to the route.*one of eu, us"):
        greet.using(tenant="initech").enqueue()
    with pytest.raises(TenantRequired, match=r"greet must name its tenant: using\(tenant=…\)"):
        greet.enqueue()
    with pytest.raises(InvalidOption, match="1 to 200 characters"):
        databases.of("")
    assert databases.each(Outlast.jobs) == {"eu": [], "us": []}


def test_the_route_may_be_a_function_and_may_change(tmp_path: Path) -> None:
    urls = {name: Outlast(f"sqlite:///{tmp_path / name}.db") for name in ("eu", "us")}
    moved: dict[str, str] = {}
    databases = Databases(urls, lambda tenant: moved.get(tenant, "eu"))
    assert databases.of("anybody") is urls["eu"]
    moved["anybody"] = "us"
    assert databases.of("anybody") is urls["us"]
    moved["anybody"] = "asia"
    with pytest.raises(InvalidOption, match="'asia', which is not one of eu, us"):
        databases.of("anybody")


@pytest.mark.parametrize(
    ("by_name", "route", "said"),
    [
        ({}, {}, "must name a database"),
        ({"EU": None}, {}, "must be 1 to 48 of a–z"),
        ({"a/b": None}, {}, "must be 1 to 48 of a–z"),
        ({"eu": "sqlite:///eu.db"}, {}, r"must map 'eu' to an Outlast\(…\)"),
        ({"eu": Outlast("sqlite:///eu.db")}, {"acme": "us"}, "'us', which is not one of eu"),
        ({"eu": Outlast("sqlite:///eu.db")}, "eu", "must be a mapping or a function, not 'eu'"),
    ],
)
def test_a_wrong_map_is_refused_when_it_is_made(by_name: Any, route: Any, said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        Databases(by_name, route)


def test_jobs_that_are_enqueued_together_are_of_one_database(
    databases: Databases, greet: Any
) -> None:
    """No transaction covers two: nothing is enqueued."""

    def of(tenant: str, **options: Any) -> Any:
        return greet.using(tenant=tenant, **options).job()

    flow = Flow()
    flow.add(of("umbrella"), after=flow.add(of("acme")))
    refused: list[Any] = [
        (of("acme"), of("umbrella")),
        (chain(of("acme"), of("umbrella")),),
        (group(of("acme"), chain(of("globex"), of("umbrella"))),),
        (flow,),
        (of("acme", on_dead=of("umbrella")),),
    ]
    for calls in refused:
        with pytest.raises(InvalidOption, match="and 'umbrella', which are in two databases"):
            databases.enqueue(*calls)
    assert databases.each(Outlast.jobs) == {"eu": [], "us": []}
    made = databases.enqueue(of("acme"), group(of("globex"), of("acme")).then(of("acme")))
    assert len(made) == 4 and len(databases.by_name["eu"].jobs()) == 4
    assert databases.enqueue() == databases.enqueue(group()) == []
    with pytest.raises(InvalidOption, match="The option enqueue takes"):
        databases.enqueue(iter([of("acme")]))  # type: ignore[call-overload]


def test_the_connection_of_another_database_is_refused(
    databases: Databases, greet: Any, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "us.db")) as conn:
        with pytest.raises(WrongConnection):
            greet.using(tenant="acme", conn=conn).enqueue()
        greet.using(tenant="umbrella", conn=conn).enqueue()
        conn.commit()
    assert (tenants(databases.of("acme")), tenants(databases.of("umbrella"))) == ([], ["umbrella"])


def test_a_database_refuses_jobs_of_tenants_that_another_one_has(
    databases: Databases, greet: Any
) -> None:
    """However they are enqueued; jobs that belong to no tenant may be anywhere."""
    eu = databases.by_name["eu"]

    @eu.task
    def tidy() -> None: ...

    tidy.enqueue()
    tidy.using(tenant="initech").enqueue()
    foreign = greet.using(tenant="umbrella").job()
    for call in (foreign, iter([foreign])):
        with pytest.raises(InvalidOption, match="'umbrella', which the database us has"):
            eu.enqueue(call)
    assert tenants(eu) == ["default", "initech"]


def test_a_handler_enqueues_for_other_tenants_where_they_are(
    databases: Databases, greet: Any
) -> None:
    """`ctx.enqueue` commits with the job, so it is for tenants of the same database."""

    @databases.task
    def fan(ctx: Context) -> str:
        try:
            ctx.enqueue(greet.using(tenant="umbrella").job())
        except InvalidOption as error:
            refused = str(error)
        ctx.enqueue(greet.using(tenant="globex").job())
        greet.using(tenant="umbrella").enqueue()
        return refused

    async def work() -> str:
        eu = databases.of("acme")
        async with eu.worker(queues="default"):
            return await eu.aresult(await fan.using(tenant="acme").aenqueue(), 30)

    assert "'umbrella', which the database us has" in asyncio.run(work())
    eu, us = databases.by_name.values()
    assert (tenants(eu), tenants(us)) == (["acme", "globex"], ["umbrella"])


def test_jobs_of_a_tenant_that_was_moved_are_finished_where_they_are(tmp_path: Path) -> None:
    """With those that they enqueue; new ones go to the other database."""
    route = {"acme": "eu"}
    ols = {name: Outlast(f"sqlite:///{tmp_path / name}.db") for name in ("eu", "us")}
    databases = Databases(ols, route)

    @databases.task
    def first(ctx: Context) -> None:
        ctx.enqueue(then.using(tenant="acme").job())

    @databases.task
    def then() -> str:
        return "done"

    first.using(tenant="acme").enqueue()
    route["acme"] = "us"
    first.using(tenant="acme").enqueue()

    async def work() -> None:
        async with ols["eu"].worker():
            await aeventually(lambda: ols["eu"].counts()["succeeded"] == 2)

    asyncio.run(work())
    assert ols["eu"].jobs(task="then")[0].result == "done"
    assert [job.task for job in ols["us"].jobs()] == ["first"]
    for ol in ols.values():
        ol.close()


def test_a_schedule_is_in_the_database_of_its_tenant(databases: Databases) -> None:
    @databases.task(cron="@daily", tenant="umbrella")
    def report() -> None: ...

    assert [sorted(ol.registry.schedules) for ol in databases.by_name.values()] == [[], ["report"]]
    with pytest.raises(TenantRequired):
        databases.task(lambda: None, name="nobodys", cron="@daily")  # type: ignore[call-overload]


def test_every_database_is_asked_and_one_that_fails_is_named(databases: Databases) -> None:
    databases.by_name["us"].move("postgresql://127.0.0.1:1/none")
    for found in (databases.each(Outlast.counts), asyncio.run(databases.aeach(Outlast.acounts))):
        assert list(found) == ["eu", "us"]
        assert isinstance(found["eu"], dict) and found["eu"]["ready"] == 0
        assert isinstance(found["us"], StoreUnavailable)
    with pytest.raises(ZeroDivisionError):
        databases.each(lambda _: 1 // 0)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_nobody_waits_for_a_database_that_does_not_answer(
    databases: Databases, asynchronous: bool
) -> None:
    freed = threading.Event()
    us = databases.by_name["us"]

    def counts(ol: Outlast) -> dict[str, int]:
        if ol is us:
            freed.wait(30)
        return ol.counts()

    async def acounts(ol: Outlast) -> dict[str, int]:
        if ol is us:
            await asyncio.sleep(30)
        return await ol.acounts()

    began = time.monotonic()
    found = (
        asyncio.run(databases.aeach(acounts, timeout=0.5))
        if asynchronous
        else databases.each(counts, timeout=0.5)
    )
    freed.set()
    assert time.monotonic() - began < 10
    assert isinstance(found["eu"], dict)
    assert "no response within 0.5 s" in str(found["us"]) and isinstance(found["us"], StoreError)
