"""Celery's interface in one process: what it takes and refuses, and what Celery itself says."""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from celery import schedules as theirs
from celery.utils.time import get_exponential_backoff_interval
from kombu.utils import json as kombu_json

from outlast import (
    InvalidArguments,
    InvalidOption,
    KeyConflict,
    Permanent,
    RetryLater,
    Unsupported,
)
from outlast.integrations import celery as ours
from outlast.integrations.celery import Celery, chain, chord, crontab, group, shared_task
from outlast.integrations.celery.exceptions import MaxRetriesExceededError, TaskFailed, rebuilt
from outlast.integrations.celery.json_types import to_plain, to_python
from outlast.integrations.celery.retrying import backoff
from outlast.testing import drain
from tests.support import Database


@pytest.fixture
def app(database: Database) -> Iterator[Celery]:
    made = Celery("shop", url=database.url, schema=database.schema)

    @made.task(name="add")
    def add(x: int, y: int = 0) -> int:
        return x + y

    @made.task(name="total")
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    @made.task(name="fail")
    def fail() -> None:
        raise ValueError("no stock")

    @made.task(name="errback")
    def errback(request: Any, exc: Exception, traceback: str) -> str:
        return f"{request.id} {exc!r}"

    yield made
    made.close()


def test_flows_pass_their_results_on(app: Celery) -> None:
    add, total = app.tasks["add"], app.tasks["total"]
    results = [
        chain(add.s(1, 1), add.s(2), add.si(100, 1)).delay(),
        (add.s(1) | group(add.s(1), add.s(2)) | total.s()).delay(),
        chord(add.s(n, n) for n in range(4))(total.s()),
        chord([])(total.s()),
        group(add.s(1, 1), chain(add.s(1), add.s(1))).delay(),
    ]
    drain(app.ol)
    assert [one.get() for one in results] == [101, 5, 12, 0, [2, 2]]
    assert results[0].parent.parent.get() == 2
    flow = app.ol.flow(app.ol.job(results[0].id).flow)
    assert sum(flow.counts.values()) == 3


def test_a_failed_step_fails_what_follows_and_calls_its_errback_once(app: Celery) -> None:
    add, fail, errback = app.tasks["add"], app.tasks["fail"], app.tasks["errback"]
    broken = chain(fail.s(), add.si(1, 1), add.s(2)).on_error(errback.s()).delay()
    drain(app.ol)
    assert broken.state == "FAILURE" and "PrerequisiteFailed" in str(broken.job().error)
    first = broken.parent.parent
    called = [job.result for job in app.ol.jobs(task="errback")]
    assert [one for one in called if one] == [f"{first.id} ValueError('no stock')"]


def test_options_of_a_call_are_the_job_s(app: Celery) -> None:
    add = app.tasks["add"]
    app.conf.update(task_routes=[("ad*", {"queue": "sums", "priority": 2})], timezone="Asia/Tokyo")
    routed = add.delay(1).job()
    assert routed.queue == "sums" and routed.priority == 2 and routed.max_attempts == 1
    eta = datetime(2040, 1, 1, 9)  # naive: in the time zone of the app
    given = add.apply_async(
        (1,), eta=eta, queue="slow", priority=5, expires=3600, time_limit=9
    ).job()
    assert (given.queue, given.priority, given.timeout) == ("slow", 5, 9)
    assert given.run_at == datetime(2040, 1, 1, tzinfo=UTC)
    app.conf.broker_url = "redis://127.0.0.1"
    assert add.apply_async((1,), priority=5).job().priority == -5  # 0 is the first
    once = app.task(name="once", acks_late=False)(lambda: None)
    assert once.delay().job().max_crashes == 1


def test_one_id_is_one_job(app: Celery) -> None:
    add, id = app.tasks["add"], str(uuid.uuid4())
    assert add.apply_async((1,), task_id=id) == add.apply_async((1,), task_id=id)
    assert app.ol.counts()["ready"] == 1 and app.AsyncResult(id).job().id == id
    with pytest.raises(KeyConflict):
        add.apply_async((2,), task_id=id)
    named = add.apply_async((1, 2), task_id="order-7")
    drain(app.ol)
    assert app.AsyncResult("order-7").get() == 3 and named.id == "order-7"


def test_revoke_cancels_what_has_not_begun(app: Celery) -> None:
    late = app.tasks["add"].apply_async((1,), countdown=3600)
    assert late.state == "PENDING"
    late.revoke()
    assert late.state == "REVOKED"
    with pytest.raises(ours.exceptions.TaskRevokedError):
        late.get()
    with pytest.raises(TimeoutError):
        app.tasks["add"].delay(1).get(timeout=0.01)


