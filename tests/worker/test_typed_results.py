"""`ol.result(job)` gives what the task is annotated to return; `raw=True` and an id give JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, ClassVar
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from outlast import BatchContext, Context, Outlast, ResultMismatch
from tests.support import Database

from .working import sql, work

NOW = datetime(2026, 11, 17, 6, 32, tzinfo=UTC)


class Colour(Enum):
    RED = "red"


class Report(BaseModel):
    pages: int
    made_at: datetime
    by: str = Field(alias="made_by")


@dataclass
class Point:
    x: int
    tags: set[str]


class Fussy(BaseModel):
    accepts: ClassVar[bool] = True

    def model_post_init(self, _: Any) -> None:
        if not self.accepts:
            raise ZeroDivisionError("no more")


async def fussy() -> Fussy:
    return Fussy()


REPORT = Report(pages=3, made_at=NOW, made_by="ada")


def report() -> Report:
    return REPORT


async def point() -> Point:
    return Point(1, {"a"})


def moment() -> datetime:
    return NOW


async def numbers() -> set[int]:
    return {1, 2, 10**30}


def pair(ctx: Context) -> tuple[int, timedelta]:
    return ctx.attempt, timedelta(seconds=90)


def by_number() -> dict[int, list[Decimal | None]]:
    return {7: [Decimal("0.10"), None]}


async def one_of_several() -> Colour | UUID | None:
    return Colour.RED


def nothing() -> None: ...


def unannotated():  # type: ignore[no-untyped-def]
    return (1, 2)


RESULTS: list[tuple[Callable[..., Any], Any, Any]] = [
    (report, REPORT, {"pages": 3, "made_at": "2026-11-17T06:32:00Z", "by": "ada"}),
    (point, Point(1, {"a"}), {"x": 1, "tags": ["a"]}),
    (moment, NOW, "2026-11-17T06:32:00Z"),
    (numbers, {1, 2, 10**30}, [1, 2, 10**30]),
    (pair, (1, timedelta(seconds=90)), [1, "PT1M30S"]),
    (by_number, {7: [Decimal("0.10"), None]}, {"7": ["0.10", None]}),
    (one_of_several, Colour.RED, "red"),
    (nothing, None, None),
    (unannotated, [1, 2], [1, 2]),
]


async def test_a_result_is_of_the_type_that_its_task_returns(ol: Outlast) -> None:
    tasks = [ol.task(function) for function, _, _ in RESULTS]
    jobs = await ol.aenqueue(*(task.job() for task in tasks))
    async with work(ol):
        for job, (_, typed, stored) in zip(jobs, RESULTS, strict=True):
            result = await ol.aresult(job, timeout=20)
            assert (result, type(result)) == (typed, type(typed))
            raw = await ol.aresult(job, raw=True)
            assert (sorted(raw) if job.task == "numbers" else raw) == stored
            assert await ol.aresult(job.id) == raw
            assert (await ol.ajob(job.id)).result == raw
    for job, (_, typed, _) in zip(jobs, RESULTS, strict=True):
        assert ol.result(job) == typed
        assert ol.result(ol.job(job.id)) == typed, "the job as it is read later is as good"
        assert ol.result(job.id) == ol.result(job, raw=True)


async def test_each_item_of_a_batch_has_a_typed_result(ol: Outlast) -> None:
    @ol.task(batch=10)
    async def later(ctx: BatchContext, days: list[int]) -> list[datetime]:
        return [NOW + timedelta(days=n) for n in days]

    jobs = await ol.aenqueue(*(later.job(n) for n in range(3)))
    async with work(ol):
        results = [await ol.aresult(job, timeout=20) for job in jobs]
    assert results == [NOW + timedelta(days=n) for n in range(3)]


async def test_a_process_that_does_not_know_the_task_gets_json(
    ol: Outlast, database: Database
) -> None:
    job = await ol.task(report).aenqueue()
    async with work(ol):
        await ol.aresult(job, timeout=20)
    with Outlast(database.url, schema=database.schema) as other:
        assert other.result(job) == RESULTS[0][2]
        assert await other.aresult(other.job(job.id)) == RESULTS[0][2]
        await other.aclose()


async def test_a_result_that_no_longer_fits_names_what_differs(
    ol: Outlast, database: Database
) -> None:
    """And it is not lost: `raw` gives it, also to one who erases it as it is read."""
    job = await ol.task(report).aenqueue()
    async with work(ol):
        await ol.aresult(job, timeout=20)
    old = '{"pages": "many", "by": "ada"}'
    sql(database, "UPDATE {job} SET result = ? WHERE id = ?", old, job.id)
    for erase in (False, True):
        with pytest.raises(ResultMismatch) as refused:
            ol.result(job, erase=erase)
        with pytest.raises(ResultMismatch):
            await ol.aresult(job, erase=erase)
        assert (refused.value.job, refused.value.task) == (job.id, "report")
        assert [problem.path for problem in refused.value.problems] == ["pages", "made_at"]
        said = str(refused.value)
        assert said.startswith(f"The result of job {job.id} is not what report is annotated to")
        assert "\n  pages: Input should be a valid integer" in said
        assert "\n  made_at: is missing" in said
        assert "raw=True" in said
    assert ol.result(job, raw=True, erase=True) == {"pages": "many", "by": "ada"}


async def test_what_a_validator_raises_is_a_mismatch(
    ol: Outlast, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await ol.task(fussy).aenqueue()
    async with work(ol):
        assert isinstance(await ol.aresult(job, timeout=20), Fussy)
    monkeypatch.setattr(Fussy, "accepts", False)
    with pytest.raises(ResultMismatch, match="its validation raised ZeroDivisionError: no more"):
        ol.result(job)
    assert ol.result(job, raw=True) == {}
