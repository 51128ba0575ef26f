"""Options of tasks and jobs: a wrong type or name is refused where it is written, and says what."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any, get_type_hints

import pytest

from outlast import InvalidOption, Outlast
from outlast.model.batch import batch_of
from outlast.model.options import JobOptions, Options, TaskOptions
from outlast.model.settings import WorkerOptions, WorkerSettings


def app() -> Outlast:
    return Outlast("sqlite:////nowhere/at/all.db")


def work(n: int = 0) -> None: ...


def items(n: list[int]) -> None: ...


WRONG = [
    ("retry", 3, r"must be a Retry\(…\), not 3"),
    ("retry", 0, r"must be a Retry\(…\), not 0"),
    ("timeout", "5", "must be a duration of 0 seconds to ten years, not '5'"),
    ("queue", 5, "must be 1 to 200 characters of text, not 5"),
    ("tenant", 5, "must be 1 to 200 characters of text, not 5"),
    ("priority", "5", "must be a whole number from -100 to 100, not '5'"),
    ("max_attempts", 2.5, "must be a whole number from 1 to 1000000, not 2.5"),
    ("max_crashes", "2", "must be a whole number from 1 to 1000, not '2'"),
    ("expires", "5", "must be a duration of 0 seconds to ten years, not '5'"),
]
WRONG_FOR_A_TASK = [
    ("name", 5, "must be 1 to 200 characters of text, not 5"),
    ("name", "", "must be 1 to 200 characters of text, not ''"),
    ("isolated", "yes", "must be True or False, not 'yes'"),
    ("breaker", 3, r"must be a Breaker\(…\) or None, not 3"),
    ("batch", "5", "must be a whole number from 1 to 10000, not '5'"),
    ("on_success", 5, r"takes task.job\(…\) or a webhook, not 5"),
    ("on_dead", [work], r"takes task.job\(…\) or a webhook, not <function"),
    ("tell", 5, "takes webhooks, not 5"),
]


@pytest.mark.parametrize(("option", "value", "reason"), WRONG + WRONG_FOR_A_TASK)
def test_a_wrong_option_of_a_task_is_refused_when_declared(
    option: str, value: Any, reason: str
) -> None:
    ol = app()
    with pytest.raises(InvalidOption, match=f"^The option {option} {reason}"):
        ol.task(**{option: value})(items if option == "batch" else work)
    assert ol.registry.names() == []


@pytest.mark.parametrize(("option", "value", "reason"), WRONG)
def test_a_wrong_option_of_a_job_is_refused(option: str, value: Any, reason: str) -> None:
    task = app().task(work)
    with pytest.raises(InvalidOption, match=f"^The option {option} {reason}"):
        task.using(**{option: value})


def test_the_wait_of_a_batch_is_a_span() -> None:
    with pytest.raises(InvalidOption, match=r"wait must be a duration .*, not 'a'"):
        app().task(batch=5, wait="a")  # type: ignore[call-overload]
    made = batch_of(5, timedelta(seconds=2))  # type: ignore[arg-type]
    assert made is not None and made.wait == 2.0


def test_an_unknown_option_is_named_with_its_nearest_spelling() -> None:
    task = app().task(work)
    with pytest.raises(InvalidOption) as refused:
        task.using(priorty=5)
    assert refused.value.facts["option"] == "priorty"
    assert str(refused.value).startswith(
        "Task.using() has no option 'priorty': did you mean priority? Options: after, at, conn,"
    )
    with pytest.raises(InvalidOption, match="no option 'brakers': did you mean breaker"):
        app().task(brakers=None)
    with pytest.raises(
        InvalidOption, match=r"Outlast\.task\(\) has no option 'zzz'\. Options: after, at, batch"
    ):
        app().task(zzz=1)


def test_a_moment_without_a_time_zone_is_refused_with_what_to_write() -> None:
    naive = datetime.now(UTC).replace(tzinfo=None)
    with pytest.raises(InvalidOption, match=r"write datetime\.now\(UTC\)"):
        app().task(work).using(at=naive)


ONLY_FOR_A_JOB = {
    "key": "k",
    "unique": "waiting",
    "debounce": 5,
    "max_wait": 60,
    "delay": 5,
    "at": datetime(2030, 1, 1, tzinfo=UTC),
    "after": "01890000-0000-7000-8000-000000000000",
    "flow": "01890000-0000-7000-8000-000000000000",
}


def test_checkers_know_every_option() -> None:
    """R202: what is typed is what can be given."""
    of_jobs, of_tasks = set(JobOptions.__annotations__), set(TaskOptions.__annotations__)
    assert of_jobs == {field.name for field in fields(Options)}
    assert of_jobs - of_tasks == {*ONLY_FOR_A_JOB, "retry"}, "retry is a parameter of its own"
    for name, value in ONLY_FOR_A_JOB.items():
        with pytest.raises(InvalidOption, match="belong to a job"):
            app().task(**{name: value})(work)


def test_checkers_know_every_setting_of_a_worker() -> None:
    """R202"""
    typed = {name: hint | None for name, hint in get_type_hints(WorkerSettings).items()}
    assert get_type_hints(WorkerOptions) == {k: v for k, v in typed.items() if k != "concurrency"}