def test_retries_are_counted_by_what_the_task_asked_for(app: Celery) -> None:
    """R044: with the delay that it said, and the error on record."""

    @app.task(name="flaky", bind=True, max_retries=2)
    def flaky(self: Any, limit: int | None = None) -> None:
        seen.append(self.request.retries)
        self.retry(countdown=60, max_retries=limit)

    seen: list[int] = []
    flaky.delay()
    more = flaky.delay(4)
    drain(app.ol, until="finished")
    assert sorted(seen) == [0, 0, 1, 1, 2, 2, 3, 4]
    with pytest.raises(MaxRetriesExceededError, match=r"Can't retry flaky"):
        more.get()
    attempts, _ = app.ol.history(more.id)
    assert "retry 4 in 60 s" in str(attempts[3].error)


def test_autoretry_leaves_the_outcomes_of_outlast_alone(app: Celery) -> None:
    @app.task(name="strict", autoretry_for=(Exception,), retry_jitter=False, retry_backoff=60)
    def strict(how: str) -> None:
        seen.append(how)
        raise Permanent("no such order") if how == "dead" else RetryLater(3600)

    seen: list[str] = []
    dead, later = strict.delay("dead"), strict.delay("later")
    drain(app.ol, until="2m")
    assert (dead.state, later.job().state) == ("FAILURE", "scheduled")
    assert sorted(seen) == ["dead", "later"]


def test_a_hook_that_fails_does_not_change_that_the_task_has_succeeded(app: Celery) -> None:
    """Its callback is enqueued, too."""

    class Noted(ours.Task):
        def on_success(self, *given: Any) -> None:
            raise OSError("the notes are full")

        after_return = on_success

    add = app.tasks["add"]
    noted = app.task(name="noted", base=Noted)(lambda: 7)
    result = noted.apply_async(link=add.s(1))
    drain(app.ol)
    assert result.get() == 7
    assert [job.result for job in app.ol.jobs(task="add")] == [8]


def test_a_result_is_ignored_by_call_task_or_setting_unless_a_job_follows(app: Celery) -> None:
    quiet = app.task(name="quiet", ignore_result=True)(lambda: 7)
    add = app.tasks["add"]
    results = [
        add.apply_async((1, 1), ignore_result=True),
        quiet.apply_async(ignore_result=False),
        quiet.delay(),
        (quiet.s() | add.s(1)).delay(),
        (quiet.s().set(ignore_result=True) | add.s(1)).delay(),
    ]
    drain(app.ol)
    assert [one.get() for one in results] == [None, 7, None, 8, 8]


def test_eager_tasks_run_in_the_call(app: Celery) -> None:
    app.conf.task_always_eager = True
    add, total, fail = (app.tasks[name] for name in ("add", "total", "fail"))
    assert add.delay(1, 2).get() == 3
    assert chord([add.s(n) for n in range(3)])(total.s()).get() == 3
    assert (add.s(1) | group(add.s(1), add.s(2)) | total.s()).delay().get() == 5
    failed = fail.delay()
    assert failed.state == "FAILURE" and "no stock" in (failed.traceback or "")
    app.conf.task_eager_propagates = True
    with pytest.raises(ValueError, match="no stock"):
        fail.delay()
    assert "ready" not in {state for state, number in _counts(app).items() if number}


def _counts(app: Celery) -> dict[str, int]:
    app.ol.migrate()
    return app.ol.counts()


def test_the_beat_schedule_is_read_into_schedules(app: Celery) -> None:
    """No beat process: every worker runs them."""
    app.conf.timezone = "Europe/Berlin"
    app.conf.beat_schedule = {
        "nightly": {"task": "add", "schedule": crontab(minute=30, hour="2,22-1"), "args": (1,)},
        "often": {"task": "total", "schedule": 30.0, "args": ([1],), "options": {"queue": "q"}},
        "daily": {"task": "elsewhere", "schedule": timedelta(days=1)},
    }

    @app.on_after_configure.connect
    def more(sender: Celery, **_: Any) -> None:
        sender.add_periodic_task(10.0, app.tasks["add"].s(2), name="ten")

    app.ol.worker()
    declared = app.ol.registry.schedules
    assert sorted(declared) == ["daily", "nightly", "often", "ten"]
    assert declared["nightly"].spec.cron == "30 0,1,2,22,23 * * *"
    assert declared["nightly"].spec.tz == "Europe/Berlin"
    assert declared["often"].spec.every == 30 and declared["often"].queue == "q"
    assert {one.spec.overlap for one in declared.values()} == {"allow"}
    app.conf.beat_schedule = {"x": {"task": "add", "schedule": "5 * * * *", "args": (1,)}}
    with pytest.raises(InvalidOption, match=r"beat_schedule\['x'\]"):
        app.finalize()


FIELDS: list[dict[str, Any]] = [
    {"minute": "*/15"}, {"minute": "5-50/10,3", "hour": "22-3"}, {"hour": "*/7,4"},
    {"day_of_week": "mon-fri"}, {"day_of_week": "fri-mon"}, {"day_of_week": "sunday,3"},
    {"day_of_month": "1-31/2"}, {"day_of_month": "28-3"}, {"month_of_year": "*/3"},
    {"month_of_year": "nov-feb", "minute": [0, 30]}, {"minute": 0, "hour": {6, 18}},
]  # fmt: skip


