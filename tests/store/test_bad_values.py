"""Values of a wrong kind: refused by name, before anything is stored."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from outlast import (
    BatchFailed,
    Flow,
    InvalidInput,
    InvalidSetting,
    Outlast,
    OutlastError,
    StoreUnavailable,
    WorkerNotFound,
)
from outlast.bridges import Http, Limits
from tests.support import Database

Verb = Callable[[Outlast, Any], object]
UNTYPED: Any = object()


def add(**options: Any) -> Verb:
    def enqueue(ol: Outlast, value: Any) -> object:
        flow = Flow()
        flow.add(task(ol).job(), **dict.fromkeys(options, value))
        return ol.enqueue(flow)

    return enqueue


def task(ol: Outlast) -> Any:
    return ol.task(name=f"noop{len(ol.registry.names())}")(noop)


def noop() -> None: ...


def named_flow(ol: Outlast, value: Any) -> object:
    flow = Flow(value)
    flow.add(task(ol).job())
    return ol.enqueue(flow)


VERBS: dict[str, tuple[Verb, list[Any]]] = {
    "n": (lambda ol, v: ol.skip_schedule("s", v), [None, True, 0, 1.5, 1001]),
    "name": (named_flow, ["a\0b", "\ud800", "x" * 201, 5, ["a"]]),
    "name of a node": (add(name=1), [5, ["a"], {}]),
    "name of a schedule": (lambda ol, v: ol.pause_schedule(v), [5, b"s", object()]),
    "no name": (lambda ol, v: ol.create_schedule(v, task(ol).job(), every=60), [None, 5]),
    "after": (add(after=1), [5, object(), True]),
    "after of using": (lambda ol, v: task(ol).using(after=v).enqueue(), [5, object(), 1.5]),
    "worker": (lambda ol, v: ol.drain(v), [5, b"w", None]),
    "tenant": (lambda ol, v: ol.pause(tenant=v), [5, object(), b"t"]),
    "queue": (lambda ol, v: ol.move_all(v, queue="default"), [5, object(), b"q"]),
    "queues": (lambda ol, v: ol.worker(queues=v), [5, object(), [5], True]),
    "kinds": (lambda ol, v: ol.events(kinds=v), [5, object(), [5]]),
    "poll": (lambda ol, v: ol.events(poll=v), [None, 0, "1"]),
    "poll of a stream": (lambda ol, v: ol.stream("0" * 32, poll=v), [None, 0, "1"]),
    "timeout": (
        lambda ol, v: ol.result("0" * 32, v),
        ["10", timedelta(seconds=1), float("nan"), object()],
    ),
    "close": (lambda ol, v: ol.close_breaker(v), [None, 5]),
    "lanes": (lambda ol, v: ol.lanes(v), [None, 5]),
    "limit": (lambda ol, v: ol.limit(v), [None, 5]),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_value_of_a_wrong_kind_is_refused_and_nothing_is_stored(ol: Outlast, verb: str) -> None:
    """R005: what a caller confuses is told by its name, not by a failure deep inside."""
    ol.migrate()
    ol.create_schedule("s", task(ol).job(), every=60)
    call, values = VERBS[verb]
    for value in values:
        with pytest.raises(InvalidInput) as refused:
            call(ol, value)
        assert not isinstance(refused.value.__cause__, TypeError | AttributeError)
    assert sum(ol.counts().values()) == 0
    assert [schedule.name for schedule in ol.schedules()] == ["s"]
    assert ol.queues() == []


def test_a_reason_is_kept_like_an_error_message(ol: Outlast) -> None:
    """R006: it is for people, so it is cleaned, not refused; but it must be text."""
    job = task(ol).enqueue()
    with pytest.raises(InvalidInput, match="reason must be text"):
        ol.cancel(job.id, UNTYPED)
    assert ol.job(job.id).state == "ready"
    cancelled = ol.cancel(job.id, "a\0b \ud800 " + "x" * 100_000)
    assert cancelled.error is not None
    assert cancelled.error["message"].startswith(r"a\x00b \ud800 xxx")
    assert len(cancelled.error["message"]) <= 2_000


@pytest.mark.parametrize("field", ["url", "schema", "settings", "retention"])
def test_an_outlast_of_wrong_values_names_the_field(database: Database, field: str) -> None:
    given: dict[str, Any] = {"url": database.url, "schema": database.schema}
    for value in (5, Path("jobs.db"), b"x", object()):
        with pytest.raises(InvalidInput, match=field):
            Outlast(**{**given, field: value})


def test_an_actor_may_have_any_name(ol: Outlast, monkeypatch: pytest.MonkeyPatch) -> None:
    """R006: a user's name in another encoding does not keep an operator from acting."""
    monkeypatch.setenv("LOGNAME", "J\udcf6rg")
    job = task(ol).enqueue()
    cancelled = ol.cancel(job.id)
    assert cancelled.error is not None
    assert r"J\udcf6rg@" in cancelled.error["message"]
    _, [event] = ol.history(job.id)
    assert event.data["by"].startswith(r"J\udcf6rg@")


