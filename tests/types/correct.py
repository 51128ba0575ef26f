"""Correct uses of the API: mypy and pyright find no error here, and know these types."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, assert_type

from outlast import (
    BatchContext,
    Call,
    Context,
    Databases,
    Job,
    Outlast,
    Retry,
    StoreError,
    Task,
    chain,
    group,
)
from outlast.remote import RemoteWorker

if TYPE_CHECKING:
    import sqlite3

ol = Outlast("sqlite:///unused.db")
databases = Databases({"eu": ol}, {"acme": "eu"})
worker = ol.worker("slow", concurrency=4, lease=30, memory_floor=100)
remote = RemoteWorker("https://jobs.example.org", "olt_…", ol, "slow", concurrency=4, grace=1)


@dataclass
class Report:
    pages: int


@ol.task
def plain(doc: int, language: str = "en") -> Report:
    return Report(doc)


@ol.task
async def awaited(doc: int, language: str = "en") -> set[str]:
    return {language}


@ol.task
def context_first(ctx: Context, doc: int, *, language: str = "en") -> datetime:
    return ctx.job.created_at


@ol.task(queue="slow", retry=Retry(max_attempts=3), timeout=timedelta(minutes=1))
async def context_first_awaited(ctx: Context, doc: int) -> list[int]:
    return [doc]


@ol.task(priority=5)
def context_last(doc: int, ctx: Context) -> Report:
    return Report(doc)


@ol.task
async def context_between(doc: int, pages: list[int], ctx: Context, more: str = "") -> Report:
    return Report(doc)


@ol.task(name="optional context")
def context_optional(doc: int, ctx: Context | None = None) -> int:
    return doc


@ol.task
def only_context(ctx: Context) -> None: ...


@ol.task
def context_and_keywords(ctx: Context, **counts: int) -> None: ...


@ol.task
def takes_anything(payload: object, ctx: Context) -> int:
    return 1


@ol.task
def takes_any(payload: Any, times: int) -> int:
    return times


@ol.task
def gives_any(doc: int) -> Any:
    return doc


@ol.task(batch=100, wait=0.1)
def batch(docs: list[int]) -> list[Report]:
    return [Report(doc) for doc in docs]


@ol.task(batch=100, on_dead=plain.job(1))
async def batch_context_first(ctx: BatchContext, docs: list[Report]) -> None: ...


@ol.task(batch=100)
def batch_context_last(docs: list[Report], ctx: BatchContext) -> list[int] | None:
    return None


class Mailer:
    def send(self, ctx: Context, to: str) -> bool:
        return bool(to)


send = ol.task(name="send")(Mailer().send)


Reports = Task[..., "Report"]  # which Python evaluates
Exact = Task[[int], Report, [int], Report]
Made = Job[Report] | Call[Report]


def enqueues() -> None:
    assert_type(plain.enqueue(7), Job[Report])
    assert_type(plain.enqueue(doc=7, language="de"), Job[Report])
    assert_type(awaited.enqueue(7, "de"), Job[set[str]])
    assert_type(context_first.enqueue(7, language="de"), Job[datetime])
    assert_type(context_first.enqueue(doc=7), Job[datetime])
    assert_type(context_first_awaited.enqueue(doc=7), Job[list[int]])
    assert_type(context_last.enqueue(7), Job[Report])
    assert_type(context_last.enqueue(doc=7), Job[Report])
    assert_type(context_between.enqueue(7, pages=[1]), Job[Report])
    assert_type(context_optional.enqueue(7), Job[int])
    assert_type(only_context.enqueue(), Job[None])
    assert_type(context_and_keywords.enqueue(a=1, b=2), Job[None])
    assert_type(takes_anything.enqueue({"a": 1}), Job[int])
    takes_any.enqueue({"a": 1}, times=2)
    gives_any.enqueue(1)
    assert_type(send.enqueue(to="ada"), Job[bool])
    assert_type(batch.enqueue(7), Job[Report])
    assert_type(batch_context_first.enqueue(Report(1)), Job[None])
    batch_context_last.enqueue(Report(1))


def uses(conn: sqlite3.Connection, before: Job) -> None:
    later = plain.using(conn=conn, delay=30, priority=5, queue="slow", key="doc-7", tenant="acme")
    assert_type(later.enqueue(doc=7), Job[Report])
    assert_type(later.using(max_attempts=3, expires=timedelta(days=1)).job(7), Call[Report])
    plain.using(after=before, when="finished").enqueue(1)
    plain.using(after=[before.id, awaited.job(1)], on_success=[only_context.job()]).enqueue(1)


def enqueues_many(conn: sqlite3.Connection) -> None:
    assert_type(plain.job(7), Call[Report])
    assert_type(ol.enqueue(plain.job(1), plain.job(2), conn=conn), list[Job[Report]])
    assert_type(ol.enqueue(*(awaited.job(n) for n in range(9))), list[Job[set[str]]])
    assert_type(ol.enqueue((plain.job(n) for n in range(9)), conn=conn), int)
    ol.enqueue(plain.job(1), awaited.job(2))
    ol.enqueue(chain(plain.job(1), group(awaited.job(2), awaited.job(3))))


def calls(ctx: Context) -> None:
    assert_type(plain(7), Report)
    assert_type(plain(doc=7, language="de"), Report)
    assert_type(context_first(ctx, 7), datetime)
    assert_type(context_first(ctx=ctx, doc=7), datetime)
    assert_type(context_last(7, ctx), Report)
    assert_type(batch([1, 2]), list[Report])
    assert_type(gives_any(1)["a"], Any)


async def calls_async(ctx: Context) -> None:
    assert_type(await awaited(7), set[str])
    assert_type(await context_first_awaited(ctx, doc=7), list[int])
    assert_type(await awaited.aenqueue(doc=7), Job[set[str]])
    assert_type(await awaited.using(delay=1).aenqueue(7), Job[set[str]])
    assert_type(await ol.aenqueue(plain.job(1)), list[Job[Report]])
    assert_type(await ol.aenqueue(plain.job(n) for n in range(9)), int)
    assert_type(await ol.aresult(await awaited.aenqueue(7), timeout=5), set[str])


def results() -> None:
    job = plain.enqueue(7)
    assert_type(ol.result(job), Report)
    assert_type(ol.result(job, 5.0, erase=True).pages, int)
    assert_type(ol.result(job, raw=True), Any)
    assert_type(ol.result(job.id), Any)
    assert_type(ol.result(ol.job(job.id)), Any)
    assert_type(ol.result(batch.enqueue(7)), Report)
    assert_type(ol.result(awaited.enqueue(7)), set[str])


def verbs(job: Job) -> None:
    assert_type(ol.job(job.id), Job)
    assert_type(ol.jobs(state="dead", limit=5), list[Job])
    assert_type(ol.counts(), dict[str, int])
    assert_type(ol.cancel(job.id, reason="late"), Job)
    assert_type(ol.retry_all(queue="slow").more, int)
    assert_type(ol.flow_jobs(id=job.id, after=None), list[Job])
    ol.pause("slow")


async def verbs_async(job: Job) -> None:
    assert_type(await ol.ajob(job.id), Job)
    assert_type(await ol.ajobs(state="dead", limit=5), list[Job])
    assert_type(await ol.acancel(job.id, reason="late"), Job)
    assert_type(await ol.aretry_flow(job.id), int)


@databases.task(tenant="acme")
async def routed(ctx: Context, doc: int) -> Report:
    return Report(doc)


async def several_databases() -> None:
    assert_type(routed.enqueue(7), Job[Report])
    assert_type(databases.enqueue(routed.job(7)), list[Job[Report]])
    assert_type(await databases.aenqueue(routed.job(7)), list[Job[Report]])
    assert_type(databases.of("acme"), Outlast)
    assert_type(databases.each(Outlast.counts), dict[str, dict[str, int] | StoreError])
    assert_type(await databases.aeach(Outlast.acounts), dict[str, dict[str, int] | StoreError])
    assert_type(databases.each(lambda one: one.jobs(limit=5)), dict[str, list[Job] | StoreError])


def annotated(tasks: list[Reports], any_task: Task, any_job: Job) -> None:
    """`Task` and `Job` need no parameters, or only those that matter to a caller."""
    tasks.append(plain)
    assert_type(tasks[0].enqueue(7), Job[Report])
    any_task.enqueue(1, whatever=2)
    other: Job[object] = plain.enqueue(7)
    any_job = other
    print(any_job)
