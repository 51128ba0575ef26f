"""Moments and spans out of bounds are refused in every place that takes one; nothing is stored."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from outlast import Outlast, Retry, RetryLater
from outlast.model.api_token import new_token
from outlast.model.claim import Claim
from outlast.model.errors import InvalidInput
from outlast.model.ids import new_job_id
from outlast.model.job import NewJob
from outlast.model.settings import RetentionSettings, ServiceSettings, StoreSettings, WorkerSettings
from outlast.ops.access import ALL_JOBS
from outlast.service.dequeue import followups
from tests.cli.conftest import Commands
from tests.service.serving import Served
from tests.support import Database

EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
MOMENTS = [
    datetime.max, datetime.max.replace(tzinfo=UTC), datetime.max.replace(tzinfo=WEST),
    datetime.max.replace(tzinfo=EAST), datetime.min.replace(tzinfo=UTC),
    datetime.min.replace(tzinfo=EAST), datetime(9001, 1, 1, tzinfo=UTC),
    datetime(9000, 12, 31, 23, tzinfo=WEST), datetime(1969, 12, 31, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=EAST), datetime(2030, 1, 1),
]  # fmt: skip
HUGE = 10**400
SPANS = [float("nan"), float("inf"), float("-inf"), -1, 1e300, HUGE, -HUGE, timedelta.max,
         timedelta.min, "soon", True]  # fmt: skip
UNSIGNED = ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "9001-01-01T00:00:00Z",
            "1969-12-31T23:59:59Z", "2030-01-01T00:00:00"]  # fmt: skip


@pytest.mark.kinds("sqlite", "postgres")
def test_no_moment_out_of_bounds_is_stored(ol: Outlast, database: Database) -> None:
    """R218: `at` and `expires` take the years 1970 to 9000, in any time zone."""

    @ol.task
    def work() -> None: ...

    for moment in MOMENTS:
        for option in ("at", "expires"):
            with pytest.raises(InvalidInput, match=option) as refused:
                work.using(**{option: moment}).enqueue()
            assert moment.tzinfo is None or "from 1970 to 9000" in str(refused.value)
    for span in SPANS:
        for option in ("delay", "expires", "timeout"):
            with pytest.raises(InvalidInput, match=option):
                work.using(**{option: span}).enqueue()
    assert sum(ol.counts().values()) == 0
    last = datetime(9000, 12, 31, 23, 59, 59, tzinfo=UTC)
    job = work.using(at=last, expires=last).enqueue()
    assert (ol.job(job.id).run_at, ol.job(job.id).unreadable) == (last, None)
    first = work.using(at=datetime(1970, 1, 1, tzinfo=UTC)).enqueue()
    assert {one.id for one in ol.jobs()} == {job.id, first.id}


def test_spans_out_of_bounds_are_refused_by_name() -> None:
    """R218: retry policies, RetryLater, tokens and every setting that is a number of seconds."""
    for span in [*SPANS[:-4], "soon"]:
        refusing: list[Callable[[Any], object]] = [
            lambda s: Retry(base=s, cap=1e9), lambda s: Retry(cap=s), lambda s: Retry(jitter=s),
            lambda s: new_token("t", ["read"], expires_in=s),
            lambda s: RetentionSettings(keep_succeeded=s), lambda s: WorkerSettings(grace=s),
            lambda s: StoreSettings(deadline=s), lambda s: ServiceSettings(session_life=s),
        ]  # fmt: skip
        if span != 1e300:  # a handler may ask for the far future; it is cut to ten years
            refusing.append(RetryLater)
        for refuse in refusing:
            with pytest.raises(InvalidInput):
                refuse(span)


@pytest.mark.kinds("sqlite", "postgres")
def test_verbs_refuse_spans_out_of_bounds(ol: Outlast) -> None:
    """R218: what is kept, and what is removed by age."""
    for span in SPANS:
        with pytest.raises(InvalidInput):
            ol.keep("default", span)
        with pytest.raises(InvalidInput):
            ol.purge(older=span)
    assert [queue.keep for queue in ol.queues()] == []


@pytest.mark.kinds("sqlite", "postgres")
def test_the_service_refuses_moments_out_of_bounds(served: Served, ol: Outlast) -> None:
    """R218: 422, and nothing is stored; the next list works."""
    admin = served.token("admin")
    for moment in UNSIGNED:
        came = served.post("/api/v1/jobs", admin, json={"task": "work", "at": moment})
        assert came.status_code == 422, (moment, came.text)
    for name in ("delay", "expires", "timeout"):
        for number in ("1e400", "-1", "1" + "0" * 400, "1e300", "NaN"):
            body = f'{{"task": "work", "{name}": {number}}}'.encode()
            said = {"content-type": "application/json"}
            came = served.post("/api/v1/jobs", admin, content=body, headers=said)
            assert came.status_code in {400, 422}, (name, number, came.text)
    assert served.get("/api/v1/jobs", admin).json()["jobs"] == []


@pytest.mark.kinds("sqlite")
def test_the_command_line_refuses_moments_out_of_bounds(database: Database, ol: Outlast) -> None:
    """R218: a usage error, and nothing is stored."""
    ol.migrate()
    run = Commands(database)
    for moment in UNSIGNED:
        for option in ("--at", "--expires"):
            answer = run("enqueue", "work", option, moment)
            assert answer.code != 0 and answer.out == "", answer
    for span in ("9" * 15 + "d", "4000d", "-1", "1e9", "nan"):
        assert run("enqueue", "work", "--delay", span).code != 0, span
    assert ol.jobs() == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("at", 1e300), ("at", -1.0), ("at", float("inf")), ("expires_at", 253402300800.0),
     ("delay", -1.0), ("delay", 1e12), ("expires_in", 1e300), ("timeout", -5.0),
     ("timeout", float("nan"))],
)  # fmt: skip
def test_a_remote_worker_cannot_bring_a_job_out_of_bounds(name: str, value: float) -> None:
    """R218: follow-up jobs are judged as those of any caller; hooks too."""
    claim = Claim(new_job_id(), 1, "t", "{}", 1, 0, 0, 3, 3, "q", "acme", 0, 0.0, 0.0, 0.0, None,
                  None, None, None, "w")  # fmt: skip
    good = NewJob(new_job_id(), "acme", "q", "t", "{}", 0, 3, 3).row()
    assert len(followups.read_followups([good], claim, ALL_JOBS)) == 1
    with pytest.raises(InvalidInput, match=name):
        followups.read_followups([good | {name: value}], claim, ALL_JOBS)
