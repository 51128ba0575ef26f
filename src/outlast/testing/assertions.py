"""Assertions about the jobs in a store: whether one was enqueued, or none."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from typing import Any

from pydantic_core import to_jsonable_python

from ..client.client import Outlast
from ..model.errors import InvalidArguments, InvalidOption
from ..model.job import Job, read_args
from ..task import BoundTask

MAX_SHOWN = 5  # jobs in a message
COMPARED_OPTIONS = ("queue", "priority", "tenant", "lane", "key", "timeout", "max_attempts")
DELAY_TOLERANCE_S = 1.0


def assert_enqueued(task: BoundTask[..., Any], *args: Any, **kwargs: Any) -> Job:
    """Assert that a job of this task was enqueued, in any state, and return the newest one. Only
    the given arguments and options are compared:
    `assert_enqueued(send.using(queue="slow", delay=60), to="ann@example.org")`."""
    expected = _Expected(task, args, kwargs)
    jobs = _jobs_of(task)
    for job in jobs:
        if not any(expected.differences(job)):
            return job
    raise AssertionError(_not_found(task, expected, jobs))


def refute_enqueued(task: BoundTask[..., Any], *args: Any, **kwargs: Any) -> None:
    """Assert that no job of this task with these arguments and options was enqueued."""
    expected = _Expected(task, args, kwargs)
    found = [job for job in _jobs_of(task) if not any(expected.differences(job))]
    if found:
        shown = "\n".join(f"  {_show(job)}" for job in found[:MAX_SHOWN])
        raise AssertionError(f"{len(found)} × {expected} enqueued, expected none:\n{shown}")


class _Expected:
    """The arguments and options that a job should have."""

    def __init__(
        self, task: BoundTask[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if not isinstance(task, BoundTask):
            raise InvalidOption(
                option="task", reason=f"must be a task, made with @ol.task, not {task!r:.80}"
            )
        definition, options = task._definition, task._options
        arguments = definition.arguments
        self.task = definition.name
        given = arguments.named(args, kwargs)
        if unknown := sorted(kwargs.keys() - given.keys()):
            reason = f"has no parameter {unknown[0]!r}"
            raise InvalidOption(option=f"task {self.task}", reason=reason)
        try:
            stored = json.loads(arguments.encode(args, kwargs))
        except InvalidArguments:  # some are left out
            stored = to_jsonable_python(given)
        masked = read_args(json.dumps(stored))
        self.args = {
            name: masked[name] for name in given if name in masked and name not in arguments.secrets
        }
        self.options = {
            name: value
            for name in COMPARED_OPTIONS
            if (value := getattr(options, name)) is not None and not callable(value)
        }
        self.at = options.at
        self.delay = _seconds(options.delay)

    def differences(self, job: Job) -> Iterator[str]:
        found = job.args if isinstance(job.args, dict) else {}
        for name, value in self.args.items():
            if name not in found or found[name] != value:
                yield f"{name}={found.get(name)!r}"
        for name, value in self.options.items():
            if getattr(job, name) != _seconds(value):
                yield f"{name}={getattr(job, name)!r}"
        yield from self._time_differences(job)

    def _time_differences(self, job: Job) -> Iterator[str]:
        if self.at is not None and not _near(job.run_at, self.at):
            yield f"run_at={job.run_at.isoformat()}"
        if self.delay is not None:
            due = job.created_at + timedelta(seconds=self.delay)
            if not _near(job.run_at, due):
                yield f"delay={(job.run_at - job.created_at).total_seconds():g}"

    def __str__(self) -> str:
        given = [f"{name}={value!r}" for name, value in self.args.items()]
        options = dict(self.options)
        if self.at is not None:
            options["at"] = self.at.isoformat()
        if self.delay is not None:
            options["delay"] = self.delay
        described = ", ".join(f"{name}={value!r}" for name, value in options.items())
        return f"{self.task}({', '.join(given)})" + (f" with {described}" if described else "")


def _near(one: datetime, other: datetime) -> bool:
    return abs((one - other).total_seconds()) <= DELAY_TOLERANCE_S


def _seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _jobs_of(task: BoundTask[..., Any]) -> list[Job]:
    """All jobs of a task, newest first."""
    found = [job for ol in _databases(task) for job in _jobs_in(ol, task._definition.name)]
    return sorted(found, key=lambda job: job.id, reverse=True)


def _jobs_in(ol: Outlast, name: str) -> list[Job]:
    found = page = ol.jobs(task=name)
    while page:
        page = ol.jobs(task=name, before=page[-1].id)
        found += page
    return found


def _databases(task: BoundTask[..., Any]) -> Collection[Outlast]:
    app = task._app
    return [app] if isinstance(app, Outlast) else app.by_name.values()


def _not_found(task: BoundTask[..., Any], expected: _Expected, jobs: list[Job]) -> str:
    """The nearest jobs, and the differences of each."""
    if jobs:
        ranked = sorted(jobs, key=lambda job: len(list(expected.differences(job))))
        lines = [
            f"  {_show(job)}, but {', '.join(expected.differences(job))}"
            for job in ranked[:MAX_SHOWN]
        ]
        return "\n".join([f"no job {expected}; of this task there are {len(jobs)}:", *lines])
    others = Counter(job.task for ol in _databases(task) for job in ol.jobs())
    named = ", ".join(f"{name} × {number}" for name, number in others.most_common(MAX_SHOWN))
    return f"no job {expected}; no job of this task at all, of others: {named or 'none'}"


def _show(job: Job) -> str:
    args = job.args
    shown = ", ".join(f"{k}={v!r}" for k, v in args.items()) if isinstance(args, dict) else args
    return f"{job.task}({shown:.200}) {job.state} in queue {job.queue!r}"