@pytest.mark.parametrize("fields", FIELDS, ids=str)
def test_crontab_means_what_celery_means(fields: dict[str, Any]) -> None:
    expected = theirs.crontab(**fields)
    names = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
    full = {"minute": 60, "hour": 24, "day_of_month": 31, "month_of_year": 12, "day_of_week": 7}
    for name, field in zip(names, crontab(**fields).cron.split(), strict=True):
        values = getattr(expected, name)
        assert (
            (len(values) == full[name])
            if field == "*"
            else ({int(one) for one in field.split(",")} == values)
        )


def test_json_and_backoff_are_celery_s(app: Celery) -> None:
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    values = [
        moment,
        date(2026, 1, 1),
        Decimal("1.50"),
        uuid.UUID(int=7),
        b"x",
        b"\xff",
        {"a": (1,)},
    ]
    assert to_plain(values, "t") == json.loads(kombu_json.dumps(values))
    assert to_python(to_plain(values, "t")) == kombu_json.loads(kombu_json.dumps(values))
    task = app.task(name="b", retry_backoff=3, retry_backoff_max=50, retry_jitter=False)(len)
    assert [backoff(task, n) for n in range(6)] == [
        get_exponential_backoff_interval(3, n, 50) for n in range(6)
    ]


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        (lambda app: app.task(rate_limit="1/s")(len), "rate="),
        (lambda app: app.task(soft_time_limit=3)(len), "time_limit"),
        (lambda app: app.task(max_retrys=3)(len), "max_retries"),
        (lambda app: app.task(serializer="pickle")(len), "JSON"),
        (lambda app: app.tasks["add"].apply_async((1,), routing_key="x"), "queue="),
        (lambda app: app.tasks["add"].apply_async((1,), serializer="pickle"), "JSON"),
        (lambda app: app.tasks["add"].apply_async((1,), priority=-1), "priority"),
        (lambda app: app.tasks["add"].chunks, "group"),
        (lambda app: app.tasks["add"].delay(object()), "JSON"),
        (lambda app: app.control, "outlast queues"),
        (lambda app: setattr(app.conf, "task_serializer", "pickle"), "json"),
        (lambda app: setattr(app.conf, "task_soft_time_limit", 1), "task_time_limit"),
        (lambda app: setattr(app.conf, "task_alway_eager", True), "task_always_eager"),
        (lambda app: setattr(app.conf, "task_routes", lambda name: None), "queue"),
        (lambda app: Celery("x", tasks="y"), "takes broker"),
        (lambda app: crontab(day_of_week=1, day_of_month=1), "both"),
        (lambda app: crontab(minute=60), "0 to 59"),
        (lambda app: app.config_from_object({"CELERY_ACKS_LATE": True}), "lower-case"),
        (lambda app: app.drain_queue(), "broker"),
        (lambda app: app.drain_queue(broker="sqs://"), "redis"),
        (lambda app: chain(app.tasks["add"].s(1).set(task_id="x")).delay(), "single call"),
        (lambda app: app.tasks["add"].delay(1).children, "flow"),
    ],
)
def test_what_is_not_supported_says_what_to_do(app: Celery, refused: Any, told: str) -> None:
    with pytest.raises((InvalidOption, Unsupported, InvalidArguments), match=re.escape(told)):
        refused(app)


def test_names_that_are_missing_say_what_to_do() -> None:
    with pytest.raises(ImportError, match="base class"):
        from outlast.integrations.celery import signals  # noqa: F401
    with pytest.raises(ImportError, match="time_limit"):
        from outlast.integrations.celery.exceptions import SoftTimeLimitExceeded  # noqa: F401
    with pytest.raises(ImportError, match="crontab"):
        from outlast.integrations.celery.schedules import solar  # noqa: F401


def test_an_error_s_class_is_never_imported() -> None:
    """It comes from a row."""
    assert isinstance(rebuilt({"type": "KeyError", "message": "x"}), KeyError)
    assert isinstance(rebuilt({"type": "antigravity.Error", "message": "x"}), TaskFailed)
    assert isinstance(rebuilt({"type": "os.system", "message": "true"}), TaskFailed)
    assert "antigravity" not in sys.modules


@pytest.mark.kinds("sqlite")
def test_shared_tasks_belong_to_every_app(app: Celery, database: Database) -> None:
    @shared_task(name="shared", bind=True)
    def shared(self: Any) -> str:
        return str(self.request.id)

    other = Celery("other", url=database.url, schema=database.schema)
    assert "shared" in app.tasks and "shared" in other.tasks
    result = shared.delay()
    assert result.app is other  # the app that was made last
    drain(app.ol)
    assert result.get() == result.id
    other.close()


async def test_the_async_face(app: Celery) -> None:
    from outlast.testing import adrain

    one = await app.tasks["add"].adelay(1, 2)
    two = await (app.tasks["add"].s(1) | app.tasks["add"].s(2)).adelay()
    await adrain(app.ol)
    assert await one.aget(5) == 3 and await two.aget(5) == 3
