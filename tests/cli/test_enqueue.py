"""Jobs from the command line: what goes in is what comes out, and nothing hostile gets in."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent

import pytest

from outlast import Outlast
from tests.cli.conftest import Commands
from tests.support import Database

ANYTHING = '{"text": "größer \\u2713", "n": 12345678901234567890, "x": [1, 2.5, null, {"y": true}]}'


def test_a_job_of_a_task_that_is_defined_elsewhere(run: Commands, ol: Outlast) -> None:
    """The same defaults as in the library, and the arguments as they are."""
    answer = run("enqueue", "elsewhere", "--args", ANYTHING)
    job = ol.job(answer.out.strip())
    assert (job.task, job.args) == ("elsewhere", json.loads(ANYTHING))

    @ol.task(name="elsewhere")
    def here(text: str, n: int, x: list) -> None: ...  # type: ignore[type-arg]

    other = here.enqueue(**json.loads(ANYTHING))
    for name in ("queue", "tenant", "priority", "max_attempts", "max_crashes", "args", "state"):
        assert getattr(job, name) == getattr(other, name)


def test_every_option_arrives(run: Commands, ol: Outlast) -> None:
    told = run(
        "enqueue", "t", "--queue", "docs", "--priority", "7", "--tenant", "acme", "--key", "k",
        "--delay", "2h", "--expires", "3d", "--timeout", "90s", "--max-attempts", "9",
        "--max-crashes", "2", "--json",
    ).json  # fmt: skip
    job = ol.job(told["id"])
    assert told == job.as_json()
    assert (job.queue, job.priority, job.tenant, job.key) == ("docs", 7, "acme", "k")
    assert (job.timeout, job.max_attempts, job.max_crashes) == (90.0, 9, 2)
    assert job.state == "scheduled"
    assert job.run_at - job.created_at == pytest.approx(timedelta(hours=2), abs=timedelta(0, 1))
    assert job.expires_at is not None
    assert job.expires_at - job.created_at == pytest.approx(timedelta(3), abs=timedelta(0, 1))


def test_a_moment_is_kept_to_the_second(run: Commands, ol: Outlast) -> None:
    told = run("enqueue", "t", "--at", "2040-01-31T12:00:00+02:00", "--json").json
    assert ol.job(told["id"]).run_at == datetime(2040, 1, 31, 10, tzinfo=UTC)


def test_a_second_job_of_a_key_is_the_first(run: Commands, ol: Outlast) -> None:
    """R003: the same call is the same job, another call is refused."""
    first = run("enqueue", "t", "--key", "k", "--args", '{"a": 1}')
    again = run("enqueue", "t", "--key", "k", "--args", '{"a": 1}')
    assert first.out == again.out
    other = run("enqueue", "t", "--key", "k", "--args", '{"a": 2}')
    assert other.code == 1
    assert "already belongs to job" in other.err
    assert ol.counts()["ready"] == 1


def test_arguments_may_come_from_standard_input(run: Commands, ol: Outlast) -> None:
    id = run("enqueue", "t", "--args", "-", input='{"a": 1}').out.strip()
    assert ol.job(id).args == {"a": 1}


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "[1, 2]",
        "null",
        '"text"',
        "{",
        "{'a': 1}",
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        '{"a": 1, "a": 2}',
        '{"a": {"b": 1, "b": 1}}',
        '{"a": "\\u0000"}',
        '{"a\\u0000": 1}',
        '{"a": "\\ud800"}',
        '{"a": ' + "9" * 5000 + "}",
        '{"a": ' + "[" * 150 + "]" * 150 + "}",
        '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"a": "' + "x" * 1_100_000 + '"}',
    ],
    ids=lambda text: text[:20],
)
def test_hostile_arguments_are_refused(run: Commands, ol: Outlast, text: str) -> None:
    """R005, R006: what cannot be stored and read back as it was is not stored."""
    answer = run("enqueue", "t", "--args", "-", input=text)
    assert answer.code in (1, 2)
    assert answer.out == ""
    assert len(answer.err) < 1000
    assert sum(ol.counts().values()) == 0


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--delay", "soon"), ("--delay", "-5"), ("--delay", "1y"), ("--delay", "99999d"),
        ("--at", "tomorrow"), ("--at", "2040-01-31T12:00:00"), ("--expires", "0"),
        ("--priority", "101"), ("--priority", "high"), ("--queue", ""), ("--tenant", "a\tb"),
        ("--max-attempts", "0"), ("--timeout", "0s"), ("--key", "k" * 201),
    ],
)  # fmt: skip
def test_a_bad_option_is_refused_and_named(
    run: Commands, ol: Outlast, option: str, value: str
) -> None:
    answer = run("enqueue", "t", option, value)
    assert answer.code in (1, 2)
    assert option.strip("-") in answer.err.replace("_", "-")
    assert sum(ol.counts().values()) == 0


@pytest.mark.kinds("sqlite")
def test_a_delay_and_a_moment_exclude_each_other(run: Commands) -> None:
    answer = run("enqueue", "t", "--delay", "5", "--at", "2040-01-31T12:00:00Z")
    assert (answer.code, answer.out) == (2, "")
    assert "cannot be given together with delay" in answer.err


@pytest.fixture
def app(tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"shop_{database.kind}_{tmp_path.name}"
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / f"{name}.py").write_text(
        dedent("""
        from datetime import date
        from outlast import Context, Outlast

        ol = Outlast()

        @ol.task(queue="bills", max_attempts=2, name="bill")
        def make_bill(customer: int, due: date, ctx: Context, note: str = "") -> None: ...
        """)
    )
    return f"{name}:ol"


def test_the_task_judges_its_arguments(run: Commands, ol: Outlast, app: str) -> None:
    """With an app, its annotations read the JSON and its options hold."""
    text = '{"customer": 7, "due": "2040-01-31"}'
    job = ol.job(run("enqueue", "bill", "--app", app, "--args", text).out.strip())
    assert (job.task, job.queue, job.max_attempts) == ("bill", "bills", 2)
    assert job.args == {"customer": 7, "due": "2040-01-31"}


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"customer": "x", "due": "2040-13-31", "more": 1}', ["customer", "due", "more"]),
        ("{}", ["customer: is missing", "due: is missing"]),
        ('{"customer": 7, "due": "2040-01-31", "ctx": 1}', ["ctx"]),
    ],
)
def test_every_problem_with_the_arguments_is_named(
    run: Commands, ol: Outlast, app: str, text: str, said: list[str]
) -> None:
    """R005"""
    answer = run("enqueue", "bill", "--app", app, "--args", text)
    assert answer.code == 1
    assert all(problem in answer.err for problem in said)
    assert sum(ol.counts().values()) == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--priority", "500"], "The option priority must be a whole number from -100 to 100"),
        (["--delay", "99999d"], "The option delay must be a duration of 0 seconds to ten years"),
        (["--at", "2040-01-31T12:00:00Z", "--delay", "1"], "at cannot be given together with"),
        (["--queue", "!a"], "The option queue must not start with '!'"),
        (["--expires", "1x"], "'1x' is neither a duration nor a timestamp: write 30, 30s, 5m,"),
    ],
)
@pytest.mark.kinds("sqlite")
def test_an_option_out_of_range_is_written_wrongly(
    run: Commands, ol: Outlast, words: list[str], told: str
) -> None:
    answer = run("enqueue", "t", *words)
    assert answer.code == 2 and told in answer.err
    assert ol.jobs() == []


def test_unique_and_debounced_jobs(run: Commands, ol: Outlast) -> None:
    """R242: the winner's id is printed; a full queue is an error with the facts."""
    first = run("enqueue", "t", "--key", "k", "--unique", "waiting", "--args", '{"a": 1}')
    again = run("enqueue", "t", "--key", "k", "--unique", "10m", "--args", '{"a": 2}')
    assert first.out == again.out
    soon = (
        "enqueue",
        "t",
        "--key",
        "d",
        "--debounce",
        "5s",
        "--max-wait",
        "1m",
        "--json",
        "--args",
    )
    assert run(*soon, '{"a": 1}').json["id"] == run(*soon, '{"a": 2}').json["id"]
    assert run("enqueue", "t", "--unique", "waiting").code == 2
    ol.queue("full", most_waiting=1, overflow="refuse")
    ol._declare_queues()
    assert run("enqueue", "t", "--queue", "full").code == 0
    refused = run("enqueue", "t", "--queue", "full")
    assert refused.code == 1 and "The queue 'full' is full: 1 jobs are ready" in refused.err


def test_a_job_is_put_into_a_lane(run: Commands, ol: Outlast) -> None:
    """R237"""
    ol.limit("mail", lane_running=1)
    made = run("enqueue", "t", "--queue", "mail", "--lane", "acme", "--json").json
    assert made["lane"] == "acme"
    assert run("enqueue", "t", "--queue", "mail", "--json").json["lane"] == "default"
    wrong = run("enqueue", "t", "--lane", "")
    assert wrong.code == 2 and "lane must be 1 to 200 characters" in wrong.err
    assert len(ol.jobs()) == 2