def test_an_unknown_worker_is_still_unknown(ol: Outlast) -> None:
    ol.migrate()
    with pytest.raises(WorkerNotFound):
        ol.drain("nobody")
    with pytest.raises(OutlastError):
        ol.pause_schedule("nothing\0here")


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:////tmp/a%00b.db",
        "postgresql://u:%e4@127.0.0.1/x",
        "postgresql://u@127.0.0.1/%ff",
        "postgresql://u@127.0.0.1/a%00b",
    ],
)
def test_a_url_with_an_escape_that_is_no_text_is_refused(url: str) -> None:
    """R160: not by a UnicodeDecodeError of a driver."""
    with pytest.raises(InvalidSetting, match="url"):
        Outlast(url)


def test_files_whose_names_have_question_marks_are_apart(tmp_path: Path) -> None:
    """R160: the escaped one is part of the name; the other begins the parameters."""
    for name, shown in (("a%3Fb.db", "a?b.db"), ("a%3Fc.db", "a?c.db"), ("d.db?mode=x", "d.db")):
        with Outlast(f"sqlite:///{tmp_path}/{name}") as ol:
            assert ol.migrate()
        assert (tmp_path / shown).exists()


def test_a_loop_of_links_cannot_be_reached(tmp_path: Path) -> None:
    loop = tmp_path / "loop.db"
    loop.symlink_to(loop)
    with Outlast(f"sqlite:///{loop}") as ol, pytest.raises(StoreUnavailable):
        ol.migrate()


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    """When writing and when reading."""
    named = f"unable to open database file: {tmp_path}"
    with Outlast(f"sqlite:///{tmp_path}") as ol:
        for verb in (ol.migrate, ol.counts):
            with pytest.raises(StoreUnavailable, match=named):
                verb()


@pytest.mark.parametrize("schema", ["information_schema", "pg_jobs", "pg_catalog"])
def test_the_schemas_of_postgres_are_not_ours(schema: str) -> None:
    with pytest.raises(InvalidSetting, match=f"schema '{schema}' is PostgreSQL's own"):
        Outlast("postgresql://127.0.0.1/app", schema=schema)


class OwnSink:
    def __init__(self, limits: Any) -> None:
        self.limits = limits

    async def open(self) -> None: ...

    async def send(self, messages: Any) -> list[None]:
        return [None] * len(messages)

    async def close(self) -> None: ...


def webhook(ol: Outlast, **given: Any) -> object:
    good = {"url": "https://shop.example/", "secret": "whsec_" + "A" * 32}
    return ol.webhook("shop", **{**good, **given})


DECLARED: dict[str, tuple[Verb, list[Any]]] = {
    "secret": (lambda ol, v: webhook(ol, secret=v), [None, 5, object()]),
    "events": (lambda ol, v: webhook(ol, events=v), [None, 5, "dead"]),
    "secret of Http": (lambda ol, v: Http("github", secret=v), [5, object()]),
    "headers": (lambda ol, v: Http("github", secret="s" * 32, headers=v), [None, 5, "a"]),
    "sink": (lambda ol, v: ol.outbox("mail", OwnSink(v)), [None, "x", 5]),
    "queue": (lambda ol, v: ol.outbox("mail", OwnSink(Limits()), queue=v), [5, True, b"x"]),
    "decode": (
        lambda ol, v: ol.source("in", Http("github", secret="s" * 32), task=task(ol), decode=v),
        [5, "json"],
    ),
}


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize("what", DECLARED)
def test_a_bridge_or_webhook_of_a_wrong_value_is_refused(ol: Outlast, what: str) -> None:
    """R160: `os.environ.get("SECRET")` without that variable, for example."""
    declare, values = DECLARED[what]
    for value in values:
        with pytest.raises(InvalidInput, match=what.partition(" ")[0]):
            declare(ol, value)


@pytest.mark.parametrize("given", [None, "x", ["first failed"]])
def test_a_batch_that_failed_takes_a_dict(given: Any) -> None:
    with pytest.raises(TypeError, match="BatchFailed takes"):
        BatchFailed(given)
