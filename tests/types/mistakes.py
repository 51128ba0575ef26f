"""Mistakes, each of which mypy and pyright must find where a comment says so, and nowhere else.

A comment names the rules: of mypy, then of pyright.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from outlast import BatchContext, Context, Job, Outlast, Task

ol = Outlast("sqlite:///unused.db")


@dataclass
class Report:
    pages: int


@ol.task
def plain(doc: int, language: str = "en") -> Report:
    return Report(doc)


@ol.task
async def awaited(doc: int) -> set[str]:
    return set()


@ol.task
def context_first(ctx: Context, doc: int, *, language: str = "en") -> datetime:
    return ctx.job.created_at


@ol.task(queue="slow")
async def context_first_awaited(ctx: Context, doc: int) -> list[int]:
    return [doc]


@ol.task
def context_last(doc: int, ctx: Context) -> Report:
    return Report(doc)


@ol.task(batch=100)
def batch(ctx: BatchContext, docs: list[int]) -> list[Report]:
    return [Report(doc) for doc in docs]


def wrong_arguments() -> None:
    plain.enqueue("7")  # error: arg-type | reportArgumentType
    plain.enqueue()  # error: call-arg | reportCallIssue
    plain.enqueue(7, "en", 5)  # error: call-arg | reportCallIssue
    plain.enqueue(doc=7, langauge="en")  # error: call-arg | reportCallIssue
    plain.job(doc="7")  # error: arg-type | reportArgumentType
    awaited.enqueue(None)  # error: arg-type | reportArgumentType
    awaited.job(7, 8)  # error: call-arg | reportCallIssue
    batch.enqueue("7")  # error: arg-type | reportArgumentType
    batch.enqueue([7])  # error: arg-type | reportArgumentType


def wrong_arguments_beside_a_context(ctx: Context) -> None:
    context_first.enqueue("7")  # error: arg-type | reportArgumentType
    context_first.enqueue(ctx, 7)  # error: arg-type call-arg | reportCallIssue
    context_first.enqueue(ctx=ctx, doc=7)  # error: call-arg | reportCallIssue
    context_first.enqueue(7, "de")  # error: call-arg | reportCallIssue
    context_first_awaited.job(doc=7, language="de")  # error: call-arg | reportCallIssue
    context_first(7)  # error: arg-type call-arg | reportCallIssue
    context_last(7)  # error: call-arg | reportCallIssue


async def wrong_arguments_to_be_awaited() -> None:
    await plain.aenqueue("7")  # error: arg-type | reportArgumentType
    await context_first.aenqueue()  # error: call-arg | reportCallIssue
    await awaited.using(delay=5).aenqueue(document=7)  # error: call-arg | reportCallIssue


def wrong_options(other: Job[Report]) -> None:
    plain.using(priorty=5)  # error: call-arg | reportCallIssue
    plain.using(priority="high")  # error: arg-type | reportArgumentType
    plain.using(delay="30s")  # error: arg-type | reportArgumentType
    plain.using(after=other, when="done")  # error: arg-type | reportArgumentType
    plain.using(on_dead=other)  # error: arg-type | reportArgumentType
    plain.using(queue="slow").enqueue(doc="7")  # error: arg-type | reportArgumentType
    ol.task(key="only for a job")(plain.function)  # error: call-overload | reportCallIssue
    ol.task(max_attempts="3")(plain.function)  # error: call-overload | reportArgumentType
    ol.task(isolated=True, batch=5)(batch.function)  # error: call-overload | reportCallIssue


def wrong_settings() -> None:
    ol.worker(lease="30s")  # error: arg-type | reportArgumentType
    ol.worker(["slow"], leese=30)  # error: call-arg | reportCallIssue
    ol.worker(queues=5)  # error: arg-type | reportArgumentType


def wrong_calls() -> None:
    ol.enqueue(plain.enqueue(7))  # error: call-overload | reportArgumentType reportCallIssue
    ol.enqueue(plain)  # error: call-overload | reportArgumentType reportCallIssue


async def wrong_verbs() -> None:
    ol.cancel(7)  # error: arg-type | reportArgumentType
    ol.jobs(stat="dead")  # error: call-arg | reportCallIssue
    ol.jobs("dead")  # error: call-arg | reportCallIssue
    await ol.acancel(7)  # error: arg-type | reportArgumentType
    print((await ol.ajob("7")).state.pages)  # error: attr-defined | reportAttributeAccessIssue


def wrong_results(some: Task[..., Report], job: Job[Report]) -> None:
    number: int = ol.result(plain.enqueue(7))  # error: assignment | reportAssignmentType
    print(ol.result(awaited.enqueue(7)).pages)  # error: attr-defined | reportAttributeAccessIssue
    print(ol.result(batch.enqueue(7)).page)  # error: attr-defined | reportAttributeAccessIssue
    ol.result(7)  # error: call-overload | reportArgumentType reportCallIssue
    some = awaited  # error: assignment | reportAssignmentType
    job = awaited.enqueue(7)  # error: assignment | reportAssignmentType
    print(number, some, job)


async def wrong_awaited_results() -> None:
    text: str = await ol.aresult(await plain.aenqueue(7))  # error: arg-type | reportAssignmentType
    print(text)
    (await awaited(7)).append("x")  # error: attr-defined | reportAttributeAccessIssue
    awaited(7).add("x")  # error: attr-defined | reportAttributeAccessIssue


@ol.task(batch=10)  # error: arg-type | reportArgumentType reportCallIssue
def no_list(doc: int) -> None: ...
