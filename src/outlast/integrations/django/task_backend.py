"""`TaskBackend`: Django's tasks as jobs.

    TASKS = {"default": {"BACKEND": "outlast.integrations.django.TaskBackend"}}

A task is registered where its code is loaded: by its decorator, or by the autodiscovery of
`tasks.py`. The name in a job's row is looked up among these, and never imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from ...model.errors import InvalidInput, InvalidOption, JobNotFound
from ...model.options import Options
from ...model.retry import Retry
from ...model.task import Call, TaskDefinition
from ...worker.context import Context
from .client import DjangoOutlast, default_app
from .task_api import (
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    signals,
)
from .task_handler import task_handler
from .task_results import new_result, stored_result

# Django's contract has no retries: a task that raised has failed. (A lost worker is not a failure.)
DEFAULTS = {"max_attempts": 1}

_known: dict[str, object] = {}  # Django tasks declared in this process, by path


class TaskBackend(BaseTaskBackend):  # type: ignore[misc]
    """`OPTIONS` are options of the jobs: max_attempts, timeout, max_crashes, expires, tenant."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, object]) -> None:
        super().__init__(alias, params)
        try:
            self._job_options = Options.of({**DEFAULTS, **self.options})
        except InvalidOption as error:
            raise ImproperlyConfigured(f"TASKS[{alias!r}]['OPTIONS']: {error}") from error

    @property
    def app(self) -> DjangoOutlast:
        return default_app()

    def validate_task(self, task: Any) -> None:
        super().validate_task(task)
        _known.setdefault(task.module_path, task)

    def enqueue(self, task: object, args: Iterable[object], kwargs: Mapping[str, object]) -> Any:
        self.validate_task(task)
        result = new_result(task, self.alias, args, kwargs)
        call: Call = Call(
            register(self.app, task),
            self._options(task),
            (),
            {"args": result.args, "kwargs": result.kwargs},
        )
        [job] = self.app.enqueue(call, conn=self.app.open_transaction())
        made = stored_result(task, self.alias, job, [])
        signals.task_enqueued.send(type(self), task_result=made)
        return made

    def get_result(self, result_id: str) -> TaskResult:
        try:
            job = self.app.job(result_id)
        except (JobNotFound, InvalidInput) as error:
            raise TaskResultDoesNotExist(result_id) from error
        task = _known.get(job.task)
        if task is None:
            raise TaskResultDoesNotExist(
                f"{result_id}: its task {job.task!r} is declared in no loaded module imported"
            )
        attempts, _ = self.app.history(job.id)
        return stored_result(self._as_enqueued(task, job), self.alias, job, attempts)

    def _as_enqueued(self, task: Any, job: Any) -> Any:
        deferred = job.run_at > job.created_at and not job.failures
        try:
            return task.using(
                priority=job.priority,
                queue_name=job.queue,
                backend=self.alias,
                run_after=job.run_at if deferred else None,
            )
        except InvalidTask:  # of a queue that the settings no longer name
            return task

    def _options(self, task: Any) -> Options:
        after = task.run_after
        if after is not None and timezone.is_naive(after):
            after = timezone.make_aware(after)
        given = {"priority": task.priority, "queue": task.queue_name, "at": after}
        return Options.of(given).over(self._job_options)


def register(app: DjangoOutlast, task: Any) -> TaskDefinition:
    """Register a Django task under its path; returns its definition."""
    _known.setdefault(task.module_path, task)
    if (known := app.registry.get(task.module_path)) is not None:
        return known
    definition = TaskDefinition(
        name=task.module_path,
        function=task_handler(app, task, TaskBackend),
        retry=Retry(),
        context_type=Context,
        tenant_required=app.tenant_required,
        around=app.around_handlers,
    )
    app.registry.add(definition)
    return definition


def register_known(app: DjangoOutlast, modules: Iterable[ModuleType]) -> None:
    """Register the tasks that were declared for this backend, and all tasks of these modules, which
    `task.using(backend=…)` may enqueue here."""
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, Task):
                _known.setdefault(value.module_path, value)
    for task in list(_known.values()):
        register(app, task)
